//! `cpumax replay`: a recorded service under limits it did not have, on each kernel, against no
//! limit.

use crate::args::{Reading, ReplayArgs};
use crate::failure::Failure;
use crate::json::JsonArray;
use crate::output::{self, DIM};
use crate::reading;
use crate::result_file::ResultFile;
use crate::runs::Terminal;
use anyhow::Context;
use cpumax_engine::predict::{self, Prediction, Unit};
use cpumax_engine::replay::Run;
use cpumax_engine::{Replay, Request, Try};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_recording::Summary;
use cpumax_report::{PredictedRow, Ranged, cpus, duration};
use cpumax_workload::Workload;
use std::io::Write;
use std::path::Path;

/// Kinds of thread shown with `--threads`.
const KINDS_SHOWN: usize = 20;

const LEGEND: &str = "\
limit: quota/period, +burst, in ms; w: weight; in: what the group above has;
CPUs: kept busy by the limited threads while their load was there; in brackets
how far each number may be off: nobody knows when a period begins, and the same
work costs more or less on another day.";

pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let asked = args.running.kernels_asked().map(kernel::parse_kernels).transpose()?;
    let request = request(args)?;
    request.limited_group().map_err(Failure::of)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let recording = reading::read(&args.reading)?;
    let replay = Replay::new(&reading::name(&args.reading), &recording, &request);
    let replay = replay.map_err(Failure::of)?;
    warn(replay.summary());
    if let Some(file) = &args.write_scenario {
        let limit = request.limits.first();
        let scenario = replay.as_scenario(limit).map_err(Failure::of)?;
        let text = cpumax_workload::to_file(&scenario, &file.display().to_string())?;
        ResultFile::create(file)?.write(|out| Ok(out.write_all(text.as_bytes())?))?;
        if args.set.is_empty() {
            return Ok(());
        }
    }
    let kernels = asked.unwrap_or_else(|| replay.kernels());
    let (seed, running) = (args.running.seed, args.running.how());
    let runs = replay.runs(&kernels, seed, &running, &Terminal::new()).map_err(Failure::of)?;
    let documents = || std::iter::once(replay.document()).chain(runs.iter().map(Run::document));
    match json {
        Some(json) if json.is_stdout() => json.write(documents())?,
        json => {
            if let Some(json) = json {
                json.write(documents())?;
            }
            write(&replay, &kernels, &runs, args)?;
        }
    }
    Ok(())
}

fn request(args: &ReplayArgs) -> anyhow::Result<Request> {
    Ok(Request {
        group: args.group.clone(),
        limits: args.set.iter().map(|set| limit(set)).collect::<anyhow::Result<_>>()?,
        open_loop: args.open_loop.clone(),
        closed_loop: args.closed_loop.clone(),
        skip_late: args.skip_late.clone(),
        from_ns: args.from,
        until_ns: args.to,
        scale_work: args.scale_work,
        scale_load: args.scale_load,
        work: args.work_range,
    })
}

fn limit(set: &str) -> anyhow::Result<Try> {
    Try::parse(set).with_context(|| format!("--set '{set}'"))
}

/// A recording with one limit, and time enough to do its work under that.
///
/// # Errors
/// It cannot be read, or the kernel would refuse the limit.
pub fn limited(recording: &Path, set: &str) -> Result<Workload, Failure> {
    let limit = limit(set)?;
    let request = Request { limits: vec![limit.clone()], ..Request::default() };
    request.limited_group().map_err(Failure::of)?;
    let reading = Reading { recording: recording.to_owned(), event_cost: None, syscall_cost: None };
    let recording = reading::read(&reading)?;
    let replay = Replay::new(&reading::name(&reading), &recording, &request);
    let replay = replay.map_err(Failure::of)?;
    warn(replay.summary());
    replay.limited(&limit).map_err(Failure::of)
}

/// Repairs are told whatever becomes of the run.
fn warn(summary: &Summary) {
    if !summary.defects.is_empty() {
        anstream::eprintln!("The recording has faults that were repaired:\n{}", summary.defects);
    }
}

fn write(
    replay: &Replay,
    kernels: &[Kernel],
    runs: &[Run],
    args: &ReplayArgs,
) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let summary = replay.summary();
    if let Some(unlimited) = runs.first() {
        disagreements(&mut out, replay, unlimited)?;
    }
    writeln!(out, "{}", reading::describe(&args.reading, summary))?;
    let of_all = cpus(summary.runtime_ns as f64 / summary.span_ns.max(1) as f64);
    let window = replay.window();
    writeln!(
        out,
        "Limited: {} ({} threads, which used {} CPUs from {} to {}; all threads used {of_all})\n",
        replay.path(),
        replay.threads(),
        cpus(replay.mean_cpus()),
        duration(window.from_ns),
        duration(window.until_ns),
    )?;
    let mut understood: Vec<String> = replay.limits().iter().flat_map(Try::understood).collect();
    understood.dedup();
    if !understood.is_empty() {
        writeln!(out, "{}\n", understood.join("\n"))?;
    }
    let mut table = vec![row("recorded", "", &replay.recorded())];
    for run in runs {
        table.extend(rows(replay, run, args.threads));
    }
    let unit = match replay.recorded().latency_of {
        Unit::Requests => "requests",
        Unit::Bursts => "bursts",
    };
    writeln!(out, "{}", cpumax_report::predicted(&table, unit, output::width()))?;
    for line in doubts(runs) {
        writeln!(out, "{}", output::wrapped(&line))?;
    }
    if runs.iter().any(|run| !run.is_done()) {
        writeln!(out, "-: the work was not done after four times the time it should take.")?;
    }
    for (limit, kernel, why) in &replay.not_tried(kernels) {
        writeln!(out, "{} is not tried on {}: {why}", limit.label, kernel.version)?;
    }
    writeln!(out, "{}", output::styled(DIM, LEGEND))?;
    Ok(out.flush()?)
}

/// Which limits nothing can be relied on of, and why; each once.
fn doubts(runs: &[Run]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut told: Vec<&str> = Vec::new();
    for run in runs {
        let Some(why_not) = &run.prediction.why_not else { continue };
        if !told.contains(&run.limit.label.as_str()) {
            told.push(&run.limit.label);
            let (limit, kernel) = (&run.limit.label, &run.outcome.kernel);
            lines.push(format!("? {limit} on {kernel} is not predictable: {why_not}."));
        }
    }
    lines
}

/// Where the replay is not what was recorded, nothing else is as important.
fn disagreements(out: &mut impl Write, replay: &Replay, unlimited: &Run) -> anyhow::Result<()> {
    let lines = replay.disagreements(&unlimited.prediction);
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "Without a limit the replay is not what was recorded:")?;
    for line in lines {
        writeln!(out, "  {line}")?;
    }
    let why = "What it says of limits is off by as much at least, unless the recording was made \
               under a limit.";
    writeln!(out, "{}\n", output::wrapped(why))?;
    Ok(())
}

/// The limit, and what of it this kernel does not have.
fn label(run: &Run) -> String {
    let lacks = run.lacks.iter().map(|missing| format!(" (no {})", missing.file));
    lacks.fold(run.limit.label.clone(), |label, lacks| label + &lacks)
}

fn rows(replay: &Replay, run: &Run, threads: bool) -> Vec<PredictedRow> {
    let (limit, kernel) = (label(run), run.outcome.kernel.as_str());
    let mut rows = vec![row(&limit, kernel, &run.prediction)];
    if threads {
        for name in replay.kinds().into_iter().take(KINDS_SHOWN) {
            let Some(task) = run.outcome.tasks.get(name) else { continue };
            let known = |value: f64| Some(Ranged { value, low: value, high: value });
            let ms = |ns: u64| known(ns as f64 / 1e6).filter(|_| task.completions > 0);
            rows.push(PredictedRow {
                limit: limit.clone(),
                kernel: kernel.to_owned(),
                thread: Some(name.to_owned()),
                cpus: known(run.busy(task.usage_usec)),
                latency_ms: [ms(task.latency_ns.p50), ms(task.latency_ns.p99)],
                ..PredictedRow::default()
            });
        }
    }
    rows
}

fn row(limit: &str, kernel: &str, prediction: &Prediction) -> PredictedRow {
    let plain = |number: predict::Ranged<f64>| Ranged {
        value: number.value,
        low: number.low,
        high: number.high,
    };
    let scaled = |number: predict::Ranged<u64>, unit_ns: f64| Ranged {
        value: number.value as f64 / unit_ns,
        low: number.low as f64 / unit_ns,
        high: number.high as f64 / unit_ns,
    };
    let latency = prediction.request_latency_ns;
    PredictedRow {
        limit: limit.to_owned(),
        kernel: kernel.to_owned(),
        thread: None,
        cpus: prediction.cpus.map(plain),
        throttled_percent: prediction.throttled_percent.map(plain),
        latency_ms: [latency.map(|l| scaled(l.p50, 1e6)), latency.map(|l| scaled(l.p99, 1e6))],
        requests_per_second: prediction.requests_per_second.map(plain),
        takes_s: prediction.work_takes_ns.map(|takes| scaled(takes, 1e9)),
        doubtful: !prediction.predictable,
    }
}
