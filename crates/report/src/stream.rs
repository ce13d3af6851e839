//! Output streams: ignore a closed pipe, and escape terminal controls.

use crate::escape;
use std::io::{self, ErrorKind, Write};

/// Standard output, unescaped; a closed pipe is no error.
pub fn raw_stdout() -> impl Write {
    IgnoreClosedPipe(io::stdout().lock())
}

/// Ignores a closed pipe: the result of a command does not depend on its reader.
#[derive(Debug)]
pub struct IgnoreClosedPipe<W>(pub W);

impl<W: Write> Write for IgnoreClosedPipe<W> {
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

/// Escapes everything but text and colours for a terminal. Text from files is escaped where it
/// enters a sentence; this catches the rest.
#[derive(Debug)]
pub struct EscapeControls<W>(pub W);

impl<W: Write> Write for EscapeControls<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(escape::styled_lines(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::{BOLD, styled};

    #[test]
    fn a_reader_that_goes_away_is_no_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut out = IgnoreClosedPipe(writer);
        writeln!(out, "a").unwrap();
        out.flush().unwrap();
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        writeln!(IgnoreClosedPipe(full), "a").unwrap_err();
    }

    #[test]
    fn nothing_but_text_and_colours_gets_through() {
        let mut out = EscapeControls(Vec::new());
        let hostile = "c\u{1b}]0;d\u{7}\u{202e}";
        writeln!(out, "{} {hostile}", styled(BOLD, "a\u{1b}[2Jb")).unwrap();
        let text = String::from_utf8(out.0).unwrap();
        let shown = "a\\u{1b}[2Jb\u{1b}[0m c\\u{1b}]0;d\\u{7}\\u{202e}\n";
        assert_eq!(text, format!("{}{shown}", BOLD.render()));
    }
}
