//! The command `cpumax`. It only reads arguments, calls the libraries and prints their results.
//! [`Replaying`] and [`Advising`] are what its words ask of recordings, for callers that take the
//! same options in another form.

mod args;
mod command;
mod failure;
mod interrupt;
mod output;
mod runs;
mod worlds;

pub use command::{advise::Advising, replay::Replaying};

use clap::Parser;
use cpumax_report::escape;
use failure::Failure;
use std::ffi::OsString;

/// Runs the command that these words are, the first being its name; returns its exit status. Wrong
/// words end the process.
pub fn main(words: &[OsString]) -> u8 {
    let cli = args::Cli::try_parse_from(words).unwrap_or_else(|error| refuse(words, &error));
    interrupt::catch();
    match dispatch(cli.command, words) {
        Ok(()) => 0,
        Err(failure) => output::report(&failure),
    }
}

/// Says what is wrong with the arguments, which are on one line then.
fn refuse(words: &[OsString], error: &clap::Error) -> ! {
    let arguments = words.iter().map(|one| escape::line(&one.to_string_lossy()).into_owned());
    match args::Cli::try_parse_from(arguments) {
        Err(shown) => shown.exit(),
        Ok(_) => error.exit(),
    }
}

fn dispatch(command: args::Command, words: &[OsString]) -> Result<(), Failure> {
    match command {
        args::Command::Run(args) => command::run::run(&args),
        args::Command::Record(args) => command::record::record(args, words),
        args::Command::Replay(args) => command::replay::replay(&args, words),
        args::Command::Advise(args) => command::advise::advise(&args, words),
        args::Command::Report(args) => command::report::report(&args, words),
        args::Command::Verify(args) => command::verify::verify(&args),
        args::Command::Inspect(args) => command::inspect::inspect(&args),
        args::Command::Compare(args) => command::compare::compare(&args, words),
        args::Command::Weigh(args) => command::weigh::weigh(&args),
        args::Command::Search(args) => command::search::search(&args),
        args::Command::Scenarios { name, json } => {
            command::scenarios::scenarios(name.as_deref(), json)
        }
        args::Command::Kernels(args) => command::kernels::kernels(&args),
        args::Command::Lab(command) => command::lab::lab(&command),
        args::Command::Sched(args) => command::sched::sched(&args),
        args::Command::Stat(args) => command::stat::stat(&args),
        args::Command::Completions { shell } => command::shell::completions(shell),
        args::Command::Man { folder } => command::shell::man(&folder),
    }
}
