//! One workload in two worlds, and whether they agree.

use crate::alike::Alike;
use crate::pair::Mode;
use crate::side::{Answer, Run};
use crate::verdict::Verdict;
use cpumax_outcome::trace::Recorded;
use cpumax_outcome::{Conditions, Deviation, Outcome, Tolerances, compare, stands_for, worst};
use cpumax_workload::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One workload with one seed, compared in two worlds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Name of the workload.
    pub scenario: String,
    /// Seed of both runs.
    pub seed: u64,
    /// Label of the reference world.
    pub reference: String,
    /// Label of the other world.
    pub against: String,
    /// Result of the comparison.
    pub verdict: Verdict,
    /// Ratio of the worst number in the model's run without noise, as [`Verdict::ratio`].
    #[serde(default)]
    pub strict: f64,
    /// Compared numbers, worst first; empty unless both worlds ran it.
    pub deviations: Vec<Deviation>,
    /// Compared numbers of each run, if the reference ran several times; each number above is then
    /// their median.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_runs: Vec<Vec<Deviation>>,
    /// Conditions that the reference reported.
    pub conditions: Conditions,
    /// Deviations of the runs from the workload.
    pub notes: Vec<String>,
    /// Description of where the two runs diverge, if events were recorded.
    #[serde(default)]
    pub parted: Option<String>,
    /// A run of the model guided along the reference's, if the two differ and events were recorded.
    #[serde(default)]
    pub led: Option<GuidedCell>,
    /// For each outcome, the reference first, paths (or their last parts) of numbers that the world
    /// does not measure.
    #[serde(default)]
    pub not_measured: Vec<Vec<String>>,
    /// Both outcomes, the reference first.
    pub outcomes: Vec<Outcome>,
    /// Events of both runs, the reference first, if requested.
    #[serde(skip)]
    pub traces: Vec<Recorded>,
}

/// A run guided along the reference's ([`crate::follow`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuidedCell {
    /// Number of times at which it draws other microseconds.
    pub places: usize,
    /// Ratio of its worst number; at most 1 if all agree.
    pub ratio: f64,
    /// Time up to which it follows the reference, ns; `None`: to the end.
    pub together_ns: Option<u64>,
    /// Description of where it still diverges from the reference.
    pub parted: Option<String>,
}

impl Cell {
    /// Compares the two answers to a job.
    pub fn of(
        workload: &Workload,
        seed: u64,
        mode: Mode,
        (reference, first): (&str, Answer),
        (against, second): (&str, Answer),
    ) -> Cell {
        let mut cell = Cell {
            scenario: workload.name.clone(),
            seed,
            reference: reference.to_owned(),
            against: against.to_owned(),
            verdict: Verdict::Agrees(0.0),
            strict: 0.0,
            deviations: Vec::new(),
            of_runs: Vec::new(),
            conditions: Conditions::default(),
            notes: Vec::new(),
            parted: None,
            led: None,
            not_measured: Vec::new(),
            outcomes: Vec::new(),
            traces: Vec::new(),
        };
        match (first, second) {
            (Ok(first), Ok(second)) => cell.compare_runs(workload, mode, first, second),
            (Err(Verdict::Failed(reason)), _) => cell.verdict = failed(reference, &reason),
            (_, Err(Verdict::Failed(reason))) => cell.verdict = failed(against, &reason),
            (Err(refused), _) | (_, Err(refused)) => cell.verdict = refused,
        }
        cell
    }

    fn compare_runs(&mut self, workload: &Workload, mode: Mode, first: Run, second: Run) {
        let runs: Vec<&Outcome> =
            [&second.report.outcome].into_iter().chain(&second.noisy).collect();
        let mut deviations = deviations(workload, mode, &first, &runs);
        let tolerances = tolerances(workload, mode, &first);
        let mut strictly = compare(&first.report.outcome, &second.report.outcome, &tolerances);
        for deviations in [&mut deviations, &mut strictly] {
            deviations.retain(|deviation| measured(&second, deviation));
        }
        strictly.retain(|deviation| measured(&first, deviation));
        self.strict = worst(&strictly).map_or(0.0, |worst| worst.ratio);
        self.judge(deviations);
        self.parted = second.parted;
        self.traces = first.trace.into_iter().chain(second.trace).collect();
        let (first, second) = (first.report, second.report);
        self.conditions = first.conditions.unwrap_or_default();
        self.notes = first.notes.into_iter().chain(second.notes).collect();
        self.not_measured = vec![first.not_measured, second.not_measured];
        self.outcomes = vec![first.outcome, second.outcome];
    }

    fn judge(&mut self, mut deviations: Vec<Deviation>) {
        let ratio = worst(&deviations).map_or(0.0, |worst| worst.ratio);
        self.verdict = if ratio > 1.0 { Verdict::Differs(ratio) } else { Verdict::Agrees(ratio) };
        // Numbers without a tolerance have no ratio, and come last.
        let rank = |deviation: &Deviation| deviation.tolerance.map(|_| deviation.ratio);
        deviations.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(Ordering::Equal));
        self.deviations = deviations;
    }

    /// Combines several runs of one job: for each number the median of its signed deviations;
    /// everything else from the run whose worst number is the median of the worst numbers. A run
    /// that was not compared is returned as it is. `None` without runs.
    pub fn median(mut runs: Vec<Cell>) -> Option<Cell> {
        if let Some(odd) = runs.iter().position(|run| run.verdict.ratio().is_none()) {
            return Some(runs.swap_remove(odd));
        }
        let of_runs: Vec<_> = runs.iter().map(|run| run.deviations.clone()).collect();
        let mut by_path: BTreeMap<String, Vec<Deviation>> = BTreeMap::new();
        for deviation in of_runs.iter().flatten() {
            by_path.entry(deviation.path.clone()).or_default().push(deviation.clone());
        }
        let median = by_path.into_values().filter_map(|mut numbers| {
            numbers.sort_by(|a, b| signed(a).total_cmp(&signed(b)));
            // The smaller deviation of two in the middle.
            let middle = (numbers.len().saturating_sub(1)) / 2..=numbers.len() / 2;
            let middle = numbers.drain(middle);
            middle.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
        });
        let median: Vec<Deviation> = median.collect();
        runs.sort_by(|a, b| {
            a.verdict.ratio().unwrap_or(0.0).total_cmp(&b.verdict.ratio().unwrap_or(0.0))
        });
        let middle = runs.len().saturating_sub(1) / 2;
        let mut cell = runs.into_iter().nth(middle)?;
        if of_runs.len() > 1 {
            cell.judge(median);
            cell.of_runs = of_runs;
        }
        Some(cell)
    }

    /// The number furthest beyond its tolerance, if any.
    pub fn worst(&self) -> Option<&Deviation> {
        self.deviations.first().filter(|deviation| deviation.is_beyond())
    }
}

/// Compares every measured number of a run with other runs, in which equal siblings may exchange
/// their results.
pub(crate) fn deviations(
    workload: &Workload,
    mode: Mode,
    first: &Run,
    others: &[&Outcome],
) -> Vec<Deviation> {
    let alike = Alike::of(workload);
    let others =
        others.iter().flat_map(|run| (0..alike.exchanges()).map(|by| alike.exchanged(run, by)));
    let mut deviations =
        compare_all(&first.report.outcome, others, &tolerances(workload, mode, first));
    deviations.retain(|deviation| measured(first, deviation));
    deviations
}

/// The ratio; negative where the other run has more.
fn signed(deviation: &Deviation) -> f64 {
    if deviation.reference < deviation.found { -deviation.ratio } else { deviation.ratio }
}

fn tolerances(workload: &Workload, mode: Mode, first: &Run) -> Tolerances {
    let hz = first.report.conditions.as_ref().and_then(|conditions| conditions.hz);
    let hz = hz.unwrap_or(workload.machine.hz).max(1);
    let tick_ns = 1_000_000_000 / u64::from(hz);
    match mode {
        Mode::Exact => Tolerances::exact(tick_ns),
        Mode::Parallel => Tolerances::parallel(tick_ns),
    }
}

fn measured(run: &Run, deviation: &Deviation) -> bool {
    !run.report.not_measured.iter().any(|name| stands_for(name, &deviation.path))
}

/// Compares every number of a run with several others. A number between those of two runs agrees;
/// otherwise the nearest counts.
fn compare_all(
    reference: &Outcome,
    mut others: impl Iterator<Item = Outcome>,
    tolerances: &Tolerances,
) -> Vec<Deviation> {
    let Some(first) = others.next() else { return Vec::new() };
    let mut nearest = compare(reference, &first, tolerances);
    for outcome in others {
        let next = compare(reference, &outcome, tolerances);
        for (nearest, next) in nearest.iter_mut().zip(next) {
            debug_assert_eq!(nearest.path, next.path);
            let (a, b) = (nearest.found, next.found);
            if (a.min(b)..=a.max(b)).contains(&nearest.reference) {
                nearest.found = nearest.reference;
                (nearest.difference, nearest.ratio) = (0, 0.0);
            } else if next.ratio < nearest.ratio {
                *nearest = next;
            }
        }
    }
    nearest
}

fn failed(world: &str, reason: &str) -> Verdict {
    Verdict::Failed(format!("{world}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_outcome::{GroupOutcome, ReleaseOutcome};
    use cpumax_study::Report;

    /// An outcome in which a group used this much, us.
    fn used(usec: u64) -> Outcome {
        let group = GroupOutcome { usage_usec: usec, ..GroupOutcome::default() };
        Outcome {
            scenario: "s".to_owned(),
            world: "model".to_owned(),
            kernel: "7.3".to_owned(),
            generation: "G4F".to_owned(),
            seed: 1,
            simulated_ns: 1_000_000_000,
            groups: BTreeMap::from([("/g".to_owned(), group)]),
            tasks: BTreeMap::new(),
            release: ReleaseOutcome::default(),
            events: 1,
        }
    }

    #[test]
    fn a_number_agrees_that_lies_between_two_runs_under_noise_or_near_one() {
        let tolerances = Tolerances::exact(4_000_000);
        let off = |reference: u64, runs: &[u64]| {
            let runs = runs.iter().map(|&usec| used(usec));
            let all = compare_all(&used(reference), runs, &tolerances);
            let most = all.iter().map(|deviation| deviation.ratio).fold(0.0, f64::max);
            format!("{most:.2}")
        };
        assert_eq!(off(500_000, &[400_000]), "20.00");
        assert_eq!(off(500_000, &[400_000, 600_000]), "0.00");
        assert_eq!(off(500_000, &[400_000, 410_000, 498_000]), "0.40");
        assert_eq!(off(500_000, &[400_000, 450_000]), "10.00");
    }

    /// A comparison in which a group used this much, us, in the reference, and 100 ms in the other
    /// run.
    fn used_by_reference(usec: u64) -> Cell {
        let workload = cpumax_workload::parse("[machine]\ncpus = 2\n[[group]]\npath = \"/g\"", "s");
        let run = |usec| {
            let report = Report {
                outcome: used(usec),
                watched: None,
                kernel_release: None,
                conditions: None,
                not_measured: Vec::new(),
                notes: Vec::new(),
                exact: false,
            };
            Ok(Run { report, trace: None, noisy: Vec::new(), parted: None })
        };
        let (first, second) = (("vm 7.3", run(usec)), ("model 7.3", run(100_000)));
        Cell::of(&workload.unwrap(), 1, Mode::Parallel, first, second)
    }

    #[test]
    fn numbers_are_told_worst_first_and_those_held_to_nothing_last() {
        let cell = used_by_reference(120_000);
        let paths: Vec<&str> = cell.deviations.iter().map(|number| &*number.path).collect();
        let (group, held) = (".usage_usec", ".nr_throttled");
        assert!(paths[0].ends_with(group) && paths[1].ends_with(held), "{paths:?}");
        assert!(cell.deviations[0].is_beyond());
        let is_held: Vec<bool> = cell.deviations.iter().map(|n| n.tolerance.is_some()).collect();
        assert!(is_held[1] && is_held.contains(&false), "{paths:?}");
        assert!(is_held.is_sorted_by(|first, then| first >= then), "{paths:?}");
    }

    #[test]
    fn of_several_runs_the_median_counts_by_size_and_side() {
        let median = |usec: &[u64]| {
            let runs = usec.iter().map(|&usec| used_by_reference(usec)).collect();
            let cell = Cell::median(runs).unwrap();
            (cell.deviations[0].reference, cell.verdict.differs(), cell.of_runs.len())
        };
        assert_eq!(median(&[120_000]), (120_000, true, 0));
        assert_eq!(median(&[120_000, 101_000, 80_000]), (101_000, false, 3));
        assert_eq!(median(&[80_000, 120_000, 121_000]), (120_000, true, 3));
        assert_eq!(median(&[80_000, 99_000, 121_000, 122_000]), (99_000, false, 4));
        assert!(Cell::median(Vec::new()).is_none());
    }

    #[test]
    fn a_run_that_failed_is_not_outvoted() {
        let mut failed = used_by_reference(100_000);
        failed.verdict = Verdict::Failed("it hung".to_owned());
        let runs = vec![used_by_reference(100_000), failed.clone(), used_by_reference(100_000)];
        assert_eq!(Cell::median(runs), Some(failed));
    }
}
