//! A recording read from the command line.

use crate::args::Reading;
use crate::output;
use cpumax_recording::{EventCost, Options, Recording, Summary};
use cpumax_report::{duration, escape};
use std::fmt::Write;
use std::io;
use std::path::Path;

pub fn read(reading: &Reading) -> anyhow::Result<Recording> {
    let told = reading.syscall_cost.is_some() || reading.event_cost.is_some();
    let event_cost = told.then(|| EventCost {
        syscall_ns: reading.syscall_cost.unwrap_or(0),
        other_ns: reading.event_cost.unwrap_or(0),
    });
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
    let EventCost { syscall_ns, other_ns } = summary.event_cost;
    if syscall_ns > 0 || other_ns > 0 {
        let calls = if summary.has_syscalls {
            format!(", {syscall_ns} ns each entry into and exit from a system call")
        } else {
            String::new()
        };
        let _ =
            write!(text, "\nRecording an event cost {other_ns} ns{calls}: taken off CPU times.");
    }
    if !summary.has_syscalls {
        text.push_str(
            "\nNo system calls were recorded: all CPU time of threads counts as user mode.",
        );
    }
    text.lines().map(output::wrapped).collect::<Vec<_>>().join("\n")
}
