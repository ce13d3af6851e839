//! Fetches kernels: finds the package, gets it with apt, keeps the image and its configuration. A
//! kernel that is here is not fetched again, so the lab works without a network afterwards.

use crate::Error;
use crate::apt::{Apt, Package, Source};
use crate::cache::{Cache, Kernel, Origin, sha256};
use crate::catalog::Entry;
use crate::lock::Lock;
use crate::runner::Watch;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Progress of a fetch.
#[derive(Debug)]
pub enum Step<'a> {
    /// The package lists of these suites are being fetched.
    Lists(&'a [String]),
    /// A kernel is being fetched: its release, and the bytes of its packages.
    Fetch(&'a Entry, &'a str, u64),
    /// A kernel is in the cache; `true`: it was there before.
    Here(&'a Kernel, bool),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Lists(suites) => write!(out, "reading the lists of {}", suites.join(", ")),
            Step::Fetch(entry, release, bytes) => {
                let mib = bytes.div_ceil(1 << 20);
                write!(out, "fetching {} linux-image-{release} ({mib} MiB)", entry.name)
            }
            Step::Here(Kernel { name, origin, .. }, before) => {
                let before = if *before { ", was here" } else { "" };
                write!(out, "{name} {} {}{before}", origin.release, origin.package_version)
            }
        }
    }
}

/// Fetches kernels into the cache, and calls `told` at each step.
///
/// With `newest` it takes the newest package of each version, even if `kernels.toml` names another
/// or one is in the cache.
///
/// # Errors
/// apt's own errors, a version that is on no mirror, a full disk, an interruption. Kernels fetched
/// before the error stay.
pub fn fetch(
    cache: &Cache,
    source: &Source,
    entries: &[&'static Entry],
    newest: bool,
    watch: &dyn Watch,
    told: &mut dyn FnMut(Step<'_>),
) -> Result<(), Error> {
    let mut wanted = Vec::new();
    for entry in entries {
        match cache.kernel(&entry.name) {
            Ok(kernel) if !newest => told(Step::Here(&kernel, true)),
            _ => wanted.push(*entry),
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut suites: Vec<String> = wanted.iter().flat_map(|entry| entry.suites.clone()).collect();
    suites.sort();
    suites.dedup();
    fs::create_dir_all(cache.folder()).map_err(Error::file("make", cache.folder()))?;
    // Two fetches at a time would overwrite each other's lists.
    let _alone = Lock::take(&cache.folder().join("fetch.lock"), &|| watch.stopped())?;
    remove_stale(cache.folder());
    remove_stale(&cache.folder().join("kernels"));
    told(Step::Lists(&suites));
    // The lists are larger than the kernels and soon out of date, so they are not kept.
    let lists = tempfile::Builder::new().prefix(".apt-").tempdir_in(cache.folder());
    let lists = lists.map_err(Error::file("make a folder in", cache.folder()))?;
    let apt = Apt::open(lists.path(), source, &suites, watch)?;
    apt.update()?;
    let names = apt.names("linux-")?;
    for entry in wanted {
        let release = choose_release(entry, &names, newest).ok_or_else(|| Error::Gone {
            name: entry.name.clone(),
            flavour: entry.flavour.clone(),
            suites: entry.suites.join(", "),
        })?;
        let packages = apt.packages(&parts_of(release, &names))?;
        told(Step::Fetch(entry, release, packages.iter().map(|part| part.size_bytes).sum()));
        store(cache, &apt, entry, (release, &packages))?;
        told(Step::Here(&cache.kernel(&entry.name)?, false));
    }
    Ok(())
}

/// Removes the folders of a killed fetch; the caller holds the lock.
fn remove_stale(folder: &Path) {
    let paths = files_of(folder).unwrap_or_default();
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with(".partial-") || name.starts_with(".apt-")) {
            // A folder that stays only takes room.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// The release to fetch: the preferred one, or the newest of its version.
fn choose_release<'a>(entry: &Entry, names: &'a [String], newest: bool) -> Option<&'a str> {
    let releases = || names.iter().filter_map(|name| name.strip_prefix("linux-image-"));
    let of_version = |release: &&str| {
        let rest = release.strip_prefix(entry.version()).unwrap_or("");
        rest.starts_with('.') && rest.ends_with(&format!("-{}", entry.flavour))
    };
    let named = releases().find(|release| *release == entry.release && !newest);
    named.or_else(|| releases().filter(of_version).max_by_key(|release| version_key(release)))
}

/// Sort key of a release: its numbers.
fn version_key(release: &str) -> Vec<u64> {
    let numbers = release.split(|c: char| !c.is_ascii_digit());
    numbers.filter(|part| !part.is_empty()).map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// The image's package, and those that hold the image itself and its configuration in newer
/// kernels. The latter may be missing: it is not signed.
fn parts_of(release: &str, names: &[String]) -> Vec<String> {
    let parts = ["image", "binary", "base"].map(|part| format!("linux-{part}-{release}"));
    parts.into_iter().filter(|part| names.contains(part)).collect()
}

/// Fetches and unpacks a kernel beside its cache entry, which appears only when complete.
fn store(
    cache: &Cache,
    apt: &Apt<'_>,
    entry: &Entry,
    (release, packages): (&str, &[Package]),
) -> Result<(), Error> {
    let target = cache.kernel_folder(&entry.name);
    let kernels = target.parent().unwrap_or(&target);
    fs::create_dir_all(kernels).map_err(Error::file("make", kernels))?;
    let partial = tempfile::Builder::new().prefix(".partial-").tempdir_in(kernels);
    let partial = partial.map_err(Error::file("make a folder in", kernels))?;
    let folder = partial.path();
    apt.download(packages, folder)?;
    for path in files_of(folder)? {
        unpack(&path, release, folder)?;
        fs::remove_file(&path).map_err(Error::file("remove", &path))?;
    }
    let image = fs::read(folder.join("vmlinuz")).map_err(|_| Error::Unpack {
        package: format!("linux-image-{release}"),
        file: "vmlinuz",
    })?;
    let origin = Origin {
        release: release.to_owned(),
        package_version: packages.first().map(|image| image.version.clone()).unwrap_or_default(),
        packages: packages.iter().map(|part| (part.name.clone(), part.sha256.clone())).collect(),
        image_sha256: Some(sha256(&image)),
    };
    let path = folder.join("kernel.json");
    let text = serde_json::to_string_pretty(&origin).map_err(io::Error::other);
    text.and_then(|text| fs::write(&path, text)).map_err(Error::file("write", &path))?;
    if target.exists() {
        fs::remove_dir_all(&target).map_err(Error::file("replace", &target))?;
    }
    fs::rename(folder, &target).map_err(Error::file("make", &target))
}

fn files_of(folder: &Path) -> Result<Vec<std::path::PathBuf>, Error> {
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    entries.map_err(Error::file("read", folder))
}

/// Extracts image and configuration from a package, wherever they are in it.
fn unpack(package: &Path, release: &str, folder: &Path) -> Result<(), Error> {
    let root = folder.join("root");
    let ended = Command::new("dpkg-deb").arg("--extract").args([package, &root]).output();
    let ended = ended.map_err(Error::start("dpkg-deb", "dpkg"))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        return Err(Error::file("unpack", package)(io::Error::other(said)));
    }
    for name in ["vmlinuz", "config"] {
        let places =
            [format!("boot/{name}-{release}"), format!("usr/lib/modules/{release}/{name}")];
        for path in places.iter().map(|place| root.join(place)) {
            if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
                fs::rename(&path, folder.join(name)).map_err(Error::file("move", &path))?;
            }
        }
    }
    fs::remove_dir_all(&root).map_err(Error::file("remove", &root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use cpumax_require::{Need, found};

    fn names(releases: &[&str]) -> Vec<String> {
        releases.iter().map(|release| format!("linux-image-{release}")).collect()
    }

    #[test]
    fn the_named_release_is_taken_and_else_the_newest_of_its_version() {
        let entry = catalog::find("6.12").unwrap();
        let (old, new) = ("6.12.9+deb13-cloud-amd64", "6.12.200+deb13-cloud-amd64");
        let others = [
            "6.12.300+deb13-rt-amd64",
            "6.12.300+deb13-cloud-amd64-unsigned",
            "6.12-cloud-amd64",
            "6.1.0-300-cloud-amd64",
        ];
        let with = |releases: &[&str], newest| {
            let all = names(&[releases, &others].concat());
            choose_release(entry, &all, newest).map(str::to_owned)
        };
        let named = &*entry.release;
        assert_eq!(with(&[old, named, new], false).as_deref(), Some(named));
        assert_eq!(with(&[old, named, new], true).as_deref(), Some(new));
        assert_eq!(with(&[new, old], false).as_deref(), Some(new));
        assert_eq!(with(&[], false), None);
    }

    #[test]
    fn a_kernel_in_parts_is_fetched_without_its_modules() {
        let all =
            ["base", "modules", "binary", "image"].map(|part| format!("linux-{part}-7.3.4-a"));
        let parts = ["linux-image-7.3.4-a", "linux-binary-7.3.4-a", "linux-base-7.3.4-a"];
        assert_eq!(parts_of("7.3.4-a", &all), parts);
        assert_eq!(parts_of("6.1-a", &names(&["6.1-a"])), ["linux-image-6.1-a"]);
    }

    #[test]
    fn image_and_configuration_are_taken_from_either_place() {
        for place in ["boot/vmlinuz-7.3", "usr/lib/modules/7.3/vmlinuz"] {
            let folder = tempfile::tempdir().unwrap();
            let tree = folder.path().join("tree");
            for (path, text) in [
                (place, place),
                ("usr/share/doc/vmlinuz-7.3", "other"),
                (
                    "DEBIAN/control",
                    "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a\n\
                                    Description: a\n",
                ),
            ] {
                fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
                fs::write(tree.join(path), text).unwrap();
            }
            let package = folder.path().join("a.deb");
            let mut build = Command::new("dpkg-deb");
            build.args(["--root-owner-group", "--build"]).args([&tree, &package]);
            let Some(built) = found(Need::Mount, build.output()) else { return };
            assert!(built.status.success(), "{built:?}");
            let kept = folder.path().join("kept");
            fs::create_dir(&kept).unwrap();
            unpack(&package, "7.3", &kept).unwrap();
            assert_eq!(fs::read_to_string(kept.join("vmlinuz")).unwrap(), place);
            assert_eq!(files_of(&kept).unwrap().len(), 1);
        }
    }
}
