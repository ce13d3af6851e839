//! Whether a replay without a limit shows what was recorded: where it does not, neither do the
//! replays with one, and that has to be said first.

use super::Replay;
use crate::predict::{Prediction, Ranged};
use cpumax_recording::Waits;

/// A share by which CPUs may differ, and one by which times and rates may.
const CPUS: f64 = 0.05;
const TIMES: f64 = 0.2;
/// Latencies that differ by less are as good as the same, ms.
const SAME_MS: f64 = 0.3;

impl Replay {
    /// Where a replay without a limit differs from what was recorded, and why if that is known; in
    /// words, one line for each.
    pub fn disagreements(&self, unlimited: &Prediction) -> Vec<String> {
        let mut lines = Vec::new();
        if self.scale.is_some() || self.load.is_some() {
            return lines;
        }
        let recorded = self.recorded();
        let mut compare = |what: &str, was: Option<f64>, is: Option<f64>, share: f64, more: f64| {
            let (Some(was), Some(is)) = (was, is) else { return };
            if (was - is).abs() > was.abs() * share + more {
                lines.push(format!("{what}: {} recorded, {} replayed", number(was), number(is)));
            }
        };
        let value = |ranged: Option<Ranged<f64>>| ranged.map(|ranged| ranged.value);
        // What went into the recording is not in the replay.
        compare("CPUs", Some(self.mean_cpus()), value(unlimited.cpus), CPUS, 0.005);
        let (was, is) = (recorded.requests_per_second, unlimited.requests_per_second);
        compare("requests a second", value(was), value(is), TIMES, 0.0);
        let unit = self.unit.name();
        let (Some(was), Some(is)) = (recorded.request_latency_ns, unlimited.request_latency_ns)
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
        if !lines.is_empty() {
            lines.extend(self.unknown_waits());
        }
        lines
    }

    /// How many waits of the limited threads are not known, if they are too many to say anything.
    pub(crate) fn unknown_waits(&self) -> Option<String> {
        let Waits { all, unknown, .. } = self.waits;
        (!self.waits.are_known()).then(|| {
            format!(
                "of {unknown} of {all} waits of the limited threads it is not known when they \
                 ended: record sched:sched_waking on all CPUs"
            )
        })
    }
}

/// Three digits.
fn number(value: f64) -> String {
    let decimals = [100.0, 10.0, 1.0].iter().filter(|&&limit| value < limit).count();
    format!("{value:.decimals$}")
}
