//! Outcomes as tables, histograms and traces for people and their tools.
//!
//! Everything here turns numbers into text and decides nothing, and asks no terminal anything.
//! Callers say how wide a table may be; they print what they get.

mod chrome;
pub mod escape;
mod histogram;
mod matrix;
mod predicted;
mod table;
mod units;

pub use chrome::ChromeTrace;
pub use histogram::histogram;
pub use matrix::{Matrix, MatrixCell, Tally, markdown, matrix, svg};
pub use predicted::{PredictedRow, Ranged, predicted};
pub use table::{Quota, groups, list, tasks};
pub use units::{cpus, duration, percent};
