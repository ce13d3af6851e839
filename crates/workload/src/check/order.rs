//! Checks the order in which locks are taken, over all programs: a cycle can deadlock.
//!
//! Modes are ignored, as in lockdep: readers wait for each other when a writer waits between them.

use super::{Checked, refuse};
use crate::error::{Error, PartIx};
use crate::model::{LockIx, Op, Parts};
use crate::units::quoted;
use std::collections::BTreeMap;

/// For each lock that was held, the locks that were taken meanwhile, and the instruction that took
/// them.
type Edges = BTreeMap<LockIx, BTreeMap<LockIx, PartIx>>;

/// Refuses locks that are taken in a cycle. Programs must have been checked.
pub(super) fn check(workload: &Parts) -> Checked {
    let edges = edges(workload);
    let Some(cycle) = cycle(&edges) else {
        return Ok(());
    };
    let name = |lock: LockIx| quoted(&workload.locks[lock as usize].name);
    let mut steps = Vec::new();
    let mut last = PartIx::Top;
    for (ix, &held) in cycle.iter().enumerate() {
        let taken = cycle[(ix + 1) % cycle.len()];
        last = edges[&held][&taken];
        let place = match last {
            PartIx::Op(task, _) => PartIx::Task(task),
            PartIx::JobOp(job, _) => PartIx::Job(job),
            other => other,
        };
        let place = place.describe(workload);
        steps.push(format!("{} then {} ({place})", name(held), name(taken)));
    }
    let problem = format!("locks are taken in a cycle: {}", steps.join(", "));
    let accepted = "the same order of locks in all programs";
    refuse(last, "", Error::Lock, problem, accepted)
}

/// Pairs of locks held together. Programs have been checked: only held locks are released, and a
/// loop ends with the locks that it began with, so one pass over each program finds every pair.
fn edges(workload: &Parts) -> Edges {
    let mut edges = Edges::new();
    let tasks = workload.tasks.len();
    for (whose, program) in workload.programs().enumerate() {
        let mut held: Vec<LockIx> = Vec::new();
        for (ix, op) in program.iter().enumerate() {
            match *op {
                Op::Lock { lock, .. } => {
                    let part = match whose.checked_sub(tasks) {
                        Some(job) => PartIx::JobOp(job, ix),
                        None => PartIx::Op(whose, ix),
                    };
                    for &above in &held {
                        edges.entry(above).or_default().entry(lock).or_insert(part);
                    }
                    held.push(lock);
                }
                Op::Unlock { lock } => held.retain(|&other| other != lock),
                _ => {}
            }
        }
    }
    edges
}

/// A cycle of locks, each once; `None` if there is none.
fn cycle(edges: &Edges) -> Option<Vec<LockIx>> {
    let mut finished = std::collections::BTreeSet::new();
    for &start in edges.keys() {
        if finished.contains(&start) {
            continue;
        }
        let mut path = vec![start];
        let mut next = vec![successors(edges, start)];
        while let Some(candidates) = next.last_mut() {
            let Some(lock) = candidates.pop() else {
                next.pop();
                finished.extend(path.pop());
                continue;
            };
            if let Some(at) = path.iter().position(|&other| other == lock) {
                return Some(path.split_off(at));
            }
            if !finished.contains(&lock) {
                path.push(lock);
                next.push(successors(edges, lock));
            }
        }
    }
    None
}

/// The locks that some program takes while it holds `lock`, highest index first.
fn successors(edges: &Edges, lock: LockIx) -> Vec<LockIx> {
    edges.get(&lock).map(|to| to.keys().rev().copied().collect()).unwrap_or_default()
}
