//! Errors of workloads: position, value, and what would be accepted.

use crate::model::Parts;
use crate::units::quoted;
use std::fmt;

/// Why a scenario or a workload is refused.
///
/// The text begins with file, line and column (or, for a workload made in Rust, with the part),
/// shows the line with a mark under the value, and says what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An unreadable file, one that is too large, or one that is not text.
    #[error("{file}: {reason}")]
    File {
        /// Name of the file.
        file: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// Invalid TOML.
    #[error("{0}")]
    Syntax(Box<Finding>),
    /// A field that does not exist, is missing, or holds a value of the wrong type.
    #[error("{0}")]
    Field(Box<Finding>),
    /// A name that is malformed, used twice, or unknown.
    #[error("{0}")]
    Name(Box<Finding>),
    /// A value out of range.
    #[error("{0}")]
    Value(Box<Finding>),
    /// A limit that the kernel would refuse.
    #[error("{0}")]
    Limit(Box<Finding>),
    /// Locks taken in an order that can deadlock, taken twice, or not released.
    #[error("{0}")]
    Lock(Box<Finding>),
    /// A program that no task could execute, or in which time would never pass.
    #[error("{0}")]
    Program(Box<Finding>),
}

impl Error {
    /// Position and description; `None` for a file that cannot be read.
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Error::File { .. } => None,
            Error::Syntax(finding)
            | Error::Field(finding)
            | Error::Name(finding)
            | Error::Value(finding)
            | Error::Limit(finding)
            | Error::Lock(finding)
            | Error::Program(finding) => Some(finding),
        }
    }
}

/// One problem of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Position in the file; `None` for a workload made in Rust.
    pub location: Option<Location>,
    /// Part of the workload, e.g. `task "writer", instruction 3`; may be empty.
    pub part: String,
    /// Description of the problem, with the given value.
    pub problem: String,
    /// Values that would be accepted; may be empty.
    pub accepted: String,
}

/// A position in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters, from 1.
    pub column: usize,
    /// The line, cut around the position when it is long, control characters replaced.
    text: String,
    /// Start of the mark in `text`, and its length, in characters.
    mark: (usize, usize),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{}:{}:{}: ", location.file, location.line, location.column)?;
        }
        if !self.part.is_empty() {
            write!(f, "{}: ", self.part)?;
        }
        write!(f, "{}", self.problem)?;
        let Some(location) = &self.location else {
            return if self.accepted.is_empty() {
                Ok(())
            } else {
                write!(f, "; {}", self.accepted)
            };
        };
        let number = location.line.to_string();
        let gutter = " ".repeat(number.len());
        write!(f, "\n{gutter} |\n{number} | {}\n{gutter} | ", location.text)?;
        write!(f, "{}{}", " ".repeat(location.mark.0), "^".repeat(location.mark.1))?;
        if !self.accepted.is_empty() {
            write!(f, "\n{gutter} = {}", self.accepted)?;
        }
        Ok(())
    }
}

/// A range of bytes in the file; 0 to 0 when there is no file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub start: u32,
    pub end: u32,
}

impl From<std::ops::Range<usize>> for ByteRange {
    fn from(range: std::ops::Range<usize>) -> ByteRange {
        // Files are at most a few MiB.
        ByteRange { start: range.start as u32, end: range.end as u32 }
    }
}

/// The text and name of a file, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceText<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl SourceText<'_> {
    /// Line and column of the range's start, both from 1, and up to 120 characters of that line.
    fn locate(self, at: ByteRange) -> Location {
        /// Number of characters shown of a line, and of those before the mark.
        const SHOWN: usize = 120;
        const BEFORE: usize = 60;
        let mut start = (at.start as usize).min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("");
        let column = self.text[line_start..start].chars().count();
        let skipped =
            if line.chars().nth(SHOWN).is_none() { 0 } else { column.saturating_sub(BEFORE) };
        let shown = line.chars().skip(skipped).take(SHOWN);
        let text: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut end =
            (at.end as usize).clamp(start, line_start + line.len().max(start - line_start));
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = column - skipped;
        let shown_after = text.chars().count().saturating_sub(before);
        let marked = self.text[start..end].chars().count().min(shown_after).max(1);
        Location {
            file: self.file.to_owned(),
            line: self.text[..start].matches('\n').count() + 1,
            column: column + 1,
            text,
            mark: (before, marked),
        }
    }
}

/// The variant of [`Error`] for a refusal.
pub(crate) type Kind = fn(Box<Finding>) -> Error;

/// A refusal, until its position and part are known and it becomes an [`Error`].
#[derive(Debug)]
pub(crate) struct Refusal {
    pub kind: Kind,
    pub at: ByteRange,
    words: Box<Words>,
}

#[derive(Debug, Default)]
struct Words {
    part: String,
    problem: String,
    accepted: String,
}

impl Refusal {
    pub fn new(kind: Kind, problem: impl Into<String>, accepted: impl Into<String>) -> Refusal {
        let (problem, accepted) = (problem.into(), accepted.into());
        let words = Box::new(Words { part: String::new(), problem, accepted });
        Refusal { kind, at: ByteRange::default(), words }
    }

    pub fn at(self, at: ByteRange) -> Refusal {
        Refusal { at, ..self }
    }

    /// Sets the part of the workload, unless one is set already.
    pub fn part(mut self, part: impl Into<String>) -> Refusal {
        if self.words.part.is_empty() {
            self.words.part = part.into();
        }
        self
    }

    /// The error, which shows the position if there is a source.
    pub fn into_error(self, source: Option<SourceText<'_>>) -> Error {
        let Words { part, problem, accepted } = *self.words;
        let location = source.map(|source| source.locate(self.at));
        (self.kind)(Box::new(Finding { location, part, problem, accepted }))
    }
}

/// A part of a [`Workload`], by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartIx {
    Top,
    Machine,
    Softirq(usize),
    Group(usize),
    Lock(usize),
    Channel(usize),
    Distribution(usize),
    CpuSet(usize),
    Task(usize),
    Op(usize, usize),
    Job(usize),
    /// Job and instruction.
    JobOp(usize, usize),
    Source(usize),
    Intervention(usize),
    Expectation(usize),
}

impl PartIx {
    /// Name of the part for messages; empty for the top, a distribution and a set of CPUs.
    pub fn describe(self, workload: &Parts) -> String {
        let named = |what: &str, name: Option<&String>| match name {
            Some(name) => format!("{what} {}", quoted(name)),
            None => what.to_owned(),
        };
        match self {
            PartIx::Machine => "machine".to_owned(),
            PartIx::Softirq(ix) => format!("softirq {}", ix + 1),
            PartIx::Group(ix) => named("group", workload.groups.get(ix).map(|group| &group.path)),
            PartIx::Lock(ix) => named("lock", workload.locks.get(ix).map(|lock| &lock.name)),
            PartIx::Channel(ix) => named("channel", workload.channels.get(ix).map(|c| &c.name)),
            // Indices of distributions and CPU sets mean nothing to a reader; the message describes
            // them.
            PartIx::Top | PartIx::Distribution(_) | PartIx::CpuSet(_) => String::new(),
            PartIx::Task(ix) => named("task", workload.tasks.get(ix).map(|task| &task.name)),
            PartIx::Op(task, op) => {
                let task = named("task", workload.tasks.get(task).map(|task| &task.name));
                format!("{task}, instruction {}", op + 1)
            }
            PartIx::Job(ix) => named("job", workload.jobs.get(ix).map(|job| &job.name)),
            PartIx::JobOp(job, op) => {
                let job = named("job", workload.jobs.get(job).map(|job| &job.name));
                format!("{job}, instruction {}", op + 1)
            }
            PartIx::Source(ix) => named("source", workload.sources.get(ix).map(|s| &s.name)),
            PartIx::Intervention(ix) => format!("intervention {}", ix + 1),
            PartIx::Expectation(ix) => format!("expectation {}", ix + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, start: usize, end: usize) -> String {
        let refusal = Refusal::new(Error::Value, "wrong", "right").at(ByteRange::from(start..end));
        refusal.into_error(Some(SourceText { file: "a.toml", text })).to_string()
    }

    #[test]
    fn the_line_is_shown_with_a_mark() {
        let shown = show("one = 1\ntwo = 22\nthree = 3", 14, 16);
        assert_eq!(shown, "a.toml:2:7: wrong\n  |\n2 | two = 22\n  |       ^^\n  = right");
    }

    #[test]
    fn any_stretch_of_any_text_can_be_shown() {
        let long = format!("{}é{}", "x".repeat(300), "y".repeat(300));
        for text in ["", "\n", "\r\n\r\n", "é", "\0\0", "a\tb", &long] {
            for start in 0..=text.len() + 2 {
                for length in [0, 1, 2, 500] {
                    let shown = show(text, start, start + length);
                    assert!(shown.lines().all(|line| line.chars().count() < 140), "{shown}");
                }
            }
        }
    }
}
