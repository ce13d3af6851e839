//! The workload as data: a scenario file after it has been read and checked.
//!
//! References between parts are indices, valid by construction. Durations are nanoseconds.

mod outside;
mod program;

use crate::cpus::CpuSet;
use crate::limit_serde;
use cpumax_limit::Limit;
use serde::{Deserialize, Serialize};

pub use outside::*;
pub use program::{Program, completes};

/// Index into [`Parts::groups`]; 0 is the root group.
pub type GroupIx = u32;
/// Index into [`Parts::tasks`].
pub type TaskIx = u32;
/// Index into [`Parts::jobs`].
pub type JobIx = u32;
/// Index into [`Parts::locks`].
pub type LockIx = u32;
/// Index into [`Parts::channels`].
pub type ChannelIx = u32;
/// Index into [`Parts::distributions`].
pub type DistIx = u32;
/// Index into [`Parts::cpu_sets`].
pub type CpuSetIx = u32;

/// A whole experiment: the machine, the groups, the tasks, and changes from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts {
    /// Name of the workload, e.g. `fibtest`.
    pub name: String,
    /// One sentence: the behaviour that it demonstrates.
    pub shows: String,
    /// Simulated time, ns.
    pub duration_ns: u64,
    /// The machine.
    pub machine: MachineSpec,
    /// Parents before children; index 0 is the root group, path `/`.
    pub groups: Vec<GroupSpec>,
    /// Locks that programs take, by [`LockIx`].
    pub locks: Vec<LockSpec>,
    /// Channels that programs and sources use, by [`ChannelIx`].
    pub channels: Vec<ChannelSpec>,
    /// Distributions that lengths of time are drawn from, by [`DistIx`].
    pub distributions: Vec<Distribution>,
    /// Sets of CPUs, by [`CpuSetIx`].
    pub cpu_sets: Vec<CpuSet>,
    /// Kinds of task, by [`TaskIx`].
    pub tasks: Vec<TaskSpec>,
    /// Work that tokens carry, by [`JobIx`].
    pub jobs: Vec<JobSpec>,
    /// Arrival processes.
    pub sources: Vec<Source>,
    /// Changes from outside, in order of time.
    pub interventions: Vec<Intervention>,
    /// Bounds that results of a run must meet.
    pub expectations: Vec<Expectation>,
}

impl Parts {
    /// An empty workload of this length, ns, on the default machine. It is not valid: even the root
    /// group is missing.
    pub fn empty(name: &str, shows: &str, duration_ns: u64) -> Parts {
        Parts {
            name: name.to_owned(),
            shows: shows.to_owned(),
            duration_ns,
            machine: MachineSpec::default(),
            groups: Vec::new(),
            locks: Vec::new(),
            channels: Vec::new(),
            distributions: Vec::new(),
            cpu_sets: Vec::new(),
            tasks: Vec::new(),
            jobs: Vec::new(),
            sources: Vec::new(),
            interventions: Vec::new(),
            expectations: Vec::new(),
        }
    }

    /// The programs of all kinds of task, then those of all jobs.
    pub fn programs(&self) -> impl Iterator<Item = &[Op]> {
        let of_tasks = self.tasks.iter().map(|task| &task.program[..]);
        of_tasks.chain(self.jobs.iter().map(|job| &job.program[..]))
    }

    /// Whether some task forks and any task is moved to another group: both take
    /// `cgroup_threadgroup_rwsem`, of which a machine has only one.
    pub fn forks_meet_moves(&self) -> bool {
        let has = |is_it: fn(&Op) -> bool| self.programs().flatten().any(is_it);
        let mut from_outside = self.interventions.iter().map(|i| &i.action);
        has(|op| matches!(op, Op::Fork { .. }))
            && (has(|op| matches!(op, Op::Move { .. }))
                || from_outside.any(|action| matches!(action, Action::Move { .. })))
    }
}

/// The machine that runs the workload. `None` means the default of the kernel that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Number of CPUs, 1 to 4096.
    pub cpus: u16,
    /// CPUs that share a last-level cache; 0 means all.
    pub llc_cpus: u16,
    /// Ticks a second: 100, 250, 300 or 1000.
    pub hz: u32,
    /// Preemption model.
    pub preempt: Option<Preempt>,
    /// Whether a high-resolution tick ends a task's slice.
    pub hrtick: Option<bool>,
    /// Phase of every period timer, ns; `None`: aligned to boot before 6.4, random from 6.4 on.
    pub timer_phase_ns: Option<u64>,
    /// Ticks of the CPUs spread over a tick instead of all at once (`skew_tick=1`).
    pub tick_skew: bool,
    /// `kernel.sched_cfs_bandwidth_slice_us` as ns.
    pub bandwidth_slice_ns: u64,
    /// EEVDF base slice, ns; `None`: the kernel's own, scaled by CPUs.
    pub base_slice_ns: Option<u64>,
    /// CPUs without a tick while one task runs (`nohz_full=`).
    pub nohz_full: Option<CpuSetIx>,
    /// Charge the modelled cost of throttling and releasing to the CPUs that pay it.
    pub cost_timing: bool,
    /// Delay between sending an interrupt to another CPU and its handler, ns.
    pub ipi_ns: u64,
    /// Interrupt-driven work of the per-CPU timer thread (real-time kernels only).
    pub softirqs: Vec<SoftirqSpec>,
}

impl Default for MachineSpec {
    fn default() -> Self {
        MachineSpec {
            cpus: 1,
            llc_cpus: 0,
            hz: 250,
            preempt: None,
            hrtick: None,
            timer_phase_ns: None,
            tick_skew: false,
            bandwidth_slice_ns: 5_000_000,
            base_slice_ns: None,
            nohz_full: None,
            cost_timing: false,
            ipi_ns: 2_000,
            softirqs: Vec::new(),
        }
    }
}

/// Preemption model: where a running task can be preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Preempt {
    /// Only at the return to user mode and where a task sleeps.
    None,
    /// Like `None`, and at `cond_resched()`, in the model everywhere in a system call.
    Voluntary,
    /// Lazy (from 6.13): at the return to user mode; at the next tick everywhere.
    Lazy,
    /// Everywhere but under a spin lock or with interrupts off.
    Full,
    /// `PREEMPT_RT`: as `Full`, and period timers run in a per-CPU thread.
    Rt,
    /// `PREEMPT_RT` whose fair tasks make way for each other as with `Lazy`.
    RtLazy,
}

impl Preempt {
    /// Whether it is a real-time kernel (`PREEMPT_RT`).
    pub fn is_rt(self) -> bool {
        matches!(self, Preempt::Rt | Preempt::RtLazy)
    }

    /// Whether a fair task gives way to another only at its return to user mode or at the next
    /// tick.
    pub fn is_lazy(self) -> bool {
        matches!(self, Preempt::Lazy | Preempt::RtLazy)
    }
}

/// On `PREEMPT_RT`: work that the timer thread of one CPU does regularly, under a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftirqSpec {
    /// CPU of the timer thread.
    pub cpu: u16,
    /// Time between starts, ns.
    pub every_ns: u64,
    /// The lock it takes.
    pub lock: LockIx,
    /// Alone or together with readers.
    pub mode: LockMode,
    /// How long it holds the lock, ns; at most `every_ns`.
    pub hold_ns: u64,
}

/// One group of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Absolute path, e.g. `/a/b`; `/` for the root.
    pub path: String,
    /// `None` for the root only.
    pub parent: Option<GroupIx>,
    /// Quota, period and burst; none for the root.
    #[serde(with = "limit_serde")]
    pub limit: Limit,
    /// cgroup v2 weight, 1 to 10000, default 100.
    pub weight: u32,
    /// Whether hierarchy checks follow v1 rules.
    pub v1: bool,
}

/// A lock that programs take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockSpec {
    /// Name used by programs.
    pub name: String,
    /// Kind of lock.
    pub kind: LockKind,
}

/// Kind of kernel lock; decides which tasks may hold it together and which waiter is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Exclusive, sleeping; woken in order of arrival.
    Mutex,
    /// Readers together, writers alone, woken in order of arrival; a waiting writer stops new
    /// readers.
    Rwsem,
    /// Like `Rwsem`; a writer first stops all readers and then waits for those inside
    /// (`cgroup_threadgroup_rwsem`).
    PercpuRwsem,
    /// `rwlock_t` on `PREEMPT_RT`: like `Rwsem`, but readers inherit no priority.
    Rwlock,
    /// Exclusive; waiters spin on their CPU, the holder is not preempted.
    Spin,
}

/// How a lock is taken; a mutex and a spin lock only for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// Together with other readers.
    Read,
    /// Alone.
    Write,
}

/// Tokens passed between tasks: a wakeup, a request, a byte in a pipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Name used by programs.
    pub name: String,
    /// A sender waits while its tokens would exceed this number; `u64::MAX`: it never waits.
    pub capacity: u64,
    /// Tokens leave in the order in which their requests began, not in the order of arrival:
    /// servers finish the requests that have begun.
    #[serde(default)]
    pub oldest_first: bool,
}

/// A length of time drawn anew each time it is used, ns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Distribution {
    /// One constant length.
    Constant {
        /// ns.
        ns: u64,
    },
    /// Every length from `low_ns` to `high_ns`, both included, is equally likely.
    Uniform {
        /// Shortest, ns.
        low_ns: u64,
        /// Longest, ns.
        high_ns: u64,
    },
    /// Memoryless, such as the time between independent arrivals.
    Exponential {
        /// Mean, ns.
        mean_ns: u64,
    },
    /// `exp(N(ln median, sigma))`.
    LogNormal {
        /// Median, ns.
        median_ns: u64,
        /// Standard deviation of the logarithm, 0 to 10.
        sigma: f64,
    },
    /// Measured values, each as likely as its count says.
    Empirical {
        /// The values, ns, in any order.
        values_ns: Vec<u64>,
        /// Cumulative counts, rising: how often this value and all before it occur; one for each
        /// value.
        cumulative: Vec<u64>,
    },
}

/// A kind of task, and the number of its instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// Name of the kind.
    pub name: String,
    /// Name in results, shared by all kinds that have it; `None`: `name`.
    pub label: Option<String>,
    /// Instances that run from the start; 0 for a kind that is only forked.
    pub count: u32,
    /// Group in which they start.
    pub group: GroupIx,
    /// Scheduling class.
    pub class: Class,
    /// -20 to 19.
    pub nice: i8,
    /// CPUs that they may use.
    pub cpus: Affinity,
    /// Start of the first instance, ns.
    pub start_ns: u64,
    /// Delay between the starts of two instances, ns.
    pub stagger_ns: u64,
    /// Own slice request, ns (EEVDF kernels), 0.1 to 100 ms.
    pub slice_ns: Option<u64>,
    /// Instructions; the task exits after the last one.
    pub program: Program,
}

impl TaskSpec {
    /// The name in results: `label`, or else `name`.
    pub fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.name)
    }
}

/// Work that a token carries: the task that takes the token by [`Op::Serve`] does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Name used by programs and sources.
    pub name: String,
    /// Instructions: `User`, `Kernel`, `IrqOff`, `EnterKernel`, `ExitKernel`, `Sleep`, `Lock`,
    /// `Unlock`, `Send`, `Recv`, `Post`, `After`, `Begin`, `Done` and loops. In a job `Sleep` and
    /// `Recv` do not start another request.
    pub program: Program,
}

/// CPUs that a task may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Affinity {
    /// Every CPU of the machine.
    All,
    /// The CPUs of a set.
    Set(CpuSetIx),
    /// The i-th instance on the i-th CPU only (modulo the number of CPUs).
    Each,
}

/// Scheduling class of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// `SCHED_OTHER`.
    Fair,
    /// `SCHED_IDLE`: fair with weight 3.
    Idle,
    /// `SCHED_FIFO`.
    Rt,
    /// A fair kernel thread: never returns to user mode.
    Kthread,
}

/// A length of time in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Span {
    /// ns
    Fixed(u64),
    /// Drawn anew each time.
    Drawn(DistIx),
}

/// Tasks at which an instruction is aimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The task that executes the instruction.
    Myself,
    /// Every live instance of a kind.
    Kind(TaskIx),
}

/// One instruction of a program. Loops are flattened: `LoopStart` .. `LoopEnd`.
///
/// A task is in user mode except between `EnterKernel` and `ExitKernel` and inside an instruction
/// that is itself a system call (`Kernel`, `Sleep`, `Recv`, a contended `Lock` …).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Run in user mode; not inside `EnterKernel` .. `ExitKernel`, not in kernel threads.
    User(Span),
    /// Run in kernel mode; outside a system call, a system call of that length.
    Kernel(Span),
    /// Run in kernel mode with interrupts off.
    IrqOff(Span),
    /// Enter a system call. System calls do not nest; kernel threads make none.
    EnterKernel,
    /// Return to user mode.
    ExitKernel,
    /// Sleep for this long. The next request starts at the wakeup.
    Sleep(Span),
    /// Sleep to the next multiple of `period_ns` after the task's start; a task that is late does
    /// not sleep, and catches up. The next request starts at that multiple.
    Every {
        /// Period, ns, from 1 us.
        period_ns: u64,
    },
    /// Take a lock, and wait for it where others hold it.
    Lock {
        /// The lock.
        lock: LockIx,
        /// Alone or together with readers.
        mode: LockMode,
    },
    /// Release a lock that the task holds.
    Unlock {
        /// The lock.
        lock: LockIx,
    },
    /// Put `n` tokens in a channel, and wait while it is full.
    Send {
        /// The channel.
        channel: ChannelIx,
        /// Number of tokens, 1 to 1 000 000 and at most the capacity.
        n: u64,
    },
    /// Take `n` tokens out of a channel, and wait for them. The next request starts when the last
    /// of them came.
    Recv {
        /// The channel.
        channel: ChannelIx,
        /// Number of tokens, 1 to 1 000 000 and at most the capacity.
        n: u64,
    },
    /// Take the next token out of a channel, wait for it, and do the job that it carries, if any.
    /// The token's request is the task's from then on. Several tasks may serve one channel.
    Serve {
        /// The channel.
        channel: ChannelIx,
    },
    /// Put one token in a channel that carries a job. Its request starts when that of the poster
    /// did.
    Post {
        /// The channel.
        channel: ChannelIx,
        /// The job that the token carries.
        job: JobIx,
    },
    /// Go on at once; after `delay`, one token that carries a job arrives from outside. Its request
    /// starts on arrival.
    After {
        /// Time until the token arrives; above 0.
        delay: Span,
        /// The channel.
        channel: ChannelIx,
        /// The job that the token carries.
        job: JobIx,
        /// The token keeps the poster's request and its start.
        keep: bool,
    },
    /// Start one new task of this kind in the caller's group.
    Fork {
        /// The kind of task.
        kind: TaskIx,
    },
    /// Wait until every child has exited.
    WaitChildren,
    /// Exit, with no lock held and outside of a system call.
    Exit,
    /// Yield the CPU (`sched_yield()`).
    Yield,
    /// Move tasks to another group.
    Move {
        /// The tasks to move.
        who: Target,
        /// Their new group.
        group: GroupIx,
    },
    /// Change the CPUs that tasks may use.
    SetAffinity {
        /// The tasks.
        who: Target,
        /// Their new CPUs.
        cpus: CpuSetIx,
    },
    /// Change the nice value of tasks.
    SetNice {
        /// The tasks.
        who: Target,
        /// -20 to 19.
        nice: i8,
    },
    /// Change the class of tasks.
    SetClass {
        /// The tasks; not kernel threads.
        who: Target,
        /// Any but `Kthread`.
        class: Class,
    },
    /// A request starts here.
    Begin,
    /// A request is complete: its latency is the time since its start.
    Done,
    /// Repeat the instructions up to `end`; `times == u64::MAX`: for ever.
    LoopStart {
        /// Number of passes, from 1.
        times: u64,
        /// Index of the matching `LoopEnd`.
        end: u32,
    },
    /// The end of a loop.
    LoopEnd {
        /// Index of the matching `LoopStart`.
        start: u32,
    },
}

impl Op {
    /// Whether a real task enters the kernel to execute this.
    pub fn is_call(self) -> bool {
        !matches!(
            self,
            Op::User(_)
                | Op::Begin
                | Op::Done
                | Op::After { .. }
                | Op::LoopStart { .. }
                | Op::LoopEnd { .. }
        )
    }
}

/// An arrival process: puts tokens in a channel, independently of the tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Name of the source.
    pub name: String,
    /// The channel that receives the tokens.
    pub channel: ChannelIx,
    /// When tokens arrive.
    pub arrivals: Arrivals,
    /// Time from which the first arrival is counted, ns.
    pub start_ns: u64,
    /// Number of arrivals; `u64::MAX`: without end.
    pub count: u64,
    /// Jobs that its tokens carry, in turn; empty: tokens without a job.
    pub jobs: Vec<JobIx>,
    /// A token that arrives while no task waits for it is lost.
    pub lossy: bool,
}

/// Arrival times of a source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Arrivals {
    /// Time between two arrivals.
    Between(Span),
    /// Arrivals at exactly these times, ns, ascending.
    At(Vec<u64>),
}
