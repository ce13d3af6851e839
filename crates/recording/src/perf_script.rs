//! The text that `perf script` prints: one event a line, in order of time.
//!
//! Columns that other choices of `-F` add or leave out do not matter, as long as thread, CPU, time,
//! event and its content are there. The text of `trace-cmd report` and of the kernel's `trace` file
//! is similar and is read as well; its column of flags shows the context.

use crate::error::Error;
use crate::event::Note;
use crate::event::{Machine, Sink};
use crate::lines::{End, next_line};
use crate::tracepoint::{RECORD_WITH, SWITCH_RECORDS, SWITCHES_SAMPLED};
use crate::{Defect, refused};
use std::fmt;
use std::io::BufRead;

mod columns;
mod content;
mod head;
mod latency;
mod line;

use line::{Line, Lines};

/// A file without an event in so many lines is no recording.
const LINES_WITHOUT_EVENT_MAX: u64 = 10_000;
/// Bounds on unreadable lines: so many, or else one in so many.
const UNREADABLE_FEW: u64 = 20;
const LINES_PER_UNREADABLE: u64 = 20;
/// The columns that a line needs.
const NEEDED: &str = "each event needs thread with its id, CPU, time, event and content, as `perf \
    script -F comm,pid,tid,cpu,time,event,trace` prints them";

/// Reads a whole text into `sink`; `name` is for messages. Lines that cannot be read are counted as
/// defects.
///
/// # Errors
/// The file cannot be read, has no thread switches or only samples of them, more than 20 and a
/// twentieth of its lines are unreadable, or the sink wants no more.
pub(crate) fn read(name: &str, mut file: impl BufRead, sink: &mut impl Sink) -> Result<(), Error> {
    let mut buffer = Vec::new();
    let mut machine = Some(Machine::default());
    let mut lines = Lines::default();
    let (mut number, mut read, mut events, mut bad) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut first_bad = None;
    loop {
        let end = next_line(&mut file, &mut buffer).map_err(|source| Error::io(name, source))?;
        number += 1;
        match end {
            End::Nothing => break,
            End::Newline => {}
            End::OfFile => {
                sink.defect(Defect::CutAtTheEnd);
                break;
            }
            End::TooLong => buffer.clear(),
        }
        let text = String::from_utf8_lossy(&buffer);
        match lines.read(&text) {
            Line::Header(key, value) => header(machine.as_mut(), key, value, sink),
            Line::Ring { overwritten, cpus } => ring(machine.as_mut(), overwritten, cpus, sink),
            Line::Event(event) => {
                if let Some(machine) = machine.take() {
                    sink.machine(machine);
                }
                events += 1;
                sink.event(&event).map_err(|e| refused(name, e))?;
                if lines.is_sampled {
                    let what = format!("line {number}: {SWITCHES_SAMPLED}");
                    return Err(Error::unsupported(name, what));
                }
            }
            Line::Note(note) => {
                read += 1;
                sink.note(&note);
            }
            Line::Empty if end != End::TooLong => {}
            Line::Empty | Line::Unreadable => {
                bad += 1;
                sink.defect(Defect::UnreadableLine);
                first_bad.get_or_insert_with(|| First::new(number, &text));
            }
        }
        if events == 0 && number - read > LINES_WITHOUT_EVENT_MAX {
            break;
        }
    }
    if !lines.has_switch {
        return Err(no_switches(name, &lines, events, first_bad));
    }
    check_unreadable(name, bad, events + read + bad, first_bad)
}

/// An error if more than 20 lines and a twentieth of `all` are unreadable; it names the first of
/// them.
fn check_unreadable(name: &str, bad: u64, all: u64, first_bad: Option<First>) -> Result<(), Error> {
    if let Some(first) = first_bad
        && bad > UNREADABLE_FEW.max(all / LINES_PER_UNREADABLE)
    {
        let what = format!("{bad} of {all} lines cannot be read: {first}; {NEEDED}");
        return Err(Error::Implausible { name: name.to_owned(), what });
    }
    Ok(())
}

/// The error of a text without thread switches, with the likeliest reason: the first unreadable
/// line, if there is one.
fn no_switches(name: &str, lines: &Lines, events: u64, first_bad: Option<First>) -> Error {
    match (events, first_bad) {
        _ if lines.has_switch_records => {
            Error::unsupported(name, format!("{SWITCH_RECORDS}; {RECORD_WITH}"))
        }
        (_, Some(first)) => {
            let needed = if first.is_event() { format!("; {NEEDED}") } else { String::new() };
            Error::not_a_recording(name, format!("{first}{needed}"))
        }
        (0, None) => Error::not_a_recording(name, "it holds no events"),
        _ => Error::no_switches(name),
    }
}

/// The first line that cannot be read.
struct First {
    number: u64,
    text: String,
    fault: String,
}

impl First {
    /// Keeps the start of the line, and finds its fault.
    fn new(number: u64, text: &str) -> Self {
        First { number, text: start_of(text), fault: columns::fault(text) }
    }

    /// Whether the line looks like an event that lacks a column.
    fn is_event(&self) -> bool {
        self.fault.contains("without its")
    }
}

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} {}: `{}`", self.number, self.fault, self.text)
    }
}

/// The first 60 characters of a line, for a message; control characters become `?`.
fn start_of(text: &str) -> String {
    let visible = text.trim().chars().map(|c| if c.is_control() { '?' } else { c });
    visible.take(60).collect()
}

/// Takes the kernel's head of its ring buffer: CPUs online into `machine`, overwritten events as a
/// note. Without `cpus` events were overwritten, but their number is unknown.
fn ring(machine: Option<&mut Machine>, overwritten: u64, cpus: Option<u32>, sink: &mut impl Sink) {
    if let (Some(machine), Some(cpus)) = (machine, cpus) {
        machine.cpus = Some(cpus);
    }
    if overwritten > 0 || cpus.is_none() {
        sink.note(&Note::Overwritten { events: overwritten });
    }
}

/// Takes a line of perf's head: into `machine` while that is not passed on, and `--overwrite` as a
/// note.
fn header(machine: Option<&mut Machine>, key: &str, value: &str, sink: &mut impl Sink) {
    if key == "cmdline" && value.split(' ').any(|word| word == "--overwrite") {
        sink.note(&Note::Overwritten { events: 0 });
    }
    let Some(machine) = machine else { return };
    let value = value.to_owned();
    match key {
        "os release" => machine.kernel = Some(value),
        "arch" => machine.arch = Some(value),
        "nrcpus avail" => machine.cpus_possible = value.parse().ok(),
        "nrcpus online" => machine.cpus = value.parse().ok(),
        "cmdline" => machine.command = Some(value),
        _ => {}
    }
}
