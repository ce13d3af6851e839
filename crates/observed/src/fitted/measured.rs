//! The measurement that a service must reproduce, from counters and the user, and the distance of a
//! run from it: of each number in standard deviations, by chance and by the resolution of counters.

use super::seen::Seen;
use crate::counters::{Above, Delta, Observed, Served, in_periods};
use cpumax_limit::Limit;
use cpumax_machine::kernel::Kernel;
use cpumax_recording::Loop;

/// Throttled periods depend on those before them, so their share varies more than independent draws
/// do: by this factor in variance.
const DEPEND: f64 = 2.0;
const USAGE_OFF: f64 = 0.03;
/// Errors that the model may have: of shares of periods, and natural logarithms of other numbers.
const SHARE_OFF: f64 = 0.015;
const TIME_OFF: f64 = 0.15;
const LATENCY_OFF: f64 = 0.10;
const REQUESTS_OFF: f64 = 0.05;
const SPREAD_OFF: f64 = 0.4;
/// The variation of usage needs at least this many windows.
const WINDOWS_LEAST: usize = 4;
/// Longest simulated window, ns; usage of longer windows is compared with windows of this length.
const WINDOW_MAX_NS: u64 = 1_000_000_000;

/// Known properties of the service beside the counters of its group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// Whether its clients wait for answers.
    pub clients: Option<Loop>,
    /// Number of threads that answer.
    pub threads: Option<u32>,
    /// Its own metrics.
    pub served: Served,
}

/// Rates measured under the limit in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub limit: Limit,
    /// The pod, where it has a limit and no other container.
    pub above: Option<Above>,
    /// CPUs that it may run on, where known.
    pub allowed: Option<u16>,
    pub seconds: f64,
    pub cpus: f64,
    pub nr_periods: f64,
    pub nr_throttled: f64,
    pub throttled_s: Option<f64>,
    pub requests_per_s: Option<f64>,
    pub known: Known,
    /// Length of windows, ns, and how usage varies between them.
    pub windows: Option<(u64, Spread)>,
    /// The measured windows are as long as the simulated ones.
    is_alike: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    /// Variance over a second, in CPU seconds squared: that of windows times their length.
    pub variance: f64,
    /// Correlation of a window with the next.
    pub lag: f64,
    pub count: f64,
}

impl Spread {
    /// The variance and the correlation of neighbours of usage (CPUs) in windows of `seconds`;
    /// `None` for fewer than four windows.
    pub fn of(windows: &[f64], seconds: f64) -> Option<Spread> {
        if windows.len() < WINDOWS_LEAST {
            return None;
        }
        let count = windows.len() as f64;
        let mean = windows.iter().sum::<f64>() / count;
        let off = |cpus: &f64| cpus - mean;
        let squares: f64 = windows.iter().map(|cpus| off(cpus) * off(cpus)).sum();
        let pairs: f64 = windows.windows(2).map(|pair| off(&pair[0]) * off(&pair[1])).sum();
        let lag = if squares > 0.0 { pairs / squares } else { 0.0 };
        Some(Spread { variance: squares / (count - 1.0) * seconds, lag, count })
    }
}

impl Measured {
    /// Rates over the observed time under `limit`. `Err` says what is missing: CPU time, periods, a
    /// quota, or 20 active periods.
    pub fn of(observed: &Observed, limit: Limit, known: &Known) -> Result<Measured, &'static str> {
        let whole = observed.whole();
        let seconds = whole.length_ns as f64 / 1e9;
        let usage_ns = whole.usage_ns.ok_or("its CPU time is missing")?;
        let periods = whole.periods.ok_or("its number of throttled periods is missing")?;
        if limit.quota_ns().is_none() {
            return Err("it has no limit, and only a recording shows the effect of one");
        }
        if usage_ns == 0 || periods.nr_periods < 20 {
            return Err("it was active in fewer than 20 periods");
        }
        let throttled_s = whole.throttled_ns.map(|ns| ns as f64 / 1e9 / seconds);
        let (windows, is_alike) = windows(&observed.deltas(), limit.period_ns());
        Ok(Measured {
            limit,
            above: observed.above.clone().filter(|above| above.has_one),
            allowed: observed.cpus.as_ref().map(|cpus| cpus.count.min(1 << 15) as u16),
            seconds,
            cpus: usage_ns as f64 / 1e9 / seconds,
            nr_periods: periods.nr_periods as f64,
            nr_throttled: periods.nr_throttled as f64,
            throttled_s,
            requests_per_s: known.served.requests_per_s.filter(|rate| *rate > 0.0),
            known: known.clone(),
            windows,
            is_alike,
        })
    }

    /// The limit of the pod that goes with `limit`; `None` without a pod of one container.
    pub fn limit_above(&self, limit: Limit) -> Option<Limit> {
        self.above.as_ref().and_then(|above| above.with(limit, self.limit))
    }

    /// CPUs that drawn services are to use: those measured, in steps of a tenth of the log odds of
    /// their share of the limit, so that containers of alike use share draws. A step is a tenth of
    /// a small share, and a fortieth of the limit at one half.
    pub fn drawn_cpus(&self) -> f64 {
        let share = (self.cpus / self.limit_cpus()).clamp(1e-6, 0.999);
        let steps = ((share / (1.0 - share)).ln() * 10.0).round();
        self.limit_cpus() / (1.0 + (-steps / 10.0).exp())
    }

    /// Names measurements for which the same services are drawn, and run the same way.
    pub fn alike(&self, kernel: Kernel) -> String {
        let of_pod = self.limit_above(self.limit);
        let Known { clients, threads, served } = &self.known;
        let known = (clients, threads, served, self.window_ns(), self.allowed);
        format!("{} {} {of_pod:?} {} {known:?}", kernel.version, self.limit, self.drawn_cpus())
    }

    /// CPUs that the limit gives; infinite without a quota.
    pub fn limit_cpus(&self) -> f64 {
        self.limit.cpus().unwrap_or(f64::INFINITY)
    }

    /// Throttled periods of a hundred periods.
    pub fn throttled_percent(&self) -> f64 {
        100.0 * self.nr_throttled / self.nr_periods.max(1.0)
    }

    /// Whether it uses more than 95 % of its limit, so that it may want more.
    pub fn is_used_up(&self) -> bool {
        self.cpus > 0.95 * self.limit_cpus()
    }

    /// Length of the windows to simulate, ns; `None` where the variation of usage is unknown.
    pub fn window_ns(&self) -> Option<u64> {
        self.windows.map(|(ns, _)| ns)
    }

    /// How far a run is from the measurement: the name of each known counter, and the signed
    /// difference in standard deviations.
    pub fn misses(&self, seen: &Seen) -> Vec<(&'static str, f64)> {
        let mut all = vec![("CPU time", (seen.cpus / self.drawn_cpus() - 1.0) / USAGE_OFF)];
        let per_s = 1e9 / self.limit.period_ns() as f64;
        let (periods, own) = (seen.seconds * per_s, self.seconds * per_s);
        let share = |part: f64, of: f64| (part / of.max(1.0)).min(1.0);
        let of_share = |(a, n): (f64, f64), (b, m): (f64, f64)| {
            let (p, q) = (share(a, n), share(b, m));
            let both = ((a + b) / (n + m)).clamp(0.01, 0.99);
            let variance = DEPEND * both * (1.0 - both) * (1.0 / n.max(1.0) + 1.0 / m.max(1.0));
            (p - q) / (variance + SHARE_OFF * SHARE_OFF).sqrt()
        };
        all.push(("periods", of_share((seen.nr_periods, periods), (self.nr_periods, own))));
        let throttled =
            of_share((seen.nr_throttled, seen.nr_periods), (self.nr_throttled, self.nr_periods));
        all.push(("throttled periods", throttled));
        if let Some(above) = &self.above {
            let told = (above.periods.nr_throttled as f64, above.periods.nr_periods as f64);
            all.push(("throttled periods of its pod", of_share(seen.above, told)));
        }
        if let Some(time) = self.throttled_s.filter(|_| self.nr_throttled >= 5.0) {
            let variance = DEPEND * (1.0 / self.nr_throttled + 1.0 / seen.nr_throttled.max(1.0));
            all.push(("throttled time", logs(seen.throttled_s, time, variance, TIME_OFF)));
        }
        if let Some(rate) = self.requests_per_s {
            let off = logs(seen.requests_per_s, rate, 0.0, REQUESTS_OFF);
            all.push(("requests", off));
        }
        let n = seen.requests_per_s * seen.seconds;
        let points = [
            ("p50", self.known.served.p50_ns, seen.p50_ns, 2.0),
            ("p99", self.known.served.p99_ns, seen.p99_ns, 20.0),
        ];
        for (name, told, ns, few) in points {
            if let Some(told) = told {
                let grain = (told.high / told.low.max(1.0)).ln() / 12_f64.sqrt();
                let off = logs(ns, told.value, grain * grain + few / n.max(1.0), LATENCY_OFF);
                all.push((name, off));
            }
        }
        if let Some((ns, own)) = self.windows
            && let Some(spread) = Spread::of(&seen.windows, ns as f64 / 1e9)
        {
            let variance = 2.0 / (own.count - 1.0) + 2.0 / (spread.count - 1.0);
            let off = logs(spread.variance, own.variance, variance, SPREAD_OFF);
            // Loads of real services also change more slowly than any drawn load.
            all.push(("how CPU time varies", if self.is_alike { off } else { off.max(0.0) }));
            if self.is_alike {
                let variance = 1.0 / own.count + 1.0 / spread.count + 0.15 * 0.15;
                all.push((
                    "how CPU use changes from reading to reading",
                    (spread.lag - own.lag) / variance.sqrt(),
                ));
            }
        }
        all
    }
}

/// The difference of the logarithms of `seen` and `own` in standard deviations, for a variance by
/// chance and an error `off` of the model.
fn logs(seen: f64, own: f64, variance: f64, off: f64) -> f64 {
    const LEAST: f64 = 1e-6;
    (seen.max(LEAST) / own.max(LEAST)).ln() / (variance + off * off).sqrt()
}

/// Length (ns) to simulate and spread of usage in windows: periods where readings are at most half
/// a period apart, else readings. Lengths above a second are cut to that; the second value tells
/// that this was not needed.
fn windows(deltas: &[Delta], period_ns: u64) -> (Option<(u64, Spread)>, bool) {
    let used: Option<Vec<(f64, f64)>> = deltas.iter().map(Delta::used).collect();
    let Some(used) = used.filter(|used| !used.is_empty()) else { return (None, false) };
    let length_ns = used.iter().map(|(_, ns)| ns).sum::<f64>() / used.len() as f64;
    let is_close = length_ns * 2.0 <= period_ns as f64;
    let own_ns = if is_close { period_ns as f64 } else { length_ns };
    let cpus: Vec<f64> = if is_close {
        in_periods(&used, own_ns, 0.0).into_iter().map(|ns| ns / own_ns).collect()
    } else {
        used.iter().map(|(usage, ns)| usage / ns.max(1.0)).collect()
    };
    let window_ns = (own_ns as u64).clamp(period_ns, WINDOW_MAX_NS.max(period_ns));
    let spread = Spread::of(&cpus, own_ns / 1e9);
    (spread.map(|spread| (window_ns, spread)), own_ns <= window_ns as f64)
}
