//! Whether a replay shows what was recorded: where it does not, neither do the replays with other
//! limits, and that has to be said first.

use super::{Replay, Request, Run};
use crate::Error;
use crate::predict::{Prediction, Ranged};
use crate::watch::Watch;
use crate::what_if::Try;
use crate::world::Running;
use cpumax_machine::kernel::{self, Kernel};
use cpumax_recording::{Recording, Selection};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A share by which CPUs may differ, and one by which times and rates may.
const CPUS: f64 = 0.05;
const TIMES: f64 = 0.2;
/// Latencies that differ by less are as good as the same, ms.
const SAME_MS: f64 = 0.3;

/// How a replay is held against what was recorded: as it was recorded, whatever else is asked, and
/// under the limit that was in force then.
#[derive(Debug)]
pub(super) struct Check {
    /// As it was recorded, where other traffic, work or another machine is asked for.
    as_recorded: Option<Box<Replay>>,
    /// The limit that was in force.
    own: Try,
    /// Numbers that differ from the recording, by kernel.
    differs: Mutex<BTreeMap<String, Vec<String>>>,
}

impl Check {
    pub fn new(
        name: &str,
        recording: &Recording,
        request: &Request,
        selection: &Selection,
    ) -> Result<Check, Error> {
        let as_it_was =
            Request { hz: None, cpus: None, scale_work: None, scale_load: None, ..request.clone() };
        let is_other = request.scale_load.is_some()
            || request.scale_work.is_some()
            || request.hz.is_some()
            || request.cpus.is_some();
        let as_recorded =
            is_other.then(|| Replay::new(name, recording, &as_it_was)).transpose()?.map(Box::new);
        let own = recording.limit_of(selection).map_or_else(Try::none, Try::of);
        Ok(Check { as_recorded, own, differs: Mutex::default() })
    }
}

impl Replay {
    /// With the traffic, the work and the machine that were recorded.
    pub fn as_recorded(&self) -> &Replay {
        self.check.as_recorded.as_deref().unwrap_or(self)
    }

    /// The limit that was in force while it was recorded, as far as the recording tells.
    pub fn own_limit(&self) -> &Try {
        &self.check.own
    }

    /// How the replay is held against the recording: "without a limit", or under which.
    pub fn checked_how(&self) -> String {
        match self.own_limit().limit.quota_ns() {
            None => "without a limit".to_owned(),
            Some(_) => format!("under {}, as it was recorded,", self.own_limit().label()),
        }
    }

    /// Tells in which of these runs nothing can be relied on, as the replay is not what was
    /// recorded.
    pub(super) fn hold_against(
        &self,
        runs: &mut [Run],
        seed: u64,
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let (replay, own) = (self.as_recorded(), self.own_limit());
        let none = Try::none();
        let mut differs = self.check.differs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new: Vec<Kernel> = Vec::new();
        for run in runs.iter().filter(|run| !differs.contains_key(&run.outcome.kernel)) {
            for kernel in kernel::parse_kernels(&run.outcome.kernel).into_iter().flatten() {
                if new.iter().all(|other| other.version != kernel.version) {
                    new.push(kernel);
                }
            }
        }
        let is_there = |run: &&Run| run.limit == none;
        let is_same = std::ptr::eq(replay, self) && *own == none;
        let tried = if new.is_empty() {
            Vec::new()
        } else if is_same && runs.iter().any(|run| is_there(&run)) {
            runs.iter().filter(is_there).cloned().collect()
        } else {
            // Work that was recorded under a limit has that limit's cost already.
            replay.tried(&[own], &new, (seed, limited_scale(own)), running, watch)?
        };
        for run in tried {
            let lines = replay.disagreements(&run.prediction);
            differs.entry(run.outcome.kernel).or_insert(lines);
        }
        for run in runs {
            run.differs = differs.get(&run.outcome.kernel).cloned().unwrap_or_default();
            if !run.differs.is_empty() {
                let (how, lines) = (self.checked_how(), run.differs.join("; "));
                let why = format!("{how} the replay is not what was recorded ({lines})");
                run.prediction.is_doubtful(&why);
            }
        }
        Ok(())
    }

    /// Where a replay differs from what was recorded; in words, one line for each.
    fn disagreements(&self, replayed: &Prediction) -> Vec<String> {
        let mut lines = Vec::new();
        let recorded = self.recorded();
        // Under a limit it matters when its periods began, which nobody knows: the range counts.
        let is_limited = self.own_limit().limit.quota_ns().is_some();
        let mut compare = |what: &str, was: Option<f64>, is: Option<Ranged<f64>>, share, more| {
            let (Some(was), Some(is)) = (was, is) else { return };
            let near = if is_limited { was.clamp(is.low, is.high) } else { is.value };
            if (was - near).abs() > was.abs() * share + more {
                let (was, is) = (number(was), number(is.value));
                lines.push(format!("{what}: {was} recorded, {is} replayed"));
            }
        };
        // What went into the recording is not in the replay.
        compare("CPUs", Some(self.mean_cpus()), replayed.cpus, CPUS, 0.005);
        let was = recorded.requests_per_second.map(|ranged| ranged.value);
        compare("requests a second", was, replayed.requests_per_second, TIMES, 0.0);
        let unit = self.unit.name();
        let (Some(was), Some(is)) = (recorded.request_latency_ns, replayed.request_latency_ns)
        else {
            return lines;
        };
        for (name, was, is) in
            [("p50", was.p50, is.p50), ("p90", was.p90, is.p90), ("p99", was.p99, is.p99)]
        {
            let ms = |ns: u64| ns as f64 / 1e6;
            let (was, low, high) = (ms(was.value), ms(is.low), ms(is.high));
            // The slowest of a short recording are few, so the range counts.
            if was < low * (1.0 - TIMES) - SAME_MS || was > high * (1.0 + TIMES) + SAME_MS {
                let (was, is) = (number(was), number(ms(is.value)));
                lines.push(format!("{name} of {unit}, ms: {was} recorded, {is} replayed"));
            }
        }
        lines
    }
}

/// What the work costs in the replay under the limit that was in force.
fn limited_scale(own: &Try) -> Option<f64> {
    own.limit.quota_ns().map(|_| 1.0)
}

/// Three digits.
fn number(value: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().filter(|&&limit| value < limit).count();
    format!("{value:.decimals$}")
}
