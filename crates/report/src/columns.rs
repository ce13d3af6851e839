//! A study as a table: the columns that CSV, Parquet and Arrow have. A row is a limit on a kernel.

use cpumax_forecast::advise::Role;
use cpumax_forecast::predict::Prediction;
use cpumax_forecast::saved::{Predicted, Saved};
use cpumax_study::{Beside, Ranged, Try, limit::Limit};

/// The values of a column, one for each row; `None` where there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Names and sentences.
    Text(Vec<Option<String>>),
    /// Counts and times.
    Whole(Vec<Option<u64>>),
    /// Rates and percentages.
    Number(Vec<Option<f64>>),
    /// Answers, yes or no.
    Flag(Vec<Option<bool>>),
}

type Number = fn(&Prediction) -> Option<Ranged<f64>>;
type Time = fn(&Prediction) -> Option<Ranged<u64>>;

const NUMBERS: [(&str, Number); 4] = [
    ("cpus", |p| p.cpus),
    ("throttled_percent", |p| p.throttled_percent),
    ("requests_per_second", |p| p.requests_per_second),
    ("over_percent", |p| p.over.map(|over| over.percent)),
];
const TIMES: [(&str, Time); 6] = [
    ("p50_ns", |p| Some(p.request_latency_ns?.p50)),
    ("p90_ns", |p| Some(p.request_latency_ns?.p90)),
    ("p95_ns", |p| Some(p.request_latency_ns?.p95)),
    ("p99_ns", |p| Some(p.request_latency_ns?.p99)),
    ("p999_ns", |p| Some(p.request_latency_ns?.p999)),
    ("work_takes_ns", |p| p.work_takes_ns),
];

/// Names and values: first what was tried, then each number with the ends of its range.
///
/// ```
/// use cpumax_forecast::{Request, saved::Saved};
/// use cpumax_report::{Column, columns};
/// use cpumax_study::{Try, kernel};
///
/// let path = "../../recordings/bursts.perf.data".as_ref();
/// let request = Request { limits: vec![Try::parse("500m")?], ..Request::default() };
/// let newest = Some(vec![kernel::Kernel::newest()]);
/// let (study, _) = Saved::of_recording(path, Default::default(), &request, newest, &())?;
/// let (name, values) = &columns(&study)[3];
/// let labels = ["none", "50/100"].map(|label| Some(label.to_owned()));
/// assert_eq!((name.as_str(), values), ("limit", &Column::Text(labels.to_vec())));
/// # Ok::<(), cpumax_study::Error>(())
/// ```
pub fn columns(study: &Saved) -> Vec<(String, Column)> {
    let runs = &study.runs;
    let text = |name: &str, of: fn(&Predicted) -> Option<String>| {
        (name.to_owned(), Column::Text(runs.iter().map(of).collect()))
    };
    let whole = |name: &str, of: fn(&Limit) -> Option<u64>| {
        let values = runs.iter().map(|run| of(&run.limit.limit));
        (name.to_owned(), Column::Whole(values.collect()))
    };
    let weights = runs.iter().map(|run| run.limit.weight.map(u64::from));
    let predictable = runs.iter().map(|run| Some(run.prediction.predictable));
    let mut columns = vec![
        text("recording", |run| Some(run.recording.clone())),
        text("role", |run| run.role.map(|role| Role::name(role).to_owned())),
        text("kernel", |run| Some(run.kernel.clone())),
        text("limit", |run| Some(run.limit.label())),
        text("cpu_max", |run| Some(run.limit.limit.to_string())),
        whole("quota_usec", |limit| limit.quota_ns().map(|ns| ns / 1_000)),
        whole("period_usec", |limit| Some(limit.period_ns() / 1_000)),
        whole("burst_usec", |limit| Some(limit.burst_ns() / 1_000)),
        whole("millicpus", Limit::millicpus),
        ("weight".to_owned(), Column::Whole(weights.collect())),
        text("pod", |run| run.limit.pod.map(|pod| pod.limit.to_string())),
        text("beside", |run| beside(&run.limit)),
        ("predictable".to_owned(), Column::Flag(predictable.collect())),
        text("why_not", |run| run.prediction.why_not.clone()),
        text("latency_of", |run| Some(run.prediction.latency_of.name().to_owned())),
    ];
    for (name, of) in NUMBERS {
        let all: Vec<_> = runs.iter().map(|run| of(&run.prediction)).collect();
        columns.extend(three(name, &all, Column::Number));
    }
    for (name, of) in TIMES {
        let all: Vec<_> = runs.iter().map(|run| of(&run.prediction)).collect();
        columns.extend(three(name, &all, Column::Whole));
    }
    columns
}

/// Limits of other groups: `/sidecar:cpu.max=20000 100000`.
fn beside(limit: &Try) -> Option<String> {
    let one = |beside: &Beside| format!("{}:cpu.max={}", beside.path, beside.share.limit);
    let all: Vec<String> = limit.beside.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(","))
}

fn three<T: Copy>(
    name: &str,
    all: &[Option<Ranged<T>>],
    column: fn(Vec<Option<T>>) -> Column,
) -> [(String, Column); 3] {
    let of = |part: fn(&Ranged<T>) -> T| {
        column(all.iter().map(|number| number.as_ref().map(part)).collect())
    };
    [
        (name.to_owned(), of(|number| number.value)),
        (format!("{name}_low"), of(|number| number.low)),
        (format!("{name}_high"), of(|number| number.high)),
    ]
}
