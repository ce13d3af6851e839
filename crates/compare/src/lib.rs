//! The same workloads in two worlds, held against each other ([`Comparison`]), and the search for
//! workloads on which the two differ ([`search`]).
//!
//! What a world is, nobody here needs to know ([`world::World`]): the model of a kernel, or a real
//! one. The first of two is the reference; what it found about itself (phases, tick, preemption)
//! the other is told.

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
