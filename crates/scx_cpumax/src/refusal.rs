// SPDX-License-Identifier: GPL-2.0-only
//! Why the program would not take a group: the numbers of `enum refusal_kind` in words.

/// One message, or nothing if nothing was refused.
pub fn describe(kind: u32, error: i32, group_id: u64, level: u64) -> Option<String> {
    let error = std::io::Error::from_raw_os_error(error.saturating_neg());
    Some(match kind {
        0 => return None,
        1 => format!(
            "cgroup {group_id} is {level} levels below the root, and limits are enforced down to 32: nothing is loaded"
        ),
        2 => format!("no memory for the record of cgroup {group_id}: {error}"),
        3 => format!(
            "there are more cgroups than there is room for (at cgroup {group_id}): raise --max-groups"
        ),
        4 => format!("no queue could be made for cgroup {group_id}: {error}"),
        5 => format!("cgroup {group_id} came before its parent"),
        other => format!("cgroup {group_id} was refused for reason {other}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn each_reason_is_said() {
        assert_eq!(describe(0, 0, 0, 0), None);
        assert!(describe(1, -7, 42, 33).unwrap().contains("33 levels"));
        assert!(describe(3, -28, 42, 3).unwrap().contains("--max-groups"));
        assert!(describe(2, -12, 42, 3).unwrap().contains("memory"));
    }
}
