//! The file `kernels.toml`, built into the program: the kernels that the lab can fetch.

use crate::Error;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::OnceLock;

const TEXT: &str = include_str!("../../../kernels.toml");

/// A kernel that can be fetched (an entry of `kernels.toml`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Value of `--kernel`, e.g. `6.12` or `6.12-rt`.
    pub name: String,
    /// Last part of the package's name, e.g. `cloud-amd64`.
    pub flavour: String,
    /// Preferred kernel release, e.g. `6.12.117+deb13-cloud-amd64`.
    pub release: String,
    /// Debian suites that have it, the preferred one first.
    pub suites: Vec<String>,
    /// Where it is taken unless other kernels are named.
    #[serde(default)]
    pub sets: Vec<Set>,
}

/// A set of kernels that is taken where none are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// By `cpumax run`.
    Run,
    /// By `cpumax compare`.
    Compare,
    /// By `cpumax weigh`, beside an unreleased kernel.
    Weigh,
    /// By `make conformance`.
    Conformance,
    /// By comparisons with several CPUs and by a test of conformance.
    Parallel,
    /// By tests.
    Test,
}

impl Entry {
    /// Version for the model, major and minor: `6.12` for `6.12-rt`.
    pub fn version(&self) -> &str {
        self.name.split('-').next().unwrap_or(&self.name)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalog {
    older: Vec<String>,
    kernel: Vec<Entry>,
}

fn catalog() -> &'static Catalog {
    static CATALOG: OnceLock<Catalog> = OnceLock::new();
    CATALOG.get_or_init(|| parse(TEXT).expect("a test reads the built-in kernels.toml"))
}

/// All kernels of the catalog, oldest first.
pub fn all() -> &'static [Entry] {
    &catalog().kernel
}

/// The kernels of a set, as a list for `--kernel`.
pub fn list(set: Set) -> String {
    let names = all().iter().filter(|entry| entry.sets.contains(&set)).map(|entry| &*entry.name);
    names.collect::<Vec<_>>().join(",")
}

/// The kernels that `cpumax run` shows in the model: one of each generation from 4.19 on, and some
/// that differ within one.
pub fn modelled() -> String {
    format!("{},{}", catalog().older.join(","), list(Set::Run))
}

/// The entry with this name.
///
/// # Errors
/// [`Error::UnknownKernel`], with all names.
pub fn find(name: &str) -> Result<&'static Entry, Error> {
    all().iter().find(|entry| entry.name == name).ok_or_else(|| Error::UnknownKernel {
        name: name.to_owned(),
        known: all().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

fn parse(text: &str) -> Result<Catalog, Error> {
    let malformed = |reason| Error::Malformed { path: PathBuf::from("kernels.toml"), reason };
    toml::from_str(text).map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_built_in_kernels_make_sense() {
        let names: BTreeSet<&str> = all().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names.len(), all().len(), "a name stands twice");
        for entry in all() {
            let rest = entry.release.strip_prefix(entry.version());
            assert!(rest.is_some_and(|rest| rest.starts_with('.')), "{entry:?}");
            assert!(entry.release.ends_with(&entry.flavour), "{entry:?}");
            assert!(!entry.suites.is_empty(), "{entry:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_all_known_ones() {
        assert_eq!(find("6.12-rt").unwrap().version(), "6.12");
        let told = find("5.4").unwrap_err().to_string();
        assert!(told.contains("5.4") && told.contains("6.12, 6.12-rt"), "{told}");
    }

    #[test]
    fn a_set_is_a_list_in_the_order_of_the_catalog() {
        assert_eq!(list(Set::Parallel), "6.12,6.18,7.3");
        assert!(list(Set::Test).starts_with("6.1,6.12,6.12-rt,"));
        assert!(modelled().starts_with("4.19,5.4,6.1,"));
    }

    #[test]
    fn other_text_is_refused() {
        let text = |entry: &str| format!("older = []\n[[kernel]]\n{entry}");
        let entry = "name = \"6.1\"\nflavour = \"a\"\nrelease = \"b\"\nsuites = []\n";
        assert!(parse(&text(entry)).is_ok());
        for wrong in ["name = 1".to_owned(), entry.replace("name", "names")] {
            assert!(parse(&text(&wrong)).is_err(), "{wrong}");
        }
        assert!(parse(&text(&format!("{entry}sets = [\"tests\"]"))).is_err());
    }
}
