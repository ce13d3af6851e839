//! Why the program ends other than well, and with which exit status.

use crate::output;
use anyhow::{Error, anyhow};
use cpumax_report::{duration, escape};
use std::process::ExitCode;

/// What `main` turns into a message and an exit status.
#[derive(Debug)]
pub enum Failure {
    /// A run did not show what it must; told where it was found.
    Unexpected,
    /// The model contradicts itself.
    ModelFault(anyhow::Error),
    /// Something given cannot be used, or something asked for cannot be done.
    Input(anyhow::Error),
    /// A command that was run elsewhere ended with this status, and has said why itself.
    Status(u8),
    /// Stopped from the keyboard.
    Interrupted,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Input(error.into())
    }
}

impl Failure {
    /// What the engine says, in terms of the command line.
    pub fn of(error: cpumax_engine::Error) -> Failure {
        use cpumax_engine::{Error as Of, no_groups};
        Failure::Input(match error {
            Of::Interrupted => return Failure::Interrupted,
            Of::ModelFault { .. } => return Failure::ModelFault(error.into()),
            Of::TwoGroups { first, other } => {
                anyhow!(
                    "each --set is a row, and all rows are of one group: {first} and {other} are \
                     limited at the same time by one --set '{first}:LIMIT,{other}:LIMIT', and \
                     compared by two runs"
                )
            }
            Of::GroupAndThreads { path } => anyhow!(
                "--set names the group {path} and --group chooses threads: give one of them"
            ),
            Of::Root => anyhow!(
                "the root group cannot be limited: give another group, or threads with --group"
            ),
            Of::NoGroups { recorded, busy } => anyhow!(
                "{}; say which threads to limit with --group, such as --group 'comm:nginx*'. \
                 Threads that used most CPU time: {}",
                no_groups(recorded),
                list(&busy)
            ),
            Of::TooLong { name, span_ns } => anyhow!(
                "{name}: from its first event to its last it takes {}, and at most a day can be \
                 replayed; is one of its times damaged?",
                duration(span_ns)
            ),
            Of::NoThread { patterns } => anyhow!(
                "no recorded thread matches --group {}: `cpumax inspect` lists them",
                escape::line(&patterns)
            ),
            Of::NotExact { workload, cpus } => anyhow!(
                "{workload} has {cpus} CPUs, and --mode exact is for one: use --mode parallel"
            ),
            Of::NotInGroup { .. } => {
                anyhow!("{error}: `cpumax inspect` lists the groups")
            }
            other => Error::new(other),
        })
    }

    /// Says what has not been said yet, and gives the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Unexpected => ExitCode::from(1),
            Failure::Status(status) => ExitCode::from(*status),
            Failure::Input(error) => {
                let error_label = output::styled(output::BAD, "error:");
                output::say(format_args!("{error_label} {}", escape::chain(error.chain())));
                ExitCode::from(2)
            }
            Failure::ModelFault(error) => {
                let error_label = output::styled(output::BAD, "error:");
                output::say(format_args!("{error_label} {}", escape::chain(error.chain())));
                output::say(format_args!(
                    "This is a fault of cpumax itself; please report it with the command that \
                     showed it."
                ));
                ExitCode::from(1)
            }
            Failure::Interrupted => {
                output::say(format_args!("interrupted"));
                ExitCode::from(crate::interrupt::status())
            }
        }
    }
}

fn list(busy: &[(String, u64)]) -> String {
    let of = |(name, ns): &(String, u64)| format!("{name} ({})", duration(*ns));
    let busy: Vec<String> = busy.iter().map(of).collect();
    if busy.is_empty() { "none".to_owned() } else { busy.join(", ") }
}
