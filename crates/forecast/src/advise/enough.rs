//! Whether a recording has enough data for a limit to be named, and what to record instead.

use super::{Case, Found, Question};
use crate::replay::{Replay, Run};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A p99 needs at least this many requests or bursts.
pub const LEAST_REQUESTS: usize = 100;
/// A typical period needs at least this many in which the service was active.
pub const LEAST_PERIODS: usize = 20;
/// Above this share of busy CPUs, the machine hides how much more its threads ask for.
pub const MOST_BUSY: f64 = 0.95;

/// Why no limit can be named from a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lack {
    /// The recording.
    pub recording: String,
    /// The lack, as half a sentence.
    pub why: String,
    /// The recording to make instead, as the object of "Record".
    pub instead: String,
}

/// Reasons why this recording is not enough to name a limit. Doubtful gaps count alone. Else too
/// few requests or periods, busy CPUs, and each run of `unlimited` that differs from the recording
/// or is not predictable.
pub(super) fn lacks(case: &Case, question: &Question, unlimited: &[Run]) -> Vec<Lack> {
    let replay = case.replay.as_recorded();
    let lack = |(why, instead): (String, &str)| Lack {
        recording: case.name.clone(),
        why,
        instead: instead.to_owned(),
    };
    let gaps = replay.doubtful_gaps();
    let gaps: Vec<(String, &str)> =
        gaps.map(|gap| (gap.told.trim_end_matches('.').to_owned(), gap.kind.instead())).collect();
    if !gaps.is_empty() {
        return gaps.into_iter().map(lack).collect();
    }
    let mut lacks = recording_lacks(replay);
    lacks.extend(too_few_periods(&case.replay, question));
    for run in unlimited {
        let kernel = &run.outcome.kernel;
        if !run.differs.is_empty() {
            let how = case.replay.checked_how();
            let differs = run.differs.join("; ");
            let why =
                format!("{how} the replay on {kernel} differs from the recording ({differs})");
            lacks.push((why, "the service without a limit, with system calls"));
        } else if let Some(why_not) = &run.prediction.why_not {
            let why = format!("without a limit on {kernel} it is not predictable: {why_not}");
            lacks.push((why, "the service with the events that are missing"));
        }
    }
    lacks.into_iter().map(lack).collect()
}

/// The reason why the smallest limit that keeps the goals by its ranges cannot be relied on: its
/// first run that is not predictable. `None` if there is no such limit.
pub(super) fn unreliable(cases: &[Case], found: &Found) -> Option<Lack> {
    let risky = found.risky.as_ref()?;
    let (at, run, _) = risky.each().find(|(_, run, _)| !run.prediction.predictable)?;
    let why_not = run.prediction.why_not.as_deref().unwrap_or_default();
    Some(Lack {
        recording: cases.get(at)?.name.clone(),
        why: format!(
            "{} would be enough, but its prediction is not reliable: {why_not}",
            risky.limit.label()
        ),
        instead: "the service for longer, with system calls".to_owned(),
    })
}

const LONGER: &str = "for longer, while the service has its load";

/// Each lack of the recording itself, with what to record instead: fewer requests than
/// [`LEAST_REQUESTS`], or CPUs busier than [`MOST_BUSY`].
fn recording_lacks(replay: &Replay) -> Vec<(String, &'static str)> {
    let mut lacks = Vec::new();
    let (answered, unit) = replay.answered();
    let what = unit.name();
    if answered < LEAST_REQUESTS {
        lacks.push((format!("it has {answered} {what} and {LEAST_REQUESTS} are needed"), LONGER));
    }
    let share = replay.machine_share();
    if share > MOST_BUSY {
        lacks.push((
            format!(
                "the machine's CPUs were {:.0} % busy, which hides how much more its threads ask \
                 for",
                share * 100.0
            ),
            "the service with less load and give the factor with --load, or record it on a larger \
             machine",
        ));
    }
    lacks
}

/// A lack if the service was active in fewer than [`LEAST_PERIODS`] of the longest asked periods.
/// At a higher load the same requests take less time, so a recording has fewer periods.
fn too_few_periods(replay: &Replay, question: &Question) -> Option<(String, &'static str)> {
    let longest_ns = question.periods_ns.iter().copied().max().unwrap_or(1);
    let demand = replay.demand(longest_ns).map(|demand| demand.windows_ns.as_slice());
    let active = demand.unwrap_or_default().iter().filter(|ns| **ns > 0).count();
    if active >= LEAST_PERIODS {
        return None;
    }
    let ms = longest_ns / 1_000_000;
    let load = if replay.scale_load().is_some() { " at that load" } else { "" };
    let why = format!(
        "the service was active in {active} periods of {ms} ms{load} and {LEAST_PERIODS} are needed"
    );
    Some((why, LONGER))
}
