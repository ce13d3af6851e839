//! Mounted hierarchies of control groups, and the text of their files.

use cpumax_limit::shown;
use cpumax_study::Error;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More than any of these files has.
const FILE_MAX_BYTES: u64 = 1 << 16;

/// The mount point of the v1 hierarchy with that controller, or of cgroup v2 for an empty name;
/// `None` without one. `mounts` is the text of `/proc/self/mounts`.
pub(super) fn mounted(mounts: &str, controller: &str) -> Option<PathBuf> {
    let place = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (place, kind, options) = (words.next()?, words.next()?, words.next()?);
        let is_it = match controller {
            "" => kind == "cgroup2",
            name => kind == "cgroup" && options.split(',').any(|option| option == name),
        };
        is_it.then(|| PathBuf::from(place))
    };
    mounts.lines().find_map(place)
}

/// Reads at most the first 64 KiB of a file; the error names its path.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::File { path: shown(path), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(FILE_MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
