//! A group of tasks and its bandwidth pool (kernel: `task_group`, `cfs_bandwidth`).

use crate::cost::Section;
use crate::ids::{CfsRqId, CpuId, GroupId};
use crate::latency::Latencies;
use crate::windows::Windows;

/// Fields that queueing uses come first and fit a cache line.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub(crate) struct Group {
    pub parent: GroupId,
    /// Groups in its subtree, itself included.
    pub subtree: u32,
    /// Tasks queued or parked in its subtree on all CPUs (pull rules).
    pub h_nr: u32,
    /// Sum of the runnable averages that its run queues published, 1024 per task. See
    /// `fair/load.rs`.
    pub runnable_avg: u32,
    pub weight: u64,
    /// Sum of the loads that its run queues published. See `fair/weight.rs`.
    pub load_avg: u64,
    /// CPU time used by it and its descendants, ns.
    pub usage_ns: u64,
    /// `throttled_usec` of `cpu.stat.local`, ns.
    pub throttled_self_ns: u64,
    pub pool: Pool,
    pub stat: Stat,
    /// Its run queue on each CPU, or none; empty until the first is created.
    pub cfs_rqs: Vec<CfsRqId>,
    /// When all of them last published their loads, ns.
    pub gathered_ns: u64,
    /// CPU time by windows of its period, while it is limited.
    pub windows: Windows,
    pub latencies: Latencies,
}

const _: () = {
    let quota = std::mem::offset_of!(Group, pool) + std::mem::offset_of!(Pool, quota_ns);
    assert!(quota + size_of::<Option<u64>>() == 64);
};

/// The pool from which a group's CPUs take runtime.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub(crate) struct Pool {
    /// Quota, ns; `None`: unlimited.
    pub quota_ns: Option<u64>,
    pub period_ns: u64,
    pub burst_ns: u64,
    pub runtime_ns: u64,
    /// Runtime right after the last refill, ns.
    pub runtime_snap_ns: u64,
    /// No runtime was taken since the period timer last fired.
    pub idle: bool,
    pub timer: PeriodTimer,
    /// The slack timer is armed.
    pub slack_started: bool,
    pub slack_cpu: CpuId,
    /// A distribution is in progress.
    pub distributing: bool,
    /// The distribution under way, where it takes time.
    pub distribution: Option<Box<Distribution>>,
    /// Throttled run queues in the order in which they are served.
    pub throttled: Vec<CfsRqId>,
    /// When the runtime expires, ns, and the number of refills (to 5.3).
    pub expires_ns: u64,
    pub expires_seq: u32,
    pub books: Books,
    pub pull: PoolPull,
}

/// A group's period timer.
#[derive(Debug, Clone, Default)]
pub(crate) struct PeriodTimer {
    /// It is armed (kernel: `period_active`), on the CPU that armed it. Its expiry, ns, is kept
    /// while it is not armed: the phase of a group never changes.
    pub active: bool,
    pub expiry_ns: u64,
    pub cpu: CpuId,
    /// Passes of its current call.
    pub passes: u32,
}

/// For the conservation check, ns: runtime added by refills; removed by caps, expiry and limit
/// writes; charged to run queues.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
pub(crate) struct Books {
    pub refilled_ns: i128,
    pub discarded_ns: i128,
    pub charged_ns: i128,
}

/// State of a pool under the pull rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct PoolPull {
    /// Incremented whenever the pool gains runtime, so that a denied run queue knows by one
    /// comparison whether asking again can help.
    pub epoch: u64,
    /// Time run without runtime, mostly in the kernel, that is not paid back yet, ns.
    pub debt_ns: u64,
    /// Share of the current refill for each waiting CPU, ns.
    pub share_ns: u64,
    /// Some run queue was denied since the last refill.
    pub denied: bool,
}

/// A distribution under way. Where unthrottling takes time, other events happen in between.
#[derive(Debug, Clone)]
pub(crate) struct Distribution {
    /// The CPU whose interrupt it is.
    pub cpu: CpuId,
    pub timer: Timer,
    pub list: Vec<CfsRqId>,
    pub at: usize,
    /// The run queue of the distributing CPU, which is unthrottled last.
    pub local: CfsRqId,
    pub still_throttled: bool,
    /// Before 5.8 the distribution spends a copy of the pool, without what is given back
    /// meanwhile.
    pub copy_ns: u64,
    /// Cost of this irq-off section, and of earlier sections of this call, ns.
    pub section: Section,
    pub spent_ns: u64,
    pub next_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Period,
    Slack,
}

/// The fields of `cpu.stat` that bandwidth control keeps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stat {
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_ns: u64,
    pub nr_bursts: u64,
    pub burst_ns: u64,
}

impl Pool {
    /// A pool without limit, with the default period.
    pub fn new() -> Pool {
        Pool {
            period_ns: cpumax_limit::DEFAULT_PERIOD_NS,
            timer: PeriodTimer { cpu: CpuId(0), ..PeriodTimer::default() },
            slack_cpu: CpuId(0),
            ..Pool::default()
        }
    }
}
