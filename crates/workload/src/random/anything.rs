//! Workloads with extreme values of every type and range.
//!
//! [`workload`](super::workload) makes plausible workloads. This module makes implausible ones that
//! the checks accept: lengths of a nanosecond and of a day, a quota of years, 64 nested groups,
//! endless loops in which no time passes in a task. Programs may deadlock.

use crate::bounds::{
    BANDWIDTH_SLICE_NS, HZ, MAX_DURATION_NS, MAX_TOKENS, MAX_VALUE_COUNT, NS_PER_MS, NS_PER_S,
    NS_PER_US, SLICE_NS,
};
use crate::cpus::CpuSet;
use crate::model::{
    Action, Affinity, Arrivals, ChannelSpec, Class, Distribution, Expectation, GroupSpec,
    Intervention, JobSpec, LockKind, LockMode, LockSpec, MachineSpec, Op, Parts, Preempt, Program,
    Signal, SoftirqSpec, Source, Span, Target, TaskSpec,
};
use cpumax_limit::{Limit, MAX_PERIOD_NS};
use std::ops::RangeInclusive;

/// Makes extreme parts from these choices, at most one of each kind of part when they run out:
/// every further choice is the simplest. Most results pass the checks.
pub fn parts(choices: &[u64]) -> Parts {
    let mut maker = Maker {
        choices: Choices(choices.iter().copied()),
        parts: Parts::empty("anything", "Anything.", NS_PER_S),
    };
    maker.add_all();
    maker.parts
}

struct Choices<I>(I);

impl<I: Iterator<Item = u64>> Choices<I> {
    /// Takes the next choice; 0 when they have run out.
    fn next(&mut self) -> u64 {
        self.0.next().unwrap_or(0)
    }

    /// Takes a number below `n`, or 0 if `n` is 0.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Takes a choice that is true once in `n` times; false when choices have run out.
    fn one_in(&mut self, n: u64) -> bool {
        self.next() % n == n - 1
    }

    /// Takes one of several, of which there is at least one; the first when choices have run out.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Takes a number within a range. Its ends, their neighbours and usual values are more likely
    /// than others.
    fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = (*range.start(), *range.end());
        let usual = [NS_PER_MS, 3 * NS_PER_MS, 100 * NS_PER_MS, 999, 100, 3];
        let value = match self.below(16) {
            0 => usual[0],
            1 => low,
            2 => high,
            3 => low.saturating_add(1),
            4 => high.saturating_sub(1),
            n @ 5..=10 => usual[n - 5],
            // A number of random length in bits.
            _ => {
                let bits = self.below(64);
                low.saturating_add(self.next() >> bits)
            }
        };
        value.clamp(low, high)
    }

    /// Makes the value in one case of three.
    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.one_in(3).then(|| make(self))
    }
}

struct Maker<I> {
    choices: Choices<I>,
    parts: Parts,
}

#[derive(Clone)]
struct Place {
    /// Kind of task that executes the program; `None` for a job.
    kind: Option<usize>,
    kthread: bool,
    in_syscall: bool,
    held: Vec<u32>,
    spins: bool,
    depth: usize,
}

impl<I: Iterator<Item = u64>> Maker<I> {
    /// Chooses the length, and adds all parts, expectations included, in an order that lets them
    /// refer to each other.
    fn add_all(&mut self) {
        self.parts.duration_ns = match self.choices.below(3) {
            0 => NS_PER_S,
            _ => self.choices.within(1..=MAX_DURATION_NS),
        };
        self.add_tables();
        self.choose_machine();
        self.add_groups();
        let kinds = 1 + self.choices.below(5);
        for kind in 0..kinds {
            let class = self.choices.pick(&[
                Class::Fair,
                Class::Fair,
                Class::Idle,
                Class::Rt,
                Class::Kthread,
            ]);
            let task = self.task(kind, class);
            self.parts.tasks.push(task);
        }
        for job in 0..self.choices.below(3) {
            self.parts
                .jobs
                .push(JobSpec { name: format!("job {job}"), program: Program::default() });
        }
        for kind in 0..kinds {
            let kthread = self.parts.tasks[kind].class == Class::Kthread;
            self.parts.tasks[kind].program = self.program(Some(kind), kthread).into();
        }
        for job in 0..self.parts.jobs.len() {
            self.parts.jobs[job].program = self.program(None, false).into();
        }
        if !self.parts.channels.is_empty() {
            for source in 0..self.choices.below(3) {
                let source = self.source(source);
                self.parts.sources.push(source);
            }
        }
        for _ in 0..self.choices.below(6) {
            let intervention = self.intervention();
            self.parts.interventions.push(intervention);
        }
        self.parts.interventions.sort_by_key(|intervention| intervention.at_ns);
        if self.choices.one_in(8) {
            self.parts.expectations.push(Expectation {
                kernels: "6.12..".to_owned(),
                metric: "events".to_owned(),
                over: None,
                per: None,
                min: Some(f64::MIN_POSITIVE),
                max: Some(f64::MAX),
                why: "\"\"\"\n'''".to_owned(),
            });
        }
    }

    /// A name from `what` and `number`, half of them with characters that readers and writers must
    /// escape.
    fn name(&mut self, what: &str, number: usize) -> String {
        match self.choices.below(4) {
            0 | 1 => format!("{what}{number}"),
            2 => format!("{what}{{{number}..9}}"),
            _ => format!("{what} \"{number}\" \\n.é"),
        }
    }

    /// Chooses the number of CPUs; adds locks, channels, distributions and sets of CPUs.
    fn add_tables(&mut self) {
        use LockKind::{Mutex, PercpuRwsem, Rwlock, Rwsem, Spin};
        let cpus = match self.choices.below(64) {
            63 => 4096,
            n => [1, 1, 2, 2, 3, 4, 8, 16, 65, 200][n % 10],
        };
        self.parts.machine.cpus = cpus;
        for lock in 0..self.choices.below(4) {
            let kind = self.choices.pick(&[Mutex, Rwsem, PercpuRwsem, Rwlock, Spin]);
            let name = self.name("l", lock);
            self.parts.locks.push(LockSpec { name, kind });
        }
        for channel in 0..self.choices.below(4) {
            let capacity = self.choices.pick(&[u64::MAX, 1, 2, i64::MAX as u64]);
            let name = self.name("c", channel);
            let oldest_first = self.choices.one_in(3);
            self.parts.channels.push(ChannelSpec { name, capacity, oldest_first });
        }
        for _ in 0..self.choices.below(4) {
            let distribution = self.distribution();
            self.parts.distributions.push(distribution);
        }
        for _ in 0..=self.choices.below(2) {
            let wanted = self.choices.next();
            let mut set: Vec<u16> =
                (0..cpus).filter(|cpu| wanted >> (cpu % 64) & 1 == 1).take(300).collect();
            if set.is_empty() {
                set.push(cpus - 1);
            }
            self.parts.cpu_sets.push(CpuSet(set));
        }
    }

    /// A distribution of any kind, with lengths up to a day.
    fn distribution(&mut self) -> Distribution {
        let ns = |maker: &mut Self| maker.choices.within(0..=MAX_DURATION_NS);
        match self.choices.below(5) {
            0 => Distribution::Exponential { mean_ns: ns(self) },
            1 => Distribution::Constant { ns: ns(self) },
            2 => {
                let (one, other) = (ns(self), ns(self));
                Distribution::Uniform { low_ns: one.min(other), high_ns: one.max(other) }
            }
            3 => {
                let sigma = self.choices.pick(&[0.5, 0.0, 10.0, f64::MIN_POSITIVE]);
                Distribution::LogNormal { median_ns: ns(self), sigma }
            }
            _ => {
                let values = 1 + self.choices.below(4);
                let values_ns: Vec<u64> = (0..values).map(|_| ns(self)).collect();
                let most = self.choices.pick(&[1, 7, MAX_VALUE_COUNT]);
                let cumulative = (1..=values as u64).map(|n| n * most).collect();
                Distribution::Empirical { values_ns, cumulative }
            }
        }
    }

    /// Chooses the settings of the machine, and on real-time kernels its softirqs; the number of
    /// CPUs stays.
    fn choose_machine(&mut self) {
        use Preempt::{Full, Lazy, None as Never, Rt, RtLazy, Voluntary};
        let cpus = self.parts.machine.cpus;
        let choices = &mut self.choices;
        let preempt = choices.pick(&[
            None,
            None,
            Some(Never),
            Some(Voluntary),
            Some(Lazy),
            Some(Full),
            Some(Rt),
            Some(RtLazy),
        ]);
        self.parts.machine = MachineSpec {
            cpus,
            llc_cpus: choices.below(usize::from(cpus) + 1) as u16,
            hz: choices.pick(&HZ),
            preempt,
            hrtick: choices.pick(&[None, Some(true), Some(false)]),
            timer_phase_ns: choices.maybe(|choices| choices.within(0..=MAX_PERIOD_NS)),
            tick_skew: choices.one_in(2),
            bandwidth_slice_ns: choices.within(BANDWIDTH_SLICE_NS),
            base_slice_ns: choices.maybe(|choices| choices.within(SLICE_NS)),
            nohz_full: choices.maybe(|_| 0),
            cost_timing: choices.one_in(2),
            ipi_ns: choices.within(0..=NS_PER_S),
            softirqs: Vec::new(),
        };
        let is_rt = preempt.is_some_and(Preempt::is_rt) && !self.parts.locks.is_empty();
        for _ in 0..if is_rt { self.choices.below(3) } else { 0 } {
            let (lock, mode) = self.lock();
            let every_ns = self.choices.within(NS_PER_US..=MAX_DURATION_NS);
            let hold_ns = self.choices.within(0..=every_ns);
            let cpu = self.choices.below(usize::from(cpus)) as u16;
            self.parts.machine.softirqs.push(SoftirqSpec { cpu, every_ns, lock, mode, hold_ns });
        }
    }

    /// A lock (index), and a mode in which it can be taken.
    fn lock(&mut self) -> (u32, LockMode) {
        let lock = self.choices.below(self.parts.locks.len());
        let kind = self.parts.locks[lock].kind;
        let reads = !matches!(kind, LockKind::Mutex | LockKind::Spin) && self.choices.one_in(2);
        (lock as u32, if reads { LockMode::Read } else { LockMode::Write })
    }

    /// Adds the root and up to five groups below it, or a chain of 63.
    fn add_groups(&mut self) {
        self.parts.groups.push(GroupSpec {
            path: "/".to_owned(),
            parent: None,
            limit: Limit::UNLIMITED,
            weight: 100,
            v1: false,
        });
        let groups = match self.choices.below(16) {
            15 => 63,
            n => n % 6,
        };
        for number in 1..=groups {
            let parent = if groups > 8 { number - 1 } else { self.choices.below(number) };
            let above = self.parts.groups[parent].path.clone();
            let v1 =
                if parent == 0 { self.choices.one_in(6) } else { self.parts.groups[parent].v1 };
            let name = self.name("g", number);
            let group = GroupSpec {
                path: format!("{}/{name}", if parent == 0 { "" } else { &above }),
                parent: Some(parent as u32),
                limit: self.limit(),
                weight: self.choices.within(1..=10_000) as u32,
                v1,
            };
            self.parts.groups.push(group);
        }
    }

    /// A limit of any quota from 1 ms, period and burst, in whole us; none where these are refused.
    fn limit(&mut self) -> Limit {
        let whole_us = |ns: u64| ns / NS_PER_US * NS_PER_US;
        let quota_ns = match self.choices.below(4) {
            0 => None,
            _ => Some(whole_us(self.choices.within(NS_PER_MS..=u64::MAX / 8))),
        };
        let period_ns = whole_us(self.choices.within(NS_PER_MS..=MAX_PERIOD_NS));
        let most_ns = quota_ns.unwrap_or(u64::MAX);
        let burst_ns = match self.choices.below(3) {
            0 => whole_us(self.choices.within(0..=most_ns)),
            _ => 0,
        };
        Limit::new(quota_ns, period_ns, burst_ns).unwrap_or(Limit::UNLIMITED)
    }

    /// One of the sets of CPUs (index).
    fn cpus(&mut self) -> u32 {
        self.choices.below(self.parts.cpu_sets.len()) as u32
    }

    /// One of the groups (index), the root included.
    fn group(&mut self) -> u32 {
        self.choices.below(self.parts.groups.len()) as u32
    }

    /// A kind of task without a program; the first one runs from the start.
    fn task(&mut self, kind: usize, class: Class) -> TaskSpec {
        let count = match self.choices.below(40) {
            39 => 1000,
            n => [1, 2, 0, 3, 9][n % 5],
        };
        let cpus = match self.choices.below(3) {
            0 => Affinity::All,
            1 => Affinity::Each,
            _ => Affinity::Set(self.cpus()),
        };
        let time = |choices: &mut Choices<I>| match choices.below(3) {
            0 => 0,
            _ => choices.within(0..=MAX_DURATION_NS),
        };
        TaskSpec {
            name: self.name("t", kind),
            label: self.choices.maybe(|_| "label".to_owned()),
            count: if kind == 0 { count.max(1) } else { count },
            group: self.group(),
            class,
            nice: self.choices.pick(&[0, 0, -20, 19, 5]),
            cpus,
            start_ns: if kind == 0 { 0 } else { time(&mut self.choices) },
            stagger_ns: time(&mut self.choices),
            slice_ns: self.choices.maybe(|choices| choices.within(SLICE_NS)),
            program: Program::default(),
        }
    }

    /// A program for this kind of task, or a job if `kind` is `None`.
    fn program(&mut self, kind: Option<usize>, kthread: bool) -> Vec<Op> {
        let place =
            Place { kind, kthread, in_syscall: false, held: Vec::new(), spins: false, depth: 0 };
        let mut program = Vec::new();
        self.add_block(&place, &mut program);
        program
    }

    /// A length of any size up to a day, or one of the distributions.
    fn span(&mut self) -> Span {
        let drawn = !self.parts.distributions.is_empty() && self.choices.one_in(4);
        if drawn {
            Span::Drawn(self.choices.below(self.parts.distributions.len()) as u32)
        } else {
            Span::Fixed(self.choices.within(0..=MAX_DURATION_NS))
        }
    }

    /// Adds up to five instructions that the place allows, some of them with others inside.
    fn add_block(&mut self, place: &Place, program: &mut Vec<Op>) {
        for _ in 0..=self.choices.below(5) {
            self.add_instruction(place, program);
        }
    }

    /// Work of 1 ns or more, in user or kernel mode as the place allows.
    fn work(&mut self, place: &Place) -> Op {
        let ns = Span::Fixed(self.choices.within(1..=MAX_DURATION_NS));
        if place.in_syscall || place.kthread || place.spins { Op::Kernel(ns) } else { Op::User(ns) }
    }

    /// Adds an instruction that the place allows, with others inside if it is a loop or the like;
    /// sometimes none.
    fn add_instruction(&mut self, place: &Place, program: &mut Vec<Op>) {
        let in_kernel = place.in_syscall || place.kthread;
        match self.choices.below(24) {
            0..=2 => program.push(self.work(place)),
            3 => program.push(Op::Kernel(self.span())),
            4 => program.push(Op::IrqOff(self.span())),
            5 if !in_kernel && !place.spins => program.push(Op::User(self.span())),
            6 => program.push(Op::Begin),
            7 => program.push(Op::Done),
            8 if place.kind.is_some() => program.push(Op::SetNice {
                who: self.target(place),
                nice: self.choices.pick(&[0, -20, 19]),
            }),
            9..=12 if place.depth < 6 => self.add_nested(place, program),
            13 if !self.parts.channels.is_empty() => self.add_send(place, program),
            14 if !self.parts.channels.is_empty() && !self.parts.jobs.is_empty() => {
                let (channel, job) = self.posts();
                if self.choices.one_in(2) {
                    let delay = Span::Fixed(self.choices.within(1..=MAX_DURATION_NS));
                    let keep = self.choices.one_in(2);
                    program.push(Op::After { delay, channel, job, keep });
                } else if !place.spins || self.is_unbounded(channel) {
                    program.push(Op::Post { channel, job });
                }
            }
            _ if place.spins => {}
            15 => program.push(Op::Sleep(self.span())),
            16 if !self.parts.channels.is_empty() => {
                let channel = self.choices.below(self.parts.channels.len()) as u32;
                let n = self.tokens(channel);
                program.push(Op::Recv { channel, n });
            }
            17 if place.kind.is_some() && place.held.is_empty() && !place.in_syscall => {
                if !self.parts.channels.is_empty() {
                    let channel = self.choices.below(self.parts.channels.len()) as u32;
                    program.push(Op::Serve { channel });
                }
            }
            _ => self.add_task_only(place, program),
        }
    }

    /// Adds an instruction that no job may contain, if the program is a task's and the place allows
    /// it.
    fn add_task_only(&mut self, place: &Place, program: &mut Vec<Op>) {
        let Some(kind) = place.kind else { return };
        let kinds = self.parts.tasks.len();
        program.push(match self.choices.below(9) {
            0 => Op::Yield,
            1 => Op::Every { period_ns: self.choices.within(NS_PER_US..=MAX_DURATION_NS) },
            2 if kind + 1 < kinds => {
                Op::Fork { kind: (kind + 1 + self.choices.below(kinds - kind - 1)) as u32 }
            }
            3 => Op::WaitChildren,
            4 if place.held.is_empty() && !place.in_syscall => Op::Exit,
            5 => Op::Move { who: self.target(place), group: self.group() },
            6 => Op::SetAffinity { who: self.target(place), cpus: self.cpus() },
            7 => {
                let who = self.target(place);
                let of = if let Target::Kind(of) = who { of as usize } else { kind };
                if self.parts.tasks[of].class == Class::Kthread {
                    return;
                }
                Op::SetClass {
                    who,
                    class: self.choices.pick(&[Class::Fair, Class::Idle, Class::Rt]),
                }
            }
            _ => return,
        });
    }

    /// The task itself, if it is one, or a kind of task.
    fn target(&mut self, place: &Place) -> Target {
        if place.kind.is_some() && self.choices.one_in(2) {
            Target::Myself
        } else {
            Target::Kind(self.choices.below(self.parts.tasks.len()) as u32)
        }
    }

    /// Whether senders to the channel never wait.
    fn is_unbounded(&self, channel: u32) -> bool {
        self.parts.channels[channel as usize].capacity == u64::MAX
    }

    /// A number of tokens that the channel can hold.
    fn tokens(&mut self, channel: u32) -> u64 {
        let most = self.parts.channels[channel as usize].capacity.min(MAX_TOKENS);
        self.choices.pick(&[1, 1, most])
    }

    /// A channel and a job (indices) to post.
    fn posts(&mut self) -> (u32, u32) {
        let channel = self.choices.below(self.parts.channels.len()) as u32;
        (channel, self.choices.below(self.parts.jobs.len()) as u32)
    }

    /// Adds a send, unless it might wait under a spin lock.
    fn add_send(&mut self, place: &Place, program: &mut Vec<Op>) {
        let channel = self.choices.below(self.parts.channels.len()) as u32;
        if !place.spins || self.is_unbounded(channel) {
            let n = self.tokens(channel);
            program.push(Op::Send { channel, n });
        }
    }

    /// Adds a loop, a system call, or a section under a lock, with instructions inside; nothing if
    /// the place forbids it.
    fn add_nested(&mut self, place: &Place, program: &mut Vec<Op>) {
        let mut inside = Place { depth: place.depth + 1, ..place.clone() };
        match self.choices.below(3) {
            0 => {
                let start = program.len();
                let endless = if place.kind.is_some() { u64::MAX } else { i64::MAX as u64 };
                let times = self.choices.pick(&[endless, 2, 1000, i64::MAX as u64]);
                program.push(Op::LoopStart { times, end: 0 });
                program.push(self.work(place));
                self.add_block(&inside, program);
                let end = program.len() as u32;
                program[start] = Op::LoopStart { times, end };
                program.push(Op::LoopEnd { start: start as u32 });
            }
            1 if !place.in_syscall && !place.kthread && !place.spins => {
                inside.in_syscall = true;
                program.push(Op::EnterKernel);
                self.add_block(&inside, program);
                program.push(Op::ExitKernel);
            }
            _ if !self.parts.locks.is_empty() => {
                let (lock, mode) = self.lock();
                let is_spin = self.parts.locks[lock as usize].kind == LockKind::Spin;
                let in_order = place.held.last().is_none_or(|&last| last < lock);
                let can_spin = place.in_syscall || place.kthread;
                if !in_order || is_spin && !can_spin || place.spins && !is_spin {
                    return;
                }
                inside.held.push(lock);
                inside.spins |= is_spin;
                program.push(Op::Lock { lock, mode });
                self.add_block(&inside, program);
                program.push(Op::Unlock { lock });
            }
            _ => {}
        }
    }

    /// A source of any channel and jobs, at listed times or regularly.
    fn source(&mut self, number: usize) -> Source {
        let channel = self.choices.below(self.parts.channels.len()) as u32;
        let jobs = self.parts.jobs.len();
        let jobs = (0..self.choices.below(jobs + 1)).map(|job| job as u32).collect();
        let lossy = self.choices.one_in(3);
        let name = self.name("s", number);
        if self.choices.one_in(2) {
            let arrivals = 1 + self.choices.below(5);
            let mut at_ns: Vec<u64> =
                (0..arrivals).map(|_| self.choices.within(0..=MAX_DURATION_NS)).collect();
            at_ns.sort_unstable();
            let arrivals = Arrivals::At(at_ns);
            return Source { name, channel, arrivals, start_ns: 0, count: u64::MAX, jobs, lossy };
        }
        let between_ns = self.choices.within(NS_PER_US..=MAX_DURATION_NS);
        let start_ns = self.choices.pick(&[0, 1, MAX_DURATION_NS]);
        let count = self.choices.pick(&[u64::MAX, 0, 1, i64::MAX as u64]);
        let arrivals = Arrivals::Between(Span::Fixed(between_ns));
        Source { name, channel, arrivals, start_ns, count, jobs, lossy }
    }

    /// A change from outside at any time, sometimes repeated.
    fn intervention(&mut self) -> Intervention {
        let at_ns = match self.choices.below(2) {
            0 => self.choices.below(NS_PER_S as usize) as u64,
            _ => self.choices.within(0..=MAX_DURATION_NS),
        };
        let every_ns = self.choices.maybe(|choices| choices.within(NS_PER_US..=MAX_DURATION_NS));
        let until_ns = match every_ns {
            Some(_) => self.choices.within(at_ns + 1..=u64::MAX),
            None => u64::MAX,
        };
        Intervention { at_ns, every_ns, until_ns, action: self.action() }
    }

    /// A change of a group, a kind of task or a CPU that the checks accept.
    fn action(&mut self) -> Action {
        use Signal::{Cont, Kill, Stop};
        let kind = self.choices.below(self.parts.tasks.len()) as u32;
        let group = self.group();
        let cpu = self.choices.below(usize::from(self.parts.machine.cpus)) as u16;
        let is_kthread = self.parts.tasks[kind as usize].class == Class::Kthread;
        match self.choices.below(9) {
            0 if group > 0 => Action::WriteLimit { group, limit: self.limit() },
            1 if group > 0 => {
                Action::WriteWeight { group, weight: self.choices.within(1..=10_000) as u32 }
            }
            2 => Action::Move { kind, group },
            3 => Action::SetAffinity { kind, cpus: self.cpus() },
            4 => Action::SetNice { kind, nice: self.choices.pick(&[0, -20, 19]) },
            5 if !is_kthread => {
                let class = self.choices.pick(&[Class::Fair, Class::Idle, Class::Rt]);
                Action::SetClass { kind, class }
            }
            6 if cpu > 0 => Action::CpuOffline { cpu },
            7 => Action::CpuOnline { cpu },
            _ => Action::Signal { kind, signal: self.choices.pick(&[Stop, Cont, Kill]) },
        }
    }
}
