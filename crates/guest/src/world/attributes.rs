//! Attributes of a task that it or the controller can change: group, nice value, class, slice,
//! CPUs.

use crate::sys;
use crate::world::{Fault, Slot, World};
use cpumax_workload::{Affinity, Class, GroupIx, TaskSpec};
use std::sync::atomic::Ordering::Relaxed;

/// Writes the task's pid to the group's `cgroup.procs` files, then stores the group in its slot,
/// even after a failed write; that is noted as the run's fault, unless the task has exited (ESRCH).
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

/// Writes the number in decimal digits to the end of `text`; returns these digits. Allocates
/// nothing.
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

/// Sets a task's nice value by setpriority(2) and stores it in its slot; its class stays. Errors of
/// the kernel are ignored.
pub fn set_nice(slot: &Slot, nice: i8) {
    let now = slot.attributes.load(Relaxed);
    slot.attributes.store(now & !0xff | u32::from(nice.cast_unsigned()), Relaxed);
    sys::set_nice(slot.pid.load(Relaxed), nice);
}

/// Sets a task's scheduling class by `sched_setattr(2)`, with its nice value and the default slice,
/// and stores it in its slot. Errors of the kernel are ignored.
pub fn set_class(slot: &Slot, class: Class) {
    let now = slot.attributes.load(Relaxed);
    slot.attributes.store(now & !0xff00 | pack_attributes(0, class, 0), Relaxed);
    write_sched_attr(slot, 0);
}

/// Sets a task's CPUs by `sched_setaffinity(2)` and stores `which` in its slot. `which`: 0 is all
/// CPUs of the workload's machine, 1 and up its CPU sets by number, then single CPUs. Errors of the
/// kernel are ignored.
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
pub fn pack_attributes(nice: i8, class: Class, affinity: u16) -> u32 {
    let class = match class {
        Class::Fair | Class::Kthread => 0,
        Class::Idle => 1,
        Class::Rt => 2,
    };
    u32::from(nice.cast_unsigned()) | class << 8 | u32::from(affinity) << 16
}

/// The packed attributes that tasks of this kind shall have; affinity 0xffff stands for one CPU for
/// each task.
pub fn initial_attributes(spec: &TaskSpec) -> u32 {
    let affinity = match spec.cpus {
        Affinity::All => 0,
        Affinity::Set(set) => 1 + set as u16,
        Affinity::Each => u16::MAX,
    };
    pack_attributes(spec.nice, spec.class, affinity)
}

/// Gives a new task its kind's nice value, class, slice and CPUs by system calls, and stores them
/// in its slot. Calls are left out for what the task has already by inheritance. A kind with one
/// CPU for each task takes CPUs in turn, by the task's number.
pub fn apply_attributes(world: &World, slot: &Slot, spec: &TaskSpec) {
    let wanted = initial_attributes(spec);
    let now = slot.attributes.swap(wanted, Relaxed);
    if now & 0xffff != wanted & 0xffff || spec.slice_ns.is_some() {
        write_sched_attr(slot, spec.slice_ns.unwrap_or(0));
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

/// Calls `sched_setattr(2)` with the class and nice value that are stored in the slot and a slice
/// of `slice_ns`; 0: the default slice. Real-time tasks get `SCHED_FIFO` with priority 1.
fn write_sched_attr(slot: &Slot, slice_ns: u64) {
    let now = slot.attributes.load(Relaxed);
    let nice = i32::from((now as u8).cast_signed());
    let attr = match now >> 8 & 0xff {
        1 => sys::SchedAttr::fair(libc::SCHED_IDLE, nice, slice_ns),
        2 => sys::SchedAttr::real_time(1, false),
        _ => sys::SchedAttr::fair(libc::SCHED_OTHER, nice, slice_ns),
    };
    sys::set_sched(slot.pid.load(Relaxed), attr);
}
