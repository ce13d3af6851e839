//! A task: its state, its place, and its remaining work.

use crate::events::NEVER;
use crate::ids::{ChannelId, CpuId, GroupId, LockId, SeId, TaskId};
use crate::latency::Latencies;
use crate::pelt::WHOLE;
use crate::wakees::Wakees;
use cpumax_workload::{Class, LockMode, Stream};
use std::collections::VecDeque;
use std::num::NonZeroU64;

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

/// Steps of a task's move of itself to another group, where that takes time (kernel:
/// `cgroup_procs_write()`). It holds `cgroup_mutex`, and its second half happens in the new group,
/// soon after a reschedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moving {
    No,
    Enters { in_syscall: bool },
    Out { in_syscall: bool },
    Moved { in_syscall: bool },
    In { in_syscall: bool },
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

/// Time that a task did not run during its current piece of work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// Duration since it last made progress (in the kernel: during the whole call), ns.
    pub ns: u64,
    /// Start of the preemption under way, ns; else [`NEVER`].
    pub since_ns: u64,
}

impl Absence {
    pub const NONE: Absence = Absence::of(0);

    /// An absence of `ns` up to now: of a task that begins work after it was in calls, or
    /// preempted, without a look at the clock since.
    pub const fn of(ns: u64) -> Absence {
        Absence { ns, since_ns: NEVER }
    }

    /// Lengthens the absence by `ns`.
    pub const fn add_ns(&mut self, ns: u64) {
        self.ns += ns;
    }
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
    pub class: Class,
    pub nice: i8,
    pub mode: Mode,
    /// Inside an `EnterKernel` .. `ExitKernel` of its program.
    pub in_syscall: bool,
    /// Return-to-user work is attached (6.18+).
    pub throttle_work: bool,
    /// About to park (under noise).
    pub parking: bool,
    pub parked: bool,
    pub kill_pending: bool,
    pub stop_pending: bool,
    pub exiting: bool,
    /// Woken to execute an instruction again, in the kernel.
    pub retries: bool,
    /// In a call whose effect is still to come when the task continues.
    pub call_delayed: bool,
    /// On its way to a sleep until `wakes_ns`: how much later a sleep for a duration ends, ns;
    /// else 0.
    pub sleep_delay_ns: u16,
    pub segment: Segment,
    pub left_ns: u64,
    /// Since when it is runnable and not running, ns, or [`NEVER`].
    pub ready_since_ns: u64,
    /// Since when it wants to continue and cannot, ns, or [`NEVER`].
    pub stalled_since_ns: u64,

    /// Number of spin locks held; it is not preempted while it holds any.
    pub spinning: u16,
    /// Has left its autogroup on the way to exit (under noise).
    pub has_left_autogroup: bool,
    /// Time from its dequeue when it parks to the switch, ns (under noise).
    pub parked_ns: u16,
    /// Time that calls took beyond the workload's programs, ns, by which its next work is shorter;
    /// negative if it worked less than it should.
    pub owes_ns: i64,
    /// Part of its next work in the kernel that was done on the way to a lock, ns.
    pub entered_ns: u32,
    /// CPU time of the work that its program has asked for so far, ns.
    pub requested_ns: u64,
    /// Has read its CPU time after its last call.
    pub has_read_cpu_time: bool,
    /// Start of calls after which it has not read the clock again, ns, or [`NEVER`].
    pub calls_since_ns: u64,
    /// Rest of its work in the kernel at the start of its first page, ns, if it reads pages (under
    /// noise).
    pub first_page_ns: Option<NonZeroU64>,
    /// Its segment is work of the workload, not overhead of a call (under noise).
    pub is_program_work: bool,
    pub absence: Absence,
    /// CPU time used, ns (real-time class included).
    pub usage_ns: u64,
    /// Its progress in a move that takes time.
    pub moving: Moving,
    pub passing: Passing,
    pub code: Code,
    /// Index of its program: its kind's, or a job's (see `Settings::programs`).
    pub program: u32,
    pub pc: u32,
    /// In a job: where its own program continues.
    pub continues_at: u32,
    /// CPUs it may use: an index into the machine's masks.
    pub mask: u32,
    /// Its number within its kind.
    pub instance: u32,
    /// Its number among all tasks.
    pub number: u32,
    /// Its class before it was boosted as a lock holder (`PREEMPT_RT`).
    pub boosted_from: Option<Class>,
    /// Rounds left of the loops it is in, innermost last.
    pub loops: Vec<u64>,
    /// Start of the current request, where its program does not mark that, ns.
    pub request_start_ns: u64,
    /// Start of the current request, as marked by its program, ns.
    pub begun_ns: Option<u64>,
    /// End of the sleep it is about to begin, ns.
    pub wakes_ns: u64,
    /// Start of the task, ns, and number of periods of an `Every` begun.
    pub started_ns: u64,
    pub activations: u64,
    /// Tokens it waits to receive or send.
    pub tokens: u64,
    /// Number of its sleeps, which tells a timer whether it is still waited for.
    pub sleeps: u32,
    /// The task that forked it, and that task's number, as its place may have been reused.
    pub parent: Option<(TaskId, u32)>,
    pub children: u32,
    pub random: Stream,
    /// Average fraction of time in which it wanted to run, [`WHOLE`] for all, and the time up to
    /// which that is valid, ns.
    pub wanted: u64,
    pub wanted_ns: u64,
    /// When it last left its CPU, ns.
    pub ran_ns: u64,
    /// Its CPU at its last wakeup (kernel: `recent_used_cpu`).
    pub recent_cpu: CpuId,
    pub wakees: Wakees,
}

const _: () = assert!(std::mem::offset_of!(Task, stalled_since_ns) + 8 == 64);

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
            kind,
            instance,
            number: 0,
            se,
            group,
            cpu: CpuId(0),
            class,
            boosted_from: None,
            nice: 0,
            mask: 0,
            state: State::New,
            mode: if class == Class::Kthread { Mode::Kernel } else { Mode::User },
            in_syscall: false,
            throttle_work: false,
            parked: false,
            kill_pending: false,
            stop_pending: false,
            exiting: false,
            has_left_autogroup: false,
            retries: false,
            call_delayed: false,
            sleep_delay_ns: 0,
            parking: false,
            parked_ns: 0,
            moving: Moving::No,
            passing: Passing::No,
            owes_ns: 0,
            entered_ns: 0,
            calls_since_ns: NEVER,
            requested_ns: 0,
            has_read_cpu_time: false,
            first_page_ns: None,
            is_program_work: false,
            absence: Absence::NONE,
            spinning: 0,
            code: Code::Kind,
            program: kind,
            pc: 0,
            continues_at: 0,
            loops: Vec::new(),
            segment: Segment::None,
            left_ns: 0,
            request_start_ns: 0,
            begun_ns: None,
            wakes_ns: 0,
            started_ns: 0,
            activations: 0,
            tokens: 0,
            sleeps: 0,
            parent: None,
            children: 0,
            random,
            usage_ns: 0,
            ready_since_ns: NEVER,
            wanted: WHOLE,
            wanted_ns: 0,
            ran_ns: 0,
            recent_cpu: CpuId(0),
            wakees: Wakees::default(),
            stalled_since_ns: NEVER,
        }
    }

    /// Start of the request under way, ns: as marked by its program, else its last event that
    /// begins one.
    pub fn request_since_ns(&self) -> u64 {
        self.begun_ns.unwrap_or(self.request_start_ns)
    }

    /// Whether it executes a job instead of its own program.
    pub fn does_job(&self) -> bool {
        self.program != self.kind
    }

    /// Whether it is in the fair class (`SCHED_IDLE` and kernel threads included), not real-time.
    pub fn is_fair(&self) -> bool {
        self.class != Class::Rt
    }

    /// Whether it ever returns to user mode, where it can be parked: not a kernel thread or other
    /// task outside the workload.
    pub fn has_user_mode(&self) -> bool {
        // Tests its kind, not its code, which is in another cache line.
        self.class != Class::Kthread && self.kind != u32::MAX
    }

    /// Whether it has nothing left to do in the kernel and is about to return to user mode.
    pub fn is_leaving_kernel(&self) -> bool {
        self.mode == Mode::Kernel
            && self.segment == Segment::None
            && !(self.in_syscall
                || self.exiting
                || self.sleep_delay_ns > 0
                || self.retries
                || self.call_delayed)
            && self.passing == Passing::No
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
    /// Kind and instance of each task so far, for a trace that needs their names.
    pub named: Vec<(u32, u32)>,
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
