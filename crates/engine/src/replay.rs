//! A recorded service under limits it did not have, on each kernel, against no limit.
//!
//! Every run does the recorded work to its end, however long that takes; what is told of a run is
//! told up to the exit of the last limited thread.

use crate::job::{Share, WhatIf};
use crate::study::Study;
use crate::watch::Watch;
use crate::what_if::{self, Try};
use crate::world::{Model, Running};
use crate::{Error, change, recorded};
use cpumax_limit::Missing;
use cpumax_machine::kernel::Kernel;
use cpumax_outcome::{Outcome, TaskOutcome};
use cpumax_recording::{Clock, Recording, Selection, Selector, Service, Summary};
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{GroupIx, Workload, as_name};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::iter;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Where chosen threads are put, and where if the group above that is limited, too.
const CHOSEN: &str = "/limited";
const CHOSEN_IN_POD: &str = "/pod/limited";

/// What is asked of a recording. [`Request::default`] asks for a ladder of limits of its busiest
/// group.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The threads to limit; none is the group that used most CPU time, or that of the limits.
    pub group: Vec<Selector>,
    /// Limits to try; none is a ladder around what was used.
    pub limits: Vec<Try>,
    /// Threads that act on a clock, whatever happened before.
    pub open_loop: Vec<Selector>,
    /// Threads that pause for a length of time.
    pub closed_loop: Vec<Selector>,
}

impl Request {
    /// The group that the limits name, if any does.
    ///
    /// # Errors
    /// They contradict each other or the threads chosen.
    pub fn limited_group(&self) -> Result<Option<String>, Error> {
        let group = what_if::common_group(&self.limits)?;
        match group {
            Some(path) if !self.group.is_empty() => Err(Error::GroupAndThreads { path }),
            group => Ok(group),
        }
    }

    /// A group that was recorded is limited where it is; other threads are put into one.
    fn selection(&self, summary: &Summary) -> Selection {
        let open = self.open_loop.iter().map(|selector| (selector.clone(), Clock::Absolute));
        let closed = self.closed_loop.iter().map(|selector| (selector.clone(), Clock::Relative));
        let recorded = recorded::runtime_by_group(&summary.threads);
        let is_recorded = match self.group.as_slice() {
            [one] => recorded.contains_key(one.to_string().trim_end_matches('/')),
            _ => false,
        };
        let limited = if is_recorded { Vec::new() } else { self.group.clone() };
        let clocks = open.chain(closed).collect();
        let in_pod = self.limits.iter().any(|limit| limit.pod.is_some());
        let group = if in_pod { CHOSEN_IN_POD } else { CHOSEN }.to_owned();
        Selection { limited, group, clocks, clients: None }
    }
}

/// A recording made ready.
#[derive(Debug)]
pub struct Replay {
    summary: Summary,
    limits: Vec<Try>,
    /// Its tasks are labelled by kind.
    workload: Arc<Workload>,
    /// The one that is limited.
    group: GroupIx,
    work_ns: u64,
    threads: usize,
    service: Option<Service>,
}

impl Replay {
    /// Chooses what is limited of a recording, which `name` is the name of.
    ///
    /// # Errors
    /// The request chooses nothing in this recording, or contradicts itself.
    pub fn new(name: &str, recording: &Recording, request: &Request) -> Result<Replay, Error> {
        let path = request.limited_group()?;
        let summary = recording.summary();
        if summary.span_ns > MAX_DURATION_NS {
            return Err(Error::TooLong { name: name.to_owned(), span_ns: summary.span_ns });
        }
        let mut selection = request.selection(&summary);
        let shows = format!("Threads recorded in {name}.");
        let patterns: Vec<String> = request.group.iter().map(ToString::to_string).collect();
        let recorded = selection.limited.is_empty();
        if recorded {
            let chosen = path.or_else(|| patterns.first().cloned());
            selection.group = chosen.map_or_else(|| recorded::busiest_group(&summary), Ok)?;
        }
        let (workload, service) = recording.import(&selection)?;
        let workload = workload.with_name(&as_name(name, usize::MAX), &shows)?;
        let group = recorded::find_group(&workload, &selection.group).map_err(|error| {
            if recorded { error } else { Error::NoThread { patterns: patterns.join(" ") } }
        })?;
        let limited: BTreeSet<&str> =
            recorded::tasks_in(&workload, group).iter().map(|task| task.name.as_str()).collect();
        let work_ns = summary
            .threads
            .iter()
            .filter(|thread| limited.contains(thread.name.as_str()))
            .map(|thread| thread.runtime_ns)
            .sum();
        let threads = limited.len();
        if request.limits.iter().any(|limit| limit.pod.is_some()) {
            change::above(&workload, group)?;
        }
        let workload = Arc::new(recorded::label_by_kind(workload, group)?);
        let limits = request.limits.clone();
        let mut replay = Replay { summary, limits, workload, group, work_ns, threads, service };
        if replay.limits.is_empty() {
            replay.limits = what_if::ladder(replay.mean_cpus());
        }
        Ok(replay)
    }

    /// What is known of the requests that the limited group answered.
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// What is in the recording, and what was repaired.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The limits that are tried, besides none.
    pub fn limits(&self) -> &[Try] {
        &self.limits
    }

    /// Path of the group that is limited.
    pub fn path(&self) -> &str {
        &self.workload.groups[self.group as usize].path
    }

    /// How many threads are limited.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Kinds of limited threads, as they are called among the tasks of an outcome.
    pub fn kinds(&self) -> BTreeSet<&str> {
        recorded::tasks_in(&self.workload, self.group).iter().map(|task| task.label()).collect()
    }

    /// CPUs that the limited threads kept busy in the recording.
    pub fn mean_cpus(&self) -> f64 {
        self.work_ns as f64 / self.summary.span_ns.max(1) as f64
    }

    /// As a scenario, whose results tell of each thread.
    ///
    /// # Errors
    /// The group may not have that limit.
    pub fn as_scenario(&self, limit: Option<&Try>) -> Result<Workload, Error> {
        let workload = Workload::clone(&self.workload).with_labels(|_| None)?;
        match limit {
            Some(limit) => {
                let duration_ns = workload.duration_ns;
                let what_if = limit.what_if(self.group, self.summary.span_ns, self.work_ns);
                Ok(WhatIf { duration_ns, ..what_if }.apply(workload)?)
            }
            None => Ok(workload),
        }
    }

    /// The recording with one limit, and time enough to do its work under that.
    ///
    /// # Errors
    /// The group may not have that limit.
    pub fn limited(&self, limit: &Try) -> Result<Workload, Error> {
        let what_if = limit.what_if(self.group, self.summary.span_ns, self.work_ns);
        Ok(what_if.apply(Workload::clone(&self.workload))?)
    }

    /// The recording without a limit, then under each of the limits, with time enough to do its
    /// work.
    pub fn study(&self, kernels: &[Kernel]) -> Study {
        let limits = iter::once(Try::none()).chain(self.limits.iter().cloned());
        let what_if = |limit: &Try| limit.what_if(self.group, self.summary.span_ns, self.work_ns);
        let limits = limits.map(|limit| (limit.clone(), what_if(&limit))).collect();
        Study::new(Arc::clone(&self.workload)).under_each(limits).on(kernels.iter().copied())
    }

    /// Limits that are not tried on a kernel, as it has nothing of them.
    pub fn not_tried(&self, kernels: &[Kernel]) -> Vec<(&Try, Kernel, Error)> {
        let on =
            |limit| move |&kernel: &Kernel| Some((limit, kernel, Try::lacks(limit, kernel).err()?));
        self.limits.iter().flat_map(|limit| kernels.iter().filter_map(on(limit))).collect()
    }

    /// Limits in order, the first being none; kernels of each in order, those left out that have
    /// nothing of the limit.
    ///
    /// # Errors
    /// No kernel has anything of a limit; of those of the runs, the first's.
    pub fn runs(
        &self,
        kernels: &[Kernel],
        seed: u64,
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<Vec<Run>, Error> {
        let study = self.study(kernels).with_seeds(seed..=seed);
        let mut rows = Vec::new();
        study.run(&Model { running: *running }, watch, &mut |row| {
            let go_on = row.report.is_ok();
            rows.push(row);
            if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let mut runs: Vec<Run> = Vec::new();
        for row in rows {
            let outcome = row.report?.outcome;
            let (limit, lacks) = (row.limit.unwrap_or_else(Try::none), row.lacks);
            let finished_ns = self.finished_ns(&outcome);
            let unlimited = runs.iter().find(|run| run.outcome.kernel == outcome.kernel);
            let base_ns = unlimited.map_or(finished_ns, |run| run.finished_ns);
            let slowdown =
                finished_ns.zip(base_ns).map(|(ns, base_ns)| ns as f64 / base_ns.max(1) as f64);
            let group = self.path().to_owned();
            runs.push(Run { limit, lacks, group, finished_ns, slowdown, outcome });
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
}

/// One limit on one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Which limit.
    pub limit: Try,
    /// What of it the kernel does not have.
    pub lacks: Vec<Missing>,
    /// Path of the group that is limited.
    pub group: String,
    /// When the last limited thread exited, ns; `None` when one still lives.
    pub finished_ns: Option<u64>,
    /// That, divided by the same without a limit on the same kernel.
    pub slowdown: Option<f64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// A run as docs/json.md describes it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Path of the limited group.
    group: &'a str,
    /// What its `cpu.max` holds.
    cpu_max: String,
    /// What its `cpu.max.burst` holds, us.
    burst_usec: u64,
    /// What its `cpu.weight` holds, where that was tried.
    weight: Option<u32>,
    /// The limit of the pod around it, where one was tried.
    pod: Option<PodDocument>,
    /// What of the limit this kernel does not have.
    lacks: Vec<&'static str>,
    /// When the last limited thread exited, ns; null when the work was not done.
    finished_ns: Option<u64>,
    /// `finished_ns` divided by the same without a limit on this kernel.
    slowdown: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// What the group above the limited one has.
#[derive(Debug, Serialize, JsonSchema)]
struct PodDocument {
    cpu_max: String,
    burst_usec: u64,
    weight: Option<u32>,
}

impl Run {
    /// CPUs that so much CPU time, us, kept busy until the work was done.
    pub fn busy(&self, usage_usec: u64) -> f64 {
        let took_ns = self.finished_ns.unwrap_or(self.outcome.simulated_ns);
        usage_usec as f64 * 1e3 / took_ns.max(1) as f64
    }

    /// As it is written as JSON.
    pub fn document(&self) -> Document<'_> {
        Document {
            group: &self.group,
            cpu_max: self.limit.limit.to_string(),
            burst_usec: self.limit.limit.burst_ns() / 1000,
            weight: self.limit.weight,
            pod: self.limit.pod.map(|Share { limit, weight }| PodDocument {
                cpu_max: limit.to_string(),
                burst_usec: limit.burst_ns() / 1000,
                weight,
            }),
            lacks: self.lacks.iter().map(|missing| missing.file).collect(),
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
        let group = "/g".to_owned();
        let (limit, lacks) = (Try::none(), Vec::new());
        let run = Run { limit, lacks, group, finished_ns: None, slowdown: None, outcome };
        let with_more = serde_json::to_value(run.document()).unwrap();
        let added = with_more.as_object().unwrap().keys().filter(|name| own.get(*name).is_none());
        let added: BTreeSet<&str> = added.map(String::as_str).collect();
        let document = include_str!("../../../docs/json.md");
        let from = document.split("\n## Replays").nth(1).unwrap();
        let section = from.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), added);
    }
}
