//! What is done to a workload from outside, and what its run must show.

use super::{Class, CpuSetIx, GroupIx, TaskIx};
use crate::limit_serde;
use cpumax_limit::Limit;
use serde::{Deserialize, Serialize};

/// Something done from outside at a given time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervention {
    /// When for the first time, ns.
    pub at_ns: u64,
    /// Again after each `every_ns` …
    pub every_ns: Option<u64>,
    /// … until then (exclusive).
    pub until_ns: u64,
    /// What is done.
    pub action: Action,
}

/// What can be done from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Write `cpu.max`, its burst, or one after the other: what changes.
    WriteLimit {
        /// Which group; not the root.
        group: GroupIx,
        /// The limit it has from then on.
        #[serde(with = "limit_serde")]
        limit: Limit,
    },
    /// Write `cpu.weight`.
    WriteWeight {
        /// Which group; not the root.
        group: GroupIx,
        /// 1 to 10000.
        weight: u32,
    },
    /// Send a signal to every task of a kind.
    Signal {
        /// Which kind.
        kind: TaskIx,
        /// Which signal.
        signal: Signal,
    },
    /// Move every task of a kind to a group.
    Move {
        /// Which kind.
        kind: TaskIx,
        /// Where to.
        group: GroupIx,
    },
    /// Change which CPUs every task of a kind may use.
    SetAffinity {
        /// Which kind.
        kind: TaskIx,
        /// Which CPUs.
        cpus: CpuSetIx,
    },
    /// Change the nice value of every task of a kind.
    SetNice {
        /// Which kind.
        kind: TaskIx,
        /// -20 to 19.
        nice: i8,
    },
    /// Change the class of every task of a kind.
    SetClass {
        /// Which kind; not kernel threads.
        kind: TaskIx,
        /// Any but `Kthread`.
        class: Class,
    },
    /// Take a CPU off line.
    CpuOffline {
        /// Which; not CPU 0.
        cpu: u16,
    },
    /// Bring a CPU back.
    CpuOnline {
        /// Which.
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

/// What a run must show. Checked by whoever runs the workload, on the kernels it names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Versions, ranges and generation names, comma-separated, as `--kernel` takes them; empty:
    /// all.
    pub kernels: String,
    /// Path of a number in the result, e.g. `groups./limited.usage_usec`,
    /// `tasks.hog.latency_ns.max`.
    pub metric: String,
    /// Divided by the same metric on this kernel, when given.
    pub over: Option<String>,
    /// Divided by this other metric of the same run, when given.
    pub per: Option<String>,
    /// It must be at least this.
    pub min: Option<f64>,
    /// It must be at most this.
    pub max: Option<f64>,
    /// Why it must be so.
    pub why: String,
}
