//! Judges predictions for one service by the model's own runs of it under the limits.

use crate::plan::Plan;
use crate::record::{Depth, record};
use crate::scenario::GROUP;
use cpumax_forecast::{
    Replay, Request,
    predict::{Prediction, Unit},
};
use cpumax_limit::Limit;
use cpumax_machine::{Options, kernel, run};
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::{Numbered, Recorded, TraceEvent, TraceSink};
use cpumax_recording::{EventCost, Options as Reading, Recording};
use cpumax_study::{Ranged, Running, Try, kernel::Kernel};
use cpumax_workload::Workload;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Number of true runs, one for each seed.
const SEEDS: u64 = 5;
/// Limits, per cent of the CPUs used without a limit.
const LIMITS: [u64; 3] = [130, 100, 70];
/// Smallest quota that the kernel accepts, us.
const LEAST_QUOTA_US: u64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Number {
    Rate,
    /// Median latency of requests, ms.
    P50,
    /// 99th percentile of latencies, ms.
    P99,
    /// Throttled periods, per cent.
    Throttled,
}

impl Number {
    pub const ALL: [Number; 4] = [Number::Rate, Number::P50, Number::P99, Number::Throttled];

    /// Tolerance: a share of the number, plus a constant.
    fn tolerance(self) -> (f64, f64) {
        match self {
            Number::Rate => (0.05, 0.5),
            Number::P50 => (0.10, 0.2),
            Number::P99 => (0.20, 1.0),
            Number::Throttled => (0.0, 5.0),
        }
    }

    fn of_run(self, run: &Outcome) -> f64 {
        let Some(group) = run.groups.get(GROUP) else { return 0.0 };
        match self {
            Number::Rate => group.completions as f64 * 1e9 / run.simulated_ns.max(1) as f64,
            Number::P50 => group.latency_ns.p50 as f64 / 1e6,
            Number::P99 => group.latency_ns.p99 as f64 / 1e6,
            Number::Throttled => 100.0 * group.nr_throttled as f64 / group.nr_periods.max(1) as f64,
        }
    }

    /// The predicted number; `None` if the prediction is not about requests.
    fn of_prediction(self, prediction: &Prediction) -> Option<Ranged<f64>> {
        let latency = || {
            let requests = prediction.latency_of == Unit::Requests;
            prediction.request_latency_ns.filter(|_| requests)
        };
        let ms = |ns: Ranged<u64>| Ranged {
            value: ns.value as f64 / 1e6,
            low: ns.low as f64 / 1e6,
            high: ns.high as f64 / 1e6,
        };
        match self {
            Number::Rate => latency().and(prediction.requests_per_second),
            Number::P50 => latency().map(|latency| ms(latency.p50)),
            Number::P99 => latency().map(|latency| ms(latency.p99)),
            Number::Throttled => prediction.throttled_percent,
        }
    }
}

/// Lowest, median and highest value of a number in the true runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Truth {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

/// A number under a limit, in truth and as predicted.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The limit, per cent of the CPUs used.
    pub limit: u64,
    pub number: Number,
    pub truth: Truth,
    pub told: Option<Ranged<f64>>,
    /// The reason why the prediction is marked as not predictable, if it is.
    pub marked: Option<String>,
}

impl Cell {
    /// Whether the prediction is within tolerance of the range of the true runs.
    pub fn is_right(&self) -> bool {
        let Some(told) = self.told else { return false };
        let near = told.value.clamp(self.truth.low, self.truth.high);
        let (share, more) = self.number.tolerance();
        (told.value - near).abs() <= near.abs() * share + more
    }

    /// Whether the true median lies in the predicted range, widened by 2 % of it and half of the
    /// tolerance's constant.
    pub fn is_in_range(&self) -> bool {
        let Some(told) = self.told else { return false };
        let median = self.truth.median;
        let give = self.number.tolerance().1 / 2.0 + median.abs() / 50.0;
        (told.low - give..=told.high + give).contains(&median)
    }
}

/// The judgement of a recording at one depth.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub depth: Depth,
    pub cells: Vec<Cell>,
    /// The kind of client that the recording is taken for.
    pub clients: Option<String>,
    pub connections: Option<u32>,
    /// Why there is no prediction.
    pub failed: Option<String>,
}

/// A service, and how well it was understood.
#[derive(Debug, Serialize)]
pub struct Judged {
    #[serde(flatten)]
    pub plan: Plan,
    pub cpus_used: f64,
    pub verdicts: Vec<Verdict>,
}

/// Records all events, also messages.
#[derive(Default)]
struct AllEvents(Recorded);

impl TraceSink for AllEvents {
    fn event(&mut self, event: TraceEvent) {
        self.0.event(event);
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.0.name(of, name);
    }

    fn wants_messages(&self) -> bool {
        true
    }
}

/// Runs a drawn service, records it, and judges its replays.
///
/// # Errors
/// The drawn service cannot be run, which is a fault of the draw, or a file cannot be kept.
pub fn judge(plan: Plan, depths: &[Depth], keep: Option<&Path>) -> Result<Judged, String> {
    let of = |what: &str| format!("seed {}: {what}", plan.seed);
    let kernels = kernel::parse_kernels(plan.kernel).map_err(|e| of(&e.to_string()))?;
    let kernel = kernels[0];
    let workload = parse(&plan, None)?;
    let free = runs(&workload, kernel).map_err(|e| of(&e))?;
    let used_ns = free[0].groups.get(GROUP).map_or(0, |group| group.usage_usec * 1000);
    let cpus_used = used_ns as f64 / free[0].simulated_ns.max(1) as f64;
    let mut limits = Vec::new();
    for percent in LIMITS {
        if percent <= 100 && plan.client.is_unreal_when_overloaded() {
            continue;
        }
        let quota_us = (cpus_used * percent as f64 / 100.0 * plan.period_us as f64) as u64;
        let quota_us = quota_us.max(LEAST_QUOTA_US);
        let limited = parse(&plan, Some((quota_us, plan.period_us)))?;
        limits.push((percent, quota_us, runs(&limited, kernel).map_err(|e| of(&e))?));
    }
    let mut everything = AllEvents::default();
    run(&workload, &Options::new(kernel, 1), Some(&mut everything), None)
        .map_err(|e| of(&e.to_string()))?;
    let kept = |name: String, text: &str| match keep {
        Some(folder) => {
            fs::write(folder.join(&name), text).map_err(|e| of(&format!("{name}: {e}")))
        }
        None => Ok(()),
    };
    kept(format!("{}.toml", plan.seed), &plan.scenario(None))?;
    let mut verdicts = Vec::new();
    for &depth in depths {
        let text = record(&plan, &workload, &everything.0, depth);
        let depth_name = if depth == Depth::Sched { "sched" } else { "calls" };
        kept(format!("{}.{depth_name}.txt", plan.seed), &text)?;
        let verdict = replay(&plan, kernel, text.as_bytes(), &limits);
        verdicts.push(verdict.map_or_else(
            |failed| Verdict { failed: Some(failed), ..nothing_told(depth, &limits) },
            |verdict| Verdict { depth, ..verdict },
        ));
    }
    Ok(Judged { plan, cpus_used, verdicts })
}

fn parse(plan: &Plan, limit: Option<(u64, u64)>) -> Result<Workload, String> {
    let name = format!("{}.toml", plan.seed);
    cpumax_workload::parse(&plan.scenario(limit), &name).map_err(|e| e.to_string())
}

fn runs(workload: &Workload, kernel: Kernel) -> Result<Vec<Outcome>, String> {
    let of_seed = |seed| run(workload, &Options::new(kernel, seed), None, None);
    (1..=SEEDS).map(|seed| of_seed(seed).map_err(|e| e.to_string())).collect()
}

/// A limit: per cent of the CPUs used, quota, us, and the true runs under it.
type Limited = (u64, u64, Vec<Outcome>);

fn nothing_told(depth: Depth, limits: &[Limited]) -> Verdict {
    let cells = limits.iter().flat_map(|limit| cells(limit, None)).collect();
    Verdict { depth, cells, clients: None, connections: None, failed: None }
}

fn cells((percent, _, runs): &Limited, prediction: Option<&Prediction>) -> Vec<Cell> {
    let cell = |number: Number| {
        let mut all: Vec<f64> = runs.iter().map(|run| number.of_run(run)).collect();
        all.sort_by(f64::total_cmp);
        let truth = Truth { low: all[0], median: all[all.len() / 2], high: all[all.len() - 1] };
        let told = prediction.and_then(|prediction| number.of_prediction(prediction));
        Cell {
            limit: *percent,
            number,
            truth,
            told,
            marked: prediction.and_then(|prediction| prediction.why_not.clone()),
        }
    };
    Number::ALL.into_iter().map(cell).collect()
}

/// Predicts the limits from the recording, as `cpumax replay` does, but without the costs of
/// recording and of cold caches, which the model does not have.
fn replay(plan: &Plan, kernel: Kernel, text: &[u8], limits: &[Limited]) -> Result<Verdict, String> {
    let reading = Reading { event_cost: Some(EventCost { syscall_ns: 0, other_ns: 0 }) };
    let recording = Recording::read_bytes("recording", text, reading).map_err(|e| e.to_string())?;
    let tried = |(_, quota_us, _): &Limited| {
        let set = format!("{quota_us} {}", plan.period_us);
        Try::parse(&set).map_err(|e| e.to_string())
    };
    let request = Request {
        group: vec!["comm:srv*".parse().map_err(|e| format!("{e}"))?],
        limits: limits.iter().map(tried).collect::<Result<_, String>>()?,
        scale_work: Some(1.0),
        ..Request::default()
    };
    let replay = Replay::new("recording", &recording, &request).map_err(|e| e.to_string())?;
    let running = Running { threads: Some(1), ..Running::default() };
    let runs = replay.runs(&[kernel], 1, &running, &()).map_err(|e| e.to_string())?;
    let limited = runs.iter().filter(|run| run.limit.limit != Limit::UNLIMITED);
    let cells =
        limits.iter().zip(limited).flat_map(|(limit, run)| cells(limit, Some(&run.prediction)));
    let service = replay.service();
    Ok(Verdict {
        depth: Depth::Sched,
        cells: cells.collect(),
        clients: service.map(|one| {
            let sure = if one.sure { "" } else { ", unsure" };
            format!("{:?}{sure}", one.clients).to_lowercase()
        }),
        connections: service.map(|one| one.connections),
        failed: None,
    })
}
