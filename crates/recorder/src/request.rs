//! What to record, and what came of it.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Whose threads are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// All of the machine.
    All,
    /// Those of a control group and of those below it, by its path.
    Group(String),
    /// Those of a Kubernetes pod of this node, by UID or `namespace/name`, or of a container by its
    /// id.
    Pod(String),
    /// Those of a process and of what it starts.
    Process(i32),
    /// Those of a command that is started, and of what it starts.
    Command(Vec<OsString>),
}

/// What to record, for how long, and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Whose threads.
    pub what: What,
    /// The file that is written.
    pub file: PathBuf,
    /// For how long at most.
    pub time: Option<Duration>,
    /// How large the file may become, bytes.
    pub size: Option<u64>,
    /// Which part of the machine's CPU time it may cost.
    pub budget: Option<f64>,
    /// Whether system calls are recorded.
    pub calls: bool,
    /// Whether messages of sockets are, where the kernel tells them.
    pub sockets: bool,
    /// Room for records that have not been written yet, of all CPUs together, bytes.
    pub memory: usize,
    /// The command that this is, for the file.
    pub command_line: String,
}

impl Request {
    /// Until it is asked to end, with sockets, in 64 MiB.
    pub fn new(what: What, file: PathBuf) -> Request {
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

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since it began.
    pub elapsed: Duration,
    /// Records that have come.
    pub events: u64,
    /// Records that found no room.
    pub lost: u64,
    /// Size of the file so far.
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

/// Why it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was asked to.
    Asked,
    /// The time is over.
    Time,
    /// The file is as large as it may become.
    Size,
    /// It costs more than it may.
    Budget,
    /// The command has ended.
    Command(ExitStatus),
}

/// How large the room for records was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// As was asked for, or up to half of it, as a ring has a power of two.
    Asked,
    /// No more than this could be had.
    Most {
        /// Of all CPUs together.
        bytes: u64,
    },
    /// Less than this cannot be had.
    Least {
        /// Of all CPUs together.
        bytes: u64,
    },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// How far it came.
    pub progress: Progress,
    /// Why it went no further.
    pub end: End,
    /// CPU time of the recorder itself.
    pub used: Duration,
    /// What a record costs its thread as far as that can be known, ns; 0: not known.
    pub event_ns: u64,
    /// Chosen threads that are not recorded, as there are too many.
    pub forgotten: u64,
    /// Room for records.
    pub buffer: Buffer,
    /// How often the recorded group was removed and made again at its path, and followed there.
    pub made_again: u64,
    /// It is not there any more, or another one that was not recorded.
    pub is_gone: bool,
}

impl Told {
    /// With which status whoever records a command ends: as a shell does, that of the command, or
    /// 128 and the number of the signal that ended it.
    pub fn status(&self) -> u8 {
        use std::os::unix::process::ExitStatusExt;
        let End::Command(status) = self.end else { return 0 };
        let of_signal = || status.signal().map(|signal| 128 + signal);
        status.code().or_else(of_signal).map_or(1, |status| status as u8)
    }
}

/// A number of bytes as people say it: `4096`, `64k`, `100M`, `2G`.
///
/// # Errors
/// When it is none, or nothing.
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

/// What there is to say when it is done.
pub fn told(request: &Request, done: &Told) -> String {
    let why = match done.end {
        End::Asked | End::Time => "",
        End::Size => ", as large as it may become",
        End::Budget => "; stopped: it takes more CPU time than it may (--budget)",
        End::Command(_) => ", until the command ended",
    };
    let file = cpumax_limit::shown(&request.file);
    let elapsed_ns = done.progress.elapsed.as_nanos().max(1) as f64;
    let of_cpu = 100.0 * done.used.as_nanos() as f64 / elapsed_ns;
    let of_events = done.progress.events as f64 * done.event_ns as f64;
    let of_threads = 100.0 * of_events / elapsed_ns;
    let lost = match done.progress.lost {
        0 => "",
        _ => "\nEvents were lost: give more room with --buffer, or record fewer threads",
    };
    let buffer = match done.buffer {
        Buffer::Most { bytes } if bytes < request.memory as u64 => format!(
            "\nRoom for events was {}, not the {} of --buffer: more cannot be had",
            size(bytes),
            size(request.memory as u64)
        ),
        Buffer::Least { bytes } if bytes > request.memory as u64 => format!(
            "\nRoom for events was {}, not the {} of --buffer: each CPU needs its part",
            size(bytes),
            size(request.memory as u64)
        ),
        _ => String::new(),
    };
    let forgotten = match done.forgotten {
        0 => String::new(),
        threads => format!(
            "\n{threads} threads were not recorded: more than can be remembered are chosen; choose \
             a group with --cgroup"
        ),
    };
    let times = match done.made_again {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    let made_again = match done.made_again {
        0 => String::new(),
        _ => format!(
            "\nThe group was removed and made again {times}, as when a service is restarted: what \
             ran in it then is recorded, too"
        ),
    };
    let gone = "\nThe group that was recorded is gone: what runs in its place is not recorded";
    let gone = if done.is_gone { gone } else { "" };
    format!(
        "{file}: {}{why}{made_again}{gone}\nIt took {of_cpu:.1} % of a CPU to write, and \
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
