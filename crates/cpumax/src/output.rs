//! Standard output and standard error: colour only on a terminal, tables as wide as the terminal,
//! and a quiet end when the reader goes away.

use crate::failure::Failure;
use crate::interrupt;
use cpumax_report::stream::{EscapeControls, IgnoreClosedPipe};
use cpumax_report::{JsonArray, Page, WriteError, escape};
use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

pub use cpumax_report::stream::raw_stdout;
pub use cpumax_report::style::{BAD, BOLD, DIM, styled};

/// Standard output; plain text with `NO_COLOR` or without a terminal.
pub fn stdout() -> impl Write {
    EscapeControls(IgnoreClosedPipe(anstream::AutoStream::auto(io::stdout()).lock()))
}

/// Standard error.
pub fn stderr() -> impl Write {
    EscapeControls(IgnoreClosedPipe(anstream::AutoStream::auto(io::stderr()).lock()))
}

/// Prints a line on standard error; ignores a missing reader.
pub fn eprint_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}

/// Style of a progress bar. `{left}` in the template is the remaining time, once it is known.
pub fn bar_style(template: &str) -> ProgressStyle {
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            // A failure to format shows nothing.
            let _ = write!(out, ", {:#} left", HumanDuration(state.eta()));
        }
    };
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left)
}

/// The page width: that of the terminal (at least 40 columns), or unlimited without one.
pub fn page() -> Page {
    let terminal = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    Page::of(terminal.map(|(width, _)| width.0.max(40)))
}

/// Prints the final text of a command.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.map_err(WriteError::stdout)?)
}

/// Writes a text to standard error.
pub fn eprint(text: &str) -> Result<(), Failure> {
    Ok(stderr().write_all(text.as_bytes())?)
}

/// Writes documents as JSON, and prints the text unless they go to standard output.
pub fn answer<T: Serialize>(
    json: Option<JsonArray>,
    documents: impl Iterator<Item = T>,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let is_told = json.as_ref().is_none_or(|json| !json.is_stdout());
    json.map_or(Ok(()), |json| json.write(documents))?;
    if is_told { print(&text()) } else { Ok(()) }
}

/// Prints the final value of a command as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&(escape::pretty_json(value)? + "\n"))
}

/// Says what has not been said yet of a failure, and gives its exit status.
pub fn report(failure: &Failure) -> u8 {
    match failure {
        Failure::Unexpected => 1,
        Failure::Status(status) => *status,
        Failure::Input(error) => {
            eprint_error(error);
            2
        }
        Failure::ModelFault(error) => {
            eprint_error(error);
            eprint_line(format_args!(
                "This is a fault of cpumax itself; please report it together with the command."
            ));
            1
        }
        Failure::Interrupted => {
            eprint_line(format_args!("interrupted"));
            interrupt::status()
        }
    }
}

fn eprint_error(error: &anyhow::Error) {
    let label = styled(BAD, "error:");
    eprint_line(format_args!("{label} {}", escape::chain(error.chain())));
}
