//! Studies: a row for each limit on each kernel.

use super::batch;
use arrow_array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt64Array};
use cpumax_forecast::saved::{Predicted, Saved};
use cpumax_report::{Column, columns};
use std::sync::Arc;

/// A row for each limit on each kernel: the limit, then each number with the ends of its range.
pub fn study(study: &Saved) -> RecordBatch {
    let (names, columns): (Vec<String>, Vec<Column>) = columns(study).into_iter().unzip();
    batch(names.iter().map(String::as_str).zip(columns.into_iter().map(array)))
}

fn array(column: Column) -> ArrayRef {
    match column {
        Column::Text(all) => Arc::new(StringArray::from(all)),
        Column::Whole(all) => Arc::new(UInt64Array::from(all)),
        Column::Number(all) => Arc::new(Float64Array::from(all)),
        Column::Flag(all) => Arc::new(BooleanArray::from(all)),
    }
}

/// The latencies of each limit on each kernel: a row for each bucket, whose values are at least
/// `low_ns` and less than `high_ns`.
pub fn histograms(study: &Saved) -> RecordBatch {
    let texts = |of: fn(&Predicted) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(buckets(study).map(|(run, _)| of(run))))
    };
    let part = |at: usize| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(buckets(study).map(|(_, bucket)| bucket[at])))
    };
    batch([
        ("recording", texts(|run| run.recording.clone())),
        ("kernel", texts(|run| run.kernel.clone())),
        ("limit", texts(|run| run.limit.label())),
        ("low_ns", part(0)),
        ("high_ns", part(1)),
        ("count", part(2)),
    ])
}

fn buckets(study: &Saved) -> impl Iterator<Item = (&Predicted, &[u64; 3])> {
    let runs = study.runs.iter();
    runs.flat_map(|run| run.latencies.buckets.iter().map(move |bucket| (run, bucket)))
}
