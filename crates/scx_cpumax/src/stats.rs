// SPDX-License-Identifier: GPL-2.0-only
//! What a group and its tasks went through, under the names of `cpu.stat` where it has one.
//!
//! The kernel leaves `nr_periods`, `nr_throttled` and `throttled_usec` of `cpu.stat` at zero while
//! a `sched_ext` scheduler is loaded; these are the numbers that would be there.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::scheduler::Scheduler;
use crate::shared::{Group, UNLIMITED};

/// Groups that one answer holds at most.
pub const GROUPS_MAX: usize = 100_000;

/// One group. Times in microseconds unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStat {
    /// Path below the root of the hierarchy; the root is `/`.
    pub group: String,
    /// None if the group has no limit of its own.
    pub quota_usec: Option<u64>,
    pub period_usec: u64,
    pub burst_limit_usec: u64,
    /// From the kernel's own `cpu.stat`, which is right about these.
    pub usage_usec: u64,
    pub user_usec: u64,
    pub system_usec: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    /// Summed over CPUs, as the kernel does.
    pub throttled_usec: u64,
    pub nr_bursts: u64,
    pub burst_usec: u64,
    /// Tasks waiting at the boundary for this group's runtime right now.
    pub parked: u64,
    /// Runtime owed: used beyond the quota, mostly in kernel mode.
    pub debt_usec: u64,
    /// Runtime left of this period.
    pub pool_usec: u64,
    /// How often tasks were parked, and for how long, summed over tasks.
    pub parks: u64,
    pub parked_usec: u64,
    /// Run in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Tasks released and what that cost in all, in nanoseconds.
    pub released: u64,
    pub release_cost_nsec: u64,
    /// Tasks let through so that the kernel's watchdog sees them run.
    pub watchdog_passes: u64,
    /// What they ran then, which is charged to nobody.
    pub pass_usec: u64,
    /// Released tasks that went on to wait for another level's runtime.
    pub moved_on: u64,
    /// Visits to the boundary that could not be arranged at once.
    pub refused: u64,
    /// Charged to the group while it had a limit.
    pub charged_usec: u64,
    /// What came into the pool or paid debt, less what was charged, is held by CPUs, in the pool,
    /// and plus what is owed: 0 where none of its tasks runs, or the scheduler has lost or made
    /// runtime.
    pub unaccounted_nsec: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStat>,
}

/// One thread. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStat {
    pub tid: u32,
    pub comm: String,
    pub parked: bool,
    /// How often it came by the boundary, how often that took two hops, and how often it stayed.
    pub boundary_visits: u64,
    pub hops: u64,
    pub parks: u64,
    pub parked_usec: u64,
    /// From arriving at the boundary to being parked.
    pub boundary_usec: u64,
    pub kernel_overrun_usec: u64,
}

/// What is asked of the socket: one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Path of one group; none for all that have a limit or ever had.
    #[serde(default)]
    pub group: Option<String>,
    /// With the group's threads.
    #[serde(default)]
    pub tasks: bool,
}

/// What the socket answers: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Groups(Vec<GroupStat>),
    Error(String),
}

/// Answers a request from what the BPF program and cgroupfs know.
pub fn answer(scheduler: &Scheduler<'_>, request: &Request) -> Answer {
    let root = Path::new("/sys/fs/cgroup");
    let mut groups = Vec::new();
    match &request.group {
        Some(group) => {
            let group = group.trim_matches('/');
            if group.split('/').any(|part| part == "..") {
                return Answer::Error(format!("{group:?} is no path of a cgroup"));
            }
            match group_stat(scheduler, root, &root.join(group), request.tasks) {
                Some((stat, _)) => groups.push(stat),
                None => {
                    return Answer::Error(format!(
                        "there is no cgroup {group:?} with the cpu controller"
                    ));
                }
            }
        }
        None => collect(scheduler, root, root, request.tasks, &mut groups),
    }
    Answer::Groups(groups)
}

fn collect(
    scheduler: &Scheduler<'_>,
    root: &Path,
    dir: &Path,
    tasks: bool,
    groups: &mut Vec<GroupStat>,
) {
    if groups.len() >= GROUPS_MAX {
        return;
    }
    if let Some((stat, group)) = group_stat(scheduler, root, dir, tasks)
        && (group.quota_ns != UNLIMITED || group.nr_periods > 0)
    {
        groups.push(stat);
    }
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut children: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    children.sort();
    for child in children {
        collect(scheduler, root, &child, tasks, groups);
    }
}

fn group_stat(
    scheduler: &Scheduler<'_>,
    root: &Path,
    dir: &Path,
    tasks: bool,
) -> Option<(GroupStat, Group)> {
    // The number of a cgroup's directory is its id.
    let group = scheduler.group(fs::metadata(dir).ok()?.ino())?;
    let kernel = fs::read_to_string(dir.join("cpu.stat")).unwrap_or_default();
    let usec = |ns: u64| ns / 1000;
    let cpus = scheduler.cpus(group.id);
    let charged_ns: u64 = cpus.iter().map(|cpu| cpu.usage_ns).sum();
    let held_ns: i64 = cpus.iter().map(|cpu| cpu.rem_ns + cpu.mail_ns).sum();
    let stat = GroupStat {
        group: format!("/{}", dir.strip_prefix(root).ok()?.display()),
        quota_usec: (group.quota_ns != UNLIMITED).then(|| usec(group.quota_ns)),
        period_usec: usec(group.period_ns),
        burst_limit_usec: usec(group.burst_ns),
        usage_usec: field(&kernel, "usage_usec"),
        user_usec: field(&kernel, "user_usec"),
        system_usec: field(&kernel, "system_usec"),
        nr_periods: group.nr_periods,
        nr_throttled: group.nr_throttled,
        throttled_usec: usec(group.throttled_ns),
        nr_bursts: group.nr_bursts,
        burst_usec: usec(group.burst_used_ns),
        parked: group.nr_parked,
        debt_usec: usec(group.debt_ns.max(0).unsigned_abs()),
        pool_usec: usec(group.pool_ns.max(0).unsigned_abs()),
        parks: group.parks,
        parked_usec: usec(group.parked_ns),
        kernel_overrun_usec: usec(group.kernel_overrun_ns),
        released: group.released,
        release_cost_nsec: group.release_cost_ns,
        watchdog_passes: group.watchdog_passes,
        pass_usec: usec(group.pass_ns),
        moved_on: group.moved_on,
        refused: group.refused,
        charged_usec: usec(charged_ns),
        unaccounted_nsec: group.refilled_ns - charged_ns as i64 - held_ns - group.pool_ns
            + group.debt_ns,
        tasks: if tasks { task_stats(scheduler, dir) } else { Vec::new() },
    };
    Some((stat, group))
}

fn task_stats(scheduler: &Scheduler<'_>, dir: &Path) -> Vec<TaskStat> {
    let threads = fs::read_to_string(dir.join("cgroup.threads")).unwrap_or_default();
    threads.lines().filter_map(|line| task_stat(scheduler, line.trim().parse().ok()?)).collect()
}

fn task_stat(scheduler: &Scheduler<'_>, tid: u32) -> Option<TaskStat> {
    let task = scheduler.task(&open_thread(tid).ok()?)?;
    Some(TaskStat {
        tid,
        comm: fs::read_to_string(format!("/proc/{tid}/comm"))
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        parked: task.parked != 0,
        boundary_visits: task.boundary_visits,
        hops: task.hops,
        parks: task.parks,
        parked_usec: task.parked_ns / 1000,
        boundary_usec: task.boundary_ns / 1000,
        kernel_overrun_usec: task.kernel_overrun_ns / 1000,
    })
}

/// A pidfd of a thread, not of its process (6.9 and later).
fn open_thread(tid: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: pidfd_open takes two numbers and yields a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// A number of a file with a name and a number on each line; 0 if it is not there.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "usage_usec 12\nuser_usec 7\nsystem_usec 5\n";
        assert_eq!(field(text, "user_usec"), 7);
        assert_eq!(field(text, "user"), 0);
    }

    #[test]
    fn requests_are_lines_of_json() {
        let request: Request = serde_json::from_str(r#"{"group":"/a"}"#).unwrap();
        assert_eq!(request, Request { group: Some("/a".to_owned()), tasks: false });
        assert!(serde_json::from_str::<Request>(r#"{"grop":"/a"}"#).is_err());
    }
}
