//! A scenario that has been read: its parts refer to each other by name.

mod outside;
mod service;

use crate::error::ByteRange;
use crate::model::{Class, CpuSet, Distribution, LockKind, LockMode, MachineSpec};
use crate::step::Step;
use cpumax_limit::Limit;
use std::time::Duration;

pub(crate) use outside::{Act, Change, Expect};
pub(crate) use service::Demand;
pub(crate) use service::Service;

/// Positions of a part and its values in the file; empty for parts made in Rust.
#[derive(Debug, Clone, Default)]
pub(crate) struct Positions {
    pub whole: ByteRange,
    pub fields: Vec<(&'static str, ByteRange)>,
}

impl Positions {
    /// Position of the value of `field`, or else of the whole part.
    pub fn of(&self, field: &str) -> ByteRange {
        self.fields.iter().find(|(name, _)| *name == field).map_or(self.whole, |(_, at)| *at)
    }
}

/// A length of time: fixed, or drawn anew each time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Length {
    /// Always the same.
    Fixed(Duration),
    /// Drawn from a distribution.
    Drawn(Distribution),
}

impl From<Duration> for Length {
    fn from(length: Duration) -> Length {
        Length::Fixed(length)
    }
}

impl From<Distribution> for Length {
    fn from(distribution: Distribution) -> Length {
        Length::Drawn(distribution)
    }
}

/// Nanoseconds; `u64::MAX` where they do not fit, which the checks refuse.
pub(crate) fn to_ns(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

/// The parts of a scenario, as the reader found them.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) shows: String,
    pub(crate) duration_ns: u64,
    pub(crate) machine: Machine,
    pub(crate) groups: Vec<Group>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) sources: Vec<Source>,
    pub(crate) changes: Vec<Change>,
    pub(crate) expectations: Vec<Expect>,
    pub(crate) positions: Positions,
}

impl Draft {
    /// One CPU, no tasks, ten seconds.
    pub fn new(name: impl Into<String>) -> Draft {
        Draft {
            name: name.into(),
            shows: String::new(),
            duration_ns: 10_000_000_000,
            machine: Machine::default(),
            groups: Vec::new(),
            locks: Vec::new(),
            channels: Vec::new(),
            tasks: Vec::new(),
            jobs: Vec::new(),
            sources: Vec::new(),
            changes: Vec::new(),
            expectations: Vec::new(),
            positions: Positions::default(),
        }
    }
}

/// The machine: [`MachineSpec`], but with CPUs and locks instead of references to them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machine {
    /// Its `nohz_full` and `softirqs` are ignored.
    pub(crate) spec: MachineSpec,
    pub(crate) nohz_full: Option<CpuSet>,
    pub(crate) softirqs: Vec<Softirq>,
    pub(crate) positions: Positions,
}

#[derive(Debug, Clone)]
pub(crate) struct Softirq {
    pub cpu: u16,
    pub every_ns: u64,
    pub lock: String,
    pub mode: Option<LockMode>,
    pub hold_ns: u64,
    pub positions: Positions,
}

/// A group under construction.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) path: String,
    pub(crate) limit: Limit,
    pub(crate) weight: u32,
    pub(crate) v1: Option<bool>,
    pub(crate) positions: Positions,
}

impl Group {
    /// An unlimited group of weight 100 at an absolute path such as `/a/b`.
    pub fn new(path: impl Into<String>) -> Group {
        Group {
            path: path.into(),
            limit: Limit::UNLIMITED,
            weight: 100,
            v1: None,
            positions: Positions::default(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub name: String,
    pub kind: LockKind,
    pub positions: Positions,
}

#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub name: String,
    pub capacity: u64,
    pub oldest_first: bool,
    pub positions: Positions,
}

/// CPUs that a task may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cpus {
    /// Every CPU of the machine.
    All,
    /// The CPUs of a set.
    Set(CpuSet),
    /// The i-th instance on the i-th CPU only (modulo the number of CPUs).
    Each,
}

/// A kind of task under construction.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) label: Option<String>,
    pub(crate) count: u32,
    pub(crate) group: String,
    pub(crate) class: Class,
    pub(crate) nice: i8,
    pub(crate) cpus: Cpus,
    pub(crate) start_ns: u64,
    pub(crate) stagger_ns: u64,
    pub(crate) slice_ns: Option<u64>,
    pub(crate) program: Vec<Step>,
    pub(crate) positions: Positions,
}

impl Task {
    /// One fair task in the root group, with an empty program: it exits at once.
    pub fn new(name: impl Into<String>) -> Task {
        Task {
            name: name.into(),
            label: None,
            count: 1,
            group: "/".to_owned(),
            class: Class::Fair,
            nice: 0,
            cpus: Cpus::All,
            start_ns: 0,
            stagger_ns: 0,
            slice_ns: None,
            program: Vec::new(),
            positions: Positions::default(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub name: String,
    pub program: Vec<Step>,
    pub positions: Positions,
}

/// An arrival process under construction.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) channel: String,
    pub(crate) arrivals: Arrive,
    pub(crate) start_ns: u64,
    pub(crate) count: u64,
    pub(crate) jobs: Vec<String>,
    pub(crate) lossy: bool,
    pub(crate) positions: Positions,
}

#[derive(Debug, Clone)]
pub(crate) enum Arrive {
    Between(Length),
    At(Vec<u64>),
}
