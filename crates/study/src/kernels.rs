//! The kernels that a list names, in the model or among those that have been fetched.
//!
//! ```
//! use cpumax_study::kernels;
//!
//! let names: Vec<String> =
//!     kernels::modelled("6.12..6.14")?.into_iter().map(|kernel| kernel.name).collect();
//! assert_eq!(names, ["6.12", "6.13", "6.14"]);
//! let alike = kernels::alike();
//! assert!(alike.iter().any(|row| row.first == "6.18" && row.generation == "G3"));
//! # Ok::<(), cpumax_study::Error>(())
//! ```

use crate::error::Error;
use crate::job::NamedKernel;
use cpumax_lab::cache::{self, Cache};
use cpumax_lab::catalog;
use cpumax_lab::config::Config;
use cpumax_machine::kernel::{
    self, Generation, Kernel, RELEASES, Release, UNKNOWN_FROM, UNRELEASED, Version,
};
use schemars::JsonSchema;
use serde::Serialize;

/// The kernels of the model that a list names.
///
/// # Errors
/// The list is empty, or names a kernel that is not modelled.
pub fn modelled(list: &str) -> Result<Vec<NamedKernel>, Error> {
    Ok(kernel::parse_kernels(list)?.into_iter().map(NamedKernel::from).collect())
}

/// Real kernels that a list names.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// Kernels that can run.
    pub kernels: Vec<NamedKernel>,
    /// For each range of the list, its kernels that have not been fetched.
    pub absent: Vec<(String, Vec<String>)>,
}

/// The kernels of `kernels.toml` that a list names, without duplicates. A kernel named by itself is
/// not checked to be fetched. Of a range it takes those that have been fetched and have no flavour
/// of their own; the others are listed as absent.
///
/// # Errors
/// The list names an unknown kernel, or a range of which none has been fetched.
pub fn fetched(list: &str) -> Result<Fetched, Error> {
    fetched_of(list, is_here)
}

/// As [`fetched`], the kernels that a list names, without duplicates; `is_here` tells which of a
/// range have been fetched. An error for an unknown kernel, and for a range of which none has been.
fn fetched_of(list: &str, is_here: impl Fn(&str) -> bool) -> Result<Fetched, Error> {
    let mut names: Vec<&str> = Vec::new();
    let mut fetched = Fetched::default();
    for part in list.split(',').map(str::trim) {
        let Some((low, high)) = part.split_once("..") else {
            names.push(&catalog::find(part)?.name);
            continue;
        };
        let (mut here, absent): (Vec<&str>, Vec<&str>) =
            range(part, (low, high))?.into_iter().partition(|name| is_here(name));
        let absent: Vec<String> = absent.into_iter().map(str::to_owned).collect();
        if here.is_empty() {
            return Err(Error::NoneFetched { range: part.to_owned(), absent });
        }
        if !absent.is_empty() {
            fetched.absent.push((part.to_owned(), absent));
        }
        names.append(&mut here);
    }
    for name in names {
        if fetched.kernels.iter().all(|kernel| kernel.name != name) {
            let version = catalog::find(name)?.version().parse()?;
            let kernel = Kernel::of(version)?;
            fetched.kernels.push(NamedKernel { name: name.to_owned(), kernel });
        }
    }
    Ok(fetched)
}

/// Names of the catalog's kernels from `low` to `high`, both included, without those with a flavour
/// such as `6.12-rt`. An empty end stands for the first or the last kernel. `part` names the range
/// in errors: an unknown kernel, or no kernel at all.
fn range(part: &str, (low, high): (&str, &str)) -> Result<Vec<&'static str>, Error> {
    let all = catalog::all();
    let place = |name: &str, otherwise: usize| -> Result<usize, Error> {
        if name.is_empty() {
            return Ok(otherwise);
        }
        let found = catalog::find(name)?;
        Ok(all.iter().position(|entry| entry.name == found.name).unwrap_or(otherwise))
    };
    let (low, high) = (place(low, 0)?, place(high, all.len().saturating_sub(1))?);
    let range = all.get(low..=high).filter(|range| !range.is_empty());
    let range = range.ok_or_else(|| kernel::KernelError::EmptyRange(part.to_owned()))?;
    let names = range.iter().map(|entry| entry.name.as_str());
    Ok(names.filter(|name| !name.contains('-')).collect())
}

/// Whether a kernel has been fetched. Any other fault, such as damage, counts as fetched and shows
/// when it runs.
fn is_here(name: &str) -> bool {
    let kernel = Cache::of_user().and_then(|cache| cache.kernel(name));
    !matches!(kernel, Err(cpumax_lab::Error::NotFetched { .. }))
}

/// Consecutive versions that the model treats alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Alike {
    /// The first of them.
    pub first: String,
    /// The last.
    pub last: String,
    /// Generation of bandwidth control.
    pub generation: String,
    /// The change from the versions before.
    pub changed: &'static str,
}

/// All versions of the model, in runs of equal rules from the oldest on, then the rules that no
/// kernel was released with.
pub fn alike() -> Vec<Alike> {
    let ends = RELEASES.iter().skip(1).map(|release| release.from).chain([UNKNOWN_FROM]);
    let alike = |(release, end): (&Release, Version)| Alike {
        first: release.from.to_string(),
        last: before(end).to_string(),
        generation: release.generation.to_string(),
        changed: release.changed,
    };
    let unreleased = UNRELEASED.iter().map(|kernel| Alike {
        first: kernel.name.to_owned(),
        last: kernel.name.to_owned(),
        generation: Generation::Own.to_string(),
        changed: kernel.changed,
    });
    RELEASES.iter().zip(ends).map(alike).chain(unreleased).collect()
}

/// A rule in which two kernels differ, by its name in the model.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Differing {
    /// Its name.
    pub rule: &'static str,
    /// Its value in the first kernel.
    pub first: String,
    /// Its value in the second.
    pub second: String,
}

/// The rules in which two modelled kernels differ.
///
/// # Errors
/// A name is that of no kernel, or of several.
pub fn differing([first, second]: [&str; 2]) -> Result<Vec<Differing>, Error> {
    let one = |name: &str| match modelled(name)?.as_slice() {
        [kernel] => Ok(kernel.kernel),
        _ => Err(Error::Question(format!("{name} names several kernels: give one"))),
    };
    let of = |(rule, first, second)| Differing { rule, first, second };
    Ok(one(first)?.differs(&one(second)?).into_iter().map(of).collect())
}

/// The release before a version. Linux went from 4.20 to 5.0, from 5.19 to 6.0 and from 6.19 to
/// 7.0.
fn before(version: Version) -> Version {
    match (version.major, version.minor) {
        (5, 0) => Version { major: 4, minor: 20 },
        (major, 0) => Version { major: major.saturating_sub(1), minor: 19 },
        (major, minor) => Version { major, minor: minor - 1 },
    }
}

/// A real kernel.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Real {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The fetched package; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<Here>,
}

/// Version of the oldest real kernel of the catalog; the model of older ones is compared with none.
pub fn oldest_real() -> &'static str {
    catalog::all().first().map_or("", |entry| entry.version())
}

/// The fetched package of a real kernel.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Here {
    /// Its release (`uname -r`).
    pub release: String,
    /// Version of its package.
    pub package_version: String,
    /// Options of its build that matter here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
}

/// All real kernels of the catalog. Those that have not been fetched, or are damaged, have no
/// package.
///
/// # Errors
/// A fetched package cannot be read.
pub fn real() -> Result<Vec<Real>, Error> {
    let cache = Cache::of_user()?;
    let real = |entry: &'static catalog::Entry| {
        let here = match cache.kernel(&entry.name) {
            Ok(cache::Kernel { origin, config, .. }) => Some(Here {
                release: origin.release,
                package_version: origin.package_version,
                config,
            }),
            Err(cpumax_lab::Error::NotFetched { .. } | cpumax_lab::Error::Damaged { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Real { name: &entry.name, version: entry.version(), here })
    };
    catalog::all().iter().map(real).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of a list, as if 7.2 had not been fetched.
    fn names(list: &str) -> Vec<String> {
        let fetched = fetched_of(list, |name| name != "7.2").unwrap();
        fetched.kernels.into_iter().map(|kernel| kernel.name).collect()
    }

    #[test]
    fn lists_and_ranges_are_of_kernels_that_there_are() {
        assert_eq!(names("6.12,6.12-rt, 6.12"), ["6.12", "6.12-rt"]);
        assert_eq!(names("7.1..7.3"), ["7.1", "7.3"]);
        assert_eq!(names("7.2"), ["7.2"], "who runs it tells that it is not here");
        assert!(names("..").len() > 5);
        let fetched = fetched_of("7.1..7.3", |name| name != "7.2").unwrap();
        assert_eq!(fetched.absent, [("7.1..7.3".to_owned(), vec!["7.2".to_owned()])]);
        let told = fetched_of("7.2..7.2", |name| name != "7.2").unwrap_err().to_string();
        assert!(told.contains("lab fetch 7.2"), "{told}");
        for list in ["", "5.4", "7.3..7.1", "6.1,"] {
            assert!(super::fetched(list).is_err(), "{list}");
        }
        let rt = super::fetched("6.12-rt").unwrap().kernels;
        assert_eq!(rt[0].kernel.version.to_string(), "6.12");
    }

    #[test]
    fn versions_meet_without_gap_or_overlap() {
        let all = alike();
        assert_eq!((&*all[0].first, &*all[0].last), ("3.16", "4.17"));
        let of = |first: &str| all.iter().find(|alike| alike.first == first).unwrap();
        assert_eq!(of("4.19").last, "5.0");
        assert_eq!(of("6.18").last, "6.18");
        assert_eq!(of("6.14").last, "6.15");
        assert_eq!(of("7.3").last, "7.3");
        assert_eq!(before(Version { major: 7, minor: 0 }).to_string(), "6.19");
    }
}
