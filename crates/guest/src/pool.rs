//! What the pool of a group holds when a run begins: filled by writing its limit again, just before
//! the start (kernel: `tg_set_cfs_bandwidth()`).

use crate::cgroup::{Group, Hierarchy};
use cpumax_limit::Limit;

/// The least quota there is, ns.
const LEAST_NS: u64 = 1_000_000;

/// What is in a pool with a burst once it was filled so, and again by an edge between that and the
/// start or not, ns.
pub(crate) fn filled_ns(limit: Limit, again: bool) -> u64 {
    let quota_ns = limit.quota_ns().unwrap_or(0);
    let refills = 1 + u64::from(again);
    (LEAST_NS + refills * quota_ns).min(quota_ns + limit.burst_ns())
}

/// Writes a limit again, as the workload's limits are written when it begins: that fills the pool
/// and arms the timer. A pool with a burst may have saved some by now, which it must not have; what
/// is left of that is 1 ms, the least quota there is: see [`filled_ns`].
pub(crate) fn fill_pool(hierarchy: &Hierarchy, group: &Group, limit: Limit) -> Result<(), String> {
    let mut now = limit;
    if limit.burst_ns() > 0 {
        let of = |quota_ns, burst_ns| {
            Limit::new(quota_ns, limit.period_ns(), burst_ns).map_err(|error| error.to_string())
        };
        for next in [of(Some(LEAST_NS), 0)?, of(None, 0)?, of(None, limit.burst_ns())?] {
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
        assert_eq!(filled_ns(limit(10 * MS), false), 21 * MS);
        assert_eq!(filled_ns(limit(10 * MS), true), 30 * MS);
        assert_eq!(filled_ns(limit(MS / 2), false), 20 * MS + MS / 2);
    }
}
