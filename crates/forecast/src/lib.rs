//! Predicts effects of limits on a service that was recorded.
//!
//! A **replay** puts a recording of a real service under limits that it did not have. Each number
//! is a prediction with the range in which the true value is expected.
//!
//! ```
//! use cpumax_forecast::{Replay, Request};
//! use cpumax_recording::{Options, Recording};
//! use cpumax_study::{Running, Try, kernel::Kernel};
//!
//! let path = "../../recordings/bursts.perf.data";
//! let recording = Recording::read(path.as_ref(), Options::default())?;
//! let request = Request { limits: vec![Try::parse("20000 100000")?], ..Request::default() };
//! let replay = Replay::new("bursts.perf.data", &recording, &request)?;
//! let runs = replay.runs(&[Kernel::newest()], 1, &Running::default(), &())?;
//! for run in &runs {
//!     if let Some(cpus) = run.prediction.cpus {
//!         println!("{}: {} CPUs ({} to {})", run.limit.label(), cpus.value, cpus.low, cpus.high);
//!     }
//! }
//! assert_eq!(runs.len(), 2, "without a limit, and with this one");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`advise`] names the smallest limit that meets a goal. [`verify`] holds a prediction against
//! what came true. [`saved`] reads studies that were written as JSON. [`weigh`] compares what the
//! rules of kernels give and cost.

pub mod advise;
mod goal;
pub mod predict;
pub mod recorded;
pub mod replay;
pub mod saved;
pub mod stretch;
mod traced;
pub mod verify;
pub mod weigh;

pub use replay::{Replay, Request};
