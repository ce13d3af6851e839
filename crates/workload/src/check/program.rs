//! Checks single programs: whether a task could execute them, with locks released, system calls
//! ended, no sleep under a spin lock, and time passing in every loop.

use super::tables::{check_countable, check_span, takes_time};
use super::{
    Checked, PartRefusal, check_class_change, check_in_range, check_lock_mode, check_nice,
    check_reference, check_time, refuse,
};
use crate::bounds::{
    MAX_DURATION_NS, MAX_INSTANT_OPS, MAX_LOCKS_HELD, MAX_LOOP_DEPTH, MAX_TOKENS, NS_PER_US,
};
use crate::error::{Error, Kind, PartIx};
use crate::model::{Class, LockIx, LockKind, Op, Parts, Target, TaskSpec};
use crate::units::quoted;

pub(super) fn check(workload: &Parts) -> Checked {
    let lasting: Vec<bool> = workload.tasks.iter().map(|task| lasts(workload, task)).collect();
    for (task, spec) in workload.tasks.iter().enumerate() {
        check_instructions(Walk::new(workload, Owner::Task(task), &spec.program, &lasting))?;
    }
    for (job, spec) in workload.jobs.iter().enumerate() {
        check_instructions(Walk::new(workload, Owner::Job(job), &spec.program, &lasting))?;
    }
    Ok(())
}

fn check_instructions(mut walk: Walk<'_>) -> Checked {
    for (ix, op) in walk.program.iter().enumerate() {
        walk.check_allowed_in_job(ix, op)?;
        walk.check_references(ix, op)?;
        walk.check_modes(ix, op)?;
        walk.check_locks(ix, op)?;
        walk.check_loops(ix, op)?;
    }
    walk.check_end()
}

/// Whether time passes between start and end of every task of this kind.
pub(super) fn lasts(workload: &Parts, task: &TaskSpec) -> bool {
    let until_exit = task.program.iter().take_while(|op| !matches!(op, Op::Exit));
    until_exit.into_iter().any(|op| passes_time(workload, op))
}

/// Whether the instruction itself lasts; how long it waits for others does not count.
pub(super) fn passes_time(workload: &Parts, op: &Op) -> bool {
    match *op {
        Op::User(span) | Op::Kernel(span) | Op::IrqOff(span) | Op::Sleep(span) => {
            takes_time(workload, span)
        }
        Op::Every { period_ns } => period_ns > 0,
        _ => false,
    }
}

/// Effects of a part of a program that decide whether time passes in it.
#[derive(Debug, Clone, Copy, Default)]
struct Effects {
    time: bool,
    exit: bool,
    recv: bool,
    send: bool,
    fork: bool,
    /// Forks a kind in whose tasks time passes.
    fork_lasting: bool,
    wait: bool,
    /// Instructions executed while no time passes.
    instant_ops: u64,
}

impl Effects {
    /// Whether a loop around this ends or lets time pass. A loop that receives, and neither sends
    /// nor forks, ends up waiting, because senders need time.
    fn bounded(&self) -> bool {
        self.time
            || self.exit
            || (self.fork_lasting && self.wait)
            || (self.recv && !self.send && !self.fork)
    }

    /// Adds the effects of what follows, or of a loop inside.
    fn add(&mut self, inner: Effects) {
        self.time |= inner.time;
        self.exit |= inner.exit;
        self.recv |= inner.recv;
        self.send |= inner.send;
        self.fork |= inner.fork;
        self.fork_lasting |= inner.fork_lasting;
        self.wait |= inner.wait;
        self.instant_ops = self.instant_ops.saturating_add(inner.instant_ops);
    }
}

struct OpenLoop {
    start: usize,
    times: u64,
    end: u32,
    held: Vec<LockIx>,
    in_syscall: bool,
    effects: Effects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Task(usize),
    Job(usize),
}

impl Owner {
    fn part(self, ix: usize) -> PartIx {
        match self {
            Owner::Task(task) => PartIx::Op(task, ix),
            Owner::Job(job) => PartIx::JobOp(job, ix),
        }
    }
}

struct Walk<'a> {
    workload: &'a Parts,
    owner: Owner,
    program: &'a [Op],
    /// By kind: whether time passes in each of its tasks.
    lasting: &'a [bool],
    held: Vec<LockIx>,
    /// Number of spin locks in `held`.
    spinning: usize,
    in_syscall: bool,
    /// Locks held when the system call began.
    held_outside: Vec<LockIx>,
    loops: Vec<OpenLoop>,
    effects: Effects,
}

impl<'a> Walk<'a> {
    fn new(workload: &'a Parts, owner: Owner, program: &'a [Op], lasting: &'a [bool]) -> Self {
        Walk {
            workload,
            owner,
            program,
            lasting,
            held: Vec::new(),
            spinning: 0,
            in_syscall: false,
            held_outside: Vec::new(),
            loops: Vec::new(),
            effects: Effects::default(),
        }
    }

    fn is_kthread(&self) -> bool {
        matches!(self.owner, Owner::Task(task)
            if self.workload.tasks[task].class == Class::Kthread)
    }

    fn lock_name(&self, lock: LockIx) -> String {
        quoted(&self.workload.locks[lock as usize].name)
    }

    fn lock_kind(&self, lock: LockIx) -> LockKind {
        self.workload.locks[lock as usize].kind
    }

    fn refuse<T>(
        &self,
        ix: usize,
        kind: Kind,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Result<T, PartRefusal> {
        refuse(self.owner.part(ix), "", kind, problem, accepted)
    }

    /// Refuses verbs that only tasks have. Jobs are short, and any task that serves the channel may
    /// execute them.
    fn check_allowed_in_job(&self, ix: usize, op: &Op) -> Checked {
        let verb = match op {
            _ if !matches!(self.owner, Owner::Job(_)) => return Ok(()),
            Op::Serve { .. } => "serve",
            Op::Every { .. } => "every",
            Op::Fork { .. } => "fork",
            Op::WaitChildren => "wait",
            Op::Exit => "exit",
            Op::Yield => "yield",
            Op::Move { .. } => "move",
            Op::SetAffinity { .. } => "affinity",
            Op::SetNice { .. } => "nice",
            Op::SetClass { .. } => "class",
            Op::LoopStart { times: u64::MAX, .. } => "forever",
            _ => return Ok(()),
        };
        let accepted = "in a job: user, kernel, irqoff, syscall, sleep, lock, unlock, send, recv, \
             post, after, begin, done, loop";
        self.refuse(ix, Error::Program, format!("`{verb}` in a job"), accepted)
    }

    /// Checks the references and ranges of one instruction, without those around it.
    fn check_references(&self, ix: usize, op: &Op) -> Checked {
        let workload = self.workload;
        let part = self.owner.part(ix);
        let target = |who: Target| match who {
            Target::Myself => Ok(()),
            Target::Kind(kind) => check_reference(part, "of", kind, workload.tasks.len()),
        };
        match *op {
            Op::User(length) => check_span(workload, part, "user", length),
            Op::Kernel(length) => check_span(workload, part, "kernel", length),
            Op::IrqOff(length) => check_span(workload, part, "irqoff", length),
            Op::Sleep(length) => check_span(workload, part, "sleep", length),
            Op::Every { period_ns } => {
                check_time(part, "every", period_ns, NS_PER_US..=MAX_DURATION_NS)
            }
            Op::Lock { lock, mode } => {
                check_reference(part, "lock", lock, workload.locks.len())?;
                check_lock_mode(workload, part, lock, mode)
            }
            Op::Unlock { lock } => check_reference(part, "unlock", lock, workload.locks.len()),
            Op::Send { channel, n } => self.check_tokens(part, "send", channel, n),
            Op::Recv { channel, n } => self.check_tokens(part, "recv", channel, n),
            Op::Serve { channel } => {
                check_reference(part, "serve", channel, workload.channels.len())
            }
            Op::Post { channel, job } => self.check_posted(part, channel, job),
            Op::After { delay, channel, job, .. } => {
                check_span(workload, part, "after", delay)?;
                self.check_posted(part, channel, job)?;
                if takes_time(workload, delay) {
                    return Ok(());
                }
                let problem = "no time passes before the token comes";
                self.refuse(ix, Error::Program, problem, "a length above 0, or `post`")
            }
            Op::Fork { kind } => check_reference(part, "fork", kind, workload.tasks.len()),
            Op::Move { who, group } => {
                target(who)?;
                check_reference(part, "to", group, workload.groups.len())
            }
            Op::SetAffinity { who, cpus } => {
                target(who)?;
                check_reference(part, "affinity", cpus, workload.cpu_sets.len())
            }
            Op::SetNice { who, nice: to } => {
                target(who)?;
                check_nice(part, to)
            }
            Op::SetClass { who, class } => {
                target(who)?;
                check_class_change(workload, part, self.kind_of(who), class)
            }
            Op::LoopStart { times, .. } => check_countable(part, "loop", times),
            Op::EnterKernel
            | Op::ExitKernel
            | Op::WaitChildren
            | Op::Exit
            | Op::Yield
            | Op::Begin
            | Op::Done
            | Op::LoopEnd { .. } => Ok(()),
        }
    }

    /// The kind of task that is aimed at; `None` in a job, which any task may execute.
    fn kind_of(&self, who: Target) -> Option<u32> {
        match (who, self.owner) {
            (Target::Kind(kind), _) => Some(kind),
            (Target::Myself, Owner::Task(task)) => Some(task as u32),
            (Target::Myself, Owner::Job(_)) => None,
        }
    }

    /// Checks that the channel and the job exist.
    fn check_posted(&self, part: PartIx, channel: u32, job: u32) -> Checked {
        check_reference(part, "to", channel, self.workload.channels.len())?;
        check_reference(part, "post", job, self.workload.jobs.len())
    }

    /// Checks the channel, and that `n` is within bounds and the channel's capacity.
    fn check_tokens(&self, part: PartIx, field: &'static str, channel: u32, n: u64) -> Checked {
        check_reference(part, field, channel, self.workload.channels.len())?;
        check_in_range(part, "n", n, 1..=MAX_TOKENS)?;
        let channel = &self.workload.channels[channel as usize];
        if n > channel.capacity {
            let name = quoted(&channel.name);
            let problem =
                format!("{n} tokens at once, and channel {name} holds {}", channel.capacity);
            return refuse(part, field, Error::Program, problem, "no more than its capacity");
        }
        Ok(())
    }

    /// Checks user mode, kernel mode, and sleep under spin locks; tracks system calls.
    fn check_modes(&mut self, ix: usize, op: &Op) -> Checked {
        match op {
            Op::EnterKernel if self.is_kthread() => {
                let problem = "a kernel thread makes no system calls";
                let accepted = "the instructions as they are, without `syscall`";
                return self.refuse(ix, Error::Program, problem, accepted);
            }
            Op::EnterKernel if self.in_syscall => {
                let problem = "a system call inside a system call";
                return self.refuse(ix, Error::Program, problem, "one `syscall` around all of it");
            }
            Op::EnterKernel => {
                self.in_syscall = true;
                self.held_outside.clone_from(&self.held);
            }
            Op::ExitKernel if !self.in_syscall => {
                let problem = "the end of a system call that did not begin";
                return self.refuse(ix, Error::Program, problem, "a start for each end");
            }
            Op::ExitKernel => {
                if self.held != self.held_outside {
                    let problem = "a system call ends with other locks held than it began with";
                    let accepted = "release in a system call what was taken in it, and only that";
                    return self.refuse(ix, Error::Lock, problem, accepted);
                }
                self.in_syscall = false;
            }
            Op::Serve { .. } if self.in_syscall || !self.held.is_empty() => {
                let problem = if self.held.is_empty() {
                    "`serve` inside a system call".to_owned()
                } else {
                    format!("`serve` while {} is held", self.held_list())
                };
                let accepted = "in user mode and with no lock held, as jobs begin";
                return self.refuse(ix, Error::Program, problem, accepted);
            }
            Op::User(_) if self.in_syscall => {
                let problem = "user mode inside a system call";
                return self.refuse(ix, Error::Program, problem, "`kernel`, or end the call first");
            }
            Op::User(_) if self.is_kthread() => {
                let problem = "a kernel thread never runs in user mode";
                return self.refuse(ix, Error::Program, problem, "`kernel`");
            }
            _ => {}
        }
        if self.spinning > 0
            && let Some(verb) = self.sleeps(op)
        {
            let spin = self.held.iter().find(|&&lock| self.lock_kind(lock) == LockKind::Spin);
            let name = spin.map(|&lock| self.lock_name(lock)).unwrap_or_default();
            let problem = format!("`{verb}` while the spin lock {name} is held");
            let accepted = "under a spin lock: kernel, irqoff, another spin lock, unlock, send to \
                 an unbounded channel, post to one, after, nice, begin, done, loops";
            return self.refuse(ix, Error::Lock, problem, accepted);
        }
        Ok(())
    }

    /// The verb of an instruction that can sleep or leaves the kernel.
    fn sleeps(&self, op: &Op) -> Option<&'static str> {
        match *op {
            Op::User(_) => Some("user"),
            Op::Sleep(_) => Some("sleep"),
            Op::Every { .. } => Some("every"),
            Op::Lock { lock, .. } if self.lock_kind(lock) != LockKind::Spin => Some("lock"),
            Op::Send { channel, .. }
                if self.workload.channels[channel as usize].capacity != u64::MAX =>
            {
                Some("send")
            }
            Op::Post { channel, .. }
                if self.workload.channels[channel as usize].capacity != u64::MAX =>
            {
                Some("post")
            }
            Op::Recv { .. } => Some("recv"),
            Op::Serve { .. } => Some("serve"),
            Op::Fork { .. } => Some("fork"),
            Op::WaitChildren => Some("wait"),
            Op::Yield => Some("yield"),
            Op::Move { .. } => Some("move"),
            Op::SetAffinity { .. } => Some("affinity"),
            Op::SetClass { .. } => Some("class"),
            _ => None,
        }
    }

    /// Follows which locks are held. Refuses to take one twice, to release one that is not held, to
    /// exit with one, to hold too many, and a spinlock outside of the kernel.
    fn check_locks(&mut self, ix: usize, op: &Op) -> Checked {
        match *op {
            Op::Lock { lock, .. } => {
                if self.held.contains(&lock) {
                    let problem =
                        format!("lock {} is taken while it is held", self.lock_name(lock));
                    return self.refuse(ix, Error::Lock, problem, "unlock it first");
                }
                let spin = self.lock_kind(lock) == LockKind::Spin;
                if spin && !self.in_syscall && !self.is_kthread() {
                    let problem = format!("spin lock {} outside the kernel", self.lock_name(lock));
                    let accepted = "take and release it inside `syscall`";
                    return self.refuse(ix, Error::Lock, problem, accepted);
                }
                if self.held.len() as u64 == MAX_LOCKS_HELD {
                    let problem = format!("more than {MAX_LOCKS_HELD} locks held at once");
                    return self.refuse(ix, Error::Lock, problem, "");
                }
                self.spinning += usize::from(spin);
                self.held.push(lock);
            }
            Op::Unlock { lock } => {
                let Some(at) = self.held.iter().position(|&held| held == lock) else {
                    let problem = format!("lock {} is not held here", self.lock_name(lock));
                    return self.refuse(ix, Error::Lock, problem, self.held_names());
                };
                self.held.remove(at);
                self.spinning -= usize::from(self.lock_kind(lock) == LockKind::Spin);
            }
            Op::Exit if !self.held.is_empty() => {
                let problem = format!("the task exits and still holds {}", self.held_list());
                return self.refuse(ix, Error::Lock, problem, "unlock it first");
            }
            _ => {}
        }
        Ok(())
    }

    /// Names of the held locks, with commas between them.
    fn held_list(&self) -> String {
        self.held.iter().map(|&lock| self.lock_name(lock)).collect::<Vec<_>>().join(", ")
    }

    /// The held locks, for the text of what would be accepted.
    fn held_names(&self) -> String {
        match self.held.as_slice() {
            [] => "no lock is held".to_owned(),
            _ => format!("held: {}", self.held_list()),
        }
    }

    /// Follows loops and the effects of the instructions in them; `close_loop` checks a loop at its
    /// end. Refuses deep nesting.
    fn check_loops(&mut self, ix: usize, op: &Op) -> Checked {
        match *op {
            Op::LoopStart { times, end } => {
                if self.loops.len() as u64 == MAX_LOOP_DEPTH {
                    let problem = format!("loops nested more than {MAX_LOOP_DEPTH} deep");
                    return self.refuse(ix, Error::Program, problem, "");
                }
                self.loops.push(OpenLoop {
                    start: ix,
                    times,
                    end,
                    held: self.held.clone(),
                    in_syscall: self.in_syscall,
                    effects: std::mem::take(&mut self.effects),
                });
            }
            Op::LoopEnd { start } => self.close_loop(ix, start)?,
            _ => {
                let passes_time = passes_time(self.workload, op);
                self.effects.time |= passes_time;
                self.effects.instant_ops += u64::from(!passes_time);
                match *op {
                    Op::Exit => self.effects.exit = true,
                    Op::Recv { .. } | Op::Serve { .. } => self.effects.recv = true,
                    Op::Send { .. } | Op::Post { .. } => self.effects.send = true,
                    Op::WaitChildren => self.effects.wait = true,
                    Op::Fork { kind } => {
                        self.effects.fork = true;
                        self.effects.fork_lasting |= self.lasting[kind as usize];
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Checks a loop at its end. It nests with other loops and system calls, and ends with the
    /// locks that it began with. Not more than `MAX_INSTANT_OPS` instructions are executed before
    /// time passes. Its effects count for the loop around it.
    fn close_loop(&mut self, ix: usize, start: u32) -> Checked {
        let matching = |open: &OpenLoop| open.start == start as usize && open.end as usize == ix;
        let Some(open) = self.loops.pop().filter(matching) else {
            let problem = "the end of a loop that did not begin, or begins elsewhere";
            return self.refuse(ix, Error::Program, problem, "each loop with its own end");
        };
        if open.in_syscall != self.in_syscall {
            let problem = "a system call and a loop overlap";
            return self.refuse(ix, Error::Program, problem, "one of them inside the other");
        }
        if open.held != self.held {
            let problem = match self.held.iter().find(|lock| !open.held.contains(lock)) {
                Some(&lock) => {
                    format!("lock {} is still held at the end of the loop", self.lock_name(lock))
                }
                None => "a loop releases a lock taken before it".to_owned(),
            };
            let accepted = "release in a loop what is taken in it, and only that";
            return self.refuse(open.start, Error::Lock, problem, accepted);
        }
        let mut body = std::mem::replace(&mut self.effects, open.effects);
        let executed = body.instant_ops.saturating_add(1).saturating_mul(open.times);
        body.instant_ops = if body.bounded() { 0 } else { executed };
        if body.instant_ops > MAX_INSTANT_OPS {
            let problem = match open.times {
                u64::MAX => "an endless loop in which no time passes".to_owned(),
                times => format!("a loop of {times} times in which no time passes"),
            };
            let accepted = "an instruction that takes time: user, kernel, irqoff, sleep, every; or \
                 a `recv` or `serve` without any `send`, `post` or `fork`";
            return self.refuse(open.start, Error::Program, problem, accepted);
        }
        self.effects.add(body);
        Ok(())
    }

    /// Refuses a program that ends inside a loop or a system call, or with a lock held.
    fn check_end(&self) -> Checked {
        let last = self.program.len().saturating_sub(1);
        if let Some(open) = self.loops.last() {
            return self.refuse(open.start, Error::Program, "a loop without an end", "");
        }
        if self.in_syscall {
            let problem = "a system call without an end";
            return self.refuse(last, Error::Program, problem, "");
        }
        if !self.held.is_empty() {
            let problem = format!("the program ends and still holds {}", self.held_list());
            return self.refuse(last, Error::Lock, problem, "unlock it first");
        }
        Ok(())
    }
}
