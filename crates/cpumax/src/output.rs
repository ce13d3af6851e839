//! What goes to standard output: colour only on a terminal that wants it, nothing wider than the
//! terminal, and a reader that goes away ends the program quietly.

use anstyle::{AnsiColor, Style};
use anyhow::Context;
use indicatif::{HumanDuration, ProgressState, ProgressStyle};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// Standard output; `NO_COLOR` and what is not a terminal get plain text.
pub fn stdout() -> impl Write {
    anstream::AutoStream::auto(io::stdout()).lock()
}

/// A file for results, opened before anything is run so that a wrong path is told at once. What was
/// in it stays there until there is something to write; if there never is, or it cannot be written,
/// one that is new is removed.
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl ResultFile {
    pub fn create(path: &Path) -> anyhow::Result<ResultFile> {
        let is_new = path.symlink_metadata().is_err();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(ResultFile { path: path.to_owned(), file, is_new })
    }

    /// Writes it instead of what was there.
    pub fn write(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let file = &mut self.file;
        let empty = || if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) };
        let emptied = empty().map_err(anyhow::Error::from);
        let written = emptied.and_then(|()| write(file));
        self.is_new &= written.is_err();
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
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
    use std::fs;

    #[test]
    fn what_is_in_a_file_stays_until_there_is_something_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "of before").unwrap();
        let file = ResultFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "of before");
        file.write(|out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        let new = folder.path().join("new.json");
        let file = ResultFile::create(&new).unwrap();
        file.write(|out| Ok(out.write_all(b"half").and(Err(ErrorKind::StorageFull.into()))?))
            .unwrap_err();
        assert!(!new.exists(), "half of it would pass for all");
        let told = ResultFile::create(&path.join("b")).unwrap_err().to_string();
        assert!(told.starts_with("cannot write ") && told.ends_with("a.json/b"), "{told}");
        ResultFile::create(Path::new("/dev/null")).unwrap().write(|_| Ok(())).unwrap();
    }

    #[test]
    fn lines_are_as_long_as_words_allow() {
        assert_eq!(wrap("name: a bc def", 8), "name: a\nbc def");
        assert_eq!(wrap("unbreakable a", 4), "unbreakable\na");
        assert_eq!(wrap("", 4), "");
    }
}
