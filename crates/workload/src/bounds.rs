//! Largest sizes of a workload: generous for every useful experiment, and small enough to bound the
//! memory that any input takes.

/// Largest scenario file, bytes. A malicious file takes up to 550 times its size in memory while it
/// is read (a table for every two bytes), an ordinary one about 100 times.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// Longest run, and longest single length of time in a workload, ns: one day.
pub const MAX_DURATION_NS: u64 = 86_400 * NS_PER_S;
/// Most CPUs.
pub const MAX_CPUS: u64 = 4096;
/// Most tasks that a workload starts, and forks a counted number of times, together.
pub const MAX_TASKS: u64 = 1_000_000;
/// Most kinds of task.
pub const MAX_KINDS: u64 = 100_000;
/// Most jobs.
pub const MAX_JOBS: u64 = 1_000_000;
/// Most groups, implied parents included.
pub const MAX_GROUPS: u64 = 100_000;
/// Deepest group below the root.
pub const MAX_GROUP_DEPTH: u64 = 64;
/// Longest path of a group, bytes.
pub const MAX_PATH_BYTES: u64 = 1024;
/// Longest component of a path and longest name, bytes.
pub const MAX_NAME_BYTES: u64 = 255;
/// Most instructions in all programs together, after loops have been flattened.
pub const MAX_OPS: u64 = 10_000_000;
/// Most instructions of one `[[task]]` after the ranges in its names have been expanded.
pub const MAX_RANGE_OPS: u64 = 1_000_000;
/// Deepest nesting of loops.
pub const MAX_LOOP_DEPTH: u64 = 32;
/// Most locks held at once by one task.
pub const MAX_LOCKS_HELD: u64 = 32;
/// Most instructions that a loop may execute while no time passes.
pub const MAX_INSTANT_OPS: u64 = 1_000_000;
/// Most locks, channels, sources, softirqs, interventions and expectations, each.
pub const MAX_ENTRIES: u64 = 100_000;
/// Most tokens sent or received at once.
pub const MAX_TOKENS: u64 = 1_000_000;
/// Most CPUs written in all different sets of CPUs together.
pub const MAX_CPU_SET_ENTRIES: u64 = 16_000_000;
/// Most values in one empirical distribution, and most times in one list of arrivals.
pub const MAX_VALUES: u64 = 1_000_000;
/// Largest count of a value in an empirical distribution.
pub const MAX_VALUE_COUNT: u64 = MAX_VALUES * MAX_VALUES;
/// Largest `sigma` of a log-normal distribution.
pub const MAX_SIGMA: f64 = 10.0;
/// Range of a task's own slice and of the base slice, ns.
pub const SLICE_NS: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;
/// Range of `kernel.sched_cfs_bandwidth_slice_us`, ns. The kernel has no maximum; every slice
/// longer than a period has the same effect.
pub const BANDWIDTH_SLICE_NS: std::ops::RangeInclusive<u64> = 1_000..=10 * NS_PER_S;
/// Ticks a second that kernels can be built with.
pub const HZ: [u32; 4] = [100, 250, 300, 1000];

pub(crate) const NS_PER_US: u64 = 1_000;
pub(crate) const NS_PER_MS: u64 = 1_000_000;
pub(crate) const NS_PER_S: u64 = 1_000_000_000;
