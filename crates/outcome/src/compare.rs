//! Compares two runs of the same workload, number by number.
//!
//! The compared numbers and their tolerances depend on the kind of run ([`Tolerances`]). A
//! tolerance is a share or an amount, whichever is larger. The amount covers differences that no
//! two machines can avoid: the length of a tick, a request cut off by the end.

use crate::{Calls, Did, GroupOutcome, Outcome, TaskOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// A compared number of a group, a kind of task, or a function that releases.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// CPU time used by a group, us.
    GroupUse,
    /// Periods of a group.
    Periods,
    /// Throttled periods of a group.
    ThrottledPeriods,
    /// Throttled time of a group, us.
    ThrottledTime,
    /// CPU time used by a kind of task, us. It has no tolerance: it shows which tasks got a group's
    /// time.
    TaskUse,
    /// Requests completed by a kind of task.
    Completions,
    /// Median latency of a kind of task, ns.
    LatencyP50,
    /// 99th percentile of latency of a kind of task, ns.
    LatencyP99,
    /// Largest latency of a kind of task, ns.
    LatencyMax,
    /// Longest stall of a kind of task, ns.
    LongestStall,
    /// Calls of a function that releases.
    ReleaseCalls,
    /// (group, CPU) pairs left to an interrupt of their CPU.
    ReleaseTold,
    /// (group, CPU) pairs released.
    ReleaseRqs,
    /// (group, CPU) pairs walked.
    ReleaseCfsRqs,
    /// Tasks, or entities of groups, put back.
    ReleaseTasks,
}

/// A tolerance: this share of the larger number, or this amount if that is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Width {
    percent: u64,
    amount: u64,
}

/// The tolerance of each number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerances {
    mode: Mode,
    tick_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Exact,
    Parallel,
}

impl Tolerances {
    /// Tolerances for one CPU whose time depends on nothing outside; `tick_ns` is the length of a
    /// tick.
    ///
    /// Use: 1 % or 2 ms. Periods: 1. Throttled periods: 2 % or 1. Throttled time (the rest of the
    /// period beside use): 3 % or 2 ms. Completions: 2 % or the square root of the number of tasks,
    /// as the end cuts some of them off. Latencies and stalls: 5 % or a tick. Numbers of releases:
    /// 10 % or 2.
    pub fn exact(tick_ns: u64) -> Tolerances {
        Tolerances { mode: Mode::Exact, tick_ns }
    }

    /// Tolerances for several CPUs side by side. Use: 3 % or 2 ms. Throttled periods: 10 % or 1.
    /// Numbers of releases: 10 % or 2. The other numbers have no tolerance.
    pub fn parallel(tick_ns: u64) -> Tolerances {
        Tolerances { mode: Mode::Parallel, tick_ns }
    }

    /// The tolerance of a field in its unit; `None` if it has none. `tasks`: number of tasks of its
    /// kind, for completions.
    fn width(&self, field: Field, tasks: u64) -> Option<Width> {
        let (percent, amount) = match self.mode {
            Mode::Exact => match field {
                Field::TaskUse => return None,
                Field::GroupUse => (1, 2_000),
                Field::Periods => (0, 1),
                Field::ThrottledPeriods => (2, 1),
                Field::ThrottledTime => (3, 2_000),
                Field::Completions => (2, rounded_up_root(tasks.max(1))),
                Field::LatencyP50 | Field::LatencyP99 | Field::LatencyMax | Field::LongestStall => {
                    (5, self.tick_ns)
                }
                of_release => return of_release.of_release_width(),
            },
            Mode::Parallel => match field {
                Field::GroupUse => (3, 2_000),
                Field::ThrottledPeriods => (10, 1),
                other => return other.of_release_width(),
            },
        };
        Some(Width { percent, amount })
    }
}

/// The square root, rounded up.
fn rounded_up_root(n: u64) -> u64 {
    let root = n.isqrt();
    if root * root < n { root + 1 } else { root }
}

/// One number in two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// Path of the number, as [`Outcome::metric`] takes it.
    pub path: String,
    /// Path of the group, name of the kind of task, or `distribute` or `handler`.
    pub of: String,
    /// The compared number.
    pub field: Field,
    /// Its value in the reference, in the unit of the field.
    pub reference: u64,
    /// Its value in the other run.
    pub found: u64,
    /// Their absolute difference.
    pub difference: u64,
    /// The largest allowed difference; `None` without a tolerance.
    pub tolerance: Option<u64>,
    /// Difference divided by tolerance, above 1 if beyond it; 0 without a tolerance.
    pub ratio: f64,
}

/// Compares every number of `found` with that of `reference`, groups first, in order of name. Where
/// only one of them has a group or kind of task, the other's numbers are 0.
pub fn compare(reference: &Outcome, found: &Outcome, tolerances: &Tolerances) -> Vec<Deviation> {
    let mut deviations = Vec::new();
    let none = GroupOutcome::default();
    for path in reference.groups.keys().chain(found.groups.keys()).collect::<BTreeSet<_>>() {
        let numbers = |run: &Outcome| of_group(run.groups.get(path).unwrap_or(&none));
        let table = ("groups", path.as_str());
        add(&mut deviations, table, &numbers(reference), &numbers(found), 0, tolerances);
    }
    let none = TaskOutcome::default();
    for name in reference.tasks.keys().chain(found.tasks.keys()).collect::<BTreeSet<_>>() {
        let task = |run: &Outcome| run.tasks.get(name).unwrap_or(&none).clone();
        let (reference, found) = (task(reference), task(found));
        let tasks = reference.count.max(found.count);
        let table = ("tasks", name.as_str());
        add(&mut deviations, table, &of_task(&reference), &of_task(&found), tasks, tolerances);
    }
    let calls = |run: &Outcome| [of_calls(&run.release.distribute), of_calls(&run.release.handler)];
    let both = calls(reference).into_iter().zip(calls(found));
    for (function, (reference, found)) in ["distribute", "handler"].into_iter().zip(both) {
        add(&mut deviations, ("release", function), &reference, &found, 0, tolerances);
    }
    deviations
}

/// The deviation of the largest ratio; of equals the first. `None` if none has a tolerance.
pub fn worst(deviations: &[Deviation]) -> Option<&Deviation> {
    let held = deviations.iter().filter(|deviation| deviation.tolerance.is_some());
    held.reduce(|worst, next| if next.ratio > worst.ratio { next } else { worst })
}

impl Deviation {
    /// Whether its difference is larger than its tolerance; false without a tolerance.
    pub fn is_beyond(&self) -> bool {
        self.ratio > 1.0
    }
}

impl Field {
    /// The tolerance of numbers of releases, 10 % or 2; `None` for other fields. Which CPUs have
    /// run out at the edge of a period often depends on a tick.
    fn of_release_width(self) -> Option<Width> {
        let is_of_release = matches!(
            self,
            Field::ReleaseCalls
                | Field::ReleaseTold
                | Field::ReleaseRqs
                | Field::ReleaseCfsRqs
                | Field::ReleaseTasks
        );
        is_of_release.then_some(Width { percent: 10, amount: 2 })
    }

    /// Nanoseconds in its unit: 1 for ns, 1000 for us; `None` for a count.
    pub fn unit_ns(self) -> Option<u64> {
        match self {
            Field::GroupUse | Field::ThrottledTime | Field::TaskUse => Some(1000),
            Field::LatencyP50 | Field::LatencyP99 | Field::LatencyMax | Field::LongestStall => {
                Some(1)
            }
            _ => None,
        }
    }

    /// The last part of its path, as [`Outcome::metric`] takes it.
    fn metric(self) -> &'static str {
        match self {
            Field::GroupUse | Field::TaskUse => "usage_usec",
            Field::Periods => "nr_periods",
            Field::ThrottledPeriods => "nr_throttled",
            Field::ThrottledTime => "throttled_usec",
            Field::Completions => "completions",
            Field::LatencyP50 => "latency_ns.p50",
            Field::LatencyP99 => "latency_ns.p99",
            Field::LatencyMax => "latency_ns.max",
            Field::LongestStall => "longest_stall_ns",
            Field::ReleaseCalls => "calls",
            Field::ReleaseTold => "told",
            Field::ReleaseRqs => "rqs",
            Field::ReleaseCfsRqs => "cfs_rqs",
            Field::ReleaseTasks => "tasks",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Field::GroupUse | Field::TaskUse => "use",
            Field::Periods => "periods",
            Field::ThrottledPeriods => "throttled periods",
            Field::ThrottledTime => "throttled time",
            Field::Completions => "requests done",
            Field::LatencyP50 => "latency p50",
            Field::LatencyP99 => "latency p99",
            Field::LatencyMax => "latency max",
            Field::LongestStall => "longest stall",
            Field::ReleaseCalls => "calls",
            Field::ReleaseTold => "told CPUs",
            Field::ReleaseRqs => "released",
            Field::ReleaseCfsRqs => "walked",
            Field::ReleaseTasks => "put back",
        })
    }
}

/// The compared numbers of a group.
fn of_group(group: &GroupOutcome) -> Vec<(Field, u64)> {
    vec![
        (Field::GroupUse, group.usage_usec),
        (Field::Periods, group.nr_periods),
        (Field::ThrottledPeriods, group.nr_throttled),
        (Field::ThrottledTime, group.throttled_usec),
    ]
}

/// The compared numbers of a kind of task.
fn of_task(task: &TaskOutcome) -> Vec<(Field, u64)> {
    vec![
        (Field::TaskUse, task.usage_usec),
        (Field::Completions, task.completions),
        (Field::LatencyP50, task.latency_ns.p50),
        (Field::LatencyP99, task.latency_ns.p99),
        (Field::LatencyMax, task.latency_ns.max),
        (Field::LongestStall, task.longest_stall_ns),
    ]
}

/// The compared numbers of a function that releases.
fn of_calls(calls: &Calls) -> Vec<(Field, u64)> {
    let Did { told, rqs, cfs_rqs, tasks } = calls.did;
    vec![
        (Field::ReleaseCalls, calls.calls),
        (Field::ReleaseTold, told),
        (Field::ReleaseRqs, rqs),
        (Field::ReleaseCfsRqs, cfs_rqs),
        (Field::ReleaseTasks, tasks),
    ]
}

/// Appends the deviations of one group, kind of task or function: `table` and `of` make their
/// paths. `tasks`: number of tasks of the kind.
fn add(
    deviations: &mut Vec<Deviation>,
    (table, of): (&str, &str),
    reference: &[(Field, u64)],
    found: &[(Field, u64)],
    tasks: u64,
    tolerances: &Tolerances,
) {
    for (&(field, reference), &(_, found)) in reference.iter().zip(found) {
        let difference = reference.abs_diff(found);
        // The share is of the larger number, so that the comparison is symmetric.
        let larger = reference.max(found);
        let tolerance = tolerances.width(field, tasks).map(|width| {
            let share = u128::from(larger) * u128::from(width.percent) / 100;
            width.amount.max(share as u64)
        });
        let ratio = tolerance.map_or(0.0, |tolerance| difference as f64 / tolerance.max(1) as f64);
        let path = format!("{table}.{of}.{}", field.metric());
        let of = of.to_owned();
        deviations.push(Deviation {
            path,
            of,
            field,
            reference,
            found,
            difference,
            tolerance,
            ratio,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Percentiles, ReleaseOutcome};
    use std::collections::BTreeMap;

    const TICK_NS: u64 = 4_000_000;

    fn run(group: GroupOutcome, task: TaskOutcome) -> Outcome {
        Outcome {
            scenario: "s".to_owned(),
            world: "model".to_owned(),
            kernel: "6.18".to_owned(),
            generation: "G3".to_owned(),
            seed: 1,
            simulated_ns: 10_000_000_000,
            groups: BTreeMap::from([("/limited".to_owned(), group)]),
            tasks: BTreeMap::from([("hog".to_owned(), task)]),
            release: ReleaseOutcome::default(),
            events: 0,
        }
    }

    fn group() -> GroupOutcome {
        GroupOutcome {
            usage_usec: 2_000_000,
            nr_periods: 100,
            nr_throttled: 99,
            throttled_usec: 8_000_000,
            ..GroupOutcome::default()
        }
    }

    fn task() -> TaskOutcome {
        TaskOutcome {
            count: 1,
            usage_usec: 2_000_000,
            completions: 1000,
            latency_ns: Percentiles { p50: 1_000_000, p99: 80_000_000, max: 100_000_000 },
            longest_stall_ns: 84_000_000,
            ..TaskOutcome::default()
        }
    }

    /// Fields beyond their tolerance after a change of one run.
    fn beyond(
        tolerances: &Tolerances,
        change: impl Fn(&mut GroupOutcome, &mut TaskOutcome),
    ) -> Vec<Field> {
        let (mut other_group, mut other_task) = (group(), task());
        change(&mut other_group, &mut other_task);
        let deviations = compare(&run(group(), task()), &run(other_group, other_task), tolerances);
        deviations.iter().filter(|d| d.is_beyond()).map(|d| d.field).collect()
    }

    #[test]
    fn tolerances_of_exact_runs_are_the_larger_of_share_and_amount() {
        let exact = Tolerances::exact(TICK_NS);
        assert_eq!(beyond(&exact, |_, _| {}), []);
        assert_eq!(beyond(&exact, |g, _| g.usage_usec = 1_980_000), []);
        assert_eq!(beyond(&exact, |g, _| g.usage_usec = 1_979_999), [Field::GroupUse]);
        assert_eq!(beyond(&exact, |g, _| g.nr_periods = 101), []);
        assert_eq!(beyond(&exact, |g, _| g.nr_periods = 98), [Field::Periods]);
        assert_eq!(beyond(&exact, |g, _| g.nr_throttled = 98), []);
        assert_eq!(beyond(&exact, |g, _| g.nr_throttled = 97), [Field::ThrottledPeriods]);
        assert_eq!(beyond(&exact, |g, _| g.throttled_usec = 7_760_000), []);
        assert_eq!(beyond(&exact, |g, _| g.throttled_usec = 7_759_999), [Field::ThrottledTime]);
        assert_eq!(beyond(&exact, |_, t| t.completions = 980), []);
        assert_eq!(beyond(&exact, |_, t| t.completions = 979), [Field::Completions]);
        assert_eq!(beyond(&exact, |_, t| t.latency_ns.p50 = 5_000_000), []);
        assert_eq!(beyond(&exact, |_, t| t.latency_ns.p50 = 5_000_001), [Field::LatencyP50]);
        assert_eq!(beyond(&exact, |_, t| t.latency_ns.p99 = 85_000_000), [Field::LatencyP99]);
        assert_eq!(beyond(&exact, |_, t| t.latency_ns.max = 95_000_000), []);
        assert_eq!(beyond(&exact, |_, t| t.latency_ns.max = 94_000_000), [Field::LatencyMax]);
        assert_eq!(beyond(&exact, |_, t| t.longest_stall_ns = 79_000_000), [Field::LongestStall]);
        assert_eq!(beyond(&exact, |_, t| t.usage_usec = 0), [], "told, not held");
    }

    #[test]
    fn only_use_and_throttled_periods_of_parallel_runs_have_tolerances() {
        let parallel = Tolerances::parallel(TICK_NS);
        assert_eq!(beyond(&parallel, |g, _| g.usage_usec = 1_940_000), []);
        assert_eq!(beyond(&parallel, |g, _| g.usage_usec = 1_939_000), [Field::GroupUse]);
        assert_eq!(beyond(&parallel, |g, _| g.nr_throttled = 90), []);
        assert_eq!(beyond(&parallel, |g, _| g.nr_throttled = 89), [Field::ThrottledPeriods]);
        let everything_else = |g: &mut GroupOutcome, t: &mut TaskOutcome| {
            (g.nr_periods, g.throttled_usec) = (0, 0);
            *t = TaskOutcome::default();
        };
        assert_eq!(beyond(&parallel, everything_else), []);
    }

    #[test]
    fn numbers_of_releases_have_a_tolerance_of_a_tenth() {
        for tolerances in [Tolerances::exact(TICK_NS), Tolerances::parallel(TICK_NS)] {
            let with = |tasks, told| {
                let mut run = run(group(), task());
                run.release.handler.did = Did { told, tasks, ..Did::default() };
                run
            };
            let beyond = |other: &Outcome| {
                let deviations = compare(&with(100, 5), other, &tolerances);
                let beyond = deviations.into_iter().filter(Deviation::is_beyond);
                beyond.map(|deviation| deviation.path).collect::<Vec<_>>()
            };
            assert_eq!(beyond(&with(90, 7)), Vec::<String>::new());
            assert_eq!(beyond(&with(89, 7)), ["release.handler.tasks"]);
            assert_eq!(beyond(&with(100, 8)), ["release.handler.told"]);
        }
    }

    #[test]
    fn small_counts_may_differ_by_what_the_end_cuts_off() {
        let exact = Tolerances::exact(TICK_NS);
        let pair = |count, completions: [u64; 2]| {
            let [a, b] = completions.map(|completions| {
                run(group(), TaskOutcome { count, completions, ..TaskOutcome::default() })
            });
            compare(&a, &b, &exact).iter().any(Deviation::is_beyond)
        };
        assert!(!pair(1, [5, 6]));
        assert!(pair(1, [5, 7]));
        assert!(!pair(5, [5, 8]), "three of five");
        assert!(pair(5, [5, 9]));
    }

    #[test]
    fn numbers_of_one_run_only_are_compared_with_0() {
        let (mut a, b) = (run(group(), task()), run(group(), task()));
        a.groups.clear();
        let deviations = compare(&a, &b, &Tolerances::exact(TICK_NS));
        let worst = worst(&deviations).unwrap();
        assert_eq!((worst.path.as_str(), worst.reference), ("groups./limited.usage_usec", 0));
        assert!((worst.ratio - 100.0).abs() < 1e-9, "{worst:?}");
    }

    #[test]
    fn every_path_leads_to_the_number_compared() {
        let a = run(group(), task());
        for deviation in compare(&a, &a, &Tolerances::exact(TICK_NS)) {
            let number = a.metric(&deviation.path).unwrap();
            assert_eq!(number as u64, deviation.reference, "{}", deviation.path);
        }
    }

    #[test]
    fn comparison_is_symmetric() {
        let mut other = group();
        other.usage_usec = 2_020_100;
        let (a, b) = (run(group(), task()), run(other, task()));
        let exact = Tolerances::exact(TICK_NS);
        let [there, back] = [compare(&a, &b, &exact), compare(&b, &a, &exact)];
        for (there, back) in there.iter().zip(&back) {
            assert_eq!(there.ratio.to_bits(), back.ratio.to_bits(), "{}", there.path);
        }
        assert!(there.iter().all(|deviation| !deviation.is_beyond()));
    }
}
