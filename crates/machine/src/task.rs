//! A task: where it is, what it is doing, and what it still has to do.

use crate::absence::Absence;
use crate::events::NEVER;
use crate::fair::pelt::WHOLE;
use crate::fair::placement::Wakees;
use crate::ids::{ChannelId, CpuId, GroupId, LockId, SeId, TaskId};
use cpumax_workload::{Class, LockMode, Stream};
use std::num::NonZeroU64;

/// What a task is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not started yet.
    New,
    /// Running, queued, or parked.
    Runnable,
    /// Waiting for something that a signal can interrupt.
    Asleep(Wait),
    /// Stopped by a signal.
    Stopped,
    Exited,
}

/// What a sleeping task waits for.
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

/// A move of oneself to another group, where that takes time (kernel: `cgroup_procs_write()`): it
/// holds `cgroup_mutex`, and the second half of it is done in the new group, where the CPU chooses
/// anew very soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moving {
    No,
    Enters { in_syscall: bool },
    Out { in_syscall: bool },
    Moved { in_syscall: bool },
    In { in_syscall: bool },
}

/// Where a task is at `cgroup_threadgroup_rwsem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Not there.
    No,
    /// In a fork or a move: it has asked for the lock, and has it when it goes on.
    Asked,
    /// It works inside.
    Inside,
    /// At its end it waits for the lock, and has it when it goes on.
    Ends,
    /// It has been through at its end.
    Ended,
}

/// The piece of work under way.
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
    /// Spinning for a mutex or rwsem while who has it runs.
    SpinOnOwner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    User,
    Kernel,
}

/// Where a task's instructions come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The program of its kind.
    Kind,
    /// A real-time kernel's timer thread, waiting for work.
    SoftirqIdle,
    /// The same, in the section of that number.
    Softirq(u32),
    /// Whoever brings in what comes from outside.
    Outside,
}

/// What parking, coming back and switching touch comes first and fits a cache line.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct Task {
    pub se: SeId,
    pub group: GroupId,
    pub cpu: CpuId,
    /// Its kind in the workload; `u32::MAX` for those that are in no workload (see [`Code`]).
    pub kind: u32,

    pub state: State,
    pub class: Class,
    pub nice: i8,
    pub mode: Mode,
    /// Inside an `EnterKernel` .. `ExitKernel` of its program.
    pub in_syscall: bool,
    /// Return-to-user work is attached (6.18+).
    pub throttle_work: bool,
    /// It is about to park (under noise).
    pub parking: bool,
    /// On a limbo list.
    pub parked: bool,
    pub kill_pending: bool,
    pub stop_pending: bool,
    pub exiting: bool,
    /// It was woken to execute an instruction again, in the kernel.
    pub retries: bool,
    /// It is in a call, and comes to what that is for again when it goes on.
    pub again: bool,
    /// It is on its way to a sleep that ends at `wakes_ns`, or so much later if that is a
    /// span; else 0.
    pub going_ns: u16,
    pub segment: Segment,
    pub left_ns: u64,
    /// Since when it is ready but not running, ns, or [`NEVER`].
    pub ready_since_ns: u64,
    /// Since when it wants to go on and does not, ns, or [`NEVER`].
    pub stalled_since_ns: u64,

    /// Spin locks held: it is not preempted.
    pub spinning: u16,
    /// That far it has come in its exit (under noise).
    pub left_autogroup: bool,
    /// How long it will take, where it parks, from when it is off the queue to the switch, ns
    /// (under noise).
    pub parked_ns: u16,
    /// What calls took that no workload speaks of, ns: so much less it works next; so much more, if
    /// it worked less than it should have.
    pub owes_ns: i64,
    /// What of its next work in the kernel it has done on its way to a lock, ns.
    pub entered_ns: u32,
    /// What it is to have used by the work that its program asked for so far, ns.
    pub asked_ns: u64,
    /// It has asked what CPU time it has used, after its last call.
    pub has_asked: bool,
    /// Since when it is in calls after which it does not look at the clock before it has worked
    /// again, ns, or [`NEVER`].
    pub calls_since_ns: u64,
    /// What is left of its work in the kernel when it begins with the first page, ns, if it reads
    /// pages (under noise).
    pub first_page_ns: Option<NonZeroU64>,
    /// Its segment is work of the workload, not what a call needs beside (under noise).
    pub works: bool,
    pub absence: Absence,
    /// CPU time used, ns (real-time class included).
    pub usage_ns: u64,
    /// How far it is in a move that takes time.
    pub moving: Moving,
    pub passing: Passing,
    pub code: Code,
    /// Which program it executes: its kind's, or a job's (see `Machine::programs`).
    pub program: u32,
    pub pc: u32,
    /// In a job: where it goes on in its own program.
    pub goes_on_at: u32,
    /// CPUs it may use: an index into the machine's masks.
    pub mask: u32,
    /// How many of its kind came before it.
    pub instance: u32,
    /// How many tasks came before it at all.
    pub number: u32,
    /// The class it goes back to when a lock it was boosted for is released (`PREEMPT_RT`).
    pub boosted_from: Option<Class>,
    /// Rounds left of the loops it is in, innermost last.
    pub loops: Vec<u64>,
    /// Start of the request under way, where its program does not say when that is, ns.
    pub request_start_ns: u64,
    /// Where it does, ns.
    pub begun_ns: Option<u64>,
    /// When the sleep ends that it is on its way to, ns.
    pub wakes_ns: u64,
    /// Start of the task, and how many periods of an `Every` have been begun.
    pub started_ns: u64,
    pub activations: u64,
    /// Tokens it waits to receive or send.
    pub tokens: u64,
    /// Counts sleeps, so that a timer knows whether it is still waited for.
    pub sleeps: u32,
    /// Who forked it, and the number of that one, as another task may be there by now.
    pub parent: Option<(TaskId, u32)>,
    pub children: u32,
    pub random: Stream,
    /// How much of the last time it wanted to run, averaged; [`WHOLE`] is all of it. And up to when
    /// that is true, ns.
    pub wanted: u64,
    /// See there.
    pub wanted_ns: u64,
    /// When it left its CPU last, ns.
    pub ran_ns: u64,
    /// Where it was when it was woken last (kernel: `recent_used_cpu`).
    pub recent_cpu: CpuId,
    pub wakees: Wakees,
}

const _: () = assert!(std::mem::offset_of!(Task, stalled_since_ns) + 8 == 64);

impl Task {
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
            left_autogroup: false,
            retries: false,
            again: false,
            going_ns: 0,
            parking: false,
            parked_ns: 0,
            moving: Moving::No,
            passing: Passing::No,
            owes_ns: 0,
            entered_ns: 0,
            calls_since_ns: NEVER,
            asked_ns: 0,
            has_asked: false,
            first_page_ns: None,
            works: false,
            absence: Absence::NONE,
            spinning: 0,
            code: Code::Kind,
            program: kind,
            pc: 0,
            goes_on_at: 0,
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

    /// Start of the request under way, ns.
    pub fn request_since_ns(&self) -> u64 {
        self.begun_ns.unwrap_or(self.request_start_ns)
    }

    /// Whether it does a job, and is not in its own program.
    pub fn does_job(&self) -> bool {
        self.program != self.kind
    }

    pub fn is_fair(&self) -> bool {
        self.class != Class::Rt
    }

    /// Whether it ever returns to user mode, where it can be parked.
    pub fn has_user_mode(&self) -> bool {
        // Asked of its kind rather than of its code, which is in another cache line.
        self.class != Class::Kthread && self.kind != u32::MAX
    }

    /// Whether it has nothing left to do in the kernel and is about to return to user mode.
    pub fn is_leaving_kernel(&self) -> bool {
        self.mode == Mode::Kernel
            && self.segment == Segment::None
            && !(self.in_syscall || self.exiting || self.going_ns > 0 || self.retries || self.again)
            && self.passing == Passing::No
            && self.has_user_mode()
    }
}
