//! Prints the limits that counters alone can judge.

use crate::escape::line;
use crate::fitted::fit_text;
use crate::page::Page;
use crate::predicted::{Ranges, ranged, ranged_cpus};
use crate::style::{BOLD, DIM, styled};
use crate::table::list;
use crate::units::duration;
use cpumax_observed::counted::{Counted, Judged};
use std::fmt::Write;

/// The whole answer. `throttled` is the goal, per cent of periods.
pub fn counters_text(told: &Counted, throttled: Option<f64>, page: Page) -> String {
    let mut out = String::new();
    let first = sentence(told, throttled);
    let _ = writeln!(out, "{}", styled(BOLD, page.wrapped(&first)));
    out.push_str(&readings(told, page));
    if let Some(fit) = &told.fit {
        out.push_str(&fit_text(fit, page));
    } else {
        let header = ["limit", "cpu.max", "throttled periods, %", ""];
        let _ = writeln!(out, "\n{}", list(&header, told.limits.iter().map(row), page.width()));
    }
    for note in &told.notes {
        let _ = writeln!(out, "{}", page.wrapped(note));
    }
    if !told.not_told.is_empty() {
        let text = format!(
            "{} cannot be told from this: record the service, `cpumax advise RECORDING`.",
            told.not_told.join(", ")
        );
        let _ = writeln!(out, "{}", page.wrapped(&text));
    }
    if told.fit.is_some() {
        return out;
    }
    let legend = "In brackets 95 % intervals; throttled periods lie between the two numbers if the \
                  load stays as it is.";
    let _ = writeln!(out, "{}", styled(DIM, page.wrapped(legend)));
    out
}

fn sentence(told: &Counted, throttled: Option<f64>) -> String {
    let used = ranged_cpus(told.cpus);
    match (throttled, told.enough) {
        (Some(most), Some(millicpus)) => {
            format!(
                "{millicpus}m throttles at most {most} % of periods at the load that was counted."
            )
        }
        (None, Some(millicpus)) => {
            format!("{millicpus}m keeps the p99 that is asked at the load that was counted.")
        }
        (Some(most), None) => {
            format!("Counters name no limit that surely throttles at most {most} % of periods.")
        }
        (None, None) if told.fit.is_some() => {
            format!("{} uses {used} CPUs; this is what other limits would do.", line(&told.group))
        }
        _ => format!(
            "{} uses {used} CPUs, and a limit below that is too small. To have a limit named, say \
             what it must keep, such as --throttled 5%.",
            line(&told.group)
        ),
    }
}

/// Numbers that the counters give directly, a paragraph each.
fn readings(told: &Counted, page: Page) -> String {
    let mut out = String::new();
    let used = ranged_cpus(told.cpus);
    let watched = format!(
        "{}: {} readings in {}, {used} CPUs, cpu.max {}.",
        line(&told.group),
        told.readings,
        duration(told.watched_ns),
        told.cpu_max.as_deref().unwrap_or("not told")
    );
    let _ = writeln!(out, "{}", page.wrapped(&watched));
    if let Some(cpus) = &told.may_run_on {
        let (count, by) = (cpus.count, line(&cpus.told_by));
        let plural = if count == 1 { "" } else { "s" };
        let text = format!("It may run on {count} CPU{plural}, as {by} says.");
        let _ = writeln!(out, "{}", page.wrapped(&text));
    }
    if let Some(share) = told.throttled_percent {
        let share = ranged(share, Ranges::Beside);
        let _ = writeln!(out, "Of a hundred periods {share} were throttled.");
    }
    if let [least, .., most] = told.usage_usec.as_slice() {
        let ms = |us: u64| us as f64 / 1e3;
        let (half, nine) = (told.usage_usec[5], told.usage_usec[9]);
        let text = format!(
            "In a period it uses {:.1} ms at least, {:.1} ms in half of all cases, {:.1} ms in 9 \
             of 10 and {:.1} ms at most.",
            ms(*least),
            ms(half),
            ms(nine),
            ms(*most)
        );
        let _ = writeln!(out, "{}", page.wrapped(&text));
    }
    out
}

fn row(judged: &Judged) -> Vec<String> {
    let throttled = match (judged.measured_percent, judged.throttled_percent) {
        (Some(measured), _) => ranged(measured, Ranges::Beside),
        (None, Some(b)) => format!("{:.0} to {:.0}", b.least, b.most),
        (None, None) => "-".to_owned(),
    };
    let present = judged.measured_percent.map(|_| "present (measured)");
    let words: Vec<&str> =
        present.into_iter().chain(judged.too_small.then_some("usage is above")).collect();
    vec![format!("{}m", judged.millicpus), judged.cpu_max.clone(), throttled, words.join("; ")]
}
