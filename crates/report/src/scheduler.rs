//! Prints statistics of the `sched_ext` scheduler: one group in the form of `cpu.stat`, all groups
//! as a table, or as `OpenMetrics` with the names that container dashboards use.

use crate::escape;
use cpumax_observed::scheduler::GroupStat;
use std::fmt::Write;

/// One group: the fields of the kernel's file in its order, then further fields, and a line for
/// each reported thread.
pub fn cpu_stat(group: &GroupStat) -> String {
    let fields = [
        ("usage_usec", group.usage_usec),
        ("user_usec", group.user_usec),
        ("system_usec", group.system_usec),
        ("nr_periods", group.nr_periods),
        ("nr_throttled", group.nr_throttled),
        ("throttled_usec", group.throttled_usec),
        ("nr_bursts", group.nr_bursts),
        ("burst_usec", group.burst_usec),
        ("parked", group.parked),
        ("debt_usec", group.debt_usec),
        ("parks", group.parks),
        ("parks_queued", group.parks_queued),
        ("parked_usec", group.parked_usec),
        ("kernel_overrun_usec", group.kernel_overrun_usec),
        ("released", group.released),
        ("watchdog_passes", group.watchdog_passes),
    ];
    let mut text = String::new();
    for (field, value) in fields {
        let _ = writeln!(text, "{field} {value}");
    }
    for task in &group.tasks {
        let _ = writeln!(
            text,
            "task {} {} parked {} visits {} parks {} parked_usec {} boundary_usec {} \
             kernel_overrun_usec {}",
            task.tid,
            escape::line(&task.comm),
            u64::from(task.parked),
            task.boundary_visits,
            task.parks,
            task.parked_usec,
            task.boundary_usec,
            task.kernel_overrun_usec,
        );
    }
    text
}

/// A table with a line for each group.
pub fn groups_of_scheduler(groups: &[GroupStat]) -> String {
    let mut text = format!(
        "{:>17} {:>13} {:>11} {:>7} {:>9} {:>10} {:>8}  group\n",
        "cpu.max", "throttled", "for ms", "parked", "debt ms", "overrun ms", "parks"
    );
    for group in groups {
        let quota = group.quota_usec.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let _ = writeln!(
            text,
            "{:>17} {:>13} {:>11} {:>7} {:>9.1} {:>10.1} {:>8}  {}",
            format!("{quota} {}", group.period_usec),
            format!("{}/{}", group.nr_throttled, group.nr_periods),
            group.throttled_usec / 1000,
            group.parked,
            group.debt_usec as f64 / 1000.0,
            group.kernel_overrun_usec as f64 / 1000.0,
            group.parks,
            escape::line(&group.group),
        );
    }
    text
}

/// A number of a group, and its metric.
struct Metric {
    /// Name without its suffix.
    name: &'static str,
    kind: &'static str,
    of: fn(&GroupStat) -> Option<u64>,
    unit: f64,
    help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: &'static str,
    of: fn(&GroupStat) -> Option<u64>,
    unit: f64,
    help: &'static str,
) -> Metric {
    Metric { name, kind, of, unit, help }
}

const METRICS: [Metric; 11] = [
    metric(
        "container_cpu_usage_seconds",
        "counter",
        |group| Some(group.usage_usec),
        1e6,
        "CPU time used",
    ),
    metric(
        "container_cpu_cfs_periods",
        "counter",
        |group| Some(group.nr_periods),
        1.0,
        "Enforcement periods gone by",
    ),
    metric(
        "container_cpu_cfs_throttled_periods",
        "counter",
        |group| Some(group.nr_throttled),
        1.0,
        "Periods in which the group was throttled",
    ),
    metric(
        "container_cpu_cfs_throttled_seconds",
        "counter",
        |group| Some(group.throttled_usec),
        1e6,
        "Time throttled, summed over CPUs",
    ),
    metric(
        "container_cpu_cfs_burst_periods",
        "counter",
        |group| Some(group.nr_bursts),
        1.0,
        "Periods in which a burst was used",
    ),
    metric(
        "container_cpu_cfs_burst_seconds",
        "counter",
        |group| Some(group.burst_usec),
        1e6,
        "CPU time used beyond the quota by bursts",
    ),
    metric(
        "container_spec_cpu_quota",
        "gauge",
        |group| group.quota_usec,
        1.0,
        "Quota in microseconds",
    ),
    metric(
        "container_spec_cpu_period",
        "gauge",
        |group| Some(group.period_usec),
        1.0,
        "Period in microseconds",
    ),
    metric(
        "cpumax_parked_tasks",
        "gauge",
        |group| Some(group.parked),
        1.0,
        "Tasks waiting for runtime",
    ),
    metric(
        "cpumax_debt_seconds",
        "gauge",
        |group| Some(group.debt_usec),
        1e6,
        "CPU time used beyond the quota and not yet paid back",
    ),
    metric(
        "cpumax_kernel_overrun_seconds",
        "counter",
        |group| Some(group.kernel_overrun_usec),
        1e6,
        "CPU time run in kernel mode while throttled",
    ),
];

/// All groups in the `OpenMetrics` format.
pub fn openmetrics(groups: &[GroupStat]) -> String {
    let mut text = String::new();
    for Metric { name, kind, of, unit, help } in METRICS {
        let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}.");
        let suffix = if kind == "counter" { "_total" } else { "" };
        for group in groups {
            let Some(value) = of(group) else { continue };
            let (id, value) = (label(&group.group), value as f64 / unit);
            let _ = writeln!(text, "{name}{suffix}{{id=\"{id}\"}} {value}");
        }
    }
    text.push_str("# EOF\n");
    text
}

/// A label's value. Hidden characters are replaced, because labels have no escape for them.
fn label(text: &str) -> String {
    let hidden = |c: char| c != '\n' && escape::is_hidden(c);
    text.replace(hidden, "\u{fffd}").replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_observed::scheduler::TaskStat;

    fn group() -> GroupStat {
        let task = TaskStat {
            tid: 12,
            comm: "x".to_owned(),
            parked: true,
            boundary_visits: 3,
            parks: 2,
            ..TaskStat::default()
        };
        GroupStat {
            group: "/a\"b".to_owned(),
            quota_usec: Some(20_000),
            period_usec: 100_000,
            usage_usec: 1_500_000,
            nr_periods: 7,
            nr_throttled: 5,
            throttled_usec: 250_000,
            parked: 2,
            debt_usec: 1500,
            tasks: vec![task],
            ..GroupStat::default()
        }
    }

    #[test]
    fn one_group_looks_like_cpu_stat() {
        let text = cpu_stat(&group());
        let start = "usage_usec 1500000\nuser_usec 0\nsystem_usec 0\nnr_periods 7\n\
                     nr_throttled 5\nthrottled_usec 250000\n";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("\ntask 12 x parked 1 visits 3 parks 2 "), "{text}");
    }

    #[test]
    fn metrics_have_the_names_of_dashboards_and_end_with_a_mark() {
        let free = GroupStat { group: "/free".to_owned(), ..GroupStat::default() };
        let text = openmetrics(&[group(), free]);
        let throttled = "container_cpu_cfs_throttled_seconds_total{id=\"/a\\\"b\"} 0.25\n";
        assert!(text.contains(throttled), "{text}");
        let no_limit = "container_spec_cpu_quota{id=\"/free\"}";
        assert!(!text.contains(no_limit), "no limit is no quota: {text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn names_are_shown_and_do_nothing() {
        let mut hostile = group();
        hostile.group = "/a\n\u{1b}[8mb".to_owned();
        hostile.tasks[0].comm = "x\nnr_throttled 0".to_owned();
        let text = cpu_stat(&hostile);
        assert_eq!(text.lines().count(), cpu_stat(&group()).lines().count(), "{text}");
        let text = groups_of_scheduler(&[hostile.clone()]);
        assert!(text.lines().count() == 2 && !text.contains('\u{1b}'), "{text}");
        let text = openmetrics(&[hostile]);
        assert!(text.contains("id=\"/a\\n\u{fffd}[8mb\"") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn the_table_has_a_line_for_each_group() {
        let text = groups_of_scheduler(&[group()]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("20000 100000") && text.contains("5/7"), "{text}");
    }
}
