//! Outcomes of runs in any world: counters of groups, latencies of tasks, the cost of releases, and
//! events where asked for. docs/reference/json.md describes the JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod compare;
mod conditions;
mod histogram;
mod metric;
mod release;
pub mod trace;

pub use compare::{Deviation, Field, Tolerances, compare, worst};
pub use conditions::{Conditions, Preemption};
pub use histogram::Histogram;
pub use metric::{MetricError, stands_for};
pub use release::{Call, Calls, Did, IrqOff, OfLength, ReleaseOutcome, Releaser};

/// The percentile (0 to 100) of values in ascending order. The rank is rounded up, so the median of
/// two is the first; `None` for no values.
pub fn percentile<T>(sorted: &[T], percent: usize) -> Option<&T> {
    permille(sorted, 10 * percent)
}

/// The permille (0 to 1000) of values in ascending order; otherwise as [`percentile`].
pub fn permille<T>(sorted: &[T], permille: usize) -> Option<&T> {
    sorted.get((sorted.len() * permille).div_ceil(1000).max(1) - 1)
}

/// The median, of an even number the upper one; 0 for no values. Reorders the values.
pub fn median(values: &mut [u64]) -> u64 {
    let middle = values.len() / 2;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(middle).1 }
}

/// One run of one workload on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Name of the workload.
    pub scenario: String,
    /// `model`, `vm` or `host`.
    pub world: String,
    /// Kernel version asked for, e.g. `6.18`.
    pub kernel: String,
    /// Generation of bandwidth control, e.g. `G3`.
    pub generation: String,
    /// Seed of every random stream.
    pub seed: u64,
    /// Length of the run, ns.
    pub simulated_ns: u64,
    /// Groups by path, without the root.
    pub groups: BTreeMap<String, GroupOutcome>,
    /// Kinds of tasks by name; instances of a kind are summed.
    pub tasks: BTreeMap<String, TaskOutcome>,
    /// The cost of putting throttled tasks back.
    pub release: ReleaseOutcome,
    /// Number of events processed.
    pub events: u64,
}

/// Counters of a group: its `cpu.stat` and `cpu.stat.local`, and further numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupOutcome {
    /// CPU time used by the group and everything below it, us.
    pub usage_usec: u64,
    /// Periods that passed while the period timer was armed.
    pub nr_periods: u64,
    /// Those that began with some CPU throttled.
    pub nr_throttled: u64,
    /// Sum over CPUs of the time throttled by the group's own limit, us.
    pub throttled_usec: u64,
    /// Periods in which more than the quota was used out of the burst allowance.
    pub nr_bursts: u64,
    /// Runtime used beyond the quota, in all, us.
    pub burst_usec: u64,
    /// Sum over CPUs of the time throttled by any limit, own or inherited, us (`cpu.stat.local`).
    pub local_throttled_usec: u64,
    /// Largest CPU time used in one window of the group's period (windows start at 0), us.
    pub max_period_usage_usec: u64,
    /// Requests completed by tasks in the group or below it at the time.
    pub completions: u64,
    /// Latency of these from start to completion, ns; `max` is at least `longest_under_way_ns`.
    pub latency_ns: Percentiles,
    /// The latencies as a histogram.
    #[serde(default)]
    pub latency_histogram_ns: Histogram,
    /// Requests that are under way at the end of the run.
    #[serde(default)]
    pub under_way: u64,
    /// Age of the oldest of them at the end of the run, ns.
    #[serde(default)]
    pub longest_under_way_ns: u64,
}

/// Results of the tasks of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskOutcome {
    /// Number of tasks, forked ones included.
    pub count: u64,
    /// CPU time used, us.
    pub usage_usec: u64,
    /// Requests completed.
    pub completions: u64,
    /// Latency of requests from start to completion, ns; `max` is at least `longest_under_way_ns`.
    pub latency_ns: Percentiles,
    /// The latencies as a histogram.
    #[serde(default)]
    pub latency_histogram_ns: Histogram,
    /// Requests that are under way at the end of the run.
    #[serde(default)]
    pub under_way: u64,
    /// Age of the oldest of them at the end of the run, ns.
    #[serde(default)]
    pub longest_under_way_ns: u64,
    /// Time ready to run (or parked, or throttled) but not running, ns.
    pub wait_ns: u64,
    /// Longest time in one piece in which one of them could not go on though it wanted to (ready,
    /// parked, throttled, or waiting for a lock), ns.
    pub longest_stall_ns: u64,
    /// Reports of hung tasks by the kernel: one of them waited for a lock uninterruptibly at two
    /// checks that are 120 s apart.
    #[serde(default)]
    pub hung_reports: u64,
    /// Number of tasks that have exited.
    pub exited: u64,
    /// When the last of them exited, ns since the start of the run; 0 while one of them lives.
    pub finished_ns: u64,
}

/// Three points of a distribution; 0 when it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Percentiles {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}
