//! Errors of predictions, and whether their ranges hold the measured numbers.

use super::files::Prediction;
use super::run::Run;
use crate::limit::Limit;
use serde::Serialize;
use serde_json::Value;

/// How a recording is replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaling {
    Raw,
    /// With its work scaled by the measured cost of a unit of work: a model of the scheduler does
    /// not predict changes of that cost.
    Normalised,
}

impl Scaling {
    pub const ALL: [Scaling; 2] = [Scaling::Raw, Scaling::Normalised];

    pub fn name(self) -> &'static str {
        match self {
            Scaling::Raw => "raw",
            Scaling::Normalised => "normalised",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    Cpus,
    Throttled,
    Rate,
    P50,
    P90,
    P99,
    Takes,
}

impl Quantity {
    pub const ALL: [Quantity; 7] = [
        Quantity::Cpus,
        Quantity::Throttled,
        Quantity::Rate,
        Quantity::P50,
        Quantity::P90,
        Quantity::P99,
        Quantity::Takes,
    ];

    pub fn describe(self) -> &'static str {
        match self {
            Quantity::Cpus => "CPUs used",
            Quantity::Throttled => "periods throttled, %",
            Quantity::Rate => "requests a second",
            Quantity::P50 => "p50, ms",
            Quantity::P90 => "p90, ms",
            Quantity::P99 => "p99, ms",
            Quantity::Takes => "takes, s",
        }
    }

    /// Tolerance: a share of the measured number, plus a constant.
    fn tolerance(self, limit: &Limit) -> (f64, f64) {
        match self {
            Quantity::Cpus => (0.03, 0.0),
            Quantity::Throttled => (0.0, 5.0),
            Quantity::Rate | Quantity::Takes => (0.10, 0.0),
            // A tenth of the period, ms.
            Quantity::P50 | Quantity::P90 | Quantity::P99 => (0.20, limit.period_us as f64 / 1e4),
        }
    }

    fn measured(self, run: &Run) -> Option<f64> {
        match self {
            Quantity::Cpus => Some(run.cpus_used),
            Quantity::Throttled => {
                Some(100.0 * run.nr_throttled as f64 / run.nr_periods.max(1) as f64)
            }
            Quantity::Rate => run.metric("req_per_s").or_else(|| run.metric("tps")),
            Quantity::P50 => run.metric("lat_p50_ms"),
            Quantity::P90 => run.metric("lat_p90_ms"),
            Quantity::P99 => run.metric("lat_p99_ms"),
            Quantity::Takes => unit(&run.workload)
                .is_none_or(|unit| run.metric(unit).is_none())
                .then_some(run.wall_s),
        }
    }

    fn predicted(self, prediction: &Value) -> Option<Range> {
        let latency = &prediction["request_latency_ns"];
        let (part, factor) = match self {
            Quantity::Cpus => (&prediction["cpus"], 1.0),
            Quantity::Throttled => (&prediction["throttled_percent"], 1.0),
            Quantity::Rate => (&prediction["requests_per_second"], 1.0),
            Quantity::P50 => (&latency["p50"], 1e-6),
            Quantity::P90 => (&latency["p90"], 1e-6),
            Quantity::P99 => (&latency["p99"], 1e-6),
            Quantity::Takes => (&prediction["work_takes_ns"], 1e-9),
        };
        let number = |field: &str| part[field].as_f64().map(|value| value * factor);
        Some(Range { value: number("value")?, low: number("low")?, high: number("high")? })
    }
}

/// A number and its range; of measurements, the median and the range of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// A number, measured and predicted.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    pub recording: String,
    pub setting: String,
    pub way: &'static str,
    pub quantity: Quantity,
    pub measured: Range,
    /// `None` without a prediction.
    pub predicted: Option<Range>,
    /// Whether the prediction is marked as predictable.
    pub predictable: bool,
    /// Relative to the measured median; in points for throttled periods.
    pub error: Option<f64>,
    pub within: bool,
    pub covered: bool,
}

impl Cell {
    /// Width of the predicted range relative to its value; in points for throttled periods.
    pub fn width(&self) -> Option<f64> {
        let range = self.predicted?;
        let width = range.high - range.low;
        Some(match self.quantity {
            Quantity::Throttled => width,
            _ => width / range.value.abs().max(1e-9),
        })
    }
}

/// All predictions for which there are measurements.
pub fn cells(runs: &[Run], predictions: &[Prediction]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for asked in predictions {
        let Ok(limit) = asked.setting.parse::<Limit>() else { continue };
        let measured: Vec<&Run> = runs
            .iter()
            .filter(|run| run.workload == workload(&asked.recording))
            .filter(|run| run.setting == asked.setting && run.perf == "none")
            .collect();
        for quantity in Quantity::ALL {
            let values = measured.iter().map(|run| quantity.measured(run)).collect();
            if let Some(measured) = spread(values) {
                cells.push(cell(asked, quantity, &limit, measured));
            }
        }
    }
    cells
}

fn cell(asked: &Prediction, quantity: Quantity, limit: &Limit, measured: Range) -> Cell {
    let prediction = asked.said.as_ref();
    let predicted = prediction.and_then(|prediction| quantity.predicted(prediction));
    let (share, amount) = quantity.tolerance(limit);
    let Range { value: median, low, high } = measured;
    let within = predicted.is_some_and(|range| {
        low - share * low.abs() - amount <= range.value
            && range.value <= high + share * high.abs() + amount
    });
    let covered = predicted.is_some_and(|range| {
        range.low * (1.0 - share / 2.0) - amount / 2.0 <= median
            && median <= range.high * (1.0 + share / 2.0) + amount / 2.0
    });
    let error = predicted.map(|range| {
        let off = (range.value - median).abs();
        if quantity == Quantity::Throttled { off } else { off / median.abs().max(1e-9) }
    });
    Cell {
        recording: asked.recording.clone(),
        setting: asked.setting.clone(),
        way: if asked.scale.is_none() { Scaling::Raw } else { Scaling::Normalised }.name(),
        quantity,
        measured,
        predicted,
        predictable: prediction.is_some_and(|prediction| prediction["predictable"] == true),
        error,
        within,
        covered,
    }
}

/// Median and range of the runs under one limit; `None` if a run lacks the number.
fn spread(values: Vec<Option<f64>>) -> Option<Range> {
    let values: Vec<f64> = values.into_iter().collect::<Option<_>>()?;
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    Some(Range { value: median(values), low, high })
}

#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub way: &'static str,
    pub quantity: Quantity,
    pub cells: usize,
    /// Cells without a prediction.
    pub missing: usize,
    pub error_median: Option<f64>,
    pub error_ninth_decile: Option<f64>,
    pub within: usize,
    pub covered: usize,
    /// Without cells marked as not predictable.
    pub width_median: Option<f64>,
}

pub fn summaries(cells: &[Cell]) -> Vec<Summary> {
    let mut summaries = Vec::new();
    for way in Scaling::ALL {
        for quantity in Quantity::ALL {
            let of: Vec<&Cell> = cells
                .iter()
                .filter(|cell| cell.way == way.name() && cell.quantity == quantity)
                .collect();
            if of.is_empty() {
                continue;
            }
            let errors: Vec<f64> = of.iter().filter_map(|cell| cell.error).collect();
            let widths =
                of.iter().filter(|cell| cell.predictable).filter_map(|cell| cell.width()).collect();
            summaries.push(Summary {
                way: way.name(),
                quantity,
                cells: of.len(),
                missing: of.iter().filter(|cell| cell.predicted.is_none()).count(),
                error_median: quantile(errors.clone(), 0.5),
                error_ninth_decile: quantile(errors, 0.9),
                within: of.iter().filter(|cell| cell.within).count(),
                covered: of.iter().filter(|cell| cell.covered).count(),
                width_median: quantile(widths, 0.5),
            });
        }
    }
    summaries
}

/// Workload of a recording: `http.node-open` of `http.node-open.full`.
pub fn workload(recording: &str) -> &str {
    recording.rsplit_once('.').map_or(recording, |(workload, _)| workload)
}

/// Limits under which a workload was measured, in the order of the runs.
pub fn settings(runs: &[Run], workload: &str) -> Vec<String> {
    let mut settings: Vec<String> = Vec::new();
    for run in runs.iter().filter(|run| run.workload == workload && run.perf == "none") {
        if run.setting != "U" && !settings.contains(&run.setting) {
            settings.push(run.setting.clone());
        }
    }
    settings
}

/// Unit of a workload's work; `None`: the whole run.
fn unit(workload: &str) -> Option<&'static str> {
    match workload.split('.').next()? {
        "nginx" | "http" => Some("requests"),
        "pgbench" => Some("transactions"),
        "bursts" => Some("bursts"),
        _ => None,
    }
}

pub fn cost(run: &Run) -> f64 {
    let count = unit(&run.workload).and_then(|unit| run.metric(unit)).unwrap_or(1.0);
    run.usage_s / count.max(1.0)
}

/// Median; of an even count the mean of the middle two; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// The smallest value that at least this share of all values do not exceed.
pub fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(setting: &str, cpus_used: f64, p50_ms: f64) -> Run {
        serde_json::from_value(json!({
            "workload": "http.x", "setting": setting, "quota_us": 50_000, "period_us": 100_000,
            "burst_us": 0, "perf": "none", "rep": 1, "at": "00:00:00", "wall_s": 2.0,
            "usage_s": cpus_used * 2.0, "cpus_used": cpus_used, "nr_periods": 20,
            "nr_throttled": 10,
            "metrics": {"requests": 100, "req_per_s": 50.0, "lat_p50_ms": p50_ms, "errors": ""},
        }))
        .unwrap()
    }

    fn asked(setting: &str, cpus: f64) -> Prediction {
        let range = |value: f64| json!({"value": value, "low": value * 0.9, "high": value * 1.1});
        Prediction {
            recording: "http.x.plain".to_owned(),
            setting: setting.to_owned(),
            scale: None,
            said: Some(json!({
                "cpus": range(cpus), "throttled_percent": range(60.0),
                "requests_per_second": null, "predictable": true,
                "request_latency_ns": {"p50": range(80e6)},
            })),
            failed: None,
        }
    }

    #[test]
    fn a_number_is_within_beside_any_run_and_covered_by_its_own_range() {
        let runs = [run("50/100", 0.50, 60.0), run("50/100", 0.48, 65.0), run("20/100", 0.2, 9.0)];
        let cells = cells(&runs, &[asked("50/100", 0.515)]);
        let of = |quantity| cells.iter().find(|cell| cell.quantity == quantity).unwrap();
        let cpus = of(Quantity::Cpus);
        assert!((cpus.measured.value - 0.49).abs() < 1e-9);
        assert!(cpus.within && cpus.covered && cpus.predictable);
        assert!((cpus.error.unwrap() - 0.025 / 0.49).abs() < 1e-9);
        assert!((cpus.width().unwrap() - 0.2).abs() < 1e-9);
        // An error of ten points, where five are allowed; a range of twelve points, widened by half
        // of five.
        let throttled = of(Quantity::Throttled);
        assert!(!throttled.within && !throttled.covered);
        assert_eq!(throttled.error, Some(10.0));
        // 65 ms, a fifth more, and a tenth of the period.
        assert!(of(Quantity::P50).within && !of(Quantity::Rate).within);
        assert_eq!(of(Quantity::Rate).predicted, None);
        assert!(cells.iter().all(|cell| cell.quantity != Quantity::Takes));
    }

    #[test]
    fn a_summary_counts_each_quantity_once() {
        let runs = [run("50/100", 0.5, 60.0), run("20/100", 0.2, 60.0)];
        let cells = cells(&runs, &[asked("50/100", 0.5), asked("20/100", 0.25)]);
        let summaries = summaries(&cells);
        let cpus = summaries.iter().find(|each| each.quantity == Quantity::Cpus).unwrap();
        assert_eq!((cpus.cells, cpus.within, cpus.covered, cpus.missing), (2, 1, 1, 0));
        assert!((cpus.error_ninth_decile.unwrap() - 0.25).abs() < 1e-9);
        let rate = summaries.iter().find(|each| each.quantity == Quantity::Rate).unwrap();
        assert_eq!((rate.missing, rate.error_median), (2, None));
    }

    #[test]
    fn quantiles_are_of_the_values() {
        assert_eq!(quantile(vec![], 0.9), None);
        assert_eq!(quantile((1..=10).map(f64::from).collect(), 0.9), Some(9.0));
        assert_eq!(quantile(vec![3.0], 0.5), Some(3.0));
        assert!((median(vec![1.0, 4.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn work_is_counted_in_requests_where_there_are_some() {
        assert!((cost(&run("U", 0.5, 1.0)) - 0.01).abs() < 1e-9);
        assert_eq!(settings(&[run("U", 1.0, 1.0), run("5/10", 1.0, 1.0)], "http.x"), ["5/10"]);
        assert_eq!(workload("http.x.full"), "http.x");
    }
}
