//! The search for workloads on which two worlds differ: small random ones are run in both, and what
//! disagrees is made as small as it can be.
//!
//! Cases are numbered; a number, a kernel and a version of the program make a run. What was tried
//! stands in a log, one line for each case, so that a search that was stopped goes on where it was.

mod log;

pub use log::{Line, Log};

use crate::cell::{Cell, Mode, Verdict};
use crate::matrix::{Noisy, Pair, column};
use crate::world::{Error, World};
use cpumax_engine::NamedKernel;
use cpumax_limit::Limit;
use cpumax_outcome::{Deviation, Field};
use cpumax_workload::random;
use cpumax_workload::{Action, Domain, Intervention, Preempt, Stream, Workload};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Runs of a model under noise by which it is judged whether two worlds may differ; what they do
/// not tell alike is judged by as many as a comparison makes.
const NOISY: u32 = 50;
/// The same while something is made small in models, thousands of times: there it need not be so.
const NOISY_MODELS: u32 = 10;

/// Phases of period timers are drawn below that, ns: no period is longer.
const PHASE_NS: u64 = 100_000_000;

/// Cases run in one go: a virtual machine boots once for them.
const BATCH: usize = 16;
/// A disagreement is shrunk only as long as it stays at least this many times its tolerance, or as
/// large as it was.
const STRONG: f64 = 5.0;

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of the first case.
    pub first: u64,
    /// How many cases.
    pub cases: u64,
    /// A case disagrees when its worst number is this many times as far off as it may be; from 1.
    pub beyond: f64,
    /// Of each kind of disagreement, this many are shrunk and kept.
    pub kept_of_kind: u64,
    /// Comparisons that may be made to shrink one.
    pub attempts: u64,
    /// Only what goes away with all limits is shrunk and kept.
    pub limits_only: bool,
    /// For two kernels, whose own differ: both run with this preemption, the same phase of period
    /// timers and without a high-resolution tick.
    pub level: Option<Preempt>,
}

/// What is held against each other.
pub struct Between<'a> {
    /// Goes first.
    pub reference: &'a mut dyn World,
    /// Gets the conditions that the reference found.
    pub against: &'a mut dyn World,
    /// Where both are real kernels: models of them, which are a thousand times as fast. What they
    /// disagree on in the same way is made small there first.
    pub models: Option<[&'a mut dyn World; 2]>,
}

/// What comes of it, as it comes.
#[derive(Debug)]
pub enum Event<'a> {
    /// A case was run in both worlds, or had been in an earlier search.
    Case(&'a Line),
    /// A disagreement is being shrunk; so many comparisons have been made.
    Shrinking(u64),
    /// A disagreement was shrunk.
    Found(&'a Found),
}

/// A disagreement, shrunk.
#[derive(Debug, Clone)]
pub struct Found {
    /// Number of the case.
    pub case: u64,
    /// What is left of it.
    pub workload: Workload,
    /// What it shows.
    pub cell: Cell,
}

/// What kind of disagreement it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    /// The worst number of those that are looked for.
    pub field: Field,
    /// Whether the reference has more of it.
    pub reference_has_more: bool,
    /// Whether it goes away with all limits: it is not about who is served first.
    pub needs_limits: bool,
}

/// Preemption that both kernels have: their own if that is the same, else the one that all have.
pub fn level_of_both(one: &NamedKernel, other: &NamedKernel) -> Preempt {
    let [own, of_other] = [one, other].map(|asked| asked.kernel.preempt());
    let has_real_time = [one, other].iter().any(|asked| asked.name.ends_with("-rt"));
    if own == of_other && !has_real_time { own } else { Preempt::Full }
}

/// What came of the cases so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Cases that were run, or had been in an earlier search.
    pub cases: u64,
    /// Of these, on which the two worlds differ.
    pub disagreed: u64,
    /// Why others could not be run, and how many.
    pub refused: BTreeMap<String, u64>,
    /// Why others did not come to their end, and how many.
    pub failed: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts one more.
    pub fn count(&mut self, line: &Line) {
        self.cases += 1;
        self.disagreed += u64::from(line.kind.is_some());
        if let Some(reason) = &line.reason {
            let counts = if line.refused { &mut self.refused } else { &mut self.failed };
            *counts.entry(reason.clone()).or_default() += 1;
        }
    }

    /// There were cases, and all of them were refused or failed.
    pub fn has_run_none(&self) -> bool {
        let not_run: u64 = self.refused.values().chain(self.failed.values()).sum();
        self.cases > 0 && not_run == self.cases
    }

    /// Why cases were not run, one line for each reason.
    pub fn reasons(&self) -> impl Iterator<Item = String> {
        let all = [(&self.refused, "could not be run"), (&self.failed, "failed")];
        let of = |(counts, what)| {
            let told = move |(reason, count)| format!("{count} {what}: {reason}");
            BTreeMap::iter(counts).map(told)
        };
        all.into_iter().flat_map(of)
    }
}

/// The workload of a case.
pub fn workload(case: u64, level: Option<Preempt>) -> Workload {
    let made = random::real(case);
    if level.is_none() {
        return made;
    }
    let mut parts = made.clone().into_parts();
    parts.machine.hrtick = Some(false);
    parts.machine.preempt = level;
    parts.machine.timer_phase_ns = Some(Stream::new(case, Domain::Group, 0).below(PHASE_NS));
    // Cases have no softirqs, which some levels do not take.
    Workload::try_from(parts).unwrap_or(made)
}

/// Runs all cases that the log does not have yet.
///
/// # Errors
/// When a world can do no more jobs or was interrupted, or the log cannot be written. The log then
/// has all cases that were done; of the last few that were run those that disagree may not have
/// been looked into yet.
pub fn search(
    plan: &Plan,
    log: &mut Log,
    between: &mut Between<'_>,
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
        batch(plan, cases, between, |case, cell| {
            if far_off(plan, &cell).is_some() {
                // It is done when its kind is known, which takes more runs.
                far.push((case, cell));
                return Ok(());
            }
            note(Line::of(case, &cell), log, &mut event)
        })?;
        for (case, cell) in far {
            let mut line = Line::of(case, &cell);
            line.kind = kind(plan, case, &cell, between)?;
            if let Some(kind) = line.kind.filter(|kind| kind.needs_limits || !plan.limits_only)
                && shrunk.get(&kind).copied().unwrap_or(0) < plan.kept_of_kind
            {
                let found = shrink(plan, case, (&cell, kind), between, &mut event)?;
                *shrunk.entry(kind).or_default() += 1;
                line.kept = true;
                event(Event::Found(&found))?;
            }
            note(line, log, &mut event)?;
        }
    }
    Ok(())
}

/// First in the log, so that it is there whatever comes next.
fn note(
    line: Line,
    log: &mut Log,
    event: &mut impl FnMut(Event<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    log.append(line)?;
    log.lines().last().map_or(Ok(()), |line| event(Event::Case(line)))
}

/// Runs cases in both worlds; `each` is given them in order, as they are finished, up to its first
/// error.
fn batch(
    plan: &Plan,
    cases: &[u64],
    between: &mut Between<'_>,
    mut each: impl FnMut(u64, Cell) -> Result<(), Error>,
) -> Result<(), Error> {
    let workloads: Vec<Workload> = cases.iter().map(|&case| workload(case, plan.level)).collect();
    let noisy = Noisy::confirmed(NOISY, plan.beyond);
    let pairs: Vec<Pair<'_>> = workloads
        .iter()
        .zip(cases)
        .map(|(workload, &seed)| Pair { workload, seed, trace: false, noisy, runs: 1 })
        .collect();
    let mut told = Ok(());
    let mut cases = cases.iter();
    let Between { reference, against, .. } = between;
    let ran = column(&pairs, Mode::Exact, *reference, *against, |cell| {
        if let (Ok(()), Some(&case)) = (&told, cases.next()) {
            told = each(case, cell);
        }
    });
    told.and(ran)
}

/// A cell's worst number, if it is far enough off.
fn far_off<'a>(plan: &Plan, cell: &'a Cell) -> Option<&'a Deviation> {
    cell.worst().filter(|worst| worst.ratio > plan.beyond)
}

/// The kind of a cell's disagreement, if it is far enough off: that of its worst number, or if only
/// what needs limits is looked for of the worst that does. What is served later without limits,
/// too, may hide who has had more than its quota.
fn kind(
    plan: &Plan,
    case: u64,
    cell: &Cell,
    between: &mut Between<'_>,
) -> Result<Option<Kind>, Error> {
    let Some(worst) = far_off(plan, cell) else { return Ok(None) };
    let Some(unlimited) = without_limits(&workload(case, plan.level)) else {
        return Ok(Some(kind_of(worst, false)));
    };
    let noisy = Noisy::confirmed(NOISY, 1.0);
    let free = one(&unlimited, case, noisy, (between.reference, between.against))?;
    let of = |deviation| kind_of(deviation, strength(&free, kind_of(deviation, true)) <= 1.0);
    let mut far: Vec<_> = cell.deviations.iter().filter(|d| d.ratio > plan.beyond).collect();
    far.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    let needs_limits = far.into_iter().map(of).find(|kind| kind.needs_limits);
    Ok(needs_limits.filter(|_| plan.limits_only).or_else(|| Some(of(worst))))
}

/// The same without limits; `None` if there was none.
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

/// The strongest disagreement of this kind in a cell, as a ratio.
fn strength(cell: &Cell, kind: Kind) -> f64 {
    let same = cell.deviations.iter().filter(|d| kind_of(d, kind.needs_limits) == kind);
    same.map(|deviation| deviation.ratio).fold(0.0, f64::max)
}

fn one(
    workload: &Workload,
    seed: u64,
    noisy: Noisy,
    (reference, against): (&mut dyn World, &mut dyn World),
) -> Result<Cell, Error> {
    let mut made = None;
    let pair = Pair { workload, seed, trace: false, noisy, runs: 1 };
    column(&[pair], Mode::Exact, reference, against, |cell| made = Some(cell))?;
    made.ok_or_else(|| Error::World {
        world: reference.label(),
        reason: "it did not answer".to_owned(),
    })
}

/// Leaves out one thing after the other as long as the two disagree in the same way, by few runs.
/// Of these steps the last one is kept that is confirmed by as many as a comparison makes.
fn shrink(
    plan: &Plan,
    case: u64,
    (cell, kind): (&Cell, Kind),
    between: &mut Between<'_>,
    event: &mut impl FnMut(Event<'_>) -> Result<(), Error>,
) -> Result<Found, Error> {
    let enough = strength(cell, kind).min(STRONG.max(plan.beyond));
    // What has just enough is to be confirmed as well.
    let noisy = Noisy::confirmed(NOISY, enough.next_down());
    let mut start = (workload(case, plan.level), cell.clone());
    let mut tried = 0;
    if let Some([first, second]) = &mut between.models {
        let mut differ = |candidate: &Workload| {
            tried += 1;
            event(Event::Shrinking(tried))?;
            let made = one(candidate, case, Noisy::only(NOISY_MODELS), (*first, *second))?;
            Ok(strength(&made, kind) >= enough)
        };
        if differ(&start.0)? {
            let small = minimize(&start.0, plan.attempts, kind, &mut differ)?;
            let made = one(&small, case, noisy, (between.reference, between.against))?;
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
        let made = one(candidate, case, noisy, (between.reference, between.against))?;
        let differs = strength(&made, kind) >= enough;
        steps.extend(differs.then(|| candidate.clone()));
        Ok(differs)
    })?;
    for workload in steps.into_iter().rev() {
        tried += 1;
        event(Event::Shrinking(tried))?;
        let cell = one(&workload, case, noisy, (between.reference, between.against))?;
        if strength(&cell, kind) >= enough {
            return Ok(Found { case, workload, cell });
        }
    }
    let (workload, cell) = start;
    Ok(Found { case, workload, cell })
}

/// The same of any pair; `differs` tells whether a candidate is as good as what it was made of.
fn minimize(
    workload: &Workload,
    attempts: u64,
    kind: Kind,
    mut differs: impl FnMut(&Workload) -> Result<bool, Error>,
) -> Result<Workload, Error> {
    let mut failed = None;
    let small = random::minimize(workload, attempts, |candidate| {
        // Without these each kernel has its own again.
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
            // As many digits as matter: what is written reads back the same.
            ratio: cell.verdict.ratio().map(|ratio| (ratio * 1000.0).round() / 1000.0),
            kind: None,
            path: cell.worst().map(|worst| worst.path.clone()),
            reason,
            refused: matches!(cell.verdict, Verdict::Refused(_)),
            kept: false,
        }
    }
}
