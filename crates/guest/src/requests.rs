//! Requests under way at the end of a run: those in tasks, and tokens not yet received.

use crate::channel::token_ns;
use crate::world::task::Task;
use crate::world::{Cue, LIVE, Slot, World};
use cpumax_workload::{Op, completes};
use std::sync::atomic::Ordering::Relaxed;

/// Requests under way of one kind of task in one group: begin of the oldest, ns, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub kind: u32,
    pub group: u32,
    pub since_ns: u64,
    pub n: u64,
}

/// All requests under way in a run that ended at `ended_ns` since its start: those that tasks work
/// on, and unread tokens in channels, which it reads.
pub(crate) fn under_way(world: &World, ended_ns: u64) -> Vec<UnderWay> {
    let live = world.slots.iter().filter(|slot| slot.state.load(Relaxed) == LIVE);
    let begun = live.filter(|slot| slot.cue.load(Relaxed) == Cue::Begin as u32);
    let mut all: Vec<UnderWay> = begun.filter_map(request_of_task).collect();
    all.extend(
        (0..world.channels.len() as u32).filter_map(|channel| requests_of_channel(world, channel)),
    );
    all.retain(|request| request.since_ns < ended_ns);
    all
}

/// The request that a living task works on; `None` if it works on none. Reads the task's memory
/// while it may run.
fn request_of_task(slot: &Slot) -> Option<UnderWay> {
    let task: *const Task = slot.task.load(Relaxed);
    if task.is_null() {
        return None;
    }
    // SAFETY: the task lives on the slot's stack for as long as its process. A process that still
    // runs changes these only by whole words.
    let (program, pc, since_ns) = unsafe {
        let since_ns = (&raw const (*task).begun_ns).read_volatile();
        let start_ns = (&raw const (*task).request_start_ns).read_volatile();
        let pc = (&raw const (*task).pc).read_volatile();
        ((*task).program, pc, since_ns.unwrap_or(start_ns))
    };
    let (kind, group) = (slot.kind.load(Relaxed), slot.group.load(Relaxed));
    completes(program, step_in_progress(program, pc)).then_some(UnderWay {
        kind,
        group,
        since_ns,
        n: 1,
    })
}

/// Index of the step that a task executes whose next step is at `pc`. A `syscall` in one call has
/// its `pc` at its end; there it is the first step of the call.
fn step_in_progress(program: &[Op], pc: usize) -> usize {
    if program.get(pc) != Some(&Op::ExitKernel) {
        return pc;
    }
    program[..pc].iter().rposition(|op| *op == Op::EnterKernel).map_or(pc, |enter| enter + 1)
}

/// The unread tokens of a channel, as requests of the first kind that receives them to complete
/// requests; `None` without tokens or such a kind. Takes the oldest token out.
fn requests_of_channel(world: &World, channel: u32) -> Option<UnderWay> {
    let (kind, spec) = (0..).zip(&world.workload.tasks).find(|(_, spec)| {
        let mut ops = spec.program.iter().enumerate();
        ops.any(|(at, op)| {
            matches!(*op, Op::Recv { channel: from, .. } if from == channel)
                && completes(&spec.program, at + 1)
        })
    })?;
    let (oldest, n) = world.channels[channel as usize].take_oldest_waiting()?;
    let since_ns = token_ns(oldest, &world.clock, world.start_ns.load(Relaxed));
    Some(UnderWay { kind, group: spec.group, since_ns, n })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_workload::parse;

    #[test]
    fn a_call_that_is_one_is_under_way_from_its_beginning() {
        let text = "duration = \"1s\"\n[[task]]\nname = \"t\"\nprogram = [{ forever = [\
                    { sleep = \"1ms\" }, { syscall = [{ kernel = \"1ms\" }, { done = true }] }] }]";
        let workload = parse(text, "t.toml").unwrap();
        let program = &workload.tasks[0].program;
        let exit = program.iter().position(|op| *op == Op::ExitKernel).unwrap();
        assert!(!completes(program, exit), "behind its end there is no more to do");
        assert_eq!(program[step_in_progress(program, exit)], program[exit - 2]);
        assert!(completes(program, step_in_progress(program, exit)));
        assert_eq!(step_in_progress(program, 2), 2);
    }
}
