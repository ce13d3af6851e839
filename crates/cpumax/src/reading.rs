//! A recording read from the command line.

use crate::args::Reading;
use cpumax_recording::{EventCost, Options, Recording};
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
