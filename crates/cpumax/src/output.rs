//! What goes to standard output: colour only on a terminal that wants it, nothing wider than the
//! terminal, and a reader that goes away ends the program quietly.

use crate::failure::Failure;
use cpumax_report::stream::{EscapeControls, IgnoreClosedPipe};
use cpumax_report::{Page, WriteError, escape};
use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

pub use cpumax_report::stream::raw_stdout;
pub use cpumax_report::style::{BAD, BOLD, DIM, styled};

/// Standard output; `NO_COLOR` and what is not a terminal get plain text.
pub fn stdout() -> impl Write {
    EscapeControls(IgnoreClosedPipe(anstream::AutoStream::auto(io::stdout()).lock()))
}

/// Standard error.
pub fn stderr() -> impl Write {
    EscapeControls(IgnoreClosedPipe(anstream::AutoStream::auto(io::stderr()).lock()))
}

/// One line on standard error, for whoever reads it.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}

/// How a bar of progress looks; `{left}` in the template is how long it will still take, once that
/// can be told.
pub fn bar_style(template: &str) -> ProgressStyle {
    let left = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.pos() > 0 {
            // What cannot be shown is not.
            let _ = write!(out, ", {:#} left", HumanDuration(state.eta()));
        }
    };
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left)
}

/// As wide as the terminal; where there is none, tables are as wide as they like.
pub fn page() -> Page {
    let terminal = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    Page::of(terminal.map(|(width, _)| width.0.max(40)))
}

/// Prints a text that a command ends with.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.map_err(WriteError::stdout)?)
}

/// Writes a text to standard error.
pub fn tell(text: &str) -> Result<(), Failure> {
    Ok(stderr().write_all(text.as_bytes())?)
}

/// Prints a value that a command ends with as JSON, for people as well.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&(escape::pretty_json(value)? + "\n"))
}
