//! Prints a replay: the what-if table, what it limits, and its doubts.

use crate::escape;
use crate::page::Page;
use crate::predicted::{PredictedRow, Ranged, Ranges, digits, predicted};
use crate::recording::{mark, missing, recording_heading};
use crate::style::{DIM, styled};
use crate::units::{cpus, duration};
use cpumax_forecast::{Replay, predict::Prediction, replay::Run};
use cpumax_machine::kernel::Kernel;
use cpumax_study::{Share, Try};
use std::fmt::Write;

const KINDS_SHOWN: usize = 20;

pub(crate) const UNHEARD: &str = "\
Clients ask these threads, and what for is not in the recording: a burst is what a thread does \
from one wait to the next, not a request. Record messages of sockets or system calls \
(docs/reference/recordings.md) to be told of requests.";

pub(crate) fn legend(ranges: Ranges) -> String {
    let place = match ranges {
        Ranges::Beside => "in brackets",
        Ranges::Below => "below each number",
    };
    format!(
        "limit: quota/period, +burst, in ms; w: weight; in: what the group above has; CPUs: kept \
         busy by the limited threads while their load was there; {place} how far it may be off: \
         nobody knows when a period begins, and the same work costs more or less on another day."
    )
}

/// The runs of a replay. `name` is that of the recording; with `threads`, kinds of thread have rows
/// of their own.
pub fn replay_text(
    name: &str,
    replay: &Replay,
    kernels: &[Kernel],
    runs: &[Run],
    threads: bool,
    page: Page,
) -> String {
    let mut out = String::new();
    let summary = replay.summary();
    if let Some(unlimited) = runs.first() {
        out.push_str(&disagreements(replay, unlimited, page));
    }
    let (described, limited) =
        (recording_heading(name, summary, page), page.wrapped(&limited(replay)));
    let taken = taken(replay, runs, page);
    let _ = writeln!(out, "{described}\n{limited}\n{taken}");
    if !replay.gaps().is_empty() {
        let _ = writeln!(out, "{}", missing(replay.gaps(), page));
    }
    let mut understood: Vec<String> = replay.limits().iter().flat_map(Try::understood).collect();
    understood.dedup();
    if !understood.is_empty() {
        let _ = writeln!(out, "{}\n", understood.join("\n"));
    }
    let recorded = replay.recorded();
    let mut table = vec![row("recorded", "", &recorded)];
    for run in runs {
        table.extend(rows_of(replay, run, "", threads));
    }
    let unit = recorded.latency_of.name();
    let (table, ranges) = predicted(&table, unit, page.text_width());
    let _ = writeln!(out, "{table}");
    if replay.is_unheard() {
        let _ = writeln!(out, "{}", page.wrapped(UNHEARD));
    }
    for line in above(replay, runs).into_iter().chain(doubts(runs)) {
        let _ = writeln!(out, "{}", page.wrapped(&line));
    }
    if runs.iter().any(|run| !run.is_done()) {
        out.push_str("-: the work was not done after four times the time it should take.\n");
    }
    for (limit, kernel, why) in &replay.not_tried(kernels) {
        let _ = writeln!(out, "{} is not tried on {}: {why}", limit.label(), kernel.version);
    }
    let _ = writeln!(out, "{}", styled(DIM, page.wrapped(&legend(ranges))));
    out
}

/// Why a kernel stands for the recorded one, where its version differs.
pub(crate) fn taken(replay: &Replay, runs: &[Run], page: Page) -> String {
    let taken = replay.taken();
    let version = taken.kernel.version.to_string();
    let why = taken.why.filter(|_| runs.iter().any(|run| run.outcome.kernel == version));
    why.map_or_else(String::new, |why| page.wrapped(&format!("{why}; -k names another.")) + "\n")
}

/// The limited group, and when it had load.
pub(crate) fn limited(replay: &Replay) -> String {
    let (summary, window) = (replay.summary(), replay.window());
    let in_force: Vec<String> = replay.in_force().map(|(path, share)| had(path, share)).collect();
    let in_force = match in_force.as_slice() {
        [] => String::new(),
        all => format!(". As recorded, in every row: {}", all.join(", ")),
    };
    let pod = replay.pod().map_or("", |_| ". The pod's limit moves with it, as kubelet moves it");
    let doubt = mark(replay.doubtful_gaps().next().is_some());
    let own = replay.own_limit();
    let own = match own.limit.quota_ns() {
        Some(_) => format!("; recorded under {} of its own", own.label()),
        None => String::new(),
    };
    let kept = replay.kept().map_or_else(String::new, |kept| {
        format!("; {} of them on CPU {} only", kept.threads, kept.cpus)
    });
    format!(
        "Limited: {} ({} threads used {} CPUs{doubt} while they had load, from {} to {}; the whole \
         machine used {} CPUs{doubt} over the whole recording){kept}{own}{pod}{in_force}",
        escape::line(replay.path()),
        replay.threads(),
        cpus(replay.mean_cpus()),
        duration(window.from_ns),
        duration(window.until_ns),
        cpus(summary.runtime_ns as f64 / summary.span_ns.max(1) as f64),
    )
}

/// A recorded limit that another group keeps.
fn had(path: &str, share: Share) -> String {
    let limit = share.limit.quota_ns().map(|_| format!(" cpu.max={}", share.limit));
    let weight = share.weight.map(|weight| format!(" cpu.weight={weight}"));
    format!("{}{}{}", escape::line(path), limit.unwrap_or_default(), weight.unwrap_or_default())
}

/// How often groups above the limited one are throttled, a sentence for each limit and group.
pub(crate) fn above<'a>(replay: &Replay, runs: impl IntoIterator<Item = &'a Run>) -> Vec<String> {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for run in runs {
        let above = replay.throttled_above(&run.outcome).zip(run.prediction.above_percent);
        if let Some(((path, _), Ranged { low, high, .. })) = above {
            let group = format!("{}: {} above it", run.limit.label(), escape::line(path));
            let percent = [low, high].map(|end| digits(end, 2)).join("..");
            let on = format!("{percent} % of its periods on {}", run.outcome.kernel);
            match told.iter_mut().find(|(before, _)| *before == group) {
                Some((_, all)) => all.push(on),
                None => told.push((group, vec![on])),
            }
        }
    }
    let line = |(group, on): (String, Vec<String>)| {
        format!("{group} is throttled in {}, and stops these threads too.", on.join(", "))
    };
    told.into_iter().map(line).collect()
}

/// Limits that are not predictable, and the reasons, each once.
pub(crate) fn doubts<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for run in runs {
        let Some(why_not) = run.prediction.why_not.as_deref() else { continue };
        let label = run.limit.label();
        if told.contains(&label) {
            continue;
        }
        let limit = format!("{label} on {}", run.outcome.kernel);
        told.push(label);
        match reasons.iter_mut().find(|(why, _)| *why == why_not) {
            Some((_, limits)) => limits.push(limit),
            None => reasons.push((why_not, vec![limit])),
        }
    }
    let line = |(why, limits): &(&str, Vec<String>)| {
        let are = if limits.len() > 1 { "are" } else { "is" };
        format!("? {} {are} not predictable: {}.", limits.join(", "), escape::line(why))
    };
    reasons.iter().map(line).collect()
}

/// Differences between the replay without a limit and the recording. They come first, because
/// everything else depends on them.
fn disagreements(replay: &Replay, unlimited: &Run, page: Page) -> String {
    let lines = &unlimited.differs;
    if lines.is_empty() {
        return String::new();
    }
    let how = replay.checked_how();
    let how = how[..1].to_uppercase() + &how[1..];
    format!(
        "{how} the replay is not what was recorded:\n  {}\n{}\n\n",
        lines.join("\n  "),
        page.wrapped("Predictions for limits are at least as far off: do not use them.")
    )
}

/// The limit, and the parts of it that this kernel lacks.
fn label(run: &Run) -> String {
    let lacks = run.lacks.iter().map(|missing| format!(" (no {})", missing.file));
    lacks.fold(run.limit.label(), |label, lacks| label + &lacks)
}

/// Rows of a run: its limit with `what` appended, and kinds of thread below it.
pub(crate) fn rows_of(replay: &Replay, run: &Run, what: &str, threads: bool) -> Vec<PredictedRow> {
    let (limit, kernel) = (label(run) + what, run.outcome.kernel.as_str());
    let mut rows = vec![row(&limit, kernel, &run.prediction)];
    if threads {
        for name in replay.kinds().into_iter().take(KINDS_SHOWN) {
            let Some(task) = run.outcome.tasks.get(name) else { continue };
            let known = |value: f64| Some(Ranged::known(value));
            let ms = |ns: u64| known(ns as f64 / 1e6).filter(|_| task.completions > 0);
            rows.push(PredictedRow {
                limit: limit.clone(),
                kernel: kernel.to_owned(),
                thread: Some(name.to_owned()),
                cpus: known(run.busy(task.usage_usec)),
                latency_ms: [ms(task.latency_ns.p50), ms(task.latency_ns.p99)],
                ..PredictedRow::default()
            });
        }
    }
    rows
}

/// Numbers of a limit, or of the recording, as a row.
pub(crate) fn row(limit: &str, kernel: &str, prediction: &Prediction) -> PredictedRow {
    let scaled = |number: cpumax_study::Ranged<u64>, unit_ns: f64| Ranged {
        value: number.value as f64 / unit_ns,
        low: number.low as f64 / unit_ns,
        high: number.high as f64 / unit_ns,
    };
    let latency = prediction.request_latency_ns;
    PredictedRow {
        limit: limit.to_owned(),
        kernel: kernel.to_owned(),
        thread: None,
        cpus: prediction.cpus,
        throttled_percent: prediction.throttled_percent,
        latency_ms: [latency.map(|l| scaled(l.p50, 1e6)), latency.map(|l| scaled(l.p99, 1e6))],
        over: prediction.over,
        requests_per_second: prediction.requests_per_second,
        takes_s: prediction.work_takes_ns.map(|takes| scaled(takes, 1e9)),
        doubtful: !prediction.predictable,
    }
}
