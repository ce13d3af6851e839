//! `cpumax compare`: compares the model with real kernels, or one kernel with another, scenario by
//! scenario.

use super::replay;
use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::worlds::{self, WorldName};
use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueHint};
use cpumax_compare::Noisy;
use cpumax_compare::comparison::Progress;
use cpumax_compare::{Cell, Comparison, Matrix, Pairing};
use cpumax_lab::catalog::{self, Set};
use cpumax_report::{JsonArray, Made, ResultFile, escape};
use cpumax_study::given::{Seeds, seeds};
use cpumax_workload::Workload;
use indicatif::ProgressBar;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Names of built-in scenarios, or scenario files
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub scenarios: Vec<String>,
    /// Every built-in scenario
    #[arg(long, conflicts_with = "scenarios")]
    pub all: bool,
    /// Compare also the random cases with the numbers A to B of `cpumax search`; with --parallel,
    /// those for 2 to 8 CPUs
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub cases: Option<Seeds>,
    /// Kernels, the columns of the matrix: versions and ranges, e.g. 6.1,6.12..7.3; real ones must
    /// have been fetched
    #[arg(short, long, value_name = "LIST", default_value_t = catalog::list(Set::Compare))]
    pub kernel: String,
    /// Where these kernels run
    #[arg(long, value_enum, default_value_t = WorldName::Vm)]
    pub on: WorldName,
    /// Compare each of them with this kernel in the same world, instead of with its own model
    #[arg(long, value_name = "KERNEL")]
    pub against: Option<String>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Compare with each seed from A to B instead of one
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<Seeds>,
    /// Use several CPUs, with wider tolerances
    #[arg(long)]
    pub parallel: bool,
    /// With --parallel: run each real kernel N times, starts some microseconds apart, and compare
    /// the median of each number; 1 to 99
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "parallel",
        conflicts_with = "trace",
        value_parser = clap::value_parser!(u16).range(1..=99)
    )]
    pub median: u16,
    /// Compare also the kernel calls that release throttled tasks, and their work
    #[arg(long)]
    pub releases: bool,
    /// Virtual machines at a time [default: as many as there are CPUs for]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Write every comparison as JSON; - for standard output, without the matrix
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub json: Option<PathBuf>,
    /// Write the matrix as a picture, without random cases that agree everywhere
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Write the matrix as a document in Markdown, with the kernels and the date
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub markdown: Option<PathBuf>,
    /// Most runs of the model with microsecond noise, which show how far each number moves; 0 to
    /// 10000
    #[arg(
        long,
        value_name = "N",
        default_value_t = Noisy::MOST,
        value_parser = clap::value_parser!(u32).range(0..=10_000)
    )]
    pub noisy: u32,
    /// Write which task ran when in both, as text, and both side by side around the point where
    /// they part: two or three files for each comparison. There the model follows the kernel's run
    /// to the microsecond as far as it can
    #[arg(long, value_name = "FOLDER")]
    pub trace: Option<PathBuf>,
    /// Keep each run of a real kernel in this folder, and take runs from there: an interrupted
    /// comparison continues, and a changed model is compared with the same runs in a fraction of
    /// the time. Runs with KVM differ each time; the kept one is the first
    #[arg(long, value_name = "FOLDER")]
    pub runs: Option<PathBuf>,
}

pub fn compare(args: &CompareArgs, words: &[OsString]) -> Result<(), Failure> {
    let workloads = workloads(args)?;
    let kernels = worlds::kernels(&args.kernel, args.on)?;
    let against = worlds::against(args.against.as_deref(), args.on)?;
    let cases = args.cases.map_or(0, |cases| (cases.last - cases.first) as usize + 1);
    let mut comparison = Comparison { workloads, cases, kernels, against, columns: Vec::new() };
    let kept = kept(args)?;
    let files = Files::create(args)?;
    if let Some(folder) = &args.trace {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", escape::path(folder)))?;
    }
    let _watched = interrupt::Watched::begin();
    let how = worlds::how(args.on, args.parallel, args.jobs, kept);
    let how = worlds::How { releases: args.releases, ..how };
    let pairing = pairing(args);
    let all = comparison.len(&pairing);
    let bar = progress(all);
    bar.set_message("booting");
    bar.tick();
    comparison.prepare(how).map_err(Failure::of)?;
    let mut traced = Ok(());
    let ran = comparison.run(&pairing, how, |progress| match progress {
        Progress::Kernel(name) => bar.set_message(name.to_owned()),
        Progress::Cell(kernel, cell) => {
            if let Some(folder) = &args.trace
                && traced.is_ok()
            {
                traced = write_traces(folder, kernel, cell);
                cell.traces.clear();
            }
            bar.inc(1);
        }
    });
    bar.finish_and_clear();
    let matrix = comparison.matrix();
    let tally = matrix.tally();
    let title = comparison.title(args.on == WorldName::Vm);
    let shown = files.json.as_ref().is_none_or(|json| !json.is_stdout());
    if let Err(error) = ran {
        // Show the finished part, but write no file, where it would pass for the whole.
        if shown && !tally.is_of_nothing() {
            let done = comparison.done();
            // The reason for the end is more important than a missing reader.
            let _ = print_matrix(
                &format!("{title}; interrupted after {done} of {all} comparisons"),
                &matrix.tried(),
            );
        }
        return Err(worlds::failure(error));
    }
    let written = files.write(&title, &comparison, words);
    // Print the result even if a file could not be written.
    let told = if shown { print_matrix(&title, &matrix) } else { Ok(()) };
    traced.and(written)?;
    told?;
    if tally.is_of_nothing() {
        return Err(anyhow!(tally.sentence()).into());
    }
    if tally.differ + tally.failed > 0 { Err(Failure::Unexpected) } else { Ok(()) }
}

fn pairing(args: &CompareArgs) -> Pairing {
    let seeds = args.seeds.unwrap_or(Seeds { first: args.seed, last: args.seed });
    Pairing {
        seeds: seeds.first..=seeds.last,
        trace: args.trace.is_some(),
        noisy: Noisy::up_to(args.noisy),
        runs: args.median,
    }
}

fn print_matrix(title: &str, matrix: &Matrix) -> Result<(), Failure> {
    let mut out = format!("{title}\n\n{}\n", cpumax_report::matrix(matrix));
    let tally = matrix.tally();
    if !tally.is_of_nothing() {
        let _ = writeln!(out, "{}", tally.sentence());
    }
    output::print(&out)
}

/// Files to write, opened before the first run.
struct Files {
    json: Option<JsonArray>,
    svg: Option<ResultFile>,
    markdown: Option<ResultFile>,
}

impl Files {
    fn create(args: &CompareArgs) -> anyhow::Result<Files> {
        Ok(Files {
            json: args.json.as_deref().map(JsonArray::create).transpose()?,
            svg: args.svg.as_deref().map(ResultFile::create).transpose()?,
            markdown: args.markdown.as_deref().map(ResultFile::create).transpose()?,
        })
    }

    /// Writes all files, even if one of them fails.
    fn write(self, title: &str, comparison: &Comparison, words: &[OsString]) -> anyhow::Result<()> {
        let json = self.json.map_or(Ok(()), |json| json.write(comparison.cells()));
        let svg = self.svg.map_or(Ok(()), |file| {
            file.write_text(&cpumax_report::svg(&comparison.matrix_of_note(), title))
        });
        let markdown = self.markdown.map_or(Ok(()), |file| {
            let today = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
            let made = Made {
                by: &replay::again(words, "compare", None).join(" "),
                version: env!("CARGO_PKG_VERSION"),
                on: today.get(..10).unwrap_or_default(),
                cpus: std::thread::available_parallelism().map_or(1, usize::from),
            };
            file.write_text(&cpumax_report::document(comparison, title, &made))
        });
        Ok(json.and(svg).and(markdown)?)
    }
}

fn kept(args: &CompareArgs) -> anyhow::Result<Option<&Path>> {
    if args.runs.is_some() && args.on == WorldName::Model {
        bail!("--runs keeps runs of real kernels: it works with --on vm only");
    }
    Ok(args.runs.as_deref())
}

fn workloads(args: &CompareArgs) -> anyhow::Result<Vec<Workload>> {
    let workloads =
        cpumax_compare::workloads(&args.scenarios, args.all, args.cases, args.parallel)?;
    if workloads.is_empty() {
        bail!("nothing to compare: give scenarios, --all or --cases");
    }
    Ok(workloads)
}

/// Writes what happened in both worlds, in files that can be compared line by line.
fn write_traces(folder: &Path, kernel: &str, cell: &Cell) -> anyhow::Result<()> {
    for (name, text) in cell.trace_files(kernel) {
        ResultFile::create(&folder.join(name))?.write_text(&text)?;
    }
    Ok(())
}

/// Draws nothing when standard error is not a terminal.
fn progress(cells: usize) -> ProgressBar {
    let template = "{bar:40} {pos} of {len} comparisons, now on {msg}{left}";
    ProgressBar::new(cells as u64).with_style(output::bar_style(template))
}
