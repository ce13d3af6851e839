//! Fetches kernels: finds the package, gets it with apt, keeps the image and its configuration. A
//! kernel that is here is not fetched again, so the lab works without a network afterwards.

use crate::Error;
use crate::apt::{Apt, Package, Source};
use crate::cache::{Cache, Kernel, Origin, sha256};
use crate::catalog::Entry;
use crate::runner::Watch;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Most bytes of an image or configuration.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Progress of a fetch.
#[derive(Debug)]
pub enum Step<'a> {
    /// The package lists of these suites are being fetched.
    Lists(&'a [String]),
    /// A kernel is being fetched: its package, and the bytes of all its packages.
    Fetch(&'a Entry, &'a Package, u64),
    /// A kernel is in the cache; `true`: it was there before.
    Here(&'a Kernel, bool),
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
    let _alone = lock(&cache.folder().join("fetch.lock"), watch)?;
    remove_stale(cache.folder());
    remove_stale(&cache.folder().join("kernels"));
    told(Step::Lists(&suites));
    // The lists are larger than the kernels and soon out of date, so they are not kept.
    let lists = tempfile::Builder::new().prefix(".apt-").tempdir_in(cache.folder());
    let lists = lists.map_err(Error::file("make a folder in", cache.folder()))?;
    let apt = Apt::open(lists.path(), source, &suites, watch)?;
    apt.update()?;
    let packages = apt.packages("^linux-(image|binary|base)-[0-9].*-amd64$")?;
    for entry in wanted {
        let image = choose_image(entry, &packages, newest).ok_or_else(|| Error::Gone {
            name: entry.name.clone(),
            flavour: entry.flavour.clone(),
            suites: entry.suites.join(", "),
        })?;
        let parts = parts_of(image, &packages);
        told(Step::Fetch(entry, image, parts.iter().map(|part| part.size_bytes).sum()));
        store(cache, &apt, entry, &parts)?;
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

/// Waits for the lock of fetches: two at a time would overwrite each other's lists.
fn lock(path: &Path, watch: &dyn Watch) -> Result<File, Error> {
    const LOOK_EACH: Duration = Duration::from_millis(100);
    let file = File::create(path).map_err(Error::file("write", path))?;
    loop {
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if watch.stopped() => {
                return Err(Error::Interrupted);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(LOOK_EACH),
            Err(error) => return Err(Error::file("lock", path)(error.into())),
        }
    }
}

/// The image to fetch: the preferred release, or the newest of its version.
fn choose_image<'a>(entry: &Entry, packages: &'a [Package], newest: bool) -> Option<&'a Package> {
    let named = format!("linux-image-{}", entry.release);
    let of_version = |package: &&Package| {
        let release = package.name.strip_prefix("linux-image-").unwrap_or("");
        let rest = release.strip_prefix(entry.version()).unwrap_or("");
        rest.starts_with('.') && rest.ends_with(&format!("-{}", entry.flavour))
    };
    let found = packages.iter().find(|package| package.name == named && !newest);
    found.or_else(|| {
        packages.iter().filter(of_version).max_by_key(|package| version_key(&package.version))
    })
}

/// Sort key of a version: its numbers, which order the versions of kernel packages.
fn version_key(version: &str) -> Vec<u64> {
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    numbers.filter(|part| !part.is_empty()).map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// The image's package, and those that hold the image itself and its configuration in newer
/// kernels. The latter may be missing: it is not signed.
fn parts_of<'a>(image: &'a Package, packages: &'a [Package]) -> Vec<&'a Package> {
    let release = image.name.trim_start_matches("linux-image-");
    let others = ["linux-binary-", "linux-base-"].map(|part| format!("{part}{release}"));
    let wanted = others.iter().filter(|name| image.depends.contains(name));
    let found = wanted.filter_map(|name| packages.iter().find(|package| package.name == *name));
    std::iter::once(image).chain(found).collect()
}

/// Fetches and unpacks a kernel beside its cache entry, which appears only when complete.
fn store(cache: &Cache, apt: &Apt<'_>, entry: &Entry, parts: &[&Package]) -> Result<(), Error> {
    let target = cache.kernel_folder(&entry.name);
    let kernels = target.parent().unwrap_or(&target);
    fs::create_dir_all(kernels).map_err(Error::file("make", kernels))?;
    let partial = tempfile::Builder::new().prefix(".partial-").tempdir_in(kernels);
    let partial = partial.map_err(Error::file("make a folder in", kernels))?;
    let folder = partial.path();
    apt.download(parts, folder)?;
    let release = parts[0].name.trim_start_matches("linux-image-");
    for path in files_of(folder)? {
        unpack(&path, release, folder)?;
        fs::remove_file(&path).map_err(Error::file("remove", &path))?;
    }
    let image = fs::read(folder.join("vmlinuz"))
        .map_err(|_| Error::Unpack { package: parts[0].name.clone(), file: "vmlinuz" })?;
    let origin = Origin {
        release: release.to_owned(),
        package_version: parts[0].version.clone(),
        packages: parts.iter().map(|part| (part.name.clone(), part.sha256.clone())).collect(),
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
    let mut child = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::start("dpkg-deb", "dpkg"))?;
    let taken = match child.stdout.take() {
        Some(stdout) => extract(stdout, release, folder),
        None => Ok(()),
    };
    // It ends for want of a reader, whatever it was doing.
    let status = child.wait().map_err(Error::file("unpack", package))?;
    taken?;
    if status.success() {
        return Ok(());
    }
    Err(Error::file("unpack", package)(io::Error::other("dpkg-deb finds it broken")))
}

fn extract(tar: impl Read, release: &str, folder: &Path) -> Result<(), Error> {
    let wanted = [
        (format!("boot/vmlinuz-{release}"), "vmlinuz"),
        (format!("usr/lib/modules/{release}/vmlinuz"), "vmlinuz"),
        (format!("boot/config-{release}"), "config"),
        (format!("usr/lib/modules/{release}/config"), "config"),
    ];
    let read = Error::file("read the archive for", folder);
    let mut archive = tar::Archive::new(tar);
    let each = |archive: &mut tar::Archive<_>| -> io::Result<()> {
        for entry in archive.entries()? {
            let entry = entry?;
            let path = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let name = wanted.iter().find(|(wanted, _)| *wanted == path).map(|(_, name)| name);
            if let Some(name) = name.filter(|_| entry.header().entry_type().is_file()) {
                let mut file = File::create(folder.join(name))?;
                io::copy(&mut entry.take(MAX_FILE_BYTES), &mut file)?;
            }
        }
        // Read the rest, so that dpkg-deb can complete its output.
        Ok(())
    };
    each(&mut archive)
        .and_then(|()| io::copy(&mut archive.into_inner(), &mut io::sink()))
        .map_err(read)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    fn package(name: &str, version: &str, depends: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            depends: depends.iter().map(|name| (*name).to_owned()).collect(),
            size_bytes: 1,
            sha256: String::new(),
        }
    }

    #[test]
    fn the_named_release_is_taken_and_else_the_newest_of_its_version() {
        let entry = catalog::find("6.12").unwrap();
        let old = package("linux-image-6.12.9+deb13-cloud-amd64", "6.12.9-1", &[]);
        let new = package("linux-image-6.12.200+deb13-cloud-amd64", "6.12.200-1~bpo1", &[]);
        let named = package(&format!("linux-image-{}", entry.release), "6.12.117-1", &[]);
        let others = [
            package("linux-image-6.12.300+deb13-rt-amd64", "6.12.300-1", &[]),
            package("linux-image-6.12.300+deb13-cloud-amd64-unsigned", "6.12.300-1", &[]),
            package("linux-image-6.12-cloud-amd64", "6.12.300-1", &[]),
            package("linux-image-6.1.0-300-cloud-amd64", "6.1.300-1", &[]),
        ];
        let with = |packages: &[&Package], newest| {
            let all: Vec<Package> =
                packages.iter().copied().cloned().chain(others.clone()).collect();
            choose_image(entry, &all, newest).map(|package| package.version.clone())
        };
        assert_eq!(with(&[&old, &named, &new], false).as_deref(), Some("6.12.117-1"));
        assert_eq!(with(&[&old, &named, &new], true).as_deref(), Some("6.12.200-1~bpo1"));
        assert_eq!(with(&[&new, &old], false).as_deref(), Some("6.12.200-1~bpo1"));
        assert_eq!(with(&[], false), None);
    }

    #[test]
    fn a_kernel_in_parts_is_fetched_without_its_modules() {
        let all = [
            package("linux-base-7.3.4-a", "1", &[]),
            package("linux-modules-7.3.4-a", "1", &[]),
            package("linux-binary-7.3.4-a", "1", &[]),
            package(
                "linux-image-7.3.4-a",
                "1",
                &["linux-base-7.3.4-a", "linux-modules-7.3.4-a", "linux-binary-7.3.4-a"],
            ),
        ];
        let names: Vec<&str> =
            parts_of(&all[3], &all).iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["linux-image-7.3.4-a", "linux-binary-7.3.4-a", "linux-base-7.3.4-a"]);
    }

    #[test]
    fn image_and_configuration_are_taken_from_either_place() {
        for place in ["./boot/vmlinuz-7.3", "usr/lib/modules/7.3/vmlinuz"] {
            let folder = tempfile::tempdir().unwrap();
            let mut archive = tar::Builder::new(Vec::new());
            for path in [place, "./usr/share/doc/vmlinuz-7.3"] {
                let mut header = tar::Header::new_gnu();
                header.set_size(4);
                header.set_cksum();
                archive.append_data(&mut header, path, &path.as_bytes()[..4]).unwrap();
            }
            extract(archive.into_inner().unwrap().as_slice(), "7.3", folder.path()).unwrap();
            assert_eq!(fs::read(folder.path().join("vmlinuz")).unwrap(), &place.as_bytes()[..4]);
            assert_eq!(files_of(folder.path()).unwrap().len(), 1);
        }
    }
}
