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
use cpumax_engine::replay::Run;
use cpumax_engine::{Replay, Request, Try};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_recording::Summary;
use cpumax_report::{ReplayRow, cpus};
use cpumax_workload::Workload;
use std::io::Write;
use std::path::Path;

/// Kinds of thread shown with `--threads`.
const KINDS_SHOWN: usize = 20;

const LEGEND: &str = "\
limit: quota/period, +burst, in ms; w: weight; in: what the group above has;
CPUs: kept busy by the limited threads;
burst: from the wakeup of a limited thread until it waits again;
takes: time for the recorded work, divided by the same without a limit.";

pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let kernels = kernel::parse_kernels(args.running.kernels())?;
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
    let (seed, running) = (args.running.seed, args.running.how());
    let runs = replay.runs(&kernels, seed, &running, &Terminal::new()).map_err(Failure::of)?;
    match json {
        Some(json) if json.is_stdout() => json.write(runs.iter().map(Run::document))?,
        json => {
            if let Some(json) = json {
                json.write(runs.iter().map(Run::document))?;
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
    let reading = Reading { recording: recording.to_owned(), event_cost: 0, syscall_cost: 0 };
    let recording = reading::read(&reading)?;
    let replay = Replay::new(&reading::name(&reading), &recording, &request);
    let replay = replay.map_err(Failure::of)?;
    warn(replay.summary());
    replay.limited(&limit).map_err(Failure::of)
}

/// Repairs are told whatever becomes of the run.
fn warn(summary: &Summary) {
    if !summary.defects.is_empty() {
        output::say(format_args!(
            "The recording has faults that were repaired:\n{}",
            summary.defects
        ));
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
    writeln!(out, "{}", reading::describe(&args.reading, summary))?;
    let of_all = cpus(summary.runtime_ns as f64 / summary.span_ns.max(1) as f64);
    writeln!(
        out,
        "Limited: {} ({} threads, which used {} CPUs; all threads used {of_all})\n",
        replay.path(),
        replay.threads(),
        cpus(replay.mean_cpus())
    )?;
    let mut understood: Vec<String> = replay.limits().iter().flat_map(Try::understood).collect();
    understood.dedup();
    if !understood.is_empty() {
        writeln!(out, "{}\n", understood.join("\n"))?;
    }
    let table: Vec<ReplayRow> =
        runs.iter().flat_map(|run| rows(replay, run, args.threads)).collect();
    writeln!(out, "{}", cpumax_report::replay(&table, output::width()))?;
    if runs.iter().any(|run| run.finished_ns.is_none()) {
        writeln!(out, "-: the work was not done after four times the time it should take.")?;
    }
    let not_tried = replay.not_tried(kernels);
    for (limit, kernel, why) in &not_tried {
        writeln!(out, "{} is not tried on {}: {why}", limit.label, kernel.version)?;
    }
    writeln!(out, "{}", output::styled(DIM, LEGEND))?;
    Ok(out.flush()?)
}

/// The limit, and what of it this kernel does not have.
fn label(run: &Run) -> String {
    let lacks = run.lacks.iter().map(|missing| format!(" (no {})", missing.file));
    lacks.fold(run.limit.label.clone(), |label, lacks| label + &lacks)
}

fn rows(replay: &Replay, run: &Run, threads: bool) -> Vec<ReplayRow> {
    let group = run.outcome.groups.get(replay.path());
    let row = ReplayRow {
        limit: label(run),
        kernel: format!("{} {}", run.outcome.kernel, run.outcome.generation),
        thread: None,
        used_cpus: run.busy(group.map_or(0, |group| group.usage_usec)),
        group: group.cloned(),
        latency_ns: group.map(|group| group.latency_ns).unwrap_or_default(),
        slowdown: run.slowdown,
    };
    let mut rows = vec![row.clone()];
    if threads {
        for name in replay.kinds().into_iter().take(KINDS_SHOWN) {
            let Some(task) = run.outcome.tasks.get(name) else { continue };
            rows.push(ReplayRow {
                thread: Some(name.to_owned()),
                used_cpus: run.busy(task.usage_usec),
                group: None,
                latency_ns: task.latency_ns,
                slowdown: None,
                ..row.clone()
            });
        }
    }
    rows
}
