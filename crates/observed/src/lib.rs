//! Answers without a recording: from counters of control groups and of Prometheus scrapes, and
//! from the state of `scx_cpumax`.
//!
//! [`counters`] reads counters and draws their sums anew. [`counted`] says what they mean for other
//! limits, by services that are [`fitted`] to them, and [`fleet`] of many containers.
//! [`scheduler`] asks a scheduler that runs.

pub mod counted;
pub mod counters;
pub mod fitted;
pub mod fleet;
pub mod scheduler;
