//! Finds the workload of an argument: a built-in scenario or a random case by name, or a file by
//! path.
//!
//! ```
//! use cpumax_study::{builtin, scenario};
//!
//! let nested = scenario::load("nested")?;
//! assert!(scenario::text("nested")?.contains("shows"));
//! let listed = builtin::listed()?;
//! let row = listed.iter().find(|row| row.scenario == "nested").unwrap();
//! assert_eq!((row.cpus, row.duration_ns), (nested.machine.cpus, nested.duration_ns));
//! let told = scenario::load("nestd").unwrap_err().to_string();
//! assert!(told.contains("did you mean 'nested'?"), "{told}");
//! # Ok::<(), cpumax_study::Error>(())
//! ```

use crate::builtin;
use crate::error::Error;
use cpumax_workload::{Workload, random};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// First bytes of a file written by perf.
const PERF_MAGIC: &[u8; 8] = b"PERFILE2";

/// Loads the workload that `argument` names: a built-in scenario, a random case, or a file. A path
/// has a separator or an extension, or names a file that is there.
///
/// # Errors
/// There is no such scenario, or its file cannot be read or is refused.
pub fn load(argument: &str) -> Result<Workload, Error> {
    let path = Path::new(argument);
    let is_path = argument.contains(std::path::MAIN_SEPARATOR) || path.extension().is_some();
    if !is_path {
        match builtin::find(argument) {
            Some(built_in) => return Ok(cpumax_workload::parse(built_in.text, built_in.name)?),
            None if path.exists() => {}
            None => return case(argument).ok_or_else(|| not_built_in(argument)),
        }
    }
    if is_recording(path) {
        return Err(Error::Scenario(format!(
            "{argument} is a recording, not a scenario: use `cpumax replay {argument}`"
        )));
    }
    let workload = cpumax_workload::load(path)?;
    if workload.tasks.is_empty() {
        return Err(Error::Scenario(format!(
            "{argument}: it has no tasks, so nothing would run; give it a `[[task]]` \
             (docs/reference/scenarios.md)"
        )));
    }
    Ok(workload)
}

/// The text of a built-in scenario, or of a random case; files are not read.
///
/// # Errors
/// There is no scenario of this name.
pub fn text(name: &str) -> Result<String, Error> {
    let built_in = builtin::find(name).map(|built_in| built_in.text.to_owned());
    let text = built_in.or_else(|| Some(cpumax_workload::print(&case(name)?)));
    text.ok_or_else(|| not_built_in(name))
}

/// The random case of this name, as `compare` and `search` print it: `case-1000830`, or
/// `case-1-of-2` for two CPUs. `None` where the case of this number has another name.
pub fn case(name: &str) -> Option<Workload> {
    case_of_number(name).filter(|workload| workload.name == name)
}

/// The random case of the number N in `case-N` or `case-N-of-M`; the case may have other than M
/// CPUs, and so another name. `None` for other texts.
fn case_of_number(name: &str) -> Option<Workload> {
    let number = name.strip_prefix("case-")?;
    let (number, make): (&str, fn(u64) -> Workload) = match number.split_once("-of-") {
        Some((number, _)) => (number, random::real_on_several),
        None => (number, random::real),
    };
    Some(make(number.parse().ok()?))
}

/// The error for a name that is no built-in scenario, with the name that was probably meant.
pub fn not_built_in(name: &str) -> Error {
    let shown = cpumax_limit::one_line(name);
    Error::Scenario(if let Some(workload) = case_of_number(name) {
        let called = &workload.name;
        format!("no random case is called '{shown}'; the one of this number is '{called}'")
    } else if let Some(near) = builtin::nearest(name) {
        format!(
            "no built-in scenario is called '{shown}'; did you mean '{near}'? `cpumax scenarios` \
             lists them"
        )
    } else {
        format!("no built-in scenario is called '{shown}'; `cpumax scenarios` lists them")
    })
}

/// Whether perf wrote this file, by its first bytes; false where it cannot be read.
pub fn is_recording(path: &Path) -> bool {
    let mut start = [0; PERF_MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start == PERF_MAGIC
}
