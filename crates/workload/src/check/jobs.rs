//! Jobs: their names, who may have to do them, and that posting them comes to an end.
//!
//! A job in which no time passes and that posts others lets them begin at the same instant. From
//! job to job that must end, and soon: otherwise a run would stand still. Where time passes in a
//! job it cannot, as each time somebody has to do it.

use super::program::passes_time;
use super::{Checked, flaw, name};
use crate::bounds::MAX_INSTANT_OPS;
use crate::error::{Kind, Spot};
use crate::model::{ChannelIx, Class, JobIx, Op, Parts};
use crate::units::quoted;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn names(workload: &Parts) -> Checked {
    let mut seen = BTreeSet::new();
    for (ix, job) in workload.jobs.iter().enumerate() {
        name(Spot::Job(ix), &job.name, &mut seen)?;
    }
    Ok(())
}

/// Programs and sources have been checked: every reference is to something.
pub(super) fn check(workload: &Parts) -> Checked {
    kernel_threads(workload)?;
    instants(workload)
}

/// A kernel thread is never in user mode, and so can only do what is kernel work.
fn kernel_threads(workload: &Parts) -> Checked {
    let threads = workload.tasks.iter().enumerate();
    let threads: Vec<_> = threads.filter(|(_, task)| task.class == Class::Kthread).collect();
    if threads.is_empty() {
        return Ok(());
    }
    // Of each channel the first such job that may come there.
    let mut unfit: BTreeMap<ChannelIx, JobIx> = BTreeMap::new();
    let is_unfit = |job: JobIx| {
        let program = &workload.jobs[job as usize].program;
        program.iter().any(|op| matches!(op, Op::User(_) | Op::EnterKernel))
    };
    let posts = workload.programs().flatten().filter_map(|op| match *op {
        Op::Post { channel, job } | Op::After { channel, job, .. } => Some((channel, job)),
        _ => None,
    });
    let sources = workload.sources.iter();
    let sent = sources.flat_map(|source| source.jobs.iter().map(|&job| (source.channel, job)));
    for (channel, job) in posts.chain(sent) {
        if !unfit.contains_key(&channel) && is_unfit(job) {
            unfit.insert(channel, job);
        }
    }
    for (task, spec) in threads {
        for (ix, op) in spec.program.iter().enumerate() {
            let Op::Serve { channel } = op else { continue };
            let Some(&job) = unfit.get(channel) else { continue };
            let job = quoted(&workload.jobs[job as usize].name);
            let problem = format!("a kernel thread never runs in user mode, as job {job} does");
            let accepted = "jobs without `user` and `syscall`, or a task of another class";
            return flaw(Spot::Op(task, ix), "", Kind::Program, problem, accepted);
        }
    }
    Ok(())
}

/// One `post` in a job.
struct Posted {
    job: usize,
    op: usize,
    times: u64,
}

/// What a job does in an instant.
#[derive(Default)]
struct Instant {
    /// Instructions executed, those of the jobs that it posts aside.
    ops: u64,
    posts: Vec<Posted>,
}

/// Nothing is done in an instant by a job in which time passes.
fn instant(workload: &Parts, program: &[Op]) -> Instant {
    if program.iter().any(|op| passes_time(workload, op)) {
        return Instant::default();
    }
    let mut found = Instant { ops: 1, posts: Vec::new() };
    let mut loops = vec![1u64];
    for (op, what) in program.iter().enumerate() {
        let times = loops.last().copied().unwrap_or(1);
        found.ops = found.ops.saturating_add(times);
        match *what {
            Op::LoopStart { times: more, .. } => loops.push(times.saturating_mul(more)),
            Op::LoopEnd { .. } => {
                loops.pop();
            }
            Op::Post { job, .. } => found.posts.push(Posted { job: job as usize, op, times }),
            _ => {}
        }
    }
    found
}

fn instants(workload: &Parts) -> Checked {
    let jobs: Vec<Instant> =
        workload.jobs.iter().map(|job| instant(workload, &job.program)).collect();
    // Instructions of a job and of all that it leads to; of those under way nothing yet.
    let mut sums: Vec<Option<u64>> = vec![None; jobs.len()];
    let mut under_way = vec![false; jobs.len()];
    for first in 0..jobs.len() {
        let mut path = vec![(first, 0)];
        while let Some((job, next)) = path.last_mut() {
            let job = *job;
            under_way[job] = sums[job].is_none();
            let posted = jobs[job].posts.get(*next).filter(|_| sums[job].is_none());
            *next += 1;
            let Some(posted) = posted else {
                path.pop();
                under_way[job] = false;
                if sums[job].is_none() {
                    sums[job] = Some(sum(workload, &jobs, &sums, job)?);
                }
                continue;
            };
            if under_way[posted.job] {
                let name = quoted(&workload.jobs[posted.job].name);
                let problem = format!("job {name} leads to itself before any time has passed");
                let accepted = "an instruction that takes time in one of the jobs, or `after`";
                return flaw(Spot::JobOp(job, posted.op), "", Kind::Program, problem, accepted);
            }
            path.push((posted.job, 0));
        }
    }
    Ok(())
}

/// How many instructions are executed when all that the job posts has been summed up.
fn sum(
    workload: &Parts,
    jobs: &[Instant],
    sums: &[Option<u64>],
    job: usize,
) -> Result<u64, super::Found> {
    let mut sum = jobs[job].ops;
    for posted in &jobs[job].posts {
        let each = sums[posted.job].unwrap_or(0);
        sum = sum.saturating_add(posted.times.saturating_mul(each));
        if sum > MAX_INSTANT_OPS {
            let name = quoted(&workload.jobs[job].name);
            let problem = format!(
                "job {name} and all that it posts are more than {MAX_INSTANT_OPS} instructions \
                 before any time has passed"
            );
            let accepted = "an instruction that takes time in one of the jobs";
            return flaw(Spot::JobOp(job, posted.op), "", Kind::Program, problem, accepted);
        }
    }
    Ok(sum)
}
