// SPDX-License-Identifier: GPL-2.0-only
//! Reasons for which the BPF program refuses a group (`enum refusal_kind`), in words, and a check
//! of the hierarchy before the program is loaded.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::escape::shown;

/// `CBW_DEPTH_MAX`.
const DEPTH_MAX: usize = 32;

/// Checks whether all groups can be represented, and says what cannot. The program would notice
/// too, but 6.18.15 then drops a reference that it never took, and crashes when the group is
/// removed.
pub fn of_hierarchy(root: &Path, groups_max: u32) -> Option<String> {
    let (mut count, mut found) = (0, vec![(root.to_path_buf(), 0, None)]);
    let mut of_users: BTreeMap<PathBuf, usize> = BTreeMap::new();
    while let Some((group, level, delegated)) = found.pop() {
        count += 1;
        let is_users = || fs::metadata(&group).is_ok_and(|meta| meta.uid() != 0);
        let delegated: Option<PathBuf> = delegated.or_else(|| is_users().then(|| group.clone()));
        if let Some(top) = &delegated {
            *of_users.entry(top.clone()).or_default() += 1;
        }
        if level > DEPTH_MAX {
            let path = shown(group.strip_prefix(root).unwrap_or(&group));
            return Some(format!(
                "cgroup {path} is {level} levels below the root, but limits are enforced only down \
                 to level {DEPTH_MAX}: the scheduler is not loaded"
            ));
        }
        found.extend(children(&group).map(|child| (child, level + 1, delegated.clone())));
    }
    let most = of_users.iter().max_by_key(|(_, count)| **count);
    let most = most.map(|(top, count)| format!(", {count} of them a user's in {}", shown(top)));
    (count > groups_max as usize).then(|| {
        format!(
            "there are {count} cgroups{}, more than there is room for: raise --max-groups",
            most.unwrap_or_default()
        )
    })
}

/// Children of a group with the cpu controller.
fn children(group: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).filter(|path| path.join("cpu.max").exists())
}

/// The message for a refusal; `None`: nothing was refused.
pub fn describe(kind: u32, error: i32, group_id: u64, level: u64) -> Option<String> {
    let error = std::io::Error::from_raw_os_error(error.saturating_neg());
    Some(match kind {
        0 => return None,
        1 => format!(
            "cgroup {group_id} is {level} levels below the root, but limits are enforced only \
             down to level 32: the scheduler is not loaded"
        ),
        2 => format!("there is no memory for the record of cgroup {group_id}: {error}"),
        3 => format!(
            "there are more cgroups than there is room for (at cgroup {group_id}): raise \
             --max-groups"
        ),
        4 => format!("the dispatch queue of cgroup {group_id} could not be created: {error}"),
        5 => format!("the kernel reported cgroup {group_id} before its parent"),
        6 => format!(
            "cgroup {group_id} exceeds the share of the user to whom a directory above it is \
             delegated, or the share of all users: raise --max-groups, or create it as root"
        ),
        other => format!("cgroup {group_id} was refused for reason {other}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, describe, of_hierarchy};
    use std::fs;

    #[test]
    fn unrepresentable_hierarchies_are_refused_before_the_load() {
        let root = tempfile::tempdir().unwrap();
        let mut path = root.path().to_path_buf();
        let mut make = |name: &str| {
            path.push(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("cpu.max"), "max 100000").unwrap();
        };
        (0..DEPTH_MAX).for_each(|_| make("d"));
        assert_eq!(of_hierarchy(root.path(), 33), None);
        assert!(of_hierarchy(root.path(), 32).unwrap().contains("raise --max-groups"));
        make("d");
        assert!(of_hierarchy(root.path(), 1000).unwrap().contains("33 levels below the root"));
        // Without the controller the group does not concern the scheduler.
        fs::remove_file(path.join("cpu.max")).unwrap();
        assert_eq!(of_hierarchy(root.path(), 1000), None);
    }

    #[test]
    fn each_reason_is_said() {
        assert_eq!(describe(0, 0, 0, 0), None);
        assert!(describe(1, -7, 42, 33).unwrap().contains("33 levels"));
        assert!(describe(3, -28, 42, 3).unwrap().contains("--max-groups"));
        assert!(describe(6, -28, 42, 3).unwrap().contains("share of the user"));
        assert!(describe(2, -12, 42, 3).unwrap().contains("memory"));
    }
}
