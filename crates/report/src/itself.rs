//! Prints what a recording of `cpumax record` says about itself: the machine, the limits in force,
//! changes and losses.

use crate::escape;
use crate::page::Page;
use crate::style::{BAD, styled};
use crate::table::list;
use crate::units::duration;
use cpumax_recording::Summary;
use cpumax_recording::about::{About, Ended, GroupFiles};
use std::fmt::Write;

/// Some lines and a table of groups; empty for recordings of other tools.
pub fn recorder_notes(summary: &Summary, page: Page) -> String {
    let Some(about) = &summary.about else { return String::new() };
    let mut out = String::new();
    let _ = writeln!(out, "{}", page.wrapped(&machine(about)));
    let ended = summary.ended.clone().unwrap_or_default();
    out.push_str(&limits(about, &ended, page));
    for change in &ended.changes {
        let told = format!(
            "{} after the beginning {} of {} became {}",
            duration(change.at_ns),
            escape::line(&change.file),
            escape::line(&change.path),
            escape::line(&change.value)
        );
        let _ = writeln!(out, "{}", page.wrapped(&told));
    }
    if let Some(cpu) = ended.pressure.get("cpu").and_then(|text| text.lines().next()) {
        let _ = writeln!(out, "Waiting for a CPU when it ended: {}", escape::line(cpu));
    }
    for (cpu, lost) in &ended.lost {
        let told = format!("Of CPU {cpu} {lost} events are missing: there was no room for them.");
        let _ = writeln!(out, "{}", styled(BAD, page.wrapped(&told)));
    }
    out.push('\n');
    out
}

fn machine(about: &About) -> String {
    let mut text = format!(
        "Recorded: {}, on {} with CPUs {}",
        escape::line(&about.chosen),
        escape::line(&about.arch),
        escape::line(&about.online)
    );
    if let Some(cache) = about.caches.iter().max_by_key(|cache| cache.level) {
        let (size, cpus) = (escape::line(&cache.size), escape::line(&cache.shared_by));
        let _ = write!(text, ", {size} of cache for CPUs {cpus}");
    }
    if let Some(hz) = about.hz {
        let _ = write!(text, ", {hz} ticks a second");
    }
    if let Some(preemption) = &about.preemption {
        let _ = write!(text, ", preemption {}", escape::line(preemption));
    }
    for (name, value) in &about.slices {
        let _ = write!(text, ", {} {}", escape::line(name), escape::line(value));
    }
    text
}

/// A table with a row for each group from the recorded one to the root.
fn limits(about: &About, ended: &Ended, page: Page) -> String {
    let rows: Vec<Vec<String>> = about
        .groups
        .iter()
        .map(|group| {
            let after = ended.groups.iter().find(|after| after.path == group.path);
            let more = |name: &str| counter(after?, name)?.checked_sub(counter(group, name)?);
            let shown = |of: Option<i64>| of.map_or("-".to_owned(), |of| of.to_string());
            vec![
                escape::line(&group.path).into_owned(),
                limit(group),
                file(group, &["cpu.weight", "cpu.shares"]),
                shown(more("nr_periods")),
                shown(more("nr_throttled")),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["group", "limit", "weight", "periods", "throttled"];
    list(&heads, rows, page.width())
}

/// The group's limit in the form of `cpu.max`, us.
fn limit(group: &GroupFiles) -> String {
    let limit = group.limit().map(|limit| limit.to_string());
    limit.unwrap_or_else(|| file(group, &["cpu.max"]))
}

fn file(group: &GroupFiles, names: &[&str]) -> String {
    let found = names.iter().find_map(|name| group.files.get(*name));
    found.map_or("-".to_owned(), |value| escape::line(value).into_owned())
}

/// A number of `cpu.stat`.
fn counter(group: &GroupFiles, name: &str) -> Option<i64> {
    let lines = group.files.get("cpu.stat")?.lines();
    lines.filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == name)?.1.parse().ok()
}
