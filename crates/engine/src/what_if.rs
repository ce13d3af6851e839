//! The limits that are tried: those asked for, or a ladder around what the service used.

use crate::Error;
use crate::change;
use crate::job::WhatIf;
use cpumax_limit::Limit;
use cpumax_workload::GroupIx;
use cpumax_workload::bounds::MAX_DURATION_NS;

/// A limit to try.
#[derive(Debug, Clone, PartialEq)]
pub struct Try {
    /// As the table shows it: `50/100+20`, quota, period and burst in ms.
    pub label: String,
    /// What the kernel makes of it.
    pub limit: Limit,
    /// Path of the group it is for, when given.
    pub group: Option<String>,
}

impl Try {
    /// No limit.
    pub fn none() -> Try {
        Try { label: "none".to_owned(), limit: Limit::UNLIMITED, group: None }
    }

    /// `[GROUP:]FILE=VALUE[,FILE=VALUE]`, or just a value for `cpu.max`.
    ///
    /// # Errors
    /// The kernel would refuse it, or there is no such file.
    pub fn parse(set: &str) -> Result<Try, Error> {
        let (group, assignments) = match set.find(":cpu.") {
            Some(at) => (Some(set[..at].to_owned()), &set[at + 1..]),
            None => (None, set),
        };
        let mut limit = Limit::UNLIMITED;
        for assignment in assignments.split(',') {
            let (file, value) = assignment.split_once('=').unwrap_or(("cpu.max", assignment));
            limit = change::write_limit(&limit, file.trim(), value)?;
        }
        Ok(Try { label: label(&limit), limit, group })
    }

    /// How long the work may take under this limit: several times what it should, because some
    /// generations give less than the limit says, and idle time costs nothing to simulate.
    pub fn what_if(&self, group: GroupIx, span_ns: u64, work_ns: u64) -> WhatIf {
        let at_quota_ns = self.limit.quota_ns().map_or(0, |quota_ns| {
            let stretched =
                u128::from(work_ns) * u128::from(self.limit.period_ns()) / u128::from(quota_ns);
            u64::try_from(stretched).unwrap_or(u64::MAX)
        });
        let longest_ns = span_ns.max(at_quota_ns).saturating_mul(4).saturating_add(1_000_000_000);
        WhatIf { group, limit: self.limit, duration_ns: longest_ns.min(MAX_DURATION_NS) }
    }
}

/// The one group that all limits are for, if they name any.
///
/// # Errors
/// They name several, or the root group.
pub(crate) fn common_group(tries: &[Try]) -> Result<Option<String>, Error> {
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

/// Around the CPUs that were used: below, at and above; then just what was used with a short
/// period, and with burst.
pub fn ladder(mean_cpus: f64) -> Vec<Try> {
    const PERIOD_NS: u64 = 100_000_000;
    const SHORT_PERIOD_NS: u64 = 10_000_000;
    let share = |times: f64, period_ns: u64| two_digits_ns(mean_cpus * times * period_ns as f64);
    let plain = [0.75, 1.0, 1.5, 2.0].map(|times| (share(times, PERIOD_NS), PERIOD_NS, 0));
    let quota_ns = share(1.0, PERIOD_NS);
    let special =
        [(share(1.0, SHORT_PERIOD_NS), SHORT_PERIOD_NS, 0), (quota_ns, PERIOD_NS, quota_ns)];
    let mut tries: Vec<Try> = Vec::new();
    for (quota_ns, period_ns, burst_ns) in plain.into_iter().chain(special) {
        if let Ok(limit) = Limit::new(Some(quota_ns), period_ns, burst_ns) {
            let limit = Try { label: label(&limit), limit, group: None };
            if !tries.contains(&limit) {
                tries.push(limit);
            }
        }
    }
    tries
}

/// Rounded to two significant digits of microseconds, at least the smallest quota.
fn two_digits_ns(ns: f64) -> u64 {
    let us = (ns / 1000.0).round().max(1000.0) as u64;
    let unit = 10u64.pow(us.ilog10().saturating_sub(1));
    us.div_ceil(unit) * unit * 1000
}

fn label(limit: &Limit) -> String {
    let Some(quota_ns) = limit.quota_ns() else { return "none".to_owned() };
    let burst =
        if limit.burst_ns() > 0 { format!("+{}", ms(limit.burst_ns())) } else { String::new() };
    format!("{}/{}{burst}", ms(quota_ns), ms(limit.period_ns()))
}

fn ms(ns: u64) -> String {
    let text = format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_and_without_names() {
        for (set, label, group) in [
            ("50000 100000", "50/100", None),
            ("cpu.max=50000", "50/100", None),
            ("cpu.max=20000 100000,cpu.max.burst=15500", "20/100+15.5", None),
            ("/a:b/c:cpu.max=1500 10000", "1.5/10", Some("/a:b/c")),
            ("max", "none", None),
        ] {
            let limit = Try::parse(set).unwrap();
            assert_eq!((limit.label.as_str(), limit.group.as_deref()), (label, group), "{set}");
        }
        for set in [
            "",
            "500",
            "cpu.weight=5",
            "cpu.max=5 5",
            "cpu.max=20000,cpu.max.burst=30000",
            "/g:cpu.max",
        ] {
            assert!(Try::parse(set).is_err(), "{set}");
        }
    }

    #[test]
    fn a_ladder_stands_around_what_was_used() {
        let labels: Vec<String> = ladder(0.423).into_iter().map(|limit| limit.label).collect();
        assert_eq!(labels, ["32/100", "43/100", "64/100", "85/100", "4.3/10", "43/100+43"]);
        let idle: Vec<String> = ladder(0.0).into_iter().map(|limit| limit.label).collect();
        assert_eq!(idle, ["1/100", "1/10", "1/100+1"]);
    }

    #[test]
    fn a_run_is_given_time_enough_for_its_work() {
        let limit = Try::parse("1000 1000000").unwrap();
        assert_eq!(limit.what_if(1, 10_000_000_000, 1_000_000_000).duration_ns, 4_001_000_000_000);
        assert_eq!(limit.what_if(1, u64::MAX, u64::MAX).duration_ns, MAX_DURATION_NS);
        assert_eq!(Try::none().what_if(1, 10, u64::MAX).duration_ns, 1_000_000_040);
    }
}
