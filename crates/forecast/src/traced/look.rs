//! Collects the requests of a run, and chooses the runs of a replay that are traced.

use crate::goal::USUAL;
use crate::replay::Run;
use cpumax_outcome::trace::{Names, Numbered, TraceEvent, TraceSink, What};

const MOST: usize = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    pub at_ns: u64,
    pub took_ns: u64,
    /// Number of the thread that completed it.
    pub task: u32,
}

#[derive(Debug, Default)]
pub(super) struct Look {
    pub answered: Vec<Answered>,
    pub names: Names,
    pub last_ns: u64,
}

impl TraceSink for Look {
    /// Keeps the time, latency and thread of each completed request, up to a million, and the time
    /// of the last event.
    fn event(&mut self, event: TraceEvent) {
        self.last_ns = event.time_ns;
        if let What::Done { task, took_ns } = event.what
            && self.answered.len() < MOST
        {
            self.answered.push(Answered { at_ns: event.time_ns, took_ns, task });
        }
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.names.add(of, name);
    }
}

/// The runs to trace, on the last kernel. Of the limits that throttle at all: the smallest whose
/// effect is hardly noticed and the next smaller one; where each is noticed, the largest and the
/// smallest. None without a run that has no limit.
pub(super) fn decisive(runs: &mut [Run]) -> Vec<&mut Run> {
    let Some(kernel) = runs.last().map(|run| run.outcome.kernel.clone()) else {
        return Vec::new();
    };
    let base = runs.iter().find(|run| run.cpus().is_none() && run.outcome.kernel == kernel);
    let Some(base) = base.map(|run| run.prediction.clone()) else { return Vec::new() };
    let throttles = |run: &Run| run.prediction.throttled_percent.is_some_and(|n| n.value > 0.0);
    let mut limited: Vec<(u64, usize)> = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| run.outcome.kernel == kernel && throttles(run))
        .filter_map(|(at, run)| Some((run.cpus()?, at)))
        .collect();
    limited.sort_unstable();
    let keeps = |&(_, at): &(u64, usize)| USUAL.held(&runs[at].prediction, &base).is_kept();
    let chosen = match limited.iter().position(keeps) {
        Some(at) => [Some(at), at.checked_sub(1)],
        None => [limited.len().checked_sub(1), (limited.len() > 1).then_some(0)],
    };
    let chosen: Vec<usize> = chosen.into_iter().flatten().map(|at| limited[at].1).collect();
    let is_chosen = |(at, run)| chosen.contains(&at).then_some(run);
    runs.iter_mut().enumerate().filter_map(is_chosen).collect()
}
