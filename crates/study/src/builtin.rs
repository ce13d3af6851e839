//! The built-in scenarios: every file of the folder `scenarios/`, embedded at build time.

use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;

/// A scenario file that is part of the program.
///
/// ```
/// use cpumax_study::builtin;
///
/// assert!(builtin::find("burst").unwrap().text.contains("burst = "));
/// assert_eq!(builtin::nearest("brust"), Some("burst"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// Stem of the file's name; `cpumax run` takes it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// A built-in scenario as it is listed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Listed {
    /// Its name for `cpumax run`.
    pub scenario: &'static str,
    /// The effect that it shows.
    pub shows: String,
    /// CPUs of its machine.
    pub cpus: u16,
    /// Length of its run, ns.
    pub duration_ns: u64,
    /// Number of its expectations.
    pub expectations: usize,
}

/// All built-in scenarios for listings, by name.
///
/// # Errors
/// No error is possible: every built-in scenario can be read.
pub fn listed() -> Result<Vec<Listed>, Error> {
    let listed = |built_in: &BuiltIn| {
        let workload = cpumax_workload::parse(built_in.text, built_in.name)?;
        Ok(Listed {
            scenario: built_in.name,
            shows: workload.shows.clone(),
            cpus: workload.machine.cpus,
            duration_ns: workload.duration_ns,
            expectations: workload.expectations.len(),
        })
    };
    ALL.iter().map(listed).collect()
}

/// All built-in scenarios, by name.
pub const ALL: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// The built-in scenario of exactly this name; `None` if there is none.
pub fn find(name: &str) -> Option<&'static BuiltIn> {
    ALL.iter().find(|built_in| built_in.name == name)
}

/// The built-in name most like a mistyped one; `None` if none is like it.
pub fn nearest(name: &str) -> Option<&'static str> {
    most_alike(ALL.iter().map(|built_in| built_in.name), name)
}

/// The name most like `given`, by a Jaro-Winkler likeness above 0.8; `None` if none is.
pub(crate) fn most_alike<'a>(names: impl Iterator<Item = &'a str>, given: &str) -> Option<&'a str> {
    let near = names.map(|name| (strsim::jaro_winkler(name, given), name));
    let near = near.filter(|(likeness, _)| *likeness > 0.8);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}
