//! Jobs for random workloads: work that sources, tasks and other jobs send to pools of tasks.
//!
//! A job posts at once only jobs with a higher number, so no chain of posts is endless. Each job
//! takes some time, so a few tasks bound how many jobs are done.

use super::{Dice, GroupPlan, channel};
use crate::build::{Builder, Table, Value, table};
use crate::cpus::CpuSet;
use crate::model::{Distribution, LockKind};

const LONGEST_NS: u64 = 5_000_000;

struct Plan {
    jobs: u64,
    /// Channels that are served, and whether senders may have to wait.
    channels: Vec<(String, bool)>,
    cpus: u16,
    locks: Vec<(String, LockKind)>,
    groups: Vec<GroupPlan>,
}

/// Adds jobs, the tasks that serve them, and the sources and posts that send them.
pub(super) fn add(dice: &mut Dice, plan: super::Plan) -> Builder {
    let super::Plan { mut draft, cpus, locks, groups } = plan;
    let jobs = dice.range(1, 4);
    let bounded = |dice: &mut Dice| dice.one_in(4);
    let channels: Vec<(String, bool)> =
        (0..dice.range(1, 2)).map(|ix| (format!("queue{ix}"), bounded(dice))).collect();
    for (name, bounded) in &channels {
        let capacity = if *bounded { dice.range(1, 4) } else { u64::MAX };
        draft = draft.part("channel", channel(name, capacity));
    }
    draft = draft.part("channel", table("name", "answers"));
    let plan = Plan { jobs, channels, cpus, locks, groups };
    for job in 0..jobs {
        let program = draw_program(dice, &plan, job);
        draft = draft.part("job", table("name", name_of(job)).with("program", program));
    }
    for (_, task) in draft.parts.iter_mut().filter(|(kind, _)| *kind == "task") {
        if let Some(body) = endless_loop(task).filter(|_| dice.one_in(2)) {
            body.insert(0, draw_post(dice, &plan, 0).into());
        }
    }
    for (ix, (name, _)) in plan.channels.iter().enumerate() {
        for pool in 0..dice.range(1, 2) {
            let server = draw_server(dice, &plan, &format!("server{ix}.{pool}"), name);
            draft = draft.part("task", server);
        }
        draft = draft.part("source", draw_source(dice, &plan, ix, name));
    }
    let answered = [table("recv", "answers"), table("done", true)];
    draft.part("task", table("name", "asker").with("program", [table("forever", answered)]))
}

/// The instructions of the endless loop in a task's program.
fn endless_loop(task: &mut Table) -> Option<&mut Vec<Value>> {
    list_of(task, "program")?.iter_mut().find_map(|step| match step {
        Value::Table(step) => list_of(step, "forever"),
        _ => None,
    })
}

fn list_of<'a>(table: &'a mut Table, name: &str) -> Option<&'a mut Vec<Value>> {
    table.fields.iter_mut().find_map(|(key, value)| match value {
        Value::List(values) if *key == name => Some(values),
        _ => None,
    })
}

/// The name of a job by its number.
fn name_of(job: u64) -> String {
    format!("job{job}")
}

/// A kind of one to three tasks, of random class, group and CPUs, that serve a channel, without end
/// or 1 to 20 times; after each job they may end a request, work, or receive a token without doing
/// its job.
fn draw_server(dice: &mut Dice, plan: &Plan, name: &str, channel: &str) -> Table {
    let mut task = table("name", name).with("count", dice.range(1, 3)).with("class", dice.class());
    if let Some(group) = dice.pick(&plan.groups) {
        task = task.with("group", &group.path);
    }
    if dice.one_in(4) {
        let last = u64::from(plan.cpus) - 1;
        task = task.with("cpus", CpuSet(vec![dice.range(0, last) as u16]));
    }
    let mut body = vec![table("serve", channel)];
    if dice.one_in(2) {
        body.push(table("done", true));
    }
    if dice.one_in(3) {
        body.push(table("user", dice.length(LONGEST_NS)));
    }
    if dice.one_in(6) {
        // Sometimes a token is received without doing its job.
        body.push(table("recv", channel));
    }
    let repeated = if dice.one_in(4) {
        table("loop", dice.range(1, 20)).with("do", body)
    } else {
        table("forever", body)
    };
    task.with("program", [repeated])
}

/// A source every 0.5 ms or more on average, whose tokens carry up to three jobs by turns;
/// sometimes lossy.
fn draw_source(dice: &mut Dice, plan: &Plan, ix: usize, channel: &str) -> Table {
    // Rare enough that a second does not hold millions of arrivals.
    let mean_ns = dice.range(500_000, 4 * LONGEST_NS);
    let every = match dice.0.below(2) {
        0 => Distribution::Exponential { mean_ns },
        _ => Distribution::Constant { ns: mean_ns },
    };
    let source = table("name", format!("requests{ix}")).with("channel", channel);
    let jobs = dice.range(0, 3);
    let names: Vec<String> = (0..jobs).map(|_| name_of(dice.range(0, plan.jobs - 1))).collect();
    let mut source = source.with("every", every).with("jobs", names);
    source = source.with_some("count", dice.one_in(3).then(|| dice.range(0, 50)));
    source.with("lossy", dice.one_in(3))
}

/// The program of job number `job`: some work and up to four blocks. At once it posts only jobs
/// with higher numbers, so no chain of jobs is endless.
fn draw_program(dice: &mut Dice, plan: &Plan, job: u64) -> Vec<Table> {
    let work = dice.between(50_000, LONGEST_NS);
    // Blocks keep paired instructions, such as lock and unlock, together.
    let mut blocks = vec![vec![table("user", work)]];
    for _ in 0..dice.range(0, 4) {
        let mut block = draw_block(dice, plan, job);
        if dice.one_in(4) {
            block = vec![table("loop", dice.range(1, 3)).with("do", block)];
        }
        blocks.insert(dice.range(0, blocks.len() as u64) as usize, block);
    }
    blocks.into_iter().flatten().collect()
}

/// One to a few instructions that stay together.
fn draw_block(dice: &mut Dice, plan: &Plan, job: u64) -> Vec<Table> {
    match dice.0.below(12) {
        0 => vec![table("user", dice.length(LONGEST_NS))],
        1 => vec![table("kernel", dice.length(LONGEST_NS))],
        2 => vec![table("irqoff", dice.length(200_000))],
        3 => vec![table("sleep", dice.length(LONGEST_NS))],
        4 => vec![table(
            "syscall",
            [table("kernel", dice.length(LONGEST_NS)), table("sleep", dice.length(LONGEST_NS))],
        )],
        5 => vec![table("begin", true)],
        6 => vec![table("send", "answers").with("n", dice.range(1, 3))],
        7 => vec![table("done", true)],
        8 => draw_locked(dice, plan),
        _ => vec![draw_post(dice, plan, job + 1)],
    }
}

/// Work under a lock, in the kernel where a spin lock demands it.
fn draw_locked(dice: &mut Dice, plan: &Plan) -> Vec<Table> {
    let Some((name, kind)) = dice.pick(&plan.locks) else { return vec![table("done", true)] };
    let take = table("lock", name);
    let take = match kind {
        LockKind::Mutex | LockKind::Spin => take,
        _ => take.with("mode", if dice.one_in(2) { "read" } else { "write" }),
    };
    if *kind == LockKind::Spin || dice.one_in(2) {
        return vec![table(
            "syscall",
            [take, table("kernel", dice.length(500_000)), table("unlock", name)],
        )];
    }
    vec![take, table("user", dice.length(500_000)), table("unlock", name)]
}

/// A `post` of a job numbered `first` or higher, or an `after` of any job.
fn draw_post(dice: &mut Dice, plan: &Plan, first: u64) -> Table {
    let queue = |dice: &mut Dice| {
        let at = dice.range(0, plan.channels.len() as u64 - 1) as usize;
        plan.channels[at].clone()
    };
    let (channel, bounded) = queue(dice);
    // A server never waits for room in a channel, because all servers might wait.
    if first < plan.jobs && !bounded && dice.one_in(2) {
        return table("post", name_of(dice.range(first, plan.jobs - 1))).with("to", channel);
    }
    let post = table("after", dice.between(100_000, 4 * LONGEST_NS)).with("to", channel);
    let post = if dice.one_in(3) { post.with("keep", true) } else { post };
    post.with("post", name_of(dice.range(0, plan.jobs - 1)))
}
