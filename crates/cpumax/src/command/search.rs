//! `cpumax search`: runs small random scenarios in two worlds, and keeps some on which they differ.

use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, BAD, BOLD};
use crate::worlds::{self, WorldName};
use anyhow::{Context, anyhow};
use clap::{Args, ValueHint};
use cpumax_compare::found::{self, SearchOptions};
use cpumax_compare::search::{
    Between, Counts, Event, Found, Log, Plan, level_of_both, search as run,
};
use cpumax_compare::{How, comparison};
use cpumax_report::{ResultFile, escape};
use cpumax_study::given::ratio;
use indicatif::ProgressBar;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The kernel
    #[arg(short, long)]
    pub kernel: String,
    /// The kernel to compare with [default: its own model]
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Where these kernels run
    #[arg(long, value_enum, default_value_t = WorldName::Vm)]
    pub on: WorldName,
    /// Number of cases
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..1_000_000)
    )]
    pub cases: u64,
    /// Selects the cases: each seed has its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(0..1_000_000_000)
    )]
    pub seed: u64,
    /// Report only numbers that are off by more than this multiple of their tolerance
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    pub beyond: f64,
    /// Cases to shrink and keep, of each kind of disagreement
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub shrink: u64,
    /// Shrink and keep only cases that agree when all limits are removed
    #[arg(long)]
    pub limits_only: bool,
    /// Most comparisons to shrink one case
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub attempts: u64,
    /// Virtual machines at a time [default: as many as there are CPUs for]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Folder for the found scenarios
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "scenarios/found",
        value_hint = ValueHint::DirPath
    )]
    pub keep: PathBuf,
    /// Log every case to this file; the same search with the same log continues where it stopped. A
    /// file with other content is refused
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
}

/// Numbers of cases reserved for one seed.
const CASES_MAX: u64 = 1_000_000;

pub fn search(args: &SearchArgs) -> Result<(), Failure> {
    let asked = worlds::single_kernel(&args.kernel, args.on, "--kernel")?;
    let against = worlds::against(args.against.as_deref(), args.on)?;
    let plan = Plan {
        first: args.seed.saturating_mul(CASES_MAX),
        cases: args.cases,
        beyond: args.beyond,
        kept_of_kind: args.shrink,
        attempts: args.attempts,
        limits_only: args.limits_only,
        level: against.as_ref().map(|against| level_of_both(&asked, against)),
    };
    let how = worlds::how(args.on, false, args.jobs, None);
    let both = comparison::sides(&asked, against.as_ref(), how);
    let [reference, other] = both.map_err(worlds::failure)?;
    let asked_for = SearchOptions::new(&asked, against.as_ref(), how.real, args.seed, &plan);
    let mut log = match &args.log {
        Some(path) => Log::open(path, &asked_for.name(&other.label)).map_err(worlds::failure)?,
        None => Log::none(),
    };
    fs::create_dir_all(&args.keep)
        .with_context(|| format!("cannot make {}", escape::path(&args.keep)))?;
    let _watched = interrupt::Watched::begin();
    let mut telling = Telling::new(args, asked_for);
    let real = against.as_ref().filter(|_| how.real);
    let in_model = How { real: false, ..how };
    let models = real.map(|against| comparison::sides(&asked, Some(against), in_model));
    let models = models.transpose().map_err(worlds::failure)?;
    let between = Between {
        reference: &reference,
        against: &other,
        models: models.as_ref().map(|[first, second]| [first, second]),
    };
    let ended = run(&plan, &mut log, between, |event| telling.event(&event));
    telling.bar.finish_and_clear();
    telling.summary()?;
    ended.map_err(worlds::failure)?;
    if telling.counts.has_run_none() {
        return Err(anyhow!("no case could be run").into());
    }
    if telling.counts.disagreed == 0 { Ok(()) } else { Err(Failure::Unexpected) }
}

/// Progress of a search on the terminal, and its counts for the summary.
struct Telling<'a> {
    args: &'a SearchArgs,
    asked: SearchOptions,
    bar: ProgressBar,
    counts: Counts,
    kept: Vec<PathBuf>,
}

impl<'a> Telling<'a> {
    fn new(args: &'a SearchArgs, asked: SearchOptions) -> Telling<'a> {
        let style = output::bar_style("{bar:40} {pos} of {len} cases{msg}{left}");
        let bar = ProgressBar::new(args.cases).with_style(style);
        Telling { args, asked, bar, counts: Counts::default(), kept: Vec::new() }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), cpumax_compare::Error> {
        match event {
            Event::Case(line) => {
                self.counts.count(line);
                self.bar.inc(1);
                self.bar.set_message(format!(", {} disagree", self.counts.disagreed));
            }
            Event::Shrinking(attempts) => {
                self.bar.set_message(format!(", shrinking one for the {attempts}th time"));
            }
            // The search has logged the case before.
            Event::Found(found) => return self.found(found),
        }
        if interrupt::requested() { Err(cpumax_compare::Error::Interrupted) } else { Ok(()) }
    }

    fn found(&mut self, found: &Found) -> Result<(), cpumax_compare::Error> {
        let path = self.args.keep.join(found::file_name(found));
        let again = self.asked.again(&path, found.case);
        write(&path, &found::text(found, &self.asked.command(), &again))?;
        let worst = found.cell.worst();
        let what = worst.map_or(String::new(), |worst| {
            format!("{} {}, {:.1} times the tolerance", worst.of, worst.field, worst.ratio)
        });
        self.bar.suspend(|| {
            // A missing reader does not end the search.
            let told = format!("case {}: {what}: {}\n", found.case, path.display());
            let _ = output::print(&told);
        });
        self.kept.push(path);
        Ok(())
    }

    fn summary(&self) -> Result<(), Failure> {
        let Counts { cases, disagreed, .. } = self.counts;
        let told = output::styled(if disagreed > 0 { BAD } else { BOLD }, disagreed);
        let mut text = format!("{cases} cases, {told} disagree, {} kept\n", self.kept.len());
        for reason in self.counts.reasons() {
            let _ = writeln!(text, "{reason}");
        }
        output::print(&text)
    }
}

fn write(path: &Path, text: &str) -> Result<(), cpumax_compare::Error> {
    let written = ResultFile::create(path).and_then(|file| file.write_text(text));
    written.map_err(|error| cpumax_compare::Error::File {
        path: escape::path(path),
        reason: format!("{error}: {}", error.source),
    })
}
