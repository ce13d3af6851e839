//! The groups of a workload, by their paths.

use cpumax_limit::Limit;
use cpumax_workload::bounds::{MAX_GROUPS, MAX_PATH_BYTES};
use cpumax_workload::{GroupIx, GroupSpec, Parts};
use std::collections::BTreeMap;

/// Creates groups on demand, parents first.
pub(super) struct Groups<'a> {
    workload: &'a mut Parts,
    by_path: BTreeMap<String, GroupIx>,
}

impl<'a> Groups<'a> {
    /// Adds the root group to the workload.
    pub fn new(workload: &'a mut Parts) -> Self {
        workload.groups.push(group("/".to_owned(), None));
        Groups { workload, by_path: BTreeMap::from([("/".to_owned(), 0)]) }
    }

    /// The index of the group of this path; adds it and those above it to the workload if they are
    /// new. Beyond the bounds of a workload it adds the group alone, which the checks refuse.
    pub fn of(&mut self, path: &str) -> GroupIx {
        let groups = &mut self.workload.groups;
        if groups.len() as u64 > MAX_GROUPS || path.len() as u64 > MAX_PATH_BYTES {
            // No workload may have such a group: it is refused even without the groups above.
            return *self.by_path.entry(path.to_owned()).or_insert_with(|| {
                groups.push(group(path.to_owned(), Some(0)));
                groups.len() as GroupIx - 1
            });
        }
        let mut at = String::new();
        let mut parent = 0;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at.push('/');
            at.push_str(part);
            let groups = &mut self.workload.groups;
            parent = *self.by_path.entry(at.clone()).or_insert_with(|| {
                groups.push(group(at.clone(), Some(parent)));
                groups.len() as GroupIx - 1
            });
        }
        parent
    }
}

/// A group without a limit, of the default weight.
fn group(path: String, parent: Option<GroupIx>) -> GroupSpec {
    GroupSpec { path, parent, limit: Limit::UNLIMITED, weight: 100, v1: false }
}
