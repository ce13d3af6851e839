//! A number with the range in which the true one is expected.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From this many samples on, a range leaves out the lowest and the highest.
const MANY: usize = 9;

/// A number and its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ranged<T> {
    /// The most likely value.
    pub value: T,
    /// The lowest value to expect.
    pub low: T,
    /// The highest value to expect.
    pub high: T,
}

impl<T: Copy + PartialOrd> Ranged<T> {
    /// A number that is known exactly.
    pub fn known(value: T) -> Ranged<T> {
        Ranged { value, low: value, high: value }
    }

    /// The median of the likely samples (the `bool`), and the range of all samples, which always
    /// holds that median. Of nine or more samples, the lowest and the highest are left out of the
    /// range. `None` where a sample lacks the number, or none is likely.
    pub fn of<S>(samples: &[(S, bool)], number: impl Fn(&S) -> Option<T>) -> Option<Ranged<T>> {
        let mut all = Vec::new();
        let mut likely = Vec::new();
        for (sample, is_likely) in samples {
            let number = number(sample)?;
            all.push(number);
            if *is_likely {
                likely.push(number);
            }
        }
        let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
        all.sort_by(order);
        likely.sort_by(order);
        let value = *likely.get(likely.len() / 2)?;
        let left_out = usize::from(all.len() >= MANY);
        let low = *all.get(left_out)?;
        let high = *all.get(all.len() - 1 - left_out)?;
        let mut ranged = Ranged::known(value);
        ranged.widen(Ranged { value, low, high });
        Some(ranged)
    }

    /// Extends the range to that of `other`; the value stays.
    pub fn widen(&mut self, other: Ranged<T>) {
        self.low = if other.low < self.low { other.low } else { self.low };
        self.high = if other.high > self.high { other.high } else { self.high };
    }
}
