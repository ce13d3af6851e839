//! Random programs that keep the rules: locks in one order, no sleep under a spin lock, time in
//! every loop, children that exit.

use super::{Dice, KindPlan};
use crate::model::{Class, LockKind, LockMode};
use crate::step::{
    Step, TargetName, affinity, begin, class, done, every, exit, forever, fork, irqoff, kernel,
    lock, move_to, nice, read_lock, recv, repeat, send, sleep, syscall, unlock, user,
    wait_children, write_lock, yield_now,
};
use std::time::Duration;

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

/// The program of a kind of task: mostly an endless loop, in which time passes. Forked kinds
/// (`count` 0) end.
pub(super) fn program(dice: &mut Dice, context: &Context<'_>, kind: &KindPlan) -> Vec<Step> {
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
        steps.push(forever(body));
    } else {
        steps.extend(draw_block(dice, context, kind, at));
        steps.push(draw_work(dice, at));
        if dice.one_in(3) {
            steps.push(exit());
        }
    }
    steps
}

/// Work in the mode of this position.
fn draw_work(dice: &mut Dice, at: Position) -> Step {
    let ns = Duration::from_nanos(dice.range(10_000, 5_000_000));
    if at.in_kernel { kernel(ns) } else { user(ns) }
}

/// One to five times an instruction that the position allows, with others inside if it is a loop or
/// the like.
fn draw_block(dice: &mut Dice, context: &Context<'_>, kind: &KindPlan, at: Position) -> Vec<Step> {
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
    steps: &mut Vec<Step>,
) {
    match dice.0.below(24) {
        0..4 if !at.in_kernel => steps.push(user(dice.length(LONGEST_NS))),
        0..6 => steps.push(kernel(dice.length(LONGEST_NS))),
        6 => steps.push(irqoff(dice.length(200_000))),
        7 | 8 if !at.spinning => steps.push(sleep(dice.length(LONGEST_NS))),
        9 if !at.spinning => {
            steps.push(every(Duration::from_nanos(dice.range(1_000_000, 50_000_000))));
        }
        10 | 11 if !at.in_kernel && at.depth < 3 => {
            let inside = Position { in_kernel: true, depth: at.depth + 1, ..at };
            steps.push(syscall(draw_block(dice, context, kind, inside)));
        }
        12 | 13 if at.depth < 3 => {
            let inside = Position { depth: at.depth + 1, ..at };
            let mut body = draw_block(dice, context, kind, inside);
            body.push(draw_work(dice, inside));
            steps.push(repeat(dice.range(1, 4), body));
        }
        14..17 if at.depth < 3 => add_locked(dice, context, kind, at, steps),
        17 | 18 => add_tokens(dice, context, at, steps),
        19 if !at.spinning && !at.child && !at.holding => add_fork(dice, context, at, steps),
        20 if !at.spinning => steps.push(yield_now()),
        21 | 22 => add_task_change(dice, context, kind, at, steps),
        _ => steps.push(if dice.one_in(2) { begin() } else { done() }),
    }
}

/// Adds a section under a lock that may be taken here; none if there is no such lock.
fn add_locked(
    dice: &mut Dice,
    context: &Context<'_>,
    kind: &KindPlan,
    at: Position,
    steps: &mut Vec<Step>,
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
    steps.push(match dice.choose([LockMode::Read, LockMode::Write]) {
        _ if !shared => lock(name),
        LockMode::Read => read_lock(name),
        LockMode::Write => write_lock(name),
    });
    steps.extend(draw_block(dice, context, kind, inside));
    steps.push(unlock(name));
}

/// Adds a send or a receive, if the task may wait here or need not.
fn add_tokens(dice: &mut Dice, context: &Context<'_>, at: Position, steps: &mut Vec<Step>) {
    let Some((name, capacity)) = dice.pick(context.channels) else {
        return;
    };
    let n = dice.range(1, 3.min(*capacity));
    // A task that holds a lock does not wait for others, which may need the lock.
    let unbounded = *capacity == u64::MAX;
    if (unbounded || !at.holding) && dice.one_in(2) {
        steps.push(send(name, n));
    } else if !at.holding && !at.child {
        steps.push(recv(name, n));
    }
}

/// Adds a fork of a kind that is only forked, if there is one. Endless programs wait for the child,
/// so that children never pile up.
fn add_fork(dice: &mut Dice, context: &Context<'_>, at: Position, steps: &mut Vec<Step>) {
    let children: Vec<&String> =
        context.kinds.iter().filter(|name| name.starts_with("child")).collect();
    let Some(child) = dice.pick(&children) else {
        return;
    };
    steps.push(fork(child.as_str()));
    if at.endless || dice.one_in(2) {
        steps.push(wait_children());
    }
}

/// Adds a change of nice value, group, CPUs or class, of the task itself or of a kind; sometimes
/// none.
fn add_task_change(
    dice: &mut Dice,
    context: &Context<'_>,
    kind: &KindPlan,
    at: Position,
    steps: &mut Vec<Step>,
) {
    let who = match dice.pick(context.kinds) {
        Some(name) if dice.one_in(3) => TargetName::Kind(name.clone()),
        _ => TargetName::Myself,
    };
    match dice.0.below(4) {
        0 => steps.push(nice(who, dice.nice())),
        1 if !at.spinning => {
            if let Some(path) = dice.pick(context.paths) {
                steps.push(move_to(who, path));
            }
        }
        2 if !at.spinning => steps.push(affinity(who, dice.cpu_set(context.cpus))),
        // The class of a kernel thread cannot change, and only the task's own kind is known here.
        3 if !at.spinning && who == TargetName::Myself && kind.class != Class::Kthread => {
            steps.push(class(who, dice.class()));
        }
        _ => {}
    }
}
