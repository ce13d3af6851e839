//! The verbs of programs: one function for each instruction that a task can execute.
//!
//! Names and arguments are those of scenario files (docs/reference/scenarios.md).

use crate::draft::Length;
use crate::error::ByteRange;
use crate::model::{Class, CpuSet, LockMode};

/// One instruction, or a loop or system call with instructions inside.
#[derive(Debug, Clone)]
pub(crate) struct Step {
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
pub(crate) enum TargetName {
    /// The task that executes it.
    Myself,
    /// Every live instance of the kind of this name.
    Kind(String),
}

impl From<&str> for TargetName {
    /// `self`, or the name of a kind.
    fn from(name: &str) -> TargetName {
        match name {
            "self" => TargetName::Myself,
            _ => TargetName::Kind(name.to_owned()),
        }
    }
}
