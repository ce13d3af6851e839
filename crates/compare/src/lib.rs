//! Compares workloads in two worlds ([`Comparison`]), and searches for workloads on which the two
//! differ ([`search`]).
//!
//! A world ([`world::World`]) is the model of a kernel or a real one. The first of two is the
//! reference; the other runs under the conditions that the reference reports (phases, tick,
//! preemption).

pub mod alike;
pub mod cell;
mod chosen;
pub mod comparison;
pub mod follow;
pub mod found;
pub mod matrix;
pub mod parting;
pub mod search;
mod vm;
pub mod world;
pub mod worlds;

pub use cell::{Cell, Verdict};
pub use chosen::workloads;
pub use comparison::{Comparison, Matrix, MatrixCell, Pairing, Tally};
pub use world::{Answer, Error, Job, Model, Run, World};
