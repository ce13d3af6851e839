//! Samples of Prometheus: each series has times of its own, as a kubelet stamps the counters of
//! each container and none of its limits. A number counts until the next one of its series, for at
//! most five minutes as in Prometheus itself.

use super::super::labels::{Kind, Labels};
use super::own::{Metrics, Own};
use super::{OF_CONTAINERS, Scrape, Series, VERSION, checked};
use cpumax_study::Error;
use std::collections::{BTreeMap, BTreeSet};

/// Prometheus' default lookback, ms.
const LOOKBACK_MS: u64 = 300_000;
/// Labels by which several Prometheus that scrape the same targets are told apart.
const REPLICA: [&str; 3] = ["prometheus_replica", "replica", "__replica__"];
/// Thousands of containers for an hour.
const SAMPLES_MAX: usize = 20_000_000;

/// By the replica that has them, and by their times, ms since 1970.
type Replicas<T> = BTreeMap<String, BTreeMap<u64, T>>;

/// Samples of containers and of a service itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    /// Where they come from, for messages.
    pub path: String,
    containers: BTreeMap<Labels, Replicas<Series>>,
    own: BTreeMap<(String, Labels), Replicas<f64>>,
    /// The kernels of nodes, by the labels of the series that tells them.
    kernels: BTreeMap<Labels, String>,
    count: usize,
}

/// The samples of the replica with most of them: those of two are never mixed.
fn fullest<T>(replicas: &Replicas<T>) -> Option<&BTreeMap<u64, T>> {
    replicas.values().max_by_key(|times| times.len())
}

/// The last number up to a time, or else the first after it, within the lookback.
fn near<T>(times: &BTreeMap<u64, T>, at_ms: u64) -> Option<&T> {
    let before = times.range(..=at_ms).next_back();
    let (found_ms, number) = before.or_else(|| times.range(at_ms..).next())?;
    (found_ms.abs_diff(at_ms) <= LOOKBACK_MS).then_some(number)
}

impl Samples {
    /// None yet; `path` is for messages.
    pub fn of(path: String) -> Samples {
        Samples { path, ..Samples::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Stores a series of a known metric: pairs of ms since 1970 and a number. Where it is NaN the
    /// series ended. An error where a number is impossible, or differs from one of the same time.
    pub fn add(
        &mut self,
        name: &str,
        mut labels: Labels,
        values: impl Iterator<Item = (u64, f64)>,
        metrics: &Metrics,
    ) -> Result<(), String> {
        let replica: Vec<String> = REPLICA.iter().filter_map(|name| labels.remove(name)).collect();
        let replica = replica.join("/");
        let values = values.filter(|(_, number)| !number.is_nan());
        if metrics.has(name) {
            let series = self.own.entry((name.to_owned(), labels)).or_default();
            let before = series.values().map(BTreeMap::len).sum::<usize>();
            let times = series.entry(replica).or_default();
            for (at_ms, number) in values {
                times.insert(at_ms, checked(name, number)?);
            }
            self.count += series.values().map(BTreeMap::len).sum::<usize>() - before;
        } else if name == VERSION {
            let kernel = labels.remove("kernelVersion");
            if let Some(kernel) = kernel.filter(|_| values.count() > 0) {
                labels.retain(&["instance", "node"]);
                self.kernels.insert(labels, kernel);
                self.count += 1;
            }
        } else if OF_CONTAINERS.contains(&name) {
            let cpu = labels.remove("cpu");
            let twice = format!("{name} of {labels} is there twice, with different numbers");
            let times = self.containers.entry(labels).or_default().entry(replica).or_default();
            for (at_ms, number) in values {
                let (series, number) = (times.entry(at_ms).or_default(), checked(name, number)?);
                series.set(name, cpu.as_deref(), number).map_err(|()| twice.clone())?;
                series.at_ms = Some(at_ms as f64);
                self.count += 1;
            }
        }
        if self.count > SAMPLES_MAX {
            return Err(format!("has more than {SAMPLES_MAX} samples"));
        }
        Ok(())
    }

    /// Each container with its last counters, as in one scrape. Those that ended are left out where
    /// others have not; of several runs of a container the last one counts.
    pub fn last(&self) -> Scrape {
        let mut newest: BTreeMap<(Kind, Vec<_>), (&Labels, Series)> = BTreeMap::new();
        let at_ms = |series: &Series| series.at_ms.unwrap_or(0.0);
        for (labels, replicas) in &self.containers {
            let Some((_, series)) = filled(replicas).pop_last() else { continue };
            let lasting = (labels.kind(), labels.lasting().collect());
            let before = newest.get(&lasting).map_or(0.0, |(_, before)| at_ms(before));
            if at_ms(&series) > before {
                newest.insert(lasting, (labels, series));
            }
        }
        let end = newest.values().map(|(_, series)| at_ms(series)).fold(0.0, f64::max);
        let lives = |series: &Series| at_ms(series) + LOOKBACK_MS as f64 >= end;
        let all = newest.into_values().filter(|(_, series)| lives(series));
        let containers = all.map(|(labels, series)| (labels.clone(), series)).collect();
        Scrape { path: self.path.clone(), containers, ..Scrape::default() }
    }

    /// The scrapes of a container in all of its runs: one for each time at which it has counters,
    /// with the other groups of its pod, and with the service's own metrics.
    ///
    /// # Errors
    /// A series of the service's own metrics does not span the same time.
    pub fn scrapes(&self, of: &Labels, metrics: &Metrics) -> Result<Vec<Scrape>, Error> {
        let pod = of.value("pod");
        let in_pod = |labels: &Labels| {
            !pod.is_empty()
                && labels.value("pod") == pod
                && labels.value("namespace") == of.value("namespace")
        };
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (labels, replicas) in &self.containers {
            if labels.is_same_container(of) {
                own.push((labels, filled(replicas)));
            } else if in_pod(labels) {
                others.push((labels, filled(replicas)));
            }
        }
        let times: BTreeSet<u64> =
            own.iter().flat_map(|(_, times)| times.keys()).copied().collect();
        let kernel = self.kernel(of);
        let scrape = |at_ms: &u64| {
            let at = own.iter().filter_map(|(labels, times)| Some((labels, times.get(at_ms)?)));
            let near = others.iter().filter_map(|(l, times)| Some((l, near(times, *at_ms)?)));
            let containers = at.chain(near).map(|(l, series)| ((*l).clone(), series.clone()));
            let (path, own) = (self.path.clone(), self.own(*at_ms, metrics)?);
            let (containers, kernel) = (containers.collect(), kernel.clone());
            Ok(Scrape { path, containers, own, kernel, ..Scrape::default() })
        };
        times.iter().map(scrape).collect()
    }

    /// The service's own metrics at a time.
    fn own(&self, at_ms: u64, metrics: &Metrics) -> Result<Own, Error> {
        let mut own = Own::default();
        for ((name, labels), replicas) in &self.own {
            let wrong = |what| Error::Question(format!("{}: {name}{labels}: {what}", self.path));
            let times = fullest(replicas).and_then(|times| near(times, at_ms));
            let number = times.ok_or_else(|| {
                let what = "it begins or ends while the container is counted: choose a series \
                            that lasts, or a shorter time";
                wrong(what.to_owned())
            })?;
            own.add(name, labels, *number, metrics).map_err(wrong)?;
        }
        Ok(own)
    }

    /// The kernel of the container's node; of any node where all have the same.
    fn kernel(&self, of: &Labels) -> Option<String> {
        let is_of = |labels: &Labels| {
            let same = |name| !of.value(name).is_empty() && of.value(name) == labels.value(name);
            same("instance") || same("node")
        };
        let own = self.kernels.iter().find(|(labels, _)| is_of(labels));
        let all: BTreeSet<&String> = self.kernels.values().collect();
        let only = if all.len() == 1 { all.first().copied() } else { None };
        own.map(|(_, kernel)| kernel).or(only).cloned()
    }
}

/// The counters of a container at their times, each with the limit and the start known then.
fn filled(replicas: &Replicas<Series>) -> BTreeMap<u64, Series> {
    let Some(all) = fullest(replicas) else { return BTreeMap::new() };
    let known = |number: fn(&Series) -> Option<f64>| -> BTreeMap<u64, f64> {
        all.iter().filter_map(|(at_ms, series)| Some((*at_ms, number(series)?))).collect()
    };
    let quotas = known(|series| series.quota_us);
    let periods = known(|series| series.period_us);
    let starts = known(|series| series.start_s);
    let at = |(at_ms, series): (&u64, &Series)| {
        let quota_us = near(&quotas, *at_ms).copied();
        let period_us = near(&periods, *at_ms).copied();
        let start_s = near(&starts, *at_ms).copied();
        (*at_ms, Series { quota_us, period_us, start_s, ..series.clone() })
    };
    all.iter().filter(|(_, series)| series.counts()).map(at).collect()
}
