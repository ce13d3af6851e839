//! Compares workloads in two worlds ([`Comparison`]), and searches for workloads on which the two
//! differ ([`search`]).
//!
//! A side ([`Side`]) is a kernel in a world ([`cpumax_study::World`]). The first of two is the
//! reference; the other runs under the conditions that the reference reports (phases, tick,
//! preemption).

pub mod alike;
pub mod cell;
mod chosen;
pub mod comparison;
mod error;
pub mod follow;
pub mod found;
pub mod matrix;
mod pair;
pub mod parting;
pub mod search;
pub mod side;
mod verdict;

pub use cell::Cell;
pub use chosen::workloads;
pub use comparison::{Comparison, Matrix, MatrixCell, Pairing, Tally};
pub use error::Error;
pub use pair::{Mode, Noisy, Pair};
pub use side::{Answer, How, Run, Side};
pub use verdict::Verdict;
