//! One answer out of several samples.

use super::{Latency, Prediction, Sample, Unit};
use schemars::JsonSchema;
use serde::Serialize;

/// A number and how far it may be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Ranged<T> {
    /// The most likely one.
    pub value: T,
    /// It may be as little as that.
    pub low: T,
    /// Or as much.
    pub high: T,
}

impl<T: Copy + PartialOrd> Ranged<T> {
    /// A number that is known.
    pub fn known(value: T) -> Ranged<T> {
        Ranged { value, low: value, high: value }
    }

    /// The median of the likely ones, between the least and the most of all; `None` where one run
    /// has none.
    fn of(samples: &[(Sample, bool)], number: impl Fn(&Sample) -> Option<T>) -> Option<Ranged<T>> {
        let mut all = Vec::new();
        let mut likely = Vec::new();
        for (sample, is_likely) in samples {
            let number = number(sample)?;
            all.push(number);
            if *is_likely {
                likely.push(number);
            }
        }
        let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
        all.sort_by(order);
        likely.sort_by(order);
        let value = *likely.get(likely.len() / 2)?;
        Some(Ranged { value, low: *all.first()?, high: *all.last()? })
    }
}

/// What several runs of one question say together; each comes with whether it is a likely one.
pub fn predict(samples: &[(Sample, bool)], unit: Unit) -> Prediction {
    let latency =
        |at: usize| Ranged::of(samples, move |sample| sample.latency_ns.map(|points| points[at]));
    let request_latency_ns = match (latency(0), latency(1), latency(2)) {
        (Some(p50), Some(p90), Some(p99)) => Some(Latency { p50, p90, p99 }),
        _ => None,
    };
    let prediction = Prediction {
        cpus: Ranged::of(samples, |sample| Some(sample.cpus)),
        throttled_percent: Ranged::of(samples, |sample| sample.throttled_percent),
        requests_per_second: Ranged::of(samples, |sample| sample.requests_per_second),
        request_latency_ns,
        latency_of: unit,
        work_takes_ns: Ranged::of(samples, |sample| sample.takes_ns),
        predictable: true,
        why_not: None,
    };
    let why_not = doubtful(&prediction);
    Prediction { predictable: why_not.is_none(), why_not, ..prediction }
}

impl Prediction {
    /// Something else may be true as well, of which it cannot be said whether it is: ranges take it
    /// in, and where the two are not the same, it is told what the doubt is.
    pub fn or_else(&mut self, other: &Prediction, doubt: &str) {
        let differ = self.differs(other);
        join(&mut self.cpus, other.cpus);
        join(&mut self.throttled_percent, other.throttled_percent);
        join(&mut self.requests_per_second, other.requests_per_second);
        join(&mut self.work_takes_ns, other.work_takes_ns);
        if let (Some(a), Some(b)) = (self.request_latency_ns.as_mut(), other.request_latency_ns) {
            for (a, b) in [(&mut a.p50, b.p50), (&mut a.p90, b.p90), (&mut a.p99, b.p99)] {
                *a = Ranged { value: a.value, low: a.low.min(b.low), high: a.high.max(b.high) };
            }
        }
        if differ {
            self.predictable = false;
            let told =
                self.why_not.take().map(|why_not| format!("{why_not}; ")).unwrap_or_default();
            self.why_not = Some(format!("{told}{doubt}"));
        }
    }

    /// Whether a latency that is likely by one is beyond what the other takes to be possible.
    fn differs(&self, other: &Prediction) -> bool {
        let (Some(a), Some(b)) = (self.request_latency_ns, other.request_latency_ns) else {
            return false;
        };
        [(a.p50, b.p50), (a.p99, b.p99)].into_iter().any(|(a, b)| {
            let outside = |value: u64, range: Ranged<u64>| {
                (value as f64) < range.low as f64 * (1.0 - BEYOND)
                    || value as f64 > range.high as f64 * (1.0 + BEYOND)
            };
            outside(b.value, a)
        })
    }
}

/// By such a share two latencies may differ and be as good as the same.
const BEYOND: f64 = 0.2;

fn join<T: Copy + PartialOrd>(a: &mut Option<Ranged<T>>, b: Option<Ranged<T>>) {
    if let (Some(a), Some(b)) = (a.as_mut(), b) {
        a.low = if b.low < a.low { b.low } else { a.low };
        a.high = if b.high > a.high { b.high } else { a.high };
    }
}

/// Why a number of the prediction would mislead, if it would.
fn doubtful(prediction: &Prediction) -> Option<String> {
    let throttled = prediction.throttled_percent.as_ref()?;
    if throttled.high - throttled.low <= MOST_POINTS {
        return None;
    }
    Some(format!(
        "the limit is near what the load asks for: between {:.0} and {:.0} % of its periods are \
         throttled, as its work costs a little less or more",
        throttled.low, throttled.high
    ))
}

/// Where the share of throttled periods differs by more points of a hundred than this, everything
/// else does too.
const MOST_POINTS: f64 = 40.0;
