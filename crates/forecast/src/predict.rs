//! Predictions: numbers of a service under a limit, each with a range.
//!
//! A run of the model gives one sample. Four things are unknown: the phase of the period at which
//! the load begins, the scheduler's choice between equal candidates, what the work costs on another
//! day, and when open clients ask then. The model runs each question several times. The value is
//! the median of the runs in which the work costs what is most likely and requests come as they
//! did; the range spans all runs.
//!
//! A [`Prediction`] has [`Ranged`] numbers; [`Latency`] those of a distribution of the load's
//! [`Unit`]:
//!
//! ```
//! use cpumax_forecast::predict::{Unit, WorkRange};
//! use cpumax_study::Ranged;
//!
//! let known = Ranged::known(7);
//! assert_eq!((known.low, known.high), (7, 7));
//! assert_eq!(Unit::Requests.name(), "requests");
//! // Work costs a tenth less or a fifth more on another day.
//! assert_eq!(WorkRange::default(), WorkRange { low: 0.9, high: 1.2 });
//! ```

mod draw;
mod paired;
mod range;
mod sample;

pub use draw::WorkRange;
pub use paired::{Drawn, change};
pub use sample::{Sample, Window};

pub(crate) use draw::{Draw, FirstRun, Unknowns};
pub(crate) use range::predict;

use cpumax_study::Ranged;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Predicted effect of a limit on a service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// CPUs that the limited group keeps busy in its active window.
    pub cpus: Option<Ranged<f64>>,
    /// Periods that end with the group throttled, of a hundred that pass in that window.
    pub throttled_percent: Option<Ranged<f64>>,
    /// Throttled periods, of a hundred, of the group above that is throttled most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_percent: Option<Ranged<f64>>,
    /// Requests answered a second in that window; none where the recording does not tell requests.
    pub requests_per_second: Option<Ranged<f64>>,
    /// How long requests take; where the recording tells none, how long bursts do.
    pub request_latency_ns: Option<Latency>,
    /// How many are longer than `--over` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over<Ranged<f64>>>,
    /// The unit of load that `request_latency_ns` measures.
    pub latency_of: Unit,
    /// Time until the recorded work is done, ns; none where the load lasts for a given time.
    pub work_takes_ns: Option<Ranged<u64>>,
    /// Whether the ranges can be relied on.
    pub predictable: bool,
    /// Why they cannot.
    pub why_not: Option<String>,
    /// The runs behind the numbers; empty for a recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Drawn>,
}

/// The unit of load whose latency is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// A request: from when it is due or sent until its answer.
    Requests,
    /// A burst of work: from the wakeup of a thread until it waits again.
    #[default]
    Bursts,
}

impl Unit {
    /// The plural, for tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Requests => "requests",
            Unit::Bursts => "bursts",
        }
    }
}

/// The share of latencies above a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Over<T> {
    /// The threshold, ns.
    pub than_ns: u64,
    /// Latencies above it, of a hundred.
    pub percent: T,
}

/// Percentiles of a distribution of times, ns; of fewer than a thousand times, p99.9 is the
/// longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Median.
    pub p50: Ranged<u64>,
    /// 90th percentile.
    pub p90: Ranged<u64>,
    /// 95th percentile.
    pub p95: Ranged<u64>,
    /// 99th percentile.
    pub p99: Ranged<u64>,
    /// 99.9th percentile.
    pub p999: Ranged<u64>,
}
