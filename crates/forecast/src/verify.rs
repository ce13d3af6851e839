//! Compares a prediction with the counters of a limit that is in force.
//!
//! Counters tell CPU time and throttled periods, but no latency. A number came true where its
//! predicted range and the interval of the measurement overlap.
//!
//! ```
//! use cpumax_forecast::predict::Prediction;
//! use cpumax_forecast::saved::{Predicted, Saved};
//! use cpumax_forecast::verify::verify;
//! use cpumax_observed::counters::{Moment, Observed};
//! use cpumax_study::limit::{CpuStat, Limit};
//! use cpumax_study::{Ranged, Try, outcome::Histogram};
//!
//! let ranged = |value, low, high| Some(Ranged { value, low, high });
//! let predicted = Predicted {
//!     recording: "web.data".to_owned(),
//!     limit: Try::parse("500m")?,
//!     role: None,
//!     kernel: "6.18".to_owned(),
//!     prediction: Prediction {
//!         cpus: ranged(0.5, 0.4, 0.5),
//!         throttled_percent: ranged(60.0, 50.0, 70.0),
//!         ..Prediction::default()
//!     },
//!     latencies: Histogram::default(),
//!     held: Vec::new(),
//!     trace: None,
//! };
//! let saved = Saved { recordings: Vec::new(), runs: vec![predicted], advice: None };
//! let moment = |at_ns, nr_periods, nr_throttled| Moment {
//!     at_ns,
//!     usage_ns: Some(at_ns / 2),
//!     stat: Some(CpuStat { nr_periods, nr_throttled, ..CpuStat::default() }),
//!     ..Moment::default()
//! };
//! let observed = Observed {
//!     name: "/web".to_owned(),
//!     limit: Limit::new(Some(50_000_000), 100_000_000, 0).ok(),
//!     kernel: None,
//!     cpus: None,
//!     above: None,
//!     moments: vec![moment(0, 0, 0), moment(10_000_000_000, 100, 55)],
//! };
//! assert!(verify(&saved, &observed, None, 1)?.passed());
//! # Ok::<(), cpumax_study::Error>(())
//! ```

use crate::advise::{Goal, Measure};
use crate::predict::Prediction;
use crate::saved::{Predicted, Saved};
use cpumax_limit::Limit;
use cpumax_machine::kernel::{self, Kernel, Version};
use cpumax_machine::named::Taken;
use cpumax_observed::counters::{Delta, Observed, interval};
use cpumax_study::{Error, Ranged, Try, answer::Answer, world::OwnKernel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The share of throttled periods needs at least this many periods.
pub const LEAST_PERIODS: u64 = 20;
/// Relative error of a counter that is read a little early or late.
const READ_LATE: f64 = 0.005;

/// A prediction compared with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// The group, or the container.
    pub group: String,
    /// The limit in force.
    #[serde(flatten)]
    pub limit: Limit,
    /// Release of the running kernel; null if it is not known.
    pub kernel: Option<String>,
    /// The kernel of the prediction.
    pub predicted_for: String,
    /// The recording of the prediction.
    pub recording: String,
    /// Time of the measurement, ns.
    pub watched_ns: u64,
    /// Periods that passed while the group had something to run.
    pub nr_periods: u64,
    /// Numbers that were predicted and measured.
    pub numbers: Vec<Number>,
    /// Predicted numbers that counters do not show.
    pub not_told: Vec<String>,
    /// Other measured numbers: not predicted, or of a different meaning on each kernel.
    pub beside: Vec<Beside>,
    /// Notes, in sentences.
    pub notes: Vec<String>,
}

/// A number that was predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Number {
    /// The number.
    pub what: What,
    /// Its prediction.
    pub predicted: Option<Ranged<f64>>,
    /// Upper bound, where the question set one.
    pub at_most: Option<f64>,
    /// The measurement, with its 95 % interval.
    pub measured: Ranged<f64>,
    /// Whether it came true.
    pub came_true: bool,
}

/// Numbers that counters show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// CPUs kept busy.
    Cpus,
    /// Throttled periods of a hundred.
    ThrottledPercent,
}

/// Another measured number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Beside {
    /// Its name and unit.
    pub what: String,
    /// Its value.
    pub value: f64,
    /// Its meaning on the running kernel.
    pub means: String,
}

impl Answer for Verified {
    const KIND: &'static str = "verification";
}

impl Verified {
    /// Whether every measured number came true: within its range and below its bound, where it has
    /// one.
    pub fn passed(&self) -> bool {
        self.numbers.iter().all(|number| number.came_true)
    }
}

/// Compares the observed counters with the study's prediction of the limit in force. Of several
/// kernels in the study, the named one counts, else the one that behaves like the running one.
/// `seed` draws the intervals of the measurement.
///
/// # Errors
/// The study has no prediction of that limit or kernel, or too few periods passed.
pub fn verify(
    saved: &Saved,
    observed: &Observed,
    kernel: Option<&str>,
    seed: u64,
) -> Result<Verified, Error> {
    let unknown = |what: &str| Error::Question(format!("{}: {what}", observed.name));
    let limit = observed.limit.ok_or_else(|| {
        unknown(
            "its limit is missing in the scrapes (kube-prometheus-stack leaves it out): take them \
                 from the kubelet itself",
        )
    })?;
    let runs = runs_of_limit(saved, observed, limit)?;
    let running = observed.kernel.as_ref().map(|kernel| kernel.taken().kernel);
    let run = run_of_kernel(&runs, running, kernel)?;
    let whole = observed.whole();
    let periods = whole.periods.ok_or_else(|| unknown("its number of periods is missing"))?;
    if periods.nr_periods < LEAST_PERIODS {
        return Err(unknown(&format!(
            "only {} periods passed while it had something to run: watch for longer under load, \
             for at least {LEAST_PERIODS} such periods",
            periods.nr_periods
        )));
    }
    let numbers = numbers(run, &observed.deltas(), seed);
    if numbers.is_empty() {
        return Err(unknown("the study predicts neither CPUs nor throttled periods of this limit"));
    }
    Ok(Verified {
        group: observed.name.clone(),
        limit,
        kernel: observed.kernel.as_ref().map(|kernel| kernel.release.clone()),
        predicted_for: run.kernel.clone(),
        recording: run.recording.clone(),
        watched_ns: whole.length_ns,
        nr_periods: periods.nr_periods,
        notes: notes(run, &numbers, saved, observed),
        not_told: not_told(run),
        beside: beside(&whole, running),
        numbers,
    })
}

/// The study's runs under the observed limit, of one recording: those with the limit of the pod
/// above, where the study has that, else those that set no other limit.
///
/// # Errors
/// The group has no limit, the study does not predict this one, or it does for several recordings.
fn runs_of_limit<'a>(
    saved: &'a Saved,
    observed: &Observed,
    limit: Limit,
) -> Result<Vec<&'a Predicted>, Error> {
    let name = &observed.name;
    if limit.quota_ns().is_none() {
        let what = "it has no limit, so no period is throttled: apply one first";
        return Err(Error::Question(format!("{name}: {what}")));
    }
    let under = |pod: Option<Limit>| {
        let is_it = |run: &&Predicted| {
            let Try { limit: own, pod: above, beside, .. } = &run.limit;
            *own == limit && above.map(|above| above.limit) == pod && beside.is_empty()
        };
        saved.runs.iter().filter(is_it).collect::<Vec<_>>()
    };
    let pod = observed.above.as_ref().map(|above| above.limit);
    let mut runs = pod.map(|pod| under(Some(pod))).unwrap_or_default();
    if runs.is_empty() {
        runs = under(None);
    }
    if runs.is_empty() {
        let limits: BTreeSet<String> = saved.runs.iter().map(|run| told(&run.limit)).collect();
        let limits: Vec<String> = limits.into_iter().collect();
        let in_pod = pod.map(|pod| format!(" in a pod with {pod}")).unwrap_or_default();
        return Err(Error::Question(format!(
            "{name} has the limit {}{in_pod}, but the study predicts {}: apply one of these, or \
             replay the recording with this one",
            with_burst(&limit),
            limits.join(", ")
        )));
    }
    let recordings: BTreeSet<&str> = runs.iter().map(|run| run.recording.as_str()).collect();
    if recordings.len() > 1 {
        let names: Vec<&str> = recordings.into_iter().collect();
        return Err(Error::Question(format!(
            "the study predicts this limit for several recordings ({}): give a study of the one \
             recording whose load this is",
            names.join(", ")
        )));
    }
    Ok(runs)
}

/// A limit of a study with the other limits that go with it, for messages.
fn told(of: &Try) -> String {
    let pod = of.pod.map(|pod| format!(" in a pod with {}", pod.limit)).unwrap_or_default();
    let beside = of.beside.iter().map(|one| format!(" and {} for {}", one.share.limit, one.path));
    with_burst(&of.limit) + &pod + &beside.collect::<String>()
}

/// A limit in the form of `cpu.max` with its burst, if any, for messages.
fn with_burst(limit: &Limit) -> String {
    let burst_us = limit.burst_ns() / 1_000;
    if burst_us > 0 { format!("{limit} with a burst of {burst_us} us") } else { limit.to_string() }
}

/// The prediction for the named kernel; else for the running version, or one of its generation. An
/// error lists the kernels of the study where none is meant, or several are.
fn run_of_kernel<'a>(
    runs: &[&'a Predicted],
    running: Option<Kernel>,
    named: Option<&str>,
) -> Result<&'a Predicted, Error> {
    let kernels = || {
        let names: BTreeSet<&str> = runs.iter().map(|run| run.kernel.as_str()).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    if let Some(named) = named {
        let run = runs.iter().find(|run| run.kernel == named);
        return run.copied().ok_or_else(|| {
            let named = cpumax_limit::one_line(named);
            Error::Question(format!("the study has no kernel {named}: give one of {}", kernels()))
        });
    }
    let alone = runs.iter().all(|run| run.kernel == runs[0].kernel);
    let Some(running) = running else {
        let what = "the running kernel is not known, and the study has several";
        let several = || Error::Question(format!("{what} ({}): name one by --kernel", kernels()));
        return alone.then_some(runs[0]).ok_or_else(several);
    };
    let modelled = |run: &&&Predicted| kernel::parse_kernels(&run.kernel).ok()?.first().copied();
    let same = runs
        .iter()
        .find(|run| modelled(run).is_some_and(|kernel| kernel.version == running.version));
    let alike = || {
        runs.iter()
            .find(|run| modelled(run).is_some_and(|kernel| kernel.generation == running.generation))
    };
    same.or_else(alike).copied().ok_or_else(|| {
        Error::Question(format!(
            "this kernel behaves like {} ({}), but the study predicts for {}: make it again with \
             --kernel {}, or name one of these by --kernel",
            running.version,
            running.generation,
            kernels(),
            running.version
        ))
    })
}

/// Numbers that were measured and either predicted or asked for: CPUs, and throttled periods of a
/// hundred.
fn numbers(run: &Predicted, deltas: &[Delta], seed: u64) -> Vec<Number> {
    let Prediction { cpus, throttled_percent, .. } = &run.prediction;
    let all = |pair: fn(&Delta) -> Option<(f64, f64)>| -> Option<Vec<(f64, f64)>> {
        deltas.iter().map(pair).collect()
    };
    let mut numbers = Vec::new();
    let used = all(Delta::used).and_then(|used| interval(&used, seed));
    if let Some(measured) = used.filter(|_| cpus.is_some()) {
        numbers.push(Number::of(What::Cpus, *cpus, None, measured, 0.0));
    }
    let asked = run.held.iter().find(|held| held.measure == Measure::ThrottledPercent);
    let at_most = asked.map(|held| held.bound);
    let throttled = all(Delta::throttled).unwrap_or_default();
    let is_of_interest = throttled_percent.is_some() || at_most.is_some();
    if let Some(measured) = interval(&throttled, seed).filter(|_| is_of_interest) {
        // A period may end just before or after it is read.
        let periods: f64 = throttled.iter().map(|(_, periods)| periods).sum();
        let one = 100.0 / periods.max(1.0);
        let what = What::ThrottledPercent;
        numbers.push(Number::of(what, *throttled_percent, at_most, measured, one));
    }
    numbers
}

impl Number {
    /// A measured number beside its prediction and its bound. It came true if the ranges meet and
    /// the bound holds, give or take `slack` and what late readings of counters cost.
    fn of(
        what: What,
        predicted: Option<Ranged<f64>>,
        at_most: Option<f64>,
        measured: Ranged<f64>,
        slack: f64,
    ) -> Number {
        let Ranged { value, low, high } = measured;
        let slack = slack + READ_LATE * value.abs();
        let in_range = predicted
            .is_none_or(|predicted| low - slack <= predicted.high && high + slack >= predicted.low);
        let kept = at_most.is_none_or(|at_most| value <= at_most + slack);
        Number { what, predicted, at_most, measured, came_true: in_range && kept }
    }
}

/// Names of predicted numbers that counters do not show.
fn not_told(run: &Predicted) -> Vec<String> {
    let Prediction { request_latency_ns, requests_per_second, work_takes_ns, .. } = &run.prediction;
    let unit = run.prediction.latency_of.name();
    let mut all = Vec::new();
    if request_latency_ns.is_some() {
        all.push(format!("p50, p90 and p99 of {unit}"));
    }
    if requests_per_second.is_some() {
        all.push("requests answered a second".to_owned());
    }
    if work_takes_ns.is_some() {
        all.push("how long the work takes".to_owned());
    }
    all
}

/// Time throttled, periods with a burst and waits for a CPU, where they were measured, with what
/// they mean on the running kernel; see docs/guide/verify.md.
fn beside(whole: &Delta, running: Option<Kernel>) -> Vec<Beside> {
    let seconds = whole.length_ns.max(1) as f64 / 1e9;
    let since = |major, minor| running.is_some_and(|k| k.version >= Version { major, minor });
    let throttled_means = match running {
        None => "summed over CPUs; what it counts depends on the kernel",
        Some(_) if since(6, 18) => {
            "summed over CPUs, from the moment the first thread there is stopped"
        }
        Some(_) if since(6, 6) => "summed over CPUs, while something is queued there",
        Some(_) => "summed over CPUs, from throttling to release, whether or not anything waits",
    };
    let throttled = whole.throttled_ns.map(|ns| Beside {
        what: "time throttled in a second, s".to_owned(),
        value: ns as f64 / 1e9 / seconds,
        means: throttled_means.to_owned(),
    });
    let mut all: Vec<Beside> = throttled.into_iter().collect();
    if let Some(periods) = whole.periods.filter(|periods| periods.nr_bursts > 0) {
        all.push(Beside {
            what: "periods with a burst, %".to_owned(),
            value: periods.nr_bursts as f64 * 100.0 / periods.nr_periods.max(1) as f64,
            means: "of those that passed while it had something to run".to_owned(),
        });
    }
    if let Some(waited_ns) = whole.waited_ns {
        all.push(Beside {
            what: "time in which a thread waited for a CPU, %".to_owned(),
            value: waited_ns as f64 * 100.0 / whole.length_ns.max(1) as f64,
            means: "PSI: whether for the limit or for other threads is unknown".to_owned(),
        });
    }
    all
}

/// Sentences for the user: on a different load, missing counters, the pod's limit, an unreliable
/// prediction, gaps of the recording and another kernel.
fn notes(run: &Predicted, numbers: &[Number], saved: &Saved, observed: &Observed) -> Vec<String> {
    let mut notes = Vec::new();
    let cpus = numbers.iter().find(|number| number.what == What::Cpus);
    let off = cpus.filter(|number| !number.came_true);
    match off.and_then(|number| Some((number.measured, number.predicted?))) {
        Some((measured, predicted)) if measured.high < predicted.low => notes.push(
            "The service used fewer CPUs than predicted: it had less to do than in the recording, \
             so fewer of its periods are throttled."
                .to_owned(),
        ),
        Some(_) => notes.push(
            "The service used more CPUs than predicted: it had more to do than in the recording, \
             or its work costs more on this machine. `--load` and `--scale-work` predict that."
                .to_owned(),
        ),
        None if observed.whole().usage_ns.is_none() => notes.push(
            "CPU time is missing there, so it is unknown whether the load is that of the \
             recording."
                .to_owned(),
        ),
        None => {}
    }
    if observed.whole().throttled_ns.is_none() {
        notes.push("The time throttled is missing there.".to_owned());
    }
    if let Some(above) = observed.above.as_ref().filter(|above| above.periods.nr_throttled > 0) {
        notes.push(above.note());
    }
    if !run.prediction.predictable {
        let why = run.prediction.why_not.as_deref().unwrap_or("its range is not known");
        notes.push(format!("This prediction was marked as not reliable: {why}."));
    }
    let of_it = saved.recordings.iter().filter(|recorded| recorded.name == run.recording);
    for gap in of_it.flat_map(|recorded| &recorded.gaps) {
        notes.push(format!("Of the recording: {}", gap.told));
    }
    let asked_of_latency =
        |goal: &Goal| matches!(goal, Goal::P50(_) | Goal::P99(_) | Goal::Slower(_));
    if saved.advice.as_ref().is_some_and(|advice| advice.asked.iter().any(asked_of_latency)) {
        notes.push("Counters show no latencies: measure those at the service.".to_owned());
    }
    let Some(Taken { kernel, why }) = observed.kernel.as_ref().map(OwnKernel::taken) else {
        return notes;
    };
    if kernel.version.to_string() != run.kernel {
        notes.push(format!(
            "The prediction is for {}, and the service runs on {}, which behaves alike or was \
             said to.",
            run.kernel, kernel.version
        ));
    }
    notes.extend(why.map(|why| format!("{why}.")));
    notes
}

#[cfg(test)]
mod tests;
