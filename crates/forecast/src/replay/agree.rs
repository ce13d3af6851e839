//! Compares a replay with its recording. Where it differs, replays under other limits cannot be
//! relied on either.

use super::{Replay, Request, Run};
use crate::predict::Prediction;
use cpumax_machine::kernel::{self, Kernel};
use cpumax_recording::{Recording, Selection};
use cpumax_study::{Error, Ranged, Try, Watch, world::Running};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Shares by which CPUs, and times or rates, may differ.
const CPUS: f64 = 0.05;
const TIMES: f64 = 0.2;
/// Latencies that differ by less count as equal, ms.
const SAME_MS: f64 = 0.3;

/// The replay of what was recorded, under the limit of that time, whatever else the request asks
/// for.
#[derive(Debug)]
pub(super) struct Check {
    /// Set where the request asks for other traffic, work or another machine.
    as_recorded: Option<Box<Replay>>,
    /// The limit that was in force during the recording.
    own: Try,
    /// Differences from the recording, by kernel; filled by the first comparison on each.
    differs: Mutex<BTreeMap<String, Vec<String>>>,
}

impl Check {
    /// Prepares the replay of what was recorded, where the request asks for another load, work or
    /// machine. Runs nothing. An error as of [`Replay::new`].
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
    /// The replay with the recorded traffic, work and machine: `self`, unless the request asks for
    /// others.
    pub fn as_recorded(&self) -> &Replay {
        self.check.as_recorded.as_deref().unwrap_or(self)
    }

    /// The limit that was in force during the recording; none where the recording does not tell
    /// one.
    pub fn own_limit(&self) -> &Try {
        &self.check.own
    }

    /// How the replay is compared with the recording, for messages: "without a limit", or under
    /// which one.
    pub fn checked_how(&self) -> String {
        match self.own_limit().limit.quota_ns() {
            None => "without a limit".to_owned(),
            Some(_) => format!("under {}, as it was recorded,", self.own_limit().label()),
        }
    }

    /// Marks the runs unreliable on kernels where the replay differs from the recording. Runs the
    /// replay of the recording where `runs` does not hold it, once for each kernel; later calls use
    /// the stored result.
    ///
    /// # Errors
    /// A run of that replay fails.
    pub(super) fn mark_disagreements(
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
            // Work recorded under a limit has that limit's cost already.
            replay.run_limits(&[own], &new, (seed, limited_scale(own)), running, watch)?
        };
        for run in tried {
            let lines = replay.disagreements(&run.prediction);
            differs.entry(run.outcome.kernel).or_insert(lines);
        }
        for run in runs {
            run.differs = differs.get(&run.outcome.kernel).cloned().unwrap_or_default();
            if !run.differs.is_empty() {
                let (how, lines) = (self.checked_how(), run.differs.join("; "));
                let why = format!("{how} the replay differs from the recording ({lines})");
                run.prediction.mark_unreliable(&why);
            }
        }
        Ok(())
    }

    /// Differences between a replay and the recording beyond the tolerances above, one line for
    /// each, for messages. Compared are CPUs, requests a second and percentiles of latency. Of a
    /// recording under a limit, the whole range of the replay agrees, else only its median; of
    /// latencies always the range.
    fn disagreements(&self, replayed: &Prediction) -> Vec<String> {
        let mut lines = Vec::new();
        let recorded = self.recorded();
        // Under a limit the phase of its periods matters and is unknown: the range counts.
        let is_limited = self.own_limit().limit.quota_ns().is_some();
        let mut compare = |what: &str, was: Option<f64>, is: Option<Ranged<f64>>, share, more| {
            let (Some(was), Some(is)) = (was, is) else { return };
            let near = if is_limited { was.clamp(is.low, is.high) } else { is.value };
            if (was - near).abs() > was.abs() * share + more {
                let (was, is) = (number(was), number(is.value));
                lines.push(format!("{what}: {was} recorded, {is} replayed"));
            }
        };
        // The cost of recording is not in the replay.
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
            // A short recording has few slow requests, so the range counts.
            if was < low * (1.0 - TIMES) - SAME_MS || was > high * (1.0 + TIMES) + SAME_MS {
                let (was, is) = (number(was), number(ms(is.value)));
                lines.push(format!("{name} of {unit}, ms: {was} recorded, {is} replayed"));
            }
        }
        lines
    }
}

/// Factor on the cost of the work in the replay under the recording's own limit: 1, so that
/// throttling does not raise it; `None` without a limit.
fn limited_scale(own: &Try) -> Option<f64> {
    own.limit.quota_ns().map(|_| 1.0)
}

/// Formats a number with three digits, or all before the point.
fn number(value: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().filter(|&&limit| value < limit).count();
    format!("{value:.decimals$}")
}
