//! Faults that make a recording unreadable as a whole. Lesser faults are repaired and counted: see
//! [`Defects`](crate::Defects).

use crate::tracepoint::RECORD_WITH;
use std::io;

/// A recording that cannot be read, with the place and what would be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is of no form that is read.
    #[error(
        "{name}: {what}; perf.data, trace.dat, Perfetto traces, JSON of wprof and text of `perf \
         script`, `trace-cmd report`, ftrace or atrace are read; `perf sched record -a \
         --all-cgroups -- sleep 10` records"
    )]
    NotARecording {
        /// The file.
        name: String,
        /// The kind of file it is instead.
        what: String,
    },
    /// The file lacks its end, without which the rest cannot be understood.
    #[error(
        "{name}: the file is cut: {what}; the descriptions of the events are at its end, so it \
         cannot be read without; copy it again, or record again and stop perf with SIGINT so that \
         it finishes the file"
    )]
    Cut {
        /// The file.
        name: String,
        /// How the cut was noticed, with sizes in bytes.
        what: String,
    },
    /// A part of the file contradicts the format.
    #[error("{name}: {place}: {what}")]
    Malformed {
        /// The file.
        name: String,
        /// A byte offset, record, section or line.
        place: String,
        /// The fault at that place.
        what: String,
    },
    /// The recording lacks what is needed here, or has a form that is not read.
    #[error("{name}: {what}")]
    Unsupported {
        /// The file.
        name: String,
        /// The missing thing, and the command that records it.
        what: String,
    },
    /// The recording says something that cannot be true of a machine, or lacks too much.
    #[error("{name}: {what}")]
    Implausible {
        /// The file.
        name: String,
        /// The contradiction, and the command that records all that is needed.
        what: String,
    },
    /// The clock goes backwards too often to believe the order of events.
    #[error(
        "{name}: {backwards} of {events} events are earlier than the one before them (by up to \
         {by_at_most_ns} ns): the clocks of the CPUs do not agree; record with `perf record -k \
         CLOCK_MONOTONIC`, sort the text by time, or print times instead of differences"
    )]
    Misordered {
        /// The file.
        name: String,
        /// Events earlier than their predecessor.
        backwards: u64,
        /// Events read until reading stopped.
        events: u64,
        /// The largest step backwards, ns.
        by_at_most_ns: u64,
    },
    /// A pattern that chooses no threads.
    #[error(
        "`{}` chooses no threads: {what}; use pid:NUMBER, comm:PATTERN, cgroup:PATTERN or PATTERN, \
         where PATTERN may contain * and ?",
        cpumax_limit::one_line(.pattern)
    )]
    Selector {
        /// The pattern as given.
        pattern: String,
        /// The fault in it.
        what: String,
    },
}

impl Error {
    /// The error of a file that cannot be opened or read.
    pub(crate) fn io(name: &str, source: io::Error) -> Error {
        Error::Io { name: name.to_owned(), source }
    }

    /// The error of a file of no form that is read; `what` tells its kind.
    pub(crate) fn not_a_recording(name: &str, what: impl Into<String>) -> Error {
        Error::NotARecording { name: name.to_owned(), what: what.into() }
    }

    /// The error of a file that contradicts its format. `place`: a byte offset, record, section or
    /// line.
    pub(crate) fn malformed(
        name: &str,
        place: impl Into<String>,
        what: impl Into<String>,
    ) -> Error {
        Error::Malformed { name: name.to_owned(), place: place.into(), what: what.into() }
    }

    /// The error of a recording that lacks what is needed; `what` tells that, and how to record it.
    pub(crate) fn unsupported(name: &str, what: impl Into<String>) -> Error {
        Error::Unsupported { name: name.to_owned(), what: what.into() }
    }

    /// The error of a recording without thread switches, with the command that records them.
    pub(crate) fn no_switches(name: &str) -> Error {
        Error::unsupported(name, format!("it holds no sched_switch events; {RECORD_WITH}"))
    }
}
