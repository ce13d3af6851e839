//! Messages between the guest and the program that started it: one line of JSON each.
//!
//! The guest speaks first, with [`FromGuest::Ready`]. It answers each [`ToGuest::Job`] with any
//! number of [`FromGuest::Progress`] and then one of `Result`, `Refused` and `Failed`; the next job
//! may follow in the same boot. The end of the input means the same as [`ToGuest::Quit`].

pub mod hypervisor;

use cpumax_outcome::trace::Recorded;
use cpumax_outcome::{Conditions, Outcome, Preemption};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the protocol; raised whenever one side would misunderstand the other.
pub const VERSION: u32 = 2;

/// Longest line that either side accepts, bytes: the largest scenario with every byte escaped.
pub const MAX_LINE_BYTES: u64 = 32 << 20;

/// A message to the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToGuest {
    /// Run a workload.
    Job(Job),
    /// Run a program instead of workloads; the virtual machine ends with it.
    Command(Command),
    /// Power off (in a virtual machine) or end (on the host).
    Quit,
}

/// A program to run in the virtual machine.
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
    /// Time is counted in instructions (`-icount`), so call costs measured at boot hold exactly.
    /// Otherwise each task asks the kernel after each call for the CPU time it has used.
    #[serde(default)]
    pub exact: bool,
    /// Whether to sample each limited group's usage at the end of each of its periods, for
    /// `max_period_usage_usec`. A sample costs some microseconds and is a switch that charges the
    /// running task.
    #[serde(default)]
    pub sample_periods: bool,
    /// Whether to record every switch, wakeup and period. Each takes about a microsecond.
    #[serde(default)]
    pub trace: bool,
    /// Whether to time the kernel functions that release throttled tasks, and count the work of
    /// each call. In virtual machines only. Each walked group and each enqueued task then takes
    /// some tenths of a microsecond longer.
    #[serde(default)]
    pub releases: bool,
}

/// A message from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromGuest {
    /// The first message: what the machine is like.
    Ready(Ready),
    /// A job is in progress.
    Progress(Progress),
    /// A job is done.
    Result(Box<Report>),
    /// This machine cannot run the job.
    Refused {
        /// The part of the job that it cannot do, and why.
        reason: String,
    },
    /// Output of a command.
    Output {
        /// Written to standard error, not to standard output.
        is_error: bool,
        /// One character, up to U+00FF, for each byte.
        text: String,
    },
    /// A command has ended.
    Exited {
        /// Its exit status, or 128 plus the number of the signal that ended it, as in a shell.
        status: u8,
    },
    /// Something went wrong that the job is not to blame for.
    Failed {
        /// The error.
        reason: String,
    },
}

/// Properties of the guest's machine and kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// [`VERSION`] of the guest.
    pub protocol: u32,
    /// `vm` or `host`.
    pub world: String,
    /// Kernel release, as `uname -r` prints it.
    pub release: String,
    /// Version of cgroups in use: 1 or 2.
    pub cgroup: u32,
    /// CPUs online.
    pub cpus: u32,
    /// Ticks a second, measured.
    pub hz: u32,
    /// The kernel's preemption model; `None` where it does not show it.
    pub preempt: Option<Preemption>,
    /// The kernel's clock source, e.g. `tsc`.
    pub clocksource: String,
    /// Measured speed of this machine.
    pub calibration: Calibration,
}

/// Measured speed of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// One turn of the loop that stands for user time, ps.
    pub user_turn_ps: u64,
    /// A system call that does nothing, ns.
    pub syscall_ns: u64,
    /// CPU time of a sleep, ns; the work after a sleep is shorter by that.
    #[serde(default)]
    pub sleep_ns: u64,
    /// Reading one KiB from the kernel's random number generator, which stands for kernel time, ps.
    pub kernel_kib_ps: u64,
    /// Writing one KiB to a file in memory, which stands for kernel time under an inode's lock, ps.
    pub write_kib_ps: u64,
    /// One tick of the time-stamp counter, fs (10^-15 s).
    pub stamp_fs: u64,
}

/// Progress of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Time since the start of the run, ns.
    pub now_ns: u64,
    /// Length of the run, ns.
    pub duration_ns: u64,
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Counters and latencies. `kernel` is the kernel's release, `generation` is empty, and
    /// `events` is zero. Other fields that are zero for want of a measurement are in
    /// `not_measured`.
    pub outcome: Outcome,
    /// Conditions that the model must be given to be compared with this run.
    pub conditions: Conditions,
    /// Kind of each real lock by name: `inode` (a write to a file), `mmap_lock` (a call that holds
    /// it), `pipe` (bytes taken and put back), `futex` (in user space) or `owner` (fcntl).
    pub locks: BTreeMap<String, String>,
    /// Fields of the outcome that are zero because they were not measured.
    pub not_measured: Vec<String>,
    /// Where this run deviates from the scenario, in words.
    pub notes: Vec<String>,
    /// All events, if the job asked for them.
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
