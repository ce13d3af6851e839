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
    kernel: Vec<Entry>,
}

/// All kernels of the catalog, oldest first.
pub fn all() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| parse(TEXT).expect("a test reads the built-in kernels.toml"))
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

fn parse(text: &str) -> Result<Vec<Entry>, Error> {
    let malformed = |reason| Error::Malformed { path: PathBuf::from("kernels.toml"), reason };
    let catalog: Catalog = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
    Ok(catalog.kernel)
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
    fn other_text_is_refused() {
        assert!(parse("[[kernel]]\nname = 1").is_err());
        assert!(parse("[[kernel]]\nnames = \"6.1\"").is_err());
    }
}
