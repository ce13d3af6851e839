//! Makes a failing workload smaller: removes one part after another while it still fails.
//!
//! Every candidate has passed the checks, so the result can be printed, read and run again.

use crate::checked::Workload;
use crate::model::{
    Action, Affinity, ChannelIx, Class, Distribution, Expectation, GroupIx, JobIx, LockIx,
    MachineSpec, Op, Parts, Span, Target, TaskIx,
};
use crate::program::Program;
use cpumax_limit::Limit;

/// Shrinks `workload` by removing or simplifying one part at a time while `fails` holds, and
/// returns the smallest that fails. Stops when no further step works, or after `attempts` calls of
/// `fails`.
pub fn minimize(
    workload: &Workload,
    mut attempts: u64,
    mut fails: impl FnMut(&Workload) -> bool,
) -> Workload {
    let mut smallest = workload.clone();
    loop {
        let before = smallest.clone();
        for pass in PASSES {
            let mut ix = 0;
            // A pass moves on after a part that it could not remove.
            while let Some(candidate) = pass(&smallest, ix) {
                if attempts == 0 {
                    return smallest;
                }
                let differs = candidate != *smallest;
                let candidate = Workload::try_from(candidate).ok().filter(|_| differs);
                attempts -= u64::from(candidate.is_some());
                match candidate.filter(|candidate| fails(candidate)) {
                    Some(candidate) => smallest = candidate,
                    None => ix += 1,
                }
            }
        }
        if smallest == before {
            return smallest;
        }
    }
}

/// A copy without the `ix`-th part that this pass handles; `None` when there are no more.
type Pass = fn(&Parts, usize) -> Option<Parts>;

const PASSES: [Pass; 19] = [
    without_expectations,
    without_task,
    without_intervention,
    without_source,
    plain_source,
    without_job,
    without_softirq,
    with_one_instance,
    with_an_instance_less,
    without_block,
    without_instruction,
    without_lock,
    without_channel,
    without_group,
    plain_group,
    plain_task,
    plain_machine,
    rounder_instruction,
    rounder_time,
];

/// A copy of the parts with this change.
fn changed(workload: &Parts, change: impl FnOnce(&mut Parts)) -> Parts {
    let mut workload = workload.clone();
    change(&mut workload);
    workload
}

/// A copy without expectations, as the only step; `None` for other steps, and if there are none.
fn without_expectations(workload: &Parts, ix: usize) -> Option<Parts> {
    (ix == 0 && !workload.expectations.is_empty())
        .then(|| changed(workload, |w| w.expectations = Vec::<Expectation>::new()))
}

/// A copy without the `ix`-th change from outside; `None` if there is none.
fn without_intervention(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.interventions.get(ix)?;
    Some(changed(workload, |w| {
        w.interventions.remove(ix);
    }))
}

/// A copy without the `ix`-th source; `None` if there is none.
fn without_source(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.sources.get(ix)?;
    Some(changed(workload, |w| {
        w.sources.remove(ix);
    }))
}

/// A copy whose `ix`-th source sends tokens without jobs, and loses none; `None` if there is no
/// such source.
fn plain_source(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.sources.get(ix)?;
    Some(changed(workload, |w| {
        w.sources[ix].jobs.clear();
        w.sources[ix].lossy = false;
    }))
}

/// A copy without the `ix`-th job and every token that carries it; `None` if there is no such job.
fn without_job(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.jobs.get(ix)?;
    let gone = ix as JobIx;
    Some(changed(workload, |w| {
        w.jobs.remove(ix);
        w.sources.iter_mut().for_each(|s| s.jobs.retain_mut(|job| keep_number(job, gone)));
        for program in programs(w) {
            program.retain_mut(|op| match op {
                Op::Post { job, .. } | Op::After { job, .. } => keep_number(job, gone),
                _ => true,
            });
            relink(program);
        }
    }))
}

/// Programs of tasks, then those of jobs.
fn programs(workload: &mut Parts) -> impl Iterator<Item = &mut Program> {
    let of_tasks = workload.tasks.iter_mut().map(|task| &mut task.program);
    of_tasks.chain(workload.jobs.iter_mut().map(|job| &mut job.program))
}

/// A copy without the `ix`-th softirq of the machine; `None` if there is none.
fn without_softirq(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.machine.softirqs.get(ix)?;
    Some(changed(workload, |w| {
        w.machine.softirqs.remove(ix);
    }))
}

/// A copy without the `ix`-th kind of task and everything aimed at it; `None` if there is no such
/// kind.
fn without_task(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.tasks.get(ix)?;
    let gone = ix as TaskIx;
    Some(changed(workload, |w| {
        w.tasks.remove(ix);
        for task in &mut w.tasks {
            task.program.retain_mut(|op| match op {
                Op::Fork { kind }
                | Op::Move { who: Target::Kind(kind), .. }
                | Op::SetAffinity { who: Target::Kind(kind), .. }
                | Op::SetNice { who: Target::Kind(kind), .. }
                | Op::SetClass { who: Target::Kind(kind), .. } => keep_number(kind, gone),
                _ => true,
            });
            relink(&mut task.program);
        }
        w.interventions.retain_mut(|intervention| match &mut intervention.action {
            Action::Signal { kind, .. }
            | Action::Move { kind, .. }
            | Action::SetAffinity { kind, .. }
            | Action::SetNice { kind, .. }
            | Action::SetClass { kind, .. } => keep_number(kind, gone),
            _ => true,
        });
    }))
}

/// A copy with at most one task of the `ix`-th kind at the start; `None` if there is no such kind.
fn with_one_instance(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.tasks.get(ix)?;
    Some(changed(workload, |w| {
        let count = &mut w.tasks[ix].count;
        *count = (*count).min(1);
    }))
}

/// A copy with one task less of the `ix`-th kind at the start, if it has several; `None` if there
/// is no such kind.
fn with_an_instance_less(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.tasks.get(ix)?;
    Some(changed(workload, |w| {
        let count = &mut w.tasks[ix].count;
        *count = (*count).min(1.max(count.saturating_sub(1)));
    }))
}

/// Of the `ix`-th instruction, counted over all programs (tasks first, then jobs): the index of its
/// program, and its own in that; `None` beyond the last.
fn place(workload: &Parts, ix: usize) -> Option<(usize, usize)> {
    let mut left = ix;
    for (number, program) in workload.programs().enumerate() {
        if left < program.len() {
            return Some((number, left));
        }
        left -= program.len();
    }
    None
}

/// A copy without the `ix`-th instruction; of a loop, a system call or a critical section also
/// without its contents. `None` beyond the last instruction.
fn without_block(workload: &Parts, ix: usize) -> Option<Parts> {
    let (number, start) = place(workload, ix)?;
    Some(changed(workload, |w| {
        let Some(program) = programs(w).nth(number) else { return };
        let end = partner(program, start).unwrap_or(start);
        program.drain(start..=end);
        relink(program);
    }))
}

/// A copy without the `ix`-th instruction. Of a loop, a system call or a critical section it
/// removes both ends and keeps the contents. `None` beyond the last instruction.
fn without_instruction(workload: &Parts, ix: usize) -> Option<Parts> {
    let (number, start) = place(workload, ix)?;
    Some(changed(workload, |w| {
        let Some(program) = programs(w).nth(number) else { return };
        if let Some(end) = partner(program, start) {
            program.remove(end);
        }
        program.remove(start);
        relink(program);
    }))
}

/// Index of the end of the loop, system call or critical section that begins at `start`; `None` if
/// none does.
fn partner(program: &[Op], start: usize) -> Option<usize> {
    let after = |ends: &dyn Fn(&Op) -> bool| {
        program.iter().skip(start + 1).position(ends).map(|more| start + 1 + more)
    };
    match program[start] {
        Op::LoopStart { end, .. } => Some(end as usize).filter(|&end| end < program.len()),
        Op::EnterKernel => after(&|op| matches!(op, Op::ExitKernel)),
        Op::Lock { lock, .. } => {
            after(&|op| matches!(op, Op::Unlock { lock: other } if *other == lock))
        }
        _ => None,
    }
}

/// Corrects the indices by which both ends of each loop name each other.
fn relink(program: &mut [Op]) {
    let mut open = Vec::new();
    for ix in 0..program.len() {
        match program[ix] {
            Op::LoopStart { .. } => open.push(ix),
            Op::LoopEnd { .. } => {
                let Some(from) = open.pop() else { continue };
                program[ix] = Op::LoopEnd { start: from as u32 };
                if let Op::LoopStart { end, .. } = &mut program[from] {
                    *end = ix as u32;
                }
            }
            _ => {}
        }
    }
}

/// A copy without the `ix`-th lock and every instruction and softirq that names it; `None` if there
/// is no such lock.
fn without_lock(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.locks.get(ix)?;
    let gone = ix as LockIx;
    Some(changed(workload, |w| {
        w.locks.remove(ix);
        w.machine.softirqs.retain_mut(|softirq| keep_number(&mut softirq.lock, gone));
        for program in programs(w) {
            program.retain_mut(|op| match op {
                Op::Lock { lock, .. } | Op::Unlock { lock } => keep_number(lock, gone),
                _ => true,
            });
            relink(program);
        }
    }))
}

/// A copy without the `ix`-th channel, its sources, and every instruction that names it; `None` if
/// there is none.
fn without_channel(workload: &Parts, ix: usize) -> Option<Parts> {
    workload.channels.get(ix)?;
    let gone = ix as ChannelIx;
    Some(changed(workload, |w| {
        w.channels.remove(ix);
        w.sources.retain_mut(|source| keep_number(&mut source.channel, gone));
        for program in programs(w) {
            program.retain_mut(|op| match op {
                Op::Send { channel, .. }
                | Op::Recv { channel, .. }
                | Op::Serve { channel }
                | Op::Post { channel, .. }
                | Op::After { channel, .. } => keep_number(channel, gone),
                _ => true,
            });
            relink(program);
        }
    }))
}

/// Whether a reference is to something else than `gone`, which is removed; lowers the numbers above
/// that.
fn keep_number(ix: &mut u32, gone: u32) -> bool {
    let stays = *ix != gone;
    if *ix > gone {
        *ix -= 1;
    }
    stays
}

/// A copy without the `ix`-th group below the root; its tasks move to its parent. One that has
/// children stays. `None` if there is no such group.
fn without_group(workload: &Parts, ix: usize) -> Option<Parts> {
    let ix = ix + 1;
    let parent = workload.groups.get(ix)?.parent?;
    let gone = ix as GroupIx;
    if workload.groups.iter().any(|group| group.parent == Some(gone)) {
        return Some(workload.clone());
    }
    let renumbered = |group: GroupIx| match group {
        _ if group == gone => parent,
        _ if group > gone => group - 1,
        _ => group,
    };
    Some(changed(workload, |w| {
        w.groups.remove(ix);
        for group in &mut w.groups {
            group.parent = group.parent.map(renumbered);
        }
        for task in &mut w.tasks {
            task.group = renumbered(task.group);
            for op in &mut task.program {
                if let Op::Move { group, .. } = op {
                    *group = renumbered(*group);
                }
            }
        }
        w.interventions.retain_mut(|intervention| match &mut intervention.action {
            Action::WriteLimit { group, .. } | Action::WriteWeight { group, .. } => {
                let stays = *group != gone;
                *group = renumbered(*group);
                stays
            }
            Action::Move { group, .. } => {
                *group = renumbered(*group);
                true
            }
            _ => true,
        });
    }))
}

/// A copy with a group below the root made plain: no limit, the default weight, or no burst, which
/// are three steps `ix` for each group. `None` beyond the last.
fn plain_group(workload: &Parts, ix: usize) -> Option<Parts> {
    let (group, what) = (ix / 3 + 1, ix % 3);
    workload.groups.get(group)?;
    Some(changed(workload, |w| match what {
        0 => w.groups[group].limit = Limit::UNLIMITED,
        1 => w.groups[group].weight = 100,
        _ => {
            let limit = &mut w.groups[group].limit;
            *limit = limit.with_burst_ns(0).unwrap_or(*limit);
        }
    }))
}

/// A copy with a kind of task made plain in one of nine ways: class, nice value, CPUs, start,
/// stagger, slice, group, fixed lengths, or one pass of each finite loop. These are nine steps `ix`
/// for each kind; `None` beyond the last.
fn plain_task(workload: &Parts, ix: usize) -> Option<Parts> {
    let (task, what) = (ix / 9, ix % 9);
    workload.tasks.get(task)?;
    Some(changed(workload, |w| {
        let distributions = &w.distributions;
        let fixed = |span: &mut Span| {
            if let Span::Drawn(ix) = *span {
                let mean_ns = distributions.get(ix as usize).map_or(0.0, Distribution::mean_ns);
                *span = Span::Fixed(mean_ns as u64);
            }
        };
        let task = &mut w.tasks[task];
        match what {
            0 => task.class = Class::Fair,
            1 => task.nice = 0,
            2 => task.cpus = Affinity::All,
            3 => task.start_ns = 0,
            4 => task.stagger_ns = 0,
            5 => task.slice_ns = None,
            6 => task.group = 0,
            7 => {
                for op in &mut task.program {
                    if let Op::User(span) | Op::Kernel(span) | Op::IrqOff(span) | Op::Sleep(span) =
                        op
                    {
                        fixed(span);
                    }
                }
            }
            _ => {
                for op in &mut task.program {
                    if let Op::LoopStart { times, .. } = op
                        && *times != u64::MAX
                    {
                        *times = 1;
                    }
                }
            }
        }
    }))
}

/// A copy with the machine made plain in one of fourteen ways `ix`: fewer CPUs, a default setting,
/// or half the length of the run. `None` beyond.
fn plain_machine(workload: &Parts, ix: usize) -> Option<Parts> {
    let usual = MachineSpec::default();
    (ix < 14).then(|| {
        changed(workload, |w| {
            let machine = &mut w.machine;
            match ix {
                0 => machine.cpus = 1.max(machine.cpus / 2),
                1 => machine.cpus = 1.max(machine.cpus - 1),
                2 => machine.llc_cpus = usual.llc_cpus,
                3 => machine.hz = usual.hz,
                4 => machine.preempt = usual.preempt,
                5 => machine.hrtick = usual.hrtick,
                6 => machine.timer_phase_ns = usual.timer_phase_ns,
                7 => machine.tick_skew = usual.tick_skew,
                8 => machine.bandwidth_slice_ns = usual.bandwidth_slice_ns,
                9 => machine.base_slice_ns = usual.base_slice_ns,
                10 => machine.nohz_full = None,
                11 => machine.cost_timing = usual.cost_timing,
                12 => machine.ipi_ns = usual.ipi_ns,
                _ => w.duration_ns = (w.duration_ns / 2).max(1_000_000),
            }
            // Unused sets must not name CPUs that are gone.
            for cpus in &mut w.cpu_sets {
                cpus.0.retain(|&cpu| cpu < w.machine.cpus);
                if cpus.0.is_empty() {
                    cpus.0.push(0);
                }
            }
        })
    })
}

/// A copy with the length of the `ix`-th instruction rounded up to two digits, if it has a fixed
/// one. `None` beyond the last instruction.
fn rounder_instruction(workload: &Parts, ix: usize) -> Option<Parts> {
    let (number, at) = place(workload, ix)?;
    Some(changed(workload, |w| {
        if let Some(
            Op::User(Span::Fixed(ns))
            | Op::Kernel(Span::Fixed(ns))
            | Op::IrqOff(Span::Fixed(ns))
            | Op::Sleep(Span::Fixed(ns))
            | Op::After { delay: Span::Fixed(ns), .. }
            | Op::Every { period_ns: ns },
        ) = programs(w).nth(number).map(|program| &mut program[at])
        {
            *ns = rounder(*ns);
        }
    }))
}

/// A copy with the duration, the start of a kind of task, or the time of a change from outside
/// rounded up to two digits, by `ix` in this order; `None` beyond the last.
fn rounder_time(workload: &Parts, ix: usize) -> Option<Parts> {
    let (tasks, interventions) = (workload.tasks.len(), workload.interventions.len());
    (ix <= tasks + interventions).then(|| {
        changed(workload, |w| {
            let ns = if ix == 0 {
                &mut w.duration_ns
            } else if ix <= tasks {
                &mut w.tasks[ix - 1].start_ns
            } else {
                &mut w.interventions[ix - tasks - 1].at_ns
            };
            *ns = rounder(*ns);
        })
    })
}

/// Two significant digits, rounded up; as it is where that does not fit.
fn rounder(ns: u64) -> u64 {
    let unit = 10_u64.pow(ns.max(1).ilog10().saturating_sub(1));
    ns.checked_next_multiple_of(unit).unwrap_or(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, print, random};

    #[test]
    fn what_matters_is_all_that_is_left() {
        let has = |workload: &Workload| {
            let mut ops = workload.tasks.iter().flat_map(|task| &task.program);
            ops.any(|op| matches!(op, Op::IrqOff(_)))
        };
        let mut tried = 0;
        let made = |seed| if seed < 40 { random::workload(seed) } else { random::with_jobs(seed) };
        for seed in (0..50).filter(|&seed| has(&made(seed))) {
            tried += 1;
            let small = minimize(&made(seed), 10_000, has);
            assert!(small.jobs.is_empty());
            assert_eq!((small.tasks.len(), small.groups.len()), (1, 1), "{}", print(&small));
            assert_eq!(small.tasks[0].program.len(), 1, "{}", print(&small));
            assert!(small.interventions.is_empty() && small.sources.is_empty());
            assert!(small.locks.is_empty() && small.channels.is_empty());
            assert_eq!(small.machine.cpus, 1);
        }
        assert!(tried > 5);
    }

    #[test]
    fn whatever_is_tried_is_valid_and_can_be_kept() {
        let mut tried = 0;
        minimize(&random::with_jobs(3), 300, |candidate| {
            tried += 1;
            let text = print(candidate);
            parse(&text, "kept.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
            tried % 3 == 0
        });
        assert!(tried > 50);
    }

    #[test]
    fn lengths_become_round() {
        assert_eq!([0, 7, 1_234_567, 99_100_001].map(rounder), [0, 7, 1_300_000, 100_000_000]);
        let long = |workload: &Workload| {
            let ops = workload.tasks.iter().flat_map(|task| &task.program);
            ops.filter(|op| matches!(op, Op::User(Span::Fixed(1_000_000..)))).count() > 0
        };
        let seed = (0..40).find(|&seed| long(&random::real(seed))).unwrap();
        let small = minimize(&random::real(seed), 10_000, long);
        let [Op::User(Span::Fixed(ns))] = small.tasks[0].program[..] else { panic!("{small:?}") };
        assert_eq!(ns, rounder(ns));
    }

    #[test]
    fn attempts_are_bounded() {
        let mut tried = 0;
        minimize(&random::workload(5), 20, |_| {
            tried += 1;
            true
        });
        assert_eq!(tried, 20);
    }
}
