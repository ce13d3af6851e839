//! Goals of a limit, and whether a prediction keeps them.

use crate::predict::Prediction;
use cpumax_study::Ranged;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A goal of a limit. The worse end of the range must keep it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// p50 of requests at most, ns.
    P50(u64),
    /// p95 of requests at most, ns.
    P95(u64),
    /// p99 of requests at most, ns.
    P99(u64),
    /// p99.9 of requests at most, ns.
    P999(u64),
    /// p99 of requests at most so many per cent longer than without a limit. Where the recording
    /// has no requests and the work sets the length of the load: the time that all work takes.
    Slower(f64),
    /// Throttled periods at most, of a hundred.
    Throttled(f64),
    /// Throughput at least, per cent of that without a limit.
    Throughput(f64),
}

/// The goal where none is given; few users notice so small a difference.
pub const USUAL: Goal = Goal::Slower(10.0);

/// A goal checked against a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Held {
    /// The goal.
    pub goal: Goal,
    /// The measured number.
    pub measure: Measure,
    /// The most that it may be; for rates the least.
    pub bound: f64,
    /// Its prediction; `None` if the number is unknown, or the work does not end.
    pub found: Option<Ranged<f64>>,
}

/// The number that a goal is about; times are ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Median latency.
    P50Ns,
    /// 95th percentile of latencies.
    P95Ns,
    /// 99th percentile of latencies.
    P99Ns,
    /// 99.9th percentile of latencies.
    P999Ns,
    /// Time that the recorded work takes.
    WorkTakesNs,
    /// Throttled periods of a hundred.
    ThrottledPercent,
    /// Requests answered in a second.
    RequestsPerSecond,
}

impl Goal {
    /// Checks the goal against the predictions with and without the limit. Relative goals take
    /// their bound from the worse end of the range without the limit.
    ///
    /// ```
    /// use cpumax_forecast::advise::{Goal, Measure};
    /// use cpumax_forecast::{Replay, Request};
    /// use cpumax_recording::{Options, Recording};
    /// use cpumax_study::{Running, Try, kernel::Kernel};
    ///
    /// let path = "../../recordings/bursts.perf.data";
    /// let recording = Recording::read(path.as_ref(), Options::default())?;
    /// let request = Request { limits: vec![Try::parse("10m")?], ..Request::default() };
    /// let replay = Replay::new("bursts.perf.data", &recording, &request)?;
    /// let runs = replay.runs(&[Kernel::newest()], 1, &Running::default(), &())?;
    /// let [unlimited, limited] = &runs[..] else { panic!("one limit, and none") };
    /// let held = Goal::Throttled(5.0).held(&limited.prediction, &unlimited.prediction);
    /// assert_eq!((held.measure, held.is_kept()), (Measure::ThrottledPercent, false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn held(self, limited: &Prediction, unlimited: &Prediction) -> Held {
        let times = |measure: Measure, times: f64| {
            let without = measure.of(unlimited).map_or(0.0, |without| measure.worse(without));
            (measure, without * times)
        };
        let has_end = is_set_by_work(unlimited);
        let (measure, bound) = match self {
            Goal::P50(ns) => (Measure::P50Ns, ns as f64),
            Goal::P95(ns) => (Measure::P95Ns, ns as f64),
            Goal::P99(ns) => (Measure::P99Ns, ns as f64),
            Goal::P999(ns) => (Measure::P999Ns, ns as f64),
            Goal::Throttled(percent) => (Measure::ThrottledPercent, percent),
            Goal::Slower(percent) => {
                let measure = if has_end { Measure::WorkTakesNs } else { Measure::P99Ns };
                times(measure, 1.0 + percent / 100.0)
            }
            Goal::Throughput(percent) if unlimited.requests_per_second.is_some() => {
                times(Measure::RequestsPerSecond, percent / 100.0)
            }
            Goal::Throughput(percent) => times(Measure::WorkTakesNs, 100.0 / percent),
        };
        Held { goal: self, measure, bound, found: measure.of(limited) }
    }
}

/// Whether costlier work makes the load last longer: the range of its length is at least half as
/// wide as that of busy CPUs. Where a clock sets the length, it keeps more CPUs busy and takes no
/// longer.
fn is_set_by_work(unlimited: &Prediction) -> bool {
    let (Some(takes), Some(cpus)) = (unlimited.work_takes_ns, unlimited.cpus) else { return false };
    let longer = takes.high as f64 / takes.low.max(1) as f64 - 1.0;
    let busier = cpus.high / cpus.low.max(f64::MIN_POSITIVE) - 1.0;
    longer >= busier / 2.0
}

impl Measure {
    /// The number in a prediction, times in ns; `None` where the prediction does not have it.
    fn of(self, prediction: &Prediction) -> Option<Ranged<f64>> {
        let ns = |ranged: Ranged<u64>| Ranged {
            value: ranged.value as f64,
            low: ranged.low as f64,
            high: ranged.high as f64,
        };
        match self {
            Measure::P50Ns => prediction.request_latency_ns.map(|latency| ns(latency.p50)),
            Measure::P95Ns => prediction.request_latency_ns.map(|latency| ns(latency.p95)),
            Measure::P99Ns => prediction.request_latency_ns.map(|latency| ns(latency.p99)),
            Measure::P999Ns => prediction.request_latency_ns.map(|latency| ns(latency.p999)),
            Measure::WorkTakesNs => prediction.work_takes_ns.map(ns),
            Measure::ThrottledPercent => prediction.throttled_percent,
            Measure::RequestsPerSecond => prediction.requests_per_second,
        }
    }

    /// Whether a larger value is better.
    fn is_rate(self) -> bool {
        self == Measure::RequestsPerSecond
    }

    /// The worse end of a range.
    fn worse(self, ranged: Ranged<f64>) -> f64 {
        if self.is_rate() { ranged.low } else { ranged.high }
    }
}

impl Held {
    /// The worse end of the predicted range; `None` if the number is unknown.
    pub fn worst(&self) -> Option<f64> {
        self.found.map(|found| self.measure.worse(found))
    }

    /// The worse end relative to the bound, inverted for rates. At most 1 means kept; an unknown
    /// number is infinitely bad.
    pub fn excess(&self) -> f64 {
        match self.worst() {
            None => f64::INFINITY,
            Some(worst) if self.measure.is_rate() => self.bound / worst.max(f64::MIN_POSITIVE),
            Some(worst) if worst <= self.bound => worst / self.bound.max(worst).max(1e-9),
            Some(worst) => worst / self.bound.max(f64::MIN_POSITIVE),
        }
    }

    /// Whether the worse end of the range is within the bound; an unknown number is not.
    pub fn is_kept(&self) -> bool {
        self.excess() <= 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Sample, Unit, predict};

    fn prediction(p99: [u64; 2], rate: [f64; 2], throttled: [f64; 2], takes: u64) -> Prediction {
        let sample = |at: usize| Sample {
            throttled_percent: Some(throttled[at]),
            requests_per_second: Some(rate[at]),
            latency_ns: Some([p99[at] / 2, p99[at], p99[at], p99[at], 2 * p99[at]]),
            takes_ns: (takes > 0).then_some(takes),
            ..Sample::default()
        };
        predict(&[(&sample(0), true), (&sample(1), false)], Unit::Requests)
    }

    #[test]
    fn the_worse_end_of_a_range_counts() {
        let limited = prediction([40, 60], [100.0, 90.0], [2.0, 6.0], 0);
        let without = prediction([30, 50], [100.0, 95.0], [0.0, 0.0], 0);
        for (goal, kept, bound) in [
            (Goal::P99(60), true, 60.0),
            (Goal::P99(59), false, 59.0),
            (Goal::P999(120), true, 120.0),
            (Goal::P999(119), false, 119.0),
            (Goal::P50(30), true, 30.0),
            (Goal::P50(29), false, 29.0),
            (Goal::Slower(20.0), true, 60.0),
            (Goal::Slower(19.0), false, 59.5),
            (Goal::Throttled(6.0), true, 6.0),
            (Goal::Throttled(0.0), false, 0.0),
            (Goal::Throughput(94.0), true, 89.3),
            (Goal::Throughput(96.0), false, 91.2),
        ] {
            let held = goal.held(&limited, &without);
            assert!((held.bound - bound).abs() < 0.01, "{held:?}");
            assert_eq!(held.is_kept(), kept, "{held:?}");
        }
        assert!(Goal::Throttled(0.0).held(&without, &without).is_kept());
    }

    #[test]
    fn work_with_an_end_is_slower_when_it_takes_longer() {
        let limited = prediction([400, 600], [1.0, 1.0], [2.0, 6.0], 120);
        let without = prediction([30, 50], [1.0, 1.0], [0.0, 0.0], 100);
        let held = Goal::Slower(20.0).held(&limited, &without);
        assert_eq!((held.measure, held.is_kept()), (Measure::WorkTakesNs, true));
        let busier = Ranged { value: 0.5, low: 0.5, high: 0.6 };
        let by_a_clock = Prediction { cpus: Some(busier), ..without.clone() };
        let held = Goal::Slower(20.0).held(&limited, &by_a_clock);
        assert_eq!((held.measure, held.bound), (Measure::P99Ns, 60.0));
        let endless = Prediction { work_takes_ns: None, ..limited };
        let held = Goal::Slower(1e6).held(&endless, &without);
        assert!(!held.is_kept() && held.worst().is_none(), "{held:?}");
        let rates = Prediction { requests_per_second: None, ..without.clone() };
        let held = Goal::Throughput(50.0).held(&without, &rates);
        assert_eq!((held.measure, held.bound), (Measure::WorkTakesNs, 200.0));
    }
}
