//! A sleeping process in every group that tasks are ever in, from before the run: the first one in
//! would have a worker of the kernel told, and what is decided by what groups did before is the
//! same for all of them.

use crate::cgroup::{Group, Hierarchy};
use crate::plan::lives_in;
use crate::{kernel, sys};
use cpumax_workload::{GroupSpec, Workload};

/// The first kernel whose fair class is EEVDF.
const EEVDF_FROM: (u32, u32) = (6, 6);

/// What each group that tasks are ever in first has to itself, ns.
const ALONE_NS: u64 = 10_000_000;

/// One in each of these groups. They end with the caller.
///
/// # Errors
/// A group that is to run last could not be made or removed.
pub(crate) fn make(
    workload: &Workload,
    hierarchy: &Hierarchy,
    groups: &[Group],
    inner: bool,
) -> Result<Vec<i32>, String> {
    // CFS puts a group that slept for long a fixed time before the others, one that slept for less
    // where it was. When another one below the same parent has run last, all of them have slept for
    // long.
    let is_cfs = kernel::version(&kernel::release()) < EEVDF_FROM;
    let spin_ns = if is_cfs { ALONE_NS } else { 0 };
    let mut keepers = Vec::new();
    for (ix, group) in groups.iter().enumerate().skip(1).rev() {
        if lives_in(workload, ix as u32) {
            keepers.extend(keep(group, spin_ns, true));
        }
    }
    for (ix, parent) in groups.iter().enumerate().rev() {
        let is_above = |spec: &GroupSpec| spec.parent == Some(ix as u32);
        if is_cfs && workload.groups.iter().any(is_above) {
            let last = hierarchy.make_last(parent, inner)?;
            if let Some(pid) = keep(&last, spin_ns, false) {
                // SAFETY: waits for a child, without its status.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            }
            last.remove()?;
        }
    }
    Ok(keepers)
}

/// One of them, which runs for some time first and then sleeps, or ends.
fn keep(group: &Group, spin_ns: u64, stays: bool) -> Option<i32> {
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
    // One that cannot be there changes nothing that would be measured.
    // SAFETY: the text is there while it is written.
    unsafe { libc::write(group.procs_fd, text.as_ptr().cast(), text.len()) };
    // It goes to sleep before there is another, and once more when its parent, too, has left the
    // queue for good, so that no group owes or is owed anything.
    sys::sleep_for(ALONE_NS + spin_ns);
    Some(pid)
}
