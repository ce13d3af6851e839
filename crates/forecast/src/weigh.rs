//! Compares what the rules of kernels give and cost, workload by workload.
//!
//! ```
//! use cpumax_forecast::weigh;
//! use cpumax_study::{Running, kernel};
//!
//! let kernels = kernel::parse_kernels("6.12,7.3")?;
//! let workloads = [weigh::scenario("nested", Some(300_000_000))?];
//! let weights = weigh::weigh(&workloads, &kernels, &(1..=1), Running::default(), &())?;
//! let base = weigh::base(None, &kernels)?;
//! assert!(weights[0][base].used > 0.0);
//! let told = weigh::documents(&workloads, &kernels, base, &weights);
//! assert_eq!(told.count(), 2);
//! # Ok::<(), cpumax_study::Error>(())
//! ```

use crate::recorded;
use crate::replay::{Replay, Request};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_outcome::Outcome;
use cpumax_recording::{Defects, Options};
use cpumax_study::{
    Error, Job, NamedKernel, Study, Try, Watch,
    answer::{Answer, Document},
    builtin,
    world::{self, Model, Running},
};
use cpumax_workload::{Affinity, Class, GroupSpec, Op, Parts, Span, TaskSpec, Workload};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// Differences up to this count as none, ns: interrupts take that long to arrive.
const NOISE_NS: f64 = 100_000.0;
/// Length of a single run of a thread (less than any quota), and of the idle time after it, ns.
const ONCE_NS: u64 = 500_000;
const IDLE_NS: u64 = 10_000_000_000;
/// Ratios up to this are tolerated.
const TOLERATED: f64 = 1.05;

/// Built-in scenarios that take minutes instead of seconds.
const TOO_LARGE: [&str; 2] = ["profile-384", "profile-384-together"];

/// Names of the scenarios that are weighed by default: the built-in ones without the largest.
pub fn usual() -> impl Iterator<Item = &'static str> {
    builtin::ALL.iter().map(|built_in| built_in.name).filter(|name| !TOO_LARGE.contains(name))
}

/// Loads the scenario of this name with timers in phase 0, so that periods are the windows in which
/// use is counted. Without `duration_ns` it keeps its own length.
///
/// # Errors
/// There is no such scenario, or the duration is out of range.
pub fn scenario(name: &str, duration_ns: Option<u64>) -> Result<Arc<Workload>, Error> {
    let mut parts = cpumax_study::scenario::load(name)?.into_parts();
    parts.machine.timer_phase_ns = Some(0);
    parts.duration_ns = duration_ns.unwrap_or(parts.duration_ns);
    Ok(Arc::new(parts.try_into()?))
}

/// Reads a recording as a workload under a limit, and its repairs. The phase of periods stays
/// random, as its load comes at times of its own.
///
/// # Errors
/// It cannot be read, or the limit is of a group that it does not have.
pub fn recording(path: &Path, limit: &Try) -> Result<(Arc<Workload>, Defects), Error> {
    let request = Request { limits: vec![limit.clone()], ..Request::default() };
    request.limited_group()?;
    let recording = recorded::read(path, Options::default())?;
    let name = recorded::name(path);
    let replay = Replay::new(&name, &recording, &request)?;
    Ok((Arc::new(replay.limited(limit)?), replay.summary().defects.clone()))
}

/// Runs each workload on each kernel with each seed, and idle workloads beside them. Returns for
/// each workload its weights, one for each kernel in order.
///
/// # Errors
/// The first error of a run.
pub fn weigh(
    workloads: &[Arc<Workload>],
    kernels: &[Kernel],
    seeds: &RangeInclusive<u64>,
    running: Running,
    watch: &dyn Watch,
) -> Result<Vec<Vec<Weight>>, Error> {
    let model = Model { running };
    let kernels = || kernels.iter().copied().map(NamedKernel::from);
    let study = |workload: &Arc<Workload>| Study::new(Arc::clone(workload)).on(kernels());
    let jobs = workloads.iter().flat_map(|w| study(w).with_seeds(seeds.clone()).jobs());
    let jobs: Vec<Job> = jobs.collect();
    let reports = world::all(&model, &jobs, watch)?;
    let idle = |workload: &Arc<Workload>| Ok(study(&Arc::new(idle(workload)?)).jobs());
    let idle_jobs = workloads.iter().map(idle).collect::<Result<Vec<_>, Error>>()?.concat();
    let idle_reports = world::all(&model, &idle_jobs, watch)?;
    let mut outcomes = reports.into_iter().map(|report| report.outcome);
    let mut idle_outcomes = idle_reports.into_iter().map(|report| report.outcome);
    let runs = seeds.clone().count();
    let of_kernel = |workload: &Workload| {
        let runs: Vec<Outcome> = outcomes.by_ref().take(runs).collect();
        let idle = idle_outcomes.next().map_or(0.0, |outcome| timers(&outcome));
        Weight { idle, ..Weight::of(workload, &runs) }
    };
    let mut of_kernel = of_kernel;
    let of = |workload: &Arc<Workload>| kernels().map(|_| of_kernel(workload)).collect();
    Ok(workloads.iter().map(of).collect())
}

/// Place of the kernel that the last one is compared with: the named one, or else the last but one.
///
/// # Errors
/// The name is of no weighed kernel, or of several.
pub fn base(against: Option<&str>, kernels: &[Kernel]) -> Result<usize, Error> {
    let Some(name) = against else { return Ok(kernels.len().saturating_sub(2)) };
    let asked = kernel::parse_kernels(name)?;
    let is_asked = |k: &Kernel| asked.len() == 1 && k.version == asked[0].version;
    kernels.iter().position(is_asked).ok_or_else(|| {
        let weighed: Vec<String> = kernels.iter().map(|k| k.version.to_string()).collect();
        let (name, weighed) = (cpumax_limit::one_line(name), weighed.join(","));
        Error::Question(format!("kernel {name} is not weighed: give one of {weighed}"))
    })
}

/// The weight of a kernel on one workload, as docs/reference/json.md describes it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WeightDocument<'a> {
    /// The workload.
    scenario: &'a str,
    /// The kernel.
    kernel: String,
    /// The kernel that it is compared with; absent except for the last kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<String>,
    #[serde(flatten)]
    weight: &'a Weight,
    /// Numbers that are worse than on that kernel.
    worse: Vec<Worse>,
}

impl Answer for WeightDocument<'_> {
    const KIND: &'static str = "weighing";
}

/// All weights as they are written as JSON: for each workload the kernels in order. `base` is the
/// place of the kernel that the last one is compared with.
pub fn documents<'a>(
    workloads: &'a [Arc<Workload>],
    kernels: &'a [Kernel],
    base: usize,
    weights: &'a [Vec<Weight>],
) -> impl Iterator<Item = Document<WeightDocument<'a>>> {
    workloads.iter().zip(weights).flat_map(move |(workload, of_kernels)| {
        of_kernels.iter().zip(kernels).enumerate().map(move |(at, (weight, kernel))| {
            let is_held = at + 1 == kernels.len() && at != base;
            Document::from(WeightDocument {
                scenario: &workload.name,
                kernel: kernel.version.to_string(),
                against: is_held.then(|| kernels[base].version.to_string()),
                weight,
                worse: if is_held { weight.worse_than(&of_kernels[base]) } else { Vec::new() },
            })
        })
    })
}

/// Whether a workload is a recording: its periods begin at random times, so use by period is not
/// counted.
fn is_recorded(workload: &Workload) -> bool {
    workload.machine.timer_phase_ns.is_none()
}

/// Length of a run, s: its duration, or of a recording the time until its limited threads had all
/// ended, if they did.
fn lasted_s(workload: &Workload, outcome: &Outcome) -> f64 {
    let limited =
        |task: &&TaskSpec| workload.groups[task.group as usize].limit.quota_ns().is_some();
    let finished = workload.tasks.iter().filter(limited);
    let finished = finished.filter_map(|task| outcome.tasks.get(task.label()));
    let finished: Vec<u64> =
        finished.filter(|task| task.count > 0).map(|task| task.finished_ns).collect();
    // A thread that never ends has 0.
    let ended = is_recorded(workload) && !finished.contains(&0);
    let last_ns = finished.into_iter().max().filter(|_| ended).unwrap_or(workload.duration_ns);
    last_ns as f64 / 1e9
}

/// Results of a kernel on one workload: means over all seeds; largest values are those of all
/// seeds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Weight {
    /// CPUs used by limited groups.
    pub used: f64,
    /// Largest use beyond the quota in a period, ns.
    pub over_ns: f64,
    /// Longest wait of a task, ns.
    pub stall_ns: f64,
    /// Latency p99, ns.
    pub p99_ns: f64,
    /// Requests done.
    pub completions: f64,
    /// Least use divided by mean use, among task kinds that are alike; `None` if none are.
    pub even: Option<f64>,
    /// Longest section of a release with interrupts off, ns.
    pub irqoff_max_ns: u64,
    /// p99 of those sections, ns.
    pub irqoff_p99_ns: f64,
    /// Time in those sections, ns in a second.
    pub spent_ns: f64,
    /// Tasks put back in a second.
    pub tasks: f64,
    /// Period timers that fire for a limited group that ran once and is idle.
    pub idle: f64,
}

impl Weight {
    /// Means and extremes of a workload's runs; `idle` is left 0. Recorded workloads count no use
    /// above the quota, and their latency is that of groups, not of tasks.
    fn of(workload: &Workload, runs: &[Outcome]) -> Weight {
        let n = runs.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Outcome) -> f64| runs.iter().map(of).sum::<f64>() / n;
        let limited: Vec<(&str, u64)> = workload
            .groups
            .iter()
            .filter_map(|g| Some((g.path.as_str(), g.limit.quota_ns()? + g.limit.burst_ns())))
            .collect();
        let groups = |o: &Outcome, of: &dyn Fn(&cpumax_outcome::GroupOutcome, u64) -> f64| {
            limited
                .iter()
                .filter_map(|(path, quota)| Some(of(o.groups.get(*path)?, *quota)))
                .collect::<Vec<_>>()
        };
        let over = |o: &Outcome| {
            let over = groups(o, &|g, quota| g.max_period_usage_usec as f64 * 1e3 - quota as f64);
            if is_recorded(workload) { 0.0 } else { over.into_iter().fold(0.0, f64::max) }
        };
        let seconds = |o: &Outcome| lasted_s(workload, o);
        Weight {
            used: mean(&|o| {
                groups(o, &|g, _| g.usage_usec as f64).iter().sum::<f64>() / 1e6 / seconds(o)
            }),
            over_ns: runs.iter().map(over).fold(0.0, f64::max),
            stall_ns: mean(&|o| most(o.tasks.values().map(|t| t.longest_stall_ns))),
            p99_ns: mean(&|o| {
                if is_recorded(workload) {
                    groups(o, &|g, _| g.latency_ns.p99 as f64).into_iter().fold(0.0, f64::max)
                } else {
                    most(o.tasks.values().map(|t| t.latency_ns.p99))
                }
            }),
            completions: mean(&|o| o.tasks.values().map(|t| t.completions as f64).sum()),
            even: even(workload, runs),
            irqoff_max_ns: runs.iter().map(|o| o.release.irqoff_ns.max).max().unwrap_or(0),
            irqoff_p99_ns: mean(&|o| o.release.irqoff_ns.p99 as f64),
            spent_ns: mean(&|o| o.release.spent_ns as f64 / seconds(o)),
            tasks: mean(&|o| o.release.tasks as f64 / seconds(o)),
            idle: 0.0,
        }
    }

    /// Numbers in which this is worse than `base` by more than 5 % and, for times, also by 100 us;
    /// `over_ns` and times of releases are not compared.
    pub fn worse_than(&self, base: &Weight) -> Vec<Worse> {
        let later = |what, own: f64, other: f64| {
            let is_worse = own > other * TOLERATED + NOISE_NS;
            is_worse.then_some(Worse { what, own, other, unit: Unit::Ns })
        };
        let less = |what, own: f64, other: f64| {
            let is_worse = own * TOLERATED < other;
            is_worse.then_some(Worse { what, own, other, unit: Unit::Number })
        };
        let idle = Worse { what: "idle", own: self.idle, other: base.idle, unit: Unit::Timers };
        [
            less("CPUs used", self.used, base.used),
            later("longest stall", self.stall_ns, base.stall_ns),
            later("latency p99", self.p99_ns, base.p99_ns),
            less("requests done", self.completions, base.completions),
            (self.idle > base.idle * TOLERATED).then_some(idle),
            less("evenness", self.even.unwrap_or(1.0), base.even.unwrap_or(1.0)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// One number in which a kernel is worse than another.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Worse {
    /// The number.
    pub what: &'static str,
    /// Its value.
    pub own: f64,
    /// Its value on the other kernel.
    pub other: f64,
    /// Its unit.
    pub unit: Unit,
}

/// The unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Firings of the period timer of an idle group.
    Timers,
    /// Anything else.
    Number,
}

/// A workload with the machine's CPUs and the groups of this one, for 10 s: in each limited group a
/// thread runs once, for 0.5 ms, and exits. An error if it is not valid.
fn idle(workload: &Workload) -> Result<Workload, cpumax_workload::Error> {
    let mut idle = Parts::empty(&workload.name, &workload.shows, IDLE_NS);
    idle.machine.cpus = workload.machine.cpus;
    idle.machine.timer_phase_ns = Some(0);
    idle.groups.clone_from(&workload.groups);
    let once = |(at, _): (usize, &GroupSpec)| TaskSpec {
        name: format!("once in group {at}"),
        label: None,
        count: 1,
        group: at as u32,
        class: Class::Fair,
        nice: 0,
        cpus: Affinity::All,
        start_ns: 0,
        stagger_ns: 0,
        slice_ns: None,
        program: vec![Op::User(Span::Fixed(ONCE_NS))].into(),
    };
    let limited = workload.groups.iter().enumerate().filter(|(_, g)| g.limit.quota_ns().is_some());
    idle.tasks = limited.map(once).collect();
    idle.try_into()
}

/// Mean number of periods over the groups that have any; 0 without groups.
fn timers(idle: &Outcome) -> f64 {
    let fired: Vec<u64> =
        idle.groups.values().map(|g| g.nr_periods).filter(|&periods| periods > 0).collect();
    fired.iter().sum::<u64>() as f64 / fired.len().max(1) as f64
}

/// The largest value; 0 if there are none.
fn most(values: impl Iterator<Item = u64>) -> f64 {
    values.max().unwrap_or(0) as f64
}

/// Among kinds of task with equal program, count and depth of groups: the least CPU time of one
/// divided by the mean. Of several sets the smallest ratio; `None` if no kinds are alike.
fn even(workload: &Workload, runs: &[Outcome]) -> Option<f64> {
    let mut alike: BTreeMap<(String, u32, usize), Vec<f64>> = BTreeMap::new();
    for kind in &workload.tasks {
        let path = &workload.groups[kind.group as usize].path;
        let key = (format!("{:?}", kind.program), kind.count, path.matches('/').count());
        let used: f64 =
            runs.iter().filter_map(|o| Some(o.tasks.get(kind.label())?.usage_usec as f64)).sum();
        alike.entry(key).or_default().push(used);
    }
    let ratio = |used: &Vec<f64>| {
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        let least = used.iter().copied().fold(f64::INFINITY, f64::min);
        (used.len() > 1 && mean > 0.0).then(|| least / mean)
    };
    alike.values().filter_map(ratio).reduce(f64::min)
}
