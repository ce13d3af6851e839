//! The events of a recording, whatever file they came from.
//!
//! The readers (`perf_data`, `perf_script`, `perfetto`, `trace_dat`, `wprof`) produce them and hand
//! them to a [`Sink`], in order of time as far as the file has it. The main sink is `timeline`,
//! which assembles threads. Strings are borrowed: an event lives no longer than its record.

use crate::about::{About, Ended};

/// Larger numbers of CPUs are taken for damage.
pub(crate) const CPUS_MAX: u32 = 4096;

/// One event: time, CPU, the running thread, and what happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    /// On the clock of the recording.
    pub time_ns: u64,
    pub cpu: u32,
    /// The running thread; 0 is the idle task, -1 is unknown or a thread that has just been reaped.
    pub tid: i32,
    /// Process of the running thread, if recorded.
    pub pid: Option<i32>,
    /// Name of the running thread, where the file has it beside the event.
    pub comm: Option<&'a str>,
    /// Control group of the running thread, if recorded.
    pub cgroup: Option<u64>,
    /// Interrupt context, if recorded.
    pub context: Option<Context>,
    pub kind: Kind<'a>,
}

impl Event<'_> {
    /// An event of kind `Other` without a thread: only its time and CPU are known.
    pub fn without_thread(time_ns: u64, cpu: u32) -> Self {
        Event {
            time_ns,
            cpu,
            tid: -1,
            pid: None,
            comm: None,
            cgroup: None,
            context: None,
            kind: Kind::Other,
        }
    }
}

/// Interrupt context, from the flags that every tracepoint carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    pub hardirq: bool,
    pub softirq: bool,
}

/// A thread as a scheduler tracepoint names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadRef<'a> {
    pub tid: i32,
    pub comm: &'a str,
    /// Kernel priority: below 100 real-time, 120 is nice 0.
    pub prio: i32,
}

/// Why a thread left the CPU: `prev_state` of `sched_switch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PrevState {
    /// Preempted, yielding or throttled: it can run on.
    Runnable,
    Sleeping,
    /// Uninterruptible sleep.
    Blocked,
    /// A kernel thread with nothing to do (`TASK_IDLE`).
    Idle,
    /// Stopped by a signal or a debugger.
    Stopped,
    Dead,
}

impl PrevState {
    /// Whether the thread waits for something: it is neither runnable nor dead.
    pub fn is_sleep(self) -> bool {
        !matches!(self, PrevState::Runnable | PrevState::Dead)
    }
}

/// Flag of a receiving call that leaves the data in the socket.
pub(crate) const MSG_PEEK: i64 = 2;

/// The CPU that a wakeup names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// `sched_waking`: on which the thread was last.
    Last(u32),
    /// `sched_wakeup`: on which it will run.
    Next(u32),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    Switch {
        prev: ThreadRef<'a>,
        left: PrevState,
        next: ThreadRef<'a>,
    },
    /// `sched_waking`, or `sched_wakeup` in files that have no other.
    Waking(ThreadRef<'a>, Option<Named>),
    /// With the CPU on which it will run.
    WakeupNew(ThreadRef<'a>, Option<u32>),
    /// `sched_migrate_task`: a thread goes to this CPU.
    Migrate {
        to: u32,
    },
    Fork {
        child: i32,
        child_comm: &'a str,
    },
    /// `sched_stat_runtime`: CPU time charged since the last such event, or since the thread got on
    /// the CPU.
    Runtime {
        tid: i32,
        ns: u64,
    },
    SysEnter {
        number: i64,
        args: [u64; 6],
    },
    SysExit {
        result: i64,
    },
    /// The handler of a device, or an expired high-resolution timer, begins.
    IrqEnter(Irq),
    IrqExit(Irq),
    SoftirqEnter {
        vector: u32,
    },
    SoftirqExit,
    /// The kernel has sent `result` bytes for the thread; negative: it failed to. Sockets are
    /// distinguished by their addresses.
    SocketSent {
        socket: u64,
        result: i64,
    },
    /// The thread has received `result` bytes; negative: none.
    SocketReceived {
        socket: u64,
        result: i64,
    },
    DataReady {
        socket: u64,
    },
    SocketState {
        socket: u64,
        from: u32,
        to: u32,
    },
    /// Another tracepoint: it only shows that its thread exists.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Irq {
    Handler,
    Timer,
}

/// Records of perf between the samples, about threads, groups and lost events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Note<'a> {
    /// A thread has, or takes, this name.
    Comm { pid: i32, tid: i32, comm: &'a str },
    /// A thread exists; synthesized for those that existed before the recording began.
    Task { pid: i32, tid: i32, parent_pid: i32 },
    /// Samples with this id are of threads in this group.
    Cgroup { id: u64, path: &'a str },
    /// Events that the kernel had no room for. Newer kernels count them twice: in the stream where
    /// they are missing, and for each event when it is closed (`by_the_kernel`).
    Lost { events: u64, by_the_kernel: bool },
    /// Events of this CPU are missing here.
    LostOn { cpu: u32, events: u64 },
    /// The number of events at the beginning that later ones overwrote.
    Overwritten { events: u64 },
}

/// The machine, as the head of the file describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// E.g. `6.18.1`.
    pub kernel: Option<String>,
    /// E.g. `x86_64`.
    pub arch: Option<String>,
    /// CPUs online.
    pub cpus: Option<u32>,
    /// CPUs that there can be: their numbers are below this.
    pub cpus_possible: Option<u32>,
    pub command: Option<String>,
    /// The description that `cpumax record` puts into its recordings, at the beginning and at the
    /// end.
    pub about: Option<Box<About>>,
    pub ended: Option<Box<Ended>>,
}

/// Takes the events of a reader.
pub(crate) trait Sink {
    /// Takes the machine; readers call it before the first event.
    fn machine(&mut self, machine: Machine);
    /// Takes the most bytes that the reader holds to put events in order.
    fn reader_holds(&mut self, _bytes: u64) {}
    /// Takes an event, in order of time as far as the file has it. An error: no further ones are
    /// wanted.
    fn event(&mut self, event: &Event<'_>) -> Result<(), Stop>;
    /// Takes a record about threads, groups or lost events.
    fn note(&mut self, note: &Note<'_>);
    /// Counts a fault of the file that the reader has repaired.
    fn defect(&mut self, defect: crate::Defect);
}

/// Why a sink takes no further events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// Too many events are earlier than the one before them.
    Misordered { backwards: u64, events: u64, by_at_most_ns: u64 },
    /// More threads did something than are read.
    TooManyThreads { most: usize },
    /// The bound of memory is reached; the numbers are those kept so far.
    TooMuchToKeep { events: u64, threads: u64, steps: u64, waits: u64, ios: u64 },
    /// The sink needs no more events.
    SeenEnough,
}
