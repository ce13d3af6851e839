//! A recording read from the command line.

use crate::args::Reading;
use crate::output;
use cpumax_recording::{EventCost, Options, Recording, Summary};
use cpumax_report::{duration, escape};
use std::fmt::Write;
use std::io;
use std::path::Path;

pub fn read(reading: &Reading) -> anyhow::Result<Recording> {
    let event_cost = EventCost { syscall_ns: reading.syscall_cost, other_ns: reading.event_cost };
    let options = Options { event_cost };
    if is_stdin(reading) {
        return Ok(Recording::read_text("standard input", io::stdin().lock(), options)?);
    }
    Ok(Recording::read(&reading.recording, options)?)
}

fn is_stdin(reading: &Reading) -> bool {
    reading.recording == Path::new("-")
}

/// The recording's name wherever it lies.
pub fn name(reading: &Reading) -> String {
    if is_stdin(reading) {
        return "standard input".to_owned();
    }
    let name = reading.recording.file_name().unwrap_or(reading.recording.as_os_str());
    name.to_string_lossy().into_owned()
}

/// What kind of recording it is, in some lines.
pub fn describe(reading: &Reading, summary: &Summary) -> String {
    let mut text = format!(
        "{}: {} on {} CPUs, {} events, {} threads",
        escape::line(&name(reading)),
        duration(summary.span_ns),
        summary.cpus,
        summary.events,
        summary.threads.len()
    );
    if let Some(kernel) = &summary.kernel {
        let _ = write!(text, ", Linux {}", escape::line(kernel));
    }
    if !summary.has_syscalls {
        text.push_str(
            "\nNo system calls were recorded: all CPU time of threads counts as user mode.",
        );
    }
    text.lines().map(output::wrapped).collect::<Vec<_>>().join("\n")
}
