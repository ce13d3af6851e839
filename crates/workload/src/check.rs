//! Everything that must hold for a [`Parts`], however it was made: read from a file, built in
//! Rust, imported from a recording, or shrunk from a failing case.
//!
//! What programs do with locks, system calls and time is checked in [`program`], the order of locks
//! over all programs in [`order`], who forks whom in [`forks`], what is a job in [`jobs`].

mod forks;
mod jobs;
mod order;
mod program;
mod tables;

pub(crate) use tables::expectations;

use crate::bounds::{
    BANDWIDTH_SLICE_NS, HZ, MAX_CPU_SET_ENTRIES, MAX_CPUS, MAX_DURATION_NS, MAX_ENTRIES,
    MAX_GROUP_DEPTH, MAX_GROUPS, MAX_JOBS, MAX_KINDS, MAX_NAME_BYTES, MAX_OPS, MAX_PATH_BYTES,
    MAX_TASKS, NS_PER_US, SLICE_NS,
};
use crate::error::{Error, Flaw, Kind, Spot};
use crate::model::{Affinity, Class, LockKind, LockMode, Parts, Preempt};
use crate::units::{print_duration, quoted};
use cpumax_limit::{Hierarchy, Limit, LimitError, Place, Rules};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

impl Parts {
    /// Checks everything that the language promises: references, ranges, the kernel's rules for
    /// limits, the order of locks, and that every loop lets time pass.
    ///
    /// # Errors
    /// The first thing that is wrong, with the part it is in and what would be accepted.
    pub fn check(&self) -> Result<(), Error> {
        check(self).map_err(|found| found.flaw.part(found.spot.describe(self)).into_error(None))
    }
}

/// A flaw and the part of the workload it is in.
pub(crate) struct Found {
    pub spot: Spot,
    pub field: &'static str,
    pub flaw: Flaw,
}

pub(crate) type Checked = Result<(), Found>;

/// Of groups, as cgroup v2 has them.
pub(crate) const WEIGHTS: RangeInclusive<u64> = 1..=10_000;

/// What the path of a group looks like, for messages.
pub(crate) const PATH_FORM: &str =
    "a path from the root down, such as \"/services/web\", without empty parts, `.` or `..`";

pub(crate) fn check(workload: &Parts) -> Checked {
    sizes(workload)?;
    top(workload)?;
    cpu_sets(workload)?;
    machine(workload)?;
    groups(workload)?;
    tables::locks_and_channels(workload)?;
    tables::distributions(workload)?;
    tasks(workload)?;
    labels(workload)?;
    jobs::names(workload)?;
    program::check(workload)?;
    order::check(workload)?;
    forks::check(workload)?;
    tables::sources(workload)?;
    jobs::check(workload)?;
    tables::interventions(workload)?;
    tables::expectations(workload)
}

/// A flaw in `field` of `spot`.
pub(crate) fn flaw<T>(
    spot: Spot,
    field: &'static str,
    kind: Kind,
    problem: impl Into<String>,
    accepted: impl Into<String>,
) -> Result<T, Found> {
    Err(Found { spot, field, flaw: Flaw::new(kind, problem, accepted) })
}

pub(crate) fn in_range(
    spot: Spot,
    field: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
) -> Checked {
    if range.contains(&value) {
        return Ok(());
    }
    let accepted = format!("from {} to {}", range.start(), range.end());
    flaw(spot, field, Kind::Value, format!("{field} is {value}"), accepted)
}

pub(crate) fn time_in_range(
    spot: Spot,
    field: &'static str,
    ns: u64,
    range: RangeInclusive<u64>,
) -> Checked {
    if range.contains(&ns) {
        return Ok(());
    }
    let accepted =
        format!("from {} to {}", print_duration(*range.start()), print_duration(*range.end()));
    flaw(spot, field, Kind::Value, format!("{field} is {}", print_duration(ns)), accepted)
}

/// A reference into a table of the workload.
pub(crate) fn reference(spot: Spot, field: &'static str, ix: u32, len: usize) -> Checked {
    if (ix as usize) < len {
        return Ok(());
    }
    let accepted = format!("there are {len}, counted from 0");
    flaw(spot, field, Kind::Name, format!("{field} refers to number {ix}"), accepted)
}

/// Names are printed, compared and used in paths of metrics; anything but control characters will
/// do.
pub(crate) fn name(spot: Spot, name: &str, seen: &mut BTreeSet<String>) -> Checked {
    named(spot, "name", name)?;
    if !seen.insert(name.to_owned()) {
        let problem = format!("the name {} is used twice", quoted(name));
        return flaw(spot, "name", Kind::Name, problem, "give each its own name");
    }
    Ok(())
}

/// Any text as a name of at most `most` bytes: control characters are written as escapes, what is
/// too long is cut, and nothing at all is `?`.
pub fn as_name(text: &str, most: usize) -> String {
    let most = most.min(MAX_NAME_BYTES as usize);
    let mut name = String::new();
    for char in text.chars() {
        let shown =
            if char.is_control() { char.escape_default().to_string() } else { char.to_string() };
        if name.len() + shown.len() > most {
            break;
        }
        name.push_str(&shown);
    }
    if name.is_empty() { "?".to_owned() } else { name }
}

/// A name that several may have.
fn named(spot: Spot, field: &'static str, name: &str) -> Checked {
    let accepted = format!("1 to {MAX_NAME_BYTES} bytes without control characters");
    if name.is_empty() {
        return flaw(spot, field, Kind::Name, format!("the {field} is empty"), accepted);
    }
    if name.len() as u64 > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let problem = format!("{} cannot be a {field}", quoted(name));
        return flaw(spot, field, Kind::Name, problem, accepted);
    }
    Ok(())
}

/// Labels, which several kinds may share.
pub(crate) fn labels(workload: &Parts) -> Checked {
    for (ix, task) in workload.tasks.iter().enumerate() {
        task.label.as_ref().map_or(Ok(()), |label| named(Spot::Task(ix), "label", label))?;
    }
    Ok(())
}

fn sizes(workload: &Parts) -> Checked {
    let ops: u64 = workload.programs().map(|program| program.len() as u64).sum();
    let listed: u64 = workload.cpu_sets.iter().map(|cpus| cpus.0.len() as u64).sum();
    let counts = [
        ("groups", workload.groups.len() as u64, MAX_GROUPS),
        ("locks", workload.locks.len() as u64, MAX_ENTRIES),
        ("channels", workload.channels.len() as u64, MAX_ENTRIES),
        ("kinds of task", workload.tasks.len() as u64, MAX_KINDS),
        ("jobs", workload.jobs.len() as u64, MAX_JOBS),
        ("instructions in all programs", ops, MAX_OPS),
        ("CPUs in all sets of CPUs", listed, MAX_CPU_SET_ENTRIES),
        ("sources", workload.sources.len() as u64, MAX_ENTRIES),
        ("softirqs", workload.machine.softirqs.len() as u64, MAX_ENTRIES),
        ("interventions", workload.interventions.len() as u64, MAX_ENTRIES),
        ("expectations", workload.expectations.len() as u64, MAX_ENTRIES),
    ];
    for (what, count, most) in counts {
        if count > most {
            let problem = format!("there are {count} {what}");
            return flaw(Spot::Top, "", Kind::Value, problem, format!("at most {most}"));
        }
    }
    Ok(())
}

pub(crate) fn top(workload: &Parts) -> Checked {
    name(Spot::Top, &workload.name, &mut BTreeSet::new())?;
    time_in_range(Spot::Top, "duration", workload.duration_ns, 1..=MAX_DURATION_NS)
}

fn cpu_sets(workload: &Parts) -> Checked {
    in_range(Spot::Machine, "cpus", workload.machine.cpus.into(), 1..=MAX_CPUS)?;
    for (ix, cpus) in workload.cpu_sets.iter().enumerate() {
        let spot = Spot::CpuSet(ix);
        let ascending = cpus.0.windows(2).all(|pair| pair[0] < pair[1]);
        let Some(&last) = cpus.0.last().filter(|_| ascending) else {
            let problem = "a set of CPUs is empty, or not in ascending order";
            return flaw(spot, "", Kind::Value, problem, "one CPU at least, each once, ascending");
        };
        cpu(workload, spot, "", last)?;
    }
    Ok(())
}

pub(crate) fn cpu(workload: &Parts, spot: Spot, field: &'static str, cpu: u16) -> Checked {
    let cpus = workload.machine.cpus;
    if cpu < cpus {
        return Ok(());
    }
    let accepted = match cpus {
        1 => "the machine has one CPU, number 0; give it more with [machine] cpus = N".to_owned(),
        _ => format!("the machine has {cpus} CPUs, 0 to {}", cpus - 1),
    };
    flaw(spot, field, Kind::Value, format!("there is no CPU {cpu}"), accepted)
}

pub(crate) fn machine(workload: &Parts) -> Checked {
    let machine = &workload.machine;
    let spot = Spot::Machine;
    in_range(spot, "llc", machine.llc_cpus.into(), 0..=machine.cpus.into())?;
    if !HZ.contains(&machine.hz) {
        let problem = format!("hz is {}", machine.hz);
        return flaw(spot, "hz", Kind::Value, problem, "one of 100, 250, 300, 1000");
    }
    time_in_range(spot, "slice", machine.bandwidth_slice_ns, BANDWIDTH_SLICE_NS)?;
    if let Some(base_slice_ns) = machine.base_slice_ns {
        time_in_range(spot, "base_slice", base_slice_ns, SLICE_NS)?;
    }
    if let Some(phase_ns) = machine.timer_phase_ns {
        time_in_range(spot, "timer_phase", phase_ns, 0..=cpumax_limit::MAX_PERIOD_NS)?;
    }
    time_in_range(spot, "ipi", machine.ipi_ns, 0..=1_000_000_000)?;
    if let Some(cpus) = machine.nohz_full {
        reference(spot, "nohz_full", cpus, workload.cpu_sets.len())?;
    }
    for (ix, softirq) in machine.softirqs.iter().enumerate() {
        let spot = Spot::Softirq(ix);
        if !machine.preempt.is_some_and(Preempt::is_rt) {
            let problem = "softirqs run in a thread of their own only on PREEMPT_RT";
            return flaw(
                spot,
                "",
                Kind::Value,
                problem,
                "set preempt = \"rt\" or \"rt-lazy\" in [machine]",
            );
        }
        cpu(workload, spot, "cpu", softirq.cpu)?;
        reference(spot, "lock", softirq.lock, workload.locks.len())?;
        lock_mode(workload, spot, softirq.lock, softirq.mode)?;
        time_in_range(spot, "every", softirq.every_ns, NS_PER_US..=MAX_DURATION_NS)?;
        time_in_range(spot, "hold", softirq.hold_ns, 0..=softirq.every_ns)?;
    }
    Ok(())
}

pub(crate) fn lock_mode(workload: &Parts, spot: Spot, lock: u32, mode: LockMode) -> Checked {
    let lock = &workload.locks[lock as usize];
    match (lock.kind, mode) {
        (LockKind::Mutex | LockKind::Spin, LockMode::Read) => {
            let problem = format!("lock {} has no readers", quoted(&lock.name));
            let accepted = "leave out the mode, or make it kind = \"rwsem\"";
            flaw(spot, "mode", Kind::Lock, problem, accepted)
        }
        _ => Ok(()),
    }
}

/// What is wrong with the path of a group; `/` is right.
pub(crate) fn path_problem(path: &str) -> Option<String> {
    let shown = quoted(path);
    if path.len() as u64 > MAX_PATH_BYTES {
        return Some(format!("the path {shown} is longer than {MAX_PATH_BYTES} bytes"));
    }
    let Some(below) = path.strip_prefix('/') else {
        return Some(format!("the path {shown} does not begin with `/`"));
    };
    if below.is_empty() {
        return None;
    }
    if below.matches('/').count() as u64 >= MAX_GROUP_DEPTH {
        return Some(format!("the path {shown} is more than {MAX_GROUP_DEPTH} groups deep"));
    }
    below.split('/').find_map(|part| match part {
        "" => Some(format!("the path {shown} has an empty part")),
        "." | ".." => Some(format!(
            "the path {shown} has a part `{part}`, which would put a group under itself"
        )),
        _ if part.len() as u64 > MAX_NAME_BYTES => {
            Some(format!("the path {shown} has a part of more than {MAX_NAME_BYTES} bytes"))
        }
        _ if part.chars().any(char::is_control) => {
            Some(format!("the path {shown} has a control character"))
        }
        _ => None,
    })
}

fn groups(workload: &Parts) -> Checked {
    let root = workload.groups.first();
    if !root.is_some_and(|root| {
        root.path == "/" && root.parent.is_none() && root.limit == Limit::UNLIMITED && !root.v1
    }) {
        let problem = "the first group is not an unlimited root group";
        return flaw(Spot::Group(0), "", Kind::Name, problem, "path `/`, no parent, no limit");
    }
    let mut seen = BTreeSet::from(["/"]);
    for (ix, group) in workload.groups.iter().enumerate().skip(1) {
        let spot = Spot::Group(ix);
        if let Some(problem) = path_problem(&group.path) {
            return flaw(spot, "path", Kind::Name, problem, PATH_FORM);
        }
        if !seen.insert(&group.path) {
            return flaw(spot, "path", Kind::Name, "listed twice", "list each group once");
        }
        let parent = group.parent.map(|parent| parent as usize).filter(|&parent| parent < ix);
        let above = group.path.rfind('/').map(|end| &group.path[..end.max(1)]);
        let Some(parent) = parent.filter(|&parent| Some(&*workload.groups[parent].path) == above)
        else {
            let problem = "the parent is not the group that the path names, or stands after it";
            return flaw(spot, "path", Kind::Name, problem, "parents before children");
        };
        in_range(spot, "weight", group.weight.into(), WEIGHTS)?;
        if parent != 0 && group.v1 != workload.groups[parent].v1 {
            let problem = "the group and its parent are in different hierarchies";
            return flaw(spot, "hierarchy", Kind::Value, problem, "the same hierarchy for both");
        }
        limit(spot, group.limit)?;
    }
    v1_groups(workload)
}

fn v1_groups(workload: &Parts) -> Checked {
    let limits: Vec<Limit> = workload.groups.iter().map(|group| group.limit).collect();
    v1_hierarchy(workload, &limits).or_else(|(group, problem)| {
        let accepted = "lower it, or raise the limit above";
        flaw(Spot::Group(group), "max", Kind::Limit, problem, accepted)
    })
}

/// What v1 says of the limits of all groups, at first and after each write.
pub(crate) fn v1_limits(workload: &Parts) -> Checked {
    if !workload.groups.iter().any(|group| group.v1) {
        return Ok(());
    }
    v1_groups(workload)?;
    tables::interventions(workload)
}

/// Limits that no file of the kernel could hold are refused, and those that only kernels before 5.8
/// take: a quota of centuries, which overflows.
pub(crate) fn limit(spot: Spot, limit: Limit) -> Checked {
    let (quota_ns, period_ns, burst_ns) = (limit.quota_ns(), limit.period_ns(), limit.burst_ns());
    if let Err(error) = Limit::new(quota_ns, period_ns, burst_ns) {
        return flaw(spot, "max", Kind::Limit, error.to_string(), "");
    }
    let whole_us = [quota_ns.unwrap_or(0), period_ns, burst_ns];
    if whole_us.iter().all(|ns| ns.is_multiple_of(NS_PER_US)) {
        return Ok(());
    }
    let accepted = "quota, period and burst in whole microseconds";
    flaw(spot, "max", Kind::Limit, "a limit is finer than a microsecond", accepted)
}

/// The rule of v1 that a group may not have more than those above it; on failure the group and why.
pub(crate) fn v1_hierarchy(workload: &Parts, limits: &[Limit]) -> Result<(), (usize, String)> {
    if !workload.groups.iter().any(|group| group.v1) {
        return Ok(());
    }
    let place = |(group, limit): (&crate::model::GroupSpec, &Limit)| Place {
        parent: group.parent.map(|parent| parent as usize),
        limit: if group.v1 { *limit } else { Limit::UNLIMITED },
    };
    let places: Vec<Place> = workload.groups.iter().zip(limits).map(place).collect();
    match Hierarchy::V1.effective_ratios(&places, &Rules::NEWEST) {
        Ok(_) => Ok(()),
        Err(error) => {
            let group = match error {
                LimitError::AboveParent { group, .. } => group,
                _ => 0,
            };
            Err((group, error.to_string()))
        }
    }
}

fn tasks(workload: &Parts) -> Checked {
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for (ix, task) in workload.tasks.iter().enumerate() {
        let spot = Spot::Task(ix);
        name(spot, &task.name, &mut seen)?;
        if task.name == "self" {
            let problem = "`self` stands for the task that executes an instruction";
            return flaw(spot, "name", Kind::Name, problem, "another name");
        }
        total += u64::from(task.count);
        if total > MAX_TASKS {
            let problem = format!("the tasks up to and with this kind are {total}");
            return flaw(spot, "count", Kind::Value, problem, format!("at most {MAX_TASKS}"));
        }
        reference(spot, "group", task.group, workload.groups.len())?;
        nice(spot, task.nice)?;
        if let Affinity::Set(cpus) = task.cpus {
            reference(spot, "cpus", cpus, workload.cpu_sets.len())?;
        }
        time_in_range(spot, "start", task.start_ns, 0..=MAX_DURATION_NS)?;
        time_in_range(spot, "stagger", task.stagger_ns, 0..=MAX_DURATION_NS)?;
        if let Some(slice_ns) = task.slice_ns {
            time_in_range(spot, "slice", slice_ns, SLICE_NS)?;
        }
    }
    Ok(())
}

pub(crate) fn nice(spot: Spot, nice: i8) -> Checked {
    if (-20..=19).contains(&nice) {
        return Ok(());
    }
    flaw(spot, "nice", Kind::Value, format!("nice is {nice}"), "from -20 to 19")
}

/// A running task can become fair, idle or real-time, but never a kernel thread.
pub(crate) fn class_change(
    workload: &Parts,
    spot: Spot,
    kind: Option<u32>,
    class: Class,
) -> Checked {
    if class == Class::Kthread {
        let problem = "a task cannot become a kernel thread";
        return flaw(spot, "class", Kind::Value, problem, "\"fair\", \"idle\" or \"rt\"");
    }
    let of = kind.and_then(|kind| workload.tasks.get(kind as usize));
    if of.is_some_and(|task| task.class == Class::Kthread) {
        let problem = "the class of a kernel thread cannot be changed";
        return flaw(spot, "class", Kind::Value, problem, "a task of another class");
    }
    Ok(())
}
