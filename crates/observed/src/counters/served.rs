//! Metrics of a service itself: requests and their latencies, as a counter and a histogram of
//! Prometheus.

use cpumax_study::Ranged;

/// Requests over the observed time; `None` where the metrics lack a number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Served {
    /// Requests a second.
    pub requests_per_s: Option<f64>,
    /// Median latency, ns, between the bounds of its bucket.
    pub p50_ns: Option<Ranged<f64>>,
    /// 99th percentile of latencies, ns, between the bounds of its bucket.
    pub p99_ns: Option<Ranged<f64>>,
}

/// The percentile, in ns, of a cumulative histogram of seconds (ascending bounds, the last one
/// infinite). It is interpolated in its bucket as Prometheus does; the range is that bucket. `None`
/// for an empty histogram, or where the bucket has no upper bound.
pub(super) fn percentile(buckets: &[(f64, f64)], percent: f64) -> Option<Ranged<f64>> {
    let all = buckets.last().filter(|(bound, _)| bound.is_infinite())?.1;
    let rank = all * percent / 100.0;
    let at = buckets.iter().position(|(_, count)| *count >= rank && *count > 0.0)?;
    let (bound, count) = buckets[at];
    let (low, before) = at.checked_sub(1).map_or((0.0, 0.0), |at| buckets[at]);
    if !bound.is_finite() || bound <= 0.0 {
        return None;
    }
    let value = low + (bound - low) * (rank - before) / (count - before).max(f64::MIN_POSITIVE);
    // The first bucket begins at 0; a tenth of its bound stands for that.
    let low = if low > 0.0 { low } else { bound / 10.0 };
    let value = value.clamp(low, bound);
    Some(Ranged { value: value * 1e9, low: low * 1e9, high: bound * 1e9 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_interpolated_in_their_bucket() {
        let buckets = [(0.01, 40.0), (0.1, 80.0), (f64::INFINITY, 100.0)];
        let p50 = percentile(&buckets, 50.0).unwrap();
        assert!((p50.value - 32.5e6).abs() < 1.0, "{p50:?}");
        assert_eq!((p50.low, p50.high), (10e6, 100e6));
        assert_eq!(percentile(&buckets, 99.0), None, "there is no upper bound");
        assert_eq!(percentile(&buckets[..2], 50.0), None, "it does not say how many there are");
        assert_eq!(percentile(&[(0.01, 0.0), (f64::INFINITY, 0.0)], 50.0), None);
        let first = percentile(&[(0.01, 5.0), (f64::INFINITY, 5.0)], 99.0).unwrap();
        assert_eq!((first.low, first.high), (1e6, 10e6));
    }
}
