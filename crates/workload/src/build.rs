//! Workloads made in Rust: the language of scenario files, with the same checks.
//!
//! Parts refer to each other by name and may come in any order; [`Builder::build`] resolves the
//! names and checks the whole. The reader of files fills the same structures. The verbs of programs
//! are in [`crate::step`].

mod outside;
mod service;

use crate::checked::Workload;
use crate::error::{ByteRange, Error};
use crate::model::{Class, CpuSet, Distribution, LockKind, LockMode, MachineSpec, Preempt};
use crate::step::Step;
use cpumax_limit::Limit;
use std::time::Duration;

pub use outside::{Act, Change, Expect};
pub(crate) use service::Demand;
pub use service::Service;

/// Positions of a part and its values in the file; empty for parts made in Rust.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positions {
    pub whole: ByteRange,
    pub fields: Vec<(&'static str, ByteRange)>,
}

impl Positions {
    /// Position of the value of `field` in the file, or else of the whole part.
    pub fn of(&self, field: &str) -> ByteRange {
        self.fields.iter().find(|(name, _)| *name == field).map_or(self.whole, |(_, at)| *at)
    }
}

/// A length of time: fixed, or drawn anew each time.
#[derive(Debug, Clone, PartialEq)]
pub enum Length {
    /// Always the same.
    Fixed(Duration),
    /// Drawn from a distribution.
    Drawn(Distribution),
}

impl From<Duration> for Length {
    fn from(length: Duration) -> Length {
        Length::Fixed(length)
    }
}

impl From<Distribution> for Length {
    fn from(distribution: Distribution) -> Length {
        Length::Drawn(distribution)
    }
}

/// The length in ns; `u64::MAX` where it does not fit, which the checks refuse.
pub(crate) fn to_ns(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// A workload under construction.
///
/// ```
/// use cpumax_limit::Limit;
/// use cpumax_workload::{LockKind, Workload, build::Task, step::*};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let workload = Workload::builder("lock-holder")
///     .shows("A limited task keeps a lock that others wait for.")
///     .duration(Duration::from_secs(10))
///     .cpus(2)
///     .group("/limited", Limit::UNLIMITED.write_cpu_max("20000 100000")?)
///     .lock("inode", LockKind::Rwsem)
///     .task(Task::new("writer").group("/limited").program([forever([
///         user(ms(1)),
///         syscall([write_lock("inode"), kernel(ms(5)), unlock("inode")]),
///     ])]))
///     .build()?;
/// assert_eq!(workload.groups[1].path, "/limited");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) name: String,
    pub(crate) shows: String,
    pub(crate) duration_ns: u64,
    pub(crate) machine: Machine,
    pub(crate) groups: Vec<Group>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) sources: Vec<Source>,
    pub(crate) changes: Vec<Change>,
    pub(crate) expectations: Vec<Expect>,
    pub(crate) positions: Positions,
}

impl Workload {
    /// A builder of an empty workload: one CPU, no tasks, ten seconds.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder {
            name: name.into(),
            shows: String::new(),
            duration_ns: 10_000_000_000,
            machine: Machine::default(),
            groups: Vec::new(),
            locks: Vec::new(),
            channels: Vec::new(),
            tasks: Vec::new(),
            jobs: Vec::new(),
            sources: Vec::new(),
            changes: Vec::new(),
            expectations: Vec::new(),
            positions: Positions::default(),
        }
    }
}

impl Builder {
    /// Sets the sentence that says what the workload demonstrates, for listings.
    #[must_use]
    pub fn shows(mut self, shows: impl Into<String>) -> Builder {
        self.shows = shows.into();
        self
    }

    /// Sets the simulated time, up to one day; [`Builder::build`] refuses more.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Builder {
        self.duration_ns = to_ns(duration);
        self
    }

    /// Sets the number of CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u16) -> Builder {
        self.machine.spec.cpus = cpus;
        self
    }

    /// Replaces the machine.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Builder {
        self.machine = machine;
        self
    }

    /// Adds a group with this limit and the default weight. [`Builder::build`] adds missing parents
    /// without a limit.
    #[must_use]
    pub fn group(self, path: impl Into<String>, limit: Limit) -> Builder {
        self.with_group(Group::new(path).limit(limit))
    }

    /// Adds a group. [`Builder::build`] adds missing parents without a limit.
    #[must_use]
    pub fn with_group(mut self, group: Group) -> Builder {
        self.groups.push(group);
        self
    }

    /// Adds a lock.
    #[must_use]
    pub fn lock(mut self, name: impl Into<String>, kind: LockKind) -> Builder {
        self.locks.push(Lock { name: name.into(), kind, positions: Positions::default() });
        self
    }

    /// Adds a channel in which senders never wait.
    #[must_use]
    pub fn channel(self, name: impl Into<String>) -> Builder {
        self.bounded_channel(name, u64::MAX)
    }

    /// Adds a channel in which senders wait while it holds `capacity` tokens.
    #[must_use]
    pub fn bounded_channel(mut self, name: impl Into<String>, capacity: u64) -> Builder {
        self.channels.push(Channel::new(name.into(), capacity));
        self
    }

    /// Adds a kind of task with its instances.
    #[must_use]
    pub fn task(mut self, task: Task) -> Builder {
        self.tasks.push(task);
        self
    }

    /// Adds a job: work for the task that takes a token which carries it.
    #[must_use]
    pub fn job(
        mut self,
        name: impl Into<String>,
        program: impl IntoIterator<Item = Step>,
    ) -> Builder {
        let (name, program) = (name.into(), program.into_iter().collect());
        self.jobs.push(Job { name, program, positions: Positions::default() });
        self
    }

    /// Adds threads that answer requests, and the clients that send these, as tasks, channels, jobs
    /// and sources.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "as all other parts")]
    pub fn service(mut self, service: Service) -> Builder {
        service.add_to(&mut self);
        self
    }

    /// Adds an arrival process.
    #[must_use]
    pub fn source(mut self, source: Source) -> Builder {
        self.sources.push(source);
        self
    }

    /// Adds a change that is made from outside during the run.
    #[must_use]
    pub fn change(mut self, change: Change) -> Builder {
        self.changes.push(change);
        self
    }

    /// Adds a bound that results must meet; runs do not check it.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Builder {
        self.expectations.push(expect);
        self
    }

    /// Resolves all names and checks everything; the builder stays as it is.
    ///
    /// # Errors
    /// The first problem, with its part and what would be accepted.
    pub fn build(&self) -> Result<Workload, Error> {
        crate::resolve::resolve(self, None)
    }
}

/// The machine: [`MachineSpec`], but with CPUs and locks instead of references to them.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Its `nohz_full` and `softirqs` are ignored.
    pub(crate) spec: MachineSpec,
    pub(crate) nohz_full: Option<CpuSet>,
    pub(crate) softirqs: Vec<Softirq>,
    pub(crate) positions: Positions,
}

impl Machine {
    /// A machine like `spec`; methods below set `nohz_full` and `softirqs`.
    pub fn new(spec: MachineSpec) -> Machine {
        Machine { spec, ..Machine::default() }
    }

    /// Sets the preemption model.
    #[must_use]
    pub fn preempt(mut self, preempt: Preempt) -> Machine {
        self.spec.preempt = Some(preempt);
        self
    }

    /// Sets the CPUs that stop their tick while one task runs.
    #[must_use]
    pub fn nohz_full(mut self, cpus: CpuSet) -> Machine {
        self.nohz_full = Some(cpus);
        self
    }

    /// Adds regular work of the real-time kernel's timer thread on one CPU, under a lock.
    #[must_use]
    pub fn softirq(
        mut self,
        cpu: u16,
        every: Duration,
        lock: impl Into<String>,
        mode: LockMode,
        hold: Duration,
    ) -> Machine {
        self.softirqs.push(Softirq {
            cpu,
            every_ns: to_ns(every),
            lock: lock.into(),
            mode: Some(mode),
            hold_ns: to_ns(hold),
            positions: Positions::default(),
        });
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Softirq {
    pub cpu: u16,
    pub every_ns: u64,
    pub lock: String,
    pub mode: Option<LockMode>,
    pub hold_ns: u64,
    pub positions: Positions,
}

/// A group under construction.
#[derive(Debug, Clone)]
pub struct Group {
    pub(crate) path: String,
    pub(crate) limit: Limit,
    pub(crate) weight: u32,
    pub(crate) v1: Option<bool>,
    pub(crate) positions: Positions,
}

impl Group {
    /// An unlimited group of weight 100 at an absolute path such as `/a/b`.
    pub fn new(path: impl Into<String>) -> Group {
        Group {
            path: path.into(),
            limit: Limit::UNLIMITED,
            weight: 100,
            v1: None,
            positions: Positions::default(),
        }
    }

    /// Sets quota, period and burst.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Group {
        self.limit = limit;
        self
    }

    /// Sets the weight as in `cpu.weight`, 1 to 10000.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Group {
        self.weight = weight;
        self
    }

    /// Sets whether limits are checked by the rules of the v1 hierarchy; default: as the parent.
    #[must_use]
    pub fn v1(mut self, v1: bool) -> Group {
        self.v1 = Some(v1);
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub name: String,
    pub kind: LockKind,
    pub positions: Positions,
}

#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub name: String,
    pub capacity: u64,
    pub oldest_first: bool,
    pub positions: Positions,
}

impl Channel {
    /// A channel from which tokens leave in the order in which they came.
    fn new(name: String, capacity: u64) -> Channel {
        Channel { name, capacity, oldest_first: false, positions: Positions::default() }
    }
}

/// CPUs that a task may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// Every CPU of the machine.
    All,
    /// The CPUs of a set.
    Set(CpuSet),
    /// The i-th instance on the i-th CPU only (modulo the number of CPUs).
    Each,
}

/// A kind of task under construction.
#[derive(Debug, Clone)]
pub struct Task {
    pub(crate) name: String,
    pub(crate) label: Option<String>,
    pub(crate) count: u32,
    pub(crate) group: String,
    pub(crate) class: Class,
    pub(crate) nice: i8,
    pub(crate) cpus: Cpus,
    pub(crate) start_ns: u64,
    pub(crate) stagger_ns: u64,
    pub(crate) slice_ns: Option<u64>,
    pub(crate) program: Vec<Step>,
    pub(crate) positions: Positions,
}

impl Task {
    /// One fair task in the root group on any CPU, from the start of the run, with an empty
    /// program: it exits at once.
    pub fn new(name: impl Into<String>) -> Task {
        Task {
            name: name.into(),
            label: None,
            count: 1,
            group: "/".to_owned(),
            class: Class::Fair,
            nice: 0,
            cpus: Cpus::All,
            start_ns: 0,
            stagger_ns: 0,
            slice_ns: None,
            program: Vec::new(),
            positions: Positions::default(),
        }
    }

    /// Sets the name in results, shared by all kinds that have it.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Task {
        self.label = Some(label.into());
        self
    }

    /// Sets the number of instances that run from the start; 0 for a kind that is only forked.
    #[must_use]
    pub fn count(mut self, count: u32) -> Task {
        self.count = count;
        self
    }

    /// Sets the group in which they start.
    #[must_use]
    pub fn group(mut self, path: impl Into<String>) -> Task {
        self.group = path.into();
        self
    }

    /// Sets the scheduling class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Task {
        self.class = class;
        self
    }

    /// Sets the nice value, -20 to 19.
    #[must_use]
    pub fn nice(mut self, nice: i8) -> Task {
        self.nice = nice;
        self
    }

    /// Sets the CPUs that they may use.
    #[must_use]
    pub fn cpus(mut self, cpus: Cpus) -> Task {
        self.cpus = cpus;
        self
    }

    /// Sets the start of the first instance, counted from the start of the run.
    #[must_use]
    pub fn start(mut self, start: Duration) -> Task {
        self.start_ns = to_ns(start);
        self
    }

    /// Sets the delay between the starts of two instances.
    #[must_use]
    pub fn stagger(mut self, stagger: Duration) -> Task {
        self.stagger_ns = to_ns(stagger);
        self
    }

    /// Sets the slice that they request, 0.1 to 100 ms.
    #[must_use]
    pub fn slice(mut self, slice: Duration) -> Task {
        self.slice_ns = Some(to_ns(slice));
        self
    }

    /// Sets the instructions in place of those so far.
    #[must_use]
    pub fn program(mut self, steps: impl IntoIterator<Item = Step>) -> Task {
        self.program = steps.into_iter().collect();
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub name: String,
    pub program: Vec<Step>,
    pub positions: Positions,
}

/// An arrival process under construction.
#[derive(Debug, Clone)]
pub struct Source {
    pub(crate) name: String,
    pub(crate) channel: String,
    pub(crate) arrivals: Arrive,
    pub(crate) start_ns: u64,
    pub(crate) count: u64,
    pub(crate) jobs: Vec<String>,
    pub(crate) lossy: bool,
    pub(crate) positions: Positions,
}

#[derive(Debug, Clone)]
pub(crate) enum Arrive {
    Between(Length),
    At(Vec<u64>),
}

impl Source {
    /// A source of one token in `channel` after each such length of time, without end; the first
    /// comes after one length.
    pub fn every(
        name: impl Into<String>,
        channel: impl Into<String>,
        between: impl Into<Length>,
    ) -> Source {
        Source {
            name: name.into(),
            channel: channel.into(),
            arrivals: Arrive::Between(between.into()),
            start_ns: 0,
            count: u64::MAX,
            jobs: Vec::new(),
            lossy: false,
            positions: Positions::default(),
        }
    }

    /// A source of one token in `channel` at each of these times, counted from the start of the
    /// run.
    pub fn at(
        name: impl Into<String>,
        channel: impl Into<String>,
        times: impl IntoIterator<Item = Duration>,
    ) -> Source {
        Source {
            name: name.into(),
            channel: channel.into(),
            arrivals: Arrive::At(times.into_iter().map(to_ns).collect()),
            start_ns: 0,
            count: u64::MAX,
            jobs: Vec::new(),
            lossy: false,
            positions: Positions::default(),
        }
    }

    /// Sets the time from which the first arrival is counted.
    #[must_use]
    pub fn start(mut self, start: Duration) -> Source {
        self.start_ns = to_ns(start);
        self
    }

    /// Sets the number of arrivals after which it ends.
    #[must_use]
    pub fn count(mut self, count: u64) -> Source {
        self.count = count;
        self
    }

    /// Sets the jobs that its tokens carry, in turn; without jobs tokens carry none.
    #[must_use]
    pub fn jobs<Name: Into<String>>(mut self, jobs: impl IntoIterator<Item = Name>) -> Source {
        self.jobs = jobs.into_iter().map(Into::into).collect();
        self
    }

    /// Drops each token that arrives while no task waits for it.
    #[must_use]
    pub fn lossy(mut self) -> Source {
        self.lossy = true;
        self
    }
}
