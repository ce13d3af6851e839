//! The tables of a proof, as Markdown.

use super::files::{Folder, Prediction};
use super::run::{Perf, Run};
use super::score::{self, Cell, Quantity, Range, Scaling, Summary};
use super::services::Service;
use crate::limit::Limit;
use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const WIDTH: usize = 120;

const CELLS: &str = "\
    A cell is `predicted (low..high) / measured (lowest..highest)`, and **off** where the\n\
    measured median is not in the predicted range. *plain* is a recording of scheduler events\n\
    only, *full* one with system calls as well, *record* one of `cpumax record`.";

pub fn markdown(
    folder: &Folder,
    runs: &[Run],
    predictions: &[Prediction],
    cells: &[Cell],
) -> Result<String> {
    let mut text = format!("{CELLS}\n\n");
    let summaries = score::summaries(cells);
    for way in Scaling::ALL {
        let of: Vec<&Summary> = summaries.iter().filter(|each| each.way == way.name()).collect();
        if !of.is_empty() {
            write!(text, "### {}\n\n{}\n\n", title(way), summary_table(&of))?;
        }
    }
    write!(text, "### By what recorded\n\n{}\n\n", recorders_table(cells))?;
    text.push_str(&unpredictable(predictions));
    write!(text, "### What the machine and the recording did\n\n{}\n\n", costs(folder, runs))?;
    let workloads: BTreeSet<&str> =
        cells.iter().map(|cell| score::workload(&cell.recording)).collect();
    for workload in workloads {
        let what = Service::find(workload).map_or("", |service| service.what);
        write!(text, "### {workload}\n\n{what}\n\n{}\n\n", cells_table(workload, cells))?;
    }
    Ok(text)
}

fn title(way: Scaling) -> &'static str {
    match way {
        Scaling::Raw => "As recorded",
        Scaling::Normalised => {
            "With the work scaled by what a unit of it cost in the measured runs"
        }
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(header);
    table
}

fn summary_table(summaries: &[&Summary]) -> Table {
    let mut table = table(&[
        "",
        "numbers",
        "off by, median",
        "ninth decile",
        "within tolerance",
        "measured in the predicted range",
        "width of the range, median",
    ]);
    for each in summaries {
        let value = |value: Option<f64>| match (value, each.quantity) {
            (None, _) => "-".to_owned(),
            (Some(value), Quantity::Throttled) => format!("{value:.1} points"),
            (Some(value), _) => format!("{:.1} %", value * 100.0),
        };
        table.add_row([
            each.quantity.describe().to_owned(),
            each.cells.to_string(),
            value(each.error_median),
            value(each.error_ninth_decile),
            of_all(each.within, each.cells),
            of_all(each.covered, each.cells),
            value(each.width_median),
        ]);
    }
    let sum = |of: fn(&Summary) -> usize| summaries.iter().map(|each| of(each)).sum::<usize>();
    let cells = sum(|each| each.cells);
    table.add_row([
        "all".to_owned(),
        cells.to_string(),
        String::new(),
        String::new(),
        of_all(sum(|each| each.within), cells),
        of_all(sum(|each| each.covered), cells),
        String::new(),
    ]);
    table
}

/// Compares recorders, over all their recordings and over the loads that all of them recorded.
fn recorders_table(cells: &[Cell]) -> Table {
    let mut table = table(&[
        "recorded",
        "numbers",
        "within tolerance",
        "measured in the predicted range",
        "of loads that all recorded: numbers",
        "within",
        "in the range",
    ]);
    let kind = |cell: &Cell| cell.recording.rsplit('.').next().unwrap_or_default().to_owned();
    let kinds: BTreeSet<String> = cells.iter().map(kind).collect();
    let by = |workload: &str| -> BTreeSet<String> {
        let of = cells.iter().filter(|cell| score::workload(&cell.recording) == workload);
        of.map(kind).collect()
    };
    let workloads: BTreeSet<&str> =
        cells.iter().map(|cell| score::workload(&cell.recording)).collect();
    let shared: BTreeSet<&str> =
        workloads.into_iter().filter(|workload| by(workload) == kinds).collect();
    for (recorder, way) in kinds.iter().flat_map(|kind| Scaling::ALL.map(|way| (kind, way.name())))
    {
        let mut row = vec![format!("{recorder}, {way}")];
        for shared_only in [false, true] {
            let of = || {
                cells.iter().filter(|cell| {
                    let is_shared = shared.contains(score::workload(&cell.recording));
                    kind(cell) == *recorder && cell.way == way && (is_shared || !shared_only)
                })
            };
            let all = of().count();
            row.push(all.to_string());
            row.push(of_all(of().filter(|cell| cell.within).count(), all));
            row.push(of_all(of().filter(|cell| cell.covered).count(), all));
        }
        table.add_row(row);
    }
    table
}

fn of_all(part: usize, whole: usize) -> String {
    format!("{part} ({:.0} %)", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Predictions that are missing or marked as not predictable, with reasons.
fn unpredictable(predictions: &[Prediction]) -> String {
    let raw: Vec<&Prediction> = predictions.iter().filter(|each| each.scale.is_none()).collect();
    let marked: Vec<&&Prediction> = raw
        .iter()
        .filter(|each| each.said.as_ref().is_some_and(|said| said["predictable"] == false))
        .collect();
    let mut lines = vec![format!(
        "{} of {} recordings under a limit are marked as not predictable.\n",
        marked.len(),
        raw.len()
    )];
    for each in marked {
        let why = each.said.as_ref().and_then(|said| said["why_not"].as_str());
        let why = why.unwrap_or("no word why");
        lines.push(item(&format!("{} under {}: {why}", each.recording, each.setting)));
    }
    for each in raw.iter().filter(|each| each.said.is_none()) {
        let why = each.failed.as_deref().unwrap_or("no prediction in the answer");
        lines.push(item(&format!("{} under {} failed: {why}", each.recording, each.setting)));
    }
    lines.join("\n") + "\n\n"
}

/// A list item, wrapped.
fn item(text: &str) -> String {
    let mut lines = vec!["-".to_owned()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
}

/// Cost of a unit of work: without a limit, under limits, and recorded.
fn costs(folder: &Folder, runs: &[Run]) -> Table {
    let mut table = table(&[
        "service",
        "CPU time of a request without a limit, ms",
        "under limits, of that",
        "recorded plain, of that",
        "recorded with system calls, of that",
        "by cpumax record, of that",
        "CPU time of others, most in a run, s",
    ]);
    let workloads: BTreeSet<&str> = runs.iter().map(|run| run.workload.as_str()).collect();
    for workload in workloads {
        let of: Vec<&Run> =
            runs.iter().filter(|run| run.workload == workload && run.perf == "none").collect();
        let costs = |limited: bool| -> Vec<f64> {
            let which = of.iter().filter(|run| (run.setting != "U") == limited);
            which.map(|run| score::cost(run) * 1e3).collect()
        };
        let free = score::median(costs(false));
        let spread = |values: Vec<f64>, digits: usize| {
            if values.is_empty() {
                return "-".to_owned();
            }
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            format!("{:.digits$} ({low:.digits$}..{high:.digits$})", score::median(values))
        };
        let share = |values: Vec<f64>| values.into_iter().map(|cost| cost / free).collect();
        let recorded = |perf: Perf| {
            let run = folder.recorded(&format!("{workload}.{}", perf.name()));
            run.map_or("-".to_owned(), |run| format!("{:.2}", score::cost(&run) * 1e3 / free))
        };
        let others = of.iter().map(|run| run.others_s).fold(0.0, f64::max);
        table.add_row([
            workload.to_owned(),
            spread(costs(false), 3),
            spread(share(costs(true)), 2),
            recorded(Perf::Plain),
            recorded(Perf::Full),
            recorded(Perf::Record),
            format!("{others:.2}"),
        ]);
    }
    table
}

/// Predictions from each recording of a workload, unscaled, beside the measured numbers.
fn cells_table(workload: &str, cells: &[Cell]) -> Table {
    let of: Vec<&Cell> = cells
        .iter()
        .filter(|cell| score::workload(&cell.recording) == workload)
        .filter(|cell| cell.way == Scaling::Raw.name())
        .collect();
    let quantities: BTreeSet<Quantity> = of.iter().map(|cell| cell.quantity).collect();
    let mut header = vec!["limit", "recording"];
    header.extend(quantities.iter().map(|quantity| quantity.describe()));
    let mut table = table(&header);
    let mut rows: Vec<(&str, &str)> = Vec::new();
    for cell in &of {
        let row = (cell.setting.as_str(), cell.recording.as_str());
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort_by_key(|(setting, recording)| {
        let limit = setting.parse().unwrap_or(Limit::NONE);
        (limit.period_us, limit.quota_us, limit.burst_us, recording.to_owned())
    });
    for (setting, recording) in rows {
        let in_row = |cell: &&&Cell| cell.setting == setting && cell.recording == recording;
        let sure = of.iter().filter(in_row).all(|cell| cell.predictable);
        let limit = setting.parse().map_or(setting.to_owned(), |limit: Limit| limit.describe());
        let kind = recording.rsplit('.').next().unwrap_or_default();
        let mut row =
            vec![if sure { limit } else { format!("{limit}, not predictable") }, kind.to_owned()];
        row.extend(quantities.iter().map(|quantity| {
            let cell = of.iter().filter(in_row).find(|cell| cell.quantity == *quantity);
            cell.map_or("-".to_owned(), |cell| cell_text(cell))
        }));
        table.add_row(row);
    }
    table
}

/// `predicted (low..high) / measured (lowest..highest)`.
fn cell_text(cell: &Cell) -> String {
    let measured = range_text(&cell.measured);
    match &cell.predicted {
        None => format!("- / {measured}"),
        Some(range) => {
            let mark = if cell.covered { "" } else { " **off**" };
            format!("{} / {measured}{mark}", range_text(range))
        }
    }
}

fn range_text(range: &Range) -> String {
    let places = match range.value.abs().max(range.high.abs() / 2.0) {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 2.0 => 2,
        _ => 3,
    };
    format!("{:.places$} ({:.places$}..{:.places$})", range.value, range.low, range.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_both_and_what_is_off() {
        let range = |value: f64| Range { value, low: value * 0.5, high: value * 2.0 };
        let mut cell = Cell {
            recording: "http.x.plain".to_owned(),
            setting: "50/100".to_owned(),
            way: "raw",
            quantity: Quantity::P50,
            measured: range(20.0),
            predicted: Some(range(3.0)),
            predictable: true,
            error: Some(0.85),
            within: false,
            covered: false,
        };
        let text = "3.00 (1.50..6.00) / 20.0 (10.0..40.0) **off**";
        assert_eq!(cell_text(&cell), text);
        let table = cells_table("http.x", &[cell.clone()]).to_string();
        assert!(table.contains("50 ms in 100 ms ") && table.contains(text), "{table}");
        cell.predicted = None;
        assert_eq!(cell_text(&cell), "- / 20.0 (10.0..40.0)");
    }

    #[test]
    fn an_item_is_wrapped_and_indented() {
        let words = vec!["word"; 60].join(" ");
        let item = item(&words);
        assert_eq!(item.lines().count(), 3);
        assert!(item.lines().all(|line| line.len() <= WIDTH));
        assert!(
            item.starts_with("- word word")
                && item.lines().skip(1).all(|line| line.starts_with("  word"))
        );
        assert_eq!(item.split_whitespace().filter(|word| *word == "word").count(), 60);
    }

    #[test]
    fn errors_of_throttling_are_in_points() {
        let summary = Summary {
            way: "raw",
            quantity: Quantity::Throttled,
            cells: 4,
            missing: 0,
            error_median: Some(2.0),
            error_ninth_decile: Some(7.25),
            within: 3,
            covered: 4,
            width_median: None,
        };
        let table = summary_table(&[&summary]).to_string();
        assert!(table.contains("2.0 points") && table.contains("7.2 points"), "{table}");
        assert!(table.contains("3 (75 %)") && table.contains("4 (100 %)"), "{table}");
    }
}
