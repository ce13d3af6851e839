//! A recording read from the command line.

use crate::args::Costs;
use cpumax_recording::{EventCost, Options, Recording};
use std::io;
use std::path::Path;

pub fn read(recording: &Path, costs: &Costs) -> anyhow::Result<Recording> {
    let told = costs.syscall_cost.is_some() || costs.event_cost.is_some();
    let event_cost = told.then(|| EventCost {
        syscall_ns: costs.syscall_cost.unwrap_or(0),
        other_ns: costs.event_cost.unwrap_or(0),
    });
    let options = Options { event_cost };
    if is_stdin(recording) {
        return Ok(Recording::read_pipe("standard input", io::stdin().lock(), options)?);
    }
    Ok(Recording::read(recording, options)?)
}

fn is_stdin(recording: &Path) -> bool {
    recording == Path::new("-")
}

/// The recording's name wherever it lies.
pub fn name(recording: &Path) -> String {
    if is_stdin(recording) {
        return "standard input".to_owned();
    }
    let name = recording.file_name().unwrap_or(recording.as_os_str());
    name.to_string_lossy().into_owned()
}
