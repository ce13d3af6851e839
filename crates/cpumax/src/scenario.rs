//! From an argument to a workload: a built-in scenario by name, or a file by path.

use crate::builtin;
use crate::command::scenarios::not_built_in;
use anyhow::bail;
use cpumax_workload::Workload;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// First bytes of a file written by perf.
const PERF_MAGIC: &[u8; 8] = b"PERFILE2";

/// The workload that `argument` names. What looks like a path is one.
pub fn load(argument: &str) -> anyhow::Result<Workload> {
    let path = Path::new(argument);
    let is_path = argument.contains(std::path::MAIN_SEPARATOR) || path.extension().is_some();
    if !is_path {
        match builtin::find(argument) {
            Some(built_in) => return Ok(cpumax_workload::parse(built_in.text, built_in.name)?),
            None if !path.exists() => return Err(not_built_in(argument)),
            None => {}
        }
    }
    if is_recording(path) {
        bail!("{argument} is a recording, not a scenario: use `cpumax replay {argument}`");
    }
    Ok(cpumax_workload::load(path)?)
}

/// Whether perf wrote this file.
pub fn is_recording(path: &Path) -> bool {
    let mut start = [0; PERF_MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start == PERF_MAGIC
}
