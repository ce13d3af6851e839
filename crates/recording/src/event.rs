//! The events a recording consists of, whatever file they were read from.
//!
//! The readers (`perf_data`, `perf_script`, `perfetto`, `trace_dat`) translate into these and hand
//! them, in order of time as far as the file has it, to the [`Sink`] that assembles threads from
//! them (`timeline`). Strings are borrowed: an event lives no longer than the record it was read
//! from.

use crate::about::{About, Ended};

/// One event: when, where, in whose context, what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    /// On the clock of the recording.
    pub time_ns: u64,
    pub cpu: u32,
    /// The thread that was running; 0 is the idle task, -1 one that has just been reaped.
    pub tid: i32,
    /// Its process, where the file says so.
    pub pid: Option<i32>,
    /// Its name, where the file says so beside the event.
    pub comm: Option<&'a str>,
    /// Its control group, where the file says so.
    pub cgroup: Option<u64>,
    /// What the processor was doing, where the file says so.
    pub context: Option<Context>,
    pub kind: Kind<'a>,
}

impl Event<'_> {
    /// One of which only the time and the CPU are known.
    pub fn of_nobody(time_ns: u64, cpu: u32) -> Self {
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

/// Interrupt context, from the flags every tracepoint carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    pub hardirq: bool,
    pub softirq: bool,
}

/// A thread as a scheduler tracepoint names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub tid: i32,
    pub comm: &'a str,
    /// As the kernel counts: below 100 real-time, 120 is nice 0.
    pub prio: i32,
}

/// Why a thread left the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Left {
    /// Preempted, or it yielded, or it was throttled: it wants to go on.
    Runnable,
    /// Interruptible sleep.
    Sleeping,
    /// Uninterruptible sleep.
    Blocked,
    /// A kernel thread with nothing to do.
    Idle,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Exited.
    Dead,
}

/// Among the flags of a receiving call: what is read stays to be read.
pub(crate) const MSG_PEEK: i64 = 2;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    Switch {
        prev: Named<'a>,
        left: Left,
        next: Named<'a>,
    },
    /// `sched_waking`, or `sched_wakeup` in files that have no other.
    Waking(Named<'a>),
    /// The first wakeup of a new thread.
    WakeupNew(Named<'a>),
    /// `sched_process_fork`.
    Fork {
        child: i32,
        child_comm: &'a str,
    },
    /// `sched_stat_runtime`: charged to the thread since the last such event or since it got on.
    Runtime {
        tid: i32,
        ns: u64,
    },
    SysEnter {
        number: i64,
        args: [u64; 6],
    },
    SysExit {
        /// What the call returned.
        result: i64,
    },
    /// A device's handler or an expired high-resolution timer begins.
    IrqEnter(Irq),
    IrqExit(Irq),
    SoftirqEnter {
        vector: u32,
    },
    SoftirqExit,
    /// The kernel has sent so many bytes for the thread, or failed to (negative). Sockets are told
    /// apart by their addresses.
    SocketSent {
        socket: u64,
        result: i64,
    },
    /// The thread has received so many bytes, or none (negative).
    SocketReceived {
        socket: u64,
        result: i64,
    },
    /// Data has come in for whoever reads from the socket.
    DataReady {
        socket: u64,
    },
    /// A TCP socket goes from one state to another.
    SocketState {
        socket: u64,
        from: u32,
        to: u32,
    },
    /// A tracepoint that is of no use here: it only tells that its thread exists.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Irq {
    Handler,
    Timer,
}

/// What perf itself notes between the samples.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Note<'a> {
    /// A thread has (or takes) this name.
    Comm { pid: i32, tid: i32, comm: &'a str },
    /// A thread exists; synthesized for those that existed before the recording began.
    Task { pid: i32, tid: i32, parent_pid: i32 },
    /// Samples carrying this id are from threads in this group.
    Cgroup { id: u64, path: &'a str },
    /// Events the kernel had no room for. Newer kernels count them in two ways: in the stream where
    /// they are missing, and for each event when it is closed (`by_the_kernel`).
    Lost { events: u64, by_the_kernel: bool },
    /// Events of this CPU are missing here.
    LostOn { cpu: u32, events: u64 },
    /// So many events of the beginning were overwritten by later ones.
    Overwritten { events: u64 },
}

/// What the head of the file says of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// E.g. `6.18.1`.
    pub kernel: Option<String>,
    /// E.g. `x86_64`.
    pub arch: Option<String>,
    /// Processors on line.
    pub cpus: Option<u32>,
    /// Processors there can be: their numbers are below this.
    pub cpus_possible: Option<u32>,
    /// The command that made the recording.
    pub command: Option<String>,
    /// What a recording of `cpumax record` says of itself.
    pub about: Option<Box<About>>,
    pub ended: Option<Box<Ended>>,
}

/// Takes what a reader finds.
pub(crate) trait Sink {
    fn machine(&mut self, machine: Machine);
    /// The reader holds up to so many bytes to put events in order.
    fn reader_holds(&mut self, _bytes: u64) {}
    fn event(&mut self, event: &Event<'_>) -> Result<(), Enough>;
    fn note(&mut self, note: &Note<'_>);
    fn defect(&mut self, defect: crate::Defect);
}

/// Why no further events are taken.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Enough {
    /// The events contradict each other so often that the file cannot be believed.
    Backwards { backwards: u64, events: u64, by_at_most_ns: u64 },
    /// More threads did something than there may be.
    Threads { most: usize },
    /// More would have to be kept than there may be: what there is so far.
    Kept { events: u64, threads: u64, steps: u64, waits: u64, ios: u64 },
    /// Who takes them has seen what it came for.
    Seen,
}
