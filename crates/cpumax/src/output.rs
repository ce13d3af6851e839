//! What goes to standard output: colour only on a terminal that wants it, nothing wider than the
//! terminal, and a reader that goes away ends the program quietly.

use anstyle::{AnsiColor, Style};
use cpumax_report::escape;
use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use std::io::{self, ErrorKind, IsTerminal, Write};

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Standard output; `NO_COLOR` and what is not a terminal get plain text.
pub fn stdout() -> impl Write {
    Clean(Heard(anstream::AutoStream::auto(io::stdout()).lock()))
}

/// The same for what goes out as it is.
pub fn raw_stdout() -> impl Write {
    Heard(io::stdout().lock())
}

/// Standard error.
pub fn stderr() -> impl Write {
    Clean(Heard(anstream::AutoStream::auto(io::stderr()).lock()))
}

/// One line on standard error, for whoever reads it.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}

/// What a reader that goes away misses is no error: what comes of a command does not depend on who
/// reads.
pub struct Heard<W>(pub W);

impl<W: Write> Write for Heard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Lets nothing through that a terminal would take for more than text and colours: what comes from
/// a file is escaped where it is put into a sentence, and here whatever was not.
struct Clean<W>(W);

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(escape::styled_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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

/// Text in a style, for `write!`.
pub fn styled(style: Style, text: impl std::fmt::Display) -> impl std::fmt::Display {
    let reset = style.render_reset();
    let text = text.to_string();
    format!("{style}{}{reset}", escape::lines(&text), style = style.render())
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
    let text = escape::lines(text);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_goes_away_is_no_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut out = Heard(writer);
        writeln!(out, "a").unwrap();
        out.flush().unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        writeln!(Heard(full), "a").unwrap_err();
    }

    #[test]
    fn nothing_but_text_and_colours_gets_through() {
        let mut out = Clean(Vec::new());
        let hostile = "c\u{1b}]0;d\u{7}\u{202e}";
        writeln!(out, "{} {hostile}", styled(BOLD, "a\u{1b}[2Jb")).unwrap();
        let text = String::from_utf8(out.0).unwrap();
        let shown = "a\\u{1b}[2Jb\u{1b}[0m c\\u{1b}]0;d\\u{7}\\u{202e}\n";
        assert_eq!(text, format!("{}{shown}", BOLD.render()));
    }

    #[test]
    fn lines_are_as_long_as_words_allow() {
        assert_eq!(wrap("name: a bc def", 8), "name: a\nbc def");
        assert_eq!(wrap("unbreakable a", 4), "unbreakable\na");
        assert_eq!(wrap("", 4), "");
    }
}
