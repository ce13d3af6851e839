//! Workloads: groups, tasks and the programs they run.
//!
//! A [`Workload`] is what every world (the model, a virtual machine, the host) is given. It comes
//! from a scenario file ([`parse`]), from Rust code ([`Workload::builder`]), or from a recording.
//! It says nothing about kernels: the same workload is run on each. Whatever it came from, one set
//! of checks ([`Workload::check`]) decides whether it is accepted.

pub mod bounds;
pub mod build;
mod check;
mod dist;
mod error;
mod memory_map;
mod model;
mod print;
pub mod random;
mod read;
mod resolve;
pub mod step;
mod units;

pub use build::Builder;
pub use dist::{Domain, MAX_DRAW_NS, Stream};
pub use error::{Error, Finding, Location};
pub use memory_map::MEMORY_MAP;
pub use model::*;
pub use print::print;
pub use read::{load, parse};
