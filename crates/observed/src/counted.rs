//! Statements about limits from counters alone, without a recording or a model: usage and throttled
//! periods, never a latency. Results of services fitted to the same counters ([`crate::fitted`])
//! are added.
//!
//! While a group is not throttled, its usage in one period is its demand. A limit below the mean is
//! too small in any case. The periods that another limit would throttle lie between two bounds. For
//! the lower one, work that does not fit is gone with its period (clients that wait ask less). For
//! the upper one, all of it adds to the next period (arrivals do not slow down) and each CPU
//! strands a slice. Both bounds are taken at the phase of periods that is the extreme for them.
//!
//! ```
//! use cpumax_observed::counted::{Asked, counted};
//! use cpumax_observed::counters::{AllowedCpus, Moment, Observed};
//! use cpumax_study::limit::{CpuStat, Limit};
//!
//! let moment = |at: u64| Moment {
//!     at_ns: at * 20_000_000,
//!     usage_ns: Some(at * 10_000_000),
//!     stat: Some(CpuStat::default()),
//!     ..Moment::default()
//! };
//! let moments = (0..=400).map(moment).collect();
//! let name = "/web".to_owned();
//! let limit = Some(Limit::UNLIMITED);
//! let cpus = Some(AllowedCpus { count: 2, told_by: "cpuset.cpus.effective".to_owned() });
//! let observed = Observed { name, limit, kernel: None, cpus, above: None, moments };
//! let asked = Asked {
//!     period_ns: 100_000_000,
//!     throttled: Some(5.0),
//!     current: None,
//!     not_told: Vec::new(),
//!     seed: 1,
//! };
//! let told = counted(&observed, &asked)?;
//! assert_eq!(told.cpus.value, 0.5);
//! assert!(told.enough > Some(500) && told.limits[0].too_small);
//! # Ok::<(), cpumax_study::Error>(())
//! ```

use crate::counters::{Above, AllowedCpus, Delta, Observed, in_periods, interval};
use crate::fitted::Fit;
use cpumax_limit::Limit;
use cpumax_study::{Error, Ranged, answer::Answer};
use schemars::JsonSchema;
use serde::Serialize;

/// Runtime that a CPU takes from the pool at once and may keep unused, ns (kernel:
/// `sched_cfs_bandwidth_slice_us`).
const SLICE_NS: f64 = 5e6;
/// A reading of usage misses the time since the last tick of each CPU, ns: at most one tick at 250
/// a second.
const READ_OFF_NS: f64 = 4e6;
/// Stands for an unknown number of CPUs: more than any kernel is built for.
const CPUS_UNKNOWN: usize = 1 << 16;
/// The share of throttled periods needs usage of at least this many periods.
pub const LEAST_PERIODS: usize = 20;
/// Readings that a period needs for its usage to be known.
const READINGS_MIN: f64 = 2.0;
/// Limits that are judged besides the given one, as multiples of the mean usage.
const LADDER: [f64; 8] = [0.9, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0];
/// Limits that are judged as well, as multiples of the present limit.
const ABOVE: [f64; 5] = [1.0, 1.25, 1.5, 2.0, 3.0];
/// Where no goal is given, a limit that throttles a larger share of periods (per cent) is too
/// small.
const THROTTLED_MOST: f64 = 5.0;

/// Answers from counters.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Counted {
    /// The group, or the container.
    pub group: String,
    /// Content of its `cpu.max`; null if unknown.
    pub cpu_max: Option<String>,
    /// Time of observation, ns.
    pub watched_ns: u64,
    /// Number of readings.
    pub readings: usize,
    /// CPUs that it kept busy, on average.
    pub cpus: Ranged<f64>,
    /// The CPUs that it may run on, where known: each may strand a slice, and be read off by a
    /// tick.
    pub may_run_on: Option<AllowedCpus>,
    /// Throttled periods of a hundred under its present limit, where it has one.
    pub throttled_percent: Option<Ranged<f64>>,
    /// CPU time used in intervals as long as a period, us: least, deciles, most; empty where
    /// readings are too far apart.
    pub usage_usec: Vec<u64>,
    /// Limits, each with its bounds.
    pub limits: Vec<Judged>,
    /// The smallest limit, thousandths of a CPU, that surely keeps the goal of throttled periods
    /// or, with a fit, of p99; null if there is none.
    pub enough: Option<u64>,
    /// Results of services that reproduce the counters; null without a limit, or if no services do.
    pub fit: Option<Fit>,
    /// Parts of the question that counters do not answer.
    pub not_told: Vec<String>,
    /// Notes, in sentences.
    pub notes: Vec<String>,
}

impl Counted {
    /// Why no services were fitted; `None` where some were, or were not asked for.
    pub fn why_no_fit(&self) -> Option<&str> {
        self.notes.iter().find_map(|note| note.strip_prefix(NO_FIT))
    }

    /// Adds the results of fitted services, or a note on why none were fitted. p99 counts as
    /// answered only where the present p99 is known.
    #[must_use]
    pub fn with_fit(mut self, fit: Result<Fit, String>) -> Counted {
        match fit {
            Ok(fit) => {
                self.notes.retain(|note| note != CENSORED && !note.starts_with(TOO_SELDOM));
                self.enough = self.enough.or(fit.enough);
                if fit.p99_now_ns.is_some() {
                    self.not_told.retain(|asked| asked != P99);
                }
                self.fit = Some(fit);
            }
            Err(why) => self.notes.push(format!("{NO_FIT}{why}.")),
        }
        self
    }
}

const P99: &str = "--p99";
/// A note that begins so tells why.
const NO_FIT: &str = "No services were fitted to the counters: ";
/// The note on a throttled group, whose usage is less than its demand.
const CENSORED: &str = "The group was throttled, so it needs more than it used, and how much is \
                        unknown: no larger limit can be judged. Raise or lift the limit for a \
                        while, or record.";

/// A note that begins so says that no bounds are made, which fitted services do without.
const TOO_SELDOM: &str = "Counters were read too seldom to see single periods";

impl Answer for Counted {
    const KIND: &'static str = "counters";
}

/// A limit and its bounds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Judged {
    /// Content of `cpu.max` for it.
    pub cpu_max: String,
    /// Thousandths of a CPU.
    pub millicpus: u64,
    /// It gives less than the mean usage, so the service falls behind or its clients ask less. Or
    /// it is at most the present limit, and that throttles too often.
    pub too_small: bool,
    /// Throttled periods of a hundred, measured, where it is the present limit.
    pub measured_percent: Option<Ranged<f64>>,
    /// The least and the most throttled periods of a hundred, from the lower end of one 95 %
    /// interval to the upper end of the other; null where readings are too far apart.
    pub throttled_percent: Option<Bounds>,
}

/// A lower and an upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Bounds {
    /// Lower bound.
    pub least: f64,
    /// Upper bound.
    pub most: f64,
}

/// The question put to counters.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Length of a period, ns.
    pub period_ns: u64,
    /// The most throttled periods of a hundred that are accepted.
    pub throttled: Option<f64>,
    /// A limit to judge as well; it counts as the present one where that is unknown.
    pub current: Option<Limit>,
    /// Options of the question that counters cannot answer.
    pub not_told: Vec<String>,
    /// Seed of the intervals.
    pub seed: u64,
}

/// Answers the question from observed counters: use of CPUs, throttled periods, and bounds of
/// throttled periods for each limit of a ladder.
///
/// # Errors
/// Usage is unknown or 0, or no time passed.
pub fn counted(observed: &Observed, asked: &Asked) -> Result<Counted, Error> {
    let deltas = observed.deltas();
    let used: Option<Vec<(f64, f64)>> = deltas.iter().map(Delta::used).collect();
    let nothing = |what: &str| Error::Question(format!("{}: {what}", observed.name));
    let used = used.ok_or_else(|| nothing("its CPU time is missing"))?;
    let cpus = interval(&used, asked.seed).ok_or_else(|| nothing("no time passed"))?;
    if cpus.value <= 0.0 {
        return Err(nothing("it used no CPU time: read it while it has its load"));
    }
    let may_run_on = observed.cpus.as_ref();
    let count = may_run_on.map_or(CPUS_UNKNOWN, |cpus| cpus.count);
    let periods = Periods::of(&used, asked.period_ns, count);
    let whole = observed.whole();
    let present = Present::of(observed, asked, &deltas);
    let mut limits: Vec<Limit> = LADDER
        .iter()
        .filter_map(|times| {
            Limit::of_millicpus((cpus.value * times * 1e3).round() as u64, asked.period_ns)
        })
        .chain(present.ladder())
        .chain(asked.current)
        .collect();
    limits.sort_by_key(|limit| (limit.millicpus(), limit.period_ns()));
    limits.dedup();
    let judge = |limit: Limit| judged(limit, &cpus, periods.as_ref(), (asked, &present));
    let is_censored = present.is_throttled || observed.above.as_ref().is_some_and(is_throttled);
    let enough = asked.throttled.filter(|_| !is_censored);
    Ok(Counted {
        group: observed.name.clone(),
        cpu_max: present.limit.map(|limit| limit.to_string()),
        watched_ns: whole.length_ns,
        readings: observed.moments.len(),
        cpus,
        may_run_on: may_run_on.cloned(),
        throttled_percent: present.throttled,
        usage_usec: periods.as_ref().map(Periods::deciles).unwrap_or_default(),
        limits: limits.into_iter().filter_map(judge).collect(),
        enough: enough.and_then(|most| enough_for(most, &cpus, periods.as_ref()?, asked)),
        fit: None,
        not_told: asked.not_told.clone(),
        notes: notes(observed, &present, periods.as_ref(), asked),
    })
}

/// The present limit of the group, and its effect.
struct Present {
    /// `None` if unknown.
    limit: Option<Limit>,
    throttled: Option<Ranged<f64>>,
    is_throttled: bool,
}

impl Present {
    /// The observed limit, or else the one given by the user, with its share of throttled periods,
    /// whose interval is drawn by the seed.
    fn of(observed: &Observed, asked: &Asked, deltas: &[Delta]) -> Present {
        let limit = observed.limit.or(asked.current);
        let is_limited = limit.is_none_or(|limit| limit.quota_ns().is_some());
        let all: Option<Vec<(f64, f64)>> = deltas.iter().map(Delta::throttled).collect();
        let throttled = all.and_then(|all| interval(&all, asked.seed)).filter(|_| is_limited);
        Present { limit, throttled, is_throttled: throttled.is_some_and(|share| share.value > 0.0) }
    }

    /// The present limit and multiples of it up to three times; nothing where it is unlimited or
    /// unknown.
    fn ladder(&self) -> impl Iterator<Item = Limit> {
        let limited = self.limit.filter(|limit| limit.quota_ns().is_some());
        let above = |present: Limit| {
            let times = move |times: &f64| {
                let millicpus = (present.millicpus()? as f64 * times).round() as u64;
                if *times > 1.0 {
                    Limit::of_millicpus(millicpus, present.period_ns())
                } else {
                    Some(present)
                }
            };
            ABOVE.iter().filter_map(times)
        };
        limited.into_iter().flat_map(above)
    }

    /// Whether `limit` gives at most as many CPUs as this one, so that it throttles at least as
    /// often; false if either has no quota or is unknown.
    fn is_no_less_than(&self, limit: Limit) -> bool {
        let own = self.limit.and_then(|own| own.cpus());
        limit.cpus().zip(own).is_some_and(|(limit, own)| limit <= own)
    }
}

/// Whether a group above was throttled in any observed period.
fn is_throttled(above: &Above) -> bool {
    above.periods.nr_throttled > 0
}

/// Judges a limit by usage and, up to the present limit, by the throttled periods that were
/// measured. `None` for a limit without a quota. Bounds are made only where its period is the asked
/// one.
fn judged(
    limit: Limit,
    cpus: &Ranged<f64>,
    periods: Option<&Periods>,
    (asked, present): (&Asked, &Present),
) -> Option<Judged> {
    let bounds = periods.filter(|_| limit.period_ns() == asked.period_ns);
    let mut bounds = bounds.and_then(|periods| periods.bounds(limit.quota_ns()?, asked));
    let is_present = present.limit == Some(limit);
    let mut too_small = limit.cpus()? < cpus.low;
    if let Some(measured) = present.throttled.filter(|_| present.is_no_less_than(limit)) {
        let least = bounds.map_or(measured.low, |bounds| bounds.least.max(measured.low));
        let most = bounds.map_or(100.0, |bounds| bounds.most.max(measured.high));
        bounds = Some(Bounds { least, most });
        too_small |= measured.value > asked.throttled.unwrap_or(THROTTLED_MOST);
    }
    Some(Judged {
        cpu_max: limit.to_string(),
        millicpus: limit.millicpus()?,
        too_small,
        measured_percent: present.throttled.filter(|_| is_present),
        throttled_percent: bounds,
    })
}

/// The smallest limit from the mean usage on, in thousandths of a CPU by steps of 50, whose upper
/// bound is at most `most` throttled periods of a hundred; `None` up to all CPUs or twice the
/// largest usage.
fn enough_for(most: f64, cpus: &Ranged<f64>, periods: &Periods, asked: &Asked) -> Option<u64> {
    const STEP: u64 = 50;
    let first = (cpus.value * 1e3 / STEP as f64).ceil() as u64 * STEP;
    // From twice the largest usage of a period on, all limits are alike.
    let last = 2e3 * periods.most_ns() / asked.period_ns as f64 + STEP as f64;
    let last = (periods.cpus as u64 * 1_000).min(last as u64);
    let all = (first.max(STEP)..=last).step_by(STEP as usize);
    let mut all = all.filter_map(|millicpus| Limit::of_millicpus(millicpus, asked.period_ns));
    let keeps = |limit: &Limit| {
        let bounds = limit.quota_ns().and_then(|quota_ns| periods.bounds(quota_ns, asked));
        bounds.is_some_and(|bounds| bounds.most <= most)
    };
    all.find(keeps).and_then(|limit| limit.millicpus())
}

/// Sentences for the user on missing or censored counters and how to get them; `periods` is `None`
/// where readings are too coarse.
fn notes(
    observed: &Observed,
    present: &Present,
    periods: Option<&Periods>,
    asked: &Asked,
) -> Vec<String> {
    let mut notes = Vec::new();
    let above = observed.above.as_ref().filter(|above| is_throttled(above));
    if let Some(above) = above {
        let more = if above.has_one {
            "Other limits are tried with that limit raised or lowered by as much."
        } else {
            "Choose the pod itself by --label container=."
        };
        notes.push(format!("{} {more}", above.note()));
    }
    if present.is_throttled || above.is_some() {
        notes.push(CENSORED.to_owned());
    }
    if present.limit.is_none() {
        notes.push(
            "The scrapes lack its limit (kube-prometheus-stack leaves it out): take them from the \
             kubelet itself, or give the limit by --current."
                .to_owned(),
        );
    } else if present.throttled.is_none()
        && present.limit.is_some_and(|limit| limit.quota_ns().is_some())
    {
        notes.push("The number of throttled periods is missing.".to_owned());
    }
    if periods.is_some_and(|periods| periods.cpus == CPUS_UNKNOWN) {
        notes.push(
            "The number of CPUs that it may run on is unknown, so the bounds are those of a \
             machine with very many."
                .to_owned(),
        );
    }
    if periods.is_none() {
        notes.push(format!(
            "{TOO_SELDOM} of {} ms, so only limits below the mean use are ruled out. On the node \
             itself --stat reads the group often enough.",
            asked.period_ns as f64 / 1e6
        ));
    }
    notes
}

/// Usage in intervals as long as a period, at several phases.
struct Periods {
    phases: Vec<Vec<f64>>,
    /// CPUs that the group may run on.
    cpus: usize,
    /// Error of the usage of a period, ns.
    read_off_ns: f64,
}

impl Periods {
    /// Sums up pairs of usage and length of each reading, both in ns, at four phases of the period.
    /// `None` where readings are more than half a period apart, or cover fewer than
    /// [`LEAST_PERIODS`].
    fn of(used: &[(f64, f64)], period_ns: u64, cpus: usize) -> Option<Periods> {
        const PHASES: u32 = 4;
        let period_ns = period_ns as f64;
        let length_ns: f64 = used.iter().map(|(_, length)| length).sum();
        let is_close = length_ns / used.len().max(1) as f64 * READINGS_MIN <= period_ns;
        if !is_close || length_ns < period_ns * LEAST_PERIODS as f64 {
            return None;
        }
        let phase =
            |at: u32| in_periods(used, period_ns, period_ns * f64::from(at) / f64::from(PHASES));
        // Time that a reading misses is in the readings of the next tick.
        let read_off_ns = (READ_OFF_NS * cpus as f64).min(most_within(used, READ_OFF_NS));
        Some(Periods { phases: (0..PHASES).map(phase).collect(), cpus, read_off_ns })
    }

    /// The largest usage of a period, ns, at any phase of the periods.
    fn most_ns(&self) -> f64 {
        self.phases.iter().flatten().fold(0.0, |most, ns| most.max(*ns))
    }

    /// Least, deciles and most of the usage of periods at the first phase, us: eleven numbers.
    fn deciles(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.phases[0].iter().map(|ns| (ns / 1e3) as u64).collect();
        all.sort_unstable();
        let decile = |tenth: usize| cpumax_outcome::percentile(&all, tenth * 10).copied();
        (0..=10).filter_map(decile).collect()
    }

    /// Bounds on the throttled periods of a hundred under a quota, each the extreme over the phases
    /// and an end of its 95 % interval. Only periods with work count, as the kernel's period timer
    /// stops when the group has none; `None` with fewer than [`LEAST_PERIODS`] of them.
    fn bounds(&self, quota_ns: u64, asked: &Asked) -> Option<Bounds> {
        let quota_ns = quota_ns as f64;
        let stranded_ns = SLICE_NS * self.cpus.saturating_sub(1) as f64 + self.read_off_ns;
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for usage in &self.phases {
            // Runtime wanted in the period, and whether it is throttled.
            let share = |each: &mut dyn FnMut(f64) -> (f64, bool)| {
                let counted = |wanted: f64| if wanted > 0.0 { 1.0 } else { 0.0 };
                let each = usage.iter().map(|ns| each(*ns)).map(|(wanted, throttled)| {
                    (f64::from(u8::from(throttled)) * 100.0, counted(wanted))
                });
                let all: Vec<(f64, f64)> = each.collect();
                let active = all.iter().map(|(_, counted)| counted).sum::<f64>();
                let all = interval(&all, asked.seed).filter(|_| active >= LEAST_PERIODS as f64)?;
                Some((all, active))
            };
            let (low, active) = share(&mut |ns| (ns, ns > quota_ns + self.read_off_ns))?;
            let mut late_ns = 0.0_f64;
            let (high, _) = share(&mut |ns| {
                let wanted = late_ns + ns;
                late_ns = (wanted - quota_ns).max(0.0);
                (wanted, wanted > quota_ns - stranded_ns.min(quota_ns / 2.0))
            })?;
            // An event not seen once in so many periods may be this frequent at a confidence of 95
            // %.
            let unseen = 100.0 * (1.0 - 0.05_f64.powf(1.0 / active));
            let low = if low.value >= 100.0 { low.low.min(100.0 - unseen) } else { low.low };
            let high = if high.value <= 0.0 { high.high.max(unseen) } else { high.high };
            (least, most) = (least.min(low), most.max(high));
        }
        Some(Bounds { least, most })
    }
}

/// The largest usage of consecutive readings that together just reach `length_ns`; `used` has pairs
/// of usage and length, ns.
fn most_within(used: &[(f64, f64)], length_ns: f64) -> f64 {
    let from = |first: usize| {
        let (mut sum, mut length) = (0.0, 0.0);
        for (usage, stretch_ns) in &used[first..] {
            (sum, length) = (sum + usage, length + stretch_ns);
            if length >= length_ns {
                break;
            }
        }
        sum
    };
    (0..used.len()).map(from).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests;
