//! Errors of the library, whichever crate meets them.

use cpumax_limit::{BURST_SINCE, SettingError, one_line};
use cpumax_machine::Error as MachineError;
use cpumax_machine::kernel::KernelError;
use std::io;

/// Any error from outside the library, such as of a file that traces are written to.
pub type OtherError = Box<dyn std::error::Error + Send + Sync>;

/// Why a question gets no answer. The text names the faulty value and what would be accepted.
///
/// ```
/// use cpumax_study::{Error, Try, kernel};
///
/// let burst = Try::parse("500m,cpu.max.burst=10000")?;
/// let told = burst.lacks(kernel::parse_kernels("5.4")?[0]);
/// assert!(told.is_ok(), "the quota is left");
/// let told = Try::parse("2000m 100ms").unwrap_err();
/// assert!(matches!(told, Error::Setting(_)), "{told:?}");
/// assert!(told.to_string().contains("2000m"), "it names what is at fault: {told}");
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum Error {
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A run could not be completed.
    #[error("{run}: {source}")]
    Run { run: String, source: MachineError },
    /// The model contradicts itself: a fault of cpumax, worth a report.
    #[error("{run}: {what}")]
    ModelFault {
        run: String,
        /// Which assertion failed, and where.
        what: String,
    },
    /// The events of a run cannot be written.
    #[error(transparent)]
    Trace(OtherError),
    /// Threads cannot be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many; 0 stands for one on each CPU.
        threads: usize,
        reason: String,
    },
    /// A recording is too long to be replayed.
    #[error(
        "{name}: it spans {} s from its first event to its last, and at most 86400 s (a day) can \
         be replayed; one of its times may be damaged",
        span_ns / 1_000_000_000
    )]
    TooLong {
        name: String,
        /// Time from its first event to its last, ns.
        span_ns: u64,
    },
    /// The given window of the load is empty, or outside the recording.
    #[error(
        "the load cannot begin {} s after the start of the recording and end {} s after it: give \
         --from before --to, both within the {} s that were recorded",
        *from_ns as f64 / 1e9,
        *until_ns as f64 / 1e9,
        *span_ns as f64 / 1e9
    )]
    NoWindow {
        /// Given begin of the window, ns since the start of the recording.
        from_ns: u64,
        /// Given end of the window, ns since the start of the recording.
        until_ns: u64,
        span_ns: u64,
    },
    /// The given cost of recording leaves nothing of the recorded CPU time.
    #[error(
        "if recording a system call cost {syscall_ns} ns and another event {other_ns} ns, nothing \
         is left of the {} s of CPU time that the limited threads used: give less with \
         --event-cost or --syscall-cost",
        *recorded_ns as f64 / 1e9
    )]
    AllIsCost {
        /// Cost of each entry into and exit from a system call, ns.
        syscall_ns: u32,
        /// Cost of any other event, ns.
        other_ns: u32,
        /// CPU time with the cost of recording, ns.
        recorded_ns: u64,
    },
    /// No threads were chosen, and the recording has none in a group of its own.
    #[error(
        "{}; give the threads to limit, such as 'comm:nginx*'. Threads that used most CPU time: {}",
        no_groups(*recorded),
        list(busy)
    )]
    NoGroups {
        /// Whether groups were recorded; then all threads are in the root group.
        recorded: bool,
        /// Names of the busiest threads, each with its CPU time, ns.
        busy: Vec<(String, u64)>,
    },
    /// No thread matches the patterns.
    #[error("no recorded thread matches {patterns}")]
    NoThread { patterns: String },
    /// No thread is in the group that is to be limited.
    #[error("no recorded thread is in the group '{}'", one_line(.path))]
    NotInGroup { path: String },
    /// The limits are of different groups.
    #[error(
        "limits of two groups, {} and {}, cannot be compared: give limits of one group, or one \
         limit of both",
        one_line(.first),
        one_line(.other)
    )]
    TwoGroups { first: String, other: String },
    /// A limit names a group, and threads were chosen as well.
    #[error("a limit names the group {path}, and threads are chosen as well: give only one")]
    GroupAndThreads { path: String },
    /// The group has no group above it but the root.
    #[error("`pod:` means the group above '{}', and only the root is above it", one_line(.path))]
    NoPod { path: String },
    /// The question about a limit cannot be answered; the text says why.
    #[error("{0}")]
    Question(String),
    /// Every limit asked for has a burst, and the kernel has none.
    #[error("Linux {kernel} has no burst: that came with {BURST_SINCE}")]
    NoBurst { kernel: String },
    /// The root group has no limit.
    #[error("the root group cannot be limited: give another group, or threads to limit")]
    Root,
    /// A limit is not understood, or the kernel would refuse it.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A workload is impossible, such as one of a recording that is too large.
    #[error(transparent)]
    Workload(#[from] cpumax_workload::Error),
    /// A list of kernels is not understood.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A real kernel, or the machine that it is to run in, cannot do the run.
    #[error("{0}")]
    Refused(String),
    /// A real kernel cannot be run.
    #[error(transparent)]
    Lab(cpumax_lab::Error),
    /// No kernel of a range has been fetched.
    #[error("no kernel of {range} is here: `cpumax lab fetch {}` gets them", absent.join(" "))]
    NoneFetched { range: String, absent: Vec<String> },
    /// Time by instructions is for workloads of one CPU.
    #[error("{workload} has {cpus} CPUs, but time by instructions needs a workload of one CPU")]
    NotExact { workload: String, cpus: u16 },
    /// A file is not a study that was saved as JSON.
    #[error(
        "{path}: {what}; give a file that `cpumax replay --json` or `cpumax advise --json` wrote"
    )]
    Saved { path: String, what: String },
    /// A file cannot be read.
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    /// No scheduler answers at the socket.
    #[error("{socket}: no scheduler answers there; `cpumax sched` starts one")]
    NoScheduler { socket: String, source: io::Error },
    /// The scheduler, or another program at its socket, takes questions and does not answer.
    #[error("{socket}: no answer for {seconds} s; the program that listens there may be stopped")]
    SilentScheduler { socket: String, seconds: u64 },
    /// Another program than the scheduler answers at the socket.
    #[error("{socket}: not an answer of scx_cpumax")]
    NotTheScheduler { socket: String, source: serde_json::Error },
    /// A recording cannot be read.
    #[error(transparent)]
    Recording(#[from] cpumax_recording::Error),
    /// A scenario cannot be read; the text says why, and what may have been meant.
    #[error("{0}")]
    Scenario(String),
    /// An expectation of a scenario cannot be checked.
    #[error("{place}: {what}")]
    Expectation { place: String, what: String },
    /// A change to a workload is not possible; the text says why.
    #[error("{0}")]
    Change(String),
}

impl From<cpumax_lab::Error> for Error {
    /// Interruptions and refusals become errors of studies; every other error is [`Error::Lab`].
    fn from(error: cpumax_lab::Error) -> Error {
        match error {
            cpumax_lab::Error::Interrupted => Error::Interrupted,
            cpumax_lab::Error::Refused { reason } => Error::Refused(reason),
            error => Error::Lab(error),
        }
    }
}

/// The half sentence on why there is no group to limit; `recorded`: whether the recording has
/// groups.
#[must_use]
pub fn no_groups(recorded: bool) -> &'static str {
    if recorded {
        "all recorded threads are in the root group, which has no limit"
    } else {
        "the recording has no control groups"
    }
}

/// Names and CPU times of threads in ms, for a message; "none" if there are none.
fn list(busy: &[(String, u64)]) -> String {
    let of = |(name, ns): &(String, u64)| format!("{name} ({:.1} ms)", *ns as f64 / 1e6);
    let busy: Vec<String> = busy.iter().map(of).collect();
    if busy.is_empty() { "none".to_owned() } else { busy.join(", ") }
}
