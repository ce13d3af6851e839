//! Prints a verification: whether the prediction held, number by number, and further evidence.

use crate::escape::line;
use crate::page::Page;
use crate::predicted::{Ranges, ranged, ranged_cpus};
use crate::style::{BOLD, DIM, styled};
use crate::table::list;
use crate::units::duration;
use cpumax_forecast::verify::{Number, Verified, What};
use std::fmt::Write;

/// The whole result.
pub fn verification_text(verified: &Verified, page: Page) -> String {
    let Verified { group, limit, recording, predicted_for, .. } = verified;
    let burst_us = limit.burst_ns() / 1_000;
    let burst = if burst_us > 0 { format!(", burst {burst_us}") } else { String::new() };
    let mut out = String::new();
    let sentence = format!(
        "What was predicted of {limit}{burst} {}.",
        if verified.passed() { "came true" } else { "did not come true" }
    );
    let _ = writeln!(out, "{}", styled(BOLD, page.wrapped(&sentence)));
    let kernel = verified
        .kernel
        .as_deref()
        .map_or("a kernel that is not told".to_owned(), |k| format!("Linux {}", line(k)));
    let watched = format!(
        "{}: watched for {}, {} periods, on {kernel}; predicted for {} from {}.",
        line(group),
        duration(verified.watched_ns),
        verified.nr_periods,
        line(predicted_for),
        line(recording)
    );
    let _ = writeln!(out, "{}\n", page.wrapped(&watched));
    let header = ["", "predicted", "asked", "measured", "came true"];
    let rows = verified.numbers.iter().map(row);
    let _ = writeln!(out, "{}", list(&header, rows, page.width()));
    for beside in &verified.beside {
        let text = format!("{}: {:.3}, {}.", beside.what, beside.value, beside.means);
        let _ = writeln!(out, "{}", page.wrapped(&text));
    }
    for note in &verified.notes {
        let _ = writeln!(out, "{}", page.wrapped(&line(note)));
    }
    if !verified.not_told.is_empty() {
        let told = format!("Counters do not tell {}.", verified.not_told.join(", "));
        let _ = writeln!(out, "{}", page.wrapped(&told));
    }
    let legend = "In brackets: how far a number may be off; of a measured one its 95 % interval. A \
                  number came true where the two have something in common.";
    let _ = writeln!(out, "{}", styled(DIM, page.wrapped(legend)));
    out
}

fn row(number: &Number) -> Vec<String> {
    let shown = |value| match number.what {
        What::Cpus => ranged_cpus(value),
        What::ThrottledPercent => ranged(value, Ranges::Beside),
    };
    let name = match number.what {
        What::Cpus => "CPUs",
        What::ThrottledPercent => "throttled periods, %",
    };
    vec![
        name.to_owned(),
        number.predicted.map_or("-".to_owned(), shown),
        number.at_most.map_or("-".to_owned(), |most| format!("at most {most}")),
        shown(number.measured),
        if number.came_true { "yes" } else { "no" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_limit::Limit;
    use cpumax_study::Ranged;

    #[test]
    fn each_number_says_whether_it_came_true() {
        let ranged = |value: f64, low: f64, high: f64| Ranged { value, low, high };
        let number = |what, value: f64, came_true| Number {
            what,
            predicted: Some(ranged(value, value - 1.0, value + 1.0)),
            at_most: None,
            measured: ranged(value, value, value),
            came_true,
        };
        let told = Verified {
            group: "/web\u{1b}[2J".to_owned(),
            limit: Limit::UNLIMITED.write_cpu_max("50000 100000").unwrap(),
            kernel: None,
            predicted_for: "6.18".to_owned(),
            recording: "web".to_owned(),
            watched_ns: 60_000_000_000,
            nr_periods: 600,
            numbers: vec![
                number(What::Cpus, 2.0, true),
                number(What::ThrottledPercent, 9.0, false),
            ],
            not_told: vec!["p99".to_owned()],
            beside: Vec::new(),
            notes: Vec::new(),
        };
        let text = verification_text(&told, Page::of(Some(80)));
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(
            text.starts_with("What was predicted of 50000 100000 did not come true."),
            "{text}"
        );
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row("CPUs").ends_with("yes") && row("throttled").ends_with("no"), "{text}");
        assert!(text.contains("Counters do not tell p99.") && !text.contains('\u{1b}'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
