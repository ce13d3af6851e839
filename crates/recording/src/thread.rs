//! A thread of a recording: its work and its waits, in order, without the time it waited for a CPU.

use crate::event::{Irq, PrevState};
use crate::steps::{Steps, push_one};
use crate::syscalls::{Hint, IoKind};
use std::cmp::Reverse;

pub(crate) use crate::steps::Step;

/// A shorter wait for a CPU does not count as queueing, ns.
const QUEUED_MIN_NS: u64 = 5_000;
/// Least number of observations from which a thread's CPUs are inferred; fewer may be chance.
const OBSERVATIONS_MIN: u32 = 10;
/// The load balancer moves a queued thread to an idle CPU within a tick, at most 10 ms (kernel:
/// `sched_balance_trigger()`). A thread that waits longer may not use the idle CPU, ns.
pub(crate) const LONG_QUEUED_NS: u64 = 10_000_000;
/// Priorities below this are those of `SCHED_FIFO`, `SCHED_RR` and `SCHED_DEADLINE`.
pub(crate) const REAL_TIME_BELOW: i32 = 100;
/// A thread with more priorities than this uses none of the further ones for long.
const PRIOS_MAX: usize = 16;
/// A thread that moves through more groups than this is in none of the further ones for long.
const GROUPS_MAX: usize = 64;

/// One thread. A thread id that was used again is another thread.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub tid: i32,
    pub pid: Option<i32>,
    /// Process that started the thread's process, if perf recorded it.
    pub parent_pid: Option<i32>,
    pub comm: String,
    /// Last known priority, as the kernel counts: below 100 real-time, 120 is nice 0.
    pub prio: i32,
    /// CPU time by priority, ns.
    prios_ns: Vec<(i32, u64)>,
    pub kthread: bool,
    pub birth: Birth,
    pub exited: bool,
    /// Whether it slept when the recording ended, so that its last burst is whole.
    pub asleep: bool,
    pub steps: Steps,
    pub waits: Vec<Wait>,
    /// Times in which it could run and did not, in order; those below 5 us are left out.
    pub queued: Vec<Queued>,
    /// Waits without a recorded wakeup that must have ended when a CPU ended its idle time.
    pub placed_waits: u64,
    /// Waits without a recorded wakeup that may have ended any time before the thread ran.
    pub guessed_waits: u64,
    /// Times it was about to sleep and ran on: no wakeup was recorded and no CPU was idle.
    pub merged_waits: u64,
    /// Indices of waits that may prove to be such, while the recording is read.
    pub doubtful_waits: Vec<u32>,
    /// CPU time in all, ns.
    pub runtime_ns: u64,
    /// CPU time that recording events took, already subtracted from `runtime_ns`, ns.
    pub cost_ns: u64,
    /// Cost of recording that is still to be subtracted because the time between events was
    /// shorter, and the most that may be owed, ns. Events differ, even where their average cost is
    /// known well.
    owed_ns: u64,
    pub owed_most_ns: u64,
    /// Wall time on a CPU, ns.
    pub wall_ns: u64,
    /// CPU time that the kernel charged, ns.
    pub charged_ns: u64,
    /// Index of the thread that this one was before it took another name or group.
    pub was: Option<u32>,
    /// When it left a CPU last, on the clock of the recording.
    pub last_ns: u64,
    /// Whether it was in a system call when it was first seen; `None` if it made none.
    pub starts_in_kernel: Option<bool>,
    /// Groups in which it was switched out, and how often.
    pub groups: Vec<(u64, u64)>,
    /// Mask of the CPUs 0 to 63 it was seen on; all bits if it was seen on another one.
    pub cpus: u64,
    /// Number of stays on a CPU.
    pub stays: u64,
    /// Long waits for a CPU; some ended with that CPU busy and another one idle for as long as the
    /// load balancer takes.
    long_queued: u32,
    long_queued_beside_idle: u32,
}

/// How a thread came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Birth {
    /// It existed before the recording, or its parent is unknown. `at_ns`: first seen, ns since the
    /// recording began.
    Present { at_ns: u64 },
    /// Another thread (index) started it, ns since the recording began.
    Forked { parent: u32, at_ns: u64 },
}

impl Birth {
    /// When it was first seen or forked, ns since the recording began.
    pub fn at_ns(self) -> u64 {
        let (Birth::Forked { at_ns, .. } | Birth::Present { at_ns }) = self;
        at_ns
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    /// When it left the CPU, on the clock of the recording.
    pub start_ns: u64,
    /// When it was woken (not when it ran again).
    pub end_ns: u64,
    pub left: PrevState,
    pub cause: Cause,
    /// The wait that its system call asks for, if it was recorded.
    pub hint: Option<Hint>,
}

/// `NET_RX_SOFTIRQ`.
const NET_RX: u32 = 3;

impl Wait {
    /// Whether data from the network ended it.
    pub fn is_for_network(&self) -> bool {
        self.cause == Cause::Interrupt(Interrupt::Soft { vector: NET_RX })
    }
}

/// A time in a run queue, or throttled, on the clock of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queued {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// The event that ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    Thread {
        edge: u32,
    },
    Interrupt(Interrupt),
    /// The wakeup was among the lost events.
    Unseen,
}

/// Kind of an interrupt, as far as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// A high-resolution timer.
    Timer,
    Device,
    /// A soft interrupt, by its number.
    Soft {
        vector: u32,
    },
    /// A soft interrupt of unknown number.
    SoftUnknown,
    Unknown,
}

impl From<Irq> for Interrupt {
    fn from(irq: Irq) -> Self {
        match irq {
            Irq::Handler => Interrupt::Device,
            Irq::Timer => Interrupt::Timer,
        }
    }
}

/// One thread wakes another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub waker: u32,
    /// The woken thread; the highest bit is set if it was waiting.
    wakee_used: u32,
    pub at_ns: u64,
}

impl Edge {
    const USED: u32 = 1 << 31;

    /// A wakeup of a thread that is not yet known to wait.
    pub fn new(waker: u32, wakee: u32, at_ns: u64) -> Edge {
        Edge { waker, wakee_used: wakee, at_ns }
    }

    /// Index of the woken thread.
    pub fn wakee(&self) -> u32 {
        self.wakee_used & !Edge::USED
    }

    /// Whether the woken thread was waiting.
    pub fn is_used(&self) -> bool {
        self.wakee_used & Edge::USED != 0
    }

    /// Moves the wakeup to the thread as which the woken one goes on.
    pub fn set_wakee(&mut self, wakee: u32) {
        self.wakee_used = wakee | self.wakee_used & Edge::USED;
    }

    /// Sets whether the woken thread was waiting.
    pub fn set_used(&mut self, used: bool) {
        self.wakee_used = self.wakee() | if used { Edge::USED } else { 0 };
    }
}

/// The way of a transfer: a descriptor of the thread's process, or, with the highest bit set, a
/// socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FdOrSocket(u32);

impl FdOrSocket {
    const SOCKET: u32 = 1 << 31;

    /// A descriptor of the process. A negative `fd` becomes a number that no descriptor has: calls
    /// on it fail.
    pub fn descriptor(fd: i32) -> FdOrSocket {
        FdOrSocket(u32::try_from(fd).unwrap_or(FdOrSocket::SOCKET - 1))
    }

    /// A socket by its number; they are numbered in the order in which they are first seen.
    pub fn socket(number: u32) -> FdOrSocket {
        FdOrSocket(number | FdOrSocket::SOCKET)
    }

    pub fn is_socket(self) -> bool {
        self.0 & FdOrSocket::SOCKET != 0
    }
}

/// Index of no thread.
pub(crate) const NO_THREAD: u32 = u32::MAX;

/// Data has come in at the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    pub socket: u32,
    pub at_ns: u64,
}

/// A system call that transfers data or asks for some, or a message of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Io {
    /// Index of the thread, or [`NO_THREAD`] where a socket changes its state.
    pub thread: u32,
    pub kind: IoKind,
    pub at: FdOrSocket,
    /// Bytes, a descriptor, or the number of ready descriptors; negative: an error.
    pub result: i32,
    pub entered_ns: u64,
    /// 0 if the end was not recorded.
    pub left_ns: u64,
}

impl Io {
    /// Whether it is a message of a socket whose system call was not recorded.
    pub fn is_message(&self) -> bool {
        self.at.is_socket() && self.entered_ns == self.left_ns
    }
}

/// The name of a thread without the digits at its end, which the threads of its kind share.
///
/// ```
/// assert_eq!(cpumax_recording::unnumbered("worker-12"), "worker-");
/// assert_eq!(cpumax_recording::unnumbered("12"), "12");
/// ```
pub fn unnumbered(name: &str) -> &str {
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "" => name,
        kind => kind,
    }
}

impl Thread {
    /// Its name without the digits at its end.
    pub fn unnumbered(&self) -> &str {
        unnumbered(&self.comm)
    }

    /// A thread of nice 0 of which only the id is known; 2 is `kthreadd`.
    pub fn new(tid: i32) -> Self {
        Thread {
            tid,
            pid: None,
            parent_pid: None,
            comm: String::new(),
            prio: 120,
            prios_ns: Vec::new(),
            kthread: tid == 2,
            birth: Birth::Present { at_ns: 0 },
            exited: false,
            asleep: false,
            steps: Steps::default(),
            waits: Vec::new(),
            queued: Vec::new(),
            placed_waits: 0,
            guessed_waits: 0,
            merged_waits: 0,
            doubtful_waits: Vec::new(),
            runtime_ns: 0,
            cost_ns: 0,
            owed_ns: 0,
            owed_most_ns: 0,
            wall_ns: 0,
            charged_ns: 0,
            was: None,
            last_ns: 0,
            starts_in_kernel: None,
            groups: Vec::new(),
            cpus: 0,
            stays: 0,
            long_queued: 0,
            long_queued_beside_idle: 0,
        }
    }

    /// When it began, on the clock of a recording that began at `first_ns`.
    pub fn birth_ns(&self, first_ns: u64) -> u64 {
        first_ns.saturating_add(self.birth.at_ns())
    }

    /// Id of its process, or its own where that was not recorded.
    pub fn process(&self) -> i32 {
        self.pid.unwrap_or(self.tid)
    }

    /// Whether it belongs to the tool that makes the recording, by its name.
    pub fn is_perf(&self) -> bool {
        matches!(&*self.comm, "perf" | "perf-exec" | "cpumax-record")
    }

    /// Clears its steps, waits and sums, and returns its waits; name, group and CPUs stay.
    pub fn forget(&mut self) -> Vec<Wait> {
        self.steps = Steps::default();
        (self.runtime_ns, self.wall_ns, self.stays) = (0, 0, 0);
        (self.charged_ns, self.prios_ns) = (0, Vec::new());
        (self.cost_ns, self.owed_ns) = (0, 0);
        (self.placed_waits, self.guessed_waits, self.merged_waits) = (0, 0, 0);
        self.doubtful_waits = Vec::new();
        self.starts_in_kernel = None;
        self.queued = Vec::new();
        std::mem::take(&mut self.waits)
    }

    /// Adds `ns` of execution, without the part that recording of events took: `cost_ns` and what
    /// is still owed. A cost above `ns` is owed up to `owed_most_ns`.
    pub fn run(&mut self, ns: u64, cost_ns: u32) {
        let owed_ns = self.owed_ns + u64::from(cost_ns);
        let cost_ns = owed_ns.min(ns);
        self.owed_ns = (owed_ns - cost_ns).min(self.owed_most_ns);
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
        let ns = ns - cost_ns;
        if ns == 0 {
            return;
        }
        self.runtime_ns = self.runtime_ns.saturating_add(ns);
        self.steps.push_run(ns);
    }

    /// Number of waits that data from the network ended.
    pub fn network_waits(&self) -> usize {
        self.waits.iter().filter(|wait| wait.is_for_network()).count()
    }

    /// Notes that it got a CPU after it could have run since `from_ns`; times below 5 us are
    /// dropped.
    pub fn add_queued(&mut self, from_ns: u64, to_ns: u64) {
        if to_ns.saturating_sub(from_ns) >= QUEUED_MIN_NS {
            push_one(&mut self.queued, Queued { from_ns, to_ns });
        }
    }

    /// Notes a long wait for a CPU; `kept`: that CPU was busy while another one was idle.
    pub fn add_long_wait(&mut self, kept: bool) {
        self.long_queued = self.long_queued.saturating_add(1);
        self.long_queued_beside_idle = self.long_queued_beside_idle.saturating_add(u32::from(kept));
    }

    /// Whether its affinity keeps it from some CPUs: most of its long waits, and at least ten, were
    /// for a busy CPU while another was idle.
    pub fn is_pinned(&self) -> bool {
        self.cpus != u64::MAX
            && self.long_queued_beside_idle >= OBSERVATIONS_MIN
            && 2 * u64::from(self.long_queued_beside_idle) > self.long_queued.into()
    }

    /// Whether it was on a CPU ten times, often enough to infer the CPUs that it may use.
    pub fn is_often_seen(&self) -> bool {
        self.stays >= OBSERVATIONS_MIN.into()
    }

    /// Counts a stay on this CPU.
    pub fn add_cpu(&mut self, cpu: usize) {
        self.stays += 1;
        // A thread seen on a CPU beyond 63 may use any: the mask does not hold it.
        self.cpus |= if cpu < 64 { 1 << cpu } else { u64::MAX };
    }

    /// Counts that it was switched out in this group; beyond 64 groups new ones are left out.
    pub fn add_group(&mut self, group: u64) {
        if let Some((_, times)) = self.groups.iter_mut().find(|(id, _)| *id == group) {
            *times += 1;
        } else if self.groups.len() < GROUPS_MAX {
            self.groups.push((group, 1));
        }
    }

    /// Adds CPU time at a priority; beyond 16 priorities new ones are left out.
    pub fn add_runtime_at(&mut self, prio: i32, ns: u64) {
        if let Some((_, sum_ns)) = self.prios_ns.iter_mut().find(|(at, _)| *at == prio) {
            *sum_ns = sum_ns.saturating_add(ns);
        } else if self.prios_ns.len() < PRIOS_MAX {
            self.prios_ns.push((prio, ns));
        }
    }

    /// CPU time used at a real-time priority, ns.
    pub fn real_time_ns(&self) -> u64 {
        let real_time = self.prios_ns.iter().filter(|(prio, _)| *prio < REAL_TIME_BELOW);
        real_time.fold(0, |sum, (_, ns)| sum.saturating_add(*ns))
    }

    /// The priority at which it used most CPU time; a real-time one if real-time priorities
    /// together have more than half of it.
    pub fn main_prio(&self) -> i32 {
        let real_time_ns = self.real_time_ns();
        let all_ns = self.prios_ns.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(*ns));
        let is_real_time = real_time_ns > all_ns / 2;
        let own = self.prios_ns.iter().filter(|(at, _)| (*at < REAL_TIME_BELOW) == is_real_time);
        own.max_by_key(|(at, ns)| (*ns, Reverse(*at))).map_or(self.prio, |(prio, _)| *prio)
    }

    /// The group in which it was switched out most often; `None` without any.
    pub fn group(&self) -> Option<u64> {
        let most = self.groups.iter().max_by_key(|(id, times)| (*times, *id));
        most.map(|(id, _)| *id)
    }
}
