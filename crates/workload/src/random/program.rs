//! Random programs that keep the rules: locks in one order, no sleep under a spin lock, time in
//! every loop, children that exit.

use super::{Dice, KindPlan};
use crate::build::{Table, table};
use crate::model::{Class, LockKind, LockMode};

const LONGEST_NS: u64 = 20_000_000;

pub(super) struct Context<'a> {
    pub cpus: u16,
    pub locks: &'a [(String, LockKind)],
    pub channels: &'a [(String, u64)],
    pub paths: &'a [String],
    /// Kinds that run from the start, then kinds that are only forked.
    pub kinds: &'a Vec<String>,
}

#[derive(Debug, Clone, Copy)]
struct Position {
    depth: u64,
    in_kernel: bool,
    /// Index of the first lock that may be taken.
    first_lock: usize,
    holding: bool,
    spinning: bool,
    endless: bool,
    /// Whether the task was forked: it must exit, and forks no others.
    child: bool,
}

/// A program for this kind: for a forked one it ends, else mostly not.
pub(super) fn program(dice: &mut Dice, context: &Context<'_>, kind: &KindPlan) -> Vec<Table> {
    let child = kind.count == 0;
    let endless = !child && !dice.one_in(4);
    let at = Position {
        depth: 0,
        in_kernel: kind.class == Class::Kthread,
        first_lock: 0,
        holding: false,
        spinning: false,
        endless,
        child,
    };
    let mut steps = Vec::new();
    if endless {
        if dice.one_in(3) {
            steps.extend(draw_block(dice, context, kind, Position { endless: false, ..at }));
        }
        let mut body = draw_block(dice, context, kind, at);
        body.push(draw_work(dice, at));
        steps.push(table("forever", body));
    } else {
        steps.extend(draw_block(dice, context, kind, at));
        steps.push(draw_work(dice, at));
        if dice.one_in(3) {
            steps.push(table("exit", true));
        }
    }
    steps
}

/// Work in the mode of this position.
fn draw_work(dice: &mut Dice, at: Position) -> Table {
    table(if at.in_kernel { "kernel" } else { "user" }, dice.between(10_000, 5_000_000))
}

fn draw_block(dice: &mut Dice, context: &Context<'_>, kind: &KindPlan, at: Position) -> Vec<Table> {
    let mut steps = Vec::new();
    for _ in 0..dice.range(1, 5) {
        add_instruction(dice, context, kind, at, &mut steps);
    }
    steps
}

/// Adds an instruction that the position allows, or a mark of a request; sometimes none.
fn add_instruction(
    dice: &mut Dice,
    context: &Context<'_>,
    kind: &KindPlan,
    at: Position,
    steps: &mut Vec<Table>,
) {
    match dice.0.below(24) {
        0..4 if !at.in_kernel => steps.push(table("user", dice.length(LONGEST_NS))),
        0..6 => steps.push(table("kernel", dice.length(LONGEST_NS))),
        6 => steps.push(table("irqoff", dice.length(200_000))),
        7 | 8 if !at.spinning => steps.push(table("sleep", dice.length(LONGEST_NS))),
        9 if !at.spinning => {
            steps.push(table("every", dice.between(1_000_000, 50_000_000)));
        }
        10 | 11 if !at.in_kernel && at.depth < 3 => {
            let inside = Position { in_kernel: true, depth: at.depth + 1, ..at };
            steps.push(table("syscall", draw_block(dice, context, kind, inside)));
        }
        12 | 13 if at.depth < 3 => {
            let inside = Position { depth: at.depth + 1, ..at };
            let mut body = draw_block(dice, context, kind, inside);
            body.push(draw_work(dice, inside));
            steps.push(table("loop", dice.range(1, 4)).with("do", body));
        }
        14..17 if at.depth < 3 => add_locked(dice, context, kind, at, steps),
        17 | 18 => add_tokens(dice, context, at, steps),
        19 if !at.spinning && !at.child && !at.holding => add_fork(dice, context, at, steps),
        20 if !at.spinning => steps.push(table("yield", true)),
        21 | 22 => add_task_change(dice, context, kind, at, steps),
        _ => steps.push(if dice.one_in(2) { table("begin", true) } else { table("done", true) }),
    }
}

/// Adds a section under a lock that may be taken here; none if there is no such lock.
fn add_locked(
    dice: &mut Dice,
    context: &Context<'_>,
    kind: &KindPlan,
    at: Position,
    steps: &mut Vec<Table>,
) {
    let left = context.locks.get(at.first_lock..).unwrap_or(&[]);
    let ix = at.first_lock + dice.0.below(left.len() as u64) as usize;
    let Some((name, lock_kind)) = context.locks.get(ix) else {
        return;
    };
    let spin = *lock_kind == LockKind::Spin;
    if (spin && !at.in_kernel) || (at.spinning && !spin) {
        return;
    }
    let shared = !matches!(lock_kind, LockKind::Mutex | LockKind::Spin);
    let inside = Position {
        depth: at.depth + 1,
        first_lock: ix + 1,
        holding: true,
        spinning: at.spinning || spin,
        ..at
    };
    let mode = dice.choose([LockMode::Read, LockMode::Write]);
    let take = table("lock", name);
    steps.push(if shared { take.with("mode", mode) } else { take });
    steps.extend(draw_block(dice, context, kind, inside));
    steps.push(table("unlock", name));
}

fn add_tokens(dice: &mut Dice, context: &Context<'_>, at: Position, steps: &mut Vec<Table>) {
    let Some((name, capacity)) = dice.pick(context.channels) else {
        return;
    };
    let n = dice.range(1, 3.min(*capacity));
    // A task that holds a lock does not wait for others, which may need the lock.
    let unbounded = *capacity == u64::MAX;
    if (unbounded || !at.holding) && dice.one_in(2) {
        steps.push(table("send", name).with("n", n));
    } else if !at.holding && !at.child {
        steps.push(table("recv", name).with("n", n));
    }
}

/// Adds a fork. Endless programs wait for the child, so that children never pile up.
fn add_fork(dice: &mut Dice, context: &Context<'_>, at: Position, steps: &mut Vec<Table>) {
    let children: Vec<&String> =
        context.kinds.iter().filter(|name| name.starts_with("child")).collect();
    let Some(child) = dice.pick(&children) else {
        return;
    };
    steps.push(table("fork", child.as_str()));
    if at.endless || dice.one_in(2) {
        steps.push(table("wait", "children"));
    }
}

/// Adds a change of nice value, group, CPUs or class, of the task itself or of a kind; sometimes
/// none.
fn add_task_change(
    dice: &mut Dice,
    context: &Context<'_>,
    kind: &KindPlan,
    at: Position,
    steps: &mut Vec<Table>,
) {
    let who = dice.pick(context.kinds).filter(|_| dice.one_in(3));
    let aimed = |change: Table| match who {
        Some(kind) => change.with("of", kind),
        None => change,
    };
    match dice.0.below(4) {
        0 => steps.push(aimed(table("nice", dice.nice()))),
        1 if !at.spinning => {
            if let Some(path) = dice.pick(context.paths) {
                let who = who.map_or("self", |kind| kind);
                steps.push(table("move", who).with("to", path));
            }
        }
        2 if !at.spinning => steps.push(aimed(table("affinity", dice.cpu_set(context.cpus)))),
        // The class of a kernel thread cannot change, and only the task's own kind is known here.
        3 if !at.spinning && who.is_none() && kind.class != Class::Kthread => {
            steps.push(table("class", dice.class()));
        }
        _ => {}
    }
}
