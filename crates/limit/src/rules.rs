//! What differs between kernels in how a limit is read and checked. Generations are data.

/// How one kernel version reads and checks limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// A finite quota may not exceed 2^44-1 us (5.8).
    pub quota_has_maximum: bool,
    /// `cpu.max.burst` and `cpu.cfs_burst_us` exist (5.14).
    pub burst: bool,
    /// A number in `cpu.max` too large to be turned into nanoseconds is refused; before, it wraps.
    pub cpu_max_refuses_overflow: bool,
    /// A write to `cpu.max` leaves the burst as it is; before, it divides it by 1000 (fixed in
    /// 6.10 and in the long-term kernels of that time).
    pub cpu_max_keeps_burst: bool,
    /// The effective ratio of a v2 group is the smallest above it; before 6.6 always unlimited.
    pub v2_ratio_inherited: bool,
    /// `cpu.stat` has `nr_bursts` and `burst_usec` (5.15).
    pub burst_stat: bool,
    /// `cpu.stat.local` exists (6.6).
    pub stat_local: bool,
}

impl Rules {
    /// The newest kernel known here, 7.3.
    pub const NEWEST: Rules = Rules {
        quota_has_maximum: true,
        burst: true,
        cpu_max_refuses_overflow: true,
        cpu_max_keeps_burst: true,
        v2_ratio_inherited: true,
        burst_stat: true,
        stat_local: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Rules::NEWEST
    }
}
