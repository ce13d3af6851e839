//! A histogram that is small enough to be part of every outcome.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of buckets between a power of two and the next.
const BUCKETS: u64 = 8;

/// `[low, high, count]`: this many values were at least `low` and less than `high`. Ascending,
/// without empty ones; `high` is at most an eighth more than `low`, or one more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Histogram {
    /// The buckets.
    pub buckets: Vec<[u64; 3]>,
}

impl Histogram {
    /// The histogram of values with their counts, in any order; fastest where values are in order.
    pub fn of(values: impl IntoIterator<Item = (u64, u64)>) -> Histogram {
        let values = values.into_iter();
        let mut buckets: Vec<[u64; 3]> = Vec::with_capacity(values.size_hint().0.min(32));
        for (value, count) in values.filter(|(_, count)| *count > 0) {
            match buckets.last_mut() {
                Some([low, high, all]) if (*low..*high).contains(&value) => *all += count,
                _ => {
                    let width = width(value);
                    let low = value & !(width - 1);
                    buckets.push([low, low.saturating_add(width), count]);
                }
            }
        }
        if !buckets.is_sorted_by(|a, b| a[0] < b[0]) {
            merge(&mut buckets);
        }
        Histogram { buckets }
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, [_, _, count]| sum.saturating_add(*count))
    }
}

/// Sorts buckets `[low, high, count]`, and adds up the counts of those with an equal `low`.
pub(crate) fn merge(buckets: &mut Vec<[u64; 3]>) {
    buckets.sort_unstable();
    buckets.dedup_by(|next, one| {
        let same = next[0] == one[0];
        one[2] += if same { next[2] } else { 0 };
        same
    });
}

/// Width of the bucket that holds `value`: an eighth of the power of two below it, at least 1.
fn width(value: u64) -> u64 {
    let power = 1 << value.max(1).ilog2();
    (power / BUCKETS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_a_bucket_that_is_not_wide() {
        let values = (0..64).flat_map(|power| {
            let edge = 1u64 << power;
            [edge - 1, edge, edge + edge / 3, u64::MAX]
        });
        for value in values {
            let buckets = Histogram::of([(value, 3)]).buckets;
            let [low, high, count] = buckets[0];
            assert!(low <= value && (value < high || high == u64::MAX), "{value}: {buckets:?}");
            assert!(high - low <= (low / BUCKETS).max(1), "{value}: {buckets:?}");
            assert_eq!((buckets.len(), count), (1, 3));
        }
    }

    #[test]
    fn buckets_are_in_order_and_hold_everything() {
        let histogram = Histogram::of([(100, 1), (3, 2), (101, 4), (7, 0), (1_000_000, 1)]);
        assert_eq!(histogram.buckets, [[3, 4, 2], [96, 104, 5], [983_040, 1_048_576, 1]]);
        assert_eq!(histogram.count(), 8);
        assert_eq!(Histogram::of([]), Histogram::default());
    }
}
