//! What is told of a service under a limit: numbers that each carry how far they may be off.
//!
//! A run of the model gives one sample. Nobody knows where in a period the load begins, how a
//! scheduler decides where two choices are as good, and what the same work costs on another day. So
//! each question is put to several runs, and the answer is the median of those in
//! which the work costs what is most likely, between the lowest and the highest of all.
//!
//! A [`Prediction`] has [`Ranged`] numbers; [`Latency`] those of a distribution, in a [`Unit`]:
//!
//! ```
//! use cpumax_engine::predict::{Ranged, Unit, WorkRange};
//!
//! let known = Ranged::known(7);
//! assert_eq!((known.low, known.high), (7, 7));
//! assert_eq!(Unit::Requests.name(), "requests");
//! // The same work costs a tenth less or a fifth more on another day.
//! assert_eq!(WorkRange::default(), WorkRange { low: 0.9, high: 1.2 });
//! ```

mod doubt;
mod paired;
mod range;
mod sample;

pub use doubt::WorkRange;
pub use paired::{Drawn, change};
pub use range::Ranged;
pub use sample::{Sample, Window};

pub(crate) use doubt::{Doubt, Doubts, Seen};
pub(crate) use range::predict;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a limit does to a service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prediction {
    /// CPUs that the limited group keeps busy in its active window.
    pub cpus: Option<Ranged<f64>>,
    /// Periods that end with the group throttled, of a hundred that pass in that window.
    pub throttled_percent: Option<Ranged<f64>>,
    /// Requests answered a second in that window; none where the recording does not tell requests.
    pub requests_per_second: Option<Ranged<f64>>,
    /// How long requests take; where the recording tells none, how long bursts do.
    pub request_latency_ns: Option<Latency>,
    /// How many are longer than `--over` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over<Ranged<f64>>>,
    /// What `request_latency_ns` is of.
    pub latency_of: Unit,
    /// Until the recorded work is done; none where the load lasts for a given time.
    pub work_takes_ns: Option<Ranged<u64>>,
    /// Whether a number between the ends of its range can be relied on.
    pub predictable: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// The runs that it is told of; none of a recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Drawn>,
}

/// What a load is counted in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// From when a request is due or sent to its answer.
    Requests,
    /// From the wakeup of a thread until it waits again.
    #[default]
    Bursts,
}

impl Unit {
    /// As people call them.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Requests => "requests",
            Unit::Bursts => "bursts",
        }
    }
}

/// How many latencies of a hundred are longer than a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Over<T> {
    /// Than which, ns.
    pub than_ns: u64,
    /// How many.
    pub percent: T,
}

/// Points of a distribution of times, ns; p99.9 is the longest of fewer than a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Median.
    pub p50: Ranged<u64>,
    /// 90th of a hundred.
    pub p90: Ranged<u64>,
    /// 95th of a hundred.
    pub p95: Ranged<u64>,
    /// 99th of a hundred.
    pub p99: Ranged<u64>,
    /// 999th of a thousand.
    pub p999: Ranged<u64>,
}
