//! What the guest and whoever started it say to each other: one line of JSON for each message.
//!
//! The guest speaks first, with [`FromGuest::Ready`]. Each [`ToGuest::Job`] is answered by any
//! number of [`FromGuest::Progress`] and then one of `Result`, `Refused` and `Failed`; the next job
//! may follow in the same boot. The end of the input means the same as [`ToGuest::Quit`].

pub mod hypervisor;

use cpumax_outcome::trace::Recorded;
use cpumax_outcome::{Conditions, Outcome, Preemption};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this protocol, raised whenever one side would misunderstand the other.
pub const VERSION: u32 = 2;

/// Longest line either side accepts, bytes: a scenario of the largest size, each byte of it
/// escaped.
pub const MAX_LINE_BYTES: u64 = 32 << 20;

/// What the guest is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuest {
    /// Run this.
    Job(Job),
    /// Run this program in place of scenarios; the machine ends with it.
    Command(Command),
    /// Power off (in a virtual machine) or end (on the host).
    Quit,
}

/// A program and what it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Its path in the machine, and its arguments.
    pub words: Vec<String>,
}

/// One run of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The workload as a scenario file (`cpumax_workload::print` writes one).
    pub scenario: String,
    /// Seed of every random stream; the same numbers as in the model.
    pub seed: u64,
    /// Time is counted in instructions (`-icount`): what a call takes was measured at boot and is
    /// always that. Otherwise each task asks the kernel after each call what it has used.
    #[serde(default)]
    pub exact: bool,
    /// Whether to look at each limited group's usage at the end of each of its periods, for
    /// `max_period_usage_usec`. Each look costs some microseconds and is a switch that charges
    /// whoever is running.
    #[serde(default)]
    pub sample_periods: bool,
    /// Whether to record every switch, wakeup and period. That takes a microsecond or so for each.
    #[serde(default)]
    pub trace: bool,
    /// Whether to time what releases throttled tasks, call by call, and count what each call does.
    /// In virtual machines only. Each group walked and each task put back then takes some tenths of
    /// a microsecond longer.
    #[serde(default)]
    pub releases: bool,
}

/// What the guest says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuest {
    /// First of all: what this world is.
    Ready(Ready),
    /// It is still at work.
    Progress(Progress),
    /// A job is done.
    Result(Box<Report>),
    /// The job asks for something that this world cannot do.
    Refused {
        /// What, and why it cannot be done.
        reason: String,
    },
    /// A command has written this.
    Output {
        /// To its standard error, not to its standard output.
        is_error: bool,
        /// One character, up to U+00FF, for each byte.
        text: String,
    },
    /// A command has ended.
    Exited {
        /// Its exit status, or 128 and the number of the signal that ended it, as shells tell it.
        status: u8,
    },
    /// Something went wrong that is not the job's fault.
    Failed {
        /// What.
        reason: String,
    },
}

/// What a guest is like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// [`VERSION`] of the guest.
    pub protocol: u32,
    /// `vm` or `host`.
    pub world: String,
    /// As `uname -r` shows it.
    pub release: String,
    /// Version of cgroups: 1 or 2.
    pub cgroup: u32,
    /// CPUs on line.
    pub cpus: u32,
    /// Ticks a second, measured.
    pub hz: u32,
    /// Where the kernel lets itself be preempted, if it tells.
    pub preempt: Option<Preemption>,
    /// The kernel's clock source, e.g. `tsc`.
    pub clocksource: String,
    /// How fast this world works.
    pub calibration: Calibration,
}

/// How fast this world works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// One turn of the loop that stands for user time, ps.
    pub user_turn_ps: u64,
    /// A system call that does nothing, ns.
    pub syscall_ns: u64,
    /// CPU time of a sleep in itself, which the work behind it is shortened by, ns.
    #[serde(default)]
    pub sleep_ns: u64,
    /// One KiB read from the kernel's random number generator, which stands for kernel time, ps.
    pub kernel_kib_ps: u64,
    /// One KiB written to a file in memory, which stands for kernel time under an inode's lock, ps.
    pub write_kib_ps: u64,
    /// One tick of the time-stamp counter, fs (10^-15 s).
    pub stamp_fs: u64,
}

/// Where a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Time since the start of the run, ns.
    pub now_ns: u64,
    /// Length of the run, ns.
    pub duration_ns: u64,
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `kernel` is the kernel's release and `generation` is empty; `events` is zero, as no real
    /// kernel shows it. What else is zero for want of a measurement is in `not_measured`.
    pub outcome: Outcome,
    /// What the model must be told to be held against this run.
    pub conditions: Conditions,
    /// How each lock was made, by name: `inode` (a write to a file), `pipe` (tokens taken and put
    /// back inside a system call) or `futex` (in user space).
    pub locks: BTreeMap<String, String>,
    /// Fields of the outcome that are zero because they were not measured.
    pub not_measured: Vec<String>,
    /// Where this run is not quite what the scenario says, in words.
    pub notes: Vec<String>,
    /// What happened when, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Recorded>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_lines_that_come_back_as_they_were() {
        let job = Job { scenario: "name = \"a\"\n".to_owned(), seed: 7, ..Job::default() };
        for message in [ToGuest::Job(job), ToGuest::Quit] {
            let line = serde_json::to_string(&message).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<ToGuest>(&line).unwrap(), message);
        }
        let refused = FromGuest::Refused { reason: "no".to_owned() };
        let line = serde_json::to_string(&refused).unwrap();
        assert_eq!(line, r#"{"refused":{"reason":"no"}}"#);
        assert_eq!(serde_json::from_str::<FromGuest>(&line).unwrap(), refused);
    }

    #[test]
    fn a_job_needs_no_more_than_scenario_and_seed() {
        let line = r#"{"job":{"scenario":"","seed":1}}"#;
        let ToGuest::Job(job) = serde_json::from_str(line).unwrap() else { panic!("{line}") };
        assert!(!job.exact && !job.sample_periods);
    }
}
