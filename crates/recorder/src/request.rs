//! Request and result of a recording.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Threads to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// All threads of the machine.
    All,
    /// Threads of a control group, by its path, and of groups below it.
    Group(String),
    /// Threads of a Kubernetes pod on this node, by UID or `namespace/name`, or of a container, by
    /// its id.
    Pod(String),
    /// Threads of a process and of its descendants.
    Process(i32),
    /// Threads of a command, which is started, and of its descendants.
    Command(Vec<OsString>),
}

/// A recording to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Threads to record.
    pub what: Target,
    /// File to write.
    pub file: PathBuf,
    /// Longest time.
    pub time: Option<Duration>,
    /// Largest size of the file, bytes.
    pub size: Option<u64>,
    /// Largest share of the machine's CPU time, 0 to 1.
    pub budget: Option<f64>,
    /// Record system calls.
    pub calls: bool,
    /// Record socket messages, where the kernel has tracepoints for them.
    pub sockets: bool,
    /// Buffer for records of all CPUs, bytes.
    pub memory: usize,
    /// The command line, noted in the file.
    pub command_line: String,
}

impl Request {
    /// A recording without end, with sockets, with a buffer of 64 MiB.
    pub fn new(what: Target, file: PathBuf) -> Request {
        Request {
            what,
            file,
            time: None,
            size: None,
            budget: None,
            calls: false,
            sockets: true,
            memory: 64 << 20,
            command_line: String::new(),
        }
    }
}

/// Progress of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Time since the begin.
    pub elapsed: Duration,
    /// Records so far.
    pub events: u64,
    /// Records that found the buffer full.
    pub lost: u64,
    /// Size of the file so far, bytes.
    pub bytes: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        write!(f, "{seconds:.1} s, {} events, {}", self.events, size(self.bytes))?;
        if self.lost > 0 {
            write!(f, ", {} events lost", self.lost)?;
        }
        Ok(())
    }
}

/// The reason for the end of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The caller asked for it.
    Asked,
    /// The time is over.
    Time,
    /// The file has reached its size.
    Size,
    /// The cost is above the budget.
    Budget,
    /// The command has ended.
    Command(ExitStatus),
}

/// Size of the buffer against the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// As requested, or down to half of it: a ring's size is a power of two.
    Asked,
    /// The largest possible size.
    Most {
        /// Of all CPUs together.
        bytes: u64,
    },
    /// The smallest possible size.
    Least {
        /// Of all CPUs together.
        bytes: u64,
    },
}

/// Result of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Progress at the end.
    pub progress: Progress,
    /// Reason for the end.
    pub end: End,
    /// CPU time of the recorder itself.
    pub used: Duration,
    /// CPU time that a record costs its thread, ns; 0: unknown.
    pub event_ns: u64,
    /// Chosen threads that were not recorded, because the table of chosen threads was full.
    pub forgotten: u64,
    /// Size of the buffer.
    pub buffer: Buffer,
    /// Number of times that the recorded group was removed and made again; recording went on.
    pub made_again: u64,
    /// The recorded group does not exist any more, or another one has its path.
    pub is_gone: bool,
}

impl Finished {
    /// Exit status of the recorder: that of the command as in a shell (128 plus the signal that
    /// ended it), else 0.
    pub fn status(&self) -> u8 {
        use std::os::unix::process::ExitStatusExt;
        let End::Command(status) = self.end else { return 0 };
        let of_signal = || status.signal().map(|signal| 128 + signal);
        status.code().or_else(of_signal).map_or(1, |status| status as u8)
    }
}

/// Parses a number of bytes such as `65536`, `64k`, `100M` or `2G`.
///
/// # Errors
/// The text is no such number, or outside of 64k to 1024G.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let takes = "give a number of bytes from 64k to 1024G, such as 100M";
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_end_matches(['B', 'b', 'i']) {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return Err(takes.to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| takes)?;
    let bytes = number.checked_mul(1 << shift);
    bytes.filter(|bytes| (1 << 16..=1 << 40).contains(bytes)).ok_or_else(|| takes.to_owned())
}

/// Text that describes the result, with advice where events were lost or the buffer was bounded.
pub fn describe_end(request: &Request, done: &Finished) -> String {
    let why = match done.end {
        End::Asked | End::Time => "",
        End::Size => ", stopped at the size of --size",
        End::Budget => ", stopped: recording takes more CPU time than --budget allows",
        End::Command(_) => ", until the command ended",
    };
    let file = cpumax_limit::shown(&request.file);
    let elapsed_ns = done.progress.elapsed.as_nanos().max(1) as f64;
    let of_cpu = 100.0 * done.used.as_nanos() as f64 / elapsed_ns;
    let of_events = done.progress.events as f64 * done.event_ns as f64;
    let of_threads = 100.0 * of_events / elapsed_ns;
    let lost = match done.progress.lost {
        0 => "",
        _ => "\nEvents were lost: give a larger --buffer, or record fewer threads",
    };
    let buffer = match done.buffer {
        Buffer::Most { bytes } if bytes < request.memory as u64 => format!(
            "\nThe buffer for events had {}, not the {} of --buffer: more is not possible",
            size(bytes),
            size(request.memory as u64)
        ),
        Buffer::Least { bytes } if bytes > request.memory as u64 => format!(
            "\nThe buffer for events had {}, not the {} of --buffer: each CPU needs a part",
            size(bytes),
            size(request.memory as u64)
        ),
        _ => String::new(),
    };
    let forgotten = match done.forgotten {
        0 => String::new(),
        threads => format!(
            "\n{threads} threads were not recorded, as there are too many single ones; choose \
             their group with --cgroup"
        ),
    };
    let times = match done.made_again {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let made_again = match done.made_again {
        0 => String::new(),
        _ => format!(
            "\nThe group was removed and made again {times}, as by the restart of a service; its \
             new threads were recorded too"
        ),
    };
    let gone = "\nThe recorded group no longer exists: threads at its path now were not recorded";
    let gone = if done.is_gone { gone } else { "" };
    format!(
        "{file}: {}{why}{made_again}{gone}\nRecording took {of_cpu:.1} % of a CPU to write, and \
         {of_threads:.1} % of one in the recorded threads{lost}{forgotten}{buffer}",
        done.progress
    )
}

fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} bytes"),
        0x400..0x10_0000 => format!("{:.0} kB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_read_as_people_say_them() {
        for (text, bytes) in
            [("65536", 1 << 16), ("64k", 1 << 16), ("100MB", 100 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "1", "100x", "-5M", "99999999999999999999G", "2000G", "10é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
