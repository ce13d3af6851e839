//! Checks jobs: their names, the tasks that may serve them, and that posting ends.
//!
//! A job in which no time passes starts the jobs that it posts at the same instant. A chain of them
//! must be short, or a run would stand still. A job in which time passes ends the chain, because a
//! task has to execute it.

use super::program::passes_time;
use super::{Checked, check_unique_name, refuse};
use crate::bounds::MAX_INSTANT_OPS;
use crate::error::{Error, PartIx};
use crate::model::{ChannelIx, Class, JobIx, Op, Parts};
use crate::units::quoted;
use std::collections::{BTreeMap, BTreeSet};

/// Refuses jobs with invalid or equal names.
pub(super) fn check_names(workload: &Parts) -> Checked {
    let mut seen = BTreeSet::new();
    for (ix, job) in workload.jobs.iter().enumerate() {
        check_unique_name(PartIx::Job(ix), &job.name, &mut seen)?;
    }
    Ok(())
}

/// Checks jobs after programs and sources, whose references are valid.
pub(super) fn check(workload: &Parts) -> Checked {
    check_kernel_threads(workload)?;
    check_instants(workload)
}

/// A kernel thread never runs in user mode, so it can serve only kernel work.
fn check_kernel_threads(workload: &Parts) -> Checked {
    let threads = workload.tasks.iter().enumerate();
    let threads: Vec<_> = threads.filter(|(_, task)| task.class == Class::Kthread).collect();
    if threads.is_empty() {
        return Ok(());
    }
    // For each channel the first job that a kernel thread cannot do.
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
            return refuse(PartIx::Op(task, ix), "", Error::Program, problem, accepted);
        }
    }
    Ok(())
}

struct Posted {
    job: usize,
    op: usize,
    times: u64,
}

/// Instructions that a job executes without time passing.
#[derive(Default)]
struct Instant {
    /// Number of instructions, without those of the jobs that it posts.
    ops: u64,
    posts: Vec<Posted>,
}

/// Counts a job's instructions, each as often as its loops execute it; a job in which time passes
/// has none.
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

/// Refuses jobs that lead to themselves, or to more than `MAX_INSTANT_OPS` instructions, before any
/// time has passed. Visits each job after those that it posts.
fn check_instants(workload: &Parts) -> Checked {
    let jobs: Vec<Instant> =
        workload.jobs.iter().map(|job| instant(workload, &job.program)).collect();
    // Instructions of a job and of all jobs that it leads to; `None` while a job is being visited.
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
                    sums[job] = Some(count_with_posted(workload, &jobs, &sums, job)?);
                }
                continue;
            };
            if under_way[posted.job] {
                let name = quoted(&workload.jobs[posted.job].name);
                let problem = format!("job {name} leads to itself before any time has passed");
                let accepted = "an instruction that takes time in one of the jobs, or `after`";
                return refuse(
                    PartIx::JobOp(job, posted.op),
                    "",
                    Error::Program,
                    problem,
                    accepted,
                );
            }
            path.push((posted.job, 0));
        }
    }
    Ok(())
}

/// Number of instructions of a job and of all jobs that it leads to. `sums` holds the numbers of
/// the jobs that it posts.
///
/// # Errors
/// There are more than `MAX_INSTANT_OPS`.
fn count_with_posted(
    workload: &Parts,
    jobs: &[Instant],
    sums: &[Option<u64>],
    job: usize,
) -> Result<u64, super::PartRefusal> {
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
            return refuse(PartIx::JobOp(job, posted.op), "", Error::Program, problem, accepted);
        }
    }
    Ok(sum)
}
