//! Attributes of a task that it or the controller can change: group, nice value, class, slice,
//! CPUs.

use crate::sys;
use crate::world::{Fault, Slot, World};
use cpumax_workload::{Affinity, Class, GroupIx, TaskSpec};
use std::sync::atomic::Ordering::Relaxed;

/// Moves a task into a group and notes that in its slot.
pub fn move_task(world: &World, slot: &Slot, group: GroupIx) {
    let mut text = [0u8; 12];
    let text = decimal(slot.pid.load(Relaxed).unsigned_abs(), &mut text);
    for fd in world.procs_fds[group as usize] {
        if fd >= 0 {
            let written = sys::write(fd, text.as_ptr(), text.len());
            // A task that has exited need not be moved.
            if written < 0 && written != -(libc::ESRCH as isize) {
                world.note_fault(Fault::Call, written);
            }
        }
    }
    slot.group.store(group, Relaxed);
}

/// The number in decimal digits, at the end of `text`. Allocates nothing.
fn decimal(mut n: u32, text: &mut [u8; 12]) -> &[u8] {
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 || at == 0 {
            return &text[at..];
        }
    }
}

/// Gives a task a nice value and keeps its class.
pub fn set_nice(slot: &Slot, nice: i8) {
    let now = slot.attributes.load(Relaxed);
    slot.attributes.store(now & !0xff | u32::from(nice.cast_unsigned()), Relaxed);
    sys::set_nice(slot.pid.load(Relaxed), nice);
}

/// Gives a task a class and keeps its nice value.
pub fn set_class(slot: &Slot, class: Class) {
    let now = slot.attributes.load(Relaxed);
    slot.attributes.store(now & !0xff00 | attributes(0, class, 0), Relaxed);
    apply(slot, 0);
}

/// Sets the CPUs of a task: 0 is all; 1 and up are CPU sets by number, then single CPUs.
pub fn set_affinity(world: &World, slot: &Slot, which: u16) {
    let now = slot.attributes.load(Relaxed);
    slot.attributes.store(now & 0xffff | u32::from(which) << 16, Relaxed);
    let mut mask = [0u64; 64];
    let sets = &world.workload.cpu_sets;
    let mut add = |cpu: usize| {
        if let Some(word) = mask.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    };
    match usize::from(which) {
        0 => (0..usize::from(world.workload.machine.cpus)).for_each(add),
        one if one <= sets.len() => {
            sets[one - 1].0.iter().for_each(|&cpu| add(usize::from(cpu)));
        }
        cpu => add(cpu - sets.len() - 1),
    }
    sys::set_affinity(slot.pid.load(Relaxed), &mask);
}

/// Packs nice value (bits 0 to 7), class (8 to 15) and affinity (16 and up) into one number.
pub fn attributes(nice: i8, class: Class, affinity: u16) -> u32 {
    let class = match class {
        Class::Fair | Class::Kthread => 0,
        Class::Idle => 1,
        Class::Rt => 2,
    };
    u32::from(nice.cast_unsigned()) | class << 8 | u32::from(affinity) << 16
}

/// The packed attributes with which tasks of this kind begin.
pub fn attributes_of(spec: &TaskSpec) -> u32 {
    let affinity = match spec.cpus {
        Affinity::All => 0,
        Affinity::Set(set) => 1 + set as u16,
        Affinity::Each => u16::MAX,
    };
    attributes(spec.nice, spec.class, affinity)
}

/// Gives a new task the attributes of its kind, where they differ from what it has.
pub fn apply_attributes(world: &World, slot: &Slot, spec: &TaskSpec) {
    let wanted = attributes_of(spec);
    let now = slot.attributes.swap(wanted, Relaxed);
    if now & 0xffff != wanted & 0xffff || spec.slice_ns.is_some() {
        apply(slot, spec.slice_ns.unwrap_or(0));
    }
    let cpus = usize::from(world.workload.machine.cpus).max(1);
    let which = match spec.cpus {
        Affinity::Each => {
            let cpu = slot.instance.load(Relaxed) as usize % cpus;
            (1 + world.workload.cpu_sets.len() + cpu) as u16
        }
        Affinity::All => 0,
        Affinity::Set(set) => 1 + set as u16,
    };
    if now >> 16 != u32::from(which) || which != 0 {
        set_affinity(world, slot, which);
    }
}

fn apply(slot: &Slot, slice_ns: u64) {
    let now = slot.attributes.load(Relaxed);
    let nice = i32::from((now as u8).cast_signed());
    let attr = match now >> 8 & 0xff {
        1 => sys::SchedAttr::fair(libc::SCHED_IDLE, nice, slice_ns),
        2 => sys::SchedAttr::real_time(1, false),
        _ => sys::SchedAttr::fair(libc::SCHED_OTHER, nice, slice_ns),
    };
    sys::set_sched(slot.pid.load(Relaxed), attr);
}
