//! Changes of limits in a workload, as an administrator would write them into cgroup files.

use crate::Error;
use crate::builtin::most_alike;
use crate::job::{Share, with_shares};
use cpumax_limit::{Missing, Part, Rules, Setting, Target, one_line};
use cpumax_machine::kernel::Kernel;
use cpumax_workload::{Action, GroupIx, Workload};

/// Applies a setting `GROUP:LIMIT` to a workload, as [`Setting`] parses it. A part for the pod goes
/// to the group above that of the first part.
///
/// # Errors
/// The setting names no group or an unknown one, or the kernel would refuse a value.
pub fn apply(mut workload: Workload, setting: &str) -> Result<Workload, Error> {
    let setting: Setting = setting.parse()?;
    let mut before = None;
    for part in setting.parts() {
        let group = match &part.target {
            Target::Path(path) => find_group(&workload, path)?,
            Target::Pod => parent_group(&workload, before.ok_or_else(|| no_group(&workload))?)?,
            Target::Chosen => return Err(no_group(&workload)),
        };
        workload = write_part(workload, group, part)?;
        before.get_or_insert(group);
    }
    Ok(workload)
}

/// The workload with the limit and weight of `group` as one part of a setting leaves them; an error
/// for the root group and for a value that the kernel refuses.
fn write_part(workload: Workload, group: GroupIx, part: &Part) -> Result<Workload, Error> {
    if group == 0 {
        let root = "the root group has no such file: give another group";
        return Err(Error::Change(root.to_owned()));
    }
    let applied = part.apply(workload.groups[group as usize].limit, &Rules::NEWEST)?;
    let share = Share { limit: applied.limit, weight: applied.weight };
    Ok(with_shares(workload, &[(group, share)])?)
}

/// The rules by which a kernel reads limits; unreleased ones read like the newest.
pub(crate) fn rules(kernel: Kernel) -> Rules {
    Rules::of(kernel.version.major.into(), kernel.version.minor.into())
}

/// The first part of a workload's limits that a kernel does not have, such as burst; `None` if it
/// has all. Initial limits and those written during the run count.
pub fn lacks(workload: &Workload, kernel: Kernel) -> Option<Missing> {
    let rules = rules(kernel);
    let own = workload.groups.iter().map(|group| group.limit);
    let later = workload.interventions.iter().filter_map(|at| match at.action {
        Action::WriteLimit { limit, .. } => Some(limit),
        _ => None,
    });
    own.chain(later).find_map(|limit| limit.missing_under(&rules))
}

/// The group above `group`; [`Error::NoPod`] if that is the root or none.
pub(crate) fn parent_group(workload: &Workload, group: GroupIx) -> Result<GroupIx, Error> {
    let group = &workload.groups[group as usize];
    let parent = group.parent.filter(|&parent| parent > 0);
    parent.ok_or_else(|| Error::NoPod { path: group.path.clone() })
}

/// The error of a setting without a group, which lists the workload's groups.
fn no_group(workload: &Workload) -> Error {
    let form = "give GROUP:LIMIT, such as '/limited:500m'";
    Error::Change(format!("the group is missing: {form}; there are: {}", paths(workload)))
}

/// The index of the group of this path, whose trailing slashes do not count. The error names the
/// most similar path, else the first ten.
pub(crate) fn find_group(workload: &Workload, path: &str) -> Result<GroupIx, Error> {
    let wanted = match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/",
        trimmed => trimmed,
    };
    if let Some(index) = workload.groups.iter().position(|group| group.path == wanted) {
        return Ok(index as GroupIx);
    }
    let known = workload.groups.iter().skip(1).map(|group| group.path.as_str());
    let path = one_line(path);
    Err(Error::Change(match most_alike(known, wanted) {
        Some(near) => format!("there is no group '{path}'; did you mean '{near}'?"),
        None => format!("there is no group '{path}'; there are: {}", paths(workload)),
    }))
}

/// The paths of the first ten groups below the root and the number of others, for messages.
fn paths(workload: &Workload) -> String {
    let mut paths = workload.groups.iter().skip(1).map(|group| group.path.as_str());
    let shown: Vec<&str> = paths.by_ref().take(10).collect();
    let more = paths.count();
    match (shown.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} more", shown.join(", ")),
    }
}
