//! Random workloads for property tests: all of the language, at a size that a test can afford. They
//! are valid by construction and depend only on the seed. Programs do not deadlock: they take locks
//! in one order, and hold none while they wait for tokens or children. A task that is killed or
//! stopped in user mode while it holds a lock still blocks others.

mod anything;
mod jobs;
mod program;
mod real;
mod shrink;

pub use anything::parts as anything;
pub use real::{real, real_on_several};
pub use shrink::minimize;

use crate::build::{Builder, Table, Value, table};
use crate::checked::Workload;
use crate::cpus::CpuSet;
use crate::dist::{Domain, Stream};
use crate::model::{Class, Distribution, LockKind, LockMode, Preempt, Signal};
use cpumax_limit::Limit;
use program::Context;
use std::time::Duration;

/// Largest size of a random workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Most CPUs, at least 1.
    pub cpus: u64,
    /// Deepest group below the root, at least 1.
    pub depth: u64,
    /// Most groups, the root not counted.
    pub groups: u64,
    /// Most kinds of task, at least 1, those that are only forked not counted.
    pub kinds: u64,
    /// Most tasks that run from the start, at least as many as kinds.
    pub tasks: u64,
    /// Most interventions.
    pub interventions: u64,
    /// Longest run, ns, at least 50 ms.
    pub duration_ns: u64,
}

impl Default for Bounds {
    /// 8 CPUs, 12 groups up to 4 deep, 20 tasks of 8 kinds, 8 interventions, 1 s.
    fn default() -> Self {
        Bounds {
            cpus: 8,
            depth: 4,
            groups: 12,
            kinds: 8,
            tasks: 20,
            interventions: 8,
            duration_ns: 1_000_000_000,
        }
    }
}

/// The random workload of this seed, within the default [`Bounds`].
pub fn workload(seed: u64) -> Workload {
    workload_within(seed, &Bounds::default())
}

/// The random workload of this seed, within `bounds`; equal arguments give equal workloads.
///
/// # Panics
/// If the checks refuse the generated workload, which is a bug in either.
pub fn workload_within(seed: u64, bounds: &Bounds) -> Workload {
    build_or_panic(seed, &draw_plan(seed, bounds).draft)
}

/// The random workload of this seed, with jobs, pools of tasks that serve them, and sources that
/// send them.
///
/// # Panics
/// See [`workload_within`].
pub fn with_jobs(seed: u64) -> Workload {
    let plan = draw_plan(seed, &Bounds::default());
    build_or_panic(seed, &jobs::add(&mut Dice(Stream::new(seed, Domain::Workload, 1)), plan))
}

/// Builds the draft of this seed.
///
/// # Panics
/// If the checks refuse it.
fn build_or_panic(seed: u64, draft: &Builder) -> Workload {
    draft.build().unwrap_or_else(|error| panic!("random workload of seed {seed}: {error}"))
}

/// A scenario under construction, and the parts that others may refer to.
struct Plan {
    draft: Builder,
    cpus: u16,
    locks: Vec<(String, LockKind)>,
    groups: Vec<GroupPlan>,
}

/// Draws a whole workload. Later parts refer only to groups, locks and channels drawn before, so
/// that the checks accept it.
fn draw_plan(seed: u64, bounds: &Bounds) -> Plan {
    let mut dice = Dice(Stream::new(seed, Domain::Workload, 0));
    let cpus = dice.range(1, bounds.cpus) as u16;
    let duration_ns = dice.range(50_000_000, bounds.duration_ns.max(50_000_000));
    let mut draft = Workload::builder(&format!("random-{seed}"))
        .with("shows", "A random workload.")
        .with("duration", Duration::from_nanos(duration_ns));

    let locks = draw_locks(&mut dice);
    for (name, kind) in &locks {
        draft = draft.part("lock", table("name", name).with("kind", *kind));
    }
    let channels = draw_channels(&mut dice);
    for (name, capacity) in &channels {
        draft = draft.part("channel", channel(name, *capacity));
    }
    draft = draft.with("machine", draw_machine(&mut dice, cpus, &locks));
    let groups = draw_groups(&mut dice, bounds, cpus);
    for group in &groups {
        draft = draft.part("group", group.table());
    }
    let mut paths: Vec<String> = groups.iter().map(|group| group.path.clone()).collect();
    paths.push("/".to_owned());

    let kinds = draw_kinds(&mut dice, bounds);
    let names = kinds.iter().map(|kind| kind.name.clone()).collect();
    let context =
        Context { cpus, locks: &locks, channels: &channels, paths: &paths, kinds: &names };
    for kind in &kinds {
        draft = draft.part("task", draw_task(&mut dice, &context, kind, duration_ns));
    }
    for (ix, (channel, _)) in channels.iter().enumerate() {
        if dice.one_in(2) {
            draft = draft.part("source", draw_source(&mut dice, ix, channel, duration_ns));
        }
    }
    for _ in 0..dice.range(0, bounds.interventions) {
        let change = draw_change(&mut dice, &context, &groups, &kinds, duration_ns);
        draft = draft.part("at", change);
    }
    if dice.one_in(4) {
        draft = draft.part("expect", draw_expectation(&mut dice, &groups));
    }
    Plan { draft, cpus, locks, groups }
}

/// A group, before it becomes a part.
#[derive(Clone)]
struct GroupPlan {
    path: String,
    limit: Limit,
    weight: u32,
    v1: bool,
}

impl GroupPlan {
    fn new(path: String) -> GroupPlan {
        GroupPlan { path, limit: Limit::UNLIMITED, weight: 100, v1: false }
    }

    fn table(&self) -> Table {
        let group = write_limit(table("path", &self.path), self.limit).with("weight", self.weight);
        group.with("hierarchy", if self.v1 { "v1" } else { "v2" })
    }
}

/// Adds the two keys of a limit to a group or a change.
fn write_limit(part: Table, limit: Limit) -> Table {
    part.with("max", limit.to_string()).with("burst", limit.burst_ns() / 1000)
}

/// A channel; `u64::MAX` is no bound.
fn channel(name: &str, capacity: u64) -> Table {
    match capacity {
        u64::MAX => table("name", name),
        capacity => table("name", name).with("capacity", capacity),
    }
}

struct Dice(Stream);

impl Dice {
    /// A number from `low` to `high`, both included.
    fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.below(high.saturating_sub(low) + 1)
    }

    /// True with a probability of 1 in `n`.
    fn one_in(&mut self, n: u64) -> bool {
        self.0.below(n) == 0
    }

    /// One of several; `None` only if there are none.
    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.0.below(from.len() as u64) as usize)
    }

    /// One of several, of which there is at least one.
    fn choose<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        from[self.0.below(N as u64) as usize]
    }

    /// A length between 1 us and `most_ns`, each order of magnitude equally likely, often of whole
    /// us or ms.
    fn time_ns(&mut self, most_ns: u64) -> u64 {
        let magnitude = self.range(10, u64::from(most_ns.max(1024).ilog2()));
        let ns = self.range(1 << magnitude, (2 << magnitude) - 1).clamp(1_000, most_ns.max(1_000));
        // Round lengths make events coincide, which finds bugs.
        match self.0.below(3) {
            0 => ns,
            1 => ns.next_multiple_of(1_000).min(most_ns),
            _ => ns.next_multiple_of(1_000_000).min(most_ns),
        }
        .max(1)
    }

    /// A length between these, both included, ns.
    fn between(&mut self, low_ns: u64, high_ns: u64) -> Duration {
        Duration::from_nanos(self.range(low_ns, high_ns))
    }

    /// As `time_ns`, from 1 us to `most_ns`.
    fn time(&mut self, most_ns: u64) -> Duration {
        Duration::from_nanos(self.time_ns(most_ns))
    }

    /// A length of time that is fixed in half of the cases, else drawn anew each time from a random
    /// distribution.
    fn length(&mut self, most_ns: u64) -> Value {
        let ns = self.time_ns(most_ns);
        match self.0.below(8) {
            0 => Distribution::Uniform { low_ns: ns / self.range(1, 4), high_ns: ns }.into(),
            1 => Distribution::Exponential { mean_ns: ns }.into(),
            2 => {
                let sigma = self.range(0, 15) as f64 / 10.0;
                Distribution::LogNormal { median_ns: ns, sigma }.into()
            }
            3 => {
                let values_ns: Vec<u64> =
                    (0..self.range(1, 4)).map(|_| self.time_ns(most_ns)).collect();
                let mut counted = 0;
                let mut count = |_: &u64| {
                    counted += self.range(1, 5);
                    counted
                };
                let cumulative = values_ns.iter().map(&mut count).collect();
                Distribution::Empirical { values_ns, cumulative }.into()
            }
            _ => Duration::from_nanos(ns).into(),
        }
    }

    /// A set of at least one of the CPUs below `cpus`.
    fn cpu_set(&mut self, cpus: u16) -> CpuSet {
        let mut set: Vec<u16> = (0..cpus).filter(|_| self.one_in(2)).collect();
        if set.is_empty() {
            set.push(self.range(0, u64::from(cpus) - 1) as u16);
        }
        CpuSet(set)
    }

    /// A nice value from -20 to 19.
    fn nice(&mut self) -> i8 {
        self.range(0, 39) as i8 - 20
    }

    /// A class other than kernel thread; half of them fair.
    fn class(&mut self) -> Class {
        self.choose([Class::Fair, Class::Fair, Class::Idle, Class::Rt])
    }
}

/// Up to four locks of any kind: names and kinds.
fn draw_locks(dice: &mut Dice) -> Vec<(String, LockKind)> {
    let kinds =
        [LockKind::Mutex, LockKind::Rwsem, LockKind::PercpuRwsem, LockKind::Rwlock, LockKind::Spin];
    (0..dice.range(0, 4)).map(|ix| (format!("lock{ix}"), dice.choose(kinds))).collect()
}

/// Up to three channels: names and capacities, `u64::MAX` without a bound.
fn draw_channels(dice: &mut Dice) -> Vec<(String, u64)> {
    let capacity = |dice: &mut Dice| if dice.one_in(2) { u64::MAX } else { dice.range(1, 8) };
    (0..dice.range(0, 3)).map(|ix| (format!("channel{ix}"), capacity(dice))).collect()
}

/// A machine with so many CPUs. Softirqs, which take the locks, are drawn only for `PREEMPT_RT`.
fn draw_machine(dice: &mut Dice, cpus: u16, locks: &[(String, LockKind)]) -> Table {
    let maybe = |dice: &mut Dice| !dice.one_in(3);
    let mut machine = table("cpus", cpus)
        .with("llc", dice.range(0, cpus.into()))
        .with("hz", dice.choose(crate::bounds::HZ))
        .with("tick_skew", dice.one_in(3))
        .with("costs", dice.one_in(3));
    let mut is_rt = false;
    if maybe(dice) {
        let preempts = [
            Preempt::None,
            Preempt::Voluntary,
            Preempt::Lazy,
            Preempt::Full,
            Preempt::Rt,
            Preempt::RtLazy,
        ];
        let preempt = dice.choose(preempts);
        is_rt = preempt.is_rt();
        machine = machine.with("preempt", preempt);
    }
    machine = machine.with_some("hrtick", maybe(dice).then(|| dice.one_in(2)));
    machine = machine.with_some("timer_phase", maybe(dice).then(|| dice.between(0, 100_000_000)));
    if dice.one_in(3) {
        let slice_ms = dice.choose([1, 3, 10, 20]);
        machine = machine.with("slice", Duration::from_millis(slice_ms));
    }
    machine =
        machine.with_some("base_slice", dice.one_in(3).then(|| dice.between(100_000, 10_000_000)));
    machine = machine.with_some("ipi", dice.one_in(3).then(|| dice.time(10_000)));
    machine = machine.with_some("nohz_full", dice.one_in(4).then(|| dice.cpu_set(cpus)));
    let mut softirqs = Vec::new();
    for (name, kind) in locks.iter().filter(|_| is_rt) {
        let mode = match kind {
            LockKind::Mutex | LockKind::Spin => LockMode::Write,
            _ => dice.choose([LockMode::Read, LockMode::Write]),
        };
        if dice.one_in(2) {
            let every = dice.between(1_000_000, 20_000_000);
            let hold = dice.between(1_000, 50_000);
            let cpu = dice.range(0, u64::from(cpus) - 1);
            let softirq = table("cpu", cpu).with("every", every).with("hold", hold);
            softirqs.push(softirq.with("lock", name).with("mode", mode));
        }
    }
    machine.with("softirq", softirqs)
}

/// Trees of groups. In a v1 tree no group has more than its ancestors.
fn draw_groups(dice: &mut Dice, bounds: &Bounds, cpus: u16) -> Vec<GroupPlan> {
    let mut groups: Vec<GroupPlan> = Vec::new();
    let mut depths: Vec<u64> = Vec::new();
    for ix in 0..dice.range(0, bounds.groups) {
        let above = dice.range(0, groups.len() as u64) as usize;
        let parent = groups.get(above).filter(|_| depths[above] < bounds.depth).cloned();
        let v1 = parent.as_ref().map_or_else(|| dice.one_in(4), |parent| parent.v1);
        let path = parent.as_ref().map_or("", |parent| &parent.path);
        let mut group = GroupPlan { v1, ..GroupPlan::new(format!("{path}/g{ix}")) };
        // In a v1 tree the nearest limit above is a bound; `max` inherits it.
        let above_us = nearest_limit(&groups, path).filter(|_| v1);
        group.limit = match above_us {
            _ if dice.one_in(3) => group.limit,
            Some((quota_us, period_us)) => limit(dice.range(1_000, quota_us), period_us, 0),
            None => draw_limit(dice, cpus),
        };
        if dice.one_in(3) {
            group.weight = dice.range(1, 10_000) as u32;
        }
        depths.push(if parent.is_some() { depths[above] + 1 } else { 1 });
        groups.push(group);
    }
    groups
}

/// Quota and period, us, of the nearest limited group at or above `path`.
fn nearest_limit(groups: &[GroupPlan], path: &str) -> Option<(u64, u64)> {
    let mut path = path;
    while !path.is_empty() {
        let limit = groups.iter().find(|group| group.path == path)?.limit;
        if let Some(quota_ns) = limit.quota_ns() {
            return Some((quota_ns / 1000, limit.period_ns() / 1000));
        }
        path = &path[..path.rfind('/')?];
    }
    None
}

/// A limit with a quota from 1 ms to 1.25 times the CPUs, a period from 1 to 250 ms, and sometimes
/// a burst.
fn draw_limit(dice: &mut Dice, cpus: u16) -> Limit {
    let period_us = dice.choose([1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 100_000, 250_000]);
    let most_us = period_us * u64::from(cpus);
    let quota_us = match dice.0.below(3) {
        0 => 1_000,
        1 => dice.range(1_000, (most_us / 4).max(1_000)),
        _ => dice.range(1_000, most_us + most_us / 4),
    };
    let burst_us = if dice.one_in(4) { dice.range(0, quota_us) } else { 0 };
    limit(quota_us, period_us, burst_us)
}

/// A limit of these microseconds; none if they are refused.
fn limit(quota_us: u64, period_us: u64, burst_us: u64) -> Limit {
    Limit::new(Some(quota_us * 1000), period_us * 1000, burst_us * 1000).unwrap_or(Limit::UNLIMITED)
}

/// A kind of task, before its program is drawn.
struct KindPlan {
    name: String,
    count: u32,
    class: Class,
}

/// Kinds that run from the start, within `bounds`, then up to two kinds that are only forked.
fn draw_kinds(dice: &mut Dice, bounds: &Bounds) -> Vec<KindPlan> {
    let started = dice.range(1, bounds.kinds);
    let mut spare = bounds.tasks.saturating_sub(started);
    let mut kinds = Vec::new();
    for ix in 0..started {
        let more = dice.range(0, spare.min(6));
        spare -= more;
        let class = if dice.one_in(8) { Class::Kthread } else { dice.class() };
        let count = 1 + more as u32;
        kinds.push(KindPlan { name: format!("task{ix}"), count, class });
    }
    for ix in 0..dice.range(0, 2) {
        kinds.push(KindPlan { name: format!("child{ix}"), count: 0, class: dice.class() });
    }
    kinds
}

/// Draws the rest of a kind of task: group, nice value, affinity, start, slice and program. Its
/// start is in the first half of the run.
fn draw_task(dice: &mut Dice, context: &Context<'_>, kind: &KindPlan, duration_ns: u64) -> Table {
    let mut task = table("name", &kind.name).with("count", kind.count).with("class", kind.class);
    if let Some(path) = dice.pick(context.paths) {
        task = task.with("group", path);
    }
    task = task.with_some("nice", dice.one_in(3).then(|| dice.nice()));
    task = match dice.0.below(4) {
        0 => task.with("cpus", "each"),
        1 => task.with("cpus", dice.cpu_set(context.cpus)),
        _ => task,
    };
    task = task.with_some("start", dice.one_in(3).then(|| dice.time(duration_ns / 2)));
    task = task.with_some("stagger", dice.one_in(3).then(|| dice.time(10_000_000)));
    task = task.with_some("slice", dice.one_in(4).then(|| dice.between(100_000, 20_000_000)));
    task.with("program", program::program(dice, context, kind))
}

/// A source of tokens for this channel: a few listed times, or every 0.2 to 20 ms on average.
fn draw_source(dice: &mut Dice, ix: usize, channel: &str, duration_ns: u64) -> Table {
    let source = table("name", format!("source{ix}")).with("channel", channel);
    if dice.one_in(4) {
        let mut times: Vec<Duration> =
            (0..dice.range(1, 5)).map(|_| dice.time(duration_ns)).collect();
        times.sort_unstable();
        return source.with("at", times);
    }
    // Frequent enough to matter; rare enough that a second does not hold millions of arrivals.
    let mut every = Value::from(dice.between(200_000, 20_000_000));
    if dice.one_in(2) {
        let mean_ns = dice.range(200_000, 20_000_000);
        every = Distribution::Exponential { mean_ns }.into();
    }
    let mut source = source.with("every", every);
    source = source.with_some("start", dice.one_in(3).then(|| dice.time(duration_ns)));
    source = source.with_some("count", dice.one_in(3).then(|| dice.range(0, 50)));
    source
}

/// A change from outside at any time of the run, sometimes repeated.
fn draw_change(
    dice: &mut Dice,
    context: &Context<'_>,
    groups: &[GroupPlan],
    kinds: &[KindPlan],
    duration_ns: u64,
) -> Table {
    let time = dice.between(0, duration_ns);
    let mut change = draw_act(dice, context, groups, kinds).with("time", time);
    if dice.one_in(4) {
        change = change.with("repeat", dice.between(1_000_000, 50_000_000));
        if dice.one_in(2) {
            change = change.with("until", time + dice.between(1_000_000, 200_000_000));
        }
    }
    change
}

/// A change that the checks accept: of a limit, a weight, the tasks of a kind, or a CPU other than
/// CPU 0.
fn draw_act(
    dice: &mut Dice,
    context: &Context<'_>,
    groups: &[GroupPlan],
    kinds: &[KindPlan],
) -> Table {
    let kind = dice.pick(kinds).map_or("task0", |kind| &kind.name);
    let path = dice.pick(context.paths).map_or("/", |path| path);
    let task = table("task", kind);
    match dice.0.below(10) {
        0..3 => match dice.pick(groups) {
            // Under v1 only limits that the kernel accepts after any earlier write.
            Some(group) if group.v1 => {
                let limit = if dice.one_in(2) { group.limit } else { Limit::UNLIMITED };
                write_limit(table("group", &group.path), limit)
            }
            Some(group) => {
                let is_lifted = dice.one_in(5);
                let limit =
                    if is_lifted { Limit::UNLIMITED } else { draw_limit(dice, context.cpus) };
                write_limit(table("group", &group.path), limit)
            }
            None => task.with("nice", dice.nice()),
        },
        3 => match dice.pick(groups) {
            Some(group) => table("group", &group.path).with("weight", dice.range(1, 10_000)),
            None => task.with("nice", dice.nice()),
        },
        4 => task.with("signal", dice.choose([Signal::Kill, Signal::Stop, Signal::Cont])),
        5 => task.with("move", path),
        6 => task.with("affinity", dice.cpu_set(context.cpus)),
        7 => match kinds.iter().find(|other| other.name == kind) {
            Some(other) if other.class != Class::Kthread => task.with("class", dice.class()),
            _ => task.with("nice", dice.nice()),
        },
        8 if context.cpus > 1 => {
            let cpu = dice.range(1, u64::from(context.cpus) - 1);
            table(if dice.one_in(2) { "offline" } else { "online" }, cpu)
        }
        _ => task.with("nice", dice.nice()),
    }
}

/// An expectation that parses; whether a run meets it does not matter.
fn draw_expectation(dice: &mut Dice, groups: &[GroupPlan]) -> Table {
    let metric = match dice.pick(groups) {
        Some(group) => format!("groups.{}.usage_usec", group.path),
        None => "events".to_owned(),
    };
    let min = dice.one_in(2).then(|| dice.range(0, 1000) as f64 / 7.0);
    let on = dice.choose(["", "6.18", "4.19..7.1, G3"]);
    let mut expectation = table("metric", metric).with("on", on).with("why", "Chance wants it so.");
    expectation = expectation.with_some("over", dice.one_in(3).then_some("G2a"));
    expectation = expectation.with_some("per", dice.one_in(3).then_some("simulated_ns"));
    match min {
        None => expectation.with("max", 1e12),
        Some(min) if dice.one_in(2) => expectation.with("min", min),
        Some(min) => expectation.with("min", min).with("max", 1e12),
    }
}
