//! Rehearsals: before a run that is not exact, tasks execute each kind of step once. An emulator
//! translates the code of a task, and of the kernel for it, at the first use, which takes 2 to 6
//! ms.
//!
//! Tasks rehearse twice: before there are limits, so that no task is throttled in it; and with
//! limits and trace in place, as the kernel patches its own code for both. A task that is throttled
//! then completes its rehearsal with more quota. The pools are filled again before the start.

use super::{Task, cpu_time_ns};
use crate::cgroup::{Group, Hierarchy};
use crate::sys;
use crate::work::read_tsc;
use crate::world::{Cue, Slot, World};
use cpumax_limit::Limit;
use cpumax_workload::{Op, Span, Target};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Time between two looks whether all tasks are done, ns.
const POLL_NS: u64 = 1_000_000;

/// The steps of a rehearsal: they affect no other task and take almost no time.
static SHORT: [Op; 5] = [
    Op::Every { period_ns: 50_000 },
    Op::Sleep(Span::Fixed(1)),
    Op::User(Span::Fixed(1_000)),
    Op::Kernel(Span::Fixed(1_000)),
    Op::Yield,
];

/// Has all tasks rehearse (execute each kind of step once, so that code and data are in memory),
/// before there are limits; waits up to 2 s. Returns a note for the report if some did not
/// complete. Does nothing in an exact run.
pub fn rehearse_all(world: &World) -> Option<String> {
    const MAX_NS: u64 = 2_000_000_000;
    if world.is_exact {
        return None;
    }
    let left = as_if_running(world, |_| {
        cue_all_to_rehearse(world);
        wait_for_all(world, MAX_NS)
    });
    (left > 0).then(|| format!("{left} tasks had not completed their rehearsal when the run began"))
}

/// Has all tasks rehearse again, under their limits. If a limit stops some, it raises all quotas
/// until these have completed: a task that rehearsed during the run would use up quota and hold
/// locks. Where a raised quota is refused, because groups above have less (cgroup v1), limits stay.
/// Ends `lead_ns` before the start of the run, at the latest.
///
/// # Errors
/// The kernel refuses a limit that a group has had before.
pub fn rehearse_again(
    world: &World,
    hierarchy: &Hierarchy,
    groups: &[Group],
    lead_ns: u64,
) -> Result<(), String> {
    const MAX_NS: u64 = 100_000_000;
    /// Other preparations take less than this.
    const REST_NS: u64 = 50_000_000;
    if world.is_exact {
        return Ok(());
    }
    let limited = groups.iter().zip(&world.workload.groups);
    let limited = limited.filter(|(_, spec)| spec.limit.quota_ns().is_some());
    as_if_running(world, |start_ns| {
        cue_all_to_rehearse(world);
        if wait_for_all(world, MAX_NS) == 0 {
            return Ok(());
        }
        let from_ns = sys::monotonic_ns();
        // v1 lets no group have more quota than its parent: parents are raised first and lowered
        // last.
        let mut raised = Vec::new();
        for (group, spec) in limited {
            if hierarchy.write_limit(group, spec.limit, with_ample_quota(spec.limit)?).is_err() {
                break;
            }
            raised.push((group, spec.limit));
        }
        // Lowering the limits takes as long as raising them.
        let took_ns = sys::monotonic_ns() - from_ns;
        let end_ns = start_ns.saturating_sub(lead_ns + took_ns + REST_NS);
        wait_for_all(world, end_ns.saturating_sub(sys::monotonic_ns()));
        raised.iter().rev().try_for_each(|(group, limit)| {
            hierarchy.write_limit(group, with_ample_quota(*limit)?, *limit)
        })
    })
}

/// The limit with the same period, so that the timer goes on, without burst and with a quota that
/// no machine can use up; an error where that is no valid limit.
fn with_ample_quota(limit: Limit) -> Result<Limit, String> {
    const CPUS: u64 = 1024;
    let period_ns = limit.period_ns();
    Limit::new(Some(CPUS * period_ns), period_ns, 0).map_err(|error| error.to_string())
}

/// Calls `something` with the real start time (ns) while tasks see a run that has begun now.
/// Restores the start afterwards and empties the histogram of lateness.
fn as_if_running<T>(world: &World, something: impl FnOnce(u64) -> T) -> T {
    let start_ns = world.start_ns.swap(sys::monotonic_ns(), Relaxed);
    let start_stamp = world.start_stamp.swap(read_tsc(), Relaxed);
    let done = something(start_ns);
    world.start_ns.store(start_ns, Relaxed);
    world.start_stamp.store(start_stamp, Relaxed);
    world.lateness.reset();
    done
}

/// Sets the cue of all existing tasks to rehearse, and wakes them.
fn cue_all_to_rehearse(world: &World) {
    for slot in world.slots.iter().filter(|slot| slot.pid.load(Relaxed) != 0) {
        slot.set_cue(Cue::Rehearse);
    }
}

/// Waits up to `max_ns` until no task rehearses any more; returns the number of tasks that still
/// do.
fn wait_for_all(world: &World, max_ns: u64) -> usize {
    let rehearses = |slot: &&Slot| slot.cue.load(Acquire) == Cue::Rehearse as u32;
    let left = || world.slots.iter().filter(rehearses).count();
    let end_ns = sys::monotonic_ns() + max_ns;
    while left() > 0 && sys::monotonic_ns() < end_ns {
        sys::sleep_for(POLL_NS);
    }
    left()
}

/// Executes a rehearsal in the calling task: short steps, and a move to the first group that its
/// program moves to, and back. Then resets the slot's waits and stalls, stores the CPU time used so
/// far, and sets the cue to wait, unless it has changed meanwhile.
pub fn rehearse(world: &'static World, slot: &'static Slot) {
    let mut task = Task::new(world, slot, world.now_ns());
    let own = slot.group.load(Relaxed);
    let mut moves = task.program.iter().filter_map(|op| match *op {
        Op::Move { group, .. } if group != own => Some(group),
        _ => None,
    });
    let first = moves.next();
    task.program = &SHORT;
    task.run_program();
    for group in first.into_iter().chain(first.map(|_| own)) {
        task.execute(Op::Move { who: Target::Myself, group });
    }
    slot.stall_ns.store(0, Relaxed);
    slot.wait_ns.store(0, Relaxed);
    slot.used_before_us.store(cpu_time_ns() as u64 / 1000, Relaxed);
    let (rehearses, waits) = (Cue::Rehearse as u32, Cue::Wait as u32);
    // If the cue has changed meanwhile, the task begins at once.
    let _ = slot.cue.compare_exchange(rehearses, waits, Release, Relaxed);
}
