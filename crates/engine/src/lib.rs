//! What a CPU limit does to a service, on which kernel, as a library: the command `cpumax` is thin
//! over it.

pub mod builtin;
mod change;
mod error;
pub mod expect;
mod job;
pub mod kernels;
pub mod predict;
pub mod recorded;
pub mod replay;
pub mod scenario;
pub mod scheduler;
mod study;
pub mod suite;
mod watch;
pub mod weigh;
mod what_if;
pub mod world;

pub use change::{apply, lacks};
pub use cpumax_machine::kernel;
pub use error::{Error, OtherError, no_groups};
pub use job::{Job, NamedKernel, Report, ReportDocument, Share, Variant, WhatIf};
pub use replay::{Replay, Request};
pub use study::{EachRow, Row, Rows, Study};
pub use watch::{Step, Trace, Traced, Watch};
pub use what_if::{Try, ladder};
pub use world::{Machines, Model, Running, ThisHost, World};
