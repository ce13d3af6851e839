//! What tasks do before a run that is not exact, so that it takes in the run what it takes from then on: an emulator
//! translates their code, and the kernel's for them, when they first come there, which takes it 2 to 6 ms.
//!
//! They do so twice: before there are limits, as nobody can be stopped at it then; and again when there are, and when what
//! is recorded is, as a kernel writes its own code anew for both. What that takes of a pool is there again at the start.

use crate::sys;
use crate::task::{Task, used_ns};
use crate::work::stamp;
use crate::world::{Cue, Slot, World};
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

/// Has all tasks there are rehearse before there are limits; what is to be said, if that takes too long.
pub fn rehearse_all(world: &World) -> Option<String> {
    const MOST_NS: u64 = 2_000_000_000;
    let left = rehearse_for(world, MOST_NS);
    (left > 0).then(|| format!("{left} tasks were not ready when the run began"))
}

/// The same when there are. Who is stopped by a limit does not get to the end of it, and need not.
pub fn rehearse_again(world: &World) {
    const MOST_NS: u64 = 100_000_000;
    rehearse_for(world, MOST_NS);
}

/// How many tasks have not done so after that time, at the latest.
fn rehearse_for(world: &World, most_ns: u64) -> usize {
    if world.is_exact {
        return 0;
    }
    let start_ns = world.start_ns.swap(sys::monotonic_ns(), Relaxed);
    let start_stamp = world.start_stamp.swap(stamp(), Relaxed);
    for slot in world.slots.iter().filter(|slot| slot.pid.load(Relaxed) != 0) {
        slot.set_go(Cue::Rehearse);
    }
    let rehearses = |slot: &&Slot| slot.go.load(Acquire) == Cue::Rehearse as u32;
    let left = || world.slots.iter().filter(rehearses).count();
    let mut looks = most_ns / LOOK_NS;
    while left() > 0 && looks > 0 {
        sys::sleep_for(LOOK_NS);
        looks -= 1;
    }
    world.start_ns.store(start_ns, Relaxed);
    world.start_stamp.store(start_stamp, Relaxed);
    world.lateness.forget();
    left()
}

/// Does each of the short things, and moves to the first group that its program moves it to, and back.
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
