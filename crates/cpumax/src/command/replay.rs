//! `cpumax replay`: a recorded service under limits it did not have, on each kernel, against no
//! limit.
//!
//! Every run does the recorded work to its end, however long that takes; what is told of a run is
//! told up to the exit of the last limited thread.

mod what_if;

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::json::JsonArray;
use crate::output::{self, DIM};
use crate::recorded;
use crate::runs::{self, Job};
use anyhow::{Context, bail};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_outcome::{Outcome, TaskOutcome};
use cpumax_recording::{Clock, Recording, Selection, Summary};
use cpumax_report::{ReplayRow, cpus, duration};
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{GroupIx, Workload};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use what_if::Try;

/// Where chosen threads are put.
const CHOSEN: &str = "/limited";
/// Kinds of thread shown with `--threads`.
const KINDS_SHOWN: usize = 20;

const LEGEND: &str = "\
limit: quota/period, and +burst; CPUs: kept busy by the limited threads;
burst: from the wakeup of a limited thread until it waits again;
takes: time for the recorded work, divided by the same without a limit.";

pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let kernels = kernel::parse_kernels(&args.running.kernel)?;
    let tries = args.set.iter().map(|set| Try::parse(set)).collect::<anyhow::Result<Vec<_>>>()?;
    let path = what_if::common_group(&tries, args)?;
    let json = args.running.json.as_deref().map(JsonArray::create).transpose()?;
    let recording = recorded::read(&args.reading)?;
    let replay = Replay::new(args, &recording, path)?;
    warn(&replay.summary);
    let tries = if tries.is_empty() { what_if::ladder(replay.mean_cpus()) } else { tries };
    if let Some(file) = &args.write_scenario {
        let text = cpumax_workload::print(
            &replay.as_scenario(&recording, tries.first().filter(|_| !args.set.is_empty())),
        );
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        if args.set.is_empty() {
            return Ok(());
        }
    }
    let runs = replay.runs(&tries, &kernels, args)?;
    match json {
        Some(json) if json.is_stdout() => json.write(runs.iter().map(Run::to_json))?,
        json => {
            if let Some(json) = json {
                json.write(runs.iter().map(Run::to_json))?;
            }
            replay.write(&runs, args)?;
        }
    }
    Ok(())
}

/// A recording with one limit, and time enough to do its work under that.
///
/// # Errors
/// It cannot be read, or the kernel would refuse the limit.
pub fn limited(recording: &Path, set: &str) -> anyhow::Result<Workload> {
    let limit = Try::parse(set)?;
    let args = ReplayArgs::plain(recording);
    let path = what_if::common_group(std::slice::from_ref(&limit), &args)?;
    let recording = recorded::read(&args.reading)?;
    let Replay { summary, mut workload, group, work_ns, .. } =
        Replay::new(&args, &recording, path)?;
    warn(&summary);
    let what_if = limit.what_if(group, summary.span_ns, work_ns);
    workload.groups[group as usize].limit = what_if.limit;
    workload.duration_ns = what_if.duration_ns;
    Ok(workload)
}

/// Repairs are told whatever becomes of the run.
fn warn(summary: &Summary) {
    if !summary.defects.is_empty() {
        anstream::eprintln!("The recording has faults that were repaired:\n{}", summary.defects);
    }
}

/// A recording made ready.
struct Replay {
    summary: Summary,
    selection: Selection,
    /// Its tasks are named by kind.
    workload: Workload,
    /// The one that is limited.
    group: GroupIx,
    /// CPU time of the limited threads in the recording, ns.
    work_ns: u64,
    /// How many they are.
    threads: usize,
}

impl Replay {
    fn new(
        args: &ReplayArgs,
        recording: &Recording,
        path: Option<String>,
    ) -> anyhow::Result<Replay> {
        let summary = recording.summary();
        if summary.span_ns > MAX_DURATION_NS {
            bail!(
                "{}: from its first event to its last it takes {}, and at most a day can be replayed; \
                 is one of its times damaged?",
                recorded::name(&args.reading),
                duration(summary.span_ns)
            );
        }
        let selection = selection(args, &summary);
        let mut workload = recording.workload(&selection);
        workload.name = recorded::name(&args.reading);
        let group = if selection.limited.is_empty() {
            let chosen = path.or_else(|| args.group.first().map(ToString::to_string));
            let path = chosen.map_or_else(|| recorded::busiest_group(&summary), Ok)?;
            recorded::find_group(&workload, &path)?
        } else {
            let patterns: Vec<String> = args.group.iter().map(ToString::to_string).collect();
            recorded::find_group(&workload, CHOSEN).ok().with_context(|| {
                format!(
                    "no recorded thread matches --group {}: `cpumax inspect` lists them",
                    patterns.join(" ")
                )
            })?
        };
        let limited: BTreeSet<&str> =
            recorded::tasks_in(&workload, group).iter().map(|task| task.name.as_str()).collect();
        let work_ns = summary
            .threads
            .iter()
            .filter(|thread| limited.contains(thread.name.as_str()))
            .map(|thread| thread.runtime_ns)
            .sum();
        let threads = limited.len();
        recorded::name_by_kind(&mut workload, group);
        Ok(Replay { summary, selection, workload, group, work_ns, threads })
    }

    fn path(&self) -> &str {
        &self.workload.groups[self.group as usize].path
    }

    /// Kinds of limited threads.
    fn kinds(&self) -> BTreeSet<&str> {
        recorded::tasks_in(&self.workload, self.group)
            .iter()
            .map(|task| task.name.as_str())
            .collect()
    }

    /// CPUs that the limited threads kept busy in the recording.
    fn mean_cpus(&self) -> f64 {
        self.work_ns as f64 / self.summary.span_ns.max(1) as f64
    }

    /// With a task for each thread again.
    fn as_scenario(&self, recording: &Recording, limit: Option<&Try>) -> Workload {
        let mut workload = recording.workload(&self.selection);
        workload.name.clone_from(&self.workload.name);
        workload.shows = format!("Threads recorded in {}.", workload.name);
        if let Some(limit) = limit {
            workload.groups[self.group as usize].limit = limit.limit;
        }
        workload
    }

    /// Limits in order, the first being none; kernels of each in order.
    fn runs(
        &self,
        tries: &[Try],
        kernels: &[Kernel],
        args: &ReplayArgs,
    ) -> Result<Vec<Run<'_>>, Failure> {
        let none = Try::none();
        let all: Vec<(&Try, Kernel)> = [&none]
            .into_iter()
            .chain(tries)
            .flat_map(|limit| kernels.iter().map(move |&kernel| (limit, kernel)))
            .collect();
        let job = |&(limit, kernel): &(&Try, Kernel)| Job {
            workload: &self.workload,
            what_if: Some(limit.what_if(self.group, self.summary.span_ns, self.work_ns)),
            kernel,
            seed: args.running.seed,
            trace: None,
        };
        let jobs: Vec<Job<'_>> = all.iter().map(job).collect();
        let outcomes = runs::all(&jobs, &args.running)?;
        let mut runs: Vec<Run<'_>> = Vec::new();
        for ((limit, _), outcome) in all.into_iter().zip(outcomes) {
            let finished_ns = self.finished_ns(&outcome);
            let unlimited = runs.iter().find(|run| run.outcome.kernel == outcome.kernel);
            let base_ns = unlimited.map_or(finished_ns, |run| run.finished_ns);
            let slowdown =
                finished_ns.zip(base_ns).map(|(ns, base_ns)| ns as f64 / base_ns.max(1) as f64);
            runs.push(Run {
                limit: limit.clone(),
                group: self.path(),
                finished_ns,
                slowdown,
                outcome,
            });
        }
        Ok(runs)
    }

    /// When the last limited thread exited; `None` when one still lives.
    fn finished_ns(&self, outcome: &Outcome) -> Option<u64> {
        let mut last_ns = 0;
        for kind in self.kinds() {
            match outcome.tasks.get(kind) {
                Some(TaskOutcome { count: 1.., finished_ns: 0, .. }) => return None,
                Some(task) => last_ns = last_ns.max(task.finished_ns),
                None => {}
            }
        }
        Some(last_ns).filter(|&ns| ns > 0)
    }

    fn write(&self, runs: &[Run<'_>], args: &ReplayArgs) -> anyhow::Result<()> {
        let mut out = output::stdout();
        writeln!(out, "{}", recorded::describe(&args.reading, &self.summary))?;
        let of_all = cpus(self.summary.runtime_ns as f64 / self.summary.span_ns.max(1) as f64);
        let threads = self.threads;
        writeln!(
            out,
            "Limited: {} ({threads} threads, which used {} CPUs; all threads used {of_all})\n",
            self.path(),
            cpus(self.mean_cpus())
        )?;
        let rows: Vec<ReplayRow> =
            runs.iter().flat_map(|run| self.rows(run, args.threads)).collect();
        writeln!(out, "{}", cpumax_report::replay(&rows, output::width()))?;
        if runs.iter().any(|run| run.finished_ns.is_none()) {
            writeln!(out, "-: the work was not done after four times the time it should take.")?;
        }
        writeln!(out, "{}", output::styled(DIM, LEGEND))?;
        Ok(out.flush()?)
    }

    fn rows(&self, run: &Run<'_>, threads: bool) -> Vec<ReplayRow> {
        let group = run.outcome.groups.get(self.path());
        let row = ReplayRow {
            limit: run.limit.label.clone(),
            kernel: format!("{} {}", run.outcome.kernel, run.outcome.generation),
            thread: None,
            used_cpus: run.busy(group.map_or(0, |group| group.usage_usec)),
            group: group.cloned(),
            latency_ns: group.map(|group| group.latency_ns).unwrap_or_default(),
            slowdown: run.slowdown,
        };
        let mut rows = vec![row.clone()];
        if threads {
            for name in self.kinds().into_iter().take(KINDS_SHOWN) {
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
}

/// A group that was recorded is limited where it is; other threads are put into one.
fn selection(args: &ReplayArgs, summary: &Summary) -> Selection {
    let open = args.open_loop.iter().map(|selector| (selector.clone(), Clock::Absolute));
    let closed = args.closed_loop.iter().map(|selector| (selector.clone(), Clock::Relative));
    let recorded = recorded::runtime_by_group(&summary.threads);
    let is_recorded = match args.group.as_slice() {
        [one] => recorded.contains_key(one.to_string().trim_end_matches('/')),
        _ => false,
    };
    let limited = if is_recorded { Vec::new() } else { args.group.clone() };
    Selection { limited, group: CHOSEN.to_owned(), clocks: open.chain(closed).collect() }
}

/// One limit on one kernel.
struct Run<'a> {
    limit: Try,
    group: &'a str,
    /// When the last limited thread exited, ns.
    finished_ns: Option<u64>,
    /// Against no limit on the same kernel.
    slowdown: Option<f64>,
    outcome: Outcome,
}

/// A run as docs/json.md describes it.
#[derive(Serialize)]
struct JsonRun<'a> {
    group: &'a str,
    cpu_max: String,
    burst_usec: u64,
    finished_ns: Option<u64>,
    slowdown: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

impl Run<'_> {
    /// CPUs kept busy until the work was done.
    fn busy(&self, usage_usec: u64) -> f64 {
        let took_ns = self.finished_ns.unwrap_or(self.outcome.simulated_ns);
        usage_usec as f64 * 1e3 / took_ns.max(1) as f64
    }

    fn to_json(&self) -> JsonRun<'_> {
        JsonRun {
            group: self.group,
            cpu_max: self.limit.limit.to_string(),
            burst_usec: self.limit.limit.burst_ns() / 1000,
            finished_ns: self.finished_ns,
            slowdown: self.slowdown,
            outcome: &self.outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_document_lists_what_a_replay_adds() {
        let outcome = Outcome {
            scenario: String::new(),
            world: String::new(),
            kernel: String::new(),
            generation: String::new(),
            seed: 1,
            simulated_ns: 1,
            groups: BTreeMap::new(),
            tasks: BTreeMap::new(),
            release: cpumax_outcome::ReleaseOutcome::default(),
            events: 1,
        };
        let own = serde_json::to_value(&outcome).unwrap();
        let run =
            Run { limit: Try::none(), group: "/g", finished_ns: None, slowdown: None, outcome };
        let with_more = serde_json::to_value(run.to_json()).unwrap();
        let added = with_more.as_object().unwrap().keys().filter(|name| own.get(*name).is_none());
        let added: BTreeSet<&str> = added.map(String::as_str).collect();
        let document = include_str!("../../../../docs/json.md");
        let from = document.split("\n## Replays").nth(1).unwrap();
        let section = from.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), added);
    }
}
