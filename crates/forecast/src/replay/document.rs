//! Recordings and replays as docs/reference/json.md describes them.

use super::{Replay, Run};
use crate::predict::{Prediction, Window};
use crate::recorded::Served;
use cpumax_limit::Limit;
use cpumax_machine::kernel::Kernel;
use cpumax_recording::{Defects, EventCost, Gap, Waits};
use cpumax_study::{
    Beside,
    answer::{Answer, Document},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recording, or a limit on a kernel.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ReplayDocument<'a> {
    /// The recording.
    Recording(Document<&'a Recorded>),
    /// A limit on a kernel, and what it does to the recorded load.
    Run(Document<&'a Run>),
}

/// The recorded numbers in the form of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// Path of the limited group.
    pub group: String,
    /// The limit it was recorded under; `max` where none is known.
    #[serde(flatten)]
    pub limit: Limit,
    /// Name of the recording.
    #[serde(rename = "scenario")]
    pub name: String,
    /// `recording`.
    pub world: String,
    /// The kernel that was recorded, as it calls itself.
    pub kernel: Option<String>,
    /// The modelled kernel that stands for it where no kernel is chosen, and why where it is not
    /// just its version.
    pub taken_for: TakenFor,
    /// Length of the recording.
    pub simulated_ns: u64,
    /// When the load of the limited group was active.
    pub window: Window,
    /// The recorded numbers.
    pub prediction: Prediction,
    /// Repairs made while reading, and how often.
    pub repairs: Defects,
    /// Limits and weights that groups had in the recording and keep, whatever is tried.
    pub in_force: Vec<Beside>,
    /// Threads of the limited group that may not use all CPUs; null if there are none.
    pub kept: Option<Kept>,
    /// Cost of recording an event, which was taken off CPU times.
    pub event_cost: EventCost,
    /// Number of waits of its threads, and of those whose waker is known.
    pub waits: Waits,
    /// The requests that the limited group answers, and which parts of them were guessed.
    pub service: Option<Served>,
    /// Kinds of events that are not in the recording.
    pub gaps: Vec<Gap>,
    /// Clients ask the limited group, but the recording does not show their requests.
    pub is_unheard: bool,
    /// Differences between the recording and the replay without a limit, in words.
    pub disagreements: Vec<String>,
    /// Limits that were not tried because a kernel supports nothing of them.
    pub not_tried: Vec<NotTried>,
    /// The words of the command that made this document, without the destination of its output.
    pub made_by: Vec<String>,
}

/// A kernel of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenFor {
    /// Its version.
    pub kernel: String,
    /// Why it stands for the recorded one; null where the versions agree.
    pub why: Option<String>,
}

/// Threads that may not use all CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// How many.
    pub threads: usize,
    /// The CPUs that they may use together, such as `0-3,8`.
    pub cpus: String,
}

/// A limit that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotTried {
    /// The limit, as tables show it.
    pub limit: String,
    /// The kernel.
    pub kernel: String,
    /// Why not.
    pub why: String,
}

impl Answer for Recorded {
    const KIND: &'static str = "recording";
}

impl Answer for Run {
    const KIND: &'static str = "replay";
}

/// The recording, then its runs, as they are written as JSON, one document for each.
pub fn documents<'a>(
    recorded: &'a Recorded,
    runs: &'a [Run],
) -> impl Iterator<Item = ReplayDocument<'a>> {
    let runs = runs.iter().map(|run| ReplayDocument::Run(run.into()));
    std::iter::once(ReplayDocument::Recording(recorded.into())).chain(runs)
}

impl Replay {
    /// The recording as it is written beside its runs. `kernels` are those asked for; the first run
    /// is without a limit and tells the disagreements.
    pub fn document(&self, kernels: &[Kernel], runs: &[Run]) -> Recorded {
        let taken = self.taken();
        let not_tried = self.not_tried(kernels).into_iter();
        let not_tried = not_tried.map(|(limit, kernel, why)| NotTried {
            limit: limit.label(),
            kernel: kernel.version.to_string(),
            why: why.to_string(),
        });
        let in_force = self.in_force();
        Recorded {
            group: self.path().to_owned(),
            limit: self.own_limit().limit,
            name: self.workload().name.clone(),
            world: "recording".to_owned(),
            kernel: self.summary.kernel.clone(),
            taken_for: TakenFor { kernel: taken.kernel.version.to_string(), why: taken.why },
            simulated_ns: self.summary.span_ns,
            window: self.window,
            prediction: self.recorded(),
            repairs: self.summary.defects.clone(),
            in_force: in_force
                .map(|(path, share)| Beside { path: path.to_owned(), share })
                .collect(),
            kept: self.kept(),
            event_cost: self.summary.event_cost,
            waits: self.waits,
            service: self.service.as_ref().map(Served::of),
            gaps: self.gaps.clone(),
            is_unheard: self.is_unheard,
            disagreements: runs.first().map(|run| run.differs.clone()).unwrap_or_default(),
            not_tried: not_tried.collect(),
            made_by: self.made_by.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::{Drawn, Over, Sample, Unit, Unknowns, WorkRange, predict};
    use cpumax_outcome::Outcome;
    use cpumax_study::Try;
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
            latency_ns: Some([1, 2, 3, 4, 5]),
            over: Some(Over { than_ns: 3, percent: 40.0 }),
            takes_ns: Some(1),
            above_percent: 1.0,
            ..Sample::default()
        };
        let draw = Unknowns { seed: 1, scale: None, work: WorkRange::default() }.first(None);
        let run = Run {
            limit: Try::none(),
            lacks: Vec::new(),
            group: "/g".to_owned(),
            window: Window { from_ns: 0, until_ns: 1 },
            finished_ns: None,
            slowdown: None,
            lasts: false,
            prediction: Prediction {
                runs: vec![Drawn::new(0, draw, &sample)],
                ..predict(&[(&sample, true)], Unit::Requests)
            },
            outcome,
            differs: Vec::new(),
            trace: None,
            draw,
        };
        let with_more = serde_json::to_value(&run).unwrap();
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
        let document = include_str!("../../../../docs/reference/json.md");
        let from = document.split("\n## Replays").nth(1).unwrap();
        let section = from.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), added);
    }
}
