//! A value written into a file of a group, as an administrator would.

use crate::Error;
use cpumax_limit::{Limit, Rules};
use cpumax_workload::{GroupIx, Workload};

/// Files that can be written.
const FILES: &str = "cpu.max, cpu.max.burst and cpu.weight";

/// The workload after `GROUP:FILE=VALUE`.
///
/// # Errors
/// There is no such group or file, or the kernel would refuse the value.
pub fn apply(workload: Workload, change: &str) -> Result<Workload, Error> {
    let split = change.rfind(":cpu.").map(|at| (&change[..at], &change[at + 1..]));
    let Some((path, assignment)) = split else {
        let form = "give GROUP:FILE=VALUE, such as '/limited:cpu.max=50000 100000'";
        return Err(Error::Change(form.to_owned()));
    };
    let group = find(&workload, path)?;
    write(workload, group, assignment)
}

/// The workload after `FILE=VALUE` in a group.
fn write(workload: Workload, group: GroupIx, assignment: &str) -> Result<Workload, Error> {
    let Some((file, value)) = assignment.split_once('=') else {
        return Err(Error::Change(format!(
            "there is no '=' in '{assignment}': give FILE=VALUE, such as 'cpu.max=50000 100000'"
        )));
    };
    if group == 0 {
        let root = "the root group has no such file: give another group";
        return Err(Error::Change(root.to_owned()));
    }
    match file.trim() {
        "cpu.weight" => match value.trim().parse() {
            Ok(weight @ 1..=10_000) => Ok(workload.with_weight(group, weight)?),
            _ => Err(Error::Change(format!(
                "cpu.weight takes a number from 1 to 10000, not '{}'",
                value.trim()
            ))),
        },
        file => {
            let limit = write_limit(&workload.groups[group as usize].limit, file, value)?;
            Ok(workload.with_limit(group, limit, &Rules::NEWEST)?)
        }
    }
}

/// The limit after `value` has been written into `file`.
pub(crate) fn write_limit(limit: &Limit, file: &str, value: &str) -> Result<Limit, Error> {
    match file {
        "cpu.max" => Ok(limit.write_cpu_max(value.trim())?),
        "cpu.max.burst" => Ok(limit.write_cpu_max_burst(value.trim())?),
        file => Err(Error::Change(format!("no file '{file}': {FILES} can be set"))),
    }
}

/// The group of this path.
pub(crate) fn find(workload: &Workload, path: &str) -> Result<GroupIx, Error> {
    let paths = || workload.groups.iter().skip(1).map(|group| group.path.as_str());
    let wanted = match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/",
        trimmed => trimmed,
    };
    if let Some(index) = workload.groups.iter().position(|group| group.path == wanted) {
        return Ok(index as GroupIx);
    }
    let likeness = |known: &str| strsim::jaro_winkler(known, wanted);
    let near =
        paths().map(|known| (likeness(known), known)).filter(|(likeness, _)| *likeness > 0.8);
    Err(Error::Change(match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, near)) => format!("there is no group '{path}'; did you mean '{near}'?"),
        None => format!("there is no group '{path}'; there are: {}", list(paths())),
    }))
}

/// The first names of a list that may be long.
fn list<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let shown: Vec<&str> = names.by_ref().take(10).collect();
    let more = names.count();
    match (shown.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} more", shown.join(", ")),
    }
}
