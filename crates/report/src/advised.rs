//! Prints advice: the smallest limit that meets the goals, in a sentence, the rows that decide, and
//! the reasons.

use crate::escape;
use crate::page::Page;
use crate::predicted::{Ranges, predicted};
use crate::recording::{missing, recording_heading};
use crate::replay::{UNHEARD, above, doubts, legend, limited, row, rows_of, taken};
use crate::style::{BOLD, DIM, styled};
use crate::units::{duration, percent};
use cpumax_forecast::advise::{
    Advice, Case, Found, Goal, Held, Kind, Lack, Measure, Probe, STEP_MILLICPUS, STEP_PART,
};
use cpumax_forecast::{Replay, replay::Run};
use cpumax_outcome::percentile;
use cpumax_study::{Ranged, Try};
use std::fmt::Write;

/// A number of threads working at once counts if it was reached in this share of the time in which
/// any worked.
const OFTEN: f64 = 0.05;

/// The answer in one sentence, without a line end.
pub fn advice_sentence(answer: &Advice, cases: &[Case]) -> String {
    if !answer.lacks.is_empty() {
        let what = if cases.len() == 1 { "the recording does" } else { "the recordings do" };
        return format!("No limit is recommended: {what} not tell enough.");
    }
    let Some(found) = answer.recommended() else {
        let held = held_by(&answer.unlimited);
        if answer.can_be_kept() {
            return format!("No limit that was tried keeps {}.", goals(&answer.unlimited));
        }
        let worst = held.iter().find(|held| !held.is_kept()).or(held.first());
        let without = worst.map(|held| format!(": without one {}", measured(held)));
        return format!(
            "No limit keeps {}{}.",
            goals(&answer.unlimited),
            without.unwrap_or_default()
        );
    };
    let Some(probe) = &found.smallest else { return String::new() };
    let held = held_by(probe);
    let values: Vec<String> = match held.as_slice() {
        [one] if !is_relative(one) => vec![range(one)],
        all => all.iter().map(measured).collect(),
    };
    format!(
        "{} keeps {} on {}: {}.",
        named(&probe.limit),
        goals(probe),
        kernels(probe),
        values.join(", ")
    )
}

/// The whole answer: the sentence, a table for each recording, what decides, and alternatives.
pub fn advice_text(answer: &Advice, cases: &[Case], page: Page) -> String {
    let mut out = String::new();
    let sentence = page.wrapped(&advice_sentence(answer, cases));
    let _ = writeln!(out, "{}", styled(BOLD, sentence));
    if answer.is_usual {
        let usual = "That is what a limit must keep where nothing is asked: --p99, --p50, \
                     --slower-than, --throttled and --throughput ask for something else.";
        let _ = writeln!(out, "{}", page.wrapped(usual));
    }
    for Lack { recording, why, instead } in &answer.lacks {
        let name = escape::line(recording);
        let _ = writeln!(out, "{}", page.wrapped(&format!("{name}: {why}. Record {instead}.")));
    }
    out.push('\n');
    let decides = answer.recommended().and_then(|found| found.below.as_ref()?.decides());
    let mut ranges = Ranges::Beside;
    for (at, case) in cases.iter().enumerate() {
        let (table, placed) = table(answer, at, &case.replay, page);
        if placed == Ranges::Below {
            ranges = placed;
        }
        let runs = answer.unlimited.runs.get(at);
        let _ = writeln!(
            out,
            "{}\n{}\n{}{}\n{table}",
            recording_heading(&case.name, case.replay.summary(), page),
            page.wrapped(&limited(&case.replay)),
            runs.map_or_else(String::new, |runs| taken(&case.replay, runs, page)),
            missing(case.replay.gaps(), page),
        );
        let found = answer.recommended().and_then(|found| found.smallest.as_ref()?.runs.get(at));
        for line in above(&case.replay, found.into_iter().flatten()) {
            let _ = writeln!(out, "{}\n", page.wrapped(&line));
        }
        if cases.len() > 1 && decides.as_ref().is_some_and(|(decides, ..)| *decides == at) {
            let _ = writeln!(out, "This recording decides: the next smaller limit fails for it.\n");
        }
    }
    for line in what_decides(answer).into_iter().chain(answer.recommended().map(steps)) {
        let _ = writeln!(out, "{}", page.wrapped(&line));
    }
    let at = decides.map_or(0, |(at, ..)| at);
    if let (Some(found), Some(case)) = (answer.recommended(), cases.get(at)) {
        let _ = writeln!(out, "\n{}", page.wrapped(&why(found, &case.replay)));
        for line in others(answer, found) {
            let _ = writeln!(out, "{}", page.wrapped(&line));
        }
    }
    if answer.recommended().is_some() {
        out.push('\n');
    }
    let _ = writeln!(out, "{}", styled(DIM, page.wrapped(&legend(ranges))));
    out
}

/// Gaps of all recordings, for callers that print nothing else of the answer.
pub fn gaps_text(cases: &[Case], page: Page) -> String {
    cases.iter().map(|case| missing(case.replay.gaps(), page)).collect()
}

/// `800m (80000 100000)`.
fn named(limit: &Try) -> String {
    let burst_us = limit.limit.burst_ns() / 1_000;
    let burst = if burst_us > 0 { format!(", burst {burst_us}") } else { String::new() };
    let Some(millicpus) = limit.limit.millicpus() else {
        return format!("no limit ({}{burst})", limit.limit);
    };
    format!("{millicpus}m ({}{burst})", limit.limit)
}

/// For each goal the number furthest from it, over all runs with this limit.
fn held_by(probe: &Probe) -> Vec<Held> {
    let mut worst: Vec<Held> = Vec::new();
    for (_, _, held) in probe.each() {
        for (goal, held) in held.iter().enumerate() {
            match worst.get_mut(goal) {
                Some(before) if before.excess() < held.excess() => *before = *held,
                Some(_) => {}
                None => worst.push(*held),
            }
        }
    }
    worst
}

/// The goals in words: `p99 below 50ms and 5 % of periods throttled at most`.
fn goals(probe: &Probe) -> String {
    let all: Vec<String> = held_by(probe).iter().map(asked).collect();
    all.join(" and ")
}

pub(crate) fn asked(held: &Held) -> String {
    let bound = number(held.measure, held.bound);
    let what = name(held.measure);
    match held.goal {
        Goal::P50(_) | Goal::P95(_) | Goal::P99(_) | Goal::P999(_) => {
            format!("{what} below {bound}")
        }
        Goal::Slower(more) => format!("{what} at most {more} % above that without a limit"),
        Goal::Throttled(most) => format!("{what} at {most} % at most"),
        Goal::Throughput(least) => format!("at least {least} % of what is done without a limit"),
    }
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::P50Ns => "p50",
        Measure::P95Ns => "p95",
        Measure::P99Ns => "p99",
        Measure::P999Ns => "p99.9",
        Measure::WorkTakesNs => "the time that the work takes",
        Measure::ThrottledPercent => "throttled periods",
        Measure::RequestsPerSecond => "requests answered a second",
    }
}

/// Whether the bound is derived from the run without a limit instead of given by the user.
fn is_relative(held: &Held) -> bool {
    matches!(held.goal, Goal::Slower(_) | Goal::Throughput(_))
}

/// `31ms to 44ms`.
pub(crate) fn range(held: &Held) -> String {
    let Some(Ranged { low, high, .. }) = held.found else {
        return "nothing that can be told".to_owned();
    };
    let (low, high) = (number(held.measure, low), number(held.measure, high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// `p99 31ms to 44ms (asked: 50ms at most)`.
pub(crate) fn measured(held: &Held) -> String {
    let end = if held.measure == Measure::RequestsPerSecond { "least" } else { "most" };
    let bound = number(held.measure, held.bound);
    format!("{} {} (asked: {bound} at {end})", name(held.measure), range(held))
}

pub(crate) fn number(measure: Measure, value: f64) -> String {
    match measure {
        Measure::ThrottledPercent => percent(value / 100.0),
        Measure::RequestsPerSecond => format!("{value:.0}"),
        Measure::P50Ns
        | Measure::P95Ns
        | Measure::P99Ns
        | Measure::P999Ns
        | Measure::WorkTakesNs => duration(value as u64),
    }
}

fn kernels(probe: &Probe) -> String {
    let mut kernels: Vec<&str> = Vec::new();
    for (_, run, _) in probe.each() {
        if !kernels.contains(&run.outcome.kernel.as_str()) {
            kernels.push(&run.outcome.kernel);
        }
    }
    kernels.join(", ")
}

/// The rows that decide, for one recording.
fn table(answer: &Advice, case: usize, replay: &Replay, page: Page) -> (String, Ranges) {
    let recorded = replay.recorded();
    let mut rows = vec![row("recorded", "", &recorded)];
    let found = answer.recommended();
    let recommended = found.and_then(|found| Some((found.smallest.as_ref()?, " advised")));
    let below = found.and_then(|found| Some((found.below.as_ref()?, " too small")));
    let risky = answer.risky().map(|probe| (probe, " risky"));
    let current = answer.current.as_ref().map(|probe| (probe, " current"));
    let told = [Some((&answer.unlimited, "")), recommended, below, risky, current];
    let mut runs: Vec<&Run> = Vec::new();
    for (probe, what) in told.into_iter().flatten() {
        for run in &probe.runs[case] {
            rows.extend(rows_of(replay, run, what, false));
            runs.push(run);
        }
    }
    let (mut text, ranges) = predicted(&rows, recorded.latency_of.name(), page.text_width());
    if replay.is_unheard() {
        let _ = write!(text, "\n{}", page.wrapped(UNHEARD));
    }
    for line in doubts(runs) {
        let _ = write!(text, "\n{}", page.wrapped(&line));
    }
    (text, ranges)
}

/// Numbers of the next smaller limit, of a risky one and of the current one.
fn what_decides(answer: &Advice) -> Vec<String> {
    let found = answer.recommended();
    let mut lines = Vec::new();
    if let Some(below) = found.and_then(|found| found.below.as_ref()) {
        lines.push(format!("{} {}.", named(&below.limit), fails(below)));
    }
    if let Some(risky) = answer.risky() {
        let values: Vec<String> = held_by(risky).iter().map(measured).collect();
        lines.push(format!(
            "{} might be enough, {}, but its prediction cannot be relied on.",
            named(&risky.limit),
            values.join(", ")
        ));
    }
    if let Some(current) = &answer.current {
        let limit = named(&current.limit);
        lines.push(if current.is_kept() {
            format!("The current limit, {limit}, keeps it.")
        } else {
            format!("The current limit, {limit}, {}.", fails(current))
        });
    }
    lines
}

fn fails(probe: &Probe) -> String {
    match probe.decides() {
        Some((.., held)) if !held.is_kept() => format!("does not keep it: {}", measured(&held)),
        Some((.., held)) => {
            format!("would keep it, {}, but that cannot be relied on", measured(&held))
        }
        None => "cannot be judged: it gives no number for this goal".to_owned(),
    }
}

/// How the answer was found, and whether a larger limit does worse.
fn steps(found: &Found) -> String {
    let share = percent(1.0 / STEP_PART as f64);
    let mut text = format!(
        "{} limits were tried, {STEP_MILLICPUS}m or {share} apart, and the worse end of each range \
         must keep what is asked.",
        found.tried
    );
    if let Some(least) = found.uneven.first() {
        let _ = write!(
            text,
            " A larger limit can do worse here: {} keeps the goal, and one above it does not.",
            named(least)
        );
    }
    text
}

/// Why the service is throttled there: its demand in a period, and how fast it uses a quota up.
fn why(found: &Found, replay: &Replay) -> String {
    let limit = found.below.as_ref().or(found.smallest.as_ref()).map(|probe| &probe.limit);
    let Some(quota_ns) = limit.and_then(|limit| limit.limit.quota_ns()) else {
        return String::new();
    };
    let Some(demand) = replay.demand(found.kind.period_ns) else { return String::new() };
    let any_ns = demand.at_once_ns.first().copied().unwrap_or(0).max(1);
    let share = |ns: u64| ns as f64 / any_ns as f64;
    let often = demand.at_once_ns.iter().filter(|ns| share(**ns) >= OFTEN).count().max(1);
    let most = demand.at_once_ns.len();
    let windows = &demand.windows_ns;
    let point = |percent| percentile(windows, percent).copied().unwrap_or(0);
    let above = windows.iter().filter(|ns| **ns > quota_ns).count();
    let what = match replay.scale_load() {
        Some(_) => "of that load",
        None => "of the recording",
    };
    let side_by_side = often.min(usize::from(replay.summary().cpus));
    format!(
        "Why it is throttled where it is: in {} {what} the service uses {} in half of all cases, \
          {} in 9 of 10 and {} at most; in {} of them it uses more than a quota of {}. \
         Up to {most} of its threads have work at the same time, {often} or more for {} of the \
         time in which any has; {side_by_side} side by side use such a quota up in {}.",
        duration(found.kind.period_ns),
        duration(point(50)),
        duration(point(90)),
        duration(point(100)),
        percent(above as f64 / windows.len().max(1) as f64),
        duration(quota_ns),
        percent(share(demand.at_once_ns.get(often - 1).copied().unwrap_or(0))),
        duration(quota_ns / side_by_side as u64),
    )
}

/// Limits that other periods, bursts or kernels need.
fn others(answer: &Advice, best: &Found) -> Vec<String> {
    let asked = answer.found.iter().filter(|found| !std::ptr::eq(*found, best));
    asked.chain(&answer.others).map(|found| other(found, best)).collect()
}

fn other(found: &Found, best: &Found) -> String {
    let kind = kind(&found.kind, &best.kind);
    if let Some(kernel) = found.lacking {
        return format!("With {kind} nothing was tried: Linux {} has no burst.", kernel.version);
    }
    let Some(probe) = &found.smallest else {
        return format!("With {kind} no limit keeps it.");
    };
    let cpus =
        |found: &Found| found.smallest.as_ref().and_then(|probe| probe.limit.limit.millicpus());
    let compared = match (cpus(found), cpus(best)) {
        (Some(needs), Some(best)) if needs < best => format!("{}m less", best - needs),
        (Some(needs), Some(best)) if needs > best => format!("{}m more", needs - best),
        _ => "as much".to_owned(),
    };
    format!("With {kind}, {} keeps it, {compared}.", named(&probe.limit))
}

/// Differences of a kind of limit from the recommended one.
fn kind(kind: &Kind, best: &Kind) -> String {
    let mut differs = Vec::new();
    if kind.period_ns != best.period_ns {
        differs.push(format!("periods of {}", duration(kind.period_ns)));
    }
    if kind.burst_percent.total_cmp(&best.burst_percent).is_ne() {
        differs.push(match kind.burst_percent {
            0.0 => "no burst".to_owned(),
            percent => format!("a burst of {percent} % of the quota"),
        });
    }
    differs.extend(kind.kernel.map(|kernel| format!("Linux {}", kernel.version)));
    differs.join(" and ")
}
