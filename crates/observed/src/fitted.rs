//! Predictions for other limits from counters, by a model: services drawn from wide priors that
//! reproduce the counters run again under those limits.
//!
//! A dashboard holds CPU time and throttled periods, and these determine no latency. Many services
//! have the same counters, though, and another limit has similar effects on all of them: on CPUs
//! and throttled periods under any limit, and on how p99 falls where the limit is raised or lifted.
//! How p99 grows under a smaller limit depends on properties that no counter shows. The method is
//! approximate Bayesian computation; `examples/calibrate` measures how often its ranges hold.
//!
//! ```
//! use cpumax_observed::counters::{Moment, Observed};
//! use cpumax_observed::fitted::{Fitting, fit};
//! use cpumax_study::kernel::parse_kernels;
//! use cpumax_study::limit::{CpuStat, Limit};
//!
//! let moment = |at_ns, usage_ns, nr_periods, nr_throttled| Moment {
//!     at_ns,
//!     usage_ns: Some(usage_ns),
//!     stat: Some(CpuStat { nr_periods, nr_throttled, ..CpuStat::default() }),
//!     ..Moment::default()
//! };
//! let observed = Observed {
//!     name: "/web".to_owned(),
//!     limit: Limit::new(Some(50_000_000), 100_000_000, 0).ok(),
//!     kernel: None,
//!     cpus: None,
//!     above: None,
//!     moments: vec![moment(0, 0, 0, 0), moment(30_000_000_000, 9_000_000_000, 300, 60)],
//! };
//! let fitting = Fitting { draws: 64, ..Fitting::on(parse_kernels("6.18")?[0]) };
//! let fit = fit(&observed, &fitting, &())?.expect("it has a limit, and periods are told");
//! assert!(fit.limits.iter().any(|row| row.cpu_max == "max 100000" && row.p99_times.is_some()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod calibrate;
mod draws;
mod measured;
mod seen;
mod service;

pub use calibrate::{Calibrated, Knows, calibrate};
pub use measured::Known;

use crate::counters::{Above, Observed};
use cpumax_limit::Limit;
use cpumax_machine::kernel::Kernel;
use cpumax_study::{Error, Ranged, Watch, world::Running};
pub(crate) use draws::Shared;
use draws::{Draws, Runs};
use measured::Measured;
use schemars::JsonSchema;
use seen::Seen;
use serde::Serialize;

/// Multiples of the present limit that are tried besides it; no limit is tried, too.
const TIMES: [f64; 6] = [0.5, 0.75, 1.25, 1.5, 2.0, 3.0];
/// Share of draws on each side of a range.
const OUTSIDE: f64 = 0.05;
/// Ranges of CPUs and of time are widened by this factor. Those of throttled periods and p99 depend
/// on how long a queue grew, and are widened more; `examples/calibrate` measures why.
const WIDER: f64 = 1.3;
const MUCH_WIDER: f64 = 1.8;
/// Least half width of a range: of CPUs and p99 a share of the value, of throttled periods per
/// cent.
const LEAST_OFF: f64 = 0.02;
const LEAST_OFF_PERCENT: f64 = 1.0;
/// Throttling costs nothing where p99 without a limit is at least this share of the present one.
const COSTS_NOTHING: f64 = 0.9;
/// Fewer effective services than this give no range.
const EFFECTIVE_LEAST: f64 = 10.0;
/// Number of services to draw, by default.
pub const DRAWS: usize = 640;
/// Step of the search for a limit, thousandths of a CPU.
const STEP: u64 = 10;

/// The question: services that fit counters, and limits and kernels to try them on.
#[derive(Debug, Clone)]
pub struct Fitting {
    /// The kernel of the node; `None`: the one in the counters, else the newest.
    pub kernel: Option<Kernel>,
    /// Other kernels to run the same load on under the same limit.
    pub others: Vec<Kernel>,
    /// The present limit, where the counters lack it.
    pub current: Option<Limit>,
    /// Knowledge of the service beside the counters.
    pub known: Known,
    /// Bounds for which a limit is searched.
    pub keep: Keep,
    /// How many services to draw.
    pub draws: usize,
    /// Seed of every draw.
    pub seed: u64,
    /// Threads to use.
    pub running: Running,
}

/// Bounds that a limit is to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Keep {
    /// The most throttled periods of a hundred.
    pub throttled_percent: Option<f64>,
    /// The largest p99 of requests, ns.
    pub p99_ns: Option<u64>,
}

/// Services that reproduce the counters, and the effect of limits on them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fit {
    /// The kernel on which they ran.
    pub kernel: String,
    /// `kernel` is that of the node. Otherwise the node's kernel is unknown, and `kernel` is the
    /// newest.
    pub is_kernel_told: bool,
    /// How many services were drawn.
    pub drawn: usize,
    /// Effective number of services behind the numbers below.
    pub effective: f64,
    /// Cost of throttling.
    pub costs: Costs,
    /// Present median of requests, ns; null if unknown.
    pub p50_now_ns: Option<Ranged<f64>>,
    /// Present p99 of requests, ns; null if unknown.
    pub p99_now_ns: Option<Ranged<f64>>,
    /// Limits, ascending; the last row has no limit.
    pub limits: Vec<FittedLimit>,
    /// The smallest limit that keeps the bounds, thousandths of a CPU.
    pub enough: Option<u64>,
    /// The present load under the present limit, on other kernels.
    pub on_kernels: Vec<OnKernel>,
}

/// Cost of throttling now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Costs {
    /// Without a limit p99 would hardly be less.
    Nothing,
    /// Without a limit p99 would be less.
    Latency,
    /// The range of p99 without a limit allows both.
    Unsure,
}

/// A limit, and its effect on the load that was counted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FittedLimit {
    /// Content of `cpu.max` for it.
    pub cpu_max: String,
    /// Thousandths of a CPU; null for no limit.
    pub millicpus: Option<u64>,
    /// The limit is in force, and its numbers were measured.
    pub is_present: bool,
    /// CPUs in use.
    pub cpus: Ranged<f64>,
    /// Throttled periods of a hundred.
    pub throttled_percent: Ranged<f64>,
    /// Time throttled in a second, summed over CPUs, s, as the kernel counts it; null if unknown.
    pub throttled_seconds: Option<Ranged<f64>>,
    /// p99 divided by the present one; null below the present limit, as counters do not tell it.
    pub p99_times: Option<Ranged<f64>>,
    /// p99, ns, where the present one is known.
    pub p99_ns: Option<Ranged<f64>>,
}

/// Counters of the same load on another kernel.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OnKernel {
    /// Its version.
    pub kernel: String,
    /// CPUs in use.
    pub cpus: Ranged<f64>,
    /// Throttled periods of a hundred.
    pub throttled_percent: Ranged<f64>,
    /// Time throttled in a second, s, as that kernel counts it.
    pub throttled_seconds: Ranged<f64>,
}

impl Fitting {
    /// A question about counters from this kernel, or an unknown one: no other kernels, bounds or
    /// knowledge, [`DRAWS`] draws, seed 1.
    pub fn on(kernel: impl Into<Option<Kernel>>) -> Fitting {
        Fitting {
            kernel: kernel.into(),
            others: Vec::new(),
            current: None,
            known: Known::default(),
            keep: Keep::default(),
            draws: DRAWS,
            seed: 1,
            running: Running::default(),
        }
    }
}

/// Draws services that reproduce observed counters, and runs them under other limits and kernels.
/// The inner `Err` says, as half a sentence, why there is no result: the counters lack something,
/// or too few services have such counters.
///
/// # Errors
/// The caller asked to stop.
pub fn fit(
    observed: &Observed,
    fitting: &Fitting,
    watch: &dyn Watch,
) -> Result<Result<Fit, String>, Error> {
    fit_with(observed, fitting, &Shared::default(), watch)
}

/// Names counters for which [`fit`] draws the same services; empty where there is nothing to fit.
pub(crate) fn alike(observed: &Observed, fitting: &Fitting) -> String {
    let limit = observed.limit.or(fitting.current);
    let measured = limit.and_then(|limit| Measured::of(observed, limit, &fitting.known).ok());
    let kernel = kernel(observed, fitting).unwrap_or_else(Kernel::newest);
    measured.map_or_else(String::new, |measured| measured.alike(kernel))
}

/// The node's kernel, where it is known.
fn kernel(observed: &Observed, fitting: &Fitting) -> Option<Kernel> {
    let own = || observed.kernel.as_ref().map(|kernel| kernel.taken().kernel);
    fitting.kernel.or_else(own)
}

/// [`fit`] with runs that other counters may have needed, too.
pub(crate) fn fit_with(
    observed: &Observed,
    fitting: &Fitting,
    shared: &Shared,
    watch: &dyn Watch,
) -> Result<Result<Fit, String>, Error> {
    let Some(limit) = observed.limit.or(fitting.current) else {
        return Ok(Err("its limit is unknown".to_owned()));
    };
    let is_stopped = |above: &Above| above.periods.nr_throttled > 0 && !above.has_one;
    if observed.above.as_ref().is_some_and(is_stopped) {
        return Ok(Err("the limit of its pod throttles it as well".to_owned()));
    }
    let measured = match Measured::of(observed, limit, &fitting.known) {
        Ok(measured) => measured,
        Err(why) => return Ok(Err(why.to_owned())),
    };
    let threads = fitting.running.threads();
    let told = kernel(observed, fitting);
    let kernel = told.unwrap_or_else(Kernel::newest);
    let runs = Runs { kernel, threads, seed: fitting.seed, watch, shared };
    let draws = runs.draws(&measured, fitting.draws)?;
    if let Some(counter) = draws.misfit {
        let what = "no single service with a steady load has such counters";
        return Ok(Err(format!("{what}: {counter} cannot be reproduced")));
    }
    if draws.effective < EFFECTIVE_LEAST {
        let what = "fewer than ten of the services drawn reproduce the counters: draw more";
        return Ok(Err(what.to_owned()));
    }
    let fit = Predictor { measured: &measured, fitting, runs, draws }.fit()?;
    Ok(Ok(Fit { is_kernel_told: told.is_some(), ..fit }))
}

/// Results of the draws, in their order, under a limit.
struct Under {
    limit: Limit,
    seen: Vec<Option<Seen>>,
}

impl Under {
    /// Whether a draw that this limit does not throttle is not throttled by `limit` either: that
    /// gives at least as much, by the same periods.
    fn is_within(&self, limit: Limit) -> bool {
        let is_less =
            limit.quota_ns().is_none_or(|quota_ns| self.limit.quota_ns() <= Some(quota_ns));
        is_less && limit.period_ns() == self.limit.period_ns() && self.limit.burst_ns() == 0
    }
}

struct Predictor<'a> {
    measured: &'a Measured,
    fitting: &'a Fitting,
    runs: Runs<'a>,
    draws: Draws,
}

impl Predictor<'_> {
    /// Runs the draws under all limits and kernels of the question, and searches the smallest limit
    /// that keeps its bounds. `is_kernel_told` is always true; the caller corrects it. An error if
    /// the caller stopped the runs.
    fn fit(&self) -> Result<Fit, Error> {
        let present = self.measured.limit;
        let at = |times: f64| self.limit((self.measured.limit_cpus() * times * 1e3).round() as u64);
        let no_limit = Limit::new(None, present.period_ns(), 0).ok();
        let all = TIMES.iter().filter_map(|times| at(*times)).chain(self.fitting.current);
        let mut limits: Vec<Limit> = all.filter(|limit| limit.quota_ns().is_some()).collect();
        limits.push(present);
        limits.sort_by_key(Limit::millicpus);
        limits.dedup_by_key(|limit| limit.millicpus());
        let mut rows = Vec::new();
        let mut smaller = None;
        for limit in limits.into_iter().chain(no_limit) {
            let (row, under) = self.row(limit, smaller.as_ref())?;
            rows.push(row);
            smaller = Some(under);
        }
        let enough = self.enough(&mut rows)?;
        let lifted = rows.last().and_then(|row| row.p99_times);
        let costs = match lifted {
            Some(times) if times.low >= COSTS_NOTHING => Costs::Nothing,
            Some(times) if times.high < COSTS_NOTHING => Costs::Latency,
            _ => Costs::Unsure,
        };
        let served = &self.measured.known.served;
        Ok(Fit {
            kernel: self.runs.kernel.version.to_string(),
            is_kernel_told: true,
            drawn: self.fitting.draws,
            effective: (self.draws.effective * 10.0).round() / 10.0,
            costs,
            p50_now_ns: served.p50_ns,
            p99_now_ns: served.p99_ns,
            limits: rows,
            enough,
            on_kernels: self.on_kernels()?,
        })
    }

    /// The limit of so many thousandths of a CPU with the period of the present one; `None` where
    /// the kernel would refuse it.
    fn limit(&self, millicpus: u64) -> Option<Limit> {
        Limit::of_millicpus(millicpus, self.measured.limit.period_ns())
    }

    /// The draws under the present limit, for which nothing is run.
    fn present(&self) -> Under {
        let seen = self.draws.all.iter().map(|draw| Some(draw.seen.clone())).collect();
        Under { limit: self.measured.limit, seen }
    }

    /// Runs the draws under a limit and makes ranges of it. For the present limit nothing is run:
    /// its row is the measurement. p99 is predicted only for larger limits. An error if the caller
    /// stopped the runs.
    fn row(&self, limit: Limit, smaller: Option<&Under>) -> Result<(FittedLimit, Under), Error> {
        let measured = self.measured;
        let cpu_max = limit.to_string();
        let millicpus = limit.millicpus();
        if limit.millicpus() == measured.limit.millicpus() {
            let row = FittedLimit {
                cpu_max,
                millicpus,
                is_present: true,
                cpus: Ranged::known(measured.cpus),
                throttled_percent: Ranged::known(measured.throttled_percent()),
                throttled_seconds: measured.throttled_s.map(Ranged::known),
                p99_times: None,
                p99_ns: measured.known.served.p99_ns,
            };
            return Ok((row, self.present()));
        }
        let limits = (limit, measured.limit_above(limit));
        let smaller = smaller.filter(|under| under.is_within(limit));
        let smaller = smaller.map_or(&[][..], |under| &under.seen);
        let seen = self.runs.under(&self.draws.all, limits, self.runs.kernel, smaller)?;
        let is_raised = millicpus.is_none_or(|own| Some(own) > measured.limit.millicpus());
        let both = self.draws.all.iter().zip(&seen);
        let times = both.filter_map(|(draw, seen)| {
            let seen = seen.as_ref().filter(|seen| seen.p99_ns > 0.0 && draw.seen.p99_ns > 0.0)?;
            Some((draw.weight, seen.p99_ns / draw.seen.p99_ns))
        });
        let times = if is_raised { range(times.collect(), Scale::Times) } else { None };
        let p99_ns = times.zip(measured.known.served.p99_ns).map(|(times, now)| Ranged {
            value: times.value * now.value,
            low: times.low * now.value,
            high: times.high * now.value,
        });
        let told = self.ranges(&seen, limit);
        let none = limit.quota_ns().is_none().then_some(Ranged::known(0.0));
        let throttled_percent = none.unwrap_or(self.bounded(told.throttled_percent, is_raised));
        let row = FittedLimit {
            cpu_max,
            millicpus,
            is_present: false,
            cpus: told.cpus,
            throttled_percent,
            throttled_seconds: Some(told.throttled_seconds),
            p99_times: times,
            p99_ns,
        };
        Ok((row, Under { limit, seen }))
    }

    /// Bounds a predicted per cent of throttled periods by the measured one, give or take a point:
    /// a larger limit throttles no more, a smaller one no less.
    fn bounded(&self, told: Ranged<f64>, is_raised: bool) -> Ranged<f64> {
        let measured = self.measured.throttled_percent();
        let off = if is_raised { LEAST_OFF_PERCENT } else { -LEAST_OFF_PERCENT };
        let bounded = |number: f64, bound: f64| {
            if is_raised { number.min(bound.min(100.0)) } else { number.max(bound.max(0.0)) }
        };
        Ranged {
            value: bounded(told.value, measured),
            low: bounded(told.low, if is_raised { measured } else { measured + off }),
            high: bounded(told.high, if is_raised { measured + off } else { measured }),
        }
    }

    /// Weighted ranges over the runs of all draws (`None`: a failed run) under a limit, without the
    /// kernel's name. Draws used almost the measured CPUs; the difference is corrected, up to the
    /// limit.
    fn ranges(&self, seen: &[Option<Seen>], limit: Limit) -> OnKernel {
        let of = |number: &dyn Fn(&Seen) -> f64, scale: Scale| {
            let both = self.draws.all.iter().zip(seen);
            let all = both.filter_map(|(draw, seen)| Some((draw.weight, number(seen.as_ref()?))));
            range(all.collect(), scale).unwrap_or(Ranged::known(0.0))
        };
        let off = self.measured.cpus / self.measured.drawn_cpus();
        let limit_cpus = limit.cpus().unwrap_or(f64::INFINITY);
        let cpus = |seen: &Seen| (seen.cpus * off).min(seen.cpus.max(limit_cpus));
        OnKernel {
            kernel: String::new(),
            cpus: of(&cpus, Scale::Ratio),
            throttled_percent: of(&Seen::throttled_percent, Scale::Percent),
            throttled_seconds: of(&|seen| seen.throttled_s, Scale::Plain),
        }
    }

    /// Runs the draws under the measured limit on each other kernel that was asked for, and makes
    /// ranges.
    ///
    /// # Errors
    /// A run of the model fails.
    fn on_kernels(&self) -> Result<Vec<OnKernel>, Error> {
        let present = self.measured.limit;
        let limits = (present, self.measured.limit_above(present));
        let on = |kernel: &Kernel| {
            let seen = self.runs.under(&self.draws.all, limits, *kernel, &[])?;
            Ok(OnKernel { kernel: kernel.version.to_string(), ..self.ranges(&seen, present) })
        };
        self.fitting.others.iter().map(on).collect()
    }

    /// Searches the smallest limit that keeps the bounds, in thousandths of a CPU, by six halvings
    /// between the last row that does not and the next. Adds the rows that it tries. `None` without
    /// bounds, or if only no limit keeps them; an error if the caller stopped the runs.
    fn enough(&self, rows: &mut Vec<FittedLimit>) -> Result<Option<u64>, Error> {
        const LOOKS: u32 = 6;
        if self.fitting.keep == Keep::default() {
            return Ok(None);
        }
        let keeps = |row: &FittedLimit| self.keeps(row);
        let Some(first) = rows.iter().rposition(|row| !keeps(row)).map(|at| at + 1) else {
            return Ok(rows.first().and_then(|row| row.millicpus));
        };
        let Some(mut most) = rows.get(first).and_then(|row| row.millicpus) else {
            return Ok(None);
        };
        let mut least = rows[first - 1].millicpus.unwrap_or(0);
        for _ in 0..LOOKS {
            let middle = u64::midpoint(least, most) / STEP * STEP;
            let Some(limit) = self.limit(middle).filter(|_| middle > least) else { break };
            let row = self.row(limit, Some(&self.present()))?.0;
            if keeps(&row) {
                most = middle;
            } else {
                least = middle;
            }
            rows.push(row);
        }
        rows.sort_by_key(|row| row.millicpus.unwrap_or(u64::MAX));
        Ok(Some(most))
    }

    /// Whether the worse ends of its ranges keep the bounds, and its CPUs are within the limit.
    fn keeps(&self, row: &FittedLimit) -> bool {
        let Keep { throttled_percent, p99_ns } = self.fitting.keep;
        let is_enough = row.cpus.high * 1e3 <= row.millicpus.unwrap_or(u64::MAX) as f64;
        is_enough
            && throttled_percent.is_none_or(|most| row.throttled_percent.high <= most)
            && p99_ns.is_none_or(|most| row.p99_ns.is_some_and(|ns| ns.high <= most as f64))
    }
}

/// How a range is widened: its ends move away from the median, by ratio or by difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// By the ratio to the median, to the power of [`WIDER`]: for CPUs.
    Ratio,
    /// By the ratio to the median, to the power of [`MUCH_WIDER`]: for latencies.
    Times,
    /// By the difference from the median, times [`WIDER`], not below 0.
    Plain,
    /// By the difference from the median, times [`MUCH_WIDER`], within 0 and 100.
    Percent,
}

/// The median of `all` (pairs of weight and number), and the range that leaves out a twentieth of
/// the weight on each side. `scale` says how the range is then widened, to a least width. `None` if
/// `all` is empty.
fn range(mut all: Vec<(f64, f64)>, scale: Scale) -> Option<Ranged<f64>> {
    const LEAST: f64 = 1e-9;
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let sum: f64 = all.iter().map(|(weight, _)| weight).sum();
    let at = |share: f64| {
        let mut left = sum * share;
        let found = all.iter().find(|(weight, _)| {
            left -= weight;
            left <= 0.0
        });
        found.or(all.last()).map(|(_, number)| *number)
    };
    let (value, low, high) = (at(0.5)?, at(OUTSIDE)?, at(1.0 - OUTSIDE)?);
    let wider = match scale {
        Scale::Ratio | Scale::Plain => WIDER,
        Scale::Times | Scale::Percent => MUCH_WIDER,
    };
    let away = |end: f64| value + (end - value) * wider;
    let times = |end: f64| value * (end.max(LEAST) / value.max(LEAST)).powf(wider);
    let (low, high) = match scale {
        Scale::Ratio | Scale::Times => {
            (times(low).min(value * (1.0 - LEAST_OFF)), times(high).max(value * (1.0 + LEAST_OFF)))
        }
        Scale::Plain => (away(low).max(0.0), away(high)),
        Scale::Percent => (
            away(low).min(value - LEAST_OFF_PERCENT).max(0.0),
            away(high).max(value + LEAST_OFF_PERCENT).min(100.0),
        ),
    };
    Some(Ranged { value, low, high })
}

#[cfg(test)]
mod tests;
