//! Searches for workloads on which two worlds differ: runs small random ones in both, and shrinks
//! those that disagree.
//!
//! Cases are numbered; number, kernel and version of the program determine a run. A log has one
//! line for each case, so that a stopped search continues where it was.

mod log;

pub use log::{Line, Log};

use crate::cell::Cell;
use crate::error::Error;
use crate::matrix::column;
use crate::pair::{Mode, Noisy, Pair};
use crate::side::Side;
use crate::verdict::Verdict;
use cpumax_limit::Limit;
use cpumax_outcome::{Deviation, Field};
use cpumax_study::NamedKernel;
use cpumax_workload::random;
use cpumax_workload::{Action, Domain, Intervention, Preempt, Stream, Workload};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Runs of a model under noise that decide whether two worlds may differ; [`Noisy::MOST`] confirm
/// it.
const NOISY: u32 = 50;
/// Number of such runs while models shrink a case, in thousands of steps that need less certainty.
const NOISY_MODELS: u32 = 10;

/// Random phases of period timers are below this, ns: no period is longer.
const PHASE_NS: u64 = 100_000_000;

/// Cases in one run: a virtual machine boots once for them.
const BATCH: usize = 16;
/// While it shrinks, a disagreement keeps at least this ratio, or its original one if that is
/// smaller.
const STRONG: f64 = 5.0;

/// Extent and goals of a search.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of the first case.
    pub first: u64,
    /// Number of cases.
    pub cases: u64,
    /// Smallest ratio of the worst number that counts as a disagreement; from 1.
    pub beyond: f64,
    /// Number of cases of each kind of disagreement that are shrunk and kept.
    pub kept_of_kind: u64,
    /// Most comparisons to shrink one case.
    pub attempts: u64,
    /// Whether only disagreements that vanish without limits are shrunk and kept.
    pub limits_only: bool,
    /// `Some` for two kernels, whose defaults differ: both run with this preemption, with equal
    /// phases of period timers and without a high-resolution tick.
    pub level: Option<Preempt>,
}

/// The sides that are compared.
#[derive(Clone, Copy)]
pub struct Between<'a> {
    /// The side that runs first.
    pub reference: &'a Side,
    /// The side that runs under the reference's conditions.
    pub against: &'a Side,
    /// Models of two real kernels, a thousand times as fast. Disagreements that they share are
    /// shrunk there first.
    pub models: Option<[&'a Side; 2]>,
}

/// Progress of a search.
#[derive(Debug)]
pub enum Event<'a> {
    /// A case was run, or is in the log of an earlier search.
    Case(&'a Line),
    /// A case is being shrunk; number of comparisons so far.
    Shrinking(u64),
    /// A disagreement was shrunk.
    Found(&'a Found),
}

/// A shrunk disagreement.
#[derive(Debug, Clone)]
pub struct Found {
    /// Number of the case.
    pub case: u64,
    /// The shrunk workload.
    pub workload: Workload,
    /// Its comparison.
    pub cell: Cell,
}

/// Kind of disagreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    /// The number that disagrees most among those searched for.
    pub field: Field,
    /// Whether the reference has more of it.
    pub reference_has_more: bool,
    /// Whether it vanishes without limits, so that the order of tasks is not its cause.
    pub needs_limits: bool,
}

/// A preemption that both kernels support: their own if equal, else full.
pub fn level_of_both(one: &NamedKernel, other: &NamedKernel) -> Preempt {
    let [own, of_other] = [one, other].map(|asked| asked.kernel.preempt());
    let has_real_time = [one, other].iter().any(|asked| asked.name.ends_with("-rt"));
    if own == of_other && !has_real_time { own } else { Preempt::Full }
}

/// Counts of cases by result.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Cases that were run, now or in an earlier search.
    pub cases: u64,
    /// Cases on which the worlds differ.
    pub disagreed: u64,
    /// Cases that could not be run, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Cases that failed, by reason.
    pub failed: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts one more case.
    pub fn count(&mut self, line: &Line) {
        self.cases += 1;
        self.disagreed += u64::from(line.kind.is_some());
        if let Some(reason) = &line.reason {
            let counts = if line.refused { &mut self.refused } else { &mut self.failed };
            *counts.entry(reason.clone()).or_default() += 1;
        }
    }

    /// Whether there were cases, all refused or failed.
    pub fn has_run_none(&self) -> bool {
        let not_run: u64 = self.refused.values().chain(self.failed.values()).sum();
        self.cases > 0 && not_run == self.cases
    }

    /// One line for each reason why cases were not run.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        let all = [(&self.refused, "could not be run"), (&self.failed, "failed")];
        let of = |(counts, what)| {
            let told = move |(reason, count)| format!("{count} {what}: {reason}");
            BTreeMap::iter(counts).map(told)
        };
        all.into_iter().flat_map(of)
    }
}

/// The workload of a case. `level` sets what two kernels must have in common ([`Plan::level`]).
pub fn workload(case: u64, level: Option<Preempt>) -> Workload {
    let made = random::real(case);
    if level.is_none() {
        return made;
    }
    let mut parts = made.clone().into_parts();
    parts.machine.hrtick = Some(false);
    parts.machine.preempt = level;
    parts.machine.timer_phase_ns = Some(Stream::new(case, Domain::Group, 0).below(PHASE_NS));
    // Cases have no softirqs, which some levels refuse.
    Workload::try_from(parts).unwrap_or(made)
}

/// Runs all cases that are not in the log, shrinks disagreements, and appends each case to the log.
///
/// # Errors
/// A world fails or was interrupted, or the log cannot be written. The log then has all cases that
/// were done; disagreeing cases of the last batch may be missing.
pub fn search(
    plan: &Plan,
    log: &mut Log,
    between: Between<'_>,
    mut event: impl FnMut(Event<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut shrunk: BTreeMap<Kind, u64> = BTreeMap::new();
    for line in log.lines() {
        if let Some(kind) = line.kind.filter(|_| line.kept) {
            *shrunk.entry(kind).or_default() += 1;
        }
        event(Event::Case(line))?;
    }
    let done: BTreeSet<u64> = log.lines().iter().map(|line| line.case).collect();
    let all = plan.first..plan.first.saturating_add(plan.cases);
    let open: Vec<u64> = all.filter(|case| !done.contains(case)).collect();
    for cases in open.chunks(BATCH) {
        let mut far = Vec::new();
        run_batch(plan, cases, between, |case, cell| {
            if far_off(plan, &cell).is_some() {
                // A disagreement is logged once its kind is known, which takes more runs.
                far.push((case, cell));
                return Ok(());
            }
            log_and_report(Line::of(case, &cell), log, &mut event)
        })?;
        for (case, cell) in far {
            let mut line = Line::of(case, &cell);
            line.kind = classify(plan, case, &cell, between)?;
            if let Some(kind) = line.kind.filter(|kind| kind.needs_limits || !plan.limits_only)
                && shrunk.get(&kind).copied().unwrap_or(0) < plan.kept_of_kind
            {
                let found = shrink(plan, case, (&cell, kind), between, &mut event)?;
                *shrunk.entry(kind).or_default() += 1;
                line.kept = true;
                event(Event::Found(&found))?;
            }
            log_and_report(line, log, &mut event)?;
        }
    }
    Ok(())
}

/// Writes a case to the log before it is reported.
fn log_and_report(
    line: Line,
    log: &mut Log,
    event: &mut impl FnMut(Event<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    log.append(line)?;
    log.lines().last().map_or(Ok(()), |line| event(Event::Case(line)))
}

/// Runs cases in both worlds; `each` receives them in order, as they are done, up to its first
/// error.
fn run_batch(
    plan: &Plan,
    cases: &[u64],
    between: Between<'_>,
    mut each: impl FnMut(u64, Cell) -> Result<(), Error>,
) -> Result<(), Error> {
    let noisy = Noisy::confirmed(NOISY, plan.beyond);
    let pair = |&seed: &u64| Pair::new(workload(seed, plan.level), seed, noisy);
    let pairs: Vec<Pair> = cases.iter().map(pair).collect();
    let mut told = Ok(());
    let mut cases = cases.iter();
    let ran = column(&pairs, Mode::Exact, between.reference, between.against, |cell| {
        if let (Ok(()), Some(&case)) = (&told, cases.next()) {
            told = each(case, cell);
        }
    });
    told.and(ran)
}

/// The worst number of a cell, if its ratio is above the plan's bound.
fn far_off<'a>(plan: &Plan, cell: &'a Cell) -> Option<&'a Deviation> {
    cell.worst().filter(|worst| worst.ratio > plan.beyond)
}

/// The kind of a cell's disagreement, if its ratio is above the plan's bound: that of the worst
/// number, or, in a search for limits only, that of the worst number that agrees without limits. A
/// large difference in order may hide a smaller one in quota.
fn classify(
    plan: &Plan,
    case: u64,
    cell: &Cell,
    between: Between<'_>,
) -> Result<Option<Kind>, Error> {
    let Some(worst) = far_off(plan, cell) else { return Ok(None) };
    let Some(unlimited) = without_limits(&workload(case, plan.level)) else {
        return Ok(Some(kind_of(worst, false)));
    };
    let noisy = Noisy::confirmed(NOISY, 1.0);
    let free = compare_one(&unlimited, case, noisy, (between.reference, between.against))?;
    let of = |deviation| kind_of(deviation, strength(&free, kind_of(deviation, true)) <= 1.0);
    let mut far: Vec<_> = cell.deviations.iter().filter(|d| d.ratio > plan.beyond).collect();
    far.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    let needs_limits = far.into_iter().map(of).find(|kind| kind.needs_limits);
    Ok(needs_limits.filter(|_| plan.limits_only).or_else(|| Some(of(worst))))
}

/// The workload without limits; `None` if it has none.
fn without_limits(workload: &Workload) -> Option<Workload> {
    let mut parts = is_limited(workload).then(|| workload.clone().into_parts())?;
    for group in &mut parts.groups {
        group.limit = Limit::UNLIMITED;
    }
    parts.interventions.retain(|at| !matches!(at.action, Action::WriteLimit { .. }));
    Workload::try_from(parts).ok()
}

fn is_limited(workload: &Workload) -> bool {
    let from_the_start = workload.groups.iter().any(|group| group.limit.quota_ns().is_some());
    let later = |at: &Intervention| {
        let Action::WriteLimit { limit, .. } = at.action else { return false };
        limit.quota_ns().is_some()
    };
    from_the_start || workload.interventions.iter().any(later)
}

fn kind_of(deviation: &Deviation, needs_limits: bool) -> Kind {
    let reference_has_more = deviation.reference > deviation.found;
    Kind { field: deviation.field, reference_has_more, needs_limits }
}

/// The largest ratio of this kind of disagreement in a cell.
fn strength(cell: &Cell, kind: Kind) -> f64 {
    let same = cell.deviations.iter().filter(|d| kind_of(d, kind.needs_limits) == kind);
    same.map(|deviation| deviation.ratio).fold(0.0, f64::max)
}

fn compare_one(
    workload: &Workload,
    seed: u64,
    noisy: Noisy,
    (reference, against): (&Side, &Side),
) -> Result<Cell, Error> {
    let mut made = None;
    let pair = Pair::new(workload.clone(), seed, noisy);
    column(&[pair], Mode::Exact, reference, against, |cell| made = Some(cell))?;
    made.ok_or_else(|| Error::World {
        world: reference.label.clone(),
        reason: "it did not answer".to_owned(),
    })
}

/// Shrinks a case by few runs while the disagreement stays of its kind, then returns the last step
/// that [`Noisy::MOST`] runs confirm.
fn shrink(
    plan: &Plan,
    case: u64,
    (cell, kind): (&Cell, Kind),
    between: Between<'_>,
    event: &mut impl FnMut(Event<'_>) -> Result<(), Error>,
) -> Result<Found, Error> {
    let enough = strength(cell, kind).min(STRONG.max(plan.beyond));
    // A ratio of exactly `enough` needs confirmation too.
    let noisy = Noisy::confirmed(NOISY, enough.next_down());
    let mut start = (workload(case, plan.level), cell.clone());
    let mut tried = 0;
    if let Some([first, second]) = between.models {
        let mut differ = |candidate: &Workload| {
            tried += 1;
            event(Event::Shrinking(tried))?;
            let made = compare_one(candidate, case, Noisy::only(NOISY_MODELS), (first, second))?;
            Ok(strength(&made, kind) >= enough)
        };
        if differ(&start.0)? {
            let small = minimize(&start.0, plan.attempts, kind, &mut differ)?;
            let made = compare_one(&small, case, noisy, (between.reference, between.against))?;
            if strength(&made, kind) >= enough {
                start = (small, made);
            }
        }
    }
    let mut steps = Vec::new();
    minimize(&start.0, plan.attempts, kind, |candidate| {
        tried += 1;
        event(Event::Shrinking(tried))?;
        let noisy = Noisy::only(NOISY);
        let made = compare_one(candidate, case, noisy, (between.reference, between.against))?;
        let differs = strength(&made, kind) >= enough;
        steps.extend(differs.then(|| candidate.clone()));
        Ok(differs)
    })?;
    for workload in steps.into_iter().rev() {
        tried += 1;
        event(Event::Shrinking(tried))?;
        let cell = compare_one(&workload, case, noisy, (between.reference, between.against))?;
        if strength(&cell, kind) >= enough {
            return Ok(Found { case, workload, cell });
        }
    }
    let (workload, cell) = start;
    Ok(Found { case, workload, cell })
}

/// Shrinks with `differs` as the test of a candidate.
fn minimize(
    workload: &Workload,
    attempts: u64,
    kind: Kind,
    mut differs: impl FnMut(&Workload) -> Result<bool, Error>,
) -> Result<Workload, Error> {
    let mut failed = None;
    let small = random::minimize(workload, attempts, |candidate| {
        // Without equal settings the kernels would differ for another reason.
        let same = |w: &Workload| (w.machine.preempt, w.machine.hrtick);
        let has_phase = candidate.machine.timer_phase_ns.is_some();
        let is_leveled = workload.machine.timer_phase_ns.is_none()
            || has_phase && same(candidate) == same(workload);
        if failed.is_some() || !is_leveled || kind.needs_limits && !is_limited(candidate) {
            return false;
        }
        differs(candidate).unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    });
    failed.map_or(Ok(small), Err)
}

impl Line {
    fn of(case: u64, cell: &Cell) -> Line {
        let reason = match &cell.verdict {
            Verdict::Refused(reason) | Verdict::Failed(reason) => Some(reason.clone()),
            Verdict::Agrees(_) | Verdict::Differs(_) => None,
        };
        Line {
            case,
            // Three decimals: the written number reads back as the same one.
            ratio: cell.verdict.ratio().map(|ratio| (ratio * 1000.0).round() / 1000.0),
            kind: None,
            path: cell.worst().map(|worst| worst.path.clone()),
            reason,
            refused: matches!(cell.verdict, Verdict::Refused(_)),
            kept: false,
        }
    }
}
