//! Draws services that reproduce the measured counters, in stages, the cheap ones first.

use super::measured::Measured;
use super::seen::Seen;
use super::service::{Service, Setting};
use cpumax_limit::Limit;
use cpumax_machine::kernel::Kernel;
use cpumax_study::{Error, Watch};
use cpumax_workload::{Domain, Stream};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::iter;
use std::sync::{Mutex, PoisonError};

/// Requests, and the least time (ns), of the short runs that select services, and of the long runs
/// that count.
const SHORT: (f64, f64) = (200.0, 0.8e9);
const LONG: (f64, f64) = (1_600.0, 2.5e9);
/// Requests and least time (ns) of runs under a smaller limit, where a queue may grow without end.
const LONGER: (f64, f64) = (3_000.0, 6e9);
/// One of so many draws gets a long run.
const CLOSER: usize = 8;
const TOLD: usize = 40;
/// The least effective number of draws; the measurement is taken as less certain until it is
/// reached.
const COUNT_LEAST: f64 = 24.0;
/// The service is of another kind if every draw misses some counter by more standard deviations.
const OFF_MOST: f64 = 3.0;

/// A service, its weight, and its run under the present limit.
#[derive(Debug, Clone)]
pub(super) struct Draw {
    pub service: Service,
    pub weight: f64,
    pub seen: Seen,
    seed: u64,
    limit_cpus: f64,
}

/// The draws that count; their weights sum to 1.
#[derive(Debug)]
pub(super) struct Draws {
    pub all: Vec<Draw>,
    /// Effective number of draws: Kish's, by their weights.
    pub effective: f64,
    /// The counter that no draw reproduces.
    pub misfit: Option<&'static str>,
}

/// Runs of drawn services, which serve all containers for which the same ones are drawn.
#[derive(Debug, Default)]
pub(crate) struct Shared(Mutex<BTreeMap<String, Option<Seen>>>);

impl Shared {
    /// The result of `service.run(setting)`, run at most once.
    fn run(&self, service: &Service, setting: &Setting) -> Option<Seen> {
        let name = format!("{service:?} {setting:?}");
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all().get(&name).cloned();
        known.unwrap_or_else(|| {
            let seen = service.run(setting);
            all().insert(name, seen.clone());
            seen
        })
    }

    /// How many runs it holds.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

pub(super) struct Runs<'a> {
    pub kernel: Kernel,
    pub threads: usize,
    pub seed: u64,
    pub watch: &'a dyn Watch,
    pub shared: &'a Shared,
}

impl Runs<'_> {
    /// Results of `run` on all items with their places, in order, computed on `threads` threads.
    /// [`Error::Interrupted`] if the caller asks to stop, or an error if threads cannot be started.
    fn each<T: Sync, R: Send>(
        &self,
        items: &[T],
        run: impl Fn(usize, &T) -> R + Sync,
    ) -> Result<Vec<R>, Error> {
        let threads = self.threads.max(1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| Error::Threads { threads, reason: error.to_string() })?;
        let one = |(at, item)| (!self.watch.stopped()).then(|| run(at, item));
        let done: Option<Vec<R>> = pool.install(|| items.par_iter().enumerate().map(one).collect());
        done.ok_or(Error::Interrupted)
    }

    /// The run under the measured limit, with this seed, number of requests and least length (ns).
    fn setting(&self, measured: &Measured, seed: u64, (requests, least_ns): (f64, f64)) -> Setting {
        let (kernel, limit, window_ns) = (self.kernel, measured.limit, measured.window_ns());
        let above = measured.limit_above(limit);
        Setting { kernel, limit, above, seed, requests, least_ns, window_ns }
    }

    /// Draws `count` services in short runs, runs the nearest eighth (at least 40) for longer, and
    /// keeps the 40 that reproduce the measurement best. An error if the caller stopped the runs.
    pub fn draws(&self, measured: &Measured, count: usize) -> Result<Draws, Error> {
        let drawn = |index: usize, (): &()| {
            let mut stream = Stream::new(self.seed, Domain::Fit, index as u64);
            let service = Service::draw(&mut stream, measured);
            self.corrected(measured, service, stream.next_u64(), SHORT)
        };
        let short = self.each(&vec![(); count], drawn)?;
        let mut short: Vec<Draw> = short.into_iter().flatten().collect();
        short.sort_by(|a, b| a.weight.total_cmp(&b.weight));
        short.truncate((count / CLOSER).max(TOLD));
        let longer =
            |_: usize, draw: &Draw| self.corrected(measured, draw.service.clone(), draw.seed, LONG);
        let long = self.each(&short, longer)?.into_iter().flatten().collect();
        Ok(weighed(long, measured))
    }

    /// Runs a service for the requests and the least ns of `long`, with its load corrected so that
    /// it uses the measured CPU time. `None` if a run fails. The draw's weight is its squared
    /// distance until [`weighed`] sets it.
    fn corrected(
        &self,
        measured: &Measured,
        mut service: Service,
        seed: u64,
        long: (f64, f64),
    ) -> Option<Draw> {
        let setting = self.setting(measured, seed, long);
        if service.is_corrected(long == LONG) {
            let first = self.shared.run(&service, &Setting { window_ns: None, ..setting })?;
            service.correct(&first, measured.drawn_cpus());
        }
        let seen = self.shared.run(&service, &setting)?;
        let weight = distance(&measured.misses(&seen));
        let limit_cpus = measured.limit_cpus();
        Some(Draw { service, weight, seen, seed, limit_cpus })
    }

    /// Runs each draw under a limit, and one of its pod, on a kernel, longer where the limit is
    /// below the measured one. `smaller` has the results under a smaller limit: a draw that it did
    /// not throttle is not run again. The result is in the order of the draws, `None` where the
    /// model cannot run one; an error if the caller stopped the runs.
    pub fn under(
        &self,
        draws: &[Draw],
        (limit, above): (Limit, Option<Limit>),
        kernel: Kernel,
        smaller: &[Option<Seen>],
    ) -> Result<Vec<Option<Seen>>, Error> {
        let is_smaller = |draw: &Draw| limit.cpus().is_some_and(|cpus| cpus < draw.limit_cpus);
        let run = |at: usize, draw: &Draw| {
            if let Some(Some(seen)) = smaller.get(at).filter(|seen| is_free(seen.as_ref())) {
                return Some(seen.clone());
            }
            let (requests, least_ns) = if is_smaller(draw) { LONGER } else { LONG };
            let (seed, window_ns) = (draw.seed, None);
            let setting = Setting { kernel, limit, above, seed, requests, least_ns, window_ns };
            self.shared.run(&draw.service, &setting)
        };
        self.each(draws, run)
    }
}

/// Whether a run was throttled at no level and no time.
fn is_free(seen: Option<&Seen>) -> bool {
    seen.is_some_and(|seen| seen.nr_throttled + seen.above.0 + seen.throttled_s == 0.0)
}

/// The sum of squared misses; names do not count.
fn distance(misses: &[(&str, f64)]) -> f64 {
    misses.iter().map(|(_, off)| off * off).sum()
}

/// Turns squared distances into weights that sum to 1 and keeps the best 40 draws. Weights become
/// more alike until enough draws count. A counter that even the best draw misses by more than three
/// standard deviations is the misfit.
fn weighed(mut draws: Vec<Draw>, measured: &Measured) -> Draws {
    let worst = |draw: &Draw| {
        let misses = measured.misses(&draw.seen);
        misses.into_iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
    };
    let best = draws.iter().filter_map(worst).min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    let misfit = match best {
        None => Some("the measurement"),
        Some((name, off)) => (off.abs() > OFF_MOST).then_some(name),
    };
    draws.sort_by(|a, b| a.weight.total_cmp(&b.weight));
    let nearest = draws.first().map_or(0.0, |draw| draw.weight);
    let of = |draws: &[Draw], heat: f64| -> Vec<f64> {
        draws.iter().map(|draw| (-0.5 * (draw.weight - nearest) / heat).exp()).collect()
    };
    let effective = |weights: &[f64]| {
        let (sum, squares) = weights.iter().fold((0.0, 0.0), |(s, q), w| (s + w, q + w * w));
        sum * sum / f64::max(squares, f64::MIN_POSITIVE)
    };
    let heats = iter::successors(Some(1.0), |heat| Some(heat * 1.25)).take(40);
    let all = heats.map(|heat| of(&draws, heat));
    let weights = all.clone().find(|weights| effective(weights) >= COUNT_LEAST);
    let mut weights = weights.or_else(|| all.last()).unwrap_or_default();
    weights.truncate(TOLD);
    draws.truncate(TOLD);
    let (sum, effective) = (weights.iter().sum::<f64>(), effective(&weights));
    for (draw, weight) in draws.iter_mut().zip(&weights) {
        draw.weight = weight / sum;
    }
    Draws { all: draws, effective, misfit }
}
