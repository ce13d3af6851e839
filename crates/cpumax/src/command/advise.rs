//! `cpumax advise`: finds the smallest limit that meets the goals, and prints it in a form to
//! apply.

mod counted;

use super::replay::{again, chosen, warn};
use super::{Cli, Command};
use crate::args::{Choosing, Costs, Running, Tables};
use crate::failure::Failure;
use crate::output;
use crate::runs::Terminal;
use anyhow::{Context, anyhow, bail};
use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args, Parser, ValueHint};
use counted::{Alone, from_counters};
use cpumax_forecast::{
    Request,
    advise::{self, Case, Goal, Question},
    recorded,
    saved::Saved,
};
use cpumax_machine::kernel;
use cpumax_recording::Options;
use cpumax_report::{Chosen, StudyFiles, System, advice_in_form, advice_text};
use cpumax_study::{
    Try,
    answer::Document,
    given::{factor, percent, share, time},
};
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit status: no limit meets the goals.
const NOTHING: u8 = 1;
/// Exit status: the recording or the counters are not enough to tell.
const THIN: u8 = 3;

#[derive(Debug, Args)]
#[command(group(
    // Counters have no threads to choose, and show no other traffic, burst or cost.
    ArgGroup::new("counters").args(["stat", "openmetrics", "prometheus"]).multiple(true)
        .conflicts_with_all([
        "output", "csv", "parquet", "load", "burst", "group", "pin", "hz", "cpus", "open_loop",
        "closed_loop", "skip_late", "from", "to", "scale_work", "work_range", "event_cost",
        "syscall_cost",
    ])
))]
pub struct AdviseArgs {
    /// perf.data, trace.dat, Perfetto traces, or text as for `cpumax inspect`; several, such as
    /// different hours or replicas, get one limit
    #[arg(value_name = "RECORDING", value_hint = ValueHint::FilePath)]
    #[arg(required_unless_present = "counters", conflicts_with = "scraped")]
    recordings: Vec<PathBuf>,
    /// Goal for the median latency of requests, e.g. 5ms
    #[arg(long, help_heading = "What is asked", value_name = "TIME", value_parser = time)]
    p50: Option<u64>,
    /// Goal for the 95th percentile, e.g. 20ms
    #[arg(long, help_heading = "What is asked", value_name = "TIME", value_parser = time)]
    p95: Option<u64>,
    /// Goal for the 99th percentile, e.g. 50ms
    #[arg(long, help_heading = "What is asked", value_name = "TIME", value_parser = time)]
    p99: Option<u64>,
    /// Goal for the 99.9th percentile, e.g. 100ms
    #[arg(long = "p99.9", help_heading = "What is asked", value_name = "TIME", value_parser = time)]
    p999: Option<u64>,
    /// Most slowdown against no limit, of the p99 of requests or of work that has an end [default,
    /// if there is no other goal: 10%]
    #[arg(long, help_heading = "What is asked", value_name = "PERCENT", value_parser = percent)]
    slower_than: Option<f64>,
    /// Most throttled periods, as a share of all, e.g. 5%
    #[arg(long, help_heading = "What is asked", value_name = "PERCENT", value_parser = share)]
    throttled: Option<f64>,
    /// Least throughput against no limit, e.g. 99%
    #[arg(long, help_heading = "What is asked", value_name = "PERCENT", value_parser = share)]
    throughput: Option<f64>,
    /// Traffic as a multiple of the recorded, e.g. 1.5 for half as much again
    #[arg(long, help_heading = "What is asked", value_name = "FACTOR", value_parser = factor)]
    load: Option<f64>,
    /// Periods to try, e.g. 100ms,20ms,10ms
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = time)]
    #[arg(default_value = "100ms")]
    period: Vec<u64>,
    /// Bursts to try, as a percentage of the quota, e.g. 0,50%,100%
    #[arg(long, value_name = "PERCENTS", value_delimiter = ',', value_parser = share)]
    #[arg(default_value = "0")]
    burst: Vec<f64>,
    /// The present limit of the service, to be shown beside, e.g. 500m or '50000 100000'
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    current: Option<String>,
    /// Print only the limit, in a form to apply: a strategic-merge patch, the `kubectl` line with
    /// it, a drop-in of a unit, shell lines that write the group's files
    #[arg(short, long, value_name = "SYSTEM")]
    #[arg(value_parser = PossibleValuesParser::new(System::NAMES))]
    output: Option<String>,
    /// The object that gets it, as `kubectl get deploy/web -o yaml` prints it; - for standard input
    #[arg(long, value_name = "FILE", requires = "output", value_hint = ValueHint::FilePath)]
    object: Option<PathBuf>,
    /// Its container [default: the only one]
    #[arg(long, value_name = "NAME", requires = "object")]
    container: Option<String>,
    /// Limit its pods as a whole, by spec.resources
    #[arg(long, requires = "object", conflicts_with = "container")]
    whole_pod: bool,
    /// Add to the JSON which thread ran when and waited for which, as reports show it
    #[arg(long)]
    stretches: bool,
    #[command(flatten)]
    tables: Tables,
    #[command(flatten)]
    choosing: Choosing,
    #[command(flatten)]
    running: Running,
    #[command(flatten)]
    costs: Costs,
    #[command(flatten)]
    alone: Alone,
}

/// Advice, as words ask for it.
#[derive(Debug)]
pub struct Advising {
    /// How recordings are read.
    pub options: Options,
    /// The question put to each recording.
    pub request: Request,
    /// The goals and the limits to search.
    pub question: Question,
    /// How it is run.
    pub running: cpumax_study::Running,
}

impl Advising {
    /// The advice that the words of `cpumax advise` ask for, of recordings.
    ///
    /// # Errors
    /// An option, a limit or a kernel is not understood.
    pub fn parse(words: &[OsString]) -> anyhow::Result<Advising> {
        match Cli::try_parse_from(words)?.command {
            Command::Advise(args) if !args.recordings.is_empty() => Advising::of(&args, words),
            _ => bail!("these are not words of `cpumax advise` with recordings"),
        }
    }

    fn of(args: &AdviseArgs, words: &[OsString]) -> anyhow::Result<Advising> {
        let (periods_ns, scale_load) = (args.period.clone(), args.load);
        let made_by = again(words, "advise", None);
        Ok(Advising {
            options: args.costs.options(),
            request: Request { periods_ns, scale_load, made_by, ..chosen(&args.choosing) },
            question: question(args)?,
            running: args.running.how(),
        })
    }
}

pub fn advise(args: &AdviseArgs, words: &[OsString]) -> Result<(), Failure> {
    if args.recordings.is_empty() {
        return from_counters(args, question(args)?);
    }
    let Advising { options, request, question, running } = Advising::of(args, words)?;
    let Tables { csv, parquet } = &args.tables;
    let files = StudyFiles::create(&args.running.json, csv, parquet)?;
    let is_told = files.leave_stdout();
    if !is_told && args.output.is_some() {
        return Err(anyhow!("--output prints to standard output too: give the others files").into());
    }
    let (path, name) = (args.object.as_deref(), args.container.as_deref());
    let chosen = Chosen::read(system(args), path, name, args.whole_pod)?;
    let cases = cases(&args.recordings, options, &request)?;
    let watch = Terminal::new();
    let mut answer = advise::advise(&cases, &question, &running, &watch).map_err(Failure::of)?;
    if args.stretches {
        answer.trace(&cases, &running, &watch).map_err(Failure::of)?;
    }
    drop(watch);
    let document = answer.document(&cases);
    let saved = || Saved::of_advice(document.clone());
    files.write(std::iter::once(Document::from(&document)), saved)?;
    let text = || advice_text(&answer, &cases, output::page());
    match (system(args), answer.recommended()) {
        _ if !is_told => {}
        (Some(system), Some(_)) => {
            output::print(&advice_in_form(&answer, &cases, system, chosen.as_ref())?)?;
            output::eprint(&cpumax_report::gaps_text(&cases, output::page()))?;
        }
        (Some(_), None) => output::eprint(&text())?,
        (None, _) => output::print(&text())?,
    }
    if answer.recommended().is_some() {
        return Ok(());
    }
    Err(Failure::Status(if answer.lacks.is_empty() { NOTHING } else { THIN }))
}

fn system(args: &AdviseArgs) -> Option<System> {
    args.output.as_deref().and_then(System::of)
}

fn cases(
    recordings: &[PathBuf],
    options: Options,
    request: &Request,
) -> Result<Vec<Case>, Failure> {
    let mut cases = Vec::new();
    for path in recordings {
        let recording = recorded::read(path, options).map_err(Failure::of)?;
        let case = Case::new(recorded::name(path), &recording, request).map_err(Failure::of)?;
        warn(&case.replay.summary().defects);
        cases.push(case);
    }
    Ok(cases)
}

fn question(args: &AdviseArgs) -> anyhow::Result<Question> {
    let kernels = args.running.kernels_asked().as_deref().map(kernel::parse_kernels).transpose()?;
    if let Some(system) = system(args).filter(|system| !system.has_burst())
        && args.burst.iter().any(|percent| *percent > 0.0)
    {
        bail!("--burst: -o {} cannot set a burst, only -o cgroup can", system.name());
    }
    let current = args.current.as_deref().map(|limit| Try::parse(limit).context("--current"));
    let goals = [
        args.p50.map(Goal::P50),
        args.p95.map(Goal::P95),
        args.p99.map(Goal::P99),
        args.p999.map(Goal::P999),
        args.slower_than.map(Goal::Slower),
        args.throttled.map(Goal::Throttled),
        args.throughput.map(Goal::Throughput),
    ];
    let question = Question {
        goals: goals.into_iter().flatten().collect(),
        kernels,
        periods_ns: args.period.clone(),
        bursts_percent: args.burst.clone(),
        load: args.load.unwrap_or(1.0),
        current: current.transpose()?,
        others: args.output.is_none(),
        seed: args.running.seed,
    };
    Ok(question.checked()?)
}
