//! Measures how often the ranges of a fit hold: draws services from the priors, fits to the
//! counters that the model gives them, and compares the predictions with the model under other
//! limits.

use super::draws::{Runs, Shared};
use super::measured::Measured;
use super::seen::Seen;
use super::service::{Service, Setting};
use super::{Fitting, Known, Predictor, Scale, range};
use crate::counters::{AllowedCpus, Moment, Observed, Served};
use cpumax_limit::{CpuStat, Limit};
use cpumax_machine::kernel::Kernel;
use cpumax_recording::Loop;
use cpumax_study::{Error, Ranged, Watch};
use cpumax_workload::{Domain, Stream};

/// Length of the observation, and the time between readings, ns.
const WATCHED_NS: u64 = 30_000_000_000;
const READ_NS: u64 = 5_000_000_000;
/// CPUs of the machine; the fit knows them.
const CPUS: usize = 4;
/// Ratio of the widths of neighbouring buckets of latency.
const BUCKET: f64 = 2.0;

/// Knowledge of the fit about a service beside the counters of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knows {
    /// Nothing.
    Counters,
    /// Its requests, and a histogram of their latencies.
    Requests,
    /// Its threads, and whether its clients wait for answers, as well.
    Service,
}

/// One predicted number over many services.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    /// The number and the limit.
    pub name: &'static str,
    /// Services for which it was predicted.
    pub told: usize,
    /// Services whose true number is in the range.
    pub held: usize,
    /// Counts of the tenth of the draws in which the true number lies.
    pub ranks: [usize; 10],
    /// Median width of ranges: points of per cent, or the upper end over the lower one.
    pub width: f64,
}

/// Draws the services of these numbers, fits to their counters, and predicts other limits. Returns
/// how often each predicted number holds the truth, and for how many services there is no fit.
///
/// # Errors
/// The caller asked to stop.
pub fn calibrate(
    fitting: &Fitting,
    knows: Knows,
    services: std::ops::Range<u64>,
    watch: &dyn Watch,
) -> Result<(Vec<Calibrated>, usize), Error> {
    let mut told: Vec<(&'static str, Vec<Held>)> = Vec::new();
    let mut refused = 0;
    for number in services {
        let Some(truth) = Truth::draw(fitting, knows, number) else { continue };
        let Some(numbers) = truth.predictions(fitting, watch)? else {
            refused += 1;
            continue;
        };
        for (name, one) in numbers {
            match told.iter_mut().find(|(own, _)| *own == name) {
                Some((_, all)) => all.push(one),
                None => told.push((name, vec![one])),
            }
        }
    }
    Ok((told.into_iter().map(|(name, all)| Calibrated::of(name, &all)).collect(), refused))
}

/// A range, the true number, and the share of draws below that.
struct Held {
    range: Ranged<f64>,
    truth: f64,
    below: f64,
    scale: Scale,
}

impl Calibrated {
    /// Counts of one number over all services, and the median width of its ranges.
    fn of(name: &'static str, all: &[Held]) -> Calibrated {
        let mut ranks = [0; 10];
        let mut widths: Vec<f64> = Vec::new();
        let mut held = 0;
        for one in all {
            let Ranged { low, high, .. } = one.range;
            held += usize::from(low <= one.truth && one.truth <= high);
            ranks[((one.below * 10.0) as usize).min(9)] += 1;
            let is_percent = one.scale == Scale::Percent;
            widths.push(if is_percent { high - low } else { high / low.max(1e-9) });
        }
        widths.sort_by(f64::total_cmp);
        let width = widths.get(widths.len() / 2).copied().unwrap_or(0.0);
        Calibrated { name, told: all.len(), held, ranks, width }
    }
}

/// A service whose truth is known, and its counters.
struct Truth {
    service: Service,
    seed: u64,
    seen: Seen,
    observed: Observed,
    limit: Limit,
    known: Known,
}

impl Truth {
    /// Draws service `number` with its limit, and runs it to make its counters and all that `knows`
    /// allows. `None` if the run fails or has fewer than 20 periods.
    fn draw(fitting: &Fitting, knows: Knows, number: u64) -> Option<Truth> {
        let mut stream = Stream::new(fitting.seed ^ 0x7275_7468, Domain::Fit, number);
        let used = 0.1 * 20_f64.powf(stream.unit());
        let limit_ns = used * 1.8_f64.powf(stream.unit()) * 1e8;
        let limit = Limit::new(Some(limit_ns as u64 / 1_000 * 1_000), 100_000_000, 0).ok()?;
        let clients = if stream.below(2) == 0 { Loop::Open } else { Loop::Closed };
        let threads = 1 + stream.below(32) as u32;
        let known = Known { clients: Some(clients), threads: Some(threads), ..Known::default() };
        let asked = Measured::of(&at_first(limit, used), limit, &known).ok()?;
        let service = Service::draw(&mut stream, &asked);
        let seed = stream.next_u64();
        let mut truth = Truth {
            service,
            seed,
            seen: Seen::default(),
            observed: at_first(limit, used),
            limit,
            known: if knows == Knows::Service { known } else { Known::default() },
        };
        truth.seen = truth.run_under(fitting, limit)?;
        truth.observed.moments = moments(&truth.seen);
        if knows >= Knows::Requests {
            truth.known.served = served(&truth.seen);
        }
        (truth.seen.nr_periods >= 20.0).then_some(truth)
    }

    /// Runs the service under a limit for 30 s on the kernel of the fit; `None` where the model
    /// cannot.
    fn run_under(&self, fitting: &Fitting, limit: Limit) -> Option<Seen> {
        let (kernel, seed, requests) = (kernel(fitting), self.seed, 0.0);
        let (least_ns, window_ns) = (WATCHED_NS as f64, Some(READ_NS));
        self.service.run(&Setting {
            kernel,
            limit,
            above: None,
            seed,
            requests,
            least_ns,
            window_ns,
        })
    }

    /// Fits to its counters, and pairs predictions for 3/4 and 3/2 of its limit and for none with
    /// runs of the service itself. `None` if there is no fit; an error if the caller stopped the
    /// runs.
    fn predictions(
        &self,
        fitting: &Fitting,
        watch: &dyn Watch,
    ) -> Result<Option<Vec<(&'static str, Held)>>, Error> {
        let Ok(measured) = Measured::of(&self.observed, self.limit, &self.known) else {
            return Ok(None);
        };
        let threads = fitting.running.threads();
        let shared = &Shared::default();
        let runs = Runs { kernel: kernel(fitting), threads, seed: fitting.seed, watch, shared };
        let draws = runs.draws(&measured, fitting.draws)?;
        if draws.misfit.is_some() {
            return Ok(None);
        }
        let predictor = Predictor { measured: &measured, fitting, runs, draws };
        let times = |times: f64| predictor.limit((measured.limit_cpus() * times * 1e3) as u64);
        let smaller = ["CPUs, 3/4 of the limit", "throttled %, 3/4 of the limit", ""];
        let larger = ["CPUs, 3/2 of the limit", "throttled %, 3/2 of the limit"];
        let larger = [larger[0], larger[1], "p99, 3/2 of the limit"];
        let none = ["CPUs, no limit", "", "p99, no limit"];
        let limits = [(times(0.75), smaller), (times(1.5), larger), (Some(NONE), none)];
        let mut all = Vec::new();
        for (limit, names) in limits {
            let Some(limit) = limit else { continue };
            let Some(truth) = self.run_under(fitting, limit) else { continue };
            let seen =
                predictor.runs.under(&predictor.draws.all, (limit, None), kernel(fitting), &[])?;
            all.extend(predictor.compare(names, &seen, &truth, &self.seen));
        }
        Ok(Some(all))
    }
}

/// The kernel of the question, or else the newest.
fn kernel(fitting: &Fitting) -> Kernel {
    fitting.kernel.unwrap_or_else(Kernel::newest)
}

const NONE: Limit = Limit::UNLIMITED;

impl Predictor<'_> {
    /// Pairs the range of each named number over `seen` with its value in `truth`; p99 is relative
    /// to that under the present limit. Numbers with an empty name are left out.
    fn compare(
        &self,
        names: [&'static str; 3],
        seen: &[Option<Seen>],
        truth: &Seen,
        now: &Seen,
    ) -> Vec<(&'static str, Held)> {
        type Number = fn(&Seen, &Seen) -> f64;
        let numbers: [(Number, Scale); 3] = [
            (|seen, _| seen.cpus, Scale::Ratio),
            (|seen, _| seen.throttled_percent(), Scale::Percent),
            (|seen, now| seen.p99_ns / now.p99_ns.max(1.0), Scale::Times),
        ];
        let mut told = Vec::new();
        for (name, (number, scale)) in names.into_iter().zip(numbers) {
            let both = self.draws.all.iter().zip(seen);
            let all: Vec<(f64, f64)> = both
                .filter_map(|(draw, seen)| Some((draw.weight, number(seen.as_ref()?, &draw.seen))))
                .collect();
            let truth = number(truth, now);
            // Of equal draws, half count as below.
            let below = all.iter().map(|(weight, number)| match number.total_cmp(&truth) {
                std::cmp::Ordering::Less => *weight,
                std::cmp::Ordering::Equal => weight / 2.0,
                std::cmp::Ordering::Greater => 0.0,
            });
            let below = below.sum();
            if let Some(range) = range(all, scale).filter(|_| !name.is_empty()) {
                told.push((name, Held { range, truth, below, scale }));
            }
        }
        told
    }
}

/// Made-up counters of 30 s in which a group under `limit` uses so many CPUs and is never
/// throttled.
fn at_first(limit: Limit, cpus: f64) -> Observed {
    let seen = Seen { seconds: 30.0, cpus, nr_periods: 300.0, ..Seen::default() };
    let cpus = Some(AllowedCpus { count: CPUS, told_by: "here".to_owned() });
    let (name, limit, moments) = ("/truth".to_owned(), Some(limit), moments(&seen));
    Observed { name, limit, kernel: None, cpus, above: None, moments }
}

/// Readings of the counters of a run at the edges of its windows; periods and throttled time are
/// spread evenly.
fn moments(seen: &Seen) -> Vec<Moment> {
    let whole = [seen.cpus];
    let windows = if seen.windows.is_empty() { &whole[..] } else { &seen.windows };
    let (count, length_ns) = (windows.len(), seen.seconds * 1e9 / windows.len() as f64);
    let mut usage_ns = 0.0;
    let at = |at: usize, usage_ns: f64| {
        let share = at as f64 / count as f64;
        let of = |number: f64| (number * share).round();
        let stat = CpuStat {
            nr_periods: of(seen.nr_periods) as u32,
            nr_throttled: of(seen.nr_throttled) as u32,
            ..CpuStat::default()
        };
        Moment {
            at_ns: (at as f64 * length_ns) as u64,
            usage_ns: Some(usage_ns as u64),
            stat: Some(stat),
            throttled_ns: Some(of(seen.throttled_s * seen.seconds * 1e9) as u64),
            ..Moment::default()
        }
    };
    let mut all = vec![at(0, 0.0)];
    for (index, cpus) in windows.iter().enumerate() {
        usage_ns += cpus * length_ns;
        all.push(at(index + 1, usage_ns));
    }
    all
}

/// The service's metrics of a run, its latencies known only by bucket: a factor of two.
fn served(seen: &Seen) -> Served {
    let bucket = |ns: f64| {
        let low = BUCKET.powf(ns.max(1.0).log(BUCKET).floor());
        Some(Ranged { value: ns, low, high: low * BUCKET }).filter(|_| ns > 0.0)
    };
    Served {
        requests_per_s: Some(seen.requests_per_s),
        p50_ns: bucket(seen.p50_ns),
        p99_ns: bucket(seen.p99_ns),
    }
}
