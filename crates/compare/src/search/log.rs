//! The log of a search: a JSON object on each line; the first one identifies the search. A program
//! that is killed leaves at most the last line unfinished, which readers ignore.

use super::Kind;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Largest log, bytes: some hundred thousand cases.
const MAX_BYTES: u64 = 256 << 20;
const MAX_HEAD_BYTES: u64 = 1 << 16;

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Number of the case.
    pub case: u64,
    /// Ratio of the worst number; `None` if it was not run.
    pub ratio: Option<f64>,
    /// Kind of the disagreement, if any.
    pub kind: Option<Kind>,
    /// Path of the worst number, if it is beyond its tolerance.
    pub path: Option<String>,
    /// Why it was not run.
    pub reason: Option<String>,
    /// Whether it was refused; a case with a reason that was not refused failed.
    pub refused: bool,
    /// Whether it was shrunk and kept.
    pub kept: bool,
}

/// The log of one search, in a file or only in memory.
#[derive(Debug)]
pub struct Log {
    file: Option<(File, PathBuf)>,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    search: String,
}

impl Log {
    /// A log in memory.
    pub fn none() -> Log {
        Log { file: None, lines: Vec::new() }
    }

    /// Opens or creates the log in this file, and removes an unfinished last line. `search`
    /// identifies the search.
    ///
    /// # Errors
    /// The file cannot be read or written, or has other contents, which stay.
    pub fn open(path: &Path, search: &str) -> Result<Log, Error> {
        let wrong = |error: std::io::Error| file_error(path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(wrong)?;
        let (lines, bytes) = match read(&file, search).map_err(wrong)? {
            Contents::Log { lines, bytes } => (lines, bytes),
            Contents::Other(reason) => {
                return Err(Error::File { path: cpumax_limit::shown(path), reason });
            }
        };
        let is_whole = file.seek(SeekFrom::End(0)).map_err(wrong)? == bytes;
        if !is_whole {
            file.set_len(bytes).map_err(wrong)?;
            file.seek(SeekFrom::End(0)).map_err(wrong)?;
        }
        let mut log = Log { file: Some((file, path.to_owned())), lines };
        if bytes == 0 {
            log.write(&Head { search: search.to_owned() })?;
        }
        Ok(log)
    }

    /// Cases so far.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Appends a case to the file and to memory.
    ///
    /// # Errors
    /// The case cannot be written.
    pub fn append(&mut self, line: Line) -> Result<(), Error> {
        self.write(&line)?;
        self.lines.push(line);
        Ok(())
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), Error> {
        let Some((file, path)) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line)
            .map_err(|error| file_error(path, &std::io::Error::other(error)))?;
        text.push('\n');
        file.write_all(text.as_bytes()).map_err(|error| file_error(path, &error))
    }
}

enum Contents {
    /// The log of this search: its cases, and the bytes of all complete lines.
    Log { lines: Vec<Line>, bytes: u64 },
    /// Something else, described in a sentence.
    Other(String),
}

fn read(file: &File, search: &str) -> std::io::Result<Contents> {
    let mut reader = BufReader::new(file.take(MAX_BYTES));
    let mut text = Vec::new();
    let mut bytes = reader.by_ref().take(MAX_HEAD_BYTES).read_until(b'\n', &mut text)? as u64;
    let mut lines: Vec<Line> = Vec::new();
    let head = serde_json::from_slice(&text).ok().filter(|_| text.ends_with(b"\n"));
    let Some(Head { search: found }) = head else {
        // Empty, or killed while the first line was written.
        let ours = serde_json::to_vec(&Head { search: search.to_owned() })?;
        return Ok(if ours.starts_with(&text) {
            Contents::Log { lines, bytes: 0 }
        } else {
            Contents::Other("it is not the log of a search and is left as it is".to_owned())
        });
    };
    if found != search {
        return Ok(Contents::Other(format!(
            "it is the log of another search and is left as it is: of `{found}`, not of `{search}`"
        )));
    }
    loop {
        text.clear();
        let more = reader.read_until(b'\n', &mut text)? as u64;
        if !text.ends_with(b"\n") {
            return Ok(Contents::Log { lines, bytes });
        }
        let Ok(line) = serde_json::from_slice(&text) else {
            let at = lines.len() + 2;
            let reason = format!("line {at} is not a case of a search; the file is left as it is");
            return Ok(Contents::Other(reason));
        };
        bytes += more;
        lines.push(line);
    }
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    let reason = match error.kind() {
        ErrorKind::NotFound => "the folder does not exist".to_owned(),
        _ => error.to_string(),
    };
    Error::File { path: cpumax_limit::shown(path), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_outcome::Field;
    use std::fs;

    fn line(case: u64) -> Line {
        Line {
            case,
            ratio: Some(1.5),
            kind: Some(Kind {
                field: Field::GroupUse,
                reference_has_more: true,
                needs_limits: true,
            }),
            path: Some("groups./g0.usage_usec".to_owned()),
            reason: None,
            refused: false,
            kept: case == 2,
        }
    }

    #[test]
    fn a_search_goes_on_where_it_was_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::open(&path, "6.18 and 7.2").unwrap();
        assert_eq!(log.lines(), []);
        for case in 1..=3 {
            log.append(line(case)).unwrap();
        }
        drop(log);
        // The program was killed in the middle of a line.
        let mut text = fs::read(&path).unwrap();
        text.truncate(text.len() - 5);
        fs::write(&path, &text).unwrap();
        let mut log = Log::open(&path, "6.18 and 7.2").unwrap();
        assert_eq!(log.lines(), [line(1), line(2)]);
        log.append(line(3)).unwrap();
        drop(log);
        assert_eq!(Log::open(&path, "6.18 and 7.2").unwrap().lines().len(), 3);
    }

    #[test]
    fn what_is_not_the_log_of_this_search_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let head = "{\"search\":\"6.18 and 7.2\"}\n";
        let other =
            "it is the log of another search and is left as it is: of `6.18 and 7.2`, not of `7.3`";
        for (text, search, says) in [
            (head.to_owned(), "7.3", other),
            ("my only copy\n".to_owned(), "7.3", "it is not the log of a search"),
            ("{\"sea".to_owned() + "son\":1}", "7.3", "it is not the log of a search"),
            (format!("{head}mine\n"), "6.18 and 7.2", "line 2 is not a case of a search"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = Log::open(&path, search).unwrap_err().to_string();
            assert!(error.starts_with(path.to_str().unwrap()) && error.contains(says), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn an_empty_file_and_one_that_was_only_begun_become_logs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for begun in ["", "{\"sea", "{\"search\":\"7.3\"}"] {
            fs::write(&path, begun).unwrap();
            assert_eq!(Log::open(&path, "7.3").unwrap().lines(), []);
            assert_eq!(fs::read_to_string(&path).unwrap(), "{\"search\":\"7.3\"}\n");
        }
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none").join("log");
        let error = Log::open(&path, "x").unwrap_err().to_string();
        assert!(error.ends_with("none/log: the folder does not exist"), "{error}");
    }
}
