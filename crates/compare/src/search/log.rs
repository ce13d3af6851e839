//! The log of a search: a JSON object on each line, the first of which says what is searched. Written line by
//! line, so that whatever ends the program leaves at most the last line unfinished, which is then left out.

use super::Kind;
use crate::world::Error;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// No log is larger, bytes: some hundred thousand cases.
const MAX_BYTES: u64 = 256 << 20;

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its number.
    pub case: u64,
    /// How far off the worst number is, as a multiple of what it may be; none if it was not run.
    pub ratio: Option<f64>,
    /// Kind of the disagreement, if it is one.
    pub kind: Option<Kind>,
    /// Path of the worst number, if it is beyond its tolerance.
    pub path: Option<String>,
    /// Why it was not run.
    pub reason: Option<String>,
    /// Whether it was refused; if it was not run and not refused either, it failed.
    pub refused: bool,
    /// Whether it was shrunk and kept.
    pub kept: bool,
}

/// The log of one search, kept in a file, or not.
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
    /// One that is not kept.
    pub fn none() -> Log {
        Log { file: None, lines: Vec::new() }
    }

    /// The log in this file; `search` says what is searched. A log of another search is started anew.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(path: &Path, search: &str) -> Result<Log, Error> {
        let wrong = |error: std::io::Error| file_error(path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(wrong)?;
        let (lines, kept_bytes) = read(&file, search).map_err(wrong)?;
        file.set_len(kept_bytes).map_err(wrong)?;
        file.seek(SeekFrom::End(0)).map_err(wrong)?;
        let mut log = Log { file: Some((file, path.to_owned())), lines };
        if kept_bytes == 0 {
            log.write(&Head { search: search.to_owned() })?;
        }
        Ok(log)
    }

    /// What is in it.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Adds a case.
    ///
    /// # Errors
    /// When it cannot be written.
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

/// The lines that can be used, and how many bytes they are together with the first.
fn read(file: &File, search: &str) -> std::io::Result<(Vec<Line>, u64)> {
    let mut reader = BufReader::new(file.take(MAX_BYTES));
    let mut text = Vec::new();
    let mut bytes = reader.read_until(b'\n', &mut text)? as u64;
    let head: Option<Head> = serde_json::from_slice(&text).ok();
    if head.is_none_or(|head| head.search != search) || !text.ends_with(b"\n") {
        return Ok((Vec::new(), 0));
    }
    let mut lines: Vec<Line> = Vec::new();
    loop {
        text.clear();
        let more = reader.read_until(b'\n', &mut text)? as u64;
        let line: Option<Line> = serde_json::from_slice(&text).ok();
        let Some(line) = line.filter(|_| text.ends_with(b"\n")) else { break };
        bytes += more;
        lines.push(line);
    }
    Ok((lines, bytes))
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    let reason = match error.kind() {
        ErrorKind::NotFound => "the folder does not exist".to_owned(),
        _ => error.to_string(),
    };
    Error::File { path: path.display().to_string(), reason }
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
    fn the_log_of_another_search_is_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        Log::open(&path, "6.18 and 7.2").unwrap().append(line(1)).unwrap();
        assert_eq!(Log::open(&path, "6.18 and 7.3").unwrap().lines(), []);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"search\":\"6.18 and 7.3\"}\n");
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none").join("log");
        let error = Log::open(&path, "x").unwrap_err().to_string();
        assert!(error.ends_with("none/log: the folder does not exist"), "{error}");
    }
}
