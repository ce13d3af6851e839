//! Fills the pool of a group just before a run, by writing its limit again (kernel:
//! `tg_set_cfs_bandwidth()`).

use crate::cgroup::{Group, Hierarchy};
use cpumax_limit::Limit;

/// The kernel's least quota, ns.
const MIN_NS: u64 = 1_000_000;

/// Runtime in the pool, ns, at most quota and burst, that [`refill_pool`] leaves for a limit with a
/// burst: 1 ms and a quota; with `again` one more quota, of a refill at a period edge since then.
pub(crate) fn runtime_after_refill_ns(limit: Limit, again: bool) -> u64 {
    let quota_ns = limit.quota_ns().unwrap_or(0);
    let refills = 1 + u64::from(again);
    (MIN_NS + refills * quota_ns).min(quota_ns + limit.burst_ns())
}

/// Writes a group's limit again, which fills its pool and arms its period timer. A pool with a
/// burst may have saved runtime by now; a detour over the least quota drops all of that but 1 ms.
///
/// # Errors
/// The kernel refuses a limit.
pub(crate) fn refill_pool(
    hierarchy: &Hierarchy,
    group: &Group,
    limit: Limit,
) -> Result<(), String> {
    let mut now = limit;
    if limit.burst_ns() > 0 {
        let of = |quota_ns, burst_ns| {
            Limit::new(quota_ns, limit.period_ns(), burst_ns).map_err(|error| error.to_string())
        };
        for next in [of(Some(MIN_NS), 0)?, of(None, 0)?, of(None, limit.burst_ns())?] {
            hierarchy.write_limit(group, now, next)?;
            now = next;
        }
    }
    hierarchy.write_limit(group, now, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_filled_up_to_quota_and_burst() {
        const MS: u64 = 1_000_000;
        let limit = |burst| Limit::new(Some(20 * MS), 100 * MS, burst).expect("is a limit");
        assert_eq!(runtime_after_refill_ns(limit(10 * MS), false), 21 * MS);
        assert_eq!(runtime_after_refill_ns(limit(10 * MS), true), 30 * MS);
        assert_eq!(runtime_after_refill_ns(limit(MS / 2), false), 20 * MS + MS / 2);
    }
}
