//! All checks of a [`Parts`], however it was made: read from a file, built in Rust, imported from a
//! recording, or shrunk from a failing case.
//!
//! [`program`] checks locks, system calls and time in each program, [`order`] the order of locks
//! over all programs, [`forks`] the number of tasks that are forked, [`jobs`] the work that tokens
//! carry.

mod forks;
mod jobs;
mod order;
mod program;
mod tables;

pub(crate) use tables::check_expectations;

use crate::bounds::{
    BANDWIDTH_SLICE_NS, HZ, MAX_CPU_SET_ENTRIES, MAX_CPUS, MAX_DURATION_NS, MAX_ENTRIES,
    MAX_GROUP_DEPTH, MAX_GROUPS, MAX_JOBS, MAX_KINDS, MAX_NAME_BYTES, MAX_OPS, MAX_PATH_BYTES,
    MAX_TASKS, NS_PER_US, SLICE_NS,
};
use crate::error::{Error, Kind, PartIx, Refusal};
use crate::model::{Affinity, Class, LockKind, LockMode, Parts, Preempt};
use crate::units::{print_duration, quoted};
use cpumax_limit::{Hierarchy, Limit, LimitError, Place, Rules};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

impl Parts {
    /// Checks everything that the language promises: references, ranges, the kernel's rules for
    /// limits, the order of locks, and that time passes in every loop.
    ///
    /// # Errors
    /// The first problem, with its part and what would be accepted.
    pub fn check(&self) -> Result<(), Error> {
        check(self).map_err(|found| found.refusal.part(found.part.describe(self)).into_error(None))
    }
}

/// A problem, and the part of the workload and field that have it.
pub(crate) struct PartRefusal {
    pub part: PartIx,
    pub field: &'static str,
    pub refusal: Refusal,
}

pub(crate) type Checked = Result<(), PartRefusal>;

/// Range of `cpu.weight` in cgroup v2.
pub(crate) const WEIGHTS: RangeInclusive<u64> = 1..=10_000;

/// Form of a group's path, for messages.
pub(crate) const PATH_FORM: &str =
    "a path from the root down, such as \"/services/web\", without empty parts, `.` or `..`";

/// All checks. The order matters: each relies on the references and ranges that those before have
/// checked.
pub(crate) fn check(workload: &Parts) -> Checked {
    check_sizes(workload)?;
    check_name_and_duration(workload)?;
    check_cpu_sets(workload)?;
    check_machine(workload)?;
    check_groups(workload)?;
    tables::check_locks_and_channels(workload)?;
    tables::check_distributions(workload)?;
    check_tasks(workload)?;
    check_labels(workload)?;
    jobs::check_names(workload)?;
    program::check(workload)?;
    order::check(workload)?;
    forks::check(workload)?;
    tables::check_sources(workload)?;
    jobs::check(workload)?;
    tables::check_interventions(workload)?;
    tables::check_expectations(workload)
}

/// Refuses the value of `field` of a part.
pub(crate) fn refuse<T>(
    part: PartIx,
    field: &'static str,
    kind: Kind,
    problem: impl Into<String>,
    accepted: impl Into<String>,
) -> Result<T, PartRefusal> {
    Err(PartRefusal { part, field, refusal: Refusal::new(kind, problem, accepted) })
}

/// Refuses a number outside of `range`.
pub(crate) fn check_in_range(
    part: PartIx,
    field: &'static str,
    value: u64,
    range: RangeInclusive<u64>,
) -> Checked {
    if range.contains(&value) {
        return Ok(());
    }
    let accepted = format!("from {} to {}", range.start(), range.end());
    refuse(part, field, Error::Value, format!("{field} is {value}"), accepted)
}

/// Refuses a length of time, ns, outside of `range`.
pub(crate) fn check_time(
    part: PartIx,
    field: &'static str,
    ns: u64,
    range: RangeInclusive<u64>,
) -> Checked {
    if range.contains(&ns) {
        return Ok(());
    }
    let accepted =
        format!("from {} to {}", print_duration(*range.start()), print_duration(*range.end()));
    refuse(part, field, Error::Value, format!("{field} is {}", print_duration(ns)), accepted)
}

/// Checks a reference into a table of the workload that has `len` entries.
pub(crate) fn check_reference(part: PartIx, field: &'static str, ix: u32, len: usize) -> Checked {
    if (ix as usize) < len {
        return Ok(());
    }
    let accepted = format!("there are {len}, counted from 0");
    refuse(part, field, Error::Name, format!("{field} refers to number {ix}"), accepted)
}

/// Checks a name that must be unique. Names are printed, compared and used in paths of metrics, so
/// only control characters are refused.
pub(crate) fn check_unique_name(part: PartIx, name: &str, seen: &mut BTreeSet<String>) -> Checked {
    check_name(part, "name", name)?;
    if !seen.insert(name.to_owned()) {
        let problem = format!("the name {} is used twice", quoted(name));
        return refuse(part, "name", Error::Name, problem, "give each its own name");
    }
    Ok(())
}

/// Makes a valid name of at most `most` bytes out of any text: control characters are escaped, long
/// text is cut, and empty text becomes `?`.
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

/// Checks a name that need not be unique.
fn check_name(part: PartIx, field: &'static str, name: &str) -> Checked {
    let accepted = format!("1 to {MAX_NAME_BYTES} bytes without control characters");
    if name.is_empty() {
        return refuse(part, field, Error::Name, format!("the {field} is empty"), accepted);
    }
    if name.len() as u64 > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let problem = format!("{} cannot be a {field}", quoted(name));
        return refuse(part, field, Error::Name, problem, accepted);
    }
    Ok(())
}

/// Checks the labels of kinds of task, which need not be unique.
pub(crate) fn check_labels(workload: &Parts) -> Checked {
    for (ix, task) in workload.tasks.iter().enumerate() {
        task.label.as_ref().map_or(Ok(()), |label| check_name(PartIx::Task(ix), "label", label))?;
    }
    Ok(())
}

/// Refuses a workload with more groups, tasks, instructions or other entries than `bounds` allows.
/// Depends on no other check.
fn check_sizes(workload: &Parts) -> Checked {
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
            return refuse(PartIx::Top, "", Error::Value, problem, format!("at most {most}"));
        }
    }
    Ok(())
}

pub(crate) fn check_name_and_duration(workload: &Parts) -> Checked {
    check_unique_name(PartIx::Top, &workload.name, &mut BTreeSet::new())?;
    check_time(PartIx::Top, "duration", workload.duration_ns, 1..=MAX_DURATION_NS)
}

/// Checks the number of CPUs, and that each set of CPUs is not empty, ascending, and within the
/// machine.
fn check_cpu_sets(workload: &Parts) -> Checked {
    check_in_range(PartIx::Machine, "cpus", workload.machine.cpus.into(), 1..=MAX_CPUS)?;
    for (ix, cpus) in workload.cpu_sets.iter().enumerate() {
        let part = PartIx::CpuSet(ix);
        let ascending = cpus.0.windows(2).all(|pair| pair[0] < pair[1]);
        let Some(&last) = cpus.0.last().filter(|_| ascending) else {
            let problem = "a set of CPUs is empty, or not in ascending order";
            return refuse(
                part,
                "",
                Error::Value,
                problem,
                "one CPU at least, each once, ascending",
            );
        };
        check_cpu(workload, part, "", last)?;
    }
    Ok(())
}

/// Refuses a CPU that the machine does not have.
pub(crate) fn check_cpu(workload: &Parts, part: PartIx, field: &'static str, cpu: u16) -> Checked {
    let cpus = workload.machine.cpus;
    if cpu < cpus {
        return Ok(());
    }
    let accepted = match cpus {
        1 => "the machine has one CPU, number 0; give it more with [machine] cpus = N".to_owned(),
        _ => format!("the machine has {cpus} CPUs, 0 to {}", cpus - 1),
    };
    refuse(part, field, Error::Value, format!("there is no CPU {cpu}"), accepted)
}

/// Checks the settings of the machine, and that softirqs exist only on `PREEMPT_RT`, with valid
/// CPUs and locks.
pub(crate) fn check_machine(workload: &Parts) -> Checked {
    let machine = &workload.machine;
    let part = PartIx::Machine;
    check_in_range(part, "llc", machine.llc_cpus.into(), 0..=machine.cpus.into())?;
    if !HZ.contains(&machine.hz) {
        let problem = format!("hz is {}", machine.hz);
        return refuse(part, "hz", Error::Value, problem, "one of 100, 250, 300, 1000");
    }
    check_time(part, "slice", machine.bandwidth_slice_ns, BANDWIDTH_SLICE_NS)?;
    if let Some(base_slice_ns) = machine.base_slice_ns {
        check_time(part, "base_slice", base_slice_ns, SLICE_NS)?;
    }
    if let Some(phase_ns) = machine.timer_phase_ns {
        check_time(part, "timer_phase", phase_ns, 0..=cpumax_limit::MAX_PERIOD_NS)?;
    }
    check_time(part, "ipi", machine.ipi_ns, 0..=1_000_000_000)?;
    if let Some(cpus) = machine.nohz_full {
        check_reference(part, "nohz_full", cpus, workload.cpu_sets.len())?;
    }
    for (ix, softirq) in machine.softirqs.iter().enumerate() {
        let part = PartIx::Softirq(ix);
        if !machine.preempt.is_some_and(Preempt::is_rt) {
            let problem = "softirqs run in a thread of their own only on PREEMPT_RT";
            return refuse(
                part,
                "",
                Error::Value,
                problem,
                "set preempt = \"rt\" or \"rt-lazy\" in [machine]",
            );
        }
        check_cpu(workload, part, "cpu", softirq.cpu)?;
        check_reference(part, "lock", softirq.lock, workload.locks.len())?;
        check_lock_mode(workload, part, softirq.lock, softirq.mode)?;
        check_time(part, "every", softirq.every_ns, NS_PER_US..=MAX_DURATION_NS)?;
        check_time(part, "hold", softirq.hold_ns, 0..=softirq.every_ns)?;
    }
    Ok(())
}

/// Refuses a read mode for a mutex or spinlock. The reference to the lock must be valid.
pub(crate) fn check_lock_mode(
    workload: &Parts,
    part: PartIx,
    lock: u32,
    mode: LockMode,
) -> Checked {
    let lock = &workload.locks[lock as usize];
    match (lock.kind, mode) {
        (LockKind::Mutex | LockKind::Spin, LockMode::Read) => {
            let problem = format!("lock {} has no readers", quoted(&lock.name));
            let accepted = "leave out the mode, or make it kind = \"rwsem\"";
            refuse(part, "mode", Error::Lock, problem, accepted)
        }
        _ => Ok(()),
    }
}

/// Describes what is wrong with the path of a group; `None` for a valid path, such as `/`.
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

/// Checks that the root comes first and parents before children, with valid and unique paths,
/// weights and limits; for v1 also the rule of its hierarchy.
fn check_groups(workload: &Parts) -> Checked {
    let root = workload.groups.first();
    if !root.is_some_and(|root| {
        root.path == "/" && root.parent.is_none() && root.limit == Limit::UNLIMITED && !root.v1
    }) {
        let problem = "the first group is not an unlimited root group";
        return refuse(PartIx::Group(0), "", Error::Name, problem, "path `/`, no parent, no limit");
    }
    let mut seen = BTreeSet::from(["/"]);
    for (ix, group) in workload.groups.iter().enumerate().skip(1) {
        let part = PartIx::Group(ix);
        if let Some(problem) = path_problem(&group.path) {
            return refuse(part, "path", Error::Name, problem, PATH_FORM);
        }
        if !seen.insert(&group.path) {
            return refuse(part, "path", Error::Name, "listed twice", "list each group once");
        }
        let parent = group.parent.map(|parent| parent as usize).filter(|&parent| parent < ix);
        let above = group.path.rfind('/').map(|end| &group.path[..end.max(1)]);
        let Some(parent) = parent.filter(|&parent| Some(&*workload.groups[parent].path) == above)
        else {
            let problem = "the parent is not the group that the path names, or stands after it";
            return refuse(part, "path", Error::Name, problem, "parents before children");
        };
        check_in_range(part, "weight", group.weight.into(), WEIGHTS)?;
        if parent != 0 && group.v1 != workload.groups[parent].v1 {
            let problem = "the group and its parent are in different hierarchies";
            return refuse(part, "hierarchy", Error::Value, problem, "the same hierarchy for both");
        }
        check_limit(part, group.limit)?;
    }
    check_v1_groups(workload)
}

/// Refuses v1 groups that have more at the start than an ancestor.
fn check_v1_groups(workload: &Parts) -> Checked {
    let limits: Vec<Limit> = workload.groups.iter().map(|group| group.limit).collect();
    check_v1_hierarchy(workload, &limits).or_else(|(group, problem)| {
        let accepted = "lower it, or raise the limit above";
        refuse(PartIx::Group(group), "max", Error::Limit, problem, accepted)
    })
}

/// Checks the limits of v1 groups at the start and after each write.
pub(crate) fn check_v1_limits(workload: &Parts) -> Checked {
    if !workload.groups.iter().any(|group| group.v1) {
        return Ok(());
    }
    check_v1_groups(workload)?;
    tables::check_interventions(workload)
}

/// Refuses limits that no file of the kernel can hold, and those that only kernels before 5.8
/// accept: a quota of centuries, which overflows.
pub(crate) fn check_limit(part: PartIx, limit: Limit) -> Checked {
    let (quota_ns, period_ns, burst_ns) = (limit.quota_ns(), limit.period_ns(), limit.burst_ns());
    if let Err(error) = Limit::new(quota_ns, period_ns, burst_ns) {
        return refuse(part, "max", Error::Limit, error.to_string(), "");
    }
    let whole_us = [quota_ns.unwrap_or(0), period_ns, burst_ns];
    if whole_us.iter().all(|ns| ns.is_multiple_of(NS_PER_US)) {
        return Ok(());
    }
    let accepted = "quota, period and burst in whole microseconds";
    refuse(part, "max", Error::Limit, "a limit is finer than a microsecond", accepted)
}

/// Checks v1's rule that no group may have a larger ratio of quota to period than an ancestor.
/// `limits`: those of the groups at one time, by index. Groups of v2 are not concerned.
///
/// # Errors
/// The index of the group, and the reason.
pub(crate) fn check_v1_hierarchy(
    workload: &Parts,
    limits: &[Limit],
) -> Result<(), (usize, String)> {
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

/// Checks names, references and ranges of the kinds of task, and the number of all tasks at the
/// start.
fn check_tasks(workload: &Parts) -> Checked {
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for (ix, task) in workload.tasks.iter().enumerate() {
        let part = PartIx::Task(ix);
        check_unique_name(part, &task.name, &mut seen)?;
        if task.name == "self" {
            let problem = "`self` stands for the task that executes an instruction";
            return refuse(part, "name", Error::Name, problem, "another name");
        }
        total += u64::from(task.count);
        if total > MAX_TASKS {
            let problem = format!("there are {total} tasks up to this kind");
            return refuse(part, "count", Error::Value, problem, format!("at most {MAX_TASKS}"));
        }
        check_reference(part, "group", task.group, workload.groups.len())?;
        check_nice(part, task.nice)?;
        if let Affinity::Set(cpus) = task.cpus {
            check_reference(part, "cpus", cpus, workload.cpu_sets.len())?;
        }
        check_time(part, "start", task.start_ns, 0..=MAX_DURATION_NS)?;
        check_time(part, "stagger", task.stagger_ns, 0..=MAX_DURATION_NS)?;
        if let Some(slice_ns) = task.slice_ns {
            check_time(part, "slice", slice_ns, SLICE_NS)?;
        }
    }
    Ok(())
}

/// Refuses a nice value outside of -20 to 19.
pub(crate) fn check_nice(part: PartIx, nice: i8) -> Checked {
    if (-20..=19).contains(&nice) {
        return Ok(());
    }
    refuse(part, "nice", Error::Value, format!("nice is {nice}"), "from -20 to 19")
}

/// Checks a change of class: a task can become fair, idle or real-time, but never a kernel thread.
pub(crate) fn check_class_change(
    workload: &Parts,
    part: PartIx,
    kind: Option<u32>,
    class: Class,
) -> Checked {
    if class == Class::Kthread {
        let problem = "a task cannot become a kernel thread";
        return refuse(part, "class", Error::Value, problem, "\"fair\", \"idle\" or \"rt\"");
    }
    let of = kind.and_then(|kind| workload.tasks.get(kind as usize));
    if of.is_some_and(|task| task.class == Class::Kthread) {
        let problem = "the class of a kernel thread cannot be changed";
        return refuse(part, "class", Error::Value, problem, "a task of another class");
    }
    Ok(())
}
