//! Prediction beside measurement, as a Markdown table: what was predicted is the median
//! of all seeds and what was measured that of all runs under that limit; what is outside its
//! tolerance is marked.

use super::plan::{LIMITS, Load, NamedLimit};
use super::predict::{Predicted, SEEDS};
use super::run::{Events, Measured};
use super::{Context, read_json};
use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// CPU used, of what was measured.
const CPU_TOLERANCE: f64 = 0.03;
/// Throttled periods, of all periods.
const THROTTLED_TOLERANCE: f64 = 0.05;
/// Latency, of what was measured ...
const LATENCY_TOLERANCE: f64 = 0.20;
/// ... or of the period, whichever is more.
const PERIOD_TOLERANCE: f64 = 0.10;

pub fn print(context: &Context, loads: &[&Load], repeat: u32) -> Result<()> {
    let (mut cells, mut inside) = (0, 0);
    for load in loads {
        println!("### {}\n\n{}\n", load.name, load.what);
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN).set_header([
            "limit",
            "CPU used, % of one CPU",
            "periods throttled, %",
            "p50, ms",
            "p99, ms",
        ]);
        for limit in LIMITS {
            let Some(row) = row(context, load, limit, repeat)? else {
                continue;
            };
            cells += row.len();
            inside += row.iter().filter(|cell| cell.is_inside()).count();
            let limit = limit.describe();
            table.add_row(std::iter::once(limit).chain(row.iter().map(Cell::text)));
        }
        println!("{table}\n");
    }
    println!("{inside} of {cells} cells are within their tolerance.\n");
    print_disturbance(context, loads, repeat)
}

/// What the recording itself does to a load: without it, with it, and with system calls too.
fn print_disturbance(context: &Context, loads: &[&Load], repeat: u32) -> Result<()> {
    let mut table = Table::new();
    let header = ["load", "recording", "CPU time, ms", "p50, ms", "p99, ms"];
    table.load_preset(ASCII_MARKDOWN).set_header(header);
    for load in loads {
        let unlimited = (0..repeat).map(|n| context.measurement(load, "none", n));
        let recorded = |events: Events| {
            read_all(std::iter::once(context.measurement(load, &format!("recording-{events}"), 0)))
        };
        let rows: [(&str, Vec<Measured>); 3] = [
            ("none", read_all(unlimited)?),
            ("scheduler events", recorded(Events::Sched)?),
            ("and system calls", recorded(Events::Syscalls)?),
        ];
        for (what, runs) in rows.into_iter().filter(|(_, runs)| !runs.is_empty()) {
            let middle = |of: &dyn Fn(&Measured) -> u64| {
                low_median_high(runs.iter().map(|run| of(run) as f64).collect())[1]
            };
            table.add_row([
                load.name.to_owned(),
                what.to_owned(),
                format!("{:.0}", middle(&|run| run.usage_us) / 1e3),
                format!("{:.2}", middle(&|run| run.latency_ns.p50) / 1e6),
                format!("{:.2}", middle(&|run| run.latency_ns.p99) / 1e6),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

/// One number, both ways.
struct Cell {
    predicted: f64,
    /// Lowest, median and highest of all runs.
    measured: [f64; 3],
    /// How far the prediction may be off the median.
    tolerance: f64,
}

impl Cell {
    fn is_inside(&self) -> bool {
        (self.predicted - self.measured[1]).abs() <= self.tolerance
    }

    fn text(&self) -> String {
        let [low, median, high] = self.measured;
        let mark = if self.is_inside() { "" } else { " **off**" };
        let places = if median < 10.0 && high < 20.0 { 2 } else { 1 };
        format!(
            "{:.places$} / {median:.places$} ({low:.places$}..{high:.places$}){mark}",
            self.predicted
        )
    }
}

/// One limit; none when it was not measured or not predicted.
fn row(
    context: &Context,
    load: &Load,
    limit: &NamedLimit,
    repeat: u32,
) -> Result<Option<[Cell; 4]>> {
    let measured: Vec<Measured> =
        read_all((0..repeat).map(|n| context.measurement(load, limit.name, n)))?;
    let predictions = |name: &str| -> Result<Vec<Predicted>> {
        read_all(SEEDS.map(|seed| context.prediction(load, name, seed)))
    };
    let (predicted, unlimited) = (predictions(limit.name)?, predictions("none")?);
    let recorded: Option<Measured> =
        read_json(&context.measurement(load, &format!("recording-{}", context.from), 0))?;
    let (Some(recorded), false, false) =
        (recorded, measured.is_empty(), predicted.len() != unlimited.len() || predicted.is_empty())
    else {
        return Ok(None);
    };
    let predicted: Vec<(&Predicted, &Predicted)> = predicted.iter().zip(&unlimited).collect();
    let period_ms = limit.period_us as f64 / 1e3;
    // The model's run begins with the recording, the measured one with the load: compare what the
    // limit adds.
    let duration_ns = |(limited, unlimited): &(&Predicted, &Predicted)| {
        recorded.duration_ns as f64 + limited.finished_ns as f64 - unlimited.finished_ns as f64
    };
    let cell = |in_model: &dyn Fn(&(&Predicted, &Predicted)) -> f64,
                in_truth: &dyn Fn(&Measured) -> f64,
                relative: f64,
                least: f64| {
        let measured = low_median_high(measured.iter().map(in_truth).collect());
        Cell {
            predicted: low_median_high(predicted.iter().map(in_model).collect())[1],
            measured,
            tolerance: (relative * measured[1]).max(least),
        }
    };
    let latency_least_ms = PERIOD_TOLERANCE * period_ms;
    Ok(Some([
        cell(
            &|run| run.0.usage_us as f64 * 1e5 / duration_ns(run),
            &|run| run.usage_us as f64 * 1e5 / run.duration_ns as f64,
            CPU_TOLERANCE,
            0.0,
        ),
        cell(
            &|run| percent(run.0.nr_throttled, run.0.nr_periods),
            &|run| percent(run.nr_throttled, run.nr_periods),
            0.0,
            THROTTLED_TOLERANCE * 100.0,
        ),
        cell(
            &|run| run.0.p50_ns as f64 / 1e6,
            &|run| run.latency_ns.p50 as f64 / 1e6,
            LATENCY_TOLERANCE,
            latency_least_ms,
        ),
        cell(
            &|run| run.0.p99_ns as f64 / 1e6,
            &|run| run.latency_ns.p99 as f64 / 1e6,
            LATENCY_TOLERANCE,
            latency_least_ms,
        ),
    ]))
}

/// Those of the files that are there.
fn read_all<T: DeserializeOwned>(paths: impl Iterator<Item = PathBuf>) -> Result<Vec<T>> {
    let found = paths.map(|path| read_json(&path)).collect::<Result<Vec<Option<T>>>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// Of at least one number; of an even count the lower of the two in the middle.
fn low_median_high(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    [values[0], values[last / 2], values[last]]
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 * 100.0 / whole as f64
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "the numbers have no fraction to lose")]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_is_marked() {
        let cell = |predicted| Cell { predicted, measured: [9.0, 10.0, 14.0], tolerance: 2.0 };
        assert!(cell(8.0).is_inside() && cell(12.0).is_inside());
        assert!(!cell(12.5).is_inside() && !cell(7.5).is_inside());
        assert_eq!(cell(12.5).text(), "12.5 / 10.0 (9.0..14.0) **off**");
    }

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(low_median_high(vec![3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
        assert_eq!(low_median_high(vec![4.0, 1.0]), [1.0, 1.0, 4.0]);
        assert_eq!(low_median_high(vec![5.0]), [5.0; 3]);
    }

    #[test]
    fn no_period_is_not_throttled() {
        assert_eq!(percent(0, 0), 0.0);
        assert_eq!(percent(1, 4), 25.0);
    }
}
