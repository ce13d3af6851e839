//! A recorded service under limits it did not have, on each kernel, against no limit.
//!
//! A run does the recorded work to its end, however long that takes; where requests come for a
//! given time, it lasts as long as they did. What is told of a run, and of the recording, is told
//! of the time in which the load was there.

use crate::predict::{Doubt, Prediction, Sample, Unit, Window, WorkRange, predict};
use crate::traced::RunTrace;
use crate::what_if::{self, Try};
use crate::{Error, recorded};

use crate::job::{Share, WhatIf, give};
use cpumax_limit::Missing;
use cpumax_machine::kernel::Kernel;
use cpumax_machine::named::{self, Taken};
use cpumax_outcome::{Histogram, Outcome};
use cpumax_recording::{Demand, EventCost, Gap, GapKind, Load, Recording, Service, Summary, Waits};
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{Affinity, CpuSet, GroupIx, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

mod agree;
mod cells;
mod costs;
mod document;
mod in_force;
mod request;

pub use document::{Kept, NotTried, Recorded, ReplayDocument, TakenFor, documents};
use request::Reading;
pub use request::Request;

const HOW_MANY: &str = "clients ask again at once of threads that hardly ever wait, so that how \
many connections there are, which latencies hang on, is not in the recording: record messages of \
sockets or system calls";

/// Where recording is said to have cost all but such a part of the CPU time, what is left is none.
const COST_LEAVES_ONE_IN: u64 = 20;

/// Where the kernel did not tell what it charged, so much of the time on a CPU may have been taken
/// by interrupts and the host, which is told as a range.
const MOST_OF_OTHERS: f64 = 0.5;

/// A recording made ready.
///
/// ```
/// use cpumax_engine::recording::{Options, Recording};
/// use cpumax_engine::{Replay, Request, Try};
///
/// let path = "../../recordings/bursts.perf.data";
/// let recording = Recording::read(path.as_ref(), Options::default())?;
/// let replay = Replay::new("bursts.perf.data", &recording, &Request::default())?;
/// assert!(replay.mean_cpus() > 0.0 && !replay.limits().is_empty(), "there is a ladder to try");
/// let scenario = replay.as_scenario(Some(&Try::parse("500m")?))?;
/// assert_eq!(scenario.group(replay.path()).map(|group| group > 0), Some(true));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    summary: Summary,
    limits: Vec<Try>,
    /// The most likely one, and then others that are as good as far as anybody knows.
    readings: Vec<Reading>,
    /// The one that is limited.
    group: GroupIx,
    /// What groups had in the recording and keep.
    in_force: Vec<(GroupIx, Share)>,
    threads: usize,
    /// When its load was there.
    window: Window,
    /// CPU time it used then, ns.
    work_ns: u64,
    /// CPUs that all other threads kept busy in the recording.
    others: f64,
    /// What was asked for, by the length of a period, ns.
    demands: Vec<(u64, Demand)>,
    /// How many latencies were recorded.
    answered: usize,
    unit: Unit,
    /// What was recorded, by the same measures as a run.
    recorded: Sample,
    over_ns: Option<u64>,
    scale: Option<f64>,
    load: Option<f64>,
    /// When it was told to end, ns since the start.
    ends_ns: Option<u64>,
    work: WorkRange,
    service: Option<Service>,
    waits: Waits,
    made_by: Vec<String>,
    /// Clients ask, but what they ask for is not in the recording.
    is_unheard: bool,
    /// What else is not in it.
    gaps: Vec<Gap>,
    /// How it is held against the recording.
    check: agree::Check,
}

impl Replay {
    /// Chooses what is limited of a recording, which `name` is the name of.
    ///
    /// # Errors
    /// The request chooses nothing in this recording, or contradicts itself.
    pub fn new(name: &str, recording: &Recording, request: &Request) -> Result<Replay, Error> {
        let summary = recording.summary();
        if summary.span_ns > MAX_DURATION_NS {
            return Err(Error::TooLong { name: name.to_owned(), span_ns: summary.span_ns });
        }
        let mut selection = request.selection(&summary)?;
        if let Some(above) = recording.limited_above(&selection) {
            selection.group = format!("{above}{}", request::CHOSEN);
        }
        let load = recording.load(&selection);
        let (group, service) = request.seen(name, recording, &selection)?;
        let requests = service.as_ref().map(|one| Load::of_requests(one, summary.span_ns));
        let seen = requests.as_ref().unwrap_or(&load).window();
        let window = request.window(seen, summary.span_ns)?;
        selection.until_ns = Some(window.until_ns);
        let mut readings = request.readings(name, recording, &selection, service.as_ref())?;
        let told = summary.about.as_ref().map_or(&[][..], |about| about.groups.as_slice());
        let in_force = in_force::in_force(told, &readings[0].workload, group);
        for reading in readings.iter_mut().filter(|_| !in_force.is_empty()) {
            let workload = Workload::clone(&reading.workload);
            reading.workload = Arc::new(give(workload, &in_force)?);
        }
        let workload = &readings[0].workload;
        for limit in &request.limits {
            limit.others(workload, group)?;
        }
        let threads = recorded::tasks_in(workload, group).len();
        let used = load.within(window);
        let recorded_ns = used.cpu_ns.saturating_add(used.cost_ns);
        if used.cpu_ns < recorded_ns / COST_LEAVES_ONE_IN {
            let EventCost { syscall_ns, other_ns } = summary.event_cost;
            return Err(Error::AllIsCost { syscall_ns, other_ns, recorded_ns });
        }
        let with_cost = recorded_ns as f64 / used.cpu_ns.max(1) as f64;
        let own = load.within(Window { from_ns: 0, until_ns: summary.span_ns });
        let others_ns = summary.runtime_ns.saturating_add(summary.recorder_ns);
        let others_ns = others_ns.saturating_sub(own.cpu_ns);
        let others = others_ns as f64 / summary.span_ns.max(1) as f64;
        let (unit, latencies_ns) = match &requests {
            Some(requests) => (Unit::Requests, requests.within(window).bursts_ns),
            None => (Unit::Bursts, used.bursts_ns),
        };
        let gaps = recording.gaps_of(&selection, service.as_ref());
        let mut work = request.work;
        if gaps.iter().any(|gap| gap.kind == GapKind::EventCost) {
            // Perhaps nothing of it went into the recording.
            work.high = work.high.max(with_cost);
        }
        let check = agree::Check::new(name, recording, request, &selection)?;
        // With more traffic a period has what came in so many times its length.
        let times = request.scale_load.unwrap_or(1.0);
        let demand = |ns: &u64| (*ns, load.demand(window, (*ns as f64 * times) as u64));
        let mut replay = Replay {
            summary,
            limits: request.limits.clone(),
            readings,
            group,
            in_force,
            threads,
            window,
            work_ns: used.cpu_ns,
            others,
            demands: request.periods_ns.iter().map(demand).collect(),
            answered: latencies_ns.len(),
            unit,
            recorded: Sample::of_recording(
                recorded_ns,
                latencies_ns,
                window,
                unit,
                request.over_ns,
            ),
            over_ns: request.over_ns,
            scale: request.scale_work.map(|factor| factor * with_cost),
            load: request.scale_load,
            ends_ns: request.until_ns.map(|_| window.until_ns),
            work,
            gaps,
            check,
            is_unheard: service.is_none() && recording.has_clients(&selection),
            service,
            waits: recording.waits(&selection),
            made_by: request.made_by.clone(),
        };
        if replay.limits.is_empty() {
            replay.limits = what_if::ladder(replay.mean_cpus());
        }
        Ok(replay)
    }

    /// What is known of the requests that the limited group answered.
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// How many of the limited threads' waits are known.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Whether clients ask the limited threads, and the recording does not tell for what, so that
    /// what is told is of bursts of work.
    pub fn is_unheard(&self) -> bool {
        self.is_unheard
    }

    /// Kinds of missing truth that concern the limited threads.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// What so much is missing of that no number is to be relied on.
    pub fn doubtful_gaps(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|gap| gap.doubtful)
    }

    /// Limits that are not tried on a kernel, as it has nothing of them.
    pub fn not_tried(&self, kernels: &[Kernel]) -> Vec<(&Try, Kernel, Error)> {
        let on =
            |limit| move |&kernel: &Kernel| Some((limit, kernel, Try::lacks(limit, kernel).err()?));
        self.limits.iter().flat_map(|limit| kernels.iter().filter_map(on(limit))).collect()
    }

    fn workload(&self) -> &Workload {
        &self.readings[0].workload
    }

    /// What is in the recording, and what was repaired.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What the recorded kernel is taken for, and the newest.
    pub fn kernels(&self) -> Vec<Kernel> {
        let (recorded, newest) = (self.taken().kernel, Kernel::newest());
        let other = Some(recorded).filter(|kernel| kernel.version != newest.version);
        other.into_iter().chain([newest]).collect()
    }

    /// What the recorded kernel is taken for, and why where that is not just its version.
    pub fn taken(&self) -> Taken {
        let about = self.summary.about.as_ref();
        let functions = about.map(|about| about.functions.clone()).unwrap_or_default();
        named::taken(self.summary.kernel.as_deref(), &functions)
    }

    /// The limits that are tried, besides none.
    pub fn limits(&self) -> &[Try] {
        &self.limits
    }

    /// Path of the group that is limited.
    pub fn path(&self) -> &str {
        &self.workload().groups[self.group as usize].path
    }

    /// The same where it was recorded; chosen threads are in one that there is in the model only.
    pub fn recorded_path(&self) -> Option<&str> {
        let groups = recorded::runtime_by_group(&self.summary.threads);
        groups.contains_key(self.path()).then(|| self.path())
    }

    /// Limits and weights that groups had in the recording and keep, by their paths; that of the
    /// limited group is its weight.
    pub fn in_force(&self) -> impl Iterator<Item = (&str, Share)> {
        let path = |group: GroupIx| self.workload().groups[group as usize].path.as_str();
        self.in_force.iter().map(move |(group, share)| (path(*group), *share))
    }

    /// The limited threads that may not use all CPUs, and the CPUs that they may use together.
    pub fn kept(&self) -> Option<Kept> {
        let workload = self.workload();
        let (mut threads, mut cpus) = (0, BTreeSet::new());
        for task in recorded::tasks_in(workload, self.group) {
            if let Affinity::Set(set) = task.cpus {
                threads += 1;
                cpus.extend(&workload.cpu_sets[set as usize].0);
            }
        }
        let cpus = CpuSet(cpus.into_iter().copied().collect()).to_string();
        (threads > 0).then_some(Kept { threads, cpus })
    }

    /// How many threads are limited.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Kinds of limited threads, as they are called among the tasks of an outcome.
    pub fn kinds(&self) -> BTreeSet<&str> {
        recorded::tasks_in(self.workload(), self.group).iter().map(|task| task.label()).collect()
    }

    /// CPUs that the limited threads kept busy in the recording, while their load was there.
    pub fn mean_cpus(&self) -> f64 {
        self.work_ns as f64 / self.window.length_ns() as f64
    }

    /// The share of the machine's CPUs that was busy meanwhile, as far as can be known: by the
    /// limited threads then, and by all others on average.
    pub fn machine_share(&self) -> f64 {
        (self.mean_cpus() + self.others) / f64::from(self.summary.cpus.max(1))
    }

    /// How many requests were recorded, or bursts where it tells no requests.
    pub fn answered(&self) -> (usize, Unit) {
        (self.answered, self.unit)
    }

    /// So many times the traffic is replayed, where that was asked for.
    pub fn scale_load(&self) -> Option<f64> {
        self.load
    }

    /// What the limited threads ask for in stretches as long as a period, of those periods that
    /// the request names.
    pub fn demand(&self, period_ns: u64) -> Option<&Demand> {
        self.demands.iter().find(|(of_ns, _)| *of_ns == period_ns).map(|(_, demand)| demand)
    }

    /// The same of each such period, with its length, ns.
    pub fn demands(&self) -> &[(u64, Demand)] {
        &self.demands
    }

    /// When the load of the limited threads was there.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The same in a run, in which more traffic comes in less time.
    fn window_of_run(&self) -> Window {
        let of_run = |ns: u64| (ns as f64 / self.load.unwrap_or(1.0)) as u64;
        Window { from_ns: of_run(self.window.from_ns), until_ns: of_run(self.window.until_ns) }
    }

    /// What was recorded, told as a prediction is.
    pub fn recorded(&self) -> Prediction {
        let mut recorded = predict(&[(&self.recorded, true)], self.unit);
        self.doubt(&mut recorded);
        recorded
    }

    /// Tells what is missing from the recording of numbers that come from it.
    fn doubt(&self, prediction: &mut Prediction) {
        for gap in self.doubtful_gaps() {
            prediction.is_doubtful(gap.told.trim_end_matches('.'));
        }
        if !self.summary.has_runtime {
            prediction.may_be_of_others(MOST_OF_OTHERS);
        }
    }

    /// As a scenario, whose results tell of each thread. It ends where the load was told to.
    ///
    /// # Errors
    /// The group may not have that limit.
    pub fn as_scenario(&self, limit: Option<&Try>) -> Result<Workload, Error> {
        let mut workload = self.workload().clone().with_labels(|_| None)?;
        if self.ends_ns.is_some() {
            workload = workload.with_duration(self.window_of_run().until_ns.max(1))?;
        }
        match limit {
            Some(limit) => {
                let duration_ns = workload.duration_ns;
                let what_if = self.what_if(limit)?;
                Ok(WhatIf { duration_ns, ..what_if }.apply(workload)?)
            }
            None => Ok(workload),
        }
    }

    /// The recording with one limit, and time enough to do its work under that; where its load
    /// lasts for a given time, until that is over.
    ///
    /// # Errors
    /// The group may not have that limit.
    pub fn limited(&self, limit: &Try) -> Result<Workload, Error> {
        let workload = self.workload().clone();
        let mut what_if = self.what_if(limit)?;
        if self.readings[0].lasts {
            what_if.duration_ns = self.window_of_run().until_ns.max(1);
        }
        Ok(what_if.apply(workload)?)
    }

    fn what_if(&self, limit: &Try) -> Result<WhatIf, Error> {
        limit.what_if(self.workload(), self.group, self.summary.span_ns, self.work_ns)
    }
}

/// One limit on one kernel: one run in full, and what all runs of it say.
///
/// [Example](crate).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Path of the group that is limited.
    pub group: String,
    /// Which limit.
    #[serde(flatten)]
    pub limit: Try,
    /// What of it the kernel does not have.
    pub lacks: Vec<Missing>,
    /// When the recorded work was done, ns; null when it was not, or lasts for a given time.
    pub finished_ns: Option<u64>,
    /// How long the work takes, divided by the same without a limit on the same kernel.
    pub slowdown: Option<f64>,
    /// When the load was there in the recording.
    pub window: Window,
    /// What it does to the service, and how sure that is.
    pub prediction: Prediction,
    /// The run looked at closely, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RunTrace>,
    /// What came of the first of the runs that this is told of.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The load lasts for a given time, whatever the limit does to it; not written.
    #[serde(skip)]
    pub lasts: bool,
    /// Where the replay of what was recorded is not that, on this kernel; in words, one line for
    /// each. It is written with what was recorded.
    #[serde(skip)]
    pub differs: Vec<String>,
    /// Which of the runs `outcome` is of; not written.
    #[serde(skip)]
    pub(crate) doubt: Doubt,
}

impl Run {
    /// From the first activity of the load until its work was done, ns; `None`: it was not.
    pub fn takes_ns(&self) -> Option<u64> {
        self.prediction.work_takes_ns.map(|takes| takes.value)
    }

    /// Whether the load was over by the end of the run.
    pub fn is_done(&self) -> bool {
        self.lasts || self.takes_ns().is_some()
    }

    /// Thousandths of a CPU that the limit gives; `None`: there is none.
    pub fn cpus(&self) -> Option<u64> {
        self.limit.limit.millicpus()
    }

    /// Latencies of the limited group.
    pub fn latencies(&self) -> Option<&Histogram> {
        self.outcome.groups.get(&self.group).map(|group| &group.latency_histogram_ns)
    }

    /// CPUs that so much CPU time, us, kept busy while the load was there.
    pub fn busy(&self, usage_usec: u64) -> f64 {
        let length_ns = self.outcome.simulated_ns.saturating_sub(self.window.from_ns);
        usage_usec as f64 * 1e3 / length_ns.max(1) as f64
    }
}
