//! What goes to standard output: colour only on a terminal that wants it, nothing wider than the
//! terminal, and a reader that goes away ends the program quietly.

use anstyle::{AnsiColor, Style};
use std::io::{self, ErrorKind, IsTerminal, Write};

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Standard output; `NO_COLOR` and what is not a terminal get plain text.
pub fn stdout() -> impl Write {
    anstream::AutoStream::auto(io::stdout()).lock()
}

/// Text in a style, for `write!`.
pub fn styled(style: Style, text: impl std::fmt::Display) -> impl std::fmt::Display {
    let reset = style.render_reset();
    format!("{style}{text}{reset}", style = style.render())
}

/// How wide a table may be: as the terminal; without one, as wide as it likes.
pub fn width() -> Option<u16> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| width.0.max(40))
}

/// Whether an error says that whoever read our output is gone.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io_error = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json_error =
            cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        io_error.or(json_error) == Some(ErrorKind::BrokenPipe)
    })
}
