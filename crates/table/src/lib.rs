//! Answers as Arrow tables: each function makes one record batch. Columns have the names and units
//! of the command's CSV and JSON.

mod events;
mod recording;
mod study;

pub use events::events;
pub use recording::{requests, threads};
pub use study::{histograms, study};

use arrow_array::{ArrayRef, RecordBatch};

/// The batch of these columns, all of one length.
fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    let made = RecordBatch::try_from_iter_with_nullable(columns);
    made.expect("columns of one table have one length")
}
