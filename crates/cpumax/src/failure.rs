//! Why the program ends other than well, and with which exit status.

use crate::output;
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
    /// Says what has not been said yet, and gives the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            Failure::Unexpected => ExitCode::from(1),
            Failure::Status(status) => ExitCode::from(*status),
            // As for any filter: `cpumax run … | head` is no failure.
            Failure::Input(error) if output::reader_is_gone(error) => ExitCode::SUCCESS,
            Failure::Input(error) => {
                let error_label = output::styled(output::BAD, "error:");
                anstream::eprintln!("{error_label} {}", chain(error));
                ExitCode::from(2)
            }
            Failure::ModelFault(error) => {
                let error_label = output::styled(output::BAD, "error:");
                anstream::eprintln!("{error_label} {}", chain(error));
                anstream::eprintln!(
                    "This is a fault of cpumax itself; please report it with the command that showed it."
                );
                ExitCode::from(1)
            }
            Failure::Interrupted => {
                anstream::eprintln!("interrupted");
                ExitCode::from(crate::interrupt::STATUS)
            }
        }
    }
}

/// An error and its causes on one line; a cause that the error before it has told already is left
/// out.
fn chain(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn causes_are_told_once() {
        let error = anyhow!("no such file").context("a.toml: no such file").context("reading");
        assert_eq!(chain(&error), "reading: a.toml: no such file");
    }
}
