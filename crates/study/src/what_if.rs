//! The limits that are tried: those of the request, or a ladder around the CPUs used.

use crate::job::{Share, WhatIf};
use crate::{Error, change};
use cpumax_limit::{Limit, Missing, Rules, Setting, SettingError, Target, one_line};
use cpumax_machine::kernel::Kernel;
use cpumax_workload::bounds::MAX_DURATION_NS;
use cpumax_workload::{GroupIx, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A limit to try.
///
/// ```
/// use cpumax_study::{Try, kernel};
///
/// let limit = Try::parse("/web:500m,cpu.max.burst=10000")?;
/// assert_eq!(limit.label(), "50/100+10");
/// assert_eq!(limit.group.as_deref(), Some("/web"));
/// let two = Try::parse("/web:500m,/sidecar:200m")?;
/// assert_eq!(two.label(), "50/100, /sidecar 20/100");
/// let old = kernel::parse_kernels("5.4")?[0];
/// assert_eq!(limit.lacks(old)?[0].file, "cpu.max.burst");
/// assert!(Try::parse("2000m 100ms").is_err());
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Try {
    /// The group's limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// The group's weight, where one is given.
    pub weight: Option<u32>,
    /// Limit of the group above it, where one is given.
    pub pod: Option<Share>,
    /// Path of the group, where one is given.
    #[serde(skip)]
    pub group: Option<String>,
    /// Limits of other groups at the same time.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// The setting it was parsed from.
    #[serde(skip)]
    setting: Option<Setting>,
}

/// Another group and its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Beside {
    /// Its path.
    #[serde(rename = "group")]
    pub path: String,
    /// Its limit and weight.
    #[serde(flatten)]
    pub share: Share,
}

impl Try {
    /// No limit.
    pub fn none() -> Try {
        Try::of(Limit::UNLIMITED)
    }

    /// This limit alone.
    pub fn of(limit: Limit) -> Try {
        Try { limit, weight: None, pod: None, group: None, beside: Vec::new(), setting: None }
    }

    /// Parses `[GROUP:]LIMIT` as [`Setting`] does: of one group, perhaps of the one above it (its
    /// pod), and of others beside. Results are shown of the first group.
    ///
    /// # Errors
    /// The text is not understood, or the kernel would refuse it.
    pub fn parse(set: &str) -> Result<Try, Error> {
        let setting: Setting = set.parse()?;
        let mut tried = Try::none();
        let mut has_own = false;
        for part in setting.parts() {
            let applied = part.apply(Limit::UNLIMITED, &Rules::NEWEST)?;
            let share = Share { limit: applied.limit, weight: applied.weight };
            match &part.target {
                Target::Pod => tried.pod = Some(share),
                Target::Path(path) if has_own => {
                    tried.beside.push(Beside { path: path.clone(), share });
                }
                target => {
                    has_own = true;
                    (tried.limit, tried.weight) = (share.limit, share.weight);
                    if let Target::Path(path) = target {
                        tried.group = Some(path.clone());
                    }
                }
            }
        }
        Ok(Try { setting: Some(setting), ..tried })
    }

    /// The form that documents hold, without the words it was parsed from.
    #[must_use]
    pub fn into_written(self) -> Try {
        Try { group: None, setting: None, ..self }
    }

    /// Short form for tables: `50/100+20 in 100/100, /sidecar 20/100`, quota, period and burst in
    /// ms.
    pub fn label(&self) -> String {
        let own = label(&Share { limit: self.limit, weight: self.weight });
        let pod = self.pod.map(|pod| format!(" in {}", label(&pod))).unwrap_or_default();
        let beside = |one: &Beside| format!(", {} {}", one_line(&one.path), label(&one.share));
        own + &pod + &self.beside.iter().map(beside).collect::<String>()
    }

    /// Whether it limits its group alone, neither the pod nor groups beside.
    pub fn is_alone(&self) -> bool {
        self.pod.is_none() && self.beside.is_empty()
    }

    /// Translations of values that are not in the kernel's form: `500m = 50000 100000`.
    pub fn understood(&self) -> Vec<String> {
        self.setting.as_ref().map(Setting::understood).unwrap_or_default()
    }

    /// Parts of this limit that a kernel does not support, such as a burst before 5.14; the run is
    /// without them. Empty if the kernel supports all.
    ///
    /// # Errors
    /// The limit is for one group only, and the kernel supports nothing of it; or the kernel
    /// refuses a value.
    pub fn lacks(&self, kernel: Kernel) -> Result<Vec<Missing>, Error> {
        let rules = change::rules(kernel);
        let Some(setting) = &self.setting else {
            return Ok(self.limit.missing_under(&rules).into_iter().collect());
        };
        let (mut lacks, mut nothing) = (Vec::new(), None);
        for part in setting.parts() {
            match part.apply(Limit::UNLIMITED, &rules) {
                Ok(applied) => lacks.extend(applied.missing),
                Err(error @ SettingError::Nothing { missing, .. }) => {
                    lacks.push(missing);
                    nothing = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        lacks.dedup();
        match nothing {
            Some(error) if setting.parts().len() == 1 => Err(error.into()),
            _ => Ok(lacks),
        }
    }

    /// The longest period of all its limits, ns; `None` where none has a quota.
    pub fn period_ns(&self) -> Option<u64> {
        let limited = self.limits().filter(|limit| limit.quota_ns().is_some());
        limited.map(|limit| limit.period_ns()).max()
    }

    /// All limits that this sets: of the group, the pod, and the groups beside.
    fn limits(&self) -> impl Iterator<Item = Limit> {
        let others = self.pod.iter().chain(self.beside.iter().map(|beside| &beside.share));
        std::iter::once(self.limit).chain(others.map(|share| share.limit))
    }

    /// The pod above `group` and the groups beside that this limits, with their shares.
    ///
    /// # Errors
    /// A group does not exist, is the root, or has two limits.
    pub fn others(
        &self,
        workload: &Workload,
        group: GroupIx,
    ) -> Result<Vec<(GroupIx, Share)>, Error> {
        let mut others: Vec<(GroupIx, Share)> = Vec::new();
        if let Some(pod) = self.pod {
            others.push((change::parent_group(workload, group)?, pod));
        }
        for beside in &self.beside {
            let other = change::find_group(workload, &beside.path)?;
            if other == 0 {
                return Err(Error::Root);
            }
            if other == group || others.iter().any(|(taken, _)| *taken == other) {
                let what = format!("{} has two limits: give one", one_line(&beside.path));
                return Err(Error::Change(what));
            }
            others.push((other, beside.share));
        }
        Ok(others)
    }

    /// The changes that put this limit on `group` of a workload whose work takes `work_ns` of CPU
    /// time and lasted `span_ns`. The run's duration is four times the expected one and 1 s, at
    /// most a day: some generations give less than the limit says, and idle time costs nothing to
    /// simulate.
    ///
    /// # Errors
    /// A group of the limit does not exist, is the root, or has two limits.
    pub fn what_if(
        &self,
        workload: &Workload,
        group: GroupIx,
        span_ns: u64,
        work_ns: u64,
    ) -> Result<WhatIf, Error> {
        let at_quota_ns = |limit: Limit| {
            let quota_ns = limit.quota_ns()?;
            let stretched =
                u128::from(work_ns) * u128::from(limit.period_ns()) / u128::from(quota_ns);
            Some(u64::try_from(stretched).unwrap_or(u64::MAX))
        };
        let at_quota_ns = self.limits().filter_map(at_quota_ns).max().unwrap_or(0);
        let longest_ns = span_ns.max(at_quota_ns).saturating_mul(4).saturating_add(1_000_000_000);
        let mut shares = vec![(group, Share { limit: self.limit, weight: self.weight })];
        shares.extend(self.others(workload, group)?);
        let duration_ns = longest_ns.min(MAX_DURATION_NS);
        Ok(WhatIf { shares, duration_ns, phase_ns: None, apart_ns: 0 })
    }
}

/// The one group that all limits name, if any names one; limits without a group agree with each.
///
/// # Errors
/// They name several, or the root group.
pub fn common_group(tries: &[Try]) -> Result<Option<String>, Error> {
    let mut named = tries.iter().filter_map(|limit| limit.group.as_deref());
    let Some(first) = named.next() else { return Ok(None) };
    if let Some(other) = named.find(|other| *other != first) {
        return Err(Error::TwoGroups { first: first.to_owned(), other: other.to_owned() });
    }
    if first.trim_end_matches('/').is_empty() {
        return Err(Error::Root);
    }
    Ok(Some(first.to_owned()))
}

/// Multiples of the CPUs used that the [`ladder`] of a table has.
pub const FEW: &[f64] = &[0.75, 1.0, 1.5, 2.0];
/// Multiples of the CPUs used that the [`ladder`] of a curve has.
pub const CURVE: &[f64] = &[0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5];

/// Limits of so many times the CPUs that were used, in 100 ms periods; then the used CPUs with a
/// 10 ms period, and with a burst of a whole quota.
pub fn ladder(mean_cpus: f64, times: &[f64]) -> Vec<Try> {
    const PERIOD_NS: u64 = 100_000_000;
    const SHORT_PERIOD_NS: u64 = 10_000_000;
    let share = |times: f64, period_ns: u64| two_digits_ns(mean_cpus * times * period_ns as f64);
    let plain = times.iter().map(|times| (share(*times, PERIOD_NS), PERIOD_NS, 0));
    let quota_ns = share(1.0, PERIOD_NS);
    let special =
        [(share(1.0, SHORT_PERIOD_NS), SHORT_PERIOD_NS, 0), (quota_ns, PERIOD_NS, quota_ns)];
    let mut tries: Vec<Try> = Vec::new();
    for (quota_ns, period_ns, burst_ns) in plain.chain(special) {
        if let Ok(limit) = Limit::new(Some(quota_ns), period_ns, burst_ns) {
            let limit = Try::of(limit);
            if !tries.contains(&limit) {
                tries.push(limit);
            }
        }
    }
    tries
}

/// Rounded up to two significant digits of microseconds, at least 1 ms (the smallest quota).
fn two_digits_ns(ns: f64) -> u64 {
    let us = (ns / 1000.0).round().max(1000.0) as u64;
    let unit = 10u64.pow(us.ilog10().saturating_sub(1));
    us.div_ceil(unit) * unit * 1000
}

/// Short form of a limit and weight: `50/100+20 w200`, ms; `none` without a quota.
fn label(share: &Share) -> String {
    let Share { limit, weight } = share;
    let burst =
        if limit.burst_ns() > 0 { format!("+{}", ms(limit.burst_ns())) } else { String::new() };
    let quota = match limit.quota_ns() {
        Some(quota_ns) => format!("{}/{}{burst}", ms(quota_ns), ms(limit.period_ns())),
        None => format!("none{burst}"),
    };
    match weight {
        Some(weight) => format!("{quota} w{weight}"),
        None => quota,
    }
}

/// Milliseconds with at most three decimals.
fn ms(ns: u64) -> String {
    let text = format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_machine::kernel::parse_kernels;

    #[test]
    fn limits_are_read_with_and_without_names() {
        for (set, label, group) in [
            ("50000 100000", "50/100", None),
            ("cpu.max=50000", "50/100", None),
            ("cpu.max=20000 100000,cpu.max.burst=15500", "20/100+15.5", None),
            ("/a:b/c:cpu.max=1500 10000", "1.5/10", Some("/a:b/c")),
            ("max", "none", None),
            ("cpu.weight=5", "none w5", None),
            ("cpu.max.burst=5000", "none+5", None),
            ("/a:500m,pod:417m", "50/100 in 42/100", Some("/a")),
            ("pod:1,cpu.weight=50", "none in 100/100 w50", None),
            ("500m,/g:200m", "50/100, /g 20/100", None),
            ("/g:500m,/h:200m,cpu.weight=5,pod:1", "50/100 in 100/100, /h 20/100 w5", Some("/g")),
        ] {
            let limit = Try::parse(set).unwrap();
            assert_eq!((limit.label().as_str(), limit.group.as_deref()), (label, group), "{set}");
        }
        for set in ["", "500", "cpu.max=5 5", "cpu.max=20000,cpu.max.burst=30000", "/g:cpu.max"] {
            assert!(Try::parse(set).is_err(), "{set}");
        }
    }

    #[test]
    fn a_limit_knows_its_kernel() {
        let lacks = |set: &str, kernel: &str| {
            let lacks = Try::parse(set).unwrap().lacks(parse_kernels(kernel).unwrap()[0]);
            lacks.map(|lacks| lacks.iter().map(|missing| missing.file).collect::<Vec<_>>())
        };
        assert_eq!(lacks("500m,cpu.max.burst=1000", "5.13").unwrap(), ["cpu.max.burst"]);
        assert!(lacks("500m,cpu.max.burst=1000", "5.14").unwrap().is_empty());
        assert!(lacks("500m,cpu.max.burst=1000", "pull").unwrap().is_empty());
        assert_eq!(lacks("500m,pod:cpu.max.burst=1000", "5.4").unwrap(), ["cpu.max.burst"]);
        let error = lacks("cpu.max.burst=1000", "5.4").unwrap_err().to_string();
        assert!(error.ends_with("exists from Linux 5.14 on"), "{error}");
        let ladder = ladder(0.4, FEW);
        let old = parse_kernels("5.4").unwrap()[0];
        let lacking = |limit: &&Try| !limit.lacks(old).unwrap().is_empty();
        assert_eq!(ladder.iter().filter(lacking).count(), 1);
    }

    #[test]
    fn a_ladder_spans_the_cpus_used() {
        let labels: Vec<String> =
            ladder(0.423, FEW).into_iter().map(|limit| limit.label()).collect();
        assert_eq!(labels, ["32/100", "43/100", "64/100", "85/100", "4.3/10", "43/100+43"]);
        let idle: Vec<String> = ladder(0.0, CURVE).into_iter().map(|limit| limit.label()).collect();
        assert_eq!(idle, ["1/100", "1/10", "1/100+1"]);
    }

    #[test]
    fn a_run_is_given_time_enough_for_its_work() {
        let nested = crate::scenario::load("nested").unwrap();
        let takes = |limit: &Try, span_ns, work_ns| {
            limit.what_if(&nested, 1, span_ns, work_ns).unwrap().duration_ns
        };
        let limit = Try::parse("1000 1000000").unwrap();
        assert_eq!(takes(&limit, 10_000_000_000, 1_000_000_000), 4_001_000_000_000);
        assert_eq!(takes(&limit, u64::MAX, u64::MAX), MAX_DURATION_NS);
        assert_eq!(takes(&Try::none(), 10, u64::MAX), 1_000_000_040);
    }

    #[test]
    fn each_group_is_there_and_has_one_limit() {
        let nested = crate::scenario::load("nested").unwrap();
        let paths: Vec<&str> = nested.groups.iter().map(|group| group.path.as_str()).collect();
        let [_, first, second, ..] = paths[..] else { panic!("{paths:?}") };
        let of = |set: &str| Try::parse(set).unwrap().others(&nested, 1);
        let both = Try::parse(&format!("{first}:500m,{second}:200m")).unwrap();
        assert_eq!(both.others(&nested, 1).unwrap()[0].0, 2);
        let limited = both.what_if(&nested, 1, 0, 0).unwrap().apply(nested.clone()).unwrap();
        let millicpus = |group: usize| limited.groups[group].limit.millicpus();
        assert_eq!((millicpus(1), millicpus(2)), (Some(500), Some(200)));
        assert!(of(&format!("500m,{first}:200m")).unwrap_err().to_string().contains("two limits"));
        assert!(of("500m,/nowhere:1").unwrap_err().to_string().contains("no group '/nowhere'"));
        assert!(matches!(of("500m,/:1"), Err(Error::Root)));
    }
}
