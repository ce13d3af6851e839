//! Enables the `cpu` controller in a group of cgroup v2 that does not pass it on to its children,
//! for as long as guests need it. An empty group beside the guest's own marks that, so that a later
//! guest can disable it again even if this one was killed.

use crate::claim::pid_in;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// File with the controllers that a group passes on to its children.
pub const PASSED_ON: &str = "cgroup.subtree_control";
/// Appended to the name of a guest's group, this names the marker group.
const SUFFIX: &str = "-lent";

/// Enables the `cpu` controller for the children of group `above`, which a guest's group `base`
/// needs, and makes a marker group beside `base` that records this. Does nothing if the host itself
/// has enabled it.
///
/// # Errors
/// The kernel refuses a file or a group; for example, `above` has processes of its own.
pub fn enable_cpu(above: &Path, base: &Path) -> Result<(), String> {
    let _locked = lock(above)?;
    if has_cpu(&above.join(PASSED_ON)) && markers(above).next().is_none() {
        return Ok(());
    }
    // The marker comes first, so that no other guest takes our change for the host's own.
    let marker = marker_of(base);
    match fs::create_dir(&marker) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(format!("{}: {error}", marker.display()));
        }
        _ => {}
    }
    let file = above.join(PASSED_ON);
    fs::write(&file, "+cpu").map_err(|error| {
        let _ = fs::remove_dir(&marker);
        let busy = error.kind() == io::ErrorKind::ResourceBusy;
        let why =
            if busy { ": a group that passes it on must have no processes of its own" } else { "" };
        format!("{}: writing \"+cpu\": {error}{why}", file.display())
    })
}

/// Undoes [`enable_cpu`] for this base: removes its marker group, and disables the controller
/// unless other guests or groups of the host use it now. Errors are ignored.
pub fn disable_cpu(above: &Path, base: &Path) {
    let marker = marker_of(base);
    let Some(_locked) = marker.exists().then(|| lock(above).ok()).flatten() else { return };
    if markers(above).all(|other| other == marker) && !is_used(above) {
        let _ = fs::write(above.join(PASSED_ON), "-cpu");
    }
    let _ = fs::remove_dir(&marker);
}

/// Undoes [`enable_cpu`] for guests that are gone: their marker group exists, their own group does
/// not.
pub fn disable_for_gone_guests(above: &Path) {
    for marker in markers(above) {
        let base = marker.as_os_str().to_string_lossy().into_owned();
        let base = PathBuf::from(base.trim_end_matches(SUFFIX));
        if !base.exists() {
            disable_cpu(above, &base);
        }
    }
}

/// Path of the marker group of a guest's group `base`.
fn marker_of(base: &Path) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// Paths of all guests' marker groups below `above`.
fn markers(above: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    let is_marker = |name: &str| name.strip_suffix(SUFFIX).is_some_and(|own| pid_in(own).is_some());
    entries
        .map(|entry| entry.path())
        .filter(move |path| path.file_name().is_some_and(|name| is_marker(&name.to_string_lossy())))
}

/// Whether a group below `above` needs the `cpu` controller: it enables it for its children, or its
/// limit, weight or `cpu.idle` is not the default, which disabling would restore.
fn is_used(above: &Path) -> bool {
    let usual = |file: PathBuf, value: &str| {
        fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().next() != Some(value))
    };
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|group| {
        has_cpu(&group.join(PASSED_ON))
            || usual(group.join("cpu.max"), "max")
            || usual(group.join("cpu.weight"), "100")
            || usual(group.join("cpu.idle"), "0")
    })
}

/// Locks the group's directory by flock(2) against changes by other guests, until the file is
/// dropped; waits for that.
///
/// # Errors
/// It cannot be opened or locked.
fn lock(above: &Path) -> Result<File, String> {
    let error = |error: io::Error| format!("{}: {error}", above.display());
    let folder = File::open(above).map_err(error)?;
    // SAFETY: the descriptor is the folder's.
    if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX) } < 0 {
        return Err(error(io::Error::last_os_error()));
    }
    Ok(folder)
}

/// Whether a file with a list of controllers (such as `cgroup.controllers`) contains `cpu`.
pub fn has_cpu(list: &Path) -> bool {
    let text = fs::read_to_string(list).unwrap_or_default();
    text.split_whitespace().any(|name| name == "cpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with files like those of a group.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, passes_on: &str) -> Folder {
            let folder = std::env::temp_dir().join(format!("cpumax-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("there is room");
            fs::write(folder.join(PASSED_ON), passes_on).expect("there is room");
            Folder(folder)
        }

        fn passes_on(&self) -> String {
            fs::read_to_string(self.0.join(PASSED_ON)).expect("is there")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_the_host_passes_on_itself_stays() {
        let folder = Folder::new("passes", "cpuset cpu io\n");
        let base = folder.0.join("cpumax-7-0123456789abcdef");
        enable_cpu(&folder.0, &base).unwrap();
        disable_cpu(&folder.0, &base);
        assert_eq!(folder.passes_on(), "cpuset cpu io\n");
    }

    #[test]
    fn the_last_guest_takes_it_back() {
        let folder = Folder::new("lends", "io\n");
        let [first, second] = ["cpumax-7-0123456789abcdef", "cpumax-8-0123456789abcdef"]
            .map(|name| folder.0.join(name));
        enable_cpu(&folder.0, &first).unwrap();
        fs::write(folder.0.join(PASSED_ON), "io cpu\n").unwrap();
        enable_cpu(&folder.0, &second).unwrap();
        assert_eq!(markers(&folder.0).count(), 2);
        disable_cpu(&folder.0, &first);
        assert_eq!(folder.passes_on(), "+cpu");
        disable_cpu(&folder.0, &second);
        assert_eq!((folder.passes_on().as_str(), markers(&folder.0).count()), ("-cpu", 0));
    }

    #[test]
    fn what_a_guest_left_that_is_gone_is_taken_back() {
        let folder = Folder::new("left", "io\n");
        let [gone, there] = ["cpumax-7-0123456789abcdef", "cpumax-8-0123456789abcdef"]
            .map(|name| folder.0.join(name));
        fs::create_dir(&there).unwrap();
        enable_cpu(&folder.0, &gone).unwrap();
        enable_cpu(&folder.0, &there).unwrap();
        fs::create_dir(folder.0.join("cpumax-9-lent")).unwrap();
        disable_for_gone_guests(&folder.0);
        assert_eq!(markers(&folder.0).collect::<Vec<_>>(), [marker_of(&there)]);
        assert!(folder.0.join("cpumax-9-lent").exists(), "not a name of a guest");
    }

    #[test]
    fn a_limit_set_meanwhile_is_kept() {
        let folder = Folder::new("used", "io\n");
        let base = folder.0.join("cpumax-7-0123456789abcdef");
        enable_cpu(&folder.0, &base).unwrap();
        let service = folder.0.join("service");
        fs::create_dir(&service).unwrap();
        fs::write(service.join("cpu.max"), "20000 100000\n").unwrap();
        disable_cpu(&folder.0, &base);
        assert_eq!((folder.passes_on().as_str(), markers(&folder.0).count()), ("+cpu", 0));
    }
}
