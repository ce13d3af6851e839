//! Definition of the command line: help, man pages and completions come from here. Each subcommand
//! has a file below.

/// Text below the options in the help of a command, from `help/`.
macro_rules! help {
    ($command:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/help/", $command, ".txt"))
            .trim_ascii_end()
    };
}

pub mod advise;
mod compare;
mod inspect;
mod kernels;
mod lab;
mod record;
pub mod replay;
mod report;
mod run;
mod scenarios;
mod sched;
mod search;
mod shell;
mod stat;
mod verify;
mod weigh;

use crate::failure::Failure;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// What will a CPU limit do to my service, on this kernel?
///
/// A deterministic model of the Linux fair class and its CPU bandwidth control (cgroup cpu.max), in
/// every generation from 3.16 to 7.3. It runs scenarios and recordings of real services, and shows
/// what each kernel does with them: CPU used, periods throttled, latencies, and which threads
/// stalled for how long.
#[derive(Debug, Parser)]
#[command(name = "cpumax", version, after_help = help!("cpumax"), max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run scenarios on kernels, and check the results they expect
    #[command(after_help = help!("run"))]
    Run(run::RunArgs),
    /// Record a service or the machine for replay, by BPF (root)
    #[command(after_help = help!("record"))]
    Record(record::RecordArgs),
    /// Show what CPU limits would do to a recorded service
    #[command(after_help = help!("replay"))]
    Replay(replay::ReplayArgs),
    /// Find the smallest limit that meets a goal, such as p99 below 50 ms
    #[command(after_help = help!("advise"))]
    Advise(Box<advise::AdviseArgs>),
    /// Write a recording or saved results as one HTML page: answer, plots, tables, doubts
    #[command(after_help = help!("report"))]
    Report(report::ReportArgs),
    /// Check a prediction against the counters of a group whose limit is in force
    #[command(after_help = help!("verify"))]
    Verify(verify::VerifyArgs),
    /// Show what a recording contains: threads, groups, CPU use, lost events
    Inspect(inspect::InspectArgs),
    /// Compare the model with real kernels, or one kernel with another
    #[command(after_help = help!("compare"))]
    Compare(compare::CompareArgs),
    /// Search for random scenarios on which kernel and model differ, and shrink them
    #[command(after_help = help!("search"))]
    Search(search::SearchArgs),
    /// Compare what kernels give and cost: CPU use, stalls, latencies, cost of releases
    #[command(after_help = help!("weigh"))]
    Weigh(weigh::WeighArgs),
    /// List the built-in scenarios, or print one
    Scenarios {
        /// Print the file of this scenario, to start your own from, or of a random case, e.g.
        /// `case-1000340`
        name: Option<String>,
        /// Print a JSON array instead of a table
        #[arg(long, conflicts_with = "name")]
        json: bool,
    },
    /// List the kernels that are modelled and what changed between them
    Kernels(kernels::KernelsArgs),
    /// Real kernels in virtual machines: fetch them, list them, run programs on them
    #[command(subcommand, after_help = help!("lab"))]
    Lab(lab::LabCommand),
    /// Start the scheduler that enforces limits at the return to user mode (root)
    Sched(sched::SchedArgs),
    /// Show the groups of that scheduler: throttled or not, for how long, their debt
    Stat(stat::StatArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write man pages into a folder
    #[command(hide = true)]
    Man { folder: PathBuf },
}

impl Command {
    /// Runs the command, of which these are the words.
    pub fn run(self, words: &[OsString]) -> Result<(), Failure> {
        match self {
            Command::Run(args) => run::run(&args),
            Command::Record(args) => record::record(args, words),
            Command::Replay(args) => replay::replay(&args, words),
            Command::Advise(args) => advise::advise(&args, words),
            Command::Report(args) => report::report(&args, words),
            Command::Verify(args) => verify::verify(&args),
            Command::Inspect(args) => inspect::inspect(&args),
            Command::Compare(args) => compare::compare(&args, words),
            Command::Weigh(args) => weigh::weigh(&args),
            Command::Search(args) => search::search(&args),
            Command::Scenarios { name, json } => scenarios::scenarios(name.as_deref(), json),
            Command::Kernels(args) => kernels::kernels(&args),
            Command::Lab(command) => lab::lab(&command),
            Command::Sched(args) => sched::sched(&args),
            Command::Stat(args) => stat::stat(&args),
            Command::Completions { shell } => shell::completions(shell),
            Command::Man { folder } => shell::man(&folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
