//! Changes from outside during a run, and the bounds that its results must meet.

use super::{Class, CpuSetIx, GroupIx, TaskIx};
use crate::limit_serde;
use cpumax_limit::Limit;
use serde::{Deserialize, Serialize};

/// A change made from outside at a given time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervention {
    /// Time of the first change, ns.
    pub at_ns: u64,
    /// Interval after which it is repeated, ns; `None`: once.
    pub every_ns: Option<u64>,
    /// End of the repetition, ns (exclusive).
    pub until_ns: u64,
    /// The change.
    pub action: Action,
}

/// Changes that can be made from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Write `cpu.max`, `cpu.max.burst`, or both in turn: only the files whose value changes.
    WriteLimit {
        /// The group; not the root.
        group: GroupIx,
        /// Its new limit.
        #[serde(with = "limit_serde")]
        limit: Limit,
    },
    /// Write `cpu.weight`.
    WriteWeight {
        /// The group; not the root.
        group: GroupIx,
        /// Its new weight, 1 to 10000.
        weight: u32,
    },
    /// Send a signal to every task of a kind.
    Signal {
        /// The kind of task.
        kind: TaskIx,
        /// The signal.
        signal: Signal,
    },
    /// Move every task of a kind to a group.
    Move {
        /// The kind of task.
        kind: TaskIx,
        /// Their new group.
        group: GroupIx,
    },
    /// Change the CPUs that every task of a kind may use.
    SetAffinity {
        /// The kind of task.
        kind: TaskIx,
        /// Their new CPUs.
        cpus: CpuSetIx,
    },
    /// Change the nice value of every task of a kind.
    SetNice {
        /// The kind of task.
        kind: TaskIx,
        /// Their new nice value, -20 to 19.
        nice: i8,
    },
    /// Change the class of every task of a kind.
    SetClass {
        /// The kind of task; not a kernel thread.
        kind: TaskIx,
        /// Their new class; any but `Kthread`.
        class: Class,
    },
    /// Take a CPU offline.
    CpuOffline {
        /// The CPU; not CPU 0.
        cpu: u16,
    },
    /// Bring a CPU online.
    CpuOnline {
        /// The CPU.
        cpu: u16,
    },
}

/// A signal sent from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// `SIGKILL`
    Kill,
    /// `SIGSTOP`
    Stop,
    /// `SIGCONT`
    Cont,
}

/// A bound that a result must meet on the named kernels. Each world's runner checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Versions, ranges and generation names, comma-separated, in the syntax of `--kernel`; empty:
    /// all.
    pub kernels: String,
    /// Path of a number in the result, e.g. `groups./limited.usage_usec`,
    /// `tasks.hog.latency_ns.max`.
    pub metric: String,
    /// Kernel whose value of the same metric divides this one.
    pub over: Option<String>,
    /// Another metric of the same run that divides this one.
    pub per: Option<String>,
    /// Lower bound, included.
    pub min: Option<f64>,
    /// Upper bound, included.
    pub max: Option<f64>,
    /// Reason for the bound.
    pub why: String,
}
