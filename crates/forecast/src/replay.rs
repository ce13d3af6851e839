//! A recorded service under limits that it did not have, on each kernel, compared with no limit.
//!
//! A run does the recorded work to its end, however long that takes. Where requests come for a
//! given time, the run lasts as long as they did. All numbers count over the window in which the
//! load was active.

use crate::predict::{Draw, Prediction, Sample, Unit, Window, WorkRange, predict};
use crate::recorded;
use crate::stretch::RunTrace;
use cpumax_limit::Missing;
use cpumax_machine::kernel::Kernel;
use cpumax_machine::named::{self, Taken};
use cpumax_outcome::{Histogram, Outcome};
use cpumax_recording::about::GroupFiles;
use cpumax_recording::{
    Demand, EventCost, Gap, GapKind, Load, Recording, Selection, Service, Summary, Waits,
};
use cpumax_study::{CURVE, Error, FEW, Share, Try, WhatIf, ladder, with_shares};
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{Affinity, CpuSet, GroupIx, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

mod again;
mod agree;
mod cells;
mod costs;
mod document;
mod in_force;
mod request;

pub use document::{Kept, NotTried, Recorded, ReplayDocument, TakenFor, documents};
use in_force::Pod;
use request::Reading;
pub use request::Request;

const HOW_MANY: &str = "latencies depend on the number of connections, and the recording does not \
show it, as the threads hardly ever wait: record messages of sockets or system calls";

/// A recording is refused where less than this part of its CPU time is left after the cost of
/// recording is taken off.
const COST_LEAVES_ONE_IN: u64 = 20;

/// Where the kernel did not record what it charged, interrupts and the host may have taken up to
/// this share of the time on a CPU. The range tells it.
const MOST_OF_OTHERS: f64 = 0.5;

/// A recording, prepared to be replayed under limits.
///
/// ```
/// use cpumax_recording::{Options, Recording};
/// use cpumax_forecast::{Replay, Request};
/// use cpumax_study::Try;
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
    /// The most likely reading first, then the alternatives that the recording allows as well.
    readings: Vec<Reading>,
    group: GroupIx,
    /// Limits and weights that groups had in the recording and keep in the replay.
    in_force: Vec<(GroupIx, Share)>,
    /// The pod whose limit moves with that of the group.
    pod: Option<Pod>,
    threads: usize,
    /// When the load of the group was active.
    window: Window,
    /// CPU time of the group in that window, ns.
    work_ns: u64,
    /// CPUs that all other threads kept busy in the recording.
    others: f64,
    /// CPU time that the threads ask for, by the length of a period, ns.
    demands: Vec<(u64, Demand)>,
    answered: usize,
    unit: Unit,
    /// The recording, measured like a run.
    recorded: Sample,
    over_ns: Option<u64>,
    scale: Option<f64>,
    load: Option<f64>,
    /// When the user says that the load ends, ns since the start.
    ends_ns: Option<u64>,
    work: WorkRange,
    service: Option<Service>,
    waits: Waits,
    made_by: Vec<String>,
    /// Clients send requests, but the recording does not show them.
    is_unheard: bool,
    gaps: Vec<Gap>,
    check: agree::Check,
}

impl Replay {
    /// Prepares the recording called `name` and chooses the group that is limited. Without limits
    /// in the request, those of a ladder around the group's CPU usage are tried. Runs nothing yet.
    ///
    /// # Errors
    /// The recording is too long, or recording took nearly all of its CPU time. The request chooses
    /// nothing in this recording, or contradicts itself. A limit is for a group that does not
    /// exist.
    pub fn new(name: &str, recording: &Recording, request: &Request) -> Result<Replay, Error> {
        let summary = recording.summary();
        if summary.span_ns > MAX_DURATION_NS {
            return Err(Error::TooLong { name: name.to_owned(), span_ns: summary.span_ns });
        }
        let mut selection = selected(recording, request, &summary)?;
        let load = recording.load(&selection);
        let (group, service) = request.find_limited(name, recording, &selection)?;
        let requests = service.as_ref().map(|one| Load::of_requests(one, summary.span_ns));
        let seen = requests.as_ref().unwrap_or(&load).window();
        let window = request.window(seen, summary.span_ns)?;
        selection.until_ns = Some(window.until_ns);
        let mut readings = request.readings(name, recording, &selection, service.as_ref())?;
        let told = summary.about.as_ref().map_or(&[][..], |about| about.groups.as_slice());
        let pod = Pod::above(told, &readings[0].workload, group);
        let in_force = keep_in_force(told, &mut readings, group, pod)?;
        for limit in &request.limits {
            limit.others(&readings[0].workload, group)?;
        }
        let used = load.within(window);
        let recorded_ns = used.cpu_ns.saturating_add(used.cost_ns);
        check_cost(summary.event_cost, used.cpu_ns, recorded_ns)?;
        let with_cost = recorded_ns as f64 / used.cpu_ns.max(1) as f64;
        let (unit, latencies_ns) = match &requests {
            Some(requests) => (Unit::Requests, requests.within(window).bursts_ns),
            None => (Unit::Bursts, used.bursts_ns),
        };
        let answered = latencies_ns.len();
        let over_ns = request.over_ns;
        let gaps = recording.gaps_of(&selection, service.as_ref());
        let mut replay = Replay {
            limits: request.limits.clone(),
            threads: recorded::tasks_in(&readings[0].workload, group).len(),
            readings,
            group,
            in_force,
            pod,
            window,
            work_ns: used.cpu_ns,
            others: other_cpus(&summary, &load),
            demands: demands(request, &load, window),
            answered,
            unit,
            recorded: Sample::of_recording(recorded_ns, latencies_ns, window, unit, over_ns),
            over_ns,
            scale: request.scale_work.map(|factor| factor * with_cost),
            load: request.scale_load,
            ends_ns: request.until_ns.map(|_| window.until_ns),
            work: work_range(request.work, &gaps, with_cost),
            gaps,
            check: agree::Check::new(name, recording, request, &selection)?,
            is_unheard: service.is_none() && recording.has_clients(&selection),
            service,
            waits: recording.waits(&selection),
            made_by: request.made_by.clone(),
            summary,
        };
        if replay.limits.is_empty() {
            replay.limits = ladder(replay.mean_cpus(), FEW);
        }
        Ok(replay)
    }

    /// Tries as many limits as a curve needs. The command that makes the study again names them.
    pub(crate) fn try_curve(&mut self) {
        self.limits = ladder(self.mean_cpus(), CURVE);
        if self.made_by.is_empty() {
            return;
        }
        for Try { limit, .. } in &self.limits {
            let burst = match limit.burst_ns() / 1_000 {
                0 => String::new(),
                usec => format!(",cpu.max.burst={usec}"),
            };
            self.made_by.push(format!("--set={limit}{burst}"));
        }
    }

    /// The requests that the limited group answered; `None` where the recording does not show them.
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }

    /// Number of waits of the limited threads, and of those whose waker is known.
    pub fn waits(&self) -> Waits {
        self.waits
    }

    /// Whether clients send requests to the limited threads, but the recording does not show them.
    /// Latencies are then those of bursts.
    pub fn is_unheard(&self) -> bool {
        self.is_unheard
    }

    /// Why it is not certain whether clients wait for answers before they ask again, and how the
    /// user can decide it; `None` if it is certain, or the recording shows no requests of a
    /// service.
    pub(crate) fn why_unsure(&self) -> Option<&'static str> {
        let is_unsure = self.service.as_ref().is_some_and(|service| !service.sure);
        is_unsure.then_some(request::OPEN_OR_CLOSED)
    }

    /// Kinds of missing events that concern the limited threads.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// The gaps that make every number unreliable.
    pub fn doubtful_gaps(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|gap| gap.doubtful)
    }

    /// Limits that are not tried on one of these kernels because it supports nothing of them, with
    /// the error that says so.
    pub fn not_tried(&self, kernels: &[Kernel]) -> Vec<(&Try, Kernel, Error)> {
        let on =
            |limit| move |&kernel: &Kernel| Some((limit, kernel, Try::lacks(limit, kernel).err()?));
        self.limits.iter().flat_map(|limit| kernels.iter().filter_map(on(limit))).collect()
    }

    /// The workload of the most likely reading.
    fn workload(&self) -> &Workload {
        &self.readings[0].workload
    }

    /// Contents of the recording, and its repairs.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The modelled kernel that stands for the recorded one, then the newest, if that is another
    /// version.
    pub fn kernels(&self) -> Vec<Kernel> {
        let (recorded, newest) = (self.taken().kernel, Kernel::newest());
        let other = Some(recorded).filter(|kernel| kernel.version != newest.version);
        other.into_iter().chain([newest]).collect()
    }

    /// The modelled kernel that stands for the recorded one, and the reason where that is not just
    /// its version.
    pub fn taken(&self) -> Taken {
        let about = self.summary.about.as_ref();
        let functions = about.map(|about| about.functions.clone()).unwrap_or_default();
        named::taken(self.summary.kernel.as_deref(), &functions)
    }

    /// The limits that are tried, without the run that has none.
    pub fn limits(&self) -> &[Try] {
        &self.limits
    }

    /// Path of the group that is limited.
    pub fn path(&self) -> &str {
        &self.workload().groups[self.group as usize].path
    }

    /// Path of the limited group in the recording. `None` where threads were chosen one by one: the
    /// group then exists in the model only.
    pub fn recorded_path(&self) -> Option<&str> {
        let groups = recorded::runtime_by_group(&self.summary.threads);
        groups.contains_key(self.path()).then(|| self.path())
    }

    /// The pod whose limit moves with that of the limited container, as kubelet moves it.
    pub fn pod(&self) -> Option<&str> {
        self.pod.map(|pod| self.workload().groups[pod.group as usize].path.as_str())
    }

    /// Limits and weights that groups had in the recording and keep in the replay, by path; for the
    /// limited group and its [pod](Replay::pod) only the weight.
    pub fn in_force(&self) -> impl Iterator<Item = (&str, Share)> {
        let path = |group: GroupIx| self.workload().groups[group as usize].path.as_str();
        self.in_force.iter().map(move |(group, share)| (path(*group), *share))
    }

    /// Number of limited threads that may not use all CPUs, and the union of their CPUs; `None` if
    /// all may use all.
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

    /// Number of limited threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Kinds of limited threads, without duplicates, as the tasks of an outcome are labelled.
    pub fn kinds(&self) -> BTreeSet<&str> {
        recorded::tasks_in(self.workload(), self.group).iter().map(|task| task.label()).collect()
    }

    /// CPUs that the limited threads kept busy within the window of the recording, without the cost
    /// of recording.
    pub fn mean_cpus(&self) -> f64 {
        self.work_ns as f64 / self.window.length_ns() as f64
    }

    /// Share of the machine's CPUs that was busy, 0 to 1: by the limited threads within the window,
    /// by all others on average over the recording.
    pub fn machine_share(&self) -> f64 {
        (self.mean_cpus() + self.others) / f64::from(self.summary.cpus.max(1))
    }

    /// Number of requests in the window, or of bursts where the recording shows no requests, and
    /// which of the two it counts.
    pub fn answered(&self) -> (usize, Unit) {
        (self.answered, self.unit)
    }

    /// Factor on the recorded traffic, where one was asked for.
    pub fn scale_load(&self) -> Option<f64> {
        self.load
    }

    /// CPU time that the limited threads ask for in intervals as long as a period; `None` for a
    /// period that the request did not name.
    pub fn demand(&self, period_ns: u64) -> Option<&Demand> {
        self.demands.iter().find(|(of_ns, _)| *of_ns == period_ns).map(|(_, demand)| demand)
    }

    /// [`Replay::demand`] for each period of the request, with its length, ns.
    pub fn demands(&self) -> &[(u64, Demand)] {
        &self.demands
    }

    /// When the load of the limited threads was active, ns since the start of the recording.
    pub fn window(&self) -> Window {
        self.window
    }

    /// The window in a run, ns; a load of `--load` times the traffic comes in that much less time.
    fn window_of_run(&self) -> Window {
        let of_run = |ns: u64| (ns as f64 / self.load.unwrap_or(1.0)) as u64;
        Window { from_ns: of_run(self.window.from_ns), until_ns: of_run(self.window.until_ns) }
    }

    /// The recorded numbers in the form of a prediction, each the value and both ends of its range.
    pub fn recorded(&self) -> Prediction {
        let mut recorded = predict(&[(&self.recorded, true)], self.unit);
        self.mark_gaps(&mut recorded);
        recorded
    }

    /// Marks a prediction unreliable for each doubtful gap of the recording. Lowers its range of
    /// CPUs by half where interrupts may have been charged to threads.
    fn mark_gaps(&self, prediction: &mut Prediction) {
        for gap in self.doubtful_gaps() {
            prediction.mark_unreliable(gap.told.trim_end_matches('.'));
        }
        if !self.summary.has_runtime {
            prediction.lower_cpus_by(MOST_OF_OTHERS);
        }
    }

    /// The replay as a scenario that reports each thread by its own name. It ends where the user
    /// set the end of the load.
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

    /// The most likely reading as a workload under one limit, with time enough to finish its work.
    /// A load that lasts for a given time ends with the window.
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

    /// The changes that put the limit on the replay's group, with a length of run that is enough
    /// for the recorded work under it; an error where the limit names a group that does not exist.
    fn what_if(&self, limit: &Try) -> Result<WhatIf, Error> {
        let (span_ns, work_ns) = (self.summary.span_ns, self.work_ns);
        let mut what_if = limit.what_if(self.workload(), self.group, span_ns, work_ns)?;
        let is_given = |pod: &Pod| what_if.shares.iter().any(|(group, _)| *group == pod.group);
        if let Some(pod) = self.pod.filter(|pod| !is_given(pod)) {
            let share = Share { limit: pod.beside(limit.limit), weight: None };
            what_if.shares.push((pod.group, share));
        }
        Ok(what_if)
    }
}

/// The request's selection of threads. Chosen threads are put below the nearest group above all of
/// them that was limited in the recording, so that its limit stays in force. An error as of
/// [`Request::selection`].
fn selected(
    recording: &Recording,
    request: &Request,
    summary: &Summary,
) -> Result<Selection, Error> {
    let mut selection = request.selection(summary)?;
    if let Some(above) = recording.limited_above(&selection) {
        selection.group = format!("{above}{}", request::CHOSEN);
    }
    Ok(selection)
}

/// Gives the workload of each reading the limits and weights that groups had in the recording, and
/// returns these; an error where one is refused.
fn keep_in_force(
    told: &[GroupFiles],
    readings: &mut [Reading],
    group: GroupIx,
    pod: Option<Pod>,
) -> Result<Vec<(GroupIx, Share)>, Error> {
    let in_force = in_force::in_force(told, &readings[0].workload, group, pod);
    for reading in readings.iter_mut().filter(|_| !in_force.is_empty()) {
        let workload = Workload::clone(&reading.workload);
        reading.workload = Arc::new(with_shares(workload, &in_force)?);
    }
    Ok(in_force)
}

/// An error where less than a twentieth of the recorded CPU time `recorded_ns` is left in `cpu_ns`,
/// after the cost of recording.
fn check_cost(cost: EventCost, cpu_ns: u64, recorded_ns: u64) -> Result<(), Error> {
    if cpu_ns >= recorded_ns / COST_LEAVES_ONE_IN {
        return Ok(());
    }
    let EventCost { syscall_ns, other_ns } = cost;
    Err(Error::AllIsCost { syscall_ns, other_ns, recorded_ns })
}

/// CPUs that threads outside of this load, recorder included, kept busy on average over the
/// recording.
fn other_cpus(summary: &Summary, load: &Load) -> f64 {
    let own = load.within(Window { from_ns: 0, until_ns: summary.span_ns });
    let all_ns = summary.runtime_ns.saturating_add(summary.recorder_ns);
    all_ns.saturating_sub(own.cpu_ns) as f64 / summary.span_ns.max(1) as f64
}

/// The range of the cost of work. Where the cost of recording is unknown and may have been nothing,
/// its upper end is at least `with_cost`: recorded CPU time over that without the cost.
fn work_range(asked: WorkRange, gaps: &[Gap], with_cost: f64) -> WorkRange {
    let is_unknown = gaps.iter().any(|gap| gap.kind == GapKind::EventCost);
    let high = if is_unknown { asked.high.max(with_cost) } else { asked.high };
    WorkRange { high, ..asked }
}

/// The CPU time asked for in each period of the request, by its length, ns. At a higher load one
/// period holds the requests of as many recorded ones.
fn demands(request: &Request, load: &Load, window: Window) -> Vec<(u64, Demand)> {
    let times = request.scale_load.unwrap_or(1.0);
    let demand = |ns: &u64| (*ns, load.demand(window, (*ns as f64 * times) as u64));
    request.periods_ns.iter().map(demand).collect()
}

/// One limit on one kernel: one run in full, and the prediction of all its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Path of the group that is limited.
    pub group: String,
    /// The limit.
    #[serde(flatten)]
    pub limit: Try,
    /// Parts of it that the kernel does not have.
    pub lacks: Vec<Missing>,
    /// When the recorded work was done, ns; null when it was not, or lasts for a given time.
    pub finished_ns: Option<u64>,
    /// Time that the work takes, divided by the time without a limit on the same kernel.
    pub slowdown: Option<f64>,
    /// When the load was there in the recording.
    pub window: Window,
    /// Effect of the limit on the service, with ranges.
    pub prediction: Prediction,
    /// A trace of the run, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RunTrace>,
    /// Outcome of the first of the most likely runs.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The load lasts for a given time, whatever the limit does to it; not written.
    #[serde(skip)]
    pub lasts: bool,
    /// Differences between the recording and its replay on this kernel, one line for each. Written
    /// with the recording only.
    #[serde(skip)]
    pub differs: Vec<String>,
    /// The draw of the run that `outcome` is of; not written.
    #[serde(skip)]
    pub(crate) draw: Draw,
}

impl Run {
    /// From the first activity of the load until its work was done, ns: the prediction's value.
    /// `None` if it was not.
    pub fn takes_ns(&self) -> Option<u64> {
        self.prediction.work_takes_ns.map(|takes| takes.value)
    }

    /// Whether the load was over by the end of the run; always true of one that lasts for a given
    /// time.
    pub fn is_done(&self) -> bool {
        self.lasts || self.takes_ns().is_some()
    }

    /// The limit in thousandths of a CPU; `None` without a limit.
    pub fn cpus(&self) -> Option<u64> {
        self.limit.limit.millicpus()
    }

    /// Latencies of the limited group in the run that `outcome` is of; `None` if it has no such
    /// group.
    pub fn latencies(&self) -> Option<&Histogram> {
        self.outcome.groups.get(&self.group).map(|group| &group.latency_histogram_ns)
    }

    /// CPUs that `usage_usec` of CPU time kept busy, on average from the begin of the window to the
    /// end of the run.
    pub fn busy(&self, usage_usec: u64) -> f64 {
        let length_ns = self.outcome.simulated_ns.saturating_sub(self.window.from_ns);
        usage_usec as f64 * 1e3 / length_ns.max(1) as f64
    }
}
