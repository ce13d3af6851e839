//! Effective limits under the groups above, and the check of v1: `__cfs_schedulable()` and
//! `tg_cfs_schedulable_down()`.
//!
//! The effective ratio only decides whether a v1 write is refused, and whether a task is limited at
//! all (for CPUs without a tick). Enforcement never uses it: a task pays at every level that has a
//! quota.

use crate::{Limit, LimitError, NS_PER_US, Rules};

/// The ratio of quota to period for one CPU.
pub const RATIO_ONE: u64 = 1 << 20;

/// Which hierarchy the cpu controller is mounted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hierarchy {
    /// A group may not have more than the groups above it.
    V1,
    /// A group may have any limit; the smallest one above it applies.
    V2,
}

/// A group in the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index of the parent among the places; `None` for the root.
    pub parent: Option<usize>,
    /// Its own limit.
    pub limit: Limit,
}

impl Hierarchy {
    /// Effective ratio of each group, in units of 2^-20, `None` where nothing limits it.
    ///
    /// Parents come before their children; a parent that does not counts as unlimited.
    ///
    /// # Errors
    /// Under v1 a group has more than a group above it (the first one is reported), or the root has
    /// a limit.
    pub fn effective_ratios(
        self,
        places: &[Place],
        rules: &Rules,
    ) -> Result<Vec<Option<u64>>, LimitError> {
        let mut effective = Vec::with_capacity(places.len());
        for (group, place) in places.iter().enumerate() {
            let own = place.limit.ratio();
            let Some(parent) = place.parent else {
                if place.limit != Limit::UNLIMITED {
                    return Err(LimitError::Root);
                }
                effective.push(None);
                continue;
            };
            let above = effective.get(parent).copied().flatten();
            effective.push(match (self, own, above) {
                (Hierarchy::V1, Some(ratio), Some(above)) if ratio > above => {
                    return Err(LimitError::AboveParent { group, ratio, above });
                }
                (Hierarchy::V1, Some(ratio), _) => Some(ratio),
                (Hierarchy::V1, None, above) => above,
                (Hierarchy::V2, _, _) if !rules.v2_ratio_inherited => None,
                (Hierarchy::V2, Some(ratio), Some(above)) => Some(ratio.min(above)),
                (Hierarchy::V2, own, above) => own.or(above),
            });
        }
        Ok(effective)
    }
}

impl Limit {
    /// Quota over period in units of 2^-20, rounded down; `None` is unlimited.
    pub fn ratio(&self) -> Option<u64> {
        let period_us = self.period_ns() / NS_PER_US;
        // A quota above 2^44 us, possible before 5.8, loses its upper bits, as in the kernel.
        self.quota_ns().map(|quota_ns| (quota_ns / NS_PER_US).wrapping_mul(RATIO_ONE) / period_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(parent: usize, cpu_max: &str) -> Place {
        Place { parent: Some(parent), limit: Limit::UNLIMITED.write_cpu_max(cpu_max).unwrap() }
    }

    const ROOT: Place = Place { parent: None, limit: Limit::UNLIMITED };

    #[test]
    fn v1_refuses_more_than_the_nearest_limit_above() {
        let places = [ROOT, place(0, "50000 100000"), place(1, "max"), place(2, "60000 100000")];
        let error = Hierarchy::V1.effective_ratios(&places, &Rules::NEWEST).unwrap_err();
        assert_eq!(error, LimitError::AboveParent { group: 3, ratio: 629_145, above: 524_288 });
        assert_eq!(
            error.to_string(),
            "a limit of 0.599999 CPUs is more than the 0.500000 CPUs of a group above it \
             (v1 allows at most that)"
        );
    }

    #[test]
    fn v1_siblings_may_add_up_to_more_than_their_parent() {
        let places = [ROOT, place(0, "50000"), place(1, "40000"), place(1, "50000")];
        let ratios = Hierarchy::V1.effective_ratios(&places, &Rules::NEWEST).unwrap();
        assert_eq!(ratios, [None, Some(524_288), Some(419_430), Some(524_288)]);
    }

    #[test]
    fn v1_compares_ratios_rounded_down() {
        // 100001/100000 and 100002/100000 of a CPU differ by 10 units, 500001/500000 and
        // 1000001/1000000 by one, 999999/999983 and its neighbours by none that is left.
        let places = [ROOT, place(0, "1000000 1000000"), place(1, "1000000 999999")];
        let error = Hierarchy::V1.effective_ratios(&places, &Rules::NEWEST).unwrap_err();
        assert!(matches!(error, LimitError::AboveParent { ratio: 1_048_577, .. }));
        let places = [ROOT, place(0, "3000 999999"), place(1, "3000 999998")];
        assert!(Hierarchy::V1.effective_ratios(&places, &Rules::NEWEST).is_ok());
    }

    #[test]
    fn v2_takes_the_least_above() {
        let places =
            [ROOT, place(0, "50000"), place(1, "max"), place(2, "60000"), place(2, "1000")];
        let ratios = Hierarchy::V2.effective_ratios(&places, &Rules::NEWEST).unwrap();
        assert_eq!(ratios, [None, Some(524_288), Some(524_288), Some(524_288), Some(10_485)]);
        let before_6_6 = Hierarchy::V2.effective_ratios(&places, &Rules::of(6, 1)).unwrap();
        assert_eq!(before_6_6, [None; 5]);
    }

    #[test]
    fn the_root_has_no_limit() {
        let root = Place { parent: None, ..place(0, "50000") };
        let error = Hierarchy::V2.effective_ratios(&[root], &Rules::NEWEST).unwrap_err();
        assert_eq!(error, LimitError::Root);
    }
}
