//! The limit of one group: quota, period and burst, as the kernel reads, checks and prints them.
//!
//! Follows `tg_set_cfs_bandwidth()` (kernel/sched/core.c; from 6.17 `tg_set_bandwidth()`) and the
//! cgroup files `cpu.max`, `cpu.max.burst`, `cpu.cfs_quota_us`, `cpu.cfs_period_us`,
//! `cpu.cfs_burst_us`, `cpu.stat` and `cpu.stat.local`. A write that the kernel refuses is an error
//! that names the broken rule. Text that the kernel takes by accident (trailing junk, wrapped
//! numbers) is taken here too. Nothing in this crate knows of tasks or of time passing.

mod error;
mod file;
mod hierarchy;
mod number;
mod rules;
mod setting;
mod stat;
mod text;
mod written;

pub use error::{Errno, LimitError, Member};
pub use file::{BURST_SINCE, File};
pub use hierarchy::{Hierarchy, Place, RATIO_ONE};
pub use rules::Rules;
pub use setting::{Applied, Missing, Part, Setting, SettingError, Target};
pub use stat::{CpuStat, LocalStat, StatError};
pub use text::{escaped, is_hidden, one_line, shown};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// Smallest period, ns.
pub const MIN_PERIOD_NS: u64 = 1_000_000;
/// Largest period, ns.
pub const MAX_PERIOD_NS: u64 = 1_000_000_000;
/// Smallest finite quota, ns.
pub const MIN_QUOTA_NS: u64 = 1_000_000;
/// Largest finite quota, and largest sum of quota and burst, ns: 2^44-1 us, about 203 days.
pub const MAX_QUOTA_NS: u64 = ((1 << 44) - 1) * NS_PER_US;
/// Period of a new group, ns.
pub const DEFAULT_PERIOD_NS: u64 = 100_000_000;

pub(crate) const NS_PER_US: u64 = 1_000;

/// The bandwidth limit of one group. A value of this type has passed the kernel's own range checks.
///
/// ```
/// use cpumax_limit::Limit;
///
/// let half = Limit::UNLIMITED.write_cpu_max("50000 100000")?;
/// assert_eq!(half.quota_ns(), Some(50_000_000));
/// assert_eq!(half.write_cpu_max("max")?.to_string(), "max 100000");
/// assert!(half.write_cpu_max("500").is_err());
/// # Ok::<(), cpumax_limit::LimitError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(into = "written::Written", try_from = "written::Written")]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
pub struct Limit {
    quota_ns: Option<u64>,
    period_ns: u64,
    burst_ns: u64,
}

impl Limit {
    /// No limit: quota `max`, the default period of 100 ms, no burst.
    pub const UNLIMITED: Limit =
        Limit { quota_ns: None, period_ns: DEFAULT_PERIOD_NS, burst_ns: 0 };

    /// The limit with these three members, checked by the rules of the newest kernel, in its order.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(quota_ns: Option<u64>, period_ns: u64, burst_ns: u64) -> Result<Limit, LimitError> {
        Limit::new_under(&Rules::NEWEST, quota_ns, period_ns, burst_ns)
    }

    /// Builds a limit of quota and burst in a period, ns, by the rules of a given kernel;
    /// `quota_ns`: `None` for no limit.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn new_under(
        rules: &Rules,
        quota_ns: Option<u64>,
        period_ns: u64,
        burst_ns: u64,
    ) -> Result<Limit, LimitError> {
        if let Some(quota_ns) = quota_ns
            && quota_ns < MIN_QUOTA_NS
        {
            return Err(LimitError::QuotaTooSmall { quota_ns });
        }
        if period_ns < MIN_PERIOD_NS {
            return Err(LimitError::PeriodTooSmall { period_ns });
        }
        if period_ns > MAX_PERIOD_NS {
            return Err(LimitError::PeriodTooLarge { period_ns });
        }
        if burst_ns > 0 && !rules.burst {
            return Err(LimitError::NoBurst);
        }
        if let Some(quota_ns) = quota_ns {
            if rules.quota_has_maximum && quota_ns > MAX_QUOTA_NS {
                return Err(LimitError::QuotaTooLarge { quota_ns });
            }
            // The kernel skips this check while the quota is `max`. A burst may then exceed a quota
            // that is written later; that later write is refused.
            if burst_ns > quota_ns {
                return Err(LimitError::BurstAboveQuota { burst_ns, quota_ns });
            }
            if rules.burst && burst_ns.saturating_add(quota_ns) > MAX_QUOTA_NS {
                return Err(LimitError::BurstAndQuotaTooLarge { burst_ns, quota_ns });
            }
        }
        Ok(Limit { quota_ns, period_ns, burst_ns })
    }

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

    /// The limits after each write that turns `old` into this one, this one last. Each file takes
    /// its part, and each write refills (kernel: `tg_set_cfs_bandwidth()`). A burst above the quota
    /// is refused, so it shrinks first and grows last. Equal limits give one write to `cpu.max`.
    pub fn steps_from(self, old: Limit) -> impl Iterator<Item = Limit> {
        let between = match self.burst_ns.cmp(&old.burst_ns) {
            Ordering::Less => Limit { burst_ns: self.burst_ns, ..old },
            Ordering::Equal => self,
            Ordering::Greater => Limit { burst_ns: old.burst_ns, ..self },
        };
        Some(between).filter(|step| *step != old && *step != self).into_iter().chain([self])
    }

    /// The limit after a write of `text` to `cpu.max`, e.g. `50000 100000`, `max`, on the newest
    /// kernel; this one stays as it is.
    ///
    /// A lone token keeps the period; the burst is always kept.
    ///
    /// # Errors
    /// The first rule that is broken; the limit then stays as it was.
    pub fn write_cpu_max(&self, text: &str) -> Result<Limit, LimitError> {
        self.write(File::CpuMax, text, &Rules::NEWEST)
    }

    /// The limit after a write of `text` (microseconds) to `cpu.max.burst` on the newest kernel;
    /// this one stays as it is.
    ///
    /// # Errors
    /// The first rule that is broken; the limit then stays as it was.
    pub fn write_cpu_max_burst(&self, text: &str) -> Result<Limit, LimitError> {
        self.write(File::CpuMaxBurst, text, &Rules::NEWEST)
    }

    /// The part of it that a kernel with these rules does not have: the burst, or nothing.
    pub fn missing_under(&self, rules: &Rules) -> Option<Missing> {
        let missing = Missing { file: File::CpuMaxBurst.name(), since: BURST_SINCE };
        (self.burst_ns > 0 && !rules.burst).then_some(missing)
    }

    /// The limit of so many thousandths of a CPU in periods of this length, with the quota rounded
    /// down to whole microseconds; `None` where the kernel would refuse it.
    pub fn of_millicpus(millicpus: u64, period_ns: u64) -> Option<Limit> {
        let quota_us = millicpus.checked_mul(period_ns)? / 1_000 / NS_PER_US;
        Limit::new(Some(quota_us * NS_PER_US), period_ns, 0).ok()
    }

    /// CPUs that the quota gives, without burst; `None` is unlimited.
    pub fn cpus(&self) -> Option<f64> {
        Some(self.quota_ns? as f64 / self.period_ns as f64)
    }

    /// Thousandths of a CPU, as Kubernetes counts them, rounded up; `None` is unlimited.
    pub fn millicpus(&self) -> Option<u64> {
        self.parts_of_cpus(1_000)
    }

    /// Per cent of a CPU, as in systemd's `CPUQuota=`, rounded up; `None` is unlimited.
    pub fn percent(&self) -> Option<u64> {
        self.parts_of_cpus(100)
    }

    /// The quota in parts of a CPU, `parts` to each CPU, rounded up; `None` is unlimited.
    fn parts_of_cpus(&self, parts: u64) -> Option<u64> {
        let quota = u128::from(self.quota_ns?) * u128::from(parts);
        // Quotas are at most 2^44 us, and periods at least 1 ms.
        u64::try_from(quota.div_ceil(u128::from(self.period_ns))).ok()
    }

    /// The limit with another burst, ns, checked by the rules of the newest kernel.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn with_burst_ns(&self, burst_ns: u64) -> Result<Limit, LimitError> {
        Limit::new(self.quota_ns, self.period_ns, burst_ns)
    }
}

impl Default for Limit {
    fn default() -> Self {
        Limit::UNLIMITED
    }
}

/// As `cpu.max` reads: `50000 100000` or `max 100000`.
impl fmt::Display for Limit {
    /// Writes quota and period in us as `cpu.max` has them: `50000 100000`, or `max 100000` without
    /// a quota.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period_us = self.period_ns / NS_PER_US;
        match self.quota_ns {
            Some(quota_ns) => write!(f, "{} {period_us}", quota_ns / NS_PER_US),
            None => write!(f, "max {period_us}"),
        }
    }
}

#[cfg(test)]
mod tests;
