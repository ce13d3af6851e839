//! The scenarios that come with the program: every file of the folder `scenarios/`, embedded when
//! it is built.

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
