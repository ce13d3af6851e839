//! Jobs for random workloads: work that sources, tasks and other jobs send to pools of tasks.
//!
//! A job posts at once only jobs with a higher number, so no chain of posts is endless. Each job
//! takes some time, so a few tasks bound how many jobs are done.

use super::Dice;
use crate::build::{Builder, Cpus, Length, Source, Task};
use crate::model::{CpuSet, Distribution, LockKind};
use crate::step::{
    Step, Verb, begin, done, forever, go_on_after, irqoff, kernel, lock, post, post_after,
    read_lock, recv, repeat, send, serve, sleep, syscall, unlock, user, write_lock,
};
use std::time::Duration;

const LONGEST_NS: u64 = 5_000_000;

struct Plan {
    jobs: u64,
    /// Channels that are served, and whether senders may have to wait.
    channels: Vec<(String, bool)>,
    locks: Vec<(String, LockKind)>,
}

/// Adds up to four jobs, the tasks that serve them, and the sources and posts that send them, to a
/// draft.
pub(super) fn add(dice: &mut Dice, mut draft: Builder) -> Builder {
    let jobs = dice.range(1, 4);
    let bounded = |dice: &mut Dice| dice.one_in(4);
    let channels: Vec<(String, bool)> =
        (0..dice.range(1, 2)).map(|ix| (format!("queue{ix}"), bounded(dice))).collect();
    for (name, bounded) in &channels {
        draft = if *bounded {
            draft.bounded_channel(name, dice.range(1, 4))
        } else {
            draft.channel(name)
        };
    }
    draft = draft.channel("answers");
    let locks = draft.locks.iter().map(|lock| (lock.name.clone(), lock.kind)).collect();
    let plan = Plan { jobs, channels, locks };
    for job in 0..jobs {
        let program = draw_program(dice, &plan, job);
        draft = draft.job(name_of(job), program);
    }
    for task in &mut draft.tasks {
        let endless = task.program.iter_mut().find_map(|step| match &mut step.verb {
            Verb::Loop { times: u64::MAX, body } => Some(body),
            _ => None,
        });
        if let Some(body) = endless.filter(|_| dice.one_in(2)) {
            let step = draw_post(dice, &plan, 0);
            body.insert(0, step);
        }
    }
    for (ix, (name, _)) in plan.channels.iter().enumerate() {
        for pool in 0..dice.range(1, 2) {
            let server = draw_server(dice, &draft, &format!("server{ix}.{pool}"), name);
            draft = draft.task(server);
        }
        draft = draft.source(draw_source(dice, &plan, ix, name));
    }
    draft.task(Task::new("asker").program([forever([recv("answers", 1), done()])]))
}

/// The name of a job by its number.
fn name_of(job: u64) -> String {
    format!("job{job}")
}

/// A task that serves a channel, may do something after each job, and may end after a few.
fn draw_server(dice: &mut Dice, draft: &Builder, name: &str, channel: &str) -> Task {
    let mut task = Task::new(name).count(dice.range(1, 3) as u32).class(dice.class());
    if let Some(group) = dice.pick(&draft.groups) {
        task = task.group(&group.path);
    }
    if dice.one_in(4) {
        let last = draft.machine.spec.cpus - 1;
        task = task.cpus(Cpus::Set(CpuSet(vec![dice.range(0, last.into()) as u16])));
    }
    let mut body = vec![serve(channel)];
    if dice.one_in(2) {
        body.push(done());
    }
    if dice.one_in(3) {
        body.push(user(dice.length(LONGEST_NS)));
    }
    if dice.one_in(6) {
        // Sometimes a token is received without doing its job.
        body.push(recv(channel, 1));
    }
    task.program([if dice.one_in(4) { repeat(dice.range(1, 20), body) } else { forever(body) }])
}

/// A source every 0.5 ms or more on average, whose tokens carry up to three jobs by turns;
/// sometimes lossy.
fn draw_source(dice: &mut Dice, plan: &Plan, ix: usize, channel: &str) -> Source {
    // Rare enough that a second does not hold millions of arrivals.
    let mean_ns = dice.range(500_000, 4 * LONGEST_NS);
    let between: Length = match dice.0.below(2) {
        0 => Distribution::Exponential { mean_ns }.into(),
        _ => Duration::from_nanos(mean_ns).into(),
    };
    let mut source = Source::every(format!("requests{ix}"), channel, between);
    let jobs = dice.range(0, 3);
    let names: Vec<String> = (0..jobs).map(|_| name_of(dice.range(0, plan.jobs - 1))).collect();
    source = source.jobs(names);
    if dice.one_in(3) {
        source = source.count(dice.range(0, 50));
    }
    if dice.one_in(3) { source.lossy() } else { source }
}

/// The program of job number `job`: some work and up to four blocks. At once it posts only jobs
/// with higher numbers, so no chain of jobs is endless.
fn draw_program(dice: &mut Dice, plan: &Plan, job: u64) -> Vec<Step> {
    let work = Duration::from_nanos(dice.range(50_000, LONGEST_NS));
    // Blocks keep paired instructions, such as lock and unlock, together.
    let mut blocks = vec![vec![user(work)]];
    for _ in 0..dice.range(0, 4) {
        let mut block = draw_block(dice, plan, job);
        if dice.one_in(4) {
            block = vec![repeat(dice.range(1, 3), block)];
        }
        blocks.insert(dice.range(0, blocks.len() as u64) as usize, block);
    }
    blocks.into_iter().flatten().collect()
}

/// One to a few instructions that stay together.
fn draw_block(dice: &mut Dice, plan: &Plan, job: u64) -> Vec<Step> {
    match dice.0.below(12) {
        0 => vec![user(dice.length(LONGEST_NS))],
        1 => vec![kernel(dice.length(LONGEST_NS))],
        2 => vec![irqoff(dice.length(200_000))],
        3 => vec![sleep(dice.length(LONGEST_NS))],
        4 => vec![syscall([kernel(dice.length(LONGEST_NS)), sleep(dice.length(LONGEST_NS))])],
        5 => vec![begin()],
        6 => vec![send("answers", dice.range(1, 3))],
        7 => vec![done()],
        8 => draw_locked(dice, plan),
        _ => vec![draw_post(dice, plan, job + 1)],
    }
}

/// Work under a lock, in the kernel where a spin lock demands it.
fn draw_locked(dice: &mut Dice, plan: &Plan) -> Vec<Step> {
    let Some((name, kind)) = dice.pick(&plan.locks) else { return vec![done()] };
    let take = match kind {
        LockKind::Mutex | LockKind::Spin => lock(name),
        _ if dice.one_in(2) => read_lock(name),
        _ => write_lock(name),
    };
    if *kind == LockKind::Spin || dice.one_in(2) {
        return vec![syscall([take, kernel(dice.length(500_000)), unlock(name)])];
    }
    vec![take, user(dice.length(500_000)), unlock(name)]
}

/// A `post` of a job numbered `first` or higher, or an `after` of any job.
fn draw_post(dice: &mut Dice, plan: &Plan, first: u64) -> Step {
    let queue = |dice: &mut Dice| {
        let at = dice.range(0, plan.channels.len() as u64 - 1) as usize;
        plan.channels[at].clone()
    };
    let (channel, bounded) = queue(dice);
    // A server never waits for room in a channel, because all servers might wait.
    if first < plan.jobs && !bounded && dice.one_in(2) {
        return post(name_of(dice.range(first, plan.jobs - 1)), channel);
    }
    let delay = Duration::from_nanos(dice.range(100_000, 4 * LONGEST_NS));
    let post = if dice.one_in(3) { go_on_after } else { post_after };
    post(delay, name_of(dice.range(0, plan.jobs - 1)), channel)
}
