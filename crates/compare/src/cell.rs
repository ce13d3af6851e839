//! One workload in two worlds, and whether they agree.

use crate::alike::Alike;
use crate::world::{Answer, Run};
use cpumax_outcome::trace::Recorded;
use cpumax_outcome::{Conditions, Deviation, Outcome, Tolerances, compare, stands_for, worst};
use cpumax_workload::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One workload with one seed in two worlds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Name of the workload.
    pub scenario: String,
    /// Seed of both runs.
    pub seed: u64,
    /// The world that is the reference.
    pub reference: String,
    /// The world that was held against it.
    pub against: String,
    /// What came of it.
    pub verdict: Verdict,
    /// Worst number of the model's run without noise, as [`Verdict::ratio`].
    #[serde(default)]
    pub strict: f64,
    /// What the two were compared by, worst first; empty unless both were run.
    pub deviations: Vec<Deviation>,
    /// The same of each run, if the reference ran several times; each number above is then the
    /// median of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_runs: Vec<Vec<Deviation>>,
    /// What the reference found.
    pub conditions: Conditions,
    /// Where a run was not quite what the workload says.
    pub notes: Vec<String>,
    /// Where the two part, if that was recorded.
    #[serde(default)]
    pub parted: Option<String>,
    /// What came of a run of the model that was led along the reference's, if they differ and that
    /// was recorded.
    #[serde(default)]
    pub led: Option<LedCell>,
    /// Of each outcome, the reference first, the numbers that mean nothing, because that world does
    /// not measure them: paths, or their last parts.
    #[serde(default)]
    pub not_measured: Vec<Vec<String>>,
    /// Both outcomes, the reference first.
    pub outcomes: Vec<Outcome>,
    /// What happened when in both, the reference first, if that was asked for.
    #[serde(skip)]
    pub traces: Vec<Recorded>,
}

/// What came of a run that was led along the reference's ([`crate::follow`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedCell {
    /// In how many places it was led.
    pub places: usize,
    /// Its worst number: at most 1 if all agree at once.
    pub ratio: f64,
    /// Up to when it went along with the reference, ns; none: to the end.
    pub together_ns: Option<u64>,
    /// Where it parts from the reference all the same.
    pub parted: Option<String>,
}

/// What came of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything is within its tolerance; how near to its edge the worst came, 0 to 1.
    Agrees(f64),
    /// Something is beyond its tolerance; how many times as far as it may be the worst is.
    Differs(f64),
    /// A world cannot do what the workload asks for: what.
    Refused(String),
    /// A run did not come to its end: why.
    Failed(String),
}

impl Verdict {
    /// Whether both were run and are too far apart.
    pub fn differs(&self) -> bool {
        matches!(self, Verdict::Differs(_))
    }

    /// Difference over tolerance of the worst number, if both were run.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            Verdict::Agrees(ratio) | Verdict::Differs(ratio) => Some(*ratio),
            Verdict::Refused(_) | Verdict::Failed(_) => None,
        }
    }
}

/// What two worlds are to be held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One CPU whose time depends on nothing outside.
    Exact,
    /// Several CPUs side by side.
    Parallel,
}

impl Cell {
    /// The two answers to a job, held against each other.
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
            (Answer::Done(first), Answer::Done(second)) => {
                cell.hold(workload, mode, *first, *second);
            }
            (Answer::Failed(reason), _) => cell.verdict = failed(reference, &reason),
            (_, Answer::Failed(reason)) => cell.verdict = failed(against, &reason),
            (Answer::Refused(reason), _) | (_, Answer::Refused(reason)) => {
                cell.verdict = Verdict::Refused(reason);
            }
        }
        cell
    }

    fn hold(&mut self, workload: &Workload, mode: Mode, first: Run, second: Run) {
        let runs: Vec<&Outcome> = [&second.outcome].into_iter().chain(&second.noisy).collect();
        let mut deviations = deviations(workload, mode, &first, &runs);
        let mut strictly =
            compare(&first.outcome, &second.outcome, &tolerances(workload, mode, &first));
        for deviations in [&mut deviations, &mut strictly] {
            deviations.retain(|deviation| measured(&second, deviation));
        }
        strictly.retain(|deviation| measured(&first, deviation));
        self.strict = worst(&strictly).map_or(0.0, |worst| worst.ratio);
        self.judge(deviations);
        self.conditions = first.conditions;
        self.notes = first.notes.into_iter().chain(second.notes).collect();
        self.parted = second.parted;
        self.not_measured = vec![first.not_measured, second.not_measured];
        self.outcomes = vec![first.outcome, second.outcome];
        self.traces = first.trace.into_iter().chain(second.trace).collect();
    }

    fn judge(&mut self, mut deviations: Vec<Deviation>) {
        let ratio = worst(&deviations).map_or(0.0, |worst| worst.ratio);
        self.verdict = if ratio > 1.0 { Verdict::Differs(ratio) } else { Verdict::Agrees(ratio) };
        // What is held to nothing has no ratio, and comes after all that is.
        let rank = |deviation: &Deviation| deviation.tolerance.map(|_| deviation.ratio);
        deviations.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(Ordering::Equal));
        self.deviations = deviations;
    }

    /// Several runs of the same as one: of each number the median, by how far the reference is off
    /// and to which side. Everything else is that of the run whose worst number is the median of
    /// the worst ones. If one was not compared, that one; `None` of none.
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
            // Of two in the middle the one that is less off.
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

    /// The number that is furthest beyond its tolerance, if any is.
    pub fn worst(&self) -> Option<&Deviation> {
        self.deviations.first().filter(|deviation| deviation.is_beyond())
    }
}

/// Every number that a run measured, held against the same in others, in which those who are alike
/// may change places.
pub(crate) fn deviations(
    workload: &Workload,
    mode: Mode,
    first: &Run,
    others: &[&Outcome],
) -> Vec<Deviation> {
    let alike = Alike::of(workload);
    let others = others.iter().flat_map(|run| (0..alike.turns()).map(|by| alike.turned(run, by)));
    let mut deviations = compare_all(&first.outcome, others, &tolerances(workload, mode, first));
    deviations.retain(|deviation| measured(first, deviation));
    deviations
}

/// As many tolerances as the reference has more than the other.
fn signed(deviation: &Deviation) -> f64 {
    if deviation.reference < deviation.found { -deviation.ratio } else { deviation.ratio }
}

fn tolerances(workload: &Workload, mode: Mode, first: &Run) -> Tolerances {
    let hz = first.conditions.hz.unwrap_or(workload.machine.hz).max(1);
    let tick_ns = 1_000_000_000 / u64::from(hz);
    match mode {
        Mode::Exact => Tolerances::exact(tick_ns),
        Mode::Parallel => Tolerances::parallel(tick_ns),
    }
}

fn measured(run: &Run, deviation: &Deviation) -> bool {
    !run.not_measured.iter().any(|name| stands_for(name, &deviation.path))
}

/// Every number of a run held against the same in others: as far off as the nearest of these, and
/// not at all where it lies between two of them.
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

    /// An outcome in which a group used that much.
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

    /// A comparison in which a group used that much in the reference, and 100 ms in the other.
    fn used_by_reference(usec: u64) -> Cell {
        let workload = cpumax_workload::parse("[machine]\ncpus = 2\n[[group]]\npath = \"/g\"", "s");
        let run = |usec| {
            let run = Run {
                outcome: used(usec),
                conditions: Conditions::default(),
                not_measured: Vec::new(),
                notes: Vec::new(),
                trace: None,
                noisy: Vec::new(),
                parted: None,
            };
            Answer::Done(Box::new(run))
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
