// SPDX-License-Identifier: GPL-2.0-only
//! Statistics of groups and tasks, named as in `cpu.stat` where that has them.
//!
//! While a `sched_ext` scheduler is loaded, the kernel leaves `nr_periods`, `nr_throttled` and
//! `throttled_usec` of `cpu.stat` at zero; these are the missing numbers.
//!
//! Root sees all groups. Another user sees the groups delegated to it (those whose directory it
//! owns and all below), its own threads in them, and one sum of all other groups.
//! whose directory it owns and all below them, of its own threads there, and of the rest one sum.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::answer::{ANSWER_BYTES_MAX, Answer, GroupStat, Request, TaskStat};
use crate::escape::one_line;
use crate::scheduler::Scheduler;
use crate::shared::{Group, UNLIMITED};

/// Name of the sum of all groups that a user may not see one by one.
const OTHERS: &str = "others";
/// Most threads in one answer.
const THREADS_MAX: usize = 40_000;
const CGROUPS: &str = "/sys/fs/cgroup";

/// Works out the answer to a user's request: a line of JSON.
pub fn answer(
    scheduler: &Scheduler<'_>,
    stop: &AtomicBool,
    uid: u32,
    request: &Request,
) -> Vec<u8> {
    let mut line = Vec::from(b"{\"groups\":[");
    let told = for_each_visible(scheduler, stop, uid, request, |stat| {
        if !line.ends_with(b"[") {
            line.push(b',');
        }
        serde_json::to_writer(&mut line, &stat).map_err(|error| error.to_string())?;
        if line.len() > ANSWER_BYTES_MAX {
            return Err(format!(
                "the answer is longer than {} MiB: ask for one group",
                ANSWER_BYTES_MAX >> 20
            ));
        }
        Ok(())
    });
    match told {
        Ok(()) => line.extend_from_slice(b"]}\n"),
        Err(error) => return Answer::Error(error).line(),
    }
    line
}

/// Statistics of all groups that have or had a limit.
pub fn all(scheduler: &Scheduler<'_>, stop: &AtomicBool) -> Vec<GroupStat> {
    let mut groups = Vec::new();
    let _ = for_each_visible(scheduler, stop, 0, &Request::default(), |stat| {
        groups.push(stat);
        Ok(())
    });
    groups
}

/// Passes the groups that a user asks for and may see to `take`.
fn for_each_visible(
    scheduler: &Scheduler<'_>,
    stop: &AtomicBool,
    uid: u32,
    request: &Request,
    mut take: impl FnMut(GroupStat) -> Result<(), String>,
) -> Result<(), String> {
    if let Some(group) = &request.group {
        return take(single_group(scheduler, uid, group, request.tasks)?);
    }
    let mut others = GroupStat { group: OTHERS.to_owned(), ..GroupStat::default() };
    let mut hidden = false;
    let mut found = vec![(PathBuf::from(CGROUPS), false)];
    while let Some((dir, is_below_own)) = found.pop() {
        if stop.load(Ordering::Relaxed) {
            return Err("the scheduler is ending".to_owned());
        }
        let Ok(meta) = fs::metadata(&dir) else { continue };
        let is_own = is_below_own || is_of(&meta, uid);
        let group = scheduler.group(meta.ino());
        let limited = group.filter(|g| g.quota_ns != UNLIMITED || g.nr_periods > 0);
        if let Some(mut stat) = limited.and_then(|group| group_stat(scheduler, &dir, &group)) {
            if is_own {
                if request.tasks {
                    stat.tasks = task_stats(scheduler, &dir, uid)?;
                }
                take(stat)?;
            } else {
                hidden = true;
                add_up(&mut others, &stat);
            }
        }
        let mut children = children(&dir);
        children.sort_by(|a, b| b.cmp(a));
        found.extend(children.into_iter().map(|child| (child, is_own)));
    }
    if hidden { take(others) } else { Ok(()) }
}

fn single_group(
    scheduler: &Scheduler<'_>,
    uid: u32,
    group: &str,
    tasks: bool,
) -> Result<GroupStat, String> {
    let (root, group) = (Path::new(CGROUPS), group.trim_matches('/'));
    let shown = one_line(group);
    if group.split('/').any(|part| part == "..") {
        return Err(format!("\"{shown}\" is not the path of a cgroup"));
    }
    if !may_see(root, group, uid) {
        return Err(format!(
            "statistics of the cgroup \"{shown}\" are for root only, and for the user to whom it \
             or a cgroup above it is delegated"
        ));
    }
    let dir = root.join(group);
    let mut stat = fs::metadata(&dir)
        .ok()
        .and_then(|meta| scheduler.group(meta.ino()))
        .and_then(|group| group_stat(scheduler, &dir, &group))
        .ok_or_else(|| format!("there is no cgroup \"{shown}\" with the cpu controller"))?;
    if tasks {
        stat.tasks = task_stats(scheduler, &dir, uid)?;
    }
    Ok(stat)
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn is_of(meta: &fs::Metadata, uid: u32) -> bool {
    uid == 0 || meta.uid() == uid
}

/// Whether the user owns the group or one of its ancestors.
fn may_see(root: &Path, group: &str, uid: u32) -> bool {
    let dir = root.join(group);
    let above = dir.ancestors().take_while(|above| above.starts_with(root));
    above.filter_map(|dir| fs::metadata(dir).ok()).any(|meta| is_of(&meta, uid))
}

fn add_up(sum: &mut GroupStat, stat: &GroupStat) {
    for (sum, more) in [
        (&mut sum.usage_usec, stat.usage_usec),
        (&mut sum.user_usec, stat.user_usec),
        (&mut sum.system_usec, stat.system_usec),
        (&mut sum.nr_periods, stat.nr_periods),
        (&mut sum.nr_throttled, stat.nr_throttled),
        (&mut sum.throttled_usec, stat.throttled_usec),
        (&mut sum.nr_bursts, stat.nr_bursts),
        (&mut sum.burst_usec, stat.burst_usec),
        (&mut sum.parked, stat.parked),
        (&mut sum.debt_usec, stat.debt_usec),
        (&mut sum.pool_usec, stat.pool_usec),
        (&mut sum.parks, stat.parks),
        (&mut sum.parked_usec, stat.parked_usec),
        (&mut sum.kernel_overrun_usec, stat.kernel_overrun_usec),
        (&mut sum.released, stat.released),
        (&mut sum.release_cost_nsec, stat.release_cost_nsec),
        (&mut sum.watchdog_passes, stat.watchdog_passes),
        (&mut sum.pass_usec, stat.pass_usec),
        (&mut sum.moved_on, stat.moved_on),
        (&mut sum.refused, stat.refused),
        (&mut sum.parks_queued, stat.parks_queued),
        (&mut sum.charged_usec, stat.charged_usec),
    ] {
        *sum += more;
    }
    sum.unaccounted_nsec += stat.unaccounted_nsec;
}

/// Statistics of a group; its id is the inode number of its directory.
fn group_stat(scheduler: &Scheduler<'_>, dir: &Path, group: &Group) -> Option<GroupStat> {
    let kernel = fs::read_to_string(dir.join("cpu.stat")).unwrap_or_default();
    let usec = |ns: u64| ns / 1000;
    let cpus = scheduler.cpus(group.id);
    let charged_ns: u64 = cpus.iter().map(|cpu| cpu.usage_ns).sum();
    let held_ns: i64 = cpus.iter().map(|cpu| cpu.rem_ns + cpu.mail_ns).sum();
    Some(GroupStat {
        group: format!("/{}", dir.strip_prefix(CGROUPS).ok()?.display()),
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
        release_took_usec: usec(group.release_took_ns),
        watchdog_passes: group.watchdog_passes,
        pass_usec: usec(group.pass_ns),
        moved_on: group.moved_on,
        refused: group.refused,
        parks_queued: group.parks_queued,
        charged_usec: usec(charged_ns),
        unaccounted_nsec: group.refilled_ns - charged_ns as i64 - held_ns - group.pool_ns
            + group.debt_ns,
        tasks: Vec::new(),
    })
}

/// Statistics of a group's threads: of all for root, else of the user's own.
fn task_stats(scheduler: &Scheduler<'_>, dir: &Path, uid: u32) -> Result<Vec<TaskStat>, String> {
    let threads = fs::read_to_string(dir.join("cgroup.threads")).unwrap_or_default();
    let count = threads.lines().count();
    if count > THREADS_MAX {
        return Err(format!(
            "the group has {count} threads; an answer lists at most {THREADS_MAX}"
        ));
    }
    let numbers = threads.lines().filter_map(|line| line.trim().parse().ok());
    let is_own = |tid: &u32| fs::metadata(format!("/proc/{tid}")).is_ok_and(|m| is_of(&m, uid));
    Ok(numbers.filter(is_own).filter_map(|tid| task_stat(scheduler, tid)).collect())
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

/// Opens a pidfd of a thread instead of a process (from 6.9).
fn open_thread(tid: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: pidfd_open takes two numbers and yields a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// The number behind a name in a file with one on each line; 0 if it is missing.
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
}
