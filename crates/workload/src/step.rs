//! The verbs of programs: one function for each instruction that a task can execute.
//!
//! Each is named as in scenario files (docs/reference/scenarios.md) and takes what stands there.

use crate::build::{Length, to_ns};
use crate::error::Stretch;
use crate::model::{Class, CpuSet, LockMode};
use std::time::Duration;

/// One instruction, or a loop or system call with instructions inside.
#[derive(Debug, Clone)]
pub struct Step {
    pub(crate) what: What,
    pub(crate) at: Stretch,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
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
    /// Without a mode: exclusive, for kinds of lock that have no other.
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
    /// At once, or so much later.
    Post {
        after: Option<Length>,
        job: String,
        channel: String,
        /// The token's request is the poster's, though it comes later.
        keep: bool,
    },
    Fork {
        kind: String,
    },
    WaitChildren,
    Exit,
    Yield,
    Move {
        who: Who,
        group: String,
    },
    Affinity {
        who: Who,
        cpus: CpuSet,
    },
    Nice {
        who: Who,
        nice: i8,
    },
    Class {
        who: Who,
        class: Class,
    },
    Begin,
    Done,
}

/// Whom an instruction is aimed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// The task that executes it.
    Myself,
    /// Every live instance of the kind of this name.
    Kind(String),
}

impl From<&str> for Who {
    /// `self`, or the name of a kind.
    fn from(name: &str) -> Who {
        match name {
            "self" => Who::Myself,
            _ => Who::Kind(name.to_owned()),
        }
    }
}

fn step(what: What) -> Step {
    Step { what, at: Stretch::default() }
}

fn steps(body: impl IntoIterator<Item = Step>) -> Vec<Step> {
    body.into_iter().collect()
}

/// Run in user mode.
pub fn user(length: impl Into<Length>) -> Step {
    step(What::User(length.into()))
}

/// Run in kernel mode; outside [`syscall`], a system call of that length.
pub fn kernel(length: impl Into<Length>) -> Step {
    step(What::Kernel(length.into()))
}

/// Run in kernel mode with interrupts off.
pub fn irqoff(length: impl Into<Length>) -> Step {
    step(What::IrqOff(length.into()))
}

/// Sleep for that long.
pub fn sleep(length: impl Into<Length>) -> Step {
    step(What::Sleep(length.into()))
}

/// Sleep to the next multiple of `period` after the task's start.
pub fn every(period: Duration) -> Step {
    step(What::Every { period_ns: to_ns(period) })
}

/// One stay in kernel mode.
pub fn syscall(body: impl IntoIterator<Item = Step>) -> Step {
    step(What::Syscall(steps(body)))
}

/// Again and again, without end.
pub fn forever(body: impl IntoIterator<Item = Step>) -> Step {
    step(What::Loop { times: u64::MAX, body: steps(body) })
}

/// So many times, at least once.
pub fn repeat(times: u64, body: impl IntoIterator<Item = Step>) -> Step {
    // The largest number would stand for `forever`; files do not count further than this.
    step(What::Loop { times: times.min(i64::MAX as u64), body: steps(body) })
}

/// Take a mutex or a spin lock.
pub fn lock(lock: impl Into<String>) -> Step {
    step(What::Lock { lock: lock.into(), mode: None })
}

/// Take a lock together with other readers.
pub fn read_lock(lock: impl Into<String>) -> Step {
    step(What::Lock { lock: lock.into(), mode: Some(LockMode::Read) })
}

/// Take a lock alone.
pub fn write_lock(lock: impl Into<String>) -> Step {
    step(What::Lock { lock: lock.into(), mode: Some(LockMode::Write) })
}

/// Release a lock.
pub fn unlock(lock: impl Into<String>) -> Step {
    step(What::Unlock { lock: lock.into() })
}

/// Put `n` tokens in a channel.
pub fn send(channel: impl Into<String>, n: u64) -> Step {
    step(What::Send { channel: channel.into(), n })
}

/// Take `n` tokens out of a channel, waiting for them.
pub fn recv(channel: impl Into<String>, n: u64) -> Step {
    step(What::Recv { channel: channel.into(), n })
}

/// Take the next token out of a channel, waiting for it, and do the job that it carries.
pub fn serve(channel: impl Into<String>) -> Step {
    step(What::Serve { channel: channel.into() })
}

/// Put a token that carries a job in a channel. Its request is the one under way.
pub fn post(job: impl Into<String>, channel: impl Into<String>) -> Step {
    step(What::Post { after: None, job: job.into(), channel: channel.into(), keep: false })
}

/// Have a token that carries a job come to a channel so much later. Its request starts then.
pub fn post_after(
    delay: impl Into<Length>,
    job: impl Into<String>,
    channel: impl Into<String>,
) -> Step {
    let after = Some(delay.into());
    step(What::Post { after, job: job.into(), channel: channel.into(), keep: false })
}

/// The same, but the request is still that of the task that executes it.
pub fn go_on_after(
    delay: impl Into<Length>,
    job: impl Into<String>,
    channel: impl Into<String>,
) -> Step {
    let after = Some(delay.into());
    step(What::Post { after, job: job.into(), channel: channel.into(), keep: true })
}

/// Start one new task of that kind.
pub fn fork(kind: impl Into<String>) -> Step {
    step(What::Fork { kind: kind.into() })
}

/// Wait until every child has exited.
pub fn wait_children() -> Step {
    step(What::WaitChildren)
}

/// End here.
pub fn exit() -> Step {
    step(What::Exit)
}

/// Let others run.
pub fn yield_now() -> Step {
    step(What::Yield)
}

/// Move tasks to another group.
pub fn move_to(who: impl Into<Who>, group: impl Into<String>) -> Step {
    step(What::Move { who: who.into(), group: group.into() })
}

/// Change which CPUs tasks may use.
pub fn affinity(who: impl Into<Who>, cpus: CpuSet) -> Step {
    step(What::Affinity { who: who.into(), cpus })
}

/// Change the nice value of tasks.
pub fn nice(who: impl Into<Who>, nice: i8) -> Step {
    step(What::Nice { who: who.into(), nice })
}

/// Change the class of tasks.
pub fn class(who: impl Into<Who>, class: Class) -> Step {
    step(What::Class { who: who.into(), class })
}

/// A request starts here.
pub fn begin() -> Step {
    step(What::Begin)
}

/// A request is complete.
pub fn done() -> Step {
    step(What::Done)
}
