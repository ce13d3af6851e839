//! The numbers of one run, or of the recording itself.

use super::{Over, Unit};
use cpumax_machine::Watched;
use cpumax_outcome::permille;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the load was active, ns since the start.
pub use cpumax_recording::Window;

/// The numbers of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// CPUs kept busy.
    pub cpus: f64,
    /// Periods that ended throttled, of a hundred; `None` where that is not known.
    pub throttled_percent: Option<f64>,
    /// Throttled periods, of a hundred, of the group above that was throttled most.
    #[serde(skip)]
    pub above_percent: f64,
    /// Requests answered, or bursts completed.
    #[serde(skip)]
    pub answered: usize,
    /// Requests answered a second; `None` where bursts are counted.
    pub requests_per_second: Option<f64>,
    /// p50, p90, p95, p99 and p99.9 of latencies, ns.
    pub latency_ns: Option<[u64; 5]>,
    /// Share of latencies above the threshold of `--over`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over<f64>>,
    /// Time until the work was done, ns; `None` if it was not.
    pub takes_ns: Option<u64>,
}

impl Sample {
    /// The numbers of a watched run whose load began at `from_ns`. Latencies above `over_ns` are
    /// counted. Requests still under way count as latencies where they are long and the work was
    /// not done.
    pub(crate) fn of_run(
        watched: Watched,
        from_ns: u64,
        unit: Unit,
        over_ns: Option<u64>,
    ) -> Sample {
        let length_ns = watched.until_ns.saturating_sub(from_ns);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let answered = watched.latencies_ns.len() as u64;
        let under_way_ns = if watched.done { Vec::new() } else { watched.under_way_ns };
        let latencies = sorted(watched.latencies_ns, &under_way_ns);
        Sample {
            cpus: share(watched.usage_ns, length_ns),
            throttled_percent: Some(100.0 * share(watched.nr_throttled, watched.nr_periods)),
            above_percent: 0.0,
            answered: answered as usize,
            requests_per_second: of_requests(unit, answered, length_ns),
            latency_ns: points(&latencies),
            over: over(&latencies, over_ns),
            takes_ns: watched.done.then_some(length_ns),
        }
    }

    /// The sample of the recording: CPU time and latencies within its window.
    pub(crate) fn of_recording(
        cpu_ns: u64,
        latencies_ns: Vec<u64>,
        window: Window,
        unit: Unit,
        over_ns: Option<u64>,
    ) -> Sample {
        let length_ns = window.length_ns();
        let answered = latencies_ns.len() as u64;
        let latencies = sorted(latencies_ns, &[]);
        Sample {
            cpus: cpu_ns as f64 / length_ns as f64,
            throttled_percent: None,
            above_percent: 0.0,
            answered: answered as usize,
            requests_per_second: of_requests(unit, answered, length_ns),
            latency_ns: points(&latencies),
            over: over(&latencies, over_ns),
            takes_ns: (unit == Unit::Bursts).then_some(length_ns),
        }
    }
}

/// Requests a second over `length_ns`; `None` for bursts.
fn of_requests(unit: Unit, answered: u64, length_ns: u64) -> Option<f64> {
    (unit == Unit::Requests).then(|| answered as f64 * 1e9 / length_ns.max(1) as f64)
}

/// Latencies, ascending. A request still under way at the end has at least the latency of its wait
/// so far. It counts where that exceeds p99 of the answered ones, as the longest requests end last.
fn sorted(mut answered_ns: Vec<u64>, under_way_ns: &[u64]) -> Vec<u64> {
    answered_ns.sort_unstable();
    let longest_ns = *permille(&answered_ns, 990).unwrap_or(&0);
    let before = answered_ns.len();
    answered_ns.extend(under_way_ns.iter().filter(|ns| **ns > longest_ns));
    if answered_ns.len() > before {
        answered_ns.sort_unstable();
    }
    answered_ns
}

/// p50, p90, p95, p99 and p99.9 of ascending latencies, ns; `None` if there are none.
fn points(latencies_ns: &[u64]) -> Option<[u64; 5]> {
    let at = |of_a_thousand| permille(latencies_ns, of_a_thousand).copied();
    Some([at(500)?, at(900)?, at(950)?, at(990)?, at(999)?])
}

/// Per cent of the ascending latencies above `than_ns`; `None` without a threshold or latencies.
fn over(latencies_ns: &[u64], than_ns: Option<u64>) -> Option<Over<f64>> {
    let than_ns = than_ns?;
    let longer = latencies_ns.len() - latencies_ns.partition_point(|ns| *ns <= than_ns);
    let percent =
        (!latencies_ns.is_empty()).then(|| 100.0 * longer as f64 / latencies_ns.len() as f64)?;
    Some(Over { than_ns, percent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_under_way_at_the_end_count() {
        let answered: Vec<u64> = (1..=98).collect();
        let told = |under_way: &[u64]| points(&sorted(answered.clone(), under_way));
        assert_eq!(told(&[]), Some([49, 89, 94, 98, 98]));
        assert_eq!(told(&[5, 40]), Some([49, 89, 94, 98, 98]));
        assert_eq!(told(&[500, 400]), Some([50, 90, 95, 400, 500]));
        assert_eq!(points(&sorted(Vec::new(), &[])), None);
        assert_eq!(points(&sorted(Vec::new(), &[7])), Some([7; 5]));
        let longer = over(&sorted(answered, &[500, 400]), Some(97)).unwrap();
        assert_eq!((longer.than_ns, longer.percent), (97, 3.0));
    }
}
