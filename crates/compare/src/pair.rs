//! A comparison to make: the workload, its seed, and how often it runs.

use cpumax_workload::Workload;
use std::sync::Arc;

/// Kind of comparison, which decides the tolerances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One CPU whose time does not depend on the host.
    Exact,
    /// Several CPUs that run in parallel.
    Parallel,
}

/// One comparison to make.
#[derive(Debug, Clone)]
pub struct Pair {
    /// Workload of both runs.
    pub workload: Arc<Workload>,
    /// Seed of every random stream on both sides.
    pub seed: u64,
    /// Whether to record events.
    pub trace: bool,
    /// Number of runs of the other side under microsecond noise, if it is a model.
    pub noisy: Noisy,
    /// Number of runs of the reference, where runs differ; the median counts ([`Cell::median`]).
    pub runs: u16,
}

impl Pair {
    /// A comparison of one run, without events.
    pub fn new(workload: Workload, seed: u64, noisy: Noisy) -> Pair {
        Pair { workload: Arc::new(workload), seed, trace: false, noisy, runs: 1 }
    }
}

/// Number of a model's runs under microsecond noise to compare with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noisy {
    /// Initial number; enough for most comparisons.
    pub few: u32,
    /// Ratio of the worst number above which `most` runs are made.
    pub beyond: f64,
    /// Number of runs then.
    pub most: u32,
}

impl Noisy {
    const FEW: u32 = 100;
    /// Number of runs that make a disagreement by chance improbable.
    pub const MOST: u32 = 1000;

    /// At most `most` runs; more than the first hundred only for numbers beyond their tolerance.
    pub fn up_to(most: u32) -> Noisy {
        Noisy { few: most.min(Noisy::FEW), beyond: 1.0, most }
    }

    /// Exactly this many runs.
    pub fn only(few: u32) -> Noisy {
        Noisy { few, beyond: 1.0, most: few }
    }

    /// `few` runs, and [`Noisy::MOST`] where a ratio is then above `beyond`.
    pub fn confirmed(few: u32, beyond: f64) -> Noisy {
        Noisy { few, beyond, most: Noisy::MOST }
    }
}
