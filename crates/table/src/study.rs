//! Studies: a row for each limit on each kernel.

use crate::batch;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use cpumax_forecast::advise::Role;
use cpumax_forecast::predict::{Latency, Prediction};
use cpumax_forecast::saved::{Predicted, Saved};
use cpumax_study::{Ranged, limit::Limit};
use std::sync::Arc;

type Number = fn(&Prediction) -> Option<Ranged<f64>>;
type Time = fn(&Prediction) -> Option<Ranged<u64>>;
type Percentile = fn(&Latency) -> Ranged<u64>;

const NUMBERS: [(&str, Number); 4] = [
    ("cpus", |p| p.cpus),
    ("throttled_percent", |p| p.throttled_percent),
    ("requests_per_second", |p| p.requests_per_second),
    ("over_percent", |p| p.over.map(|over| over.percent)),
];
const PERCENTILES: [(&str, Percentile); 5] = [
    ("p50_ns", |l| l.p50),
    ("p90_ns", |l| l.p90),
    ("p95_ns", |l| l.p95),
    ("p99_ns", |l| l.p99),
    ("p999_ns", |l| l.p999),
];
const TIMES: [(&str, Time); 1] = [("work_takes_ns", |p| p.work_takes_ns)];

/// A row for each limit on each kernel: the limit, then each number with the ends of its range.
///
/// ```
/// use cpumax_forecast::{Request, saved::Saved};
/// use cpumax_study::{Try, kernel};
///
/// let path = "../../recordings/bursts.perf.data".as_ref();
/// let request = Request { limits: vec![Try::parse("500m")?], ..Request::default() };
/// let newest = Some(vec![kernel::Kernel::newest()]);
/// let (study, _) = Saved::of_recording(path, Default::default(), &request, newest, &())?;
/// let table = cpumax_table::study(&study);
/// assert_eq!(table.num_rows(), 2, "no limit, and this one");
/// assert_eq!(table.schema().field(2).name(), "kernel");
/// # Ok::<(), cpumax_study::Error>(())
/// ```
pub fn study(study: &Saved) -> RecordBatch {
    let runs = &study.runs;
    let weights = runs.iter().map(|run| run.limit.weight);
    let predictable = runs.iter().map(|run| Some(run.prediction.predictable));
    let mut columns: Vec<Column<'_>> = vec![
        text("recording", runs, |run| Some(run.recording.clone())),
        text("role", runs, |run| run.role.map(|role| Role::name(role).to_owned())),
        text("kernel", runs, |run| Some(run.kernel.clone())),
        text("limit", runs, |run| Some(run.limit.label())),
        text("cpu_max", runs, |run| Some(run.limit.limit.to_string())),
        of_limit("quota_usec", runs, |limit| limit.quota_ns().map(|ns| ns / 1_000)),
        of_limit("period_usec", runs, |limit| Some(limit.period_ns() / 1_000)),
        of_limit("burst_usec", runs, |limit| Some(limit.burst_ns() / 1_000)),
        of_limit("millicpus", runs, Limit::millicpus),
        ("weight", Arc::new(weights.collect::<UInt32Array>())),
        ("predictable", Arc::new(predictable.collect::<BooleanArray>())),
        text("why_not", runs, |run| run.prediction.why_not.clone()),
        text("latency_of", runs, |run| Some(run.prediction.latency_of.name().to_owned())),
    ];
    let mut ranges: Vec<(String, ArrayRef)> = Vec::new();
    for (name, of) in NUMBERS {
        let all: Vec<_> = runs.iter().map(|run| of(&run.prediction)).collect();
        ranges.extend(three(name, &all, |numbers| Arc::new(Float64Array::from_iter(numbers))));
    }
    let mut times = |name, all: Vec<Option<Ranged<u64>>>| {
        ranges.extend(three(name, &all, |numbers| Arc::new(UInt64Array::from_iter(numbers))));
    };
    for (name, of) in PERCENTILES {
        let latency = |run: &Predicted| run.prediction.request_latency_ns.as_ref().map(of);
        times(name, runs.iter().map(latency).collect());
    }
    for (name, of) in TIMES {
        times(name, runs.iter().map(|run| of(&run.prediction)).collect());
    }
    columns.extend(ranges.iter().map(|(name, column)| (name.as_str(), Arc::clone(column))));
    batch(columns)
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
    batch(vec![
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

type Column<'a> = (&'a str, ArrayRef);

fn text<'a>(
    name: &'a str,
    runs: &[Predicted],
    of: impl Fn(&Predicted) -> Option<String>,
) -> Column<'a> {
    (name, Arc::new(runs.iter().map(of).collect::<StringArray>()))
}

fn of_limit<'a>(
    name: &'a str,
    runs: &[Predicted],
    of: impl Fn(&Limit) -> Option<u64>,
) -> Column<'a> {
    (name, Arc::new(runs.iter().map(|run| of(&run.limit.limit)).collect::<UInt64Array>()))
}

/// Three columns: the values, and the ends of their ranges.
fn three<T: Copy>(
    name: &str,
    all: &[Option<Ranged<T>>],
    column: impl Fn(Vec<Option<T>>) -> ArrayRef,
) -> [(String, ArrayRef); 3] {
    let of = |part: fn(&Ranged<T>) -> T| {
        column(all.iter().map(|number| number.as_ref().map(part)).collect())
    };
    [
        (name.to_owned(), of(|number| number.value)),
        (format!("{name}_low"), of(|number| number.low)),
        (format!("{name}_high"), of(|number| number.high)),
    ]
}
