//! The result of a run of the model, in the terms of counters.

/// Numbers of the service's group in a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seen {
    pub seconds: f64,
    pub cpus: f64,
    pub nr_periods: f64,
    pub nr_throttled: f64,
    /// Throttled periods of the pod, and all of its periods; 0 where that has no limit.
    pub above: (f64, f64),
    /// Time throttled in a second, s.
    pub throttled_s: f64,
    pub requests_per_s: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    /// Usage in windows, CPUs.
    pub windows: Vec<f64>,
}

impl Seen {
    /// Throttled periods of a hundred.
    pub fn throttled_percent(&self) -> f64 {
        100.0 * self.nr_throttled / self.nr_periods.max(1.0)
    }
}
