//! Gives groups their limits, with period edges at the phase that the scenario asks for.
//!
//! The kernel chooses the phase of a period timer: aligned to boot up to 6.3, random from 6.4 on. A
//! timer that fires while its group has no limit moves on by the period that is set then, and
//! becomes inactive; the next limit restarts it from there. So one period of the right length
//! without a limit gives a group any phase.

use crate::cgroup::{Group, Hierarchy};
use crate::sys;
use crate::timers::{PinnedCpu, at_or_after};
use cpumax_limit::Limit;
use cpumax_workload::{Action, GroupSpec, Workload};
use std::collections::BTreeMap;

/// First edges of all groups that have limits, ns since the start of the run.
pub type Edges = BTreeMap<String, u64>;

const SHORTEST_PERIOD_NS: u64 = 1_000_000;
const LONGEST_PERIOD_NS: u64 = 1_000_000_000;
const US: u64 = 1000;

/// A group whose period timer is being moved to the wanted phase.
struct Steered {
    group: usize,
    /// Limit at the start of the run.
    last: Limit,
    /// Current limit.
    now: Limit,
    period_ns: u64,
    edge_ns: u64,
}

/// Writes the limits of all groups so that period timers have the phases that the workload asks
/// for, for a run that starts at `start_ns` (`CLOCK_MONOTONIC`). Returns each group's first period
/// edge, ns since the start, by path. Takes up to two periods, and 2 ms for each group whose edge
/// is near; notes get groups whose timer was not found.
///
/// # Errors
/// The kernel refuses a limit, or `/proc/timer_list` cannot be read.
pub fn write_limits(
    hierarchy: &Hierarchy,
    groups: &[Group],
    workload: &Workload,
    start_ns: u64,
    notes: &mut Vec<String>,
) -> Result<Edges, String> {
    let here = PinnedCpu::pin();
    let mut edges = Edges::new();
    let mut steered = Vec::new();
    let mut periods_ns = Vec::new();
    for (ix, spec) in workload.groups.iter().enumerate().skip(1) {
        let Some(first) = first_limit(workload, ix) else { continue };
        let before = here.timers()?;
        hierarchy.write_limit(&groups[ix], Limit::UNLIMITED, first)?;
        let after = here.timers()?;
        // A timer without a limit stops at its edge.
        let last_ns: Vec<u64> = steered.iter().map(|group: &Steered| group.edge_ns).collect();
        let Some(edge_ns) = after.new_edge(&before, &periods_ns, &last_ns) else {
            notes.push(format!(
                "group {:?}: its period timer was not found in /proc/timer_list",
                spec.path
            ));
            hierarchy.write_limit(&groups[ix], first, spec.limit)?;
            continue;
        };
        let period_ns = first.period_ns();
        periods_ns.push(period_ns);
        let edge_ns = skip_near_edge(edge_ns, period_ns);
        edges.insert(spec.path.clone(), first_edge(start_ns, edge_ns, period_ns));
        let mut group = Steered { group: ix, last: spec.limit, now: first, period_ns, edge_ns };
        let step_ns = match workload.machine.timer_phase_ns {
            Some(phase_ns) => step_to_phase(&group, start_ns + phase_ns),
            None if first != spec.limit => Some(period_ns),
            None => None,
        };
        let Some(step_ns) = step_ns else { continue };
        periods_ns.push(step_ns);
        let idle = Limit::new(None, step_ns, 0).map_err(|error| error.to_string())?;
        hierarchy.write_limit(&groups[ix], group.now, idle)?;
        group.now = idle;
        steered.push(group);
    }
    let last_edge_ns = steered.iter().map(|group| group.edge_ns).max();
    if let Some(last_edge_ns) = last_edge_ns {
        const SETTLED_NS: u64 = 500_000;
        sys::sleep_until(last_edge_ns + SETTLED_NS);
    }
    for group in steered {
        hierarchy.write_limit(&groups[group.group], group.now, group.last)?;
        let edge_ns = group.edge_ns + group.now.period_ns();
        let path = workload.groups[group.group].path.clone();
        edges.insert(path, first_edge(start_ns, edge_ns, group.period_ns));
    }
    Ok(edges)
}

/// Returns the edge, or the next one if this one is so near that the timer could fire before its
/// new period is written; then it waits until the edge has passed.
fn skip_near_edge(edge_ns: u64, period_ns: u64) -> u64 {
    const NEAR_NS: u64 = 2_000_000;
    const PASSED_NS: u64 = 100_000;
    if sys::monotonic_ns() + NEAR_NS.min(period_ns / 2) < edge_ns {
        return edge_ns;
    }
    sys::sleep_until(edge_ns + PASSED_NS.min(period_ns / 4));
    edge_ns + period_ns
}

/// First edge of a timer at or after the start, ns since the start, given one of its edges
/// (`start_ns` and `edge_ns` by one clock). An edge that falls just before the start counts as one
/// at the start: runtime that woken tasks have taken is refilled by it.
fn first_edge(start_ns: u64, edge_ns: u64, period_ns: u64) -> u64 {
    const SAME_NS: u64 = 2_000;
    let first_ns = at_or_after(start_ns, edge_ns, period_ns) - start_ns;
    if period_ns - first_ns <= SAME_NS { 0 } else { first_ns }
}

/// The first edges since the start of a run, if its start is postponed by `by_ns`.
pub fn postponed(edges: &Edges, workload: &Workload, by_ns: u64) -> Edges {
    let later = |(ix, spec): (usize, &GroupSpec)| {
        let (edge_ns, period_ns) = (edges.get(&spec.path)?, first_limit(workload, ix)?.period_ns());
        Some((spec.path.clone(), first_edge(by_ns, *edge_ns, period_ns)))
    };
    workload.groups.iter().enumerate().filter_map(later).collect()
}

/// Whether no period of a group with a limit at the start ends within `before_ns` before the start.
/// `edges`: first ones since the start.
pub fn is_clear(edges: &Edges, workload: &Workload, before_ns: u64) -> bool {
    let limited = workload.groups.iter().filter(|spec| spec.limit.quota_ns().is_some());
    limited
        .filter_map(|spec| Some((*edges.get(&spec.path)?, spec.limit.period_ns())))
        .all(|(edge_ns, period_ns)| edge_ns == 0 || edge_ns + before_ns < period_ns)
}

/// The limit that a group starts with, or the first one that an intervention gives it; `None` if it
/// never has a quota.
fn first_limit(workload: &Workload, ix: usize) -> Option<Limit> {
    let own = workload.groups[ix].limit;
    let later = workload.interventions.iter().find_map(|i| match i.action {
        Action::WriteLimit { group, limit } if group as usize == ix => Some(limit),
        _ => None,
    });
    [Some(own), later].into_iter().flatten().find(|limit| limit.quota_ns().is_some())
}

/// Length of the one period, ns in whole us, that takes the timer from its next edge to `wanted_ns`
/// or a whole number of periods from it. `None` if no step is needed, or no period is that long.
fn step_to_phase(group: &Steered, wanted_ns: u64) -> Option<u64> {
    let ahead_ns = at_or_after(group.edge_ns, wanted_ns, group.period_ns) - group.edge_ns;
    let ahead_ns = (ahead_ns + US / 2) / US * US;
    if ahead_ns == 0 || ahead_ns >= group.period_ns {
        return (group.now != group.last).then_some(group.period_ns);
    }
    let too_short = ahead_ns < SHORTEST_PERIOD_NS;
    let step_ns = if too_short { ahead_ns + group.period_ns } else { ahead_ns };
    (step_ns <= LONGEST_PERIOD_NS).then_some(step_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_at_the_start_is_one_of_the_run() {
        let of = |edge_ns| first_edge(1_000_000_000, edge_ns, 100_000_000);
        assert_eq!([899_999_898, 899_990_000, 900_000_153].map(of), [0, 99_990_000, 153]);
    }

    #[test]
    fn a_run_can_be_put_off_until_no_period_ends_just_before_it() {
        let text = "name = \"s\"\nduration = \"1s\"\n[[group]]\npath = \"/g\"\n\
                    max = \"10000 50000\"\n\
                    [[task]]\nname = \"t\"\ngroup = \"/g\"\nprogram = [{ user = \"1ms\" }]\n";
        let workload = cpumax_workload::parse(text, "s").expect("is a scenario");
        let edges = Edges::from([("/g".to_owned(), 49_000_000)]);
        assert!(!is_clear(&edges, &workload, 2_000_000));
        let later = postponed(&edges, &workload, 8_000_000);
        assert_eq!(later["/g"], 41_000_000);
        assert!(is_clear(&later, &workload, 2_000_000));
        assert_eq!(postponed(&edges, &workload, 48_999_999)["/g"], 1);
        assert!(is_clear(&postponed(&edges, &workload, 49_000_000), &workload, 2_000_000));
    }

    #[test]
    fn a_step_leads_to_the_phase_that_is_wanted() {
        let limit = Limit::new(Some(10_000_000), 100_000_000, 0).unwrap();
        for (edge_ns, wanted_ns) in
            [(1_000_050_007, 5_000_000_000), (1_099_500_003, 4_000_000), (7, 99_999_000)]
        {
            let period_ns = limit.period_ns();
            let group = Steered { group: 1, last: limit, now: limit, period_ns, edge_ns };
            let step_ns = step_to_phase(&group, wanted_ns).unwrap();
            assert!(
                (SHORTEST_PERIOD_NS..=LONGEST_PERIOD_NS).contains(&step_ns)
                    && step_ns.is_multiple_of(US)
            );
            let off_ns = at_or_after(edge_ns + step_ns + US, wanted_ns, period_ns)
                - (edge_ns + step_ns + US);
            assert!(!(2 * US..=period_ns - 2 * US).contains(&off_ns), "{off_ns}");
        }
    }
}
