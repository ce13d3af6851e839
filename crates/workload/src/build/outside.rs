//! Builders of changes from outside and of expectations.

use super::{Positions, to_ns};
use crate::model::{Class, CpuSet, Signal};
use cpumax_limit::Limit;
use std::time::Duration;

/// A change from outside under construction.
#[derive(Debug, Clone)]
pub struct Change {
    pub(crate) at_ns: u64,
    pub(crate) every_ns: Option<u64>,
    pub(crate) until_ns: u64,
    pub(crate) act: Act,
    pub(crate) positions: Positions,
}

/// A change from outside; groups and tasks by name.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Act {
    /// Write the whole limit of a group.
    Limit(String, Limit),
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

impl Change {
    /// A change that is made once, at that time since the start of the run.
    pub fn at(time: Duration, act: Act) -> Change {
        Change {
            at_ns: to_ns(time),
            every_ns: None,
            until_ns: u64::MAX,
            act,
            positions: Positions::default(),
        }
    }

    /// Repeats the change after each such length of time, to the end of the run unless `until` is
    /// set.
    #[must_use]
    pub fn repeat(mut self, every: Duration) -> Change {
        self.every_ns = Some(to_ns(every));
        self
    }

    /// Ends the repetition at that time, exclusive.
    #[must_use]
    pub fn until(mut self, until: Duration) -> Change {
        self.until_ns = to_ns(until);
        self
    }
}

/// An expectation under construction.
#[derive(Debug, Clone)]
pub struct Expect {
    pub(crate) expectation: crate::model::Expectation,
    pub(crate) positions: Positions,
}

impl Expect {
    /// Wraps an expectation whose kernels and metrics are not yet checked.
    pub fn new(expectation: crate::model::Expectation) -> Expect {
        Expect { expectation, positions: Positions::default() }
    }
}
