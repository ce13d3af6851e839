//! The service's own metrics in the same files: a counter of its requests, and a histogram of their
//! latencies.

use super::super::labels::Labels;
use super::super::served::{Served, percentile};
use cpumax_study::Error;
use std::collections::BTreeMap;

/// Most bounds of a histogram.
const BUCKETS_MAX: usize = 1_000;
/// The largest bound but infinity, s: a larger one is of another unit.
const BOUND_MAX_S: f64 = 1e5;
/// Ends of names of histograms, with the length of that unit, s.
const UNITS: [(&str, f64); 6] = [
    ("_milliseconds", 1e-3),
    ("_millis", 1e-3),
    ("_ms", 1e-3),
    ("_microseconds", 1e-6),
    ("_us", 1e-6),
    ("_nanoseconds", 1e-9),
];
/// A p99 needs at least this many requests.
const REQUESTS_LEAST: f64 = 100.0;

/// Names of the metrics of a service, each with labels that select its series.
///
/// ```
/// use cpumax_observed::counters::Metrics;
///
/// let metrics = Metrics::parse(Some("http_requests_total{job=\"web\"}"), Some("http_seconds"));
/// assert!(metrics.is_ok());
/// assert!(Metrics::parse(Some("http_requests_total{job"), None).is_err());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    requests: Option<Selector>,
    latency: Option<Selector>,
}

#[derive(Debug, Clone, PartialEq)]
struct Selector {
    text: String,
    name: String,
    labels: Vec<(String, String)>,
}

impl Selector {
    /// Reads `METRIC` or `METRIC{LABEL="VALUE"}`; the error names `option` and the form.
    fn parse(text: &str, option: &str) -> Result<Selector, Error> {
        let wrong = || {
            let form = "give METRIC or METRIC{LABEL=\"VALUE\"}, such as http_requests_total";
            Error::Question(format!("{option} '{text}': {form}"))
        };
        let (name, rest) = text.split_at(text.find('{').unwrap_or(text.len()));
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong());
        }
        let labels = match rest {
            "" => Vec::new(),
            rest => {
                let (labels, behind) = Labels::read(rest).ok_or_else(wrong)?;
                if !behind.is_empty() {
                    return Err(wrong());
                }
                labels.into_pairs()
            }
        };
        Ok(Selector { text: text.to_owned(), name: name.to_owned(), labels })
    }

    /// Whether a series has this name and all labels of the selector.
    fn selects(&self, name: &str, labels: &Labels) -> bool {
        self.name == name && labels.has_all(&self.labels)
    }
}

impl Metrics {
    /// Parses the metrics as given on the command line; `latency` is a histogram, with or without
    /// its suffix `_bucket`.
    ///
    /// # Errors
    /// One of them is not a metric.
    pub fn parse(requests: Option<&str>, latency: Option<&str>) -> Result<Metrics, Error> {
        let requests = requests.map(|text| Selector::parse(text, "--requests")).transpose()?;
        let latency = latency.map(|text| {
            let mut selector = Selector::parse(text, "--latency")?;
            if !selector.name.ends_with("_bucket") {
                selector.name.push_str("_bucket");
            }
            Ok::<_, Error>(selector)
        });
        Ok(Metrics { requests, latency: latency.transpose()? })
    }

    /// Names and labels of all of them.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &[(String, String)])> {
        let all = self.requests.iter().chain(&self.latency);
        all.map(|selector| (selector.name.as_str(), selector.labels.as_slice()))
    }

    /// Whether a metric of this name is wanted, whatever its labels.
    pub(super) fn has(&self, name: &str) -> bool {
        let is_it = |selector: &Selector| selector.name == name;
        self.requests.as_ref().is_some_and(is_it) || self.latency.as_ref().is_some_and(is_it)
    }
}

/// Sums over all selected series, at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Own {
    requests: Option<f64>,
    /// Counts by the bits of the upper bound (s), which ascend with it.
    buckets: BTreeMap<u64, f64>,
}

impl Own {
    /// Adds a sample to the sums of each metric that selects its series; else does nothing.
    ///
    /// # Errors
    /// The bound `le` of a bucket is negative, no number or above a day, or there are too many
    /// buckets.
    pub fn add(
        &mut self,
        name: &str,
        labels: &Labels,
        value: f64,
        metrics: &Metrics,
    ) -> Result<(), String> {
        if metrics.requests.as_ref().is_some_and(|wanted| wanted.selects(name, labels)) {
            *self.requests.get_or_insert(0.0) += value;
        }
        if metrics.latency.as_ref().is_some_and(|wanted| wanted.selects(name, labels)) {
            let le = labels.value("le");
            let name = name.trim_end_matches("_bucket");
            let unit_s = UNITS.iter().find(|(end, _)| name.ends_with(end)).map_or(1.0, |of| of.1);
            let bound = le.parse::<f64>().ok().map(|bound| bound * unit_s + 0.0);
            let possible = |s: &f64| *s >= 0.0 && (*s <= BOUND_MAX_S || s.is_infinite());
            let bound = bound.filter(possible).ok_or_else(|| {
                format!(
                    "the upper bound `le` cannot be '{le}', but 0 to {BOUND_MAX_S} s, or in the \
                     unit that ends the name, such as _milliseconds"
                )
            })?;
            *self.buckets.entry(bound.to_bits()).or_default() += value;
        }
        if self.buckets.len() > BUCKETS_MAX {
            return Err(format!("a histogram has at most {BUCKETS_MAX} buckets"));
        }
        Ok(())
    }
}

/// Requests a second and latencies between the first and the last scrape; `all` has paths and sums.
/// Rates come from the histogram where there is no counter of requests, and p99 needs 100 requests.
/// An error where a wanted series is missing or went back.
pub(super) fn served(
    all: &[(&str, &Own)],
    metrics: &Metrics,
    length_ns: u64,
) -> Result<Served, Error> {
    let (Some((first_path, first)), Some((_, last))) = (all.first(), all.last()) else {
        return Ok(Served::default());
    };
    let seconds = length_ns.max(1) as f64 / 1e9;
    let missing = |selector: &Selector| {
        let what = "no series in every scrape has this name and these labels";
        Error::Question(format!("{}: {what}", selector.text))
    };
    let fell = |selector: &Selector| {
        let what = "it went back as the service was restarted: give scrapes without a restart";
        Error::Question(format!("{first_path}: {}: {what}", selector.text))
    };
    let mut served = Served::default();
    if let Some(selector) = &metrics.requests {
        let both = first.requests.zip(last.requests);
        let (from, to) = both.ok_or_else(|| missing(selector))?;
        if all.windows(2).any(|pair| pair[1].1.requests < pair[0].1.requests) {
            return Err(fell(selector));
        }
        served.requests_per_s = Some((to - from) / seconds);
    }
    let Some(selector) = &metrics.latency else { return Ok(served) };
    if first.buckets.is_empty() || !first.buckets.keys().eq(last.buckets.keys()) {
        return Err(missing(selector));
    }
    let counted = |(one, other): (&f64, &f64)| other - one;
    let counts = first.buckets.values().zip(last.buckets.values()).map(counted);
    let bounds = first.buckets.keys().map(|bits| f64::from_bits(*bits));
    let buckets: Vec<(f64, f64)> = bounds.zip(counts).collect();
    if buckets.iter().any(|(_, count)| *count < 0.0) {
        return Err(fell(selector));
    }
    let count = buckets.last().map_or(0.0, |(_, count)| *count);
    served.requests_per_s = served.requests_per_s.or(Some(count / seconds));
    served.p50_ns = percentile(&buckets, 50.0).filter(|_| count > 0.0);
    served.p99_ns = percentile(&buckets, 99.0).filter(|_| count >= REQUESTS_LEAST);
    Ok(served)
}
