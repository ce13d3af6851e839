//! Workloads made in Rust: the same language as scenario files, with the same checks.
//!
//! Parts refer to each other by name and may come in any order; [`Builder::build`] resolves the
//! names and checks the whole. Reading a file fills the same structures, so whatever can be said in
//! one can be said in the other. The verbs of programs are in [`crate::step`].

mod outside;
mod service;

use crate::checked::Workload;
use crate::error::{Error, Stretch};
use crate::model::{Class, CpuSet, Distribution, LockKind, LockMode, MachineSpec, Preempt};
use crate::step::Step;
use cpumax_limit::Limit;
use std::time::Duration;

pub use outside::{Act, Change, Expect};
pub(crate) use service::Demand;
pub use service::Service;

/// Where the values of a part stand in the file; empty when there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    pub whole: Stretch,
    pub fields: Vec<(&'static str, Stretch)>,
}

impl Marks {
    /// Where the value of `field` stands, or else the whole part.
    pub fn of(&self, field: &str) -> Stretch {
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

/// Nanoseconds; what does not fit is out of every range and refused by the checks.
pub(crate) fn to_ns(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// A workload in the making.
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
    pub(crate) marks: Marks,
}

impl Workload {
    /// An empty workload of that name: one CPU, no tasks, ten seconds.
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
            marks: Marks::default(),
        }
    }
}

impl Builder {
    /// One sentence: what it shows.
    #[must_use]
    pub fn shows(mut self, shows: impl Into<String>) -> Builder {
        self.shows = shows.into();
        self
    }

    /// Simulated time, up to one day.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Builder {
        self.duration_ns = to_ns(duration);
        self
    }

    /// Number of CPUs; the rest of the machine is as the kernel at hand does by default.
    #[must_use]
    pub fn cpus(mut self, cpus: u16) -> Builder {
        self.machine.spec.cpus = cpus;
        self
    }

    /// The whole machine.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Builder {
        self.machine = machine;
        self
    }

    /// A group with a limit and nothing else out of the ordinary. Parents that are not given are
    /// made without a limit.
    #[must_use]
    pub fn group(self, path: impl Into<String>, limit: Limit) -> Builder {
        self.with_group(Group::new(path).limit(limit))
    }

    /// A group.
    #[must_use]
    pub fn with_group(mut self, group: Group) -> Builder {
        self.groups.push(group);
        self
    }

    /// A lock.
    #[must_use]
    pub fn lock(mut self, name: impl Into<String>, kind: LockKind) -> Builder {
        self.locks.push(Lock { name: name.into(), kind, marks: Marks::default() });
        self
    }

    /// A channel in which senders never wait.
    #[must_use]
    pub fn channel(self, name: impl Into<String>) -> Builder {
        self.bounded_channel(name, u64::MAX)
    }

    /// A channel in which senders wait while it holds `capacity` tokens.
    #[must_use]
    pub fn bounded_channel(mut self, name: impl Into<String>, capacity: u64) -> Builder {
        self.channels.push(Channel::new(name.into(), capacity));
        self
    }

    /// A kind of task.
    #[must_use]
    pub fn task(mut self, task: Task) -> Builder {
        self.tasks.push(task);
        self
    }

    /// Work that tokens carry: what a task does that serves one.
    #[must_use]
    pub fn job(
        mut self,
        name: impl Into<String>,
        program: impl IntoIterator<Item = Step>,
    ) -> Builder {
        let (name, program) = (name.into(), program.into_iter().collect());
        self.jobs.push(Job { name, program, marks: Marks::default() });
        self
    }

    /// Threads that answer requests, and whoever sends these.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "as all other parts")]
    pub fn service(mut self, service: Service) -> Builder {
        service.unfold(&mut self);
        self
    }

    /// An arrival process.
    #[must_use]
    pub fn source(mut self, source: Source) -> Builder {
        self.sources.push(source);
        self
    }

    /// Something done from outside.
    #[must_use]
    pub fn change(mut self, change: Change) -> Builder {
        self.changes.push(change);
        self
    }

    /// What a run must show.
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Builder {
        self.expectations.push(expect);
        self
    }

    /// Resolves all names and checks everything.
    ///
    /// # Errors
    /// The first thing that is wrong, with the part it is in and what would be accepted.
    pub fn build(&self) -> Result<Workload, Error> {
        crate::resolve::resolve(self, None)
    }
}

/// The machine: [`MachineSpec`] with sets of CPUs and locks in place of references to them.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Everything but `nohz_full` and `softirqs`, which are ignored.
    pub(crate) spec: MachineSpec,
    pub(crate) nohz_full: Option<CpuSet>,
    pub(crate) softirqs: Vec<Softirq>,
    pub(crate) marks: Marks,
}

impl Machine {
    /// A machine as this one says; its `nohz_full` and `softirqs` are given by the methods below.
    pub fn new(spec: MachineSpec) -> Machine {
        Machine { spec, ..Machine::default() }
    }

    /// Where the kernel lets itself be preempted.
    #[must_use]
    pub fn preempt(mut self, preempt: Preempt) -> Machine {
        self.spec.preempt = Some(preempt);
        self
    }

    /// CPUs without a tick while one task runs.
    #[must_use]
    pub fn nohz_full(mut self, cpus: CpuSet) -> Machine {
        self.nohz_full = Some(cpus);
        self
    }

    /// Regular work of the real-time kernel's timer thread on one CPU, under a lock.
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
            marks: Marks::default(),
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
    pub marks: Marks,
}

/// A group in the making.
#[derive(Debug, Clone)]
pub struct Group {
    pub(crate) path: String,
    pub(crate) limit: Limit,
    pub(crate) weight: u32,
    pub(crate) v1: Option<bool>,
    pub(crate) marks: Marks,
}

impl Group {
    /// An unlimited group of weight 100 at an absolute path such as `/a/b`.
    pub fn new(path: impl Into<String>) -> Group {
        Group {
            path: path.into(),
            limit: Limit::UNLIMITED,
            weight: 100,
            v1: None,
            marks: Marks::default(),
        }
    }

    /// Quota, period and burst.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Group {
        self.limit = limit;
        self
    }

    /// Weight as in `cpu.weight`, 1 to 10000.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Group {
        self.weight = weight;
        self
    }

    /// Whether limits are checked by the rules of the v1 hierarchy; default: as the parent.
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
    pub marks: Marks,
}

#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub name: String,
    pub capacity: u64,
    pub oldest_first: bool,
    pub marks: Marks,
}

impl Channel {
    fn new(name: String, capacity: u64) -> Channel {
        Channel { name, capacity, oldest_first: false, marks: Marks::default() }
    }
}

/// CPUs a task may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpus {
    /// All there are.
    All,
    /// These only.
    Set(CpuSet),
    /// The i-th instance on the i-th CPU only (modulo the number of CPUs).
    Each,
}

/// A kind of task in the making.
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
    pub(crate) marks: Marks,
}

impl Task {
    /// One fair task in the root group that exits at once.
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
            marks: Marks::default(),
        }
    }

    /// Name under which results tell of it, together with all others that have the same.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Task {
        self.label = Some(label.into());
        self
    }

    /// How many run from the start; 0 for a kind that is only forked.
    #[must_use]
    pub fn count(mut self, count: u32) -> Task {
        self.count = count;
        self
    }

    /// The group they start in.
    #[must_use]
    pub fn group(mut self, path: impl Into<String>) -> Task {
        self.group = path.into();
        self
    }

    /// Scheduling class.
    #[must_use]
    pub fn class(mut self, class: Class) -> Task {
        self.class = class;
        self
    }

    /// -20 to 19.
    #[must_use]
    pub fn nice(mut self, nice: i8) -> Task {
        self.nice = nice;
        self
    }

    /// CPUs they may use.
    #[must_use]
    pub fn cpus(mut self, cpus: Cpus) -> Task {
        self.cpus = cpus;
        self
    }

    /// When the first one starts.
    #[must_use]
    pub fn start(mut self, start: Duration) -> Task {
        self.start_ns = to_ns(start);
        self
    }

    /// How much later each further one starts.
    #[must_use]
    pub fn stagger(mut self, stagger: Duration) -> Task {
        self.stagger_ns = to_ns(stagger);
        self
    }

    /// Own slice request, 0.1 to 100 ms.
    #[must_use]
    pub fn slice(mut self, slice: Duration) -> Task {
        self.slice_ns = Some(to_ns(slice));
        self
    }

    /// What it does.
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
    pub marks: Marks,
}

/// An arrival process in the making.
#[derive(Debug, Clone)]
pub struct Source {
    pub(crate) name: String,
    pub(crate) channel: String,
    pub(crate) arrivals: Arrive,
    pub(crate) start_ns: u64,
    pub(crate) count: u64,
    pub(crate) jobs: Vec<String>,
    pub(crate) lossy: bool,
    pub(crate) marks: Marks,
}

#[derive(Debug, Clone)]
pub(crate) enum Arrive {
    Between(Length),
    At(Vec<u64>),
}

impl Source {
    /// A token in `channel` after each such length of time.
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
            marks: Marks::default(),
        }
    }

    /// A token in `channel` at exactly these times.
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
            marks: Marks::default(),
        }
    }

    /// Time from which the first arrival is counted.
    #[must_use]
    pub fn start(mut self, start: Duration) -> Source {
        self.start_ns = to_ns(start);
        self
    }

    /// Number of arrivals after which it stops.
    #[must_use]
    pub fn count(mut self, count: u64) -> Source {
        self.count = count;
        self
    }

    /// Jobs that its tokens carry, in turn.
    #[must_use]
    pub fn jobs<Name: Into<String>>(mut self, jobs: impl IntoIterator<Item = Name>) -> Source {
        self.jobs = jobs.into_iter().map(Into::into).collect();
        self
    }

    /// A token that comes while nobody waits for it is lost.
    #[must_use]
    pub fn lossy(mut self) -> Source {
        self.lossy = true;
        self
    }
}
