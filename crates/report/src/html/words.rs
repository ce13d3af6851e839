//! Sentences about a saved study.

use super::Named;
use crate::advised::{asked, measured};
use crate::escape::line;
use crate::predicted::{Ranges, ranged};
use crate::replay::{UNHEARD, row};
use crate::units::{cpus, duration};
use cpumax_forecast::{
    advise::{Goal, Held, Role, USUAL},
    replay::Recorded,
    saved::{Predicted, Saved},
};
use std::fmt::Write;

/// Title of the page.
pub(super) fn title(studies: &[Named]) -> String {
    let mut names: Vec<String> = Vec::new();
    for named in studies {
        for name in recordings(&named.study) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    format!("What a CPU limit does to {}", names.join(" and "))
}

fn recordings(study: &Saved) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for run in &study.runs {
        if !names.contains(&run.recording) {
            names.push(run.recording.clone());
        }
    }
    names
}

/// The limited group of a recording.
pub(super) fn group<'a>(study: &'a Saved, recording: &str) -> &'a str {
    let recorded = study.recordings.iter().find(|recorded| recorded.name == recording);
    recorded.map_or("the group", |recorded| &recorded.group)
}

/// The CPU share of a run's limit, in thousandths of a CPU.
pub(super) fn millicpus(run: &Predicted) -> Option<u64> {
    run.limit.limit.millicpus()
}

/// Everything about a limit but its CPU share; `None`: no limit.
pub(super) fn kind(run: &Predicted) -> Option<String> {
    let limit = run.limit.limit;
    let quota_ns = limit.quota_ns()?;
    let mut kind = format!("periods of {}", duration(limit.period_ns()));
    if limit.burst_ns() > 0 {
        let percent = limit.burst_ns() as f64 * 100.0 / quota_ns as f64;
        let _ = write!(kind, ", burst {percent:.0} %");
    }
    if let Some(weight) = run.limit.weight {
        let _ = write!(kind, ", weight {weight}");
    }
    if let Some(pod) = run.limit.pod {
        let _ = write!(kind, ", in {}", pod.limit);
    }
    for beside in &run.limit.beside {
        let _ = write!(kind, ", {} {}", beside.path, beside.share.limit);
    }
    Some(kind)
}

/// Label of the limit in tables.
pub(super) fn label(run: &Predicted) -> String {
    run.limit.label()
}

/// Suffix that names a limit's role.
pub(super) fn role(role: Option<Role>) -> &'static str {
    match role {
        Some(Role::Recommended) => " advised",
        Some(Role::Smaller) => " too small",
        Some(Role::Risky) => " risky",
        Some(Role::Current) => " current",
        Some(Role::None) | None => "",
    }
}

/// The answer in a sentence or two.
pub(super) fn answer(study: &Saved) -> String {
    let Some(advice) = &study.advice else { return of_replay(study) };
    if !advice.lacks.is_empty() {
        return "No limit is recommended: what was recorded does not tell enough.".to_owned();
    }
    let role = |role: Role| study.runs.iter().filter(move |run| run.role == Some(role));
    let worst = |runs: &mut dyn Iterator<Item = &Predicted>| {
        let mut worst: Vec<Held> = Vec::new();
        for run in runs {
            for (at, (held, goal)) in run.held.iter().zip(&advice.asked).enumerate() {
                let held = Held {
                    goal: *goal,
                    measure: held.measure,
                    bound: held.bound,
                    found: held.found,
                };
                match worst.get_mut(at) {
                    Some(before) if before.excess() < held.excess() => *before = held,
                    Some(_) => {}
                    None => worst.push(held),
                }
            }
        }
        worst
    };
    let goals = |all: &[Held]| all.iter().map(asked).collect::<Vec<_>>().join(" and ");
    let Some(limit) = advice.recommended.as_ref().map(|named| named.limit) else {
        let without = worst(&mut role(Role::None));
        let told: Vec<String> = without.iter().map(measured).collect();
        return format!("No limit keeps {}. Without one: {}.", goals(&without), told.join(", "));
    };
    let found = worst(&mut role(Role::Recommended));
    let mut kernels: Vec<&str> = role(Role::Recommended).map(|run| run.kernel.as_str()).collect();
    kernels.dedup();
    let told: Vec<String> = found.iter().map(measured).collect();
    let millicpus = limit.millicpus().map_or(String::new(), |m| format!("{m}m, "));
    let burst = match limit.burst_ns() {
        0 => String::new(),
        ns => format!(" with a burst of {}", ns / 1_000),
    };
    format!(
        "{millicpus}cpu.max {limit}{burst}, keeps {} on {}: {}.",
        goals(&found),
        kernels.join(", "),
        told.join(", ")
    )
}

/// The smallest limit of a replay that hardly raises p99, if there is one.
fn of_replay(study: &Saved) -> String {
    let unlimited = |run: &Predicted| {
        let is_base = |other: &&Predicted| {
            kind(other).is_none() && other.kernel == run.kernel && other.recording == run.recording
        };
        study.runs.iter().find(is_base)
    };
    let keeps = |run: &Predicted| {
        let base = unlimited(run)?;
        Some(USUAL.held(&run.prediction, &base.prediction).is_kept() && run.prediction.predictable)
    };
    let mut limits: Vec<(u64, String)> =
        study.runs.iter().filter_map(|run| Some((millicpus(run)?, setting(run)))).collect();
    limits.sort();
    limits.dedup();
    let of = |limit: &str| {
        let limit = limit.to_owned();
        study.runs.iter().filter(move |run| setting(run) == limit)
    };
    let smallest = limits.iter().find(|(_, limit)| of(limit).all(|run| keeps(run) == Some(true)));
    let Goal::Slower(more) = USUAL else { return String::new() };
    if let Some((millicpus, limit)) = smallest {
        return format!(
            "{millicpus}m ({limit}) is the smallest limit of those that were tried under which \
             p99 is at most {more} % longer, on each kernel."
        );
    }
    let Some((_, largest)) = limits.last() else { return "No limit was tried.".to_owned() };
    let p99 = |run: &Predicted| {
        let numbers = row("", "", &run.prediction);
        numbers.latency_ms[1].map_or("-".to_owned(), |n| ranged(n, Ranges::Beside))
    };
    let told = of(largest).next().map_or(String::new(), |run| {
        let without = unlimited(run)
            .map_or(String::new(), |base| format!(", and without a limit {} ms", p99(base)));
        let is_reliable = run.prediction.predictable;
        let mark = if is_reliable { "" } else { " These numbers cannot be relied on (?)." };
        format!(" Under {largest} p99 is {} ms on {}{without}.{mark}", p99(run), run.kernel)
    });
    format!(
        "No limit that was tried surely keeps p99 at most {more} % longer than without \
         one.{told}"
    )
}

/// Why no limit is recommended, and what to record instead.
pub(super) fn lacks(study: &Saved) -> Vec<String> {
    let lacks = study.advice.iter().flat_map(|advice| &advice.lacks);
    lacks
        .map(|lack| format!("{}: {}. Record {}.", lack.recording, lack.why, lack.instead))
        .collect()
}

/// One sentence for each recording.
pub(super) fn recorded(study: &Saved) -> Vec<String> {
    let told = |recorded: &Recorded| {
        let Recorded { name, group, kernel, simulated_ns, window, prediction, .. } = recorded;
        let used =
            prediction.cpus.map_or(String::new(), |n| format!(" and used {} CPUs", cpus(n.value)));
        format!(
            "{name}: {} on Linux {}; limited was {group}, which had its load from {} to {}{used}.",
            duration(*simulated_ns),
            kernel.as_deref().unwrap_or("of an unknown version"),
            duration(window.from_ns),
            duration(window.until_ns)
        )
    };
    study.recordings.iter().map(told).collect()
}

/// Gaps of the recordings, and differences between them and their replays.
pub(super) fn gaps(study: &Saved) -> Vec<String> {
    let mut lines = Vec::new();
    for Recorded { name, gaps, disagreements, .. } in &study.recordings {
        lines.extend(gaps.iter().map(|gap| format!("{name}: {}", gap.told)));
        let differ = |differ: &String| format!("The replay is not what was recorded: {differ}.");
        lines.extend(disagreements.iter().map(differ));
    }
    lines
}

/// Everything unreliable in the study, with reasons, each once.
pub(super) fn doubts(study: &Saved) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut add = |line: String| {
        if !lines.contains(&line) {
            lines.push(line);
        }
    };
    gaps(study).into_iter().for_each(&mut add);
    for recorded in &study.recordings {
        let repairs = serde_json::to_value(&recorded.repairs).unwrap_or_default();
        let repairs = repairs.as_object().into_iter().flatten().filter(|(_, count)| **count != 0);
        let repaired: Vec<String> =
            repairs.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
        if !repaired.is_empty() {
            add(format!("{}: repaired were {}.", recorded.name, repaired.join(", ")));
        }
        if recorded.is_unheard {
            add(UNHEARD.to_owned());
        }
        for not in &recorded.not_tried {
            add(format!("{} is not tried on {}: {}.", not.limit, not.kernel, not.why));
        }
    }
    for run in &study.runs {
        if let Some(why) = &run.prediction.why_not {
            add(format!("{} on {} is not predictable: {why}.", label(run), run.kernel));
        }
    }
    lines
}

/// Commands that reproduce the study, as far as it says how it was made.
pub(super) fn commands(study: &Saved) -> Vec<String> {
    let again = "cpumax report study.json -o report.html".to_owned();
    let made_by = study.recordings.first().map_or(&[][..], |recorded| &recorded.made_by);
    // A study file may come from anyone, so only these commands are printed.
    if let [program, command, ..] = made_by
        && program == "cpumax"
        && ["replay", "advise"].contains(&command.as_str())
    {
        let words: Vec<String> = made_by.iter().map(|word| shell(word)).collect();
        return vec![format!("{} --json study.json", words.join(" ")), again];
    }
    let names: Vec<String> = recordings(study).iter().map(|name| quoted(name)).collect();
    let mut kernels: Vec<&str> = Vec::new();
    for run in &study.runs {
        if !kernels.contains(&run.kernel.as_str()) {
            kernels.push(&run.kernel);
        }
    }
    let kernels = quoted(&kernels.join(","));
    let command = if let Some(advice) = &study.advice {
        let goals = advice.asked.iter().map(option).collect::<Vec<_>>().join(" ");
        let load = if (advice.load - 1.0).abs() < 1e-9 {
            String::new()
        } else {
            format!(" --load {}", advice.load)
        };
        format!("cpumax advise {} {goals}{load}", names.join(" "))
    } else {
        let mut sets: Vec<String> = Vec::new();
        for run in study.runs.iter().filter(|run| kind(run).is_some()) {
            let set = setting(run);
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        let sets: Vec<String> = sets.iter().map(|set| format!("--set {}", quoted(set))).collect();
        format!("cpumax replay {} {}", names.join(" "), sets.join(" "))
    };
    let command = format!("{command} --kernel {kernels} --json study.json");
    vec![command, again]
}

fn option(goal: &Goal) -> String {
    match goal {
        Goal::P50(ns) => format!("--p50 {}", time(*ns)),
        Goal::P95(ns) => format!("--p95 {}", time(*ns)),
        Goal::P99(ns) => format!("--p99 {}", time(*ns)),
        Goal::P999(ns) => format!("--p99.9 {}", time(*ns)),
        Goal::Slower(percent) => format!("--slower-than {percent}%"),
        Goal::Throttled(percent) => format!("--throttled {percent}%"),
        Goal::Throughput(percent) => format!("--throughput {percent}%"),
    }
}

/// A time in the syntax of options, exact.
fn time(ns: u64) -> String {
    match ns {
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ if ns.is_multiple_of(1_000) => format!("{}us", ns / 1_000),
        _ => format!("{ns}ns"),
    }
}

fn setting(run: &Predicted) -> String {
    let limit = run.limit.limit;
    let mut all = vec![format!("cpu.max={limit}")];
    if limit.burst_ns() > 0 {
        all.push(format!("cpu.max.burst={}", limit.burst_ns() / 1_000));
    }
    if let Some(weight) = run.limit.weight {
        all.push(format!("cpu.weight={weight}"));
    }
    if let Some(pod) = run.limit.pod {
        all.push(format!("pod:cpu.max={}", pod.limit));
    }
    for beside in &run.limit.beside {
        all.push(format!("{}:cpu.max={}", beside.path, beside.share.limit));
    }
    all.join(",")
}

/// A name for a shell; a leading dash cannot make it an option.
fn quoted(name: &str) -> String {
    if name.starts_with('-') { shell(&format!("./{name}")) } else { shell(name) }
}

/// A word quoted for a shell.
fn shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-+,:=".contains(c);
    let word = line(word);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
