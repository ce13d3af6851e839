//! A task: its state, its place, and its remaining work.

use crate::events::NEVER;
use crate::ids::{ChannelId, CpuId, GroupId, LockId, SeId, TaskId};
use crate::lab::TaskLab;
use crate::latency::Latencies;
use crate::pelt::WHOLE;
use crate::wakees::Wakees;
use cpumax_workload::{Class, LockMode, Stream};
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started yet.
    New,
    /// Running, queued, or parked.
    Runnable,
    /// Waiting for something that a signal can interrupt.
    Asleep(Wait),
    Stopped,
    Exited,
}

/// Reason for which a task sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Timer,
    Receive(ChannelId),
    Send(ChannelId),
    Lock(LockId, LockMode),
    Children,
    /// The timer thread of a real-time kernel: for work.
    Softirq,
}

/// A task's progress at `cgroup_threadgroup_rwsem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    No,
    /// In a fork or a move: it has requested the lock, and owns it when it continues.
    Asked,
    /// The task works under the lock.
    Inside,
    /// At its exit it waits for the lock, and owns it when it continues.
    Ends,
    /// The task has had the lock at its exit.
    Ended,
}

/// The current piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment {
    /// None: the next instruction decides.
    None,
    /// Code; `left_ns` of it remain.
    Run,
    /// Code with interrupts off.
    IrqOff,
    /// Spinning for a spin lock; lasts until the lock is handed over.
    Spin,
    /// Spinning for a mutex or rwsem while its owner runs.
    SpinOnOwner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    User,
    Kernel,
}

/// Source of a task's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The program of its kind.
    Kind,
    /// A real-time kernel's timer thread, waiting for work.
    SoftirqIdle,
    /// A real-time kernel's timer thread, in this section.
    Softirq(u32),
    /// The task that starts others and intervenes from outside.
    Outside,
}

/// Attributes that `sched_setattr()` sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attrs {
    pub class: Class,
    pub nice: i8,
    /// Its class before it was boosted as a lock holder (`PREEMPT_RT`).
    pub boosted_from: Option<Class>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Throttle {
    /// Return-to-user work is attached (6.18+).
    pub work: bool,
    pub parked: bool,
}

/// Signals that it has yet to act on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Signals {
    pub kill: bool,
    pub stop: bool,
    /// It is on its way out.
    pub exiting: bool,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
pub(crate) struct Times {
    /// Since when it is runnable and not running, ns, or [`NEVER`].
    pub ready_since_ns: u64,
    /// Since when it wants to continue and cannot, ns, or [`NEVER`].
    pub stalled_since_ns: u64,
    /// CPU time used, ns (real-time class included).
    pub usage_ns: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Locking {
    /// Number of spin locks held; it is not preempted while it holds any.
    pub spinning: u16,
    pub passing: Passing,
}

/// Its place in the programs that it executes, and what these wait for.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub code: Code,
    /// Index of its program: its kind's, or a job's (see `Settings::programs`).
    pub program: u32,
    pub pc: u32,
    /// In a job: where its own program continues.
    pub continues_at: u32,
    /// Rounds left of the loops it is in, innermost last.
    pub loops: Vec<u64>,
    pub random: Stream,
    /// Start of the current request, where its program does not mark that, ns.
    pub request_start_ns: u64,
    /// Start of the current request, as marked by its program, ns.
    pub begun_ns: Option<u64>,
    /// End of the sleep it is about to begin, ns.
    pub wakes_ns: u64,
    /// Number of its sleeps, which tells a timer whether it is still waited for.
    pub sleeps: u32,
    /// Number of periods of an `Every` begun.
    pub activations: u64,
    /// Tokens it waits to receive or send.
    pub tokens: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    /// Its number within its kind.
    pub instance: u32,
    /// Its number among all tasks.
    pub number: u32,
    /// Start of the task, ns.
    pub started_ns: u64,
    /// The task that forked it, and that task's number, as its place may have been reused.
    pub parent: Option<(TaskId, u32)>,
    pub children: u32,
}

/// Recent activity of a task, by which it is placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recent {
    /// Average fraction of time in which it wanted to run, [`WHOLE`] for all, and the time up to
    /// which that is valid, ns.
    pub wanted: u64,
    pub wanted_ns: u64,
    /// When it last left its CPU, ns.
    pub ran_ns: u64,
    /// Its CPU at its last wakeup (kernel: `recent_used_cpu`).
    pub cpu: CpuId,
    pub wakees: Wakees,
}

/// Fields used to park, unpark and switch come first and fit a cache line.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct Task {
    pub se: SeId,
    pub group: GroupId,
    pub cpu: CpuId,
    /// Index of its kind; `u32::MAX` for tasks outside the workload (see [`Code`]).
    pub kind: u32,

    pub state: State,
    pub attrs: Attrs,
    pub mode: Mode,
    /// Inside an `EnterKernel` .. `ExitKernel` of its program.
    pub in_syscall: bool,
    pub throttle: Throttle,
    pub signals: Signals,
    /// Woken to execute an instruction again, in the kernel.
    pub retries: bool,
    pub segment: Segment,
    pub left_ns: u64,
    pub times: Times,

    pub locking: Locking,
    /// CPUs it may use: an index into `Settings::masks`.
    pub mask: u32,
    pub lab: TaskLab,
    pub at: Progress,
    pub birth: Birth,
    pub recent: Recent,
}

const _: () = assert!(std::mem::offset_of!(Task, times.usage_ns) == 64);

impl Progress {
    /// The start of this kind's program, without a request.
    fn new(kind: u32, random: Stream) -> Progress {
        Progress {
            code: Code::Kind,
            program: kind,
            pc: 0,
            continues_at: 0,
            loops: Vec::new(),
            random,
            request_start_ns: 0,
            begun_ns: None,
            wakes_ns: 0,
            sleeps: 0,
            activations: 0,
            tokens: 0,
        }
    }

    /// Start of the request under way, ns: as marked by its program, else its last event that
    /// begins one.
    pub fn request_since_ns(&self) -> u64 {
        self.begun_ns.unwrap_or(self.request_start_ns)
    }
}

impl Task {
    /// A new task at the start of its kind's program, on no queue; kernel threads are in kernel
    /// mode.
    pub fn new(
        kind: u32,
        instance: u32,
        se: SeId,
        group: GroupId,
        class: Class,
        random: Stream,
    ) -> Task {
        Task {
            se,
            group,
            cpu: CpuId(0),
            kind,
            state: State::New,
            attrs: Attrs { class, nice: 0, boosted_from: None },
            mode: if class == Class::Kthread { Mode::Kernel } else { Mode::User },
            in_syscall: false,
            throttle: Throttle::default(),
            signals: Signals::default(),
            retries: false,
            segment: Segment::None,
            left_ns: 0,
            times: Times { ready_since_ns: NEVER, stalled_since_ns: NEVER, usage_ns: 0 },
            locking: Locking { spinning: 0, passing: Passing::No },
            mask: 0,
            lab: TaskLab::default(),
            at: Progress::new(kind, random),
            birth: Birth { instance, number: 0, started_ns: 0, parent: None, children: 0 },
            recent: Recent {
                wanted: WHOLE,
                wanted_ns: 0,
                ran_ns: 0,
                cpu: CpuId(0),
                wakees: Wakees::default(),
            },
        }
    }

    /// Whether it executes a job instead of its own program.
    pub fn does_job(&self) -> bool {
        self.at.program != self.kind
    }

    /// Whether it is in the fair class (`SCHED_IDLE` and kernel threads included), not real-time.
    pub fn is_fair(&self) -> bool {
        self.attrs.class != Class::Rt
    }

    /// Whether it ever returns to user mode, where it can be parked: not a kernel thread or other
    /// task outside the workload.
    pub fn has_user_mode(&self) -> bool {
        // Tests its kind, not its code, which is in another cache line.
        self.attrs.class != Class::Kthread && self.kind != u32::MAX
    }

    /// Whether it has nothing left to do in the kernel and is about to return to user mode.
    pub fn is_leaving_kernel(&self) -> bool {
        self.mode == Mode::Kernel
            && self.segment == Segment::None
            && !(self.in_syscall
                || self.signals.exiting
                || self.lab.sleep_delay_ns > 0
                || self.retries
                || self.lab.call_delayed)
            && self.locking.passing == Passing::No
            && self.has_user_mode()
    }
}

/// Tasks created and exited.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// Tasks created so far, those outside the workload included.
    pub count: u32,
    /// Tasks of the workload created so far.
    pub of_workload: u64,
    /// Exited tasks that still have their places, and when they exited, ns.
    pub ended: VecDeque<(u64, TaskId)>,
    pub kinds: Vec<KindStat>,
}

/// Statistics of a kind of task, summed over its instances.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct KindStat {
    pub wait_ns: u64,
    pub longest_stall_ns: u64,
    pub hung_reports: u64,
    pub count: u64,
    pub exited: u64,
    /// CPU time of instances that are no longer stored, ns.
    pub forgotten_ns: u64,
    pub last_exit_ns: u64,
    pub latencies: Latencies,
    /// Instances that have not exited.
    pub living: Vec<TaskId>,
}
