//! Two predictions compared run by run.
//!
//! A range tells how far a number may be off, not how well two predictions can be told apart: both
//! share the phase of the period and the cost of the work. Between two runs with equal draws, only
//! the change itself makes a difference.

use super::{Draw, Prediction, Sample};
use cpumax_study::Ranged;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Fewer pairs of runs give no range of the difference.
const PAIRS_LEAST: usize = 3;

/// One of the runs behind a prediction: what was drawn for it, and its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drawn {
    /// The reading of the recording, by its place; 0 is the most likely one.
    pub reading: u32,
    /// Seed of the run's random choices.
    pub seed: u64,
    /// When the limit's period timer first fires, ns.
    pub phase_ns: u64,
    /// Cost of the work, in millionths of the most likely one.
    pub work_ppm: u32,
    /// Whether the prediction's values are medians of runs like this one.
    pub likely: bool,
    /// The numbers of this run.
    #[serde(flatten)]
    pub sample: Sample,
}

impl Drawn {
    /// A run's draw and numbers as they are saved; `reading` is the place of the recording's
    /// reading.
    pub(crate) fn new(reading: usize, draw: Draw, sample: &Sample) -> Drawn {
        let Draw { seed, phase_ns, work_ppm, likely, .. } = draw;
        // JSON leaves `answered` out; 0 keeps a run equal to the one read back.
        let sample = Sample { answered: 0, ..*sample };
        Drawn { reading: reading as u32, seed, phase_ns, work_ppm, likely, sample }
    }

    /// Whether both runs are of the same reading and have equal draws (seed, phase, cost of work,
    /// likely or not); their results may differ.
    fn drew_the_same(&self, other: &Drawn) -> bool {
        let draw = |run: &Drawn| (run.reading, run.seed, run.phase_ns, run.work_ppm, run.likely);
        draw(self) == draw(other)
    }
}

/// How a number changed from one prediction to another, by the pairs of runs with equal draws: the
/// median of the likely pairs, within the range of all. `between` gives the change between two
/// runs. `None`: there are fewer than three pairs, or a run has no such number.
///
/// ```
/// use cpumax_forecast::predict::{Drawn, Prediction, Sample, Unit, change};
/// use cpumax_study::Ranged;
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
/// // The ranges overlap, but in each pair of runs the second is a tenth more.
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
