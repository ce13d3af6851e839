//! Two predictions held against each other run by run.
//!
//! How wide a range is says how far a number may be off, not how well two of them can be told
//! apart: where in a period the load begins and what work costs on another day is the same for
//! both. Of two runs that drew the same, only what was changed makes a difference.

use super::{Doubt, Prediction, Ranged, Sample};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Fewer pairs of runs tell nothing of how changes differ.
const PAIRS_LEAST: usize = 3;

/// One of the runs that a prediction is told of: what was drawn for it, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drawn {
    /// Of the ways to understand the recording, which: 0 is the most likely one.
    pub reading: u32,
    /// Seed of its random choices.
    pub seed: u64,
    /// When the limit's period timer first fires, ns.
    pub phase_ns: u64,
    /// What the work costs, in millionths of what is most likely.
    pub work_ppm: u32,
    /// Whether values are medians of runs like this.
    pub likely: bool,
    /// The numbers of this run.
    #[serde(flatten)]
    pub sample: Sample,
}

impl Drawn {
    pub(crate) fn new(reading: usize, doubt: Doubt, sample: &Sample) -> Drawn {
        let Doubt { seed, phase_ns, work_ppm, likely, .. } = doubt;
        // JSON does not hold this number: a run that is read back equals the one that was written.
        let sample = Sample { answered: 0, ..*sample };
        Drawn { reading: reading as u32, seed, phase_ns, work_ppm, likely, sample }
    }

    fn drew_the_same(&self, other: &Drawn) -> bool {
        let draw = |run: &Drawn| (run.reading, run.seed, run.phase_ns, run.work_ppm, run.likely);
        draw(self) == draw(other)
    }
}

/// How a number changed from one prediction to another, by the pairs of runs that drew the same:
/// `between` says it of two runs. `None`: there are too few such pairs, or one has no such number.
///
/// ```
/// use cpumax_engine::predict::{Drawn, Prediction, Ranged, Sample, Unit, change};
///
/// let of = |cpus: [f64; 3]| {
///     let run = |seed: u64| {
///         let sample = Sample { cpus: cpus[seed as usize], ..Sample::default() };
///         Drawn { reading: 0, seed, phase_ns: 0, work_ppm: 1_000_000, likely: true, sample }
///     };
///     let runs = (0..3).map(run).collect();
///     let (cpus, latency_of) = (Some(Ranged::known(cpus[1])), Unit::Requests);
///     Prediction { cpus, latency_of, runs, ..Prediction::default() }
/// };
/// // Each may be what the other is, but for one run of both it is a tenth more.
/// let (before, after) = (of([0.5, 0.7, 0.9]), of([0.6, 0.8, 1.0]));
/// let more = change(&before, &after, |before, after| Some(after.cpus - before.cpus)).unwrap();
/// assert!(more.low > 0.09 && more.high < 0.11);
/// ```
pub fn change(
    before: &Prediction,
    after: &Prediction,
    between: impl Fn(&Sample, &Sample) -> Option<f64>,
) -> Option<Ranged<f64>> {
    let pair = |one: &Drawn| {
        let other = after.runs.iter().find(|other| one.drew_the_same(other))?;
        Some((between(&one.sample, &other.sample), one.likely && one.reading == 0))
    };
    let pairs: Vec<_> = before.runs.iter().filter_map(pair).collect();
    if pairs.len() < PAIRS_LEAST {
        return None;
    }
    Ranged::of(&pairs, |between| *between)
}
