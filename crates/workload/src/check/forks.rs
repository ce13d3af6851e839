//! Bounds the number of tasks that are forked.
//!
//! Programs have no conditions, so a kind that forks itself, directly or through others, does so
//! without end. The checks accept a chain of tasks, where each forks one successor after some time;
//! more forks grow without bound. An endless loop may fork; the number of tasks alive at once then
//! depends on the run.

use super::program::passes_time;
use super::{Checked, refuse};
use crate::bounds::MAX_TASKS;
use crate::error::{Error, PartIx};
use crate::model::{Op, Parts, TaskIx, TaskSpec};
use crate::units::quoted;

struct Fork {
    to: TaskIx,
    op: usize,
    /// Number of executions; endless loops count once.
    times: u64,
    in_endless_loop: bool,
    after_time: bool,
}

/// Refuses forks that would make more than `MAX_TASKS` instances of a kind. Kinds that fork each
/// other in a cycle are checked by `check_chains` instead.
pub(super) fn check(workload: &Parts) -> Checked {
    let forks: Vec<Vec<Fork>> =
        workload.tasks.iter().map(|task| forks_of(workload, task)).collect();
    let order = match sorted(&forks) {
        Ok(order) => order,
        Err(cyclic) => return check_chains(workload, &forks, &cyclic),
    };
    // Parents first, so that the instances of a kind are known before its own forks are counted.
    let mut instances: Vec<u64> = workload.tasks.iter().map(|task| task.count.into()).collect();
    for kind in order {
        for fork in &forks[kind] {
            let more = instances[kind].saturating_mul(fork.times);
            let sum = &mut instances[fork.to as usize];
            *sum = sum.saturating_add(more);
            if *sum > MAX_TASKS {
                let name = quoted(&workload.tasks[fork.to as usize].name);
                let problem = format!("more than {MAX_TASKS} tasks {name} would be forked");
                let part = PartIx::Op(kind, fork.op);
                return refuse(part, "", Error::Value, problem, format!("at most {MAX_TASKS}"));
            }
        }
    }
    Ok(())
}

/// The forks of a kind of task up to its exit, with the number of executions by its loops.
fn forks_of(workload: &Parts, task: &TaskSpec) -> Vec<Fork> {
    let mut forks = Vec::new();
    let mut loops = vec![(1u64, false)];
    let mut after_time = false;
    for (ix, op) in task.program.iter().enumerate() {
        let (times, in_endless_loop) = loops.last().copied().unwrap_or((1, false));
        match *op {
            Op::LoopStart { times: u64::MAX, .. } => loops.push((times, true)),
            Op::LoopStart { times: more, .. } => {
                loops.push((times.saturating_mul(more), in_endless_loop));
            }
            Op::LoopEnd { .. } => {
                loops.pop();
            }
            Op::Fork { kind: to } => {
                forks.push(Fork { to, op: ix, times, in_endless_loop, after_time });
            }
            Op::Exit => break,
            _ => after_time |= passes_time(workload, op),
        }
    }
    forks
}

/// Sorts all kinds, parents before children.
///
/// # Errors
/// With cycles: positions the kinds that lie on a cycle or between two.
fn sorted(forks: &[Vec<Fork>]) -> Result<Vec<usize>, Vec<bool>> {
    let mut parents = vec![0u64; forks.len()];
    for fork in forks.iter().flatten() {
        parents[fork.to as usize] += 1;
    }
    let mut order: Vec<usize> = (0..forks.len()).filter(|&kind| parents[kind] == 0).collect();
    let mut done = 0;
    while let Some(&kind) = order.get(done) {
        done += 1;
        for fork in &forks[kind] {
            let left = &mut parents[fork.to as usize];
            *left -= 1;
            if *left == 0 {
                order.push(fork.to as usize);
            }
        }
    }
    if order.len() == forks.len() {
        return Ok(order);
    }
    Err(without_childless(forks, parents.iter().map(|&left| left > 0).collect()))
}

/// Unmarks, again and again, the kinds that fork no kind still marked.
fn without_childless(forks: &[Vec<Fork>], mut left: Vec<bool>) -> Vec<bool> {
    let mut parents: Vec<Vec<usize>> = vec![Vec::new(); forks.len()];
    let mut children = vec![0u64; forks.len()];
    for (kind, fork) in
        forks.iter().enumerate().flat_map(|(k, forks)| forks.iter().map(move |f| (k, f)))
    {
        if left[kind] && left[fork.to as usize] {
            parents[fork.to as usize].push(kind);
            children[kind] += 1;
        }
    }
    let mut childless: Vec<usize> =
        (0..forks.len()).filter(|&kind| left[kind] && children[kind] == 0).collect();
    while let Some(kind) = childless.pop() {
        left[kind] = false;
        for &parent in &parents[kind] {
            children[parent] -= 1;
            if children[parent] == 0 {
                childless.push(parent);
            }
        }
    }
    left
}

/// Checks kinds on cycles: each may fork exactly one of them, once, after some time.
fn check_chains(workload: &Parts, forks: &[Vec<Fork>], cyclic: &[bool]) -> Checked {
    for (kind, of_kind) in forks.iter().enumerate().filter(|(kind, _)| cyclic[*kind]) {
        let mut onward = of_kind.iter().filter(|fork| cyclic[fork.to as usize]);
        let Some(first) = onward.next() else { continue };
        let accepted = "forks in one direction only, or one fork, after some time";
        let name = quoted(&workload.tasks[kind].name);
        if let Some(again) =
            onward.next().or(Some(first).filter(|fork| fork.times > 1 || fork.in_endless_loop))
        {
            let problem = format!("tasks {name} fork themselves without bound");
            return refuse(PartIx::Op(kind, again.op), "", Error::Program, problem, accepted);
        }
        if !first.after_time {
            let problem = format!("tasks {name} fork themselves before any time has passed");
            return refuse(PartIx::Op(kind, first.op), "", Error::Program, problem, accepted);
        }
    }
    Ok(())
}
