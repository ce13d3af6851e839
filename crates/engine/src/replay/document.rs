//! Answers as docs/json.md describes them.

use super::{Replay, Run};
use crate::job::Share;
use crate::predict::{Prediction, Window};
use crate::recorded::Served;
use crate::traced::RunTrace;
use cpumax_machine::kernel::Kernel;
use cpumax_outcome::Outcome;
use cpumax_recording::{Defects, EventCost, Gap, Waits};
use schemars::JsonSchema;
use serde::Serialize;

/// A recording, or a limit on a kernel.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Document<'a> {
    /// What was recorded.
    Recording(Box<Recorded<'a>>),
    /// What a limit would do to it.
    Run(Box<Limited<'a>>),
}

/// What was recorded, told like a run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Recorded<'a> {
    /// Path of the limited group.
    group: &'a str,
    /// The limit it was recorded under; `max`: none is known.
    cpu_max: String,
    /// The same of its burst, us.
    burst_usec: u64,
    /// Name of the recording.
    scenario: &'a str,
    /// `recording`.
    world: &'static str,
    /// The kernel that was recorded, as it calls itself.
    kernel: Option<&'a str>,
    /// What that is taken for where no kernel is chosen, and why where it is not just its version.
    taken_for: TakenFor,
    /// Length of the recording.
    simulated_ns: u64,
    /// When the load of the limited group was there.
    window: Span,
    /// What was recorded.
    prediction: Prediction,
    /// What was repaired, and how often.
    repairs: &'a Defects,
    /// Limits and weights that groups had in the recording and keep, whatever is tried.
    in_force: Vec<OtherGroup>,
    /// What recording an event cost, which was taken off CPU times.
    event_cost: EventCost,
    /// How many waits of its threads are known.
    waits: Waits,
    /// The requests that the limited group answers, and what of that was guessed.
    service: Option<Served>,
    /// What is not in the recording.
    gaps: &'a [Gap],
    /// Clients ask the limited group, and the recording does not tell for what.
    is_unheard: bool,
    /// Where the replay without a limit is not what was recorded, in words.
    disagreements: Vec<String>,
    /// Limits that were not tried, as a kernel has nothing of them.
    not_tried: Vec<NotTried>,
    /// The words of the command that made it, without where its output went.
    made_by: &'a [String],
}

/// A kernel of the model.
#[derive(Debug, Serialize, JsonSchema)]
struct TakenFor {
    /// Its version.
    kernel: String,
    /// Why it stands for the recorded one; null: it is of that version.
    why: Option<String>,
}

/// A limit that was not tried.
#[derive(Debug, Serialize, JsonSchema)]
struct NotTried {
    /// Which, as tables call it.
    limit: String,
    /// On which kernel.
    kernel: String,
    /// Why not.
    why: String,
}

/// One run in full, and what all runs of it say.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Limited<'a> {
    /// Path of the limited group.
    group: &'a str,
    /// What its `cpu.max` holds.
    cpu_max: String,
    /// What its `cpu.max.burst` holds, us.
    burst_usec: u64,
    /// What its `cpu.weight` holds, where that was tried.
    weight: Option<u32>,
    /// The limit of the pod around it, where one was tried.
    pod: Option<Pod>,
    /// Limits of other groups, where they were tried at the same time.
    beside: Vec<OtherGroup>,
    /// What of the limit this kernel does not have.
    lacks: Vec<&'static str>,
    /// When the recorded work was done, ns; null when it was not, or lasts for a given time.
    finished_ns: Option<u64>,
    /// How long it takes, divided by the same without a limit on this kernel.
    slowdown: Option<f64>,
    /// When the load of the limited group was there in the recording.
    window: Span,
    /// What the limit does to it.
    prediction: &'a Prediction,
    /// The run looked at closely, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a RunTrace>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// What the group above the limited one has.
#[derive(Debug, Serialize, JsonSchema)]
struct Pod {
    cpu_max: String,
    burst_usec: u64,
    weight: Option<u32>,
}

/// Another group, and what it has.
#[derive(Debug, Serialize, JsonSchema)]
struct OtherGroup {
    group: String,
    #[serde(flatten)]
    share: Pod,
}

impl From<Share> for Pod {
    fn from(share: Share) -> Pod {
        let Share { limit, weight } = share;
        Pod { cpu_max: limit.to_string(), burst_usec: limit.burst_ns() / 1000, weight }
    }
}

impl OtherGroup {
    fn of(path: &str, share: Share) -> OtherGroup {
        OtherGroup { group: path.to_owned(), share: share.into() }
    }
}

/// A stretch of time, ns since the start.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
struct Span {
    from_ns: u64,
    until_ns: u64,
}

impl From<Window> for Span {
    fn from(window: Window) -> Span {
        Span { from_ns: window.from_ns, until_ns: window.until_ns }
    }
}

impl Replay {
    /// What was recorded, as it is written as JSON before the runs on these kernels.
    pub fn document(&self, kernels: &[Kernel], runs: &[Run]) -> Document<'_> {
        Document::Recording(Box::new(self.recorded_document(kernels, runs)))
    }

    /// What was recorded, as it is written as JSON; the first run is without a limit.
    pub(crate) fn recorded_document(&self, kernels: &[Kernel], runs: &[Run]) -> Recorded<'_> {
        let (own, taken) = (self.own_limit(), self.taken());
        let not_tried = self.not_tried(kernels).into_iter();
        let not_tried = not_tried.map(|(limit, kernel, why)| NotTried {
            limit: limit.label.clone(),
            kernel: kernel.version.to_string(),
            why: why.to_string(),
        });
        Recorded {
            group: self.path(),
            cpu_max: own.limit.to_string(),
            burst_usec: own.limit.burst_ns() / 1000,
            scenario: &self.workload().name,
            world: "recording",
            kernel: self.summary.kernel.as_deref(),
            taken_for: TakenFor { kernel: taken.kernel.version.to_string(), why: taken.why },
            simulated_ns: self.summary.span_ns,
            window: self.window.into(),
            prediction: self.recorded(),
            repairs: &self.summary.defects,
            in_force: self.in_force().map(|(path, share)| OtherGroup::of(path, share)).collect(),
            event_cost: self.summary.event_cost,
            waits: self.waits,
            service: self.service.as_ref().map(Served::of),
            gaps: &self.gaps,
            is_unheard: self.is_unheard,
            disagreements: runs.first().map(|run| run.differs.clone()).unwrap_or_default(),
            not_tried: not_tried.collect(),
            made_by: &self.made_by,
        }
    }
}

impl Run {
    /// As it is written as JSON.
    pub fn document(&self) -> Document<'_> {
        Document::Run(Box::new(Limited {
            group: &self.group,
            cpu_max: self.limit.limit.to_string(),
            burst_usec: self.limit.limit.burst_ns() / 1000,
            weight: self.limit.weight,
            pod: self.limit.pod.map(Pod::from),
            beside: self
                .limit
                .beside
                .iter()
                .map(|beside| OtherGroup::of(&beside.path, beside.share))
                .collect(),
            lacks: self.lacks.iter().map(|missing| missing.file).collect(),
            finished_ns: self.finished_ns(),
            slowdown: self.slowdown,
            window: self.window.into(),
            prediction: &self.prediction,
            trace: self.trace.as_ref(),
            outcome: &self.outcome,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Doubts, Drawn, Sample, Unit, WorkRange, predict};
    use crate::what_if::Try;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_document_lists_what_a_replay_adds() {
        let outcome = Outcome {
            scenario: String::new(),
            world: String::new(),
            kernel: String::new(),
            generation: String::new(),
            seed: 1,
            simulated_ns: 1,
            groups: BTreeMap::new(),
            tasks: BTreeMap::new(),
            release: cpumax_outcome::ReleaseOutcome::default(),
            events: 1,
        };
        let own = serde_json::to_value(&outcome).unwrap();
        let sample = Sample {
            throttled_percent: Some(1.0),
            requests_per_second: Some(1.0),
            latency_ns: Some([1, 2, 3]),
            takes_ns: Some(1),
            ..Sample::default()
        };
        let doubt = Doubts { seed: 1, scale: None, work: WorkRange::default() }.first(None);
        let run = Run {
            limit: Try::none(),
            lacks: Vec::new(),
            group: "/g".to_owned(),
            window: Window { from_ns: 0, until_ns: 1 },
            lasts: false,
            slowdown: None,
            prediction: Prediction {
                runs: vec![Drawn::new(0, doubt, &sample)],
                ..predict(&[(&sample, true)], Unit::Requests)
            },
            outcome,
            differs: Vec::new(),
            trace: None,
            doubt,
        };
        let with_more = serde_json::to_value(run.document()).unwrap();
        let mut added = BTreeSet::new();
        let mut fields = vec![(String::new(), &with_more)];
        while let Some((path, value)) = fields.pop() {
            let Some(object) = value.as_object() else { continue };
            if object.contains_key("value") {
                continue;
            }
            for (name, value) in object {
                let at = format!("{path}{name}");
                if path.is_empty() && own.get(name).is_some() {
                    continue;
                }
                fields.push((format!("{at}."), value));
                if value.as_object().is_none_or(|inner| inner.contains_key("value")) {
                    added.insert(at);
                }
            }
        }
        let document = include_str!("../../../../docs/json.md");
        let from = document.split("\n## Replays").nth(1).unwrap();
        let section = from.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), added);
    }
}
