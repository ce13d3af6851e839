//! Keepers: processes that sleep in every group that ever has tasks, from before the run on.
//! Without them the first task in a group wakes a kernel worker. They also give all groups the same
//! past.

use crate::cgroup::{Group, Hierarchy};
use crate::plan::lives_in;
use crate::{kernel, sys};
use cpumax_workload::{GroupSpec, Workload};

/// The first kernel with EEVDF.
const EEVDF_FROM: (u32, u32) = (6, 6);

/// Time for which each keeper has its CPU alone, ns.
const ALONE_NS: u64 = 10_000_000;

/// Starts a keeper, a process that only sleeps and keeps its group from being empty, in each group
/// that ever has tasks; returns their pids. They die with the caller. To 6.5 it also has a
/// short-lived group run last in each parent, so that all groups have slept long. Takes
/// milliseconds for each.
///
/// # Errors
/// A helper group could not be made or removed.
pub(crate) fn start_keepers(
    workload: &Workload,
    hierarchy: &Hierarchy,
    groups: &[Group],
    inner: bool,
) -> Result<Vec<i32>, String> {
    // CFS places a group that has slept long at a fixed distance before the others, and one that
    // has slept briefly where it was. After another group of the same parent has run last, all have
    // slept long.
    let is_cfs = kernel::version(&kernel::release()) < EEVDF_FROM;
    let spin_ns = if is_cfs { ALONE_NS } else { 0 };
    let mut keepers = Vec::new();
    for (ix, group) in groups.iter().enumerate().skip(1).rev() {
        if lives_in(workload, ix as u32) {
            keepers.extend(start_keeper(group, spin_ns, true));
        }
    }
    for (ix, parent) in groups.iter().enumerate().rev() {
        let is_above = |spec: &GroupSpec| spec.parent == Some(ix as u32);
        if is_cfs && workload.groups.iter().any(is_above) {
            let last = hierarchy.make_last(parent, inner)?;
            if let Some(pid) = start_keeper(&last, spin_ns, false) {
                // SAFETY: waits for a child, without its status.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            }
            last.remove()?;
        }
    }
    Ok(keepers)
}

/// Forks a process, moves it into a group, and waits until it has spun for `spin_ns` and then
/// sleeps (`stays`) or exits. Returns its pid; `None` if there was no process.
fn start_keeper(group: &Group, spin_ns: u64, stays: bool) -> Option<i32> {
    // SAFETY: this process has no other threads; the child does nothing but sleep.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
        sys::sleep_for(ALONE_NS / 2);
        let begin_ns = sys::monotonic_ns();
        while sys::monotonic_ns() - begin_ns < spin_ns {
            std::hint::spin_loop();
        }
        if !stays {
            sys::exit(0)
        }
        loop {
            // SAFETY: the call takes nothing.
            unsafe { libc::pause() };
        }
    }
    if pid < 0 {
        return None;
    }
    let text = pid.to_string();
    // A failed write leaves the keeper elsewhere, which changes nothing measured.
    // SAFETY: the text is there while it is written.
    unsafe { libc::write(group.procs_fd, text.as_ptr().cast(), text.len()) };
    // Wait until the keeper sleeps and its parent entity, too, has left the run queue for good, so
    // that no group keeps lag.
    sys::sleep_for(ALONE_NS + spin_ns);
    Some(pid)
}
