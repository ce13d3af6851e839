//! All containers of a Prometheus, or of a node: each one's answer from counters, those first whose
//! limit costs most.
//!
//! Services drawn for one container serve others as well, where node's kernel, limit, pod and CPUs
//! are alike: what differs is how well each reproduces the counters.

use crate::counted::{Asked, Counted, counted};
use crate::counters::Container;
use crate::fitted::{Costs, Fitting, Shared, alike, fit_with};
use cpumax_study::{Error, Watch, answer::Answer};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// A container of a fleet, and what its counters tell.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct InFleet {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// How many times p99 is what it would be without a limit, in the middle of the range; null
    /// where throttling does not surely cost latency.
    pub costs_times: Option<f64>,
    /// Thousandths of a CPU that its limit gives and that it does not need: above the limit that
    /// keeps the goal, or without a goal above its use; null where it is not known.
    pub unneeded_millicpus: Option<u64>,
    /// The answer from its counters; null where there is none.
    pub counted: Option<Counted>,
    /// Why there is no answer, or why no services were fitted; null otherwise.
    pub why_not: Option<String>,
}

impl Answer for InFleet {
    const KIND: &'static str = "fleet";
}

impl InFleet {
    fn of(labels: BTreeMap<String, String>, counted: Counted, has_goal: bool) -> InFleet {
        let fit = counted.fit.as_ref();
        let none = fit.filter(|fit| fit.costs == Costs::Latency).and_then(|fit| fit.limits.last());
        let times = none.and_then(|row| row.p99_times).map(|times| 1.0 / times.value.max(1e-3));
        let present = fit.and_then(|fit| fit.limits.iter().find(|row| row.is_present));
        let present = present.and_then(|row| row.millicpus);
        let used = (counted.cpus.high * 1e3).ceil() as u64;
        let needed = if has_goal { counted.enough } else { Some(used) };
        let unneeded = present.zip(needed).map(|(limit, needed)| limit.saturating_sub(needed));
        let why_not = counted.why_no_fit().map(str::to_owned);
        let (costs_times, unneeded_millicpus) = (times, unneeded);
        InFleet { labels, costs_times, unneeded_millicpus, counted: Some(counted), why_not }
    }

    /// A container of which nothing is known, for that reason.
    fn unknown(labels: BTreeMap<String, String>, why: String) -> InFleet {
        let (costs_times, unneeded_millicpus, counted) = (None, None, None);
        InFleet { labels, costs_times, unneeded_millicpus, counted, why_not: Some(why) }
    }

    /// Its name for people: namespace, pod and container, or its name or id.
    pub fn name(&self) -> String {
        let value = |name: &str| self.labels.get(name).map(String::as_str);
        let parts: Vec<&str> =
            ["namespace", "pod", "container"].into_iter().filter_map(value).collect();
        let other = || value("name").or(value("id")).unwrap_or_default().to_owned();
        if parts.is_empty() { other() } else { parts.join("/") }
    }

    /// Ascending: those first whose throttling surely costs most, then those throttled most often,
    /// then those with most to take away, then those of which nothing is known.
    fn rank(&self) -> (bool, i64, i64, i64) {
        let share = self.counted.as_ref().and_then(|told| told.throttled_percent);
        let share = share.map_or(0, |share| (share.value * 1e3) as i64);
        let costs = self.costs_times.map_or(0, |times| (times * 1e3) as i64);
        let unneeded = self.unneeded_millicpus.map_or(-1, |millicpus| millicpus as i64);
        (self.counted.is_none(), -costs, -share, -unneeded)
    }
}

/// Answers the question for each container, ranked. A container that cannot be told has the reason.
/// `watch` hears of each one as a nanosecond.
///
/// # Errors
/// The caller asked to stop.
pub fn fleet(
    containers: Vec<Container>,
    asked: &Asked,
    fitting: Option<&Fitting>,
    watch: &dyn Watch,
) -> Result<Vec<InFleet>, Error> {
    let name = |(_, observed): &Container| match (fitting, observed) {
        (Some(fitting), Ok(observed)) => alike(observed, fitting),
        _ => String::new(),
    };
    let mut containers: Vec<(String, usize, Container)> =
        containers.into_iter().enumerate().map(|(at, one)| (name(&one), at, one)).collect();
    containers.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let mut all = Vec::new();
    for alike in containers.chunk_by(|a, b| a.0 == b.0) {
        let shared = Shared::default();
        for (_, at, container) in alike {
            if watch.stopped() {
                return Err(Error::Interrupted);
            }
            all.push((*at, answered(container, (asked, fitting), &shared, watch)?));
            watch.advanced(1);
        }
    }
    all.sort_by_cached_key(|(at, one)| (one.rank(), *at));
    Ok(all.into_iter().map(|(_, one)| one).collect())
}

/// The answer for one container. An error if the caller asked to stop.
fn answered(
    (labels, observed): &Container,
    (asked, fitting): (&Asked, Option<&Fitting>),
    shared: &Shared,
    watch: &dyn Watch,
) -> Result<InFleet, Error> {
    let labels = labels.clone();
    let told = observed.as_ref().map_err(ToString::to_string).and_then(|observed| {
        Ok((counted(observed, asked).map_err(|error| error.to_string())?, observed))
    });
    let (mut told, observed) = match told {
        Ok(told) => told,
        Err(why) => return Ok(InFleet::unknown(labels, why)),
    };
    if let Some(fitting) = fitting {
        told = told.with_fit(fit_with(observed, fitting, shared, &Quiet(watch))?);
    }
    Ok(InFleet::of(labels, told, asked.throttled.is_some()))
}

/// Asks whether to stop, and tells nothing of single runs.
struct Quiet<'a>(&'a dyn Watch);

impl Watch for Quiet<'_> {
    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Moment, Observed};
    use cpumax_machine::kernel::parse_kernels;
    use cpumax_study::limit::{CpuStat, Limit};

    /// Half a minute under a limit of half a CPU.
    fn observed(cpus: f64, nr_throttled: u32) -> Observed {
        let at = |s: u64, nr_periods, nr_throttled| Moment {
            at_ns: s * 1_000_000_000,
            usage_ns: Some((cpus * s as f64 * 1e9) as u64),
            stat: Some(CpuStat { nr_periods, nr_throttled, ..CpuStat::default() }),
            ..Moment::default()
        };
        Observed {
            name: "app".to_owned(),
            limit: Limit::of_millicpus(500, 100_000_000),
            kernel: None,
            cpus: None,
            above: None,
            moments: vec![at(0, 0, 0), at(30, 300, nr_throttled)],
        }
    }

    #[test]
    fn those_throttled_most_come_first_and_those_not_told_last() {
        let pod = |name: &str| BTreeMap::from([("pod".to_owned(), name.to_owned())]);
        let (period_ns, throttled, not_told) = (100_000_000, None, Vec::new());
        let asked = Asked { period_ns, throttled, current: None, not_told, seed: 1 };
        let fell = Error::Question("counters went back".to_owned());
        let containers = vec![
            (pod("fell"), Err(fell)),
            (pod("busy"), Ok(observed(0.4, 20))),
            (pod("idle"), Ok(observed(0.05, 0))),
            (pod("throttled"), Ok(observed(0.49, 290))),
            (pod("odd"), Ok(observed(0.05, 300))),
        ];
        let fitting = Fitting { draws: 64, ..Fitting::on(parse_kernels("6.18").unwrap()[0]) };
        let all = fleet(containers, &asked, Some(&fitting), &()).unwrap();
        let names: Vec<String> = all.iter().map(InFleet::name).collect();
        assert_eq!(names, ["odd", "throttled", "busy", "idle", "fell"]);
        assert!(all[3].costs_times.is_none(), "{:?}", all[3]);
        assert_eq!(all[3].unneeded_millicpus, Some(450));
        let last = all.last().unwrap();
        assert_eq!(last.why_not.as_deref(), Some("counters went back"));
        assert_eq!((last.counted.as_ref(), last.unneeded_millicpus), (None, None));
        let odd = all.iter().find(|one| one.name() == "odd").unwrap();
        assert!(odd.why_not.as_ref().is_some_and(|why| why.contains("no single service")));
    }

    #[test]
    fn services_that_are_shared_give_what_they_give_alone() {
        let shared = Shared::default();
        let fitting = Fitting { draws: 64, ..Fitting::on(parse_kernels("6.18").unwrap()[0]) };
        let (one, like) = (observed(0.3, 60), observed(0.301, 66));
        let first = fit_with(&one, &fitting, &shared, &()).unwrap();
        let runs = shared.len();
        assert_eq!(fit_with(&one, &fitting, &shared, &()).unwrap(), first);
        assert_eq!(shared.len(), runs, "nothing is run twice");
        let second = fit_with(&like, &fitting, &shared, &()).unwrap().unwrap();
        assert!(shared.len() < runs * 3 / 2, "both are alike: {} and {runs}", shared.len());
        let first = first.unwrap();
        let off = |at: usize| {
            let share = |fit: &crate::fitted::Fit| fit.limits[at].throttled_percent.value;
            (share(&first) - share(&second)).abs()
        };
        assert!((0..first.limits.len()).all(|at| off(at) < 20.0), "{first:?} {second:?}");
    }
}
