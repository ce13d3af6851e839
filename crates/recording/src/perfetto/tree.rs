//! Packets about processes and threads, the machine, and losses.

use super::wire::fields;
use crate::event::{CPUS_MAX, Machine, Note, Sink};
use std::collections::BTreeMap;

/// Passes on the processes and threads of a `ProcessTree` to `sink`, with parents and names.
pub(super) fn processes(tree: &[u8], sink: &mut impl Sink) {
    for (number, value) in fields(tree) {
        match number {
            1 => pass_on_process(value.bytes(), sink),
            2 => pass_on_thread(value.bytes(), sink),
            _ => {}
        }
    }
}

/// Passes on a process with its parent, and the last part of its command as its name.
fn pass_on_process(process: &[u8], sink: &mut impl Sink) {
    let (mut pid, mut parent_pid, mut command) = (0, 0, "");
    for (number, value) in fields(process) {
        match number {
            1 => pid = value.i32(),
            2 => parent_pid = value.i32(),
            3 if command.is_empty() => command = value.text(),
            _ => {}
        }
    }
    sink.note(&Note::Task { pid, tid: pid, parent_pid });
    // The command may be a path; events have the kernel's name.
    let comm = command.rsplit('/').next().unwrap_or_default();
    if !comm.is_empty() {
        sink.note(&Note::Comm { pid, tid: pid, comm });
    }
}

/// Passes on a thread with its process as parent, unless it is the main one, and its name if it has
/// one.
fn pass_on_thread(thread: &[u8], sink: &mut impl Sink) {
    let (mut tid, mut pid, mut comm) = (0, 0, "");
    for (number, value) in fields(thread) {
        match number {
            1 => tid = value.i32(),
            2 => comm = value.text(),
            3 => pid = value.i32(),
            _ => {}
        }
    }
    // The record of the process itself has its parent.
    if pid != tid {
        sink.note(&Note::Task { pid, tid, parent_pid: pid });
    }
    if !comm.is_empty() {
        sink.note(&Note::Comm { pid, tid, comm });
    }
}

/// Takes kernel, architecture and number of CPUs from a `SystemInfo`.
pub(super) fn system(info: &[u8], machine: &mut Machine) {
    for (number, value) in fields(info) {
        match number {
            1 => {
                for (number, value) in fields(value.bytes()) {
                    match number {
                        3 => machine.kernel = Some(value.text().to_owned()),
                        4 => machine.arch = Some(value.text().to_owned()),
                        _ => {}
                    }
                }
            }
            8 => machine.cpus = u32::try_from(value.number()).ok().filter(|cpus| *cpus > 0),
            _ => {}
        }
    }
}

/// Takes the number of CPUs from a `CpuInfo`, which has one entry for each, where it is unknown.
pub(super) fn cpus(info: &[u8], machine: &mut Machine) {
    let cpus = fields(info).filter(|(number, _)| *number == 1).count();
    machine.cpus = machine.cpus.or(u32::try_from(cpus).ok().filter(|cpus| *cpus > 0));
}

/// Whether the buffer of the whole trace overflowed (`TraceStats`).
pub(super) fn is_overwritten(stats: &[u8]) -> bool {
    let buffers = fields(stats).filter(|(number, _)| *number == 1);
    let mut counts = buffers.flat_map(|(_, buffer)| fields(buffer.bytes()));
    counts.any(|(number, value)| number == 3 && value.number() > 0)
}

/// Events for which the kernel's buffers had no room, by CPU, at the beginning and at the end
/// (`FtraceStats`).
#[derive(Debug, Default)]
pub(super) struct Overruns(BTreeMap<u32, (u64, u64)>);

impl Overruns {
    /// Takes the counts of an `FtraceStats`, either of the beginning or of the end; later ones
    /// replace them.
    pub fn add(&mut self, stats: &[u8]) {
        const AT_THE_START: u64 = 1;
        let is_start = fields(stats).any(|(n, value)| n == 1 && value.number() == AT_THE_START);
        for (_, cpu) in fields(stats).filter(|(number, _)| *number == 2) {
            let (mut number, mut lost) = (0, 0_u64);
            for (field, value) in fields(cpu.bytes()) {
                match field {
                    1 => number = value.number(),
                    3 | 4 | 8 => lost = lost.saturating_add(value.number()),
                    _ => {}
                }
            }
            let Ok(number) = u32::try_from(number) else { continue };
            if number < CPUS_MAX {
                let cpu = self.0.entry(number).or_default();
                if is_start {
                    cpu.0 = lost;
                } else {
                    cpu.1 = lost;
                }
            }
        }
    }

    /// Events lost between beginning and end, on all CPUs.
    pub fn lost(&self) -> u64 {
        let lost = self.0.values().map(|(start, end)| end.saturating_sub(*start));
        lost.fold(0, u64::saturating_add)
    }
}
