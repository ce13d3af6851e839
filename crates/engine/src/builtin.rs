//! The scenarios that come with the program: every file of the folder `scenarios/`, embedded when
//! it is built.

use crate::error::Error;
use schemars::JsonSchema;
use serde::Serialize;

/// A scenario file that is part of the program.
///
/// ```
/// use cpumax_engine::builtin;
///
/// assert!(builtin::find("burst").unwrap().text.contains("burst = "));
/// assert_eq!(builtin::nearest("brust"), Some("burst"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// Stem of the file's name, by which `cpumax run` finds it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// A built-in scenario as it is listed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Listed {
    /// By which `cpumax run` finds it.
    pub scenario: &'static str,
    /// What it shows.
    pub shows: String,
    /// CPUs of its machine.
    pub cpus: u16,
    /// How long it runs, ns.
    pub duration_ns: u64,
    /// How many numbers it expects.
    pub expectations: usize,
}

/// All of them as they are listed.
///
/// # Errors
/// None: what is built in can be read.
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

/// In order of name.
pub const ALL: &[BuiltIn] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// The built-in scenario of this name.
pub fn find(name: &str) -> Option<&'static BuiltIn> {
    ALL.iter().find(|built_in| built_in.name == name)
}

/// The name that was probably meant.
pub fn nearest(name: &str) -> Option<&'static str> {
    let likeness = |built_in: &BuiltIn| strsim::jaro_winkler(built_in.name, name);
    let near = ALL.iter().map(|built_in| (likeness(built_in), built_in.name));
    near.filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}
