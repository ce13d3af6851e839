//! A workload on which two worlds differ, as a scenario file: what was found stands at its head.

use crate::search::Found;
use cpumax_outcome::{Deviation, Field};
use cpumax_workload::print;
use std::fmt::Write;

/// Numbers beyond their tolerance that are named at the head of a file.
const NAMED: usize = 6;

/// The text of a scenario file, exactly as it was run, with what was found as a comment before it.
/// `command` is what found it, `again` what shows it again.
pub fn text(found: &Found, command: &str, again: &str) -> String {
    let cell = &found.cell;
    let mut text = String::new();
    let _ = writeln!(text, "# Found by `{command}` as case {}, shrunk.", found.case);
    let _ = writeln!(text, "# Shown again by `{again}`.");
    for deviation in cell.deviations.iter().filter(|d| d.is_beyond()).take(NAMED) {
        let (reference, against) = (&cell.reference, &cell.against);
        let _ = writeln!(text, "# {}", sentence(deviation, reference, against));
    }
    let edges = &cell.conditions.first_edge_ns;
    if !edges.is_empty() {
        let edges: Vec<String> =
            edges.iter().map(|(path, &ns)| format!("{path} {}", milliseconds(ns))).collect();
        let _ = writeln!(text, "# First edge of each period: {}.", edges.join(", "));
    }
    text + &print(&found.workload)
}

/// Where a found scenario is kept: which worlds and which case, as a name for a file.
pub fn file_name(found: &Found) -> String {
    let name = format!("{}-{}-{}", found.cell.reference, found.cell.against, found.case);
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("{}.toml", name.chars().map(safe).collect::<String>())
}

fn sentence(deviation: &Deviation, reference: &str, against: &str) -> String {
    let Deviation { of, field, ratio, .. } = deviation;
    let (first, second) = (amount(*field, deviation.reference), amount(*field, deviation.found));
    format!(
        "{of}, {field}: {first} on {reference}, {second} on {against}; {ratio:.1} times the \
         tolerance."
    )
}

fn amount(field: Field, number: u64) -> String {
    field.unit_ns().map_or_else(|| number.to_string(), |ns| milliseconds(number.saturating_mul(ns)))
}

fn milliseconds(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000)
}
