//! Prints a workload as a scenario file, so that a failing case can be kept, read and edited.
//!
//! Parsing the text gives the same workload, except that distributions and sets of CPUs are
//! numbered in the order of their use, unused and repeated ones vanish, and a constant distribution
//! becomes a fixed length.

use crate::bounds::MAX_FILE_BYTES;
use crate::build::{Builder, Table, Value, table};
use crate::checked::Workload;
use crate::cpus::CpuSet;
use crate::error::Error;
use crate::model::{
    Action, Affinity, Arrivals, Class, Expectation, GroupSpec, Intervention, LockIx, LockKind,
    LockMode, MachineSpec, Op, Parts, Source, Span, Target, TaskSpec,
};
use crate::read::ranges::as_itself;
use std::time::Duration;

/// Prints `workload` as a scenario file. `file` is its name in the error.
///
/// # Errors
/// The text is larger than a scenario file may be ([`crate::bounds::MAX_FILE_BYTES`]).
pub fn to_file(workload: &Workload, file: &str) -> Result<String, Error> {
    let text = print(workload);
    if text.len() as u64 <= MAX_FILE_BYTES {
        return Ok(text);
    }
    let (mib, most) = (text.len().div_ceil(1 << 20), MAX_FILE_BYTES >> 20);
    let reason = format!(
        "the scenario has {mib} MiB, and at most {most} MiB can be read; use a shorter recording"
    );
    Err(Error::File { file: file.to_owned(), reason })
}

/// Prints `workload` as a scenario file of any size. [`to_file`] refuses one that is too large to
/// be read again.
pub fn print(workload: &Workload) -> String {
    tables(workload).to_string()
}

/// The tables of a scenario file that gives this workload, without keys that have their default.
pub(crate) fn tables(workload: &Workload) -> Builder {
    let parts = Names(workload);
    let mut scenario = Workload::builder(&workload.name);
    if !workload.shows.is_empty() {
        scenario = scenario.with("shows", &workload.shows);
    }
    scenario = scenario.with("duration", time(workload.duration_ns));
    scenario = scenario.part("machine", parts.machine(&workload.machine));
    scenario
        .parts("machine.softirq", &workload.machine.softirqs, |softirq| {
            table("cpu", softirq.cpu)
                .with("every", time(softirq.every_ns))
                .with("lock", parts.lock(softirq.lock))
                .with_some("mode", parts.mode(softirq.lock, softirq.mode))
                .with("hold", time(softirq.hold_ns))
        })
        .parts("group", workload.groups.get(1..).unwrap_or_default(), group)
        .parts("lock", &workload.locks, |lock| table("name", &lock.name).with("kind", lock.kind))
        .parts("channel", &workload.channels, |channel| {
            table("name", &channel.name).unless("capacity", channel.capacity, u64::MAX).unless(
                "oldest_first",
                channel.oldest_first,
                false,
            )
        })
        .parts("task", &workload.tasks, |task| parts.task(task))
        .parts("job", &workload.jobs, |job| {
            table("name", &job.name).with_some("program", parts.program(&job.program))
        })
        .parts("source", &workload.sources, |source| parts.source(source))
        .parts("at", &workload.interventions, |change| parts.change(change))
        .parts("expect", &workload.expectations, expectation)
}

fn time(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn group(group: &GroupSpec) -> Table {
    table("path", as_itself(&group.path))
        .unless("max", group.limit.to_string(), "max 100000".to_owned())
        .unless("burst", group.limit.burst_ns() / 1000, 0)
        .unless("weight", group.weight, 100)
        .with_some("hierarchy", group.v1.then_some("v1"))
}

/// An `[[expect]]`; equal bounds become `is`.
fn expectation(bound: &Expectation) -> Table {
    let metric = Table::default()
        .unless("on", bound.kernels.clone(), String::new())
        .with("metric", &bound.metric)
        .with_some("per", bound.per.as_ref())
        .with_some("over", bound.over.as_ref());
    let bounded = match (bound.min, bound.max) {
        // By bits, because 0.0 and -0.0 are equal but printed differently.
        (Some(min), Some(max)) if min.to_bits() == max.to_bits() => metric.with("is", min),
        (min, max) => metric.with_some("min", min).with_some("max", max),
    };
    bounded.unless("why", bound.why.clone(), String::new())
}

/// Makes tables of parts whose references are names.
#[derive(Clone, Copy)]
struct Names<'a>(&'a Parts);

impl<'a> Names<'a> {
    fn machine(self, machine: &MachineSpec) -> Table {
        let usual = MachineSpec::default();
        table("cpus", machine.cpus)
            .unless("llc", machine.llc_cpus, usual.llc_cpus)
            .unless("hz", machine.hz, usual.hz)
            .with_some("preempt", machine.preempt)
            .with_some("hrtick", machine.hrtick)
            .with_some("timer_phase", machine.timer_phase_ns.map(time))
            .unless("tick_skew", machine.tick_skew, usual.tick_skew)
            .unless("slice", time(machine.bandwidth_slice_ns), time(usual.bandwidth_slice_ns))
            .with_some("base_slice", machine.base_slice_ns.map(time))
            .with_some("nohz_full", machine.nohz_full.map(|cpus| self.cpus(cpus)))
            .unless("costs", machine.cost_timing, usual.cost_timing)
            .unless("ipi", time(machine.ipi_ns), time(usual.ipi_ns))
    }

    fn task(self, task: &TaskSpec) -> Table {
        let named = table("name", as_itself(&task.name))
            .with_some("label", task.label.as_ref())
            .unless("count", task.count, 1)
            .unless("group", as_itself(self.group(task.group)), "/".to_owned())
            .unless("nice", task.nice, 0)
            .unless("class", task.class, Class::Fair);
        let placed = match task.cpus {
            Affinity::All => named,
            Affinity::Each => named.with("cpus", "each"),
            Affinity::Set(cpus) => named.with("cpus", self.cpus(cpus)),
        };
        placed
            .unless("start", time(task.start_ns), Duration::ZERO)
            .unless("stagger", time(task.stagger_ns), Duration::ZERO)
            .with_some("slice", task.slice_ns.map(time))
            .with_some("program", self.program(&task.program))
    }

    fn source(self, source: &Source) -> Table {
        let sent = table("name", &source.name).with("channel", self.channel(source.channel));
        let sent = match &source.arrivals {
            Arrivals::Between(span) => sent.with("every", self.span(*span)),
            Arrivals::At(times_ns) => {
                sent.with("at", times_ns.iter().map(|&ns| time(ns)).collect::<Vec<_>>())
            }
        };
        let jobs: Vec<&str> = source.jobs.iter().map(|&job| self.job(job)).collect();
        sent.unless("start", time(source.start_ns), Duration::ZERO)
            .unless("count", source.count, u64::MAX)
            .unless("jobs", jobs, Vec::new())
            .unless("lossy", source.lossy, false)
    }

    fn change(self, change: &Intervention) -> Table {
        let timed = table("time", time(change.at_ns))
            .with_some("repeat", change.every_ns.map(time))
            .unless("until", time(change.until_ns), time(u64::MAX));
        let of_group = |group| timed.clone().with("group", self.group(group));
        let of_task = |kind| timed.clone().with("task", self.kind(kind));
        match change.action {
            Action::WriteLimit { group, limit } => {
                let limited = of_group(group).with("max", limit.to_string());
                limited.with("burst", limit.burst_ns() / 1000)
            }
            Action::WriteWeight { group, weight } => of_group(group).with("weight", weight),
            Action::Signal { kind, signal } => of_task(kind).with("signal", signal),
            Action::Move { kind, group } => of_task(kind).with("move", self.group(group)),
            Action::SetAffinity { kind, cpus } => of_task(kind).with("affinity", self.cpus(cpus)),
            Action::SetNice { kind, nice } => of_task(kind).with("nice", nice),
            Action::SetClass { kind, class } => of_task(kind).with("class", class),
            Action::CpuOffline { cpu } => timed.with("offline", cpu),
            Action::CpuOnline { cpu } => timed.with("online", cpu),
        }
    }

    /// The instructions of a program, loops and system calls with those inside of them; `None` for
    /// an empty one.
    fn program(self, program: &[Op]) -> Option<Vec<Value>> {
        let mut steps = Vec::new();
        let mut open = Vec::new();
        for op in program {
            let begun = match *op {
                Op::EnterKernel => Some((Table::default(), "syscall")),
                Op::LoopStart { times: u64::MAX, .. } => Some((Table::default(), "forever")),
                Op::LoopStart { times, .. } => Some((table("loop", times), "do")),
                Op::ExitKernel | Op::LoopEnd { .. } => None,
                _ => {
                    steps.push(Value::Table(self.step(*op)));
                    continue;
                }
            };
            if let Some(begun) = begun {
                open.push((begun, std::mem::take(&mut steps)));
            } else if let Some(((head, key), before)) = open.pop() {
                let body = std::mem::replace(&mut steps, before);
                steps.push(Value::Table(head.with(key, body)));
            }
        }
        Some(steps).filter(|steps| !steps.is_empty())
    }

    /// One instruction, without those inside of it.
    fn step(self, op: Op) -> Table {
        let aimed = |change: Table, who: Target| match who {
            Target::Myself => change,
            Target::Kind(kind) => change.with("of", self.kind(kind)),
        };
        match op {
            Op::User(span) => table("user", self.span(span)),
            Op::Kernel(span) => table("kernel", self.span(span)),
            Op::IrqOff(span) => table("irqoff", self.span(span)),
            Op::Sleep(span) => table("sleep", self.span(span)),
            Op::Every { period_ns } => table("every", time(period_ns)),
            Op::Lock { lock, mode } => {
                table("lock", self.lock(lock)).with_some("mode", self.mode(lock, mode))
            }
            Op::Unlock { lock } => table("unlock", self.lock(lock)),
            Op::Send { channel, n } => table("send", self.channel(channel)).unless("n", n, 1),
            Op::Recv { channel, n } => table("recv", self.channel(channel)).unless("n", n, 1),
            Op::Serve { channel } => table("serve", self.channel(channel)),
            Op::Post { channel, job } => {
                table("post", self.job(job)).with("to", self.channel(channel))
            }
            Op::After { delay, channel, job, keep } => {
                let after = table("after", self.span(delay)).with("post", self.job(job));
                after.with("to", self.channel(channel)).unless("keep", keep, false)
            }
            Op::Fork { kind } => table("fork", self.kind(kind)),
            Op::WaitChildren => table("wait", "children"),
            Op::Exit => table("exit", true),
            Op::Yield => table("yield", true),
            Op::Begin => table("begin", true),
            Op::Done => table("done", true),
            Op::Move { who: Target::Myself, group } => {
                table("move", "self").with("to", self.group(group))
            }
            Op::Move { who: Target::Kind(kind), group } => {
                table("move", self.kind(kind)).with("to", self.group(group))
            }
            Op::SetAffinity { who, cpus } => aimed(table("affinity", self.cpus(cpus)), who),
            Op::SetNice { who, nice } => aimed(table("nice", nice), who),
            Op::SetClass { who, class } => aimed(table("class", class), who),
            // `program` makes one table of both ends.
            Op::EnterKernel | Op::ExitKernel | Op::LoopStart { .. } | Op::LoopEnd { .. } => {
                Table::default()
            }
        }
    }

    /// A length of time, or a table that names its distribution.
    fn span(self, span: Span) -> Value {
        match span {
            Span::Fixed(ns) => time(ns).into(),
            Span::Drawn(ix) => (&self.0.distributions[ix as usize]).into(),
        }
    }

    fn cpus(self, ix: u32) -> CpuSet {
        self.0.cpu_sets[ix as usize].clone()
    }

    fn group(self, ix: u32) -> &'a str {
        &self.0.groups[ix as usize].path
    }

    fn kind(self, ix: u32) -> &'a str {
        &self.0.tasks[ix as usize].name
    }

    fn job(self, ix: u32) -> &'a str {
        &self.0.jobs[ix as usize].name
    }

    fn channel(self, ix: u32) -> &'a str {
        &self.0.channels[ix as usize].name
    }

    fn lock(self, ix: LockIx) -> &'a str {
        &self.0.locks[ix as usize].name
    }

    /// `None` for kinds of lock that have only one mode.
    fn mode(self, lock: LockIx, mode: LockMode) -> Option<LockMode> {
        let has_one = matches!(self.0.locks[lock as usize].kind, LockKind::Mutex | LockKind::Spin);
        (!has_one).then_some(mode)
    }
}
