//! The advice as docs/reference/json.md describes it.

use super::{Advice, Case, Found, Goal, Held, Lack, Measure, Probe};
use crate::predict::Prediction;
use crate::replay::Recorded;
use crate::stretch::RunTrace;
use cpumax_limit::Limit;
use cpumax_outcome::{Histogram, percentile};
use cpumax_recording::Demand;
use cpumax_study::{Ranged, Try, answer::Answer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advised {
    /// The goals.
    pub asked: Vec<Goal>,
    /// The question had no goals.
    pub asked_is_usual: bool,
    /// The recommended limit; null if there is none.
    pub recommended: Option<Named>,
    /// The recording that decides: for it the next smaller limit fails.
    pub decided_by: Option<String>,
    /// Information that the recordings lack; if any, nothing is recommended.
    pub lacks: Vec<Lack>,
    /// The limits that decide, with the goals checked against each.
    pub limits: Vec<Tried>,
    /// Needs of each kind of limit; those of the question come first.
    pub kinds: Vec<KindNeeds>,
    /// CPU time that the service asks for, in each recording.
    pub demand: Vec<Demanded>,
    /// Factor on the recorded traffic.
    pub load: f64,
    /// The recordings, as in replays.
    pub recordings: Vec<Recorded>,
}

impl Answer for Advised {
    const KIND: &'static str = "advice";
}

/// A limit, in the units of the kernel and in CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// Quota, period and burst.
    #[serde(flatten)]
    pub limit: Limit,
    /// Thousandths of a CPU, rounded up.
    pub millicpus: Option<u64>,
}

/// Why a limit is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// No limit.
    None,
    /// The recommended one.
    Recommended,
    /// The next smaller one, which fails.
    Smaller,
    /// The smallest whose ranges keep the goals, where its prediction is unreliable.
    Risky,
    /// The one that the service has.
    Current,
}

impl Role {
    /// The lower-case name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Role::None => "none",
            Role::Recommended => "recommended",
            Role::Smaller => "smaller",
            Role::Risky => "risky",
            Role::Current => "current",
        }
    }
}

/// A limit with the goals checked against it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// Why it is shown.
    pub role: Role,
    /// The limit.
    #[serde(flatten)]
    pub limit: Named,
    /// Whether it keeps every goal.
    pub kept: bool,
    /// Each recording on each kernel.
    pub runs: Vec<RunHeld>,
}

/// Effect of a limit on one recording on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeld {
    /// The recording.
    pub recording: String,
    /// The kernel.
    pub kernel: String,
    /// Predicted effect of the limit.
    pub prediction: Prediction,
    /// The goals, in order.
    pub held: Vec<Told>,
    /// Latencies of the limited group as a histogram, for plots.
    pub latency_histogram_ns: Option<Histogram>,
    /// A trace of the run, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RunTrace>,
}

/// A goal checked against a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Told {
    /// The measured number.
    pub measure: Measure,
    /// The most that it may be; for rates the least.
    pub bound: f64,
    /// Its prediction; null if the number is unknown, or the work does not end.
    pub found: Option<Ranged<f64>>,
    /// Whether the worse end of the range keeps it.
    pub kept: bool,
}

/// Needs of a kind of limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindNeeds {
    /// Length of a period, us.
    pub period_usec: u64,
    /// Burst, per cent of the quota.
    pub burst_percent: f64,
    /// The kernel, where it is not the one that was asked for.
    pub kernel: Option<String>,
    /// Whether the question named it.
    pub asked: bool,
    /// The smallest limit that keeps the goals.
    pub smallest: Option<Named>,
    /// Smaller ones that keep the goals although a larger one does not.
    pub uneven: Vec<Named>,
    /// How many limits were tried.
    pub tried: usize,
}

/// CPU time that the threads of a recording ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Demanded {
    /// The recording.
    pub recording: String,
    /// Length of the intervals, us.
    pub period_usec: u64,
    /// CPU time used in such an interval, us: least, deciles, most.
    pub usage_usec: Vec<u64>,
    /// Time in which at least one thread had work, at least two, and so on, us.
    pub at_once_usec: Vec<u64>,
}

impl From<&Try> for Named {
    fn from(tried: &Try) -> Named {
        Named { limit: tried.limit, millicpus: tried.limit.millicpus() }
    }
}

impl Advice {
    /// The advice as it is written as JSON; `cases` are those that it was made of.
    pub fn document(&self, cases: &[Case]) -> Advised {
        let best = self.recommended();
        let smallest = best.and_then(|found| found.smallest.as_ref());
        let below = best.and_then(|found| found.below.as_ref());
        let told = [
            (Role::None, Some(&self.unlimited)),
            (Role::Recommended, smallest),
            (Role::Smaller, below),
            (Role::Risky, self.risky()),
            (Role::Current, self.current.as_ref()),
        ];
        let recordings = cases.iter().zip(&self.unlimited.runs);
        let told = told.into_iter().filter_map(|(role, probe)| Some((role, probe?)));
        let asked = self.found.iter().map(|found| needs(found, true));
        let others = self.others.iter().map(|found| needs(found, false));
        Advised {
            asked: self.goals.clone(),
            asked_is_usual: self.is_usual,
            recommended: smallest.map(|probe| (&probe.limit).into()),
            decided_by: below.and_then(Probe::decides).map(|(at, ..)| cases[at].name.clone()),
            lacks: self.lacks.clone(),
            limits: told.map(|(role, probe)| tried(role, probe, cases)).collect(),
            kinds: asked.chain(others).collect(),
            demand: cases.iter().flat_map(demanded).collect(),
            load: self.load,
            recordings: recordings.map(|(case, runs)| case.replay.document(&[], runs)).collect(),
        }
    }
}

/// A probe in the form of the document, with the names of its recordings from `cases`.
fn tried(role: Role, probe: &Probe, cases: &[Case]) -> Tried {
    let told = |held: &Held| Told {
        measure: held.measure,
        bound: held.bound,
        found: held.found,
        kept: held.is_kept(),
    };
    let runs = probe.each().map(|(at, run, held)| RunHeld {
        recording: cases[at].name.clone(),
        kernel: run.outcome.kernel.clone(),
        prediction: run.prediction.clone(),
        held: held.iter().map(told).collect(),
        latency_histogram_ns: run.latencies().cloned(),
        trace: run.trace.clone(),
    });
    Tried { role, limit: (&probe.limit).into(), kept: probe.is_kept(), runs: runs.collect() }
}

/// A result of the search in the form of the document; `asked` tells that the question names its
/// kind.
fn needs(found: &Found, asked: bool) -> KindNeeds {
    KindNeeds {
        period_usec: found.kind.period_ns / 1_000,
        burst_percent: found.kind.burst_percent,
        kernel: found.kind.kernel.map(|kernel| kernel.version.to_string()),
        asked,
        smallest: found.smallest.as_ref().map(|probe| (&probe.limit).into()),
        uneven: found.uneven.iter().map(Into::into).collect(),
        tried: found.tried,
    }
}

/// The demand of one recording, for each length of period that the replay has.
fn demanded(case: &Case) -> impl Iterator<Item = Demanded> {
    case.replay
        .demands()
        .iter()
        .map(|(period_ns, demand)| demand_of(&case.name, *period_ns, demand))
}

/// Deciles of the CPU time in windows of `period_ns`, and time by number of ready threads, in us.
fn demand_of(recording: &str, period_ns: u64, demand: &Demand) -> Demanded {
    let windows = &demand.windows_ns;
    let decile = |tenth: usize| Some(percentile(windows, tenth * 10)? / 1_000);
    Demanded {
        recording: recording.to_owned(),
        period_usec: period_ns / 1_000,
        usage_usec: (0..=10).filter_map(decile).collect(),
        at_once_usec: demand.at_once_ns.iter().map(|ns| ns / 1_000).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_document_lists_what_an_answer_tells() {
        let schema = serde_json::to_value(schemars::schema_for!(Advised)).unwrap();
        let told = schema["properties"].as_object().unwrap().keys().map(String::as_str);
        let document = include_str!("../../../../docs/reference/json.md");
        let section = document.split("\n## Advice").nth(1).unwrap();
        let closely = document.split("\n## Runs looked at closely").nth(1).unwrap();
        let closely = closely.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), told.collect());
        let of_replays = serde_json::to_value(schemars::schema_for!(Recorded)).unwrap();
        let is_own = |(name, _): &(&String, &serde_json::Value)| {
            *name != "Recorded" && of_replays["$defs"].get(name.as_str()).is_none()
        };
        for (_, inner) in schema["$defs"].as_object().unwrap().iter().filter(is_own) {
            for name in inner["properties"].as_object().into_iter().flat_map(|all| all.keys()) {
                let is_of_replays = document.contains(&format!("prediction.{name}"));
                let is_told =
                    [section, closely].iter().any(|section| section.contains(&format!("`{name}`")));
                let is_ranged =
                    ["value", "low", "high"].contains(&name.as_str()) || name.starts_with('p');
                assert!(is_of_replays || is_told || is_ranged, "{name}");
            }
        }
    }
}
