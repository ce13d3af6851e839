//! Counts of judged numbers by kind, and their table.

use crate::judge::{Cell, Judged, Number};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub cells: u64,
    /// Within tolerance of the range of the true runs.
    pub right: u64,
    /// Predicted, with the true median in the predicted range.
    pub in_range: u64,
    /// Not predicted for requests: predicted for bursts, or not at all.
    pub untold: u64,
    pub unmarked: u64,
    /// Predicted without a mark, and wrong.
    pub unmarked_wrong: u64,
    /// Predicted with a mark, and right.
    pub marked_right: u64,
    /// Widths of predicted ranges and of the true runs, thousandths of the true median, for
    /// predicted numbers that are not 0.
    #[serde(skip)]
    widths: Vec<(u64, u64)>,
}

impl Count {
    fn add(&mut self, cell: &Cell) {
        self.cells += 1;
        let Some(told) = cell.told else {
            self.untold += 1;
            return;
        };
        let is_right = cell.is_right();
        self.right += u64::from(is_right);
        self.in_range += u64::from(cell.is_in_range());
        self.unmarked += u64::from(cell.marked.is_none());
        self.unmarked_wrong += u64::from(cell.marked.is_none() && !is_right);
        self.marked_right += u64::from(cell.marked.is_some() && is_right);
        let truth = cell.truth;
        if cell.number != Number::Throttled && truth.median > 0.0 {
            let width = |low: f64, high: f64| ((high - low) * 1000.0 / truth.median) as u64;
            self.widths.push((width(told.low, told.high), width(truth.low, truth.high)));
        }
    }

    /// Median widths of predicted ranges and of the true runs, per cent.
    pub fn widths(&self) -> (f64, f64) {
        let median = |of: fn(&(u64, u64)) -> u64| {
            let mut all: Vec<u64> = self.widths.iter().map(of).collect();
            cpumax_outcome::median(&mut all) as f64 / 10.0
        };
        if self.widths.is_empty() { (0.0, 0.0) } else { (median(|w| w.0), median(|w| w.1)) }
    }
}

/// Counts by depth, criterion and kind.
#[derive(Debug, Default)]
pub struct Tally(BTreeMap<(String, &'static str, String), Count>);

impl Tally {
    pub fn of(services: &[Judged]) -> Tally {
        let mut tally = Tally::default();
        for service in services {
            for verdict in &service.verdicts {
                for cell in &verdict.cells {
                    tally.add(service, &name(&verdict.depth), cell);
                }
            }
        }
        tally
    }

    fn add(&mut self, service: &Judged, depth: &str, cell: &Cell) {
        let plan = &service.plan;
        let of_limit = format!("{}.{}x", cell.limit / 100, cell.limit / 10 % 10);
        let kinds = [
            ("", "all".to_owned()),
            ("by number", name(&cell.number)),
            ("by limit", of_limit),
            ("by family of servers", plan.server.family().to_owned()),
            ("by family of clients", plan.client.family().to_owned()),
            ("by server", name(&plan.server)),
            ("by client", name(&plan.client)),
            ("by CPUs", format!("{:2} CPUs", plan.cpus)),
            ("by kernel", plan.kernel.to_owned()),
        ];
        for (by, kind) in kinds {
            self.0.entry((depth.to_owned(), by, kind)).or_default().add(cell);
        }
    }

    #[cfg(test)]
    pub fn all(&self, depth: &str) -> Count {
        self.0.get(&(depth.to_owned(), "", "all".to_owned())).cloned().unwrap_or_default()
    }

    /// A line for each kind.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut before = (String::new(), "");
        for ((depth, by, kind), count) in &self.0 {
            if *depth != before.0 {
                let _ = writeln!(
                    out,
                    "\n{:22} {:>6} {:>7} {:>9} {:>7} {:>18} {:>18} {:>16}",
                    format!("depth {depth}"),
                    "cells",
                    "right",
                    "in range",
                    "untold",
                    "wrong of unmarked",
                    "right of marked",
                    "width, true %"
                );
            } else if *by != before.1 {
                let _ = writeln!(out, "- {by}");
            }
            before = (depth.clone(), by);
            out += &row(kind, count);
        }
        out
    }

    /// Each kind with its counts.
    pub fn json(&self) -> Vec<serde_json::Value> {
        let kind = |((depth, by, kind), count): (&(String, &str, String), &Count)| {
            let (width, true_width) = count.widths();
            serde_json::json!({
                "depth": depth, "by": by.trim_start_matches("by "), "kind": kind.trim(),
                "count": count, "width_percent": width, "true_width_percent": true_width,
            })
        };
        self.0.iter().map(kind).collect()
    }
}

fn row(kind: &str, count: &Count) -> String {
    let percent = |part: u64, all: u64| {
        if all == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / all as f64) }
    };
    let marked = count.cells - count.untold - count.unmarked;
    let of = |part: u64, all: u64| format!("{part} of {all} {:>6}", percent(part, all));
    let (width, true_width) = count.widths();
    format!(
        "  {kind:20} {:6} {:>7} {:>9} {:>7} {:>18} {:>18} {:>16}\n",
        count.cells,
        percent(count.right, count.cells),
        percent(count.in_range, count.cells - count.untold),
        percent(count.untold, count.cells),
        of(count.unmarked_wrong, count.unmarked),
        of(count.marked_right, marked),
        format!("{width:.0}, {true_width:.0}"),
    )
}

/// The serialized name of a variant.
pub fn name(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
