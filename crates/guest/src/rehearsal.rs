//! What tasks do before a run that is not exact, so that it takes in the run what it takes from then on: an emulator
//! translates the kernel's code for it when it first comes there, which takes it 2 to 6 ms.

use crate::attributes::move_task;
use crate::sys;
use crate::task::used_ns;
use crate::world::{Cue, Slot, World};
use cpumax_workload::Op;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// So often it is looked whether all are done, and so long at the most, ns.
const LOOK_NS: u64 = 1_000_000;
const MOST_NS: u64 = 2_000_000_000;

/// Has all tasks there are rehearse, and waits until they have; what is to be said, if that takes too long.
pub fn rehearse_all(world: &World) -> Option<String> {
    if world.is_exact {
        return None;
    }
    for slot in world.slots.iter().filter(|slot| slot.pid.load(Relaxed) != 0) {
        slot.set_go(Cue::Rehearse);
    }
    let rehearses = |slot: &&Slot| slot.go.load(Acquire) == Cue::Rehearse as u32;
    let left = || world.slots.iter().filter(rehearses).count();
    for _ in 0..MOST_NS / LOOK_NS {
        if left() == 0 {
            return None;
        }
        sys::sleep_for(LOOK_NS);
    }
    Some(format!("{} tasks were not ready when the run began", left()))
}

/// Sleeps, and moves to the first group that its program moves anybody to, and back.
pub fn rehearse(world: &World, slot: &Slot) {
    sys::sleep_for(1);
    sys::sleep_until(1);
    let (kind, own) = (slot.kind.load(Relaxed), slot.group.load(Relaxed));
    let mut moves = world.workload.tasks[kind as usize].program.iter().filter_map(|op| match *op {
        Op::Move { group, .. } if group != own => Some(group),
        _ => None,
    });
    if let Some(group) = moves.next() {
        move_task(world, slot, group);
        move_task(world, slot, own);
    }
    slot.used_before_us.store(used_ns() as u64 / 1000, Relaxed);
    let (rehearses, waits) = (Cue::Rehearse as u32, Cue::Wait as u32);
    // Otherwise it has to go at once.
    let _ = slot.go.compare_exchange(rehearses, waits, Release, Relaxed);
}
