//! Latencies of requests: exact while there are few, then a histogram with three significant
//! digits.

use cpumax_outcome::{Histogram as Buckets, Percentiles};
use hdrhistogram::Histogram;

const EXACT: usize = 8192;

#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies {
    exact: Vec<u64>,
    rest: Option<Box<Histogram<u32>>>,
    max_ns: u64,
    pub count: u64,
    pub under_way: u64,
    pub longest_under_way_ns: u64,
}

impl Latencies {
    /// Adds a completed request with this latency, ns. Many are kept in a histogram, few exactly.
    pub fn record(&mut self, ns: u64) {
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        if let Some(histogram) = self.rest.as_mut() {
            histogram.saturating_record(ns);
            return;
        }
        self.exact.push(ns);
        if self.exact.len() > EXACT {
            self.histogram();
        }
    }

    /// Adds `n` requests that are under way at the end, the oldest for `ns`; they count in no
    /// percentile.
    pub fn add_under_way(&mut self, n: u64, ns: u64) {
        self.under_way = self.under_way.saturating_add(n);
        self.longest_under_way_ns = self.longest_under_way_ns.max(ns);
    }

    /// Whether no request was completed or is under way.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.under_way == 0
    }

    /// Adds another's requests to these.
    pub fn merge(&mut self, other: &Latencies) {
        self.add_under_way(other.under_way, other.longest_under_way_ns);
        if let Some(histogram) = &other.rest {
            // Both have the same bounds, so nothing can be out of range.
            let _ = self.histogram().add(&**histogram);
            self.max_ns = self.max_ns.max(other.max_ns);
            self.count += other.count;
        }
        for ns in &other.exact {
            self.record(*ns);
        }
    }

    /// Converts exact latencies to the histogram (three digits, up to a day), and returns that.
    fn histogram(&mut self) -> &mut Histogram<u32> {
        let exact = std::mem::take(&mut self.exact);
        let histogram = self.rest.get_or_insert_with(|| {
            // Up to the longest possible run, a day; later values count as that.
            let histogram = Histogram::new_with_max(86_400_000_000_000, 3)
                .expect("three digits up to a day are within what a histogram can hold");
            Box::new(histogram)
        });
        for ns in exact {
            histogram.saturating_record(ns);
        }
        histogram
    }

    /// Mean latency, ns; 0 without any.
    #[cfg(test)]
    pub fn mean_ns(&self) -> f64 {
        match &self.rest {
            Some(histogram) => histogram.mean(),
            None => self.exact.iter().sum::<u64>() as f64 / self.exact.len().max(1) as f64,
        }
    }

    /// Median, 99th percentile and maximum, ns; ranks are rounded up, so p50 of two is the first.
    /// The age of a request under way counts for the maximum.
    pub fn percentiles(&mut self) -> Percentiles {
        let max = self.max_ns.max(self.longest_under_way_ns);
        let at = |of: f64| match &self.rest {
            Some(histogram) => histogram.value_at_quantile(of).min(self.max_ns),
            None => 0,
        };
        if self.rest.is_some() {
            return Percentiles { p50: at(0.50), p99: at(0.99), max };
        }
        self.exact.sort_unstable();
        let n = self.exact.len();
        let rank = |percent: usize| match (n * percent).div_ceil(100) {
            0 => 0,
            rank => self.exact[rank - 1],
        };
        Percentiles { p50: rank(50), p99: rank(99), max }
    }

    /// Histogram of the latencies of completed requests.
    pub fn buckets(&self) -> Buckets {
        match &self.rest {
            Some(histogram) => Buckets::of(histogram.iter_recorded().map(|value| {
                (value.value_iterated_to().min(self.max_ns), u64::from(value.count_at_value()))
            })),
            None => Buckets::of(self.exact.iter().map(|&ns| (ns, 1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_exact_and_many_are_close() {
        let mut few = Latencies::default();
        assert_eq!(few.percentiles(), Percentiles::default());
        for ns in (1..=100).rev() {
            few.record(ns);
        }
        assert_eq!(few.percentiles(), Percentiles { p50: 50, p99: 99, max: 100 });
        assert_eq!(few.buckets().count(), 100);
        assert_eq!(few.buckets().buckets.last(), Some(&[96, 104, 5]));

        let mut many = Latencies::default();
        for ns in 1..=100_000u64 {
            many.record(ns * 1000);
        }
        let p = many.percentiles();
        assert!(p.p50.abs_diff(50_000_000) <= 50_000, "{p:?}");
        assert!(p.p99.abs_diff(99_000_000) <= 99_000, "{p:?}");
        assert_eq!(p.max, 100_000_000);
        let buckets = many.buckets();
        assert_eq!(buckets.count(), 100_000);
        let below = |ns| buckets.buckets.iter().filter(|b| b[1] <= ns).map(|b| b[2]).sum::<u64>();
        // Seven eighths of 2^26 ns.
        assert!(below(58_720_256).abs_diff(58_720) < 60, "{}", below(58_720_256));
    }
    #[test]
    fn merged_is_as_if_recorded_together() {
        for sizes in [[10, 90], [10, 20_000], [20_000, 10], [20_000, 9_000], [5_000, 5_000]] {
            let mut together = Latencies::default();
            let mut merged = Latencies::default();
            let mut next = 0;
            for size in sizes {
                let mut part = Latencies::default();
                for _ in 0..size {
                    next += 977;
                    part.record(next % 100_003);
                    together.record(next % 100_003);
                }
                merged.merge(&part);
            }
            assert_eq!(merged.count, together.count);
            assert_eq!(merged.percentiles(), together.percentiles(), "{sizes:?}");
        }
    }
}
