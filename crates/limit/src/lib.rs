//! The limit itself: quota, period and burst of one group.
//!
//! Answers to `tg_set_cfs_bandwidth()` (kernel/sched/core.c, to 7.0; `tg_set_bandwidth()` from 7.1)
//! and to the cgroup files `cpu.max`, `cpu.max.burst`, `cpu.cfs_quota_us`, `cpu.cfs_period_us`,
//! `cpu.cfs_burst_us`. Nothing here knows of tasks or time passing.

/// Smallest and largest period and smallest quota, ns.
pub const MIN_PERIOD_NS: u64 = 1_000_000;
/// Largest period, ns.
pub const MAX_PERIOD_NS: u64 = 1_000_000_000;
/// Smallest finite quota, ns.
pub const MIN_QUOTA_NS: u64 = 1_000_000;
/// Period of a group nobody has limited, ns.
pub const DEFAULT_PERIOD_NS: u64 = 100_000_000;

/// The bandwidth limit of one group. A value of this type has passed the kernel's own range checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    quota_ns: Option<u64>,
    period_ns: u64,
    burst_ns: u64,
}

impl Limit {
    /// No limit: quota `max`, the default period of 100 ms, no burst.
    pub const UNLIMITED: Limit =
        Limit { quota_ns: None, period_ns: DEFAULT_PERIOD_NS, burst_ns: 0 };

    /// Runtime per period, ns; `None` is unlimited.
    pub fn quota_ns(&self) -> Option<u64> {
        self.quota_ns
    }
    /// Length of a period, ns, within [1 ms, 1 s].
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }
    /// Unused runtime that may be carried over, ns; at most the quota when that is finite.
    pub fn burst_ns(&self) -> u64 {
        self.burst_ns
    }
}
