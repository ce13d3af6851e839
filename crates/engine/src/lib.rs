//! What a CPU limit does to a service, on which kernel, as a library: the command `cpumax` is thin
//! over it.
//!
//! [`replay`] answers for a recorded service, [`runs`] runs many workloads on many threads.

mod change;
mod error;
pub mod recorded;
pub mod replay;
pub mod runs;
mod what_if;

pub use change::apply;
pub use error::{Error, OtherError};
pub use replay::{Replay, Request};
pub use runs::{Job, Running, Trace, Watch, WhatIf};
pub use what_if::{Try, ladder};
