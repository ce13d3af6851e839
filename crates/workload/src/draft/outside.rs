//! Builders of changes from outside and of expectations.

use super::Positions;
use crate::model::{Class, CpuSet, Signal};

/// A change from outside under construction.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) at_ns: u64,
    pub(crate) every_ns: Option<u64>,
    pub(crate) until_ns: u64,
    pub(crate) act: Act,
    pub(crate) positions: Positions,
}

/// A change from outside; groups and tasks by name.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub(crate) enum Act {
    /// Write `cpu.max`, `cpu.max.burst` or both, in this order, as text.
    LimitFiles {
        /// Path of the group.
        group: String,
        /// Text for `cpu.max`.
        max: Option<String>,
        /// Text for `cpu.max.burst`.
        burst: Option<String>,
    },
    /// Write `cpu.weight` of a group.
    Weight(String, u32),
    /// Send a signal to every task of a kind.
    Signal(String, Signal),
    /// Move every task of a kind to a group.
    Move(String, String),
    /// Change the CPUs that every task of a kind may use.
    Affinity(String, CpuSet),
    /// Change the nice value of every task of a kind.
    Nice(String, i8),
    /// Change the class of every task of a kind.
    Class(String, Class),
    /// Take a CPU offline.
    Offline(u16),
    /// Bring a CPU online.
    Online(u16),
}

/// An expectation under construction.
#[derive(Debug, Clone)]
pub(crate) struct Expect {
    pub(crate) expectation: crate::model::Expectation,
    pub(crate) positions: Positions,
}
