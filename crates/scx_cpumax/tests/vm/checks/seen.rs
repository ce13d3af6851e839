// SPDX-License-Identifier: GPL-2.0-only
//! Compares the output of `cpumax stat` and `scx_cpumax --monitor` with the work of the groups
//! under a running scheduler.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{Checked, Group, Scheduler, ask, state, wait_until};

/// Path of the command in the machine, if it was built.
pub const CPUMAX: &str = "/cpumax";
/// A limit whose throttled time is long enough for several requests: the socket answers every 50
/// ms.
const QUOTA_US: u64 = 80_000;
const PERIOD_US: u64 = 400_000;
/// Name without suffix, whether it is a counter, the field of the answer, and the divisor of that
/// field.
const METRICS: &[(&str, bool, &str, f64)] = &[
    ("container_cpu_usage_seconds", true, "usage_usec", 1e6),
    ("container_cpu_cfs_periods", true, "nr_periods", 1.0),
    ("container_cpu_cfs_throttled_periods", true, "nr_throttled", 1.0),
    ("container_cpu_cfs_throttled_seconds", true, "throttled_usec", 1e6),
    ("container_cpu_cfs_burst_periods", true, "nr_bursts", 1.0),
    ("container_cpu_cfs_burst_seconds", true, "burst_usec", 1e6),
    ("container_spec_cpu_quota", false, "quota_usec", 1.0),
    ("container_spec_cpu_period", false, "period_usec", 1.0),
    ("cpumax_parked_tasks", false, "parked", 1.0),
    ("cpumax_debt_seconds", false, "debt_usec", 1e6),
    ("cpumax_kernel_overrun_seconds", true, "kernel_overrun_usec", 1e6),
];

/// Output of `cpumax stat`.
fn stat(args: &[&str]) -> Result<String, String> {
    let output = Command::new(CPUMAX).arg("stat").args(args).output().map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        return Err(format!("stat {args:?}: {}: {}", output.status, text(&output.stderr)));
    }
    Ok(text(&output.stdout))
}

/// Names and numbers, one pair per line, as in `cpu.stat`; other lines are left out.
fn numbers(text: &str) -> BTreeMap<&str, u64> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.filter_map(|(name, number)| Some((name, number.parse().ok()?))).collect()
}

/// A program whose output goes to a file.
fn start(program: &str, args: &[&str], path: &str) -> Result<Child, String> {
    let file = fs::File::create(path).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(args).stdout(file).stdin(Stdio::null()).spawn().map_err(|error| error.to_string())
}

fn end(mut child: Child, signal: i32) -> Result<ExitStatus, String> {
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, signal) };
    child.wait().map_err(|error| error.to_string())
}

/// Value of a column in a table's line about the group.
fn row<'t>(table: &'t str, group: &str) -> Option<Vec<&'t str>> {
    let line = table.lines().find(|line| line.ends_with(&format!(" /{group}")))?;
    Some(line.split_whitespace().collect())
}

/// Checks the whole path: the counters of the BPF programs, the socket, and each form of output.
pub fn seen() -> Checked {
    if !Path::new(CPUMAX).exists() {
        return Ok("skipped: there is no cpumax, which `cargo build -p cpumax` builds".to_owned());
    }
    match stat(&[]) {
        Err(said) if said.contains("no scheduler answers there") => {}
        other => return Err(format!("without a scheduler: {other:?}")),
    }
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("seen", &format!("{QUOTA_US} {PERIOD_US}"));
    let (idle, free) = (Group::new("idle", "7000 50000"), Group::new("free", "max"));
    let began = Instant::now();
    let loads = (group.load(&["hog"]), group.load(&["writer", "/tmp/seen", "16"]));
    sleep(Duration::from_secs(2));
    let mut said = live(&group)?;
    repeated(&group)?;
    drop(loads);
    let took_us = began.elapsed().as_micros() as u64;
    let settled = || group.stat()["unaccounted_nsec"].as_i64() == Some(0);
    wait_until(5, settled).map_err(|()| format!("it does not add up: {}", group.stat()))?;
    // The timer stops after a period without activity.
    sleep(Duration::from_micros(4 * PERIOD_US));
    said += &adds_up(&group, took_us)?;
    same_in_all_forms(&group)?;
    let free = stat(&[&free.0])?;
    let unlimited = ["nr_periods", "nr_throttled", "throttled_usec", "debt_usec"];
    if unlimited.iter().any(|name| numbers(&free).get(name) != Some(&0)) {
        return Err(format!("of a group without a limit: {free}"));
    }
    if numbers(&stat(&[&idle.0])?)["usage_usec"] != 0 {
        return Err("an idle group used something".to_owned());
    }
    match stat(&["nowhere"]) {
        Err(error) if error.contains("there is no cgroup") => {}
        other => return Err(format!("of a group that is not there: {other:?}")),
    }
    scheduler.stop()?;
    started(&group)?;
    Ok(said)
}

/// Answer of the scheduler to a user.
fn told_to(uid: u32, request: &str) -> Result<serde_json::Value, String> {
    let mut asker = Command::new("/init");
    let output = asker.args(["load", "asks", &uid.to_string(), request]).output();
    let text = output.map_err(|error| error.to_string())?.stdout;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// A user sees its own groups and threads, and one sum of the others.
pub fn told() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let (mine, theirs) =
        (Group::new("mine/inner", "20000 100000"), Group::new("theirs", "30000 100000"));
    let dir = Group("mine".to_owned()).file("");
    std::os::unix::fs::chown(dir, Some(1000), Some(1000)).map_err(|error| error.to_string())?;
    let mut own = Command::new("/init");
    let mut own = own.args(["load", "hog"]).uid(1000).spawn().map_err(|error| error.to_string())?;
    mine.set("cgroup.procs", &own.id().to_string());
    let _loads = (mine.hogs(1), theirs.hogs(1));
    sleep(Duration::from_secs(2));
    let names = |answer: &serde_json::Value| -> Vec<String> {
        let groups = answer["groups"].as_array().cloned().unwrap_or_default();
        groups.iter().filter_map(|group| Some(group["group"].as_str()?.to_owned())).collect()
    };
    let threads = |answer: &serde_json::Value| -> Vec<u64> {
        let tasks = answer["groups"][0]["tasks"].as_array().cloned().unwrap_or_default();
        tasks.iter().filter_map(|task| task["tid"].as_u64()).collect()
    };
    let one = "{\"group\":\"/mine/inner\",\"tasks\":true}";
    let (root, user) = (told_to(0, "{}")?, told_to(1000, "{}")?);
    let (all, some) = (threads(&told_to(0, one)?), threads(&told_to(1000, one)?));
    let refused = told_to(1000, "{\"group\":\"/theirs\"}")?;
    let stranger = names(&told_to(1001, "{}")?);
    let _ = (own.kill(), own.wait());
    scheduler.stop()?;
    let right = names(&root) == ["/mine/inner", "/theirs"]
        && names(&user) == ["/mine/inner", "others"]
        && user["groups"][1]["parks"].as_u64() > Some(0)
        && all.len() == 2
        && some == [u64::from(own.id())]
        && refused["error"].as_str().is_some_and(|error| error.contains("for root only"))
        && stranger == ["others"];
    let said = format!("{root} / {user} / {all:?} / {some:?} / {refused} / {stranger:?}");
    if right { Ok(String::new()) } else { Err(said) }
}

/// `cpumax sched` starts the scheduler with the options behind `--`, and ctrl-C ends it.
fn started(group: &Group) -> Result<(), String> {
    let sched = start(CPUMAX, &["sched", "--", "--stats", "1"], "/tmp/sched")?;
    wait_until(90, || state().starts_with("enabled"))
        .map_err(|()| format!("cpumax sched does not start it: {}", state()))?;
    let load = group.load(&["hog"]);
    sleep(Duration::from_secs(5));
    drop(load);
    let ended = end(sched, libc::SIGINT)?;
    let text = fs::read_to_string("/tmp/sched").unwrap_or_default();
    let tables = text.split("parked ").skip(1).filter_map(|table| row(table, &group.0));
    let parks: Vec<u64> = tables.filter_map(|row| row.get(5)?.parse().ok()).collect();
    let moved_on = parks.len() >= 3 && parks.first() < parks.last();
    if !ended.success() || !moved_on || !state().starts_with("disabled") {
        return Err(format!("cpumax sched: {ended}, {}, {parks:?} parks: {text}", state()));
    }
    Ok(())
}

/// While both tasks are parked, the values in the form of `cpu.stat` lie between two readings of
/// the kernel's, and the numbers of the threads add up to those of the group.
fn live(group: &Group) -> Result<String, String> {
    let mut wrong = String::new();
    // The tasks may be released while the command starts.
    for _ in 0..20 {
        wait_until(5, || group.number("parked") == 2)
            .map_err(|()| format!("they were never parked together: {}", group.stat()))?;
        let before = (group.usage_us(), group.number("nr_periods"));
        let text = stat(&[&group.0, "--tasks"])?;
        let after = (group.usage_us(), group.number("nr_periods"));
        let shown = numbers(&text);
        let between = (before.0..=after.0).contains(&shown["usage_usec"])
            && (before.1..=after.1).contains(&shown["nr_periods"]);
        if !between {
            return Err(format!("{before:?}, {after:?} and between: {text}"));
        }
        let tasks: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("task "))
            .map(|line| line.split(' ').collect())
            .collect();
        let sum = |name: &str| -> u64 {
            let number = |task: &Vec<&str>| {
                task.iter()
                    .position(|word| *word == name)
                    .and_then(|at| task[at + 1].parse::<u64>().ok())
            };
            tasks.iter().filter_map(number).sum()
        };
        if sum("parked") == 2 && shown["parked"] == 2 && before == after {
            let differs = |name: &&&str| sum(name) != shown[**name];
            // Each value is rounded down to microseconds.
            let apart = shown["parked_usec"].abs_diff(sum("parked_usec"));
            if let Some(name) = ["parks", "parked"].iter().find(differs) {
                return Err(format!("{name} of the threads are not those of the group: {text}"));
            }
            if apart > 2
                || shown["released"] + 2 != shown["parks"]
                || sum("kernel_overrun_usec") == 0
            {
                return Err(format!("its threads do not add up: {text}"));
            }
            let table = stat(&[])?;
            if row(&table, &group.0).is_none()
                || row(&table, "idle").is_none()
                || table.contains("/free")
            {
                return Err(format!("not the groups with a limit: {table}"));
            }
            return Ok(format!("{} parks of both threads, ", shown["parks"]));
        }
        wrong = text;
    }
    Err(format!("never seen while both were parked: {wrong}"))
}

/// The tables that are printed each second follow the group.
fn repeated(group: &Group) -> Result<(), String> {
    let watch = start(CPUMAX, &["stat", "--watch", "1"], "/tmp/watch")?;
    let monitor = start("/scx_cpumax", &["--monitor", "1"], "/tmp/monitor")?;
    let before = group.number("parks");
    sleep(Duration::from_millis(3500));
    let after = group.number("parks");
    let ended = end(watch, libc::SIGINT)?;
    if ended.code() != Some(130) {
        return Err(format!("ctrl-C ended `stat --watch` with {ended}"));
    }
    end(monitor, libc::SIGTERM)?;
    // Column of the parks, and first word of each table.
    for (path, column, begin) in [("/tmp/watch", 7, "cpu.max "), ("/tmp/monitor", 5, "parked ")] {
        let text = fs::read_to_string(path).unwrap_or_default();
        let tables = text.split(begin).skip(1).filter_map(|table| row(table, &group.0));
        let parks: Vec<u64> = tables.filter_map(|row| row.get(column)?.parse().ok()).collect();
        let within = parks.iter().all(|parks| (before..=after).contains(parks));
        if parks.len() < 3 || !within || !parks.is_sorted_by(|a, b| a < b) {
            return Err(format!("{path}: {parks:?} parks from {before} to {after}: {text}"));
        }
    }
    Ok(())
}

/// The reported use of a group that was busy for so long, alone on one CPU, is its real use.
fn adds_up(group: &Group, took_us: u64) -> Result<String, String> {
    let text = stat(&[&group.0])?;
    let shown = numbers(&text);
    let kernel = fs::read_to_string(group.file("cpu.stat")).unwrap_or_default();
    let kernel = numbers(&kernel);
    for name in ["usage_usec", "user_usec", "system_usec"] {
        if kernel[name] != shown[name] {
            return Err(format!("{name}: the kernel's is {}: {text}", kernel[name]));
        }
    }
    let charged = group.number("charged_usec");
    let (used, periods) = (shown["usage_usec"], took_us / PERIOD_US);
    let said = format!(
        "in {took_us} us {used} us used, {charged} charged, {} owed, throttled {} us in {} of {} \
         periods",
        shown["debt_usec"], shown["throttled_usec"], shown["nr_throttled"], shown["nr_periods"]
    );
    let off = |a: u64, b: u64, least: u64| a.abs_diff(b) > least.max(b / 50);
    let paid = used - shown["debt_usec"];
    let wrong = off(used, charged, 100)
        // The first pool was full, and part of the last may be left.
        || off(paid, periods * QUOTA_US, QUOTA_US * 5 / 4)
        || off(used + shown["throttled_usec"], took_us, PERIOD_US)
        || shown["nr_periods"].abs_diff(periods) > 3
        || shown["nr_throttled"] > shown["nr_periods"]
        || shown["nr_throttled"] + 5 < periods
        || shown["parked"] != 0
        || shown["released"] > shown["parks"];
    if wrong { Err(format!("{said}: {text}")) } else { Ok(said) }
}

/// When all values stand still, each form shows the numbers of the socket's answer.
fn same_in_all_forms(group: &Group) -> Result<(), String> {
    let answer = ask("{}");
    let groups: Vec<_> = answer["groups"].as_array().cloned().unwrap_or_default();
    let here = group.stat();
    let number = |name: &str| here[name].as_u64().unwrap_or(u64::MAX);
    let text = stat(&[&group.0])?;
    let kernels = fs::read_to_string(group.file("cpu.stat")).unwrap_or_default();
    let order = |text: &str| -> Vec<String> {
        let ours = ["core_sched.force_idle_usec", "nice_usec"];
        let names = text.lines().filter_map(|line| line.split(' ').next());
        names.filter(|name| !ours.contains(name)).map(str::to_owned).collect()
    };
    if !order(&text).starts_with(&order(&kernels)) {
        return Err(format!("not in the form of cpu.stat, {kernels}: {text}"));
    }
    if let Some((name, shown)) = numbers(&text).iter().find(|(name, shown)| number(name) != **shown)
    {
        return Err(format!("{name} {shown} is not of {here}"));
    }
    let table = stat(&[])?;
    let columns = row(&table, &group.0).unwrap_or_default().join(" ");
    let expected = format!(
        "{} {} {}/{} {} {} {:.1} {:.1} {} /{}",
        number("quota_usec"),
        number("period_usec"),
        number("nr_throttled"),
        number("nr_periods"),
        number("throttled_usec") / 1000,
        number("parked"),
        number("debt_usec") as f64 / 1000.0,
        number("kernel_overrun_usec") as f64 / 1000.0,
        number("parks"),
        group.0
    );
    if columns != expected {
        return Err(format!("{expected:?} is not in {table}"));
    }
    let metrics = stat(&["--openmetrics"])?;
    let mut wanted = String::new();
    for (name, counter, field, unit) in METRICS {
        let kind = if *counter { "counter" } else { "gauge" };
        let _ = writeln!(wanted, "# TYPE {name} {kind}");
        for group in &groups {
            let value = group[*field].as_u64().ok_or_else(|| format!("no {field} in {group}"))?;
            let total = if *counter { "_total" } else { "" };
            let id = group["group"].as_str().unwrap_or_default();
            let _ = writeln!(wanted, "{name}{total}{{id=\"{id}\"}} {}", value as f64 / unit);
        }
    }
    wanted += "# EOF\n";
    let told = metrics.lines().filter(|line| !line.starts_with("# HELP "));
    let told: String = told.flat_map(|line| [line, "\n"]).collect();
    if told != wanted || groups.len() != 2 {
        return Err(format!("{told} is not {wanted}"));
    }
    Ok(())
}
