//! The cost of putting throttled tasks back, call by call.
//!
//! Two functions of the kernel release: `distribute_cfs_runtime()`, in the interrupt of a timer,
//! and from 6.3 on `__cfsb_csd_unthrottle()`, in an interrupt that each CPU is sent. Calls are kept
//! summed by powers of two of their length, so memory does not grow with the run.

use crate::histogram::merge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A function of the kernel that releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Releaser {
    /// `distribute_cfs_runtime()`: pays debts from the pool, and up to 6.2 releases all CPUs
    /// itself.
    Distribute,
    /// `__cfsb_csd_unthrottle()`: releases the groups that its own CPU was told to release.
    Handler,
}

/// Work of one call, or of several together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Did {
    /// Throttled (group, CPU) pairs that were paid for and left to an interrupt of their CPU.
    pub told: u64,
    /// Throttled (group, CPU) pairs released.
    pub rqs: u64,
    /// (group, CPU) pairs walked.
    pub cfs_rqs: u64,
    /// Tasks put back on a run queue; up to 6.17 entities of groups.
    pub tasks: u64,
}

impl Did {
    /// Each number, in the order of the fields.
    pub fn numbers(self) -> [u64; 4] {
        [self.told, self.rqs, self.cfs_rqs, self.tasks]
    }

    /// Adds the numbers of other work to these.
    fn add(&mut self, other: Did) {
        self.told += other.told;
        self.rqs += other.rqs;
        self.cfs_rqs += other.cfs_rqs;
        self.tasks += other.tasks;
    }
}

/// One call that released something or had it released.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// When it began, ns since the start of the run.
    pub at_ns: u64,
    /// The CPU.
    pub cpu: u16,
    /// Length of the call, ns.
    pub ns: u64,
    /// The work of the call.
    #[serde(flatten)]
    pub did: Did,
}

/// Calls of about the same length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfLength {
    /// Least length, ns; a power of two.
    pub low: u64,
    /// All are shorter than this, ns.
    pub high: u64,
    /// Number of calls.
    pub calls: u64,
    /// Their work together.
    #[serde(flatten)]
    pub did: Did,
}

/// All calls of one function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Calls {
    /// Number of calls that released something or had it released.
    pub calls: u64,
    /// Their total length, ns.
    pub ns: u64,
    /// Their work together.
    #[serde(flatten)]
    pub did: Did,
    /// The longest call; of several the first.
    pub longest: Call,
    /// All calls by length, ascending, without empty lengths.
    pub by_length: Vec<OfLength>,
}

impl Calls {
    /// Adds a call to the sums, to its length, and as the longest if it is longer than all before.
    pub fn add(&mut self, call: Call) {
        if self.calls == 0 || call.ns > self.longest.ns {
            self.longest = call;
        }
        self.calls += 1;
        self.ns += call.ns;
        self.did.add(call.did);
        let low = 1 << call.ns.max(1).ilog2();
        let high = u64::saturating_mul(low, 2);
        let at = self.by_length.binary_search_by_key(&low, |of| of.low).unwrap_or_else(|at| {
            self.by_length.insert(at, OfLength { low, high, ..OfLength::default() });
            at
        });
        let of_length = &mut self.by_length[at];
        of_length.calls += 1;
        of_length.did.add(call.did);
    }
}

/// The cost of releases, summed over all groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseOutcome {
    /// Irq-off sections that released something: calls of both functions.
    pub calls: u64,
    /// Throttled (group, CPU) pairs released.
    pub rqs: u64,
    /// (group, CPU) pairs walked.
    pub cfs_rqs: u64,
    /// Tasks put back on a run queue; up to 6.17 entities of groups.
    pub tasks: u64,
    /// Total length of these sections, ns.
    #[serde(default)]
    pub spent_ns: u64,
    /// Length of each section, ns.
    pub irqoff_ns: IrqOff,
    /// The calls of `distribute_cfs_runtime()`.
    #[serde(default)]
    pub distribute: Calls,
    /// The calls of `__cfsb_csd_unthrottle()`; none up to 6.2.
    #[serde(default)]
    pub handler: Calls,
}

/// Distribution of the lengths of irq-off sections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IrqOff {
    /// Median, ns.
    pub p50: u64,
    /// 99th percentile, ns.
    pub p99: u64,
    /// Largest, ns.
    pub max: u64,
    /// `[low, high, count]`, ns, powers of two, ascending, without empty ones.
    pub histogram: Vec<[u64; 3]>,
}

impl ReleaseOutcome {
    /// The calls of a function, to be added to; other sums do not follow.
    pub fn of(&mut self, releaser: Releaser) -> &mut Calls {
        match releaser {
            Releaser::Distribute => &mut self.distribute,
            Releaser::Handler => &mut self.handler,
        }
    }

    /// Calls of both functions by length: `[low, high, count]`, ns, ascending, as
    /// [`IrqOff::histogram`] has them.
    pub fn by_length(&self) -> Vec<[u64; 3]> {
        let both = self.distribute.by_length.iter().chain(&self.handler.by_length);
        let mut all: Vec<[u64; 3]> = both.map(|of| [of.low, of.high, of.calls]).collect();
        merge(&mut all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_by_length_and_the_first_of_the_longest_is_kept() {
        let did = |rqs| Did { told: 1, rqs, cfs_rqs: 51 * rqs, tasks: 3 };
        let call = |at_ns, ns, rqs| Call { at_ns, cpu: 2, ns, did: did(rqs) };
        let mut release = ReleaseOutcome::default();
        for one in [call(5, 3000, 1), call(6, 100, 2), call(7, 3000, 4), call(8, 2049, 1)] {
            release.of(Releaser::Distribute).add(one);
        }
        release.of(Releaser::Handler).add(call(9, 127, 1));
        release.of(Releaser::Handler).add(call(9, 0, 1));
        let calls = &release.distribute;
        assert_eq!((calls.calls, calls.ns, calls.longest), (4, 8149, call(5, 3000, 1)));
        assert_eq!(calls.did, Did { told: 4, rqs: 8, cfs_rqs: 408, tasks: 12 });
        let of = |low, calls, did| OfLength { low, high: 2 * low, calls, did };
        let long = Did { told: 3, rqs: 6, cfs_rqs: 306, tasks: 9 };
        assert_eq!(calls.by_length, [of(64, 1, did(2)), of(2048, 3, long)]);
        assert_eq!(release.by_length(), [[1, 2, 1], [64, 128, 2], [2048, 4096, 3]]);
    }
}
