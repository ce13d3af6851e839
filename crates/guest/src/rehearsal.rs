//! What tasks do before a run that is not exact, so that it takes in the run what it takes from
//! then on: an emulator translates their code, and the kernel's for them, when they first come
//! there, which takes it 2 to 6 ms.
//!
//! They do so twice: before there are limits, as nobody can be stopped at it then; and again when
//! there are, and when what is recorded is, as a kernel writes its own code anew for both. Who is
//! stopped then gets to the end of it with more quota. What all that takes of a pool is there again
//! at the start.

use crate::cgroup::{Group, Hierarchy};
use crate::sys;
use crate::task::{Task, used_ns};
use crate::work::stamp;
use crate::world::{Cue, Slot, World};
use cpumax_limit::Limit;
use cpumax_workload::{Op, Span, Target};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// So often it is looked whether all are done, ns.
const LOOK_NS: u64 = 1_000_000;

/// What everybody does: what concerns nobody else, and takes next to no time.
static SHORT: [Op; 5] = [
    Op::Every { period_ns: 50_000 },
    Op::Sleep(Span::Fixed(1)),
    Op::User(Span::Fixed(1_000)),
    Op::Kernel(Span::Fixed(1_000)),
    Op::Yield,
];

/// Has all tasks there are rehearse before there are limits; what is to be said, if that takes too
/// long.
pub fn rehearse_all(world: &World) -> Option<String> {
    const MOST_NS: u64 = 2_000_000_000;
    if world.is_exact {
        return None;
    }
    let left = as_if_running(world, |_| {
        cue_all(world);
        wait_for_all(world, MOST_NS)
    });
    (left > 0).then(|| format!("{left} tasks were not ready when the run began"))
}

/// The same when there are. Whom a limit stops before the end of it gets there with a quota that
/// stops nobody, as one who rehearses when the run has begun uses up what others are to have, and
/// holds what they wait for. Where a quota like that is refused, as groups above ours have less
/// (the first hierarchy), nobody gets more. It is over so long before the start.
///
/// # Errors
/// A limit that a group has had already is refused by the kernel.
pub fn rehearse_again(
    world: &World,
    hierarchy: &Hierarchy,
    groups: &[Group],
    lead_ns: u64,
) -> Result<(), String> {
    const MOST_NS: u64 = 100_000_000;
    /// What is to be done besides takes less.
    const REST_NS: u64 = 50_000_000;
    if world.is_exact {
        return Ok(());
    }
    let limited = groups.iter().zip(&world.workload.groups);
    let limited = limited.filter(|(_, spec)| spec.limit.quota_ns().is_some());
    as_if_running(world, |start_ns| {
        cue_all(world);
        if wait_for_all(world, MOST_NS) == 0 {
            return Ok(());
        }
        let from_ns = sys::monotonic_ns();
        // The first hierarchy lets no group have more than its parent: that gets more first, and
        // less last.
        let mut raised = Vec::new();
        for (group, spec) in limited {
            if hierarchy.write_limit(group, spec.limit, ample(spec.limit)?).is_err() {
                break;
            }
            raised.push((group, spec.limit));
        }
        // Who lowers them again takes as long.
        let took_ns = sys::monotonic_ns() - from_ns;
        let end_ns = start_ns.saturating_sub(lead_ns + took_ns + REST_NS);
        wait_for_all(world, end_ns.saturating_sub(sys::monotonic_ns()));
        raised
            .iter()
            .rev()
            .try_for_each(|(group, limit)| hierarchy.write_limit(group, ample(*limit)?, *limit))
    })
}

/// A limit with the same period, whose timer goes on as it does, and a quota of more CPUs than
/// there are.
fn ample(limit: Limit) -> Result<Limit, String> {
    const CPUS: u64 = 1024;
    let period_ns = limit.period_ns();
    Limit::new(Some(CPUS * period_ns), period_ns, 0).map_err(|error| error.to_string())
}

/// Does something while the run has begun, for all that tasks can tell; when it will begin is told.
fn as_if_running<T>(world: &World, something: impl FnOnce(u64) -> T) -> T {
    let start_ns = world.start_ns.swap(sys::monotonic_ns(), Relaxed);
    let start_stamp = world.start_stamp.swap(stamp(), Relaxed);
    let done = something(start_ns);
    world.start_ns.store(start_ns, Relaxed);
    world.start_stamp.store(start_stamp, Relaxed);
    world.lateness.forget();
    done
}

fn cue_all(world: &World) {
    for slot in world.slots.iter().filter(|slot| slot.pid.load(Relaxed) != 0) {
        slot.set_go(Cue::Rehearse);
    }
}

/// How many tasks have not done so after that time, at the latest.
fn wait_for_all(world: &World, most_ns: u64) -> usize {
    let rehearses = |slot: &&Slot| slot.go.load(Acquire) == Cue::Rehearse as u32;
    let left = || world.slots.iter().filter(rehearses).count();
    let end_ns = sys::monotonic_ns() + most_ns;
    while left() > 0 && sys::monotonic_ns() < end_ns {
        sys::sleep_for(LOOK_NS);
    }
    left()
}

/// Does each of the short things, and moves to the first group that its program moves it to, and
/// back.
pub fn rehearse(world: &'static World, slot: &'static Slot) {
    let mut task = Task::new(world, slot, world.now_ns());
    let own = slot.group.load(Relaxed);
    let mut moves = task.program.iter().filter_map(|op| match *op {
        Op::Move { group, .. } if group != own => Some(group),
        _ => None,
    });
    let first = moves.next();
    task.program = &SHORT;
    task.go();
    for group in first.into_iter().chain(first.map(|_| own)) {
        task.execute(Op::Move { who: Target::Myself, group });
    }
    slot.stall_ns.store(0, Relaxed);
    slot.wait_ns.store(0, Relaxed);
    slot.used_before_us.store(used_ns() as u64 / 1000, Relaxed);
    let (rehearses, waits) = (Cue::Rehearse as u32, Cue::Wait as u32);
    // Otherwise it has to go at once.
    let _ = slot.go.compare_exchange(rehearses, waits, Release, Relaxed);
}
