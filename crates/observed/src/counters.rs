//! Counters of a group, read over some time from this machine or from a scrape of its metrics.
//!
//! The counters are those of the kernel's `cpu_cfs_stat_show()` and `cpu_extra_stat_show()`.
//! `nr_periods` counts periods in which the group has something to run, `nr_throttled` those of
//! them that ended with the group throttled. The meaning of `throttled_usec` differs between
//! versions, so nothing is concluded from it.
//!
//! The difference of two [`Moment`]s is a [`Delta`]. [`interval`] tells how far a ratio over
//! several of them may be off:
//!
//! ```
//! use cpumax_observed::counters::{Moment, interval};
//! use cpumax_study::limit::CpuStat;
//!
//! let stat = |text| CpuStat::parse(text).unwrap();
//! let at = |at_ns, stat| Moment { at_ns, stat: Some(stat), ..Moment::default() };
//! let before = at(0, stat("nr_periods 10\nnr_throttled 2\n"));
//! let after = at(1_000_000_000, stat("nr_periods 20\nnr_throttled 7\n"));
//! let periods = before.until(&after).periods.unwrap();
//! let pair = (periods.nr_throttled as f64, periods.nr_periods as f64);
//! assert_eq!(interval(&[pair], 1).map(|share| share.value), Some(0.5));
//! ```

mod bootstrap;
mod cpus;
mod files;
mod group;
mod labels;
mod prometheus;
mod scrape;
mod served;

pub use bootstrap::interval;
pub use cpus::AllowedCpus;
pub use group::Group;
pub use prometheus::Prometheus;
pub use scrape::{Container, Metrics, Scraped};
pub use served::Served;

use cpumax_limit::{CpuStat, Limit};
use cpumax_study::{Error, Watch, world::OwnKernel};
use std::thread;
use std::time::{Duration, Instant};

/// Counters at one moment; `None` where a source lacks one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Time, ns since the first moment.
    pub at_ns: u64,
    /// CPU time used by the group and all below it, ns.
    pub usage_ns: Option<u64>,
    /// Counters of its limit; scrapes have none of a group without a limit.
    pub stat: Option<CpuStat>,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: Option<u64>,
    /// Time in which some task waited for a CPU, ns, where the kernel counts it (PSI).
    pub waited_ns: Option<u64>,
    /// The group was recreated since the moment before, so the time between is unknown.
    pub is_anew: bool,
}

/// Counters of a group over some time.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Name of the group.
    pub name: String,
    /// Its limit, constant over the time; `None` if unknown.
    pub limit: Option<Limit>,
    /// The running kernel; `None` if unknown.
    pub kernel: Option<OwnKernel>,
    /// The CPUs that it may run on; `None` if unknown.
    pub cpus: Option<AllowedCpus>,
    /// The group above it, where that has a limit, too, and its counters are known.
    pub above: Option<Above>,
    /// The counters, in order of time; at least two.
    pub moments: Vec<Moment>,
}

/// A group above the observed one, with a limit of its own: the pod of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Above {
    /// Its name.
    pub name: String,
    /// Its limit.
    pub limit: Limit,
    /// Its periods over the same time.
    pub periods: Periods,
    /// It has no other container, so that its load is known.
    pub has_one: bool,
}

/// The difference between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Delta {
    /// Length of time, ns.
    pub length_ns: u64,
    /// CPU time used, ns.
    pub usage_ns: Option<u64>,
    /// Periods of the limit.
    pub periods: Option<Periods>,
    /// Time throttled, summed over CPUs, ns.
    pub throttled_ns: Option<u64>,
    /// Time in which some task waited for a CPU, ns.
    pub waited_ns: Option<u64>,
}

/// Periods that passed while the group had something to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Periods {
    /// All of them.
    pub nr_periods: u64,
    /// Those that ended throttled.
    pub nr_throttled: u64,
    /// Those that used a burst.
    pub nr_bursts: u64,
}

impl Moment {
    /// The difference to a later moment, `None` for what either lacks. Numbers that went back count
    /// as 0, except counts of periods, which are 32 bits wide and wrap around.
    pub fn until(&self, later: &Moment) -> Delta {
        let both = |a: Option<u64>, b: Option<u64>| Some(b?.saturating_sub(a?));
        let count = |a: u32, b: u32| u64::from(b.wrapping_sub(a));
        let periods = self.stat.zip(later.stat).map(|(a, b)| Periods {
            nr_periods: count(a.nr_periods, b.nr_periods),
            nr_throttled: count(a.nr_throttled, b.nr_throttled),
            nr_bursts: count(a.nr_bursts, b.nr_bursts),
        });
        Delta {
            length_ns: later.at_ns.saturating_sub(self.at_ns),
            usage_ns: both(self.usage_ns, later.usage_ns),
            periods,
            throttled_ns: both(self.throttled_ns, later.throttled_ns),
            waited_ns: both(self.waited_ns, later.waited_ns),
        }
    }
}

impl Delta {
    /// The sum of both; `None` where one of them lacks a number.
    fn and(self, other: Delta) -> Delta {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        let periods = self.periods.zip(other.periods).map(|(a, b)| Periods {
            nr_periods: a.nr_periods + b.nr_periods,
            nr_throttled: a.nr_throttled + b.nr_throttled,
            nr_bursts: a.nr_bursts + b.nr_bursts,
        });
        Delta {
            length_ns: self.length_ns + other.length_ns,
            usage_ns: sum(self.usage_ns, other.usage_ns),
            periods,
            throttled_ns: sum(self.throttled_ns, other.throttled_ns),
            waited_ns: sum(self.waited_ns, other.waited_ns),
        }
    }

    /// Throttled periods times 100, and all periods, as [`interval`] takes them; `None` if not
    /// counted.
    pub fn throttled(&self) -> Option<(f64, f64)> {
        self.periods.map(|periods| (periods.nr_throttled as f64 * 100.0, periods.nr_periods as f64))
    }

    /// CPU time and length, ns, as [`interval`] takes them; `None` if usage is unknown.
    pub fn used(&self) -> Option<(f64, f64)> {
        Some((self.usage_ns? as f64, self.length_ns as f64))
    }
}

impl Above {
    /// Throttled periods of a hundred over the observed time; 0 without periods.
    pub fn throttled_percent(&self) -> f64 {
        self.periods.nr_throttled as f64 * 100.0 / self.periods.nr_periods.max(1) as f64
    }

    /// The limit of the pod where the container gets `limit` instead of `present`: Kubernetes adds
    /// up the limits of containers. `None` where the kernel would refuse it.
    pub fn with(&self, limit: Limit, present: Limit) -> Option<Limit> {
        let period_ns = self.limit.period_ns();
        let Some((own, before)) = limit.millicpus().zip(present.millicpus()) else {
            return Limit::new(None, period_ns, 0).ok();
        };
        Limit::of_millicpus((self.limit.millicpus()? + own).checked_sub(before)?, period_ns)
    }

    /// A sentence for people: its limit stops the observed group as well.
    pub fn note(&self) -> String {
        format!(
            "Its pod has a limit of its own, {}, and was throttled in {:.1} % of its periods: that \
             stops the container as well.",
            self.limit,
            self.throttled_percent()
        )
    }
}

impl Observed {
    /// Checks that usage, throttled time and periods only grow, unless the group was recreated in
    /// between. They go back where a group was recreated unnoticed, or scrapes are in the wrong
    /// order.
    ///
    /// # Errors
    /// A counter went back.
    pub fn checked(self) -> Result<Observed, Error> {
        let went_back = |pair: &[Moment]| {
            let less = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| b < a);
            let (one, next) = (&pair[0], &pair[1]);
            let periods = one.until(next).periods.unwrap_or_default();
            !next.is_anew
                && (less(one.usage_ns, next.usage_ns)
                    || less(one.throttled_ns, next.throttled_ns)
                    || periods.nr_periods > i32::MAX as u64
                    || periods.nr_throttled > i32::MAX as u64)
        };
        if self.moments.windows(2).any(went_back) {
            let what = "counters went back: the group was recreated while it was counted, or \
                        scrapes are not in order of time";
            return Err(Error::Question(format!("{}: {what}", self.name)));
        }
        Ok(self)
    }

    /// The sum of [`Observed::deltas`]; a number is `None` where any of them lacks it.
    pub fn whole(&self) -> Delta {
        self.deltas().into_iter().reduce(Delta::and).unwrap_or_default()
    }

    /// The differences from each moment to the next, without those between which the group was
    /// recreated.
    pub fn deltas(&self) -> Vec<Delta> {
        let pairs = self.moments.windows(2).filter(|pair| !pair[1].is_anew);
        pairs.map(|pair| pair[0].until(&pair[1])).collect()
    }
}

/// The interval at which counters are read to observe for `length`: a sixtieth of it, at least 100
/// ms.
pub fn every(length: Duration) -> Duration {
    const READINGS: u32 = 60;
    const LEAST: Duration = Duration::from_millis(100);
    (length / READINGS).max(LEAST)
}

/// Reads a group's counters for `length`, once in each `every`; blocks as long.
///
/// # Errors
/// A file cannot be read, `every` is below 1 ms, the limit changed, or the caller asked to stop.
pub fn observe(
    group: &Group,
    length: Duration,
    every: Duration,
    watch: &dyn Watch,
) -> Result<Observed, Error> {
    if every < EVERY_LEAST {
        let what =
            format!("counters cannot be read every {} us: give at least 1ms", every.as_micros());
        return Err(Error::Question(what));
    }
    let limit = group.limit()?;
    let started = Instant::now();
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let mut moments = vec![group.moment(0)?];
    let mut due = every;
    loop {
        let next = due.min(length);
        sleep_until(started + next, watch)?;
        moments.push(group.moment(ns(started.elapsed()))?);
        if next >= length {
            break;
        }
        while due <= started.elapsed() {
            due += every;
        }
    }
    let (name, last) = (group.name(), group.limit()?);
    if last != limit {
        let what = "the limit was changed while it was counted";
        return Err(Error::Question(format!("{name}: {what}, from {limit} to {last}")));
    }
    let (kernel, cpus) = (Some(OwnKernel::here()?), group.cpus().cloned());
    Observed { name, limit: Some(limit), kernel, cpus, above: None, moments }.checked()
}

const EVERY_LEAST: Duration = Duration::from_millis(1);
/// Longest sleep before the caller is asked again whether to stop.
const NAP: Duration = Duration::from_millis(100);

/// Sleeps until `due` in naps of at most 100 ms and reports their lengths, ns, to `watch`;
/// [`Error::Interrupted`] when that asks to stop.
fn sleep_until(due: Instant, watch: &dyn Watch) -> Result<(), Error> {
    loop {
        if watch.stopped() {
            return Err(Error::Interrupted);
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let nap = left.min(NAP);
        thread::sleep(nap);
        watch.advanced(u64::try_from(nap.as_nanos()).unwrap_or(0));
    }
}

/// Usage in each period from `first_ns` on, ns. The usage of a reading (`used`: usage and length)
/// is spread evenly over its length; an incomplete last period is left out.
pub(crate) fn in_periods(used: &[(f64, f64)], period_ns: f64, first_ns: f64) -> Vec<f64> {
    let length_ns: f64 = used.iter().map(|(_, length)| length).sum();
    let count = ((length_ns - first_ns) / period_ns).floor().max(0.0) as usize;
    let mut periods = vec![0.0; count];
    let mut at_ns = -first_ns;
    for &(usage, length) in used {
        let end_ns = at_ns + length;
        let mut from_ns = at_ns.max(0.0);
        while from_ns < end_ns {
            let period = (from_ns / period_ns) as usize;
            let until_ns = end_ns.min((period + 1) as f64 * period_ns);
            let Some(slot) = periods.get_mut(period) else { break };
            *slot += usage * (until_ns - from_ns) / length.max(1.0);
            if until_ns <= from_ns {
                break;
            }
            from_ns = until_ns;
        }
        at_ns = end_ns;
    }
    periods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_periods_go_on_from_0() {
        let stat =
            |nr_periods, nr_throttled| CpuStat { nr_periods, nr_throttled, ..CpuStat::default() };
        let at = |at_ns, stat| Moment {
            at_ns,
            usage_ns: Some(at_ns),
            stat: Some(stat),
            ..Moment::default()
        };
        let (first, last) = (at(0, stat(u32::MAX, 5)), at(10, stat(9, 8)));
        let delta = first.until(&last);
        let periods = delta.periods.unwrap();
        assert_eq!((periods.nr_periods, periods.nr_throttled), (10, 3));
        assert_eq!((delta.usage_ns, delta.waited_ns), (Some(10), None));
    }

    #[test]
    fn counters_that_go_back_are_another_groups() {
        let of = |periods: [u32; 2], usage_ns: [u64; 2]| {
            let moment = |at: usize| Moment {
                at_ns: at as u64,
                usage_ns: Some(usage_ns[at]),
                stat: Some(CpuStat { nr_periods: periods[at], ..CpuStat::default() }),
                ..Moment::default()
            };
            let moments = vec![moment(0), moment(1)];
            let (name, limit) = ("/g".to_owned(), Some(Limit::UNLIMITED));
            Observed { name, limit, kernel: None, cpus: None, above: None, moments }.checked()
        };
        assert!(of([5, 6], [10, 10]).is_ok() && of([u32::MAX, 3], [10, 20]).is_ok());
        for wrong in [of([100, 60], [10, 20]), of([5, 6], [10, 9])] {
            assert!(wrong.unwrap_err().to_string().contains("/g: counters went back"));
        }
    }
}
