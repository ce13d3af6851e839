//! Why a question gets no answer.

use cpumax_limit::{BURST_SINCE, SettingError, one_line};
use cpumax_machine::Error as MachineError;
use cpumax_machine::kernel::KernelError;
use std::io;

/// Any error of what is outside, such as a file that traces are written to.
pub type OtherError = Box<dyn std::error::Error + Send + Sync>;

/// Why a question gets no answer: what is at fault, and what would be accepted.
///
/// ```
/// use cpumax_engine::{Error, Try, kernel};
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
pub enum Error {
    /// The caller said stop.
    #[error("interrupted")]
    Interrupted,
    /// A run that cannot be completed.
    #[error("{run}: {source}")]
    Run {
        /// Scenario, kernel and seed.
        run: String,
        /// Why not.
        source: MachineError,
    },
    /// The model contradicts itself: a fault of it, worth a report.
    #[error("{run}: {what}")]
    ModelFault {
        /// Scenario, kernel and seed.
        run: String,
        /// Which assertion failed, and where.
        what: String,
    },
    /// The events of a run cannot be written.
    #[error(transparent)]
    Trace(OtherError),
    /// Threads on which to run cannot be started.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many; 0 for one on each CPU.
        threads: usize,
        /// What the system says.
        reason: String,
    },
    /// A recording that is too long to be replayed.
    #[error(
        "{name}: from its first event to its last it takes {} s, and at most a day can be \
         replayed; is one of its times damaged?",
        span_ns / 1_000_000_000
    )]
    TooLong {
        /// The recording.
        name: String,
        /// From its first event to its last, ns.
        span_ns: u64,
    },
    /// The load is told to end before it begins, or to be where the recording is not.
    #[error(
        "the load cannot begin {} s after the start of the recording and end {} s after it: give \
         --from before --to, both within the {} s that were recorded",
        *from_ns as f64 / 1e9,
        *until_ns as f64 / 1e9,
        *span_ns as f64 / 1e9
    )]
    NoWindow {
        /// When it is told to begin, ns since the recording did.
        from_ns: u64,
        /// When it is told to end.
        until_ns: u64,
        /// Length of the recording, ns.
        span_ns: u64,
    },
    /// Recording is said to have cost all the CPU time that was recorded.
    #[error(
        "if recording a system call cost {syscall_ns} ns and another event {other_ns} ns, nothing \
         is left of the {} s of CPU time that the limited threads used: give less with \
         --event-cost or --syscall-cost",
        *recorded_ns as f64 / 1e9
    )]
    AllIsCost {
        /// Of each entry into and exit from a system call, ns.
        syscall_ns: u32,
        /// Of any other event, ns.
        other_ns: u32,
        /// CPU time with that of recording, ns.
        recorded_ns: u64,
    },
    /// Nobody said which threads to limit, and no thread was recorded in a group of its own.
    #[error(
        "{}; say which threads to limit, such as 'comm:nginx*'. Threads that used most CPU time: \
         {}",
        no_groups(*recorded),
        list(busy)
    )]
    NoGroups {
        /// Whether groups were recorded: then all threads are in the root group.
        recorded: bool,
        /// Names of some, each with its CPU time, ns.
        busy: Vec<(String, u64)>,
    },
    /// No thread matches what was chosen.
    #[error("no recorded thread matches {patterns}")]
    NoThread {
        /// The patterns, with spaces between.
        patterns: String,
    },
    /// No thread is in the group that is to be limited.
    #[error("no recorded thread is in the group '{}'", one_line(.path))]
    NotInGroup {
        /// Its path.
        path: String,
    },
    /// Limits of more than one group.
    #[error(
        "limits of two groups, {} and {}, are not compared: one limit may be of both",
        one_line(.first),
        one_line(.other)
    )]
    TwoGroups {
        /// Path of one.
        first: String,
        /// Path of another.
        other: String,
    },
    /// A limit names a group, and threads are chosen as well.
    #[error("a limit names the group {path} and threads are chosen too: give one of them")]
    GroupAndThreads {
        /// Path of the group.
        path: String,
    },
    /// No group is above the one in question but the root.
    #[error("there is no pod: no group is above '{}' but the root", one_line(.path))]
    NoPod {
        /// Path of the group.
        path: String,
    },
    /// What is asked of a limit cannot be answered.
    #[error("{0}")]
    Question(String),
    /// Every limit asked for has a burst, and the kernel does not know any.
    #[error("Linux {kernel} has no burst: that came with {BURST_SINCE}")]
    NoBurst {
        /// Its version.
        kernel: String,
    },
    /// The root group has no files of limits.
    #[error("the root group cannot be limited: give another group, or threads to limit")]
    Root,
    /// A limit that is not understood, or that the kernel would refuse.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A workload that cannot be, such as one of a recording that is too large.
    #[error(transparent)]
    Workload(#[from] cpumax_workload::Error),
    /// A list of kernels.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A run that a real kernel, or the machine that it is to run in, cannot do.
    #[error("{0}")]
    Refused(String),
    /// A real kernel cannot be run.
    #[error(transparent)]
    Lab(cpumax_lab::Error),
    /// Of a range of kernels none has been fetched.
    #[error("no kernel of {range} is here: `cpumax lab fetch {}` gets them", absent.join(" "))]
    NoneFetched {
        /// The range.
        range: String,
        /// Names of its kernels.
        absent: Vec<String>,
    },
    /// Time by instructions is for one CPU.
    #[error("{workload} has {cpus} CPUs, and time passes by instructions on one only")]
    NotExact {
        /// The scenario.
        workload: String,
        /// How many CPUs it has.
        cpus: u16,
    },
    /// What is to be a study that was saved as JSON, and is none.
    #[error(
        "{path}: {what}; give a file that `cpumax replay --json` or `cpumax advise --json` wrote"
    )]
    Saved {
        /// Which file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// A file that cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// Nobody answers for the scheduler.
    #[error("{socket}: no scheduler answers there; `cpumax sched` starts one")]
    NoScheduler {
        /// Where it was asked.
        socket: String,
        /// What the system says.
        source: io::Error,
    },
    /// The scheduler, or what is in its place, takes questions and does not answer them.
    #[error("{socket}: no answer for {seconds} s: is what listens there stopped?")]
    SilentScheduler {
        /// Where it was asked.
        socket: String,
        /// How long it said nothing.
        seconds: u64,
    },
    /// What answers is not the scheduler.
    #[error("{socket}: not an answer of scx_cpumax")]
    NotTheScheduler {
        /// Where it was asked.
        socket: String,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
    /// A recording that cannot be read.
    #[error(transparent)]
    Recording(#[from] cpumax_recording::Error),
    /// What is no scenario: what it is instead, or what may have been meant.
    #[error("{0}")]
    Scenario(String),
    /// What a scenario expects cannot be checked.
    #[error("{place}: {what}")]
    Expectation {
        /// Which scenario, and which of its expectations.
        place: String,
        /// Why not.
        what: String,
    },
    /// A limit is tried that names no group, and no group of the workload has one.
    #[error(
        "no group of the workload has a limit: name the one that is to have it, as in /a:LIMIT"
    )]
    NoLimit,
    /// What is to be changed is not there.
    #[error("{0}")]
    Change(String),
}

impl From<cpumax_lab::Error> for Error {
    fn from(error: cpumax_lab::Error) -> Error {
        match error {
            cpumax_lab::Error::Interrupted => Error::Interrupted,
            cpumax_lab::Error::Refused { reason } => Error::Refused(reason),
            error => Error::Lab(error),
        }
    }
}

/// Why there is no group to limit; `recorded`: whether groups were.
#[must_use]
pub fn no_groups(recorded: bool) -> &'static str {
    if recorded {
        "all recorded threads are in the root group, which has no limit"
    } else {
        "the recording does not tell control groups"
    }
}

fn list(busy: &[(String, u64)]) -> String {
    let of = |(name, ns): &(String, u64)| format!("{name} ({:.1} ms)", *ns as f64 / 1e6);
    let busy: Vec<String> = busy.iter().map(of).collect();
    if busy.is_empty() { "none".to_owned() } else { busy.join(", ") }
}
