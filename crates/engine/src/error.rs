//! Why a question gets no answer.

use cpumax_limit::LimitError;
use cpumax_machine::Error as MachineError;

/// Any error of what is outside, such as a file that traces are written to.
pub type OtherError = Box<dyn std::error::Error + Send + Sync>;

/// Why a question gets no answer: what is at fault, and what would be accepted.
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
    /// Nobody said which threads to limit, and the recording does not tell groups.
    #[error(
        "the recording does not tell control groups; say which threads to limit, such as \
         'comm:nginx*'. Threads that used most CPU time: {}",
        list(busy)
    )]
    NoGroups {
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
    #[error("no recorded thread is in the group '{path}'")]
    NotInGroup {
        /// Its path.
        path: String,
    },
    /// Limits of more than one group.
    #[error("the limits are of two groups, {first} and {other}: limits of one are compared")]
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
    /// The root group has no files of limits.
    #[error("the root group cannot be limited: give another group, or threads to limit")]
    Root,
    /// A limit that the kernel would refuse.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A workload that cannot be, such as one of a recording that is too large.
    #[error(transparent)]
    Workload(#[from] cpumax_workload::Error),
    /// What is to be changed is not said in the form `GROUP:FILE=VALUE`.
    #[error("{0}")]
    Change(String),
}

fn list(busy: &[(String, u64)]) -> String {
    let of = |(name, ns): &(String, u64)| format!("{name} ({:.1} ms)", *ns as f64 / 1e6);
    let busy: Vec<String> = busy.iter().map(of).collect();
    if busy.is_empty() { "none".to_owned() } else { busy.join(", ") }
}
