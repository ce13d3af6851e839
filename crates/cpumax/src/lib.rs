//! The command `cpumax`. It only reads arguments, calls the libraries and prints their results.
//! [`Replaying`] and [`Advising`] are for callers that take its options in another form.

mod args;
mod command;
mod failure;
mod interrupt;
mod output;
mod runs;
mod worlds;

pub use command::{advise::Advising, replay::Replaying};

use clap::Parser;
use command::Cli;
use cpumax_report::escape;
use std::ffi::OsString;

/// Runs the command that these words are, the first being its name; returns its exit status. Wrong
/// words end the process.
pub fn main(words: &[OsString]) -> u8 {
    if cpumax_kubectl::is_called(words) {
        return cpumax_kubectl::main(words);
    }
    let cli = Cli::try_parse_from(words).unwrap_or_else(|error| refuse(words, &error));
    interrupt::catch();
    match cli.command.run(words) {
        Ok(()) => 0,
        Err(failure) => output::report(&failure),
    }
}

/// Says what is wrong with the arguments, which are on one line then.
fn refuse(words: &[OsString], error: &clap::Error) -> ! {
    let arguments = words.iter().map(|one| escape::line(&one.to_string_lossy()).into_owned());
    match Cli::try_parse_from(arguments) {
        Err(shown) => shown.exit(),
        Ok(_) => error.exit(),
    }
}
