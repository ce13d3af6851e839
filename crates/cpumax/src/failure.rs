//! Failures of a command, their messages and exit statuses.

use anyhow::{Error, anyhow};
use cpumax_report::{duration, escape};

/// A failure that becomes a message and an exit status.
#[derive(Debug)]
pub enum Failure {
    /// A result differs from what was expected; the command has printed it.
    Unexpected,
    /// The model violated an invariant of its own.
    ModelFault(anyhow::Error),
    /// Wrong input, or something that cannot be done.
    Input(anyhow::Error),
    /// Ends with this status; the command has printed the reason.
    Status(u8),
    /// Interrupted by a signal.
    Interrupted,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Input(error.into())
    }
}

impl Failure {
    /// Puts an error of the library into terms of the command line.
    pub fn of(error: cpumax_study::Error) -> Failure {
        use cpumax_study::{Error as Of, no_groups};
        Failure::Input(match error {
            Of::Interrupted => return Failure::Interrupted,
            Of::ModelFault { .. } => return Failure::ModelFault(error.into()),
            Of::TwoGroups { first, other } => {
                anyhow!(
                    "several --set must limit one group, not {first} and {other}. One --set \
                     '{first}:LIMIT,{other}:LIMIT' limits both at the same time; to compare them, \
                     run the command twice"
                )
            }
            Of::GroupAndThreads { path } => anyhow!(
                "--set names the group {path} and --group chooses threads: give one of them"
            ),
            Of::Root => anyhow!(
                "the root group cannot be limited: give another group, or threads with --group"
            ),
            Of::NoGroups { recorded, busy } => anyhow!(
                "{}; choose the threads to limit with --group, such as --group 'comm:nginx*'. \
                 Threads that used most CPU time: {}",
                no_groups(recorded),
                list(&busy)
            ),
            Of::TooLong { name, span_ns } => anyhow!(
                "{name}: its events span {}, and at most a day can be replayed. One of its times \
                 may be damaged",
                duration(span_ns)
            ),
            Of::NoThread { patterns } => anyhow!(
                "no recorded thread matches --group {}: `cpumax inspect` lists them",
                escape::line(&patterns)
            ),
            Of::NotExact { workload, cpus } => anyhow!(
                "{workload} has {cpus} CPUs, and --mode exact takes one: use --mode parallel"
            ),
            Of::NotInGroup { .. } => {
                anyhow!("{error}: `cpumax inspect` lists the groups")
            }
            other => Error::new(other),
        })
    }
}

fn list(busy: &[(String, u64)]) -> String {
    let of = |(name, ns): &(String, u64)| format!("{name} ({})", duration(*ns));
    let busy: Vec<String> = busy.iter().map(of).collect();
    if busy.is_empty() { "none".to_owned() } else { busy.join(", ") }
}
