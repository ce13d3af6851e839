//! Workloads: groups, tasks and the programs they run.
//!
//! A [`Workload`] is what every world (the model, a virtual machine, the host) is given. It comes
//! from a scenario file ([`parse`]), from the [`Builder`], or from a recording. It says nothing about
//! kernels: the same workload is run on each.

#![allow(missing_docs)]
mod dist;
mod model;

pub use dist::{Domain, MAX_DRAW_NS, Stream};
pub use model::*;
