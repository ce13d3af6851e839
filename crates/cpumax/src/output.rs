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

/// Width of text and of tables of text, which are wrapped also where there is no terminal.
pub fn text_width() -> u16 {
    width().unwrap_or(80)
}

/// Text in lines no longer than that, where its words allow it.
pub fn wrapped(text: &str) -> String {
    wrap(text, usize::from(text_width()))
}

/// The same with every line after the first set in by so many columns; the first starts there.
pub fn hanging(text: &str, indent: usize) -> String {
    let width = usize::from(text_width()) - indent;
    wrap(text, width).replace('\n', &format!("\n{:indent$}", ""))
}

fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut length = 0;
    for word in text.split(' ') {
        let word_length = word.chars().count();
        match lines.last_mut() {
            Some(line) if length + 1 + word_length <= width => {
                line.push(' ');
                line.push_str(word);
                length += 1 + word_length;
            }
            _ => {
                lines.push(word.to_owned());
                length = word_length;
            }
        }
    }
    lines.join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_long_as_words_allow() {
        assert_eq!(wrap("name: a bc def", 8), "name: a\nbc def");
        assert_eq!(wrap("unbreakable a", 4), "unbreakable\na");
        assert_eq!(wrap("", 4), "");
    }
}
