//! The smallest limit that keeps the goals set for a recorded service, how sure that is, and the
//! alternatives.
//!
//! The model tries each limit as a replay does. A limit keeps a goal if the worse end of the
//! predicted range does, on each kernel and for each recording. Limits that cannot be predicted are
//! not recommended; the search goes on to the next larger one that can. Where a recording does not
//! tell enough, no limit is named.
//!
//! A [`Case`] is a recording, a [`Question`] has the [`Goal`]s. The [`Advice`] has what was
//! [`Found`] for each [`Kind`] of limit, with the [`Probe`]s that decide:
//!
//! ```
//! use cpumax_forecast::advise::{Case, Goal, Question, advise};
//! use cpumax_forecast::{Request, recorded};
//! use cpumax_recording::Options;
//! use cpumax_study::Running;
//!
//! let path = "../../recordings/web-closed.perf.data".as_ref();
//! let recording = recorded::read(path, Options::default())?;
//! let periods_ns = vec![100_000_000];
//! let request = Request { periods_ns: periods_ns.clone(), ..Request::default() };
//! let case = Case::new(recorded::name(path), &recording, &request)?;
//! let question = Question {
//!     goals: vec![Goal::P99(50_000_000)],
//!     kernels: None,
//!     periods_ns,
//!     bursts_percent: vec![0.0],
//!     load: 1.0,
//!     current: None,
//!     others: false,
//!     seed: 1,
//! };
//! let advice = advise(&[case], &question.checked()?, &Running::default(), &())?;
//! assert!(advice.lacks.is_empty(), "{:?}", advice.lacks);
//! let smallest = advice.recommended().and_then(|found| found.smallest.as_ref());
//! let limit = smallest.expect("some limit keeps it").limit.limit;
//! assert!(limit.millicpus() > Some(800), "it uses 0.86 CPUs: {limit}");
//! # Ok::<(), cpumax_study::Error>(())
//! ```

mod document;
mod enough;
mod readings;
mod search;

pub use crate::goal::{Goal, Held, Measure, USUAL};
pub use document::{Advised, Demanded, KindNeeds, Named, Role, RunHeld, Told, Tried};
pub use enough::Lack;
pub use search::{Searched, smallest};

use crate::predict::Prediction;
use crate::replay::{Replay, Request, Run};
use cpumax_limit::{DEFAULT_PERIOD_NS, Limit, MIN_QUOTA_NS};
use cpumax_machine::kernel::Kernel;
use cpumax_recording::Recording;
use cpumax_study::{Error, Try, Watch, world::Running};
use std::collections::BTreeMap;

/// The smallest step from one limit to the next, in thousandths of a CPU.
pub const STEP_MILLICPUS: u64 = 10;
/// Larger limits grow by a step of this part of the limit (a twentieth).
pub const STEP_PART: u64 = 20;

/// One recording of the service.
#[derive(Debug)]
pub struct Case {
    /// Name of the recording.
    pub name: String,
    /// Its replay, perhaps with more traffic.
    pub replay: Replay,
}

impl Case {
    /// Prepares the replay of a recording, at the load of the request; `name` stands in answers.
    ///
    /// # Errors
    /// As of [`Replay::new`].
    pub fn new(name: String, recording: &Recording, request: &Request) -> Result<Case, Error> {
        Ok(Case { replay: Replay::new(&name, recording, request)?, name })
    }
}

/// The goals and the limits to search.
#[derive(Debug, Clone)]
pub struct Question {
    /// Goals that a limit must keep; empty stands for [`USUAL`].
    pub goals: Vec<Goal>,
    /// Kernels on which the goals must hold; `None`: each recording's own.
    pub kernels: Option<Vec<Kernel>>,
    /// Periods to try, ns.
    pub periods_ns: Vec<u64>,
    /// Bursts to try, per cent of the quota.
    pub bursts_percent: Vec<f64>,
    /// Factor on the recorded traffic.
    pub load: f64,
    /// The present limit of the service.
    pub current: Option<Try>,
    /// Whether to try alternatives: burst, a shorter period, the newest kernel.
    pub others: bool,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A kind of limit: everything but the number of CPUs that it gives.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Length of a period, ns.
    pub period_ns: u64,
    /// Burst, per cent of the quota.
    pub burst_percent: f64,
    /// A kernel to try in place of those of the question.
    pub kernel: Option<Kernel>,
}

/// A limit (or none), its runs, and the goals checked against them.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The limit.
    pub limit: Try,
    /// Its runs: of each recording in order, on each kernel.
    pub runs: Vec<Vec<Run>>,
    /// The goals as checked against each run, in the order of `runs`.
    pub held: Vec<Vec<Vec<Held>>>,
}

/// Result of the search over one kind of limit.
#[derive(Debug, Clone)]
pub struct Found {
    /// The kind.
    pub kind: Kind,
    /// The smallest limit that keeps the goals.
    pub smallest: Option<Probe>,
    /// The next smaller limit, which does not.
    pub below: Option<Probe>,
    /// The smallest limit whose ranges keep the goals, where its prediction is unreliable.
    pub risky: Option<Probe>,
    /// Limits that keep the goals although a larger one does not.
    pub uneven: Vec<Try>,
    /// How many limits were tried.
    pub tried: usize,
    /// A kernel without such limits; then none is tried.
    pub lacking: Option<Kernel>,
}

/// The answer to a [`Question`].
#[derive(Debug)]
pub struct Advice {
    /// The goals of the question, or the usual ones.
    pub goals: Vec<Goal>,
    /// The question had no goals.
    pub is_usual: bool,
    /// Information that the recordings lack; if any, no limit is named.
    pub lacks: Vec<Lack>,
    /// The runs without a limit.
    pub unlimited: Probe,
    /// The runs under the present limit of the service.
    pub current: Option<Probe>,
    /// Results for the kinds of the question.
    pub found: Vec<Found>,
    /// Place in `found` of the kind that needs the fewest CPUs.
    pub best: Option<usize>,
    /// Results for alternative kinds.
    pub others: Vec<Found>,
    /// Factor on the recorded traffic.
    pub load: f64,
}

impl Question {
    /// Checks the question, and removes duplicates: periods come longest first, bursts smallest
    /// first.
    ///
    /// # Errors
    /// The kernel refuses a period or it is no whole number of microseconds, a throughput goal is 0
    /// %, or the current limit has a weight or is not of the service's own group alone.
    pub fn checked(mut self) -> Result<Question, Error> {
        for &period_ns in &self.periods_ns {
            if !period_ns.is_multiple_of(1_000) {
                let what = format!("a period cannot be {period_ns} ns: give whole microseconds");
                return Err(Error::Question(what));
            }
            Limit::new(None, period_ns, 0).map_err(|error| Error::Question(error.to_string()))?;
        }
        if self.goals.contains(&Goal::Throughput(0.0)) {
            let what = "a throughput of 0 % asks for nothing: give more than 0 %".to_owned();
            return Err(Error::Question(what));
        }
        if let Some(current) = &self.current
            && (current.weight.is_some() || current.group.is_some() || !current.is_alone())
        {
            let what = "the current limit may only have quota, period and burst of the service \
                        itself: give no group, pod or weight";
            return Err(Error::Question(what.to_owned()));
        }
        self.periods_ns.sort_unstable();
        self.periods_ns.reverse();
        self.periods_ns.dedup();
        self.bursts_percent.sort_by(f64::total_cmp);
        self.bursts_percent.dedup();
        Ok(self)
    }
}

impl Advice {
    /// The kind whose smallest limit is recommended: the one that needs the fewest CPUs. `None` if
    /// no kind has a limit that keeps the goals.
    pub fn recommended(&self) -> Option<&Found> {
        self.best.and_then(|best| self.found.get(best))
    }

    /// The smallest limit whose ranges keep the goals, where its prediction is unreliable: of the
    /// recommended kind, or without one the first that any kind has.
    pub fn risky(&self) -> Option<&Probe> {
        match self.recommended() {
            Some(found) => found.risky.as_ref(),
            None => self.found.iter().find_map(|found| found.risky.as_ref()),
        }
    }

    /// Whether reliable predictions keep every goal without a limit.
    pub fn can_be_kept(&self) -> bool {
        self.unlimited.is_kept()
    }
}

impl Advice {
    /// Runs the recommended, the next smaller and the current limit again, on the last kernel of
    /// one recording, and stores the traces in these runs. Of several recordings it takes the one
    /// on which the next smaller limit fails worst, else the first.
    ///
    /// # Errors
    /// As of [`Replay::runs`].
    pub fn trace(
        &mut self,
        cases: &[Case],
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let below = self.recommended().and_then(|found| found.below.as_ref());
        let at = below.and_then(Probe::decides).map_or(0, |(at, ..)| at);
        let Some(case) = cases.get(at) else { return Ok(()) };
        let best = self.best.and_then(|best| self.found.get_mut(best));
        let (smallest, below) = match best {
            Some(found) => (found.smallest.as_mut(), found.below.as_mut()),
            None => (None, None),
        };
        let probes = [smallest, below, self.current.as_mut()].into_iter().flatten();
        let mut runs: Vec<&mut Run> =
            probes.filter_map(|probe| probe.runs.get_mut(at)?.last_mut()).collect();
        case.replay.trace(&mut runs, running, watch)
    }
}

impl Probe {
    /// Whether the ranges of all runs keep every goal, and every prediction is reliable.
    pub fn is_kept(&self) -> bool {
        self.is_kept_by_its_ranges() && self.each().all(|(_, run, _)| run.prediction.predictable)
    }

    /// Whether the worse end of the range keeps every goal in all runs, even where a prediction is
    /// unreliable.
    pub fn is_kept_by_its_ranges(&self) -> bool {
        self.each().all(|(_, _, held)| held.iter().all(Held::is_kept))
    }

    /// Each run, with the place of its recording and the goals checked against it.
    pub fn each(&self) -> impl Iterator<Item = (usize, &Run, &[Held])> {
        let cases = self.runs.iter().zip(&self.held).enumerate();
        cases.flat_map(|(case, (runs, held))| {
            runs.iter().zip(held).map(move |(run, held)| (case, run, held.as_slice()))
        })
    }

    /// The goal furthest from being kept, or closest to its bound, with its run and the place of
    /// its recording in the cases. A missed goal comes before an unreliable prediction, and that
    /// before the largest excess. `None` without runs.
    pub fn decides(&self) -> Option<(usize, &Run, Held)> {
        let all = self
            .each()
            .flat_map(|(case, run, held)| held.iter().map(move |held| (case, run, *held)));
        // A bound that is exceeded is worse than an unreliable number; of equals the first counts.
        let key = |(_, run, held): &(usize, &Run, Held)| {
            (!held.is_kept(), !run.prediction.predictable, held.excess())
        };
        all.fold(None, |worst, item| match &worst {
            Some(so_far) if key(so_far) >= key(&item) => worst,
            _ => Some(item),
        })
    }
}

impl Kind {
    /// The limit of this kind with a quota of `millicpus` thousandths of a CPU, in whole
    /// microseconds; `None` where the kernel would refuse it.
    fn limit(&self, millicpus: u64) -> Option<Try> {
        let quota_ns = millicpus.checked_mul(self.period_ns)? / 1_000;
        let burst_ns = (quota_ns as f64 * self.burst_percent / 100.0).round() as u64;
        // The kernel's files are in microseconds.
        let in_us = |ns: u64| ns / 1_000 * 1_000;
        Limit::new(Some(in_us(quota_ns)), self.period_ns, in_us(burst_ns)).ok().map(Try::of)
    }

    /// The limits to search, in thousandths of a CPU, ascending from the smallest quota that the
    /// kernel accepts to all `cpus`. Steps are a twentieth of the limit, at least 10.
    fn ladder(&self, cpus: u16) -> Vec<u64> {
        let most = u64::from(cpus) * 1_000;
        let next = |at: &u64| {
            let step = (at / STEP_PART / STEP_MILLICPUS).max(1) * STEP_MILLICPUS;
            (*at < most).then(|| most.min(at + step))
        };
        let all = std::iter::successors(Some(STEP_MILLICPUS.min(most)), next);
        all.filter(|millicpus| millicpus * self.period_ns / 1_000 >= MIN_QUOTA_NS).collect()
    }
}

/// State of answering one question.
struct Searching<'a> {
    cases: &'a [Case],
    question: &'a Question,
    goals: &'a [Goal],
    running: &'a Running,
    watch: &'a dyn Watch,
    /// Predictions without a limit, by the place of the recording and the kernel.
    unlimited: BTreeMap<(usize, String), Prediction>,
    /// Facts to find out before a limit is named.
    lacks: Vec<Lack>,
}

/// Runs every recording without a limit and under the current one, then searches the smallest limit
/// of each kind. It searches nothing where recordings lack information or the goals fail without a
/// limit.
///
/// # Errors
/// A limit is not possible on a kernel, or a run fails.
pub fn advise(
    cases: &[Case],
    question: &Question,
    running: &Running,
    watch: &dyn Watch,
) -> Result<Advice, Error> {
    let is_usual = question.goals.is_empty();
    let goals = if is_usual { vec![USUAL] } else { question.goals.clone() };
    let unlimited = BTreeMap::new();
    let mut lacks = Vec::new();
    let mut searching =
        Searching { cases, question, goals: &goals, running, watch, unlimited, lacks: Vec::new() };
    let none = Try::none();
    let unlimited = searching.run_limits(&[&none], None)?.remove(0);
    for (at, case) in cases.iter().enumerate() {
        lacks.extend(enough::lacks(case, question, &unlimited.runs[at]));
    }
    let current = match &question.current {
        Some(current) => searching.run_limits(&[current], None)?.pop(),
        None => None,
    };
    let mut found = Vec::new();
    if lacks.is_empty() && unlimited.is_kept() {
        for &period_ns in &question.periods_ns {
            for &burst_percent in &question.bursts_percent {
                let kind = Kind { period_ns, burst_percent, kernel: None };
                found.push(searching.search(kind, None)?);
            }
        }
    }
    if let Some(kernel) = found.iter().find_map(|found| found.lacking)
        && found.iter().all(|found| found.lacking.is_some())
    {
        return Err(Error::NoBurst { kernel: kernel.version.to_string() });
    }
    let millicpus = |found: &Found| found.smallest.as_ref()?.limit.limit.millicpus();
    let best =
        found.iter().enumerate().filter_map(|(at, found)| Some((millicpus(found)?, at))).min();
    let best = best.map(|(_, at)| at);
    if best.is_none() {
        lacks.append(&mut searching.lacks);
        lacks.extend(found.iter().filter_map(|found| enough::unreliable(cases, found)));
    }
    let mut others = Vec::new();
    if let Some(best) = best.map(|at| &found[at]).filter(|_| question.others) {
        for kind in searching.other_kinds(best.kind) {
            others.push(searching.search(kind, millicpus(best))?);
        }
    }
    drop(searching);
    let load = question.load;
    Ok(Advice { goals, is_usual, lacks, unlimited, current, found, best, others, load })
}

impl Searching<'_> {
    /// The kernels on which a recording is replayed: those of the question, or else its own.
    fn kernels(&self, case: &Case) -> Vec<Kernel> {
        match &self.question.kernels {
            Some(kernels) => kernels.clone(),
            None => case.replay.kernels().into_iter().take(1).collect(),
        }
    }

    /// Replays all recordings under each limit and checks the goals: one probe for each of
    /// `limits`, in order. A given `kernel` replaces those of the question. Predictions without a
    /// limit are made where they are missing, and stored in `self.unlimited`. An error as of
    /// [`Replay::under`].
    fn run_limits(&mut self, limits: &[&Try], kernel: Option<Kernel>) -> Result<Vec<Probe>, Error> {
        let mut probes: Vec<Probe> = limits
            .iter()
            .map(|&limit| Probe { limit: limit.clone(), runs: Vec::new(), held: Vec::new() })
            .collect();
        let none = Try::none();
        for (at, case) in self.cases.iter().enumerate() {
            let kernels = kernel.map_or_else(|| self.kernels(case), |kernel| vec![kernel]);
            let (seed, running) = (self.question.seed, self.running);
            let unknown = |kernel: &Kernel| {
                let name = kernel.version.to_string();
                !self.unlimited.contains_key(&(at, name))
            };
            let is_new = kernels.iter().any(unknown);
            let mut asked = limits.to_vec();
            if is_new && !asked.contains(&&none) {
                asked.push(&none);
            }
            let runs = case.replay.under(&asked, &kernels, seed, running, self.watch)?;
            for run in runs.iter().filter(|run| run.limit == none) {
                let of = (at, run.outcome.kernel.clone());
                self.unlimited.insert(of, run.prediction.clone());
            }
            for probe in &mut probes {
                let own: Vec<Run> =
                    runs.iter().filter(|run| run.limit == probe.limit).cloned().collect();
                let held =
                    own.iter().map(|run| self.check_goals(at, run, &run.prediction)).collect();
                probe.runs.push(own);
                probe.held.push(held);
            }
        }
        Ok(probes)
    }

    /// Checks each goal against a prediction of one run, relative to the stored prediction without
    /// a limit on its kernel.
    fn check_goals(&self, case: usize, run: &Run, prediction: &Prediction) -> Vec<Held> {
        let without = self.unlimited.get(&(case, run.outcome.kernel.clone()));
        let without = without.unwrap_or(prediction);
        self.goals.iter().map(|goal| goal.held(prediction, without)).collect()
    }

    /// Searches the smallest limit of a kind, first by ranges alone, then by reliable predictions.
    /// It starts at about `start` thousandths of a CPU, by default the mean use at the asked load.
    /// Where a kernel lacks a part of such limits, nothing is tried, and the result says so. An
    /// error as of [`Replay::under`].
    fn search(&mut self, kind: Kind, start: Option<u64>) -> Result<Found, Error> {
        let machines = self.cases.iter().map(|case| case.replay.summary().cpus);
        let ladder = kind.ladder(machines.max().unwrap_or(1));
        let used = self.cases.iter().map(|case| case.replay.mean_cpus() * self.question.load);
        let used = start.unwrap_or_else(|| (used.fold(0.0, f64::max) * 1_000.0) as u64);
        let start = ladder.iter().rposition(|millicpus| *millicpus <= used).unwrap_or(0);
        let lacking = self.unsupported_on(kind, ladder.get(start).copied());
        let mut found = Found {
            kind,
            smallest: None,
            below: None,
            risky: None,
            uneven: Vec::new(),
            tried: 0,
            lacking,
        };
        if lacking.is_some() {
            return Ok(found);
        }
        let mut probes: BTreeMap<usize, Probe> = BTreeMap::new();
        let by_ranges = smallest(ladder.len(), start, |at| {
            self.add_probes(kind, &ladder, at, &mut probes)?;
            Ok::<_, Error>(at.iter().map(|at| probes[at].is_kept_by_its_ranges()).collect())
        })?;
        let mut best = by_ranges.smallest;
        if let Some(least) = best.filter(|at| !probes[at].is_kept()) {
            let relied_on = smallest(ladder.len(), least, |at| {
                self.add_probes(kind, &ladder, at, &mut probes)?;
                Ok::<_, Error>(at.iter().map(|at| probes[at].is_kept()).collect())
            })?;
            best = relied_on.smallest;
            found.risky = Some(probes[&least].clone());
        }
        if let Some(at) = best
            && let Some(lack) = self.depends_on_clients(kind, &ladder, at, &mut probes)?
        {
            self.lacks.push(lack);
            (best, found.risky) = (None, None);
        }
        let limit = |at: usize| Some(probes.get(&at)?.limit.clone());
        found.uneven = by_ranges.uneven().into_iter().filter_map(limit).collect();
        found.tried = probes.len();
        found.below = best.and_then(|at| probes.remove(&at.checked_sub(1)?));
        found.smallest = best.and_then(|at| probes.remove(&at));
        Ok(found)
    }

    /// Replays all recordings under the steps `at` of the ladder that are not in `probes` yet, and
    /// inserts their results there. An error as of [`Replay::under`].
    fn add_probes(
        &mut self,
        kind: Kind,
        ladder: &[u64],
        at: &[usize],
        probes: &mut BTreeMap<usize, Probe>,
    ) -> Result<(), Error> {
        let new: Vec<usize> = at.iter().copied().filter(|at| !probes.contains_key(at)).collect();
        let limit = |at: &usize| kind.limit(ladder[*at]).unwrap_or_else(Try::none);
        let limits: Vec<Try> = new.iter().map(limit).collect();
        let asked: Vec<&Try> = limits.iter().collect();
        let done = if new.is_empty() { Vec::new() } else { self.run_limits(&asked, kind.kernel)? };
        probes.extend(new.into_iter().zip(done));
        Ok(())
    }

    /// The first kernel of the search that lacks a part of such a limit, such as its burst. `None`
    /// as well where there is no valid limit of `millicpus`.
    fn unsupported_on(&self, kind: Kind, millicpus: Option<u64>) -> Option<Kernel> {
        let limit = kind.limit(millicpus?)?;
        let asked = self.cases.iter().flat_map(|case| self.kernels(case));
        let all = kind.kernel.map_or_else(|| asked.collect(), |kernel| vec![kernel]);
        all.into_iter().find(|kernel| limit.lacks(*kernel).is_ok_and(|lacks| !lacks.is_empty()))
    }

    /// Alternatives to `best`, each only where the question leaves it open: a burst of 100 %, a
    /// fifth of the default period, the newest kernel.
    fn other_kinds(&self, best: Kind) -> Vec<Kind> {
        let mut kinds = Vec::new();
        if self.question.bursts_percent == [0.0] {
            kinds.push(Kind { burst_percent: 100.0, ..best });
        }
        if self.question.periods_ns == [DEFAULT_PERIOD_NS] {
            kinds.push(Kind { period_ns: DEFAULT_PERIOD_NS / 5, ..best });
        }
        let newest = Kernel::newest();
        let is_asked =
            |case: &Case| self.kernels(case).iter().any(|own| own.version == newest.version);
        if self.question.kernels.is_none() && !self.cases.iter().all(is_asked) {
            kinds.push(Kind { kernel: Some(newest), ..best });
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { period_ns: DEFAULT_PERIOD_NS, burst_percent: 0.0, kernel: None };

    #[test]
    fn steps_are_ten_thousandths_of_a_cpu_or_about_a_twentieth() {
        let ladder = KIND.ladder(2);
        assert_eq!(ladder[..3], [10, 20, 30]);
        assert_eq!(ladder.last(), Some(&2_000));
        for pair in ladder.windows(2) {
            let step = pair[1] - pair[0];
            assert!(step == 10 || step <= pair[0] / 20, "{pair:?}");
        }
        let short = Kind { period_ns: 10_000_000, ..KIND };
        assert_eq!(short.ladder(1)[0], 100, "the kernel takes no less than 1 ms");
        assert!(KIND.ladder(4096).len() < 300);
    }

    #[test]
    fn a_limit_has_its_burst_in_per_cent_of_the_quota() {
        let half = Kind { burst_percent: 50.0, ..KIND }.limit(330).unwrap();
        assert_eq!((half.label().as_str(), half.limit.millicpus()), ("33/100+16.5", Some(330)));
        assert!(KIND.limit(5).is_none());
    }
}
