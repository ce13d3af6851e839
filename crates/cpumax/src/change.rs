//! `--set`: a value written into a file of a group, as an administrator would.

use anyhow::{Context, bail};
use cpumax_limit::Limit;
use cpumax_workload::{GroupIx, Workload};

/// Files that can be written.
const FILES: &str = "cpu.max, cpu.max.burst and cpu.weight";

/// Applies `GROUP:FILE=VALUE` to a workload.
pub fn apply(workload: &mut Workload, change: &str) -> anyhow::Result<()> {
    let context = || format!("--set '{change}'");
    let split = change.rfind(":cpu.").map(|at| (&change[..at], &change[at + 1..]));
    let Some((path, assignment)) = split else {
        bail!("--set '{change}': give GROUP:FILE=VALUE, such as '/limited:cpu.max=50000 100000'");
    };
    let group = find(workload, path).with_context(context)?;
    write(workload, group, assignment).with_context(context)
}

/// Writes `FILE=VALUE` into a group.
pub fn write(workload: &mut Workload, group: GroupIx, assignment: &str) -> anyhow::Result<()> {
    let Some((file, value)) = assignment.split_once('=') else {
        bail!("there is no '=' in '{assignment}': give FILE=VALUE, such as 'cpu.max=50000 100000'");
    };
    let group = &mut workload.groups[group as usize];
    if group.parent.is_none() {
        bail!("the root group has no such file: give another group");
    }
    match file.trim() {
        "cpu.weight" => match value.trim().parse() {
            Ok(weight @ 1..=10_000) => group.weight = weight,
            _ => bail!("cpu.weight takes a number from 1 to 10000, not '{}'", value.trim()),
        },
        file => group.limit = write_limit(&group.limit, file, value)?,
    }
    Ok(())
}

/// The limit after `value` has been written into `file`.
pub fn write_limit(limit: &Limit, file: &str, value: &str) -> anyhow::Result<Limit> {
    match file {
        "cpu.max" => Ok(limit.write_cpu_max(value.trim())?),
        "cpu.max.burst" => Ok(limit.write_cpu_max_burst(value.trim())?),
        file => bail!("no file '{file}': {FILES} can be set"),
    }
}

fn find(workload: &Workload, path: &str) -> anyhow::Result<GroupIx> {
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
    match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, near)) => bail!("there is no group '{path}'; did you mean '{near}'?"),
        None => bail!("there is no group '{path}'; there are: {}", list(paths())),
    }
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
