//! The verbs of programs: one function for each instruction that a task can execute.
//!
//! Names and arguments are those of scenario files (docs/reference/scenarios.md).

use crate::build::{Length, to_ns};
use crate::error::ByteRange;
use crate::model::{Class, CpuSet, LockMode};
use std::time::Duration;

/// One instruction, or a loop or system call with instructions inside.
#[derive(Debug, Clone)]
pub struct Step {
    pub(crate) verb: Verb,
    pub(crate) at: ByteRange,
}

#[derive(Debug, Clone)]
pub(crate) enum Verb {
    User(Length),
    Kernel(Length),
    IrqOff(Length),
    Sleep(Length),
    Every {
        period_ns: u64,
    },
    Syscall(Vec<Step>),
    Loop {
        times: u64,
        body: Vec<Step>,
    },
    /// `None`: exclusive, for kinds of lock without readers.
    Lock {
        lock: String,
        mode: Option<LockMode>,
    },
    Unlock {
        lock: String,
    },
    Send {
        channel: String,
        n: u64,
    },
    Recv {
        channel: String,
        n: u64,
    },
    Serve {
        channel: String,
    },
    /// At once, or after a delay.
    Post {
        after: Option<Length>,
        job: String,
        channel: String,
        /// The token keeps the poster's request, although it arrives later.
        keep: bool,
    },
    Fork {
        kind: String,
    },
    WaitChildren,
    Exit,
    Yield,
    Move {
        who: TargetName,
        group: String,
    },
    Affinity {
        who: TargetName,
        cpus: CpuSet,
    },
    Nice {
        who: TargetName,
        nice: i8,
    },
    Class {
        who: TargetName,
        class: Class,
    },
    Begin,
    Done,
}

/// Tasks at which an instruction is aimed, by the name of their kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetName {
    /// The task that executes it.
    Myself,
    /// Every live instance of the kind of this name.
    Kind(String),
}

impl From<&str> for TargetName {
    /// The task itself for `self`, or else the kind of this name.
    fn from(name: &str) -> TargetName {
        match name {
            "self" => TargetName::Myself,
            _ => TargetName::Kind(name.to_owned()),
        }
    }
}

/// The step of a verb, without a position in a file.
fn step(verb: Verb) -> Step {
    Step { verb, at: ByteRange::default() }
}

/// The steps in order.
fn steps(body: impl IntoIterator<Item = Step>) -> Vec<Step> {
    body.into_iter().collect()
}

/// A step: run in user mode for this length.
pub fn user(length: impl Into<Length>) -> Step {
    step(Verb::User(length.into()))
}

/// A step: run in kernel mode for this length; outside [`syscall`], in a system call of that
/// length.
pub fn kernel(length: impl Into<Length>) -> Step {
    step(Verb::Kernel(length.into()))
}

/// A step: run in kernel mode with interrupts off for this length.
pub fn irqoff(length: impl Into<Length>) -> Step {
    step(Verb::IrqOff(length.into()))
}

/// A step: sleep for that long.
pub fn sleep(length: impl Into<Length>) -> Step {
    step(Verb::Sleep(length.into()))
}

/// A step: sleep to the next multiple of `period` after the task's start; a late task does not
/// sleep.
pub fn every(period: Duration) -> Step {
    step(Verb::Every { period_ns: to_ns(period) })
}

/// A step: one system call with these instructions inside.
pub fn syscall(body: impl IntoIterator<Item = Step>) -> Step {
    step(Verb::Syscall(steps(body)))
}

/// A step: repeat the instructions without end.
pub fn forever(body: impl IntoIterator<Item = Step>) -> Step {
    step(Verb::Loop { times: u64::MAX, body: steps(body) })
}

/// A step: repeat the instructions `times` times; the checks refuse 0.
pub fn repeat(times: u64, body: impl IntoIterator<Item = Step>) -> Step {
    // `u64::MAX` stands for `forever`; numbers in files end at `i64::MAX`.
    step(Verb::Loop { times: times.min(i64::MAX as u64), body: steps(body) })
}

/// A step: take a lock without readers, a mutex or a spin lock.
pub fn lock(lock: impl Into<String>) -> Step {
    step(Verb::Lock { lock: lock.into(), mode: None })
}

/// A step: take a lock together with other readers.
pub fn read_lock(lock: impl Into<String>) -> Step {
    step(Verb::Lock { lock: lock.into(), mode: Some(LockMode::Read) })
}

/// A step: take a lock alone that others may take as readers.
pub fn write_lock(lock: impl Into<String>) -> Step {
    step(Verb::Lock { lock: lock.into(), mode: Some(LockMode::Write) })
}

/// A step: release a lock that the task holds.
pub fn unlock(lock: impl Into<String>) -> Step {
    step(Verb::Unlock { lock: lock.into() })
}

/// A step: put `n` tokens in a channel, and wait while it is full.
pub fn send(channel: impl Into<String>, n: u64) -> Step {
    step(Verb::Send { channel: channel.into(), n })
}

/// A step: take `n` tokens out of a channel, and wait for them.
pub fn recv(channel: impl Into<String>, n: u64) -> Step {
    step(Verb::Recv { channel: channel.into(), n })
}

/// A step: take the next token out of a channel, wait for it, and do the job that it carries, if
/// any.
pub fn serve(channel: impl Into<String>) -> Step {
    step(Verb::Serve { channel: channel.into() })
}

/// A step: put a token that carries a job in a channel. Its request is the poster's.
pub fn post(job: impl Into<String>, channel: impl Into<String>) -> Step {
    step(Verb::Post { after: None, job: job.into(), channel: channel.into(), keep: false })
}

/// A step: after `delay`, a token that carries a job arrives in a channel; the task goes on at
/// once. The token's request starts on arrival.
pub fn post_after(
    delay: impl Into<Length>,
    job: impl Into<String>,
    channel: impl Into<String>,
) -> Step {
    let after = Some(delay.into());
    step(Verb::Post { after, job: job.into(), channel: channel.into(), keep: false })
}

/// A step like [`post_after`], but the token keeps the request of the task that executes it.
pub fn go_on_after(
    delay: impl Into<Length>,
    job: impl Into<String>,
    channel: impl Into<String>,
) -> Step {
    let after = Some(delay.into());
    step(Verb::Post { after, job: job.into(), channel: channel.into(), keep: true })
}

/// A step: start one new task of that kind in the caller's group.
pub fn fork(kind: impl Into<String>) -> Step {
    step(Verb::Fork { kind: kind.into() })
}

/// A step: wait until every child has exited.
pub fn wait_children() -> Step {
    step(Verb::WaitChildren)
}

/// A step: exit.
pub fn exit() -> Step {
    step(Verb::Exit)
}

/// A step: yield the CPU (`sched_yield()`).
pub fn yield_now() -> Step {
    step(Verb::Yield)
}

/// A step: move tasks to another group.
pub fn move_to(who: impl Into<TargetName>, group: impl Into<String>) -> Step {
    step(Verb::Move { who: who.into(), group: group.into() })
}

/// A step: change the CPUs that tasks may use.
pub fn affinity(who: impl Into<TargetName>, cpus: CpuSet) -> Step {
    step(Verb::Affinity { who: who.into(), cpus })
}

/// A step: change the nice value of tasks.
pub fn nice(who: impl Into<TargetName>, nice: i8) -> Step {
    step(Verb::Nice { who: who.into(), nice })
}

/// A step: change the class of tasks.
pub fn class(who: impl Into<TargetName>, class: Class) -> Step {
    step(Verb::Class { who: who.into(), class })
}

/// A step: a request starts here.
pub fn begin() -> Step {
    step(Verb::Begin)
}

/// A step: a request is complete, which records its latency.
pub fn done() -> Step {
    step(Verb::Done)
}
