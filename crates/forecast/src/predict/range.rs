//! A prediction made of several samples.

use super::{Latency, Over, Prediction, Sample, Unit};
use cpumax_study::Ranged;

/// The prediction that several runs of one question make; each sample comes with whether it is a
/// likely one. Where throttled periods spread over more than 50 points of per cent, it is marked
/// unreliable. `runs` is left empty.
pub(crate) fn predict(samples: &[(&Sample, bool)], unit: Unit) -> Prediction {
    let latency =
        |at: usize| Ranged::of(samples, move |sample| sample.latency_ns.map(|points| points[at]));
    let points = || {
        let [p50, p90] = [latency(0)?, latency(1)?];
        let [p95, p99, p999] = [latency(2)?, latency(3)?, latency(4)?];
        Some(Latency { p50, p90, p95, p99, p999 })
    };
    let asked = samples.first().and_then(|(sample, _)| sample.over);
    let over = asked.and_then(|Over { than_ns, .. }| {
        let percent = Ranged::of(samples, |sample| sample.over.map(|over| over.percent))?;
        Some(Over { than_ns, percent })
    });
    let is_nested = samples.iter().any(|(sample, _)| sample.above_percent > 0.0);
    // Of two groups with timers apart now the one is throttled, now the other: each order counts.
    let throttled = |number: fn(&Sample) -> Option<f64>| {
        let mut told = Ranged::of(samples, |sample| number(sample))?;
        let all = samples.iter().filter(|_| is_nested).filter_map(|(sample, _)| number(sample));
        all.for_each(|one| told.widen(Ranged::known(one)));
        Some(told)
    };
    let prediction = Prediction {
        cpus: Ranged::of(samples, |sample| Some(sample.cpus)),
        throttled_percent: throttled(|sample| sample.throttled_percent),
        above_percent: throttled(|sample| Some(sample.above_percent)).filter(|_| is_nested),
        requests_per_second: Ranged::of(samples, |sample| sample.requests_per_second),
        request_latency_ns: points(),
        over,
        latency_of: unit,
        work_takes_ns: Ranged::of(samples, |sample| sample.takes_ns),
        predictable: true,
        why_not: None,
        runs: Vec::new(),
    };
    let either = |sample: &&Sample| Some(sample.throttled_percent?.max(sample.above_percent));
    let why_not = Ranged::of(samples, either).and_then(why_unreliable);
    Prediction { predictable: why_not.is_none(), why_not, ..prediction }
}

impl Prediction {
    /// Widens every range to hold that of an alternative, and takes over its runs; values stay.
    /// Where p50 or p99 of the alternative is a fifth outside of the range, marks the prediction
    /// unreliable for `reason`.
    pub(crate) fn widen_by(&mut self, other: Prediction, reason: &str) {
        let differ = self.differs(&other);
        self.runs.extend(other.runs);
        widen(&mut self.cpus, other.cpus);
        widen(&mut self.throttled_percent, other.throttled_percent);
        widen(&mut self.above_percent, other.above_percent);
        widen(&mut self.requests_per_second, other.requests_per_second);
        widen(&mut self.work_takes_ns, other.work_takes_ns);
        if let (Some(a), Some(b)) = (self.request_latency_ns.as_mut(), other.request_latency_ns) {
            let Latency { p50, p90, p95, p99, p999 } = a;
            let both = [(p50, b.p50), (p90, b.p90), (p95, b.p95), (p99, b.p99), (p999, b.p999)];
            for (a, b) in both {
                a.widen(b);
            }
        }
        if let (Some(a), Some(b)) = (self.over.as_mut(), other.over) {
            a.percent.widen(b.percent);
        }
        if differ {
            self.mark_unreliable(reason);
        }
    }

    /// Marks the prediction unreliable and adds the reason to those before.
    pub(crate) fn mark_unreliable(&mut self, reason: &str) {
        self.predictable = false;
        let told = self.why_not.take().map(|why_not| format!("{why_not}; ")).unwrap_or_default();
        self.why_not = Some(format!("{told}{reason}"));
    }

    /// Lowers the lower end of the range of CPUs to the value less `share` (0 to 1), which other
    /// work may have used.
    pub(crate) fn lower_cpus_by(&mut self, share: f64) {
        if let Some(cpus) = &mut self.cpus {
            cpus.low = cpus.low.min(cpus.value * (1.0 - share));
        }
    }

    /// Whether p50 or p99 of `other` is further outside the range of `self` than a fifth; false
    /// where either has no latencies.
    fn differs(&self, other: &Prediction) -> bool {
        let (Some(a), Some(b)) = (self.request_latency_ns, other.request_latency_ns) else {
            return false;
        };
        [(a.p50, b.p50), (a.p99, b.p99)].into_iter().any(|(a, b)| {
            let value = b.value as f64;
            value < a.low as f64 * (1.0 - BEYOND) || value > a.high as f64 * (1.0 + BEYOND)
        })
    }
}

/// Latencies that differ by less than this share count as equal.
const BEYOND: f64 = 0.2;

/// Extends the range of `a` to that of `b` where both are known.
fn widen<T: Copy + PartialOrd>(a: &mut Option<Ranged<T>>, b: Option<Ranged<T>>) {
    if let (Some(a), Some(b)) = (a.as_mut(), b) {
        a.widen(b);
    }
}

/// The reason why a prediction cannot be relied on: its throttled periods, of the group or of one
/// above it, spread over more than 50 points of per cent. `None` if it can.
fn why_unreliable(throttled: Ranged<f64>) -> Option<String> {
    if throttled.high - throttled.low <= MOST_POINTS {
        return None;
    }
    Some(format!(
        "the limit is near what the load asks for: {:.0} to {:.0} % of its periods are throttled, \
         depending on what its work costs",
        throttled.low, throttled.high
    ))
}

/// Where throttled periods differ by more percentage points than this, all other numbers differ,
/// too.
const MOST_POINTS: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpus: f64, throttled_percent: f64, p50: u64) -> Sample {
        Sample {
            cpus,
            throttled_percent: Some(throttled_percent),
            latency_ns: Some([p50, 2 * p50, 3 * p50, 3 * p50, 3 * p50]),
            takes_ns: Some(7),
            ..Sample::default()
        }
    }

    fn borrowed(samples: &[(Sample, bool)]) -> Vec<(&Sample, bool)> {
        samples.iter().map(|(sample, likely)| (sample, *likely)).collect()
    }

    #[test]
    fn the_value_is_of_the_likely_ones_and_the_range_of_all() {
        let samples = [
            (sample(0.5, 90.0, 30), true),
            (sample(0.4, 95.0, 20), true),
            (sample(0.6, 99.0, 40), true),
            (sample(0.2, 80.0, 10), false),
        ];
        let told = predict(&borrowed(&samples), Unit::Bursts);
        assert_eq!(told.cpus, Some(Ranged { value: 0.5, low: 0.2, high: 0.6 }));
        let latency = told.request_latency_ns.unwrap();
        assert_eq!(latency.p99, Ranged { value: 90, low: 30, high: 120 });
        assert_eq!(told.requests_per_second, None);
        assert_eq!(told.work_takes_ns, Some(Ranged { value: 7, low: 7, high: 7 }));
        assert!(told.predictable && told.why_not.is_none());
    }

    #[test]
    fn one_outlier_of_many_runs_is_left_out() {
        let samples: Vec<_> = (0..11).map(|n| (sample(0.5, 90.0, 30 + n), n == 5)).collect();
        let p50 = predict(&borrowed(&samples), Unit::Bursts).request_latency_ns.unwrap().p50;
        assert_eq!(p50, Ranged { value: 35, low: 31, high: 39 });
        let odd: Vec<_> = (0..11).map(|n| (sample(0.5, 90.0, 30 + n), n == 0)).collect();
        let p50 = predict(&borrowed(&odd), Unit::Bursts).request_latency_ns.unwrap().p50;
        assert_eq!(p50, Ranged { value: 30, low: 30, high: 39 });
    }

    #[test]
    fn work_that_is_not_done_in_some_run_has_no_end() {
        let open = Sample { takes_ns: None, ..sample(0.5, 90.0, 30) };
        let told = predict(&[(&sample(0.5, 90.0, 30), true), (&open, false)], Unit::Bursts);
        assert_eq!(told.work_takes_ns, None);
    }

    #[test]
    fn a_limit_near_what_the_load_asks_for_is_no_prediction() {
        let samples = [(sample(0.5, 30.0, 30), true), (sample(0.5, 95.0, 90), false)];
        let told = predict(&borrowed(&samples), Unit::Bursts);
        assert!(!told.predictable);
        let why_not = told.why_not.unwrap();
        assert!(why_not.contains("30 to 95 % of its periods"), "{why_not}");
    }

    #[test]
    fn ranges_are_widened_by_an_alternative() {
        let one = [(sample(0.5, 90.0, 1_000), true), (sample(0.5, 91.0, 1_100), false)];
        let of = |p50| predict(&[(&sample(0.4, 95.0, p50), true)], Unit::Bursts);
        let mut same = predict(&borrowed(&one), Unit::Bursts);
        same.widen_by(of(1_150), "skips");
        assert!(same.predictable, "{same:?}");
        let mut differs = predict(&borrowed(&one), Unit::Bursts);
        differs.widen_by(of(20), "skips");
        assert_eq!(differs.why_not.as_deref(), Some("skips"));
        let p50 = differs.request_latency_ns.unwrap().p50;
        assert_eq!(p50, Ranged { value: 1_000, low: 20, high: 1_100 });
        assert_eq!(differs.cpus, Some(Ranged { value: 0.5, low: 0.4, high: 0.5 }));
    }
}
