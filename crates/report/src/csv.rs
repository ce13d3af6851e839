//! A study as CSV (RFC 4180): a line for each limit on each kernel, each number with its range.

use cpumax_forecast::{
    advise::Role,
    saved::{Predicted, Saved},
};
use cpumax_study::{Beside, Ranged, Try};
use std::fmt::Write;

const TEXTS: [&str; 9] = [
    "recording",
    "role",
    "kernel",
    "cpu_max",
    "burst_usec",
    "weight",
    "pod",
    "beside",
    "predictable",
];
const NUMBERS: [&str; 10] = [
    "cpus",
    "throttled_percent",
    "requests_per_second",
    "p50_ns",
    "p90_ns",
    "p95_ns",
    "p99_ns",
    "p999_ns",
    "over_percent",
    "work_takes_ns",
];

/// The whole study, with a header line.
pub fn csv(saved: &Saved) -> String {
    let mut head: Vec<String> = TEXTS.iter().map(|&name| name.to_owned()).collect();
    for name in NUMBERS {
        head.extend([name.to_owned(), format!("{name}_low"), format!("{name}_high")]);
    }
    let mut out = head.join(",") + "\r\n";
    for run in &saved.runs {
        let _ = write!(out, "{}\r\n", line(run).join(","));
    }
    out
}

fn line(run: &Predicted) -> Vec<String> {
    let prediction = &run.prediction;
    let limit = &run.limit;
    let mut cells = vec![
        quoted(&run.recording),
        quoted(run.role.map(Role::name).unwrap_or_default()),
        quoted(&run.kernel),
        limit.limit.to_string(),
        (limit.limit.burst_ns() / 1_000).to_string(),
        limit.weight.map(|weight| weight.to_string()).unwrap_or_default(),
        limit.pod.map(|pod| pod.limit.to_string()).unwrap_or_default(),
        quoted(&beside(limit)),
        prediction.predictable.to_string(),
    ];
    let latency = prediction.request_latency_ns;
    cells.extend(three(prediction.cpus));
    cells.extend(three(prediction.throttled_percent));
    cells.extend(three(prediction.requests_per_second));
    let points = latency.map(|l| [l.p50, l.p90, l.p95, l.p99, l.p999].map(Some));
    for point in points.unwrap_or_default() {
        cells.extend(three(point));
    }
    cells.extend(three(prediction.over.map(|over| over.percent)));
    cells.extend(three(prediction.work_takes_ns));
    cells
}

/// Limits of other groups: `/sidecar:cpu.max=20000 100000`.
fn beside(limit: &Try) -> String {
    let one = |beside: &Beside| format!("{}:cpu.max={}", beside.path, beside.share.limit);
    limit.beside.iter().map(one).collect::<Vec<_>>().join(",")
}

fn three<T: ToString>(number: Option<Ranged<T>>) -> [String; 3] {
    number.map_or_else(Default::default, |Ranged { value, low, high }| {
        [value.to_string(), low.to_string(), high.to_string()]
    })
}

/// A cell with any text. A leading quote keeps spreadsheets from reading it as a formula.
fn quoted(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) || is_formula {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_cell_and_no_formula() {
        assert_eq!(quoted("web.data"), "web.data");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }
}
