//! CPUs that a group may run on, by its cpuset or by the machine.
//!
//! The files are those of the kernel's `cpuset_common_seq_show()`. A group without files of its own
//! has the CPUs of the nearest group above it that has some.

use super::files::{mounted, read};
use cpumax_limit::shown;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

const V2: [&str; 1] = ["cpuset.cpus.effective"];
/// The first exists from 3.17 on.
const V1: [&str; 2] = ["cpuset.effective_cpus", "cpuset.cpus"];
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// More than any kernel is built for.
const CPUS_MAX: usize = 1 << 16;

/// The CPUs that a group may run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AllowedCpus {
    /// How many.
    pub count: usize,
    /// The file that lists them.
    pub told_by: String,
}

/// The CPUs of the group in this folder of the `cpu` controller, by the cpuset nearest above or the
/// machine's online CPUs. `mounts` is the text of `/proc/self/mounts`. `None` where no file lists
/// them.
pub(super) fn allowed(folder: &Path, is_v1: bool, mounts: &str) -> Option<AllowedCpus> {
    let (sets, files): (PathBuf, &[&str]) = if is_v1 {
        let below = mounted(mounts, "cpu").and_then(|root| folder.strip_prefix(root).ok());
        let root = mounted(mounts, "cpuset");
        (root.zip(below).map(|(root, below)| root.join(below)).unwrap_or_default(), &V1)
    } else {
        (folder.to_owned(), &V2)
    };
    let in_sets = sets.ancestors().flat_map(|set| files.iter().map(|file| set.join(file)));
    in_sets.chain([PathBuf::from(ONLINE)]).find_map(|path| {
        let count = listed(read(&path).ok()?.trim())?;
        Some(AllowedCpus { count, told_by: shown(&path) })
    })
}

/// The number of CPUs in a list such as `0-3,8`; `None` for an empty or malformed list.
fn listed(list: &str) -> Option<usize> {
    let mut count = 0_usize;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (1..=CPUS_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes a tree of files, below a folder of its own.
    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("cpumax-set-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn told(allowed: Option<AllowedCpus>, root: &Path) -> (usize, String) {
        let allowed = allowed.unwrap();
        (allowed.count, allowed.told_by.replace(&shown(root), ""))
    }

    #[test]
    fn a_group_has_the_cpus_of_its_set_or_of_the_nearest_above() {
        let root = tree(
            "v2",
            &[
                ("cpuset.cpus.effective", "0-63\n"),
                ("slice/cpuset.cpus.effective", "0-3,8\n"),
                ("slice/set/cpuset.cpus.effective", "8\n"),
                ("slice/empty/cpuset.cpus.effective", "\n"),
                ("slice/plain/cpu.max", "max 100000\n"),
                ("other/cpu.max", "max 100000\n"),
            ],
        );
        let of = |group: &str| told(allowed(&root.join(group), false, ""), &root);
        assert_eq!(of("slice/set"), (1, "/slice/set/cpuset.cpus.effective".to_owned()));
        for group in ["slice", "slice/plain", "slice/empty"] {
            assert_eq!(of(group), (5, "/slice/cpuset.cpus.effective".to_owned()), "{group}");
        }
        assert_eq!(of("other"), (64, "/cpuset.cpus.effective".to_owned()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_older_hierarchy_has_its_sets_elsewhere() {
        let root = tree(
            "v1",
            &[
                ("cpu/docker/a/cpu.cfs_quota_us", "-1\n"),
                ("cpu/system.slice/b/cpu.cfs_quota_us", "-1\n"),
                ("cpuset/cpuset.effective_cpus", "0-7\n"),
                ("cpuset/docker/a/cpuset.cpus", "1-2\n"),
            ],
        );
        let place = |folder: &str| root.join(folder).display().to_string();
        let mounts = format!(
            "cgroup {} cgroup rw,cpu,cpuacct 0 0\ncgroup {} cgroup rw,cpuset 0 0\n",
            place("cpu"),
            place("cpuset")
        );
        let of = |group: &str| told(allowed(&root.join(group), true, &mounts), &root);
        assert_eq!(of("cpu/docker/a"), (2, "/cpuset/docker/a/cpuset.cpus".to_owned()));
        assert_eq!(of("cpu/system.slice/b"), (8, "/cpuset/cpuset.effective_cpus".to_owned()));
        // Without such a controller it is all that the machine has.
        let online = listed(fs::read_to_string(ONLINE).unwrap().trim()).unwrap();
        let without = allowed(&root.join("cpu/docker/a"), true, "");
        assert_eq!(told(without, &root), (online, ONLINE.to_owned()));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0-3,8,10-11", 7)] {
            assert_eq!(listed(list), Some(count), "{list}");
        }
        for none in ["", "a", "3-1", "0-", "0-99999999", "0,,1", "-1"] {
            assert_eq!(listed(none), None, "{none}");
        }
    }
}
