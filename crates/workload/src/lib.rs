//! Workloads: groups, tasks and the programs they run.
//!
//! Every world (the model, a virtual machine, the host) runs a [`Workload`]. A workload comes from
//! a scenario file ([`parse`]), from Rust code ([`Workload::builder`]), or from a recording, and
//! names no kernel: the same workload runs on each. One set of checks ([`Parts::check`]) decides
//! whether it is accepted, so every [`Workload`] that exists has passed them. Readers see its
//! [`Parts`]; methods of [`Workload`] return changed copies.

pub mod bounds;
pub mod build;
mod check;
mod checked;
mod cpus;
mod dist;
mod error;
mod limit_serde;
mod memory_map;
mod model;
mod print;
pub mod random;
mod read;
mod scale;
mod schema;
mod set;
mod units;

pub use build::Builder;
pub use check::as_name;
pub use checked::Workload;
pub use cpus::CpuSet;
pub use dist::{Domain, MAX_DRAW_NS, Stream};
pub use error::{Error, Finding, Location};
pub use memory_map::MEMORY_MAP;
pub use model::*;
pub use print::{print, to_file};
pub use read::{load, parse};
pub use scale::Tasks;
pub use schema::schema;
