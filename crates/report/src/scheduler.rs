//! `cpumax stat`: what the `sched_ext` scheduler did to groups, asked of its socket.
//!
//! In the form of `cpu.stat` for one group, as a table, as JSON, and as `OpenMetrics` with the
//! names that dashboards of containers already use. The scheduler is another program under another
//! licence: nothing is shared but lines of JSON.

use crate::failure::Failure;
use crate::output;
use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Args)]
pub struct StatArgs {
    /// A cgroup, as a path below the root of the hierarchy; all that have a limit if none is given
    pub group: Option<String>,
    /// Tell about each thread of the group too
    #[arg(long, requires = "group")]
    pub tasks: bool,
    /// Print the scheduler's answer as JSON
    #[arg(long)]
    pub json: bool,
    /// Print metrics for Prometheus and others, under the names of container dashboards
    #[arg(long, conflicts_with = "json")]
    pub openmetrics: bool,
    /// Print a table again each so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["json", "openmetrics"], value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub watch: Option<u64>,
    /// Where the scheduler answers
    #[arg(long, value_name = "PATH", default_value = "/run/scx_cpumax.sock")]
    pub socket: PathBuf,
}

/// Asks and prints.
pub fn stat(args: &StatArgs) -> Result<(), Failure> {
    let mut out = output::stdout();
    loop {
        let groups = ask(&args.socket, args.group.as_deref(), args.tasks)?;
        let text = match (&groups[..], args) {
            (_, StatArgs { json: true, .. }) => {
                format!("{}\n", serde_json::to_string_pretty(&groups)?)
            }
            (_, StatArgs { openmetrics: true, .. }) => openmetrics(&groups),
            ([group], StatArgs { watch: None, group: Some(_), .. }) => cpu_stat(group),
            _ => table(&groups),
        };
        if args.watch.is_some() {
            write!(output::raw_stdout(), "\x1b[H\x1b[2J")?;
        }
        write!(out, "{text}")?;
        out.flush()?;
        let Some(seconds) = args.watch else { return Ok(()) };
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

fn ask(socket: &Path, group: Option<&str>, tasks: bool) -> anyhow::Result<Vec<Value>> {
    let mut stream = UnixStream::connect(socket).with_context(|| {
        format!("{}: no scheduler answers there; `cpumax sched` starts one", socket.display())
    })?;
    writeln!(stream, "{}", serde_json::json!({ "group": group, "tasks": tasks }))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut answer: Value = serde_json::from_str(&line)
        .with_context(|| format!("{}: not an answer of scx_cpumax", socket.display()))?;
    if let Some(error) = answer["error"].as_str() {
        return Err(anyhow!("{error}"));
    }
    match answer["groups"].take() {
        Value::Array(groups) => Ok(groups),
        _ => Err(anyhow!("{}: not an answer of scx_cpumax", socket.display())),
    }
}

fn number(group: &Value, field: &str) -> u64 {
    group[field].as_u64().unwrap_or(0)
}

/// The fields of the kernel's file in its order, then those it does not have.
fn cpu_stat(group: &Value) -> String {
    const KERNEL: &[&str] = &[
        "usage_usec",
        "user_usec",
        "system_usec",
        "nr_periods",
        "nr_throttled",
        "throttled_usec",
        "nr_bursts",
        "burst_usec",
    ];
    const OWN: &[&str] = &[
        "parked",
        "debt_usec",
        "parks",
        "parked_usec",
        "kernel_overrun_usec",
        "released",
        "watchdog_passes",
    ];
    let mut text = String::new();
    for field in KERNEL.iter().chain(OWN) {
        let _ = writeln!(text, "{field} {}", number(group, field));
    }
    for task in group["tasks"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "task {} {} parked {} visits {} parks {} parked_usec {} boundary_usec {} kernel_overrun_usec {}",
            number(task, "tid"),
            task["comm"].as_str().unwrap_or(""),
            u64::from(task["parked"].as_bool().unwrap_or(false)),
            number(task, "boundary_visits"),
            number(task, "parks"),
            number(task, "parked_usec"),
            number(task, "boundary_usec"),
            number(task, "kernel_overrun_usec"),
        );
    }
    text
}

fn table(groups: &[Value]) -> String {
    let mut text = format!(
        "{:>17} {:>13} {:>11} {:>7} {:>9} {:>10} {:>8}  group\n",
        "cpu.max", "throttled", "for ms", "parked", "debt ms", "overrun ms", "parks"
    );
    for group in groups {
        let quota = group["quota_usec"]
            .as_u64()
            .map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let _ = writeln!(
            text,
            "{:>17} {:>13} {:>11} {:>7} {:>9.1} {:>10.1} {:>8}  {}",
            format!("{quota} {}", number(group, "period_usec")),
            format!("{}/{}", number(group, "nr_throttled"), number(group, "nr_periods")),
            number(group, "throttled_usec") / 1000,
            number(group, "parked"),
            number(group, "debt_usec") as f64 / 1000.0,
            number(group, "kernel_overrun_usec") as f64 / 1000.0,
            number(group, "parks"),
            group["group"].as_str().unwrap_or("?"),
        );
    }
    text
}

/// Name without its suffix, kind, field, what to divide by, help.
type Metric = (&'static str, &'static str, &'static str, f64, &'static str);
const METRICS: &[Metric] = &[
    ("container_cpu_usage_seconds", "counter", "usage_usec", 1e6, "CPU time used"),
    ("container_cpu_cfs_periods", "counter", "nr_periods", 1.0, "Enforcement periods gone by"),
    (
        "container_cpu_cfs_throttled_periods",
        "counter",
        "nr_throttled",
        1.0,
        "Periods in which the group was throttled",
    ),
    (
        "container_cpu_cfs_throttled_seconds",
        "counter",
        "throttled_usec",
        1e6,
        "Time throttled, summed over CPUs",
    ),
    (
        "container_cpu_cfs_burst_periods",
        "counter",
        "nr_bursts",
        1.0,
        "Periods in which a burst was used",
    ),
    (
        "container_cpu_cfs_burst_seconds",
        "counter",
        "burst_usec",
        1e6,
        "CPU time used beyond the quota by bursts",
    ),
    ("container_spec_cpu_quota", "gauge", "quota_usec", 1.0, "Quota in microseconds"),
    ("container_spec_cpu_period", "gauge", "period_usec", 1.0, "Period in microseconds"),
    ("cpumax_parked_tasks", "gauge", "parked", 1.0, "Tasks waiting for runtime"),
    (
        "cpumax_debt_seconds",
        "gauge",
        "debt_usec",
        1e6,
        "CPU time used beyond the quota and not yet paid back",
    ),
    (
        "cpumax_kernel_overrun_seconds",
        "counter",
        "kernel_overrun_usec",
        1e6,
        "CPU time run in kernel mode while throttled",
    ),
];

fn openmetrics(groups: &[Value]) -> String {
    let mut text = String::new();
    for (name, kind, field, unit, help) in METRICS {
        let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}.");
        let suffix = if *kind == "counter" { "_total" } else { "" };
        for group in groups.iter().filter(|group| group[*field].is_u64()) {
            let id = escape(group["group"].as_str().unwrap_or("?"));
            let _ = writeln!(
                text,
                "{name}{suffix}{{id=\"{id}\"}} {}",
                number(group, field) as f64 / unit
            );
        }
    }
    text.push_str("# EOF\n");
    text
}

/// A label's value.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixListener;
    use std::thread;

    fn group() -> Value {
        json!({ "group": "/a\"b", "quota_usec": 20000, "period_usec": 100_000, "usage_usec": 1_500_000, "nr_periods": 7,
            "nr_throttled": 5, "throttled_usec": 250_000, "parked": 2, "debt_usec": 1500, "kernel_overrun_usec": 0,
            "tasks": [{ "tid": 12, "comm": "x", "parked": true, "boundary_visits": 3, "parks": 2 }] })
    }

    #[test]
    fn one_group_looks_like_cpu_stat() {
        let text = cpu_stat(&group());
        assert!(text.starts_with("usage_usec 1500000\nuser_usec 0\nsystem_usec 0\nnr_periods 7\nnr_throttled 5\nthrottled_usec 250000\n"));
        assert!(text.contains("\ntask 12 x parked 1 visits 3 parks 2 "), "{text}");
    }

    #[test]
    fn metrics_have_the_names_of_dashboards_and_end_with_a_mark() {
        let text = openmetrics(&[group(), json!({ "group": "/free", "quota_usec": null })]);
        assert!(
            text.contains("container_cpu_cfs_throttled_seconds_total{id=\"/a\\\"b\"} 0.25\n"),
            "{text}"
        );
        assert!(
            !text.contains("container_spec_cpu_quota{id=\"/free\"}"),
            "no limit is no quota: {text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_table_has_a_line_for_each_group() {
        let text = table(&[group()]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("20000 100000") && text.contains("5/7"), "{text}");
    }

    #[test]
    fn a_refusal_is_an_error_and_so_is_silence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(ask(&path, None, false).unwrap_err().to_string().contains("cpumax sched"));
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            for reply in [
                "{\"error\":\"there is no cgroup\"}\n",
                "{\"groups\":[{\"group\":\"/a\"}]}\n",
                "what?\n",
            ] {
                let (mut client, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(client.try_clone().unwrap()).read_line(&mut line).unwrap();
                client.write_all(reply.as_bytes()).unwrap();
            }
        });
        assert!(ask(&path, Some("/x"), false).unwrap_err().to_string().contains("no cgroup"));
        assert_eq!(ask(&path, None, false).unwrap().len(), 1);
        assert!(ask(&path, None, false).is_err());
        server.join().unwrap();
    }
}
