//! `cpumax verify`: predictions compared with real groups, with folders that look like a group, and
//! with scrapes.

use cpumax_require::{Need, found};
use cpumax_study::outcome::ReleaseOutcome;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn cpumax(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

/// A study of one limit on each generation, which predicts these shares of throttled periods.
fn study(folder: &Path, throttled: [f64; 3]) -> PathBuf {
    let ranged = |[value, low, high]: [f64; 3]| json!({"value": value, "low": low, "high": high});
    let run = |kernel: &str| {
        json!({
            "kind": "replay", "version": 2, "group": "/g", "cpu_max": "20000 100000",
            "burst_usec": 0, "lacks": [], "window": {"from_ns": 0, "until_ns": 1},
            "scenario": "hog.data", "world": "model", "kernel": kernel, "generation": "",
            "seed": 1, "simulated_ns": 1, "groups": {}, "tasks": {},
            "release": ReleaseOutcome::default(), "events": 0,
            "prediction": {
                "cpus": ranged([0.2, 0.18, 0.23]), "throttled_percent": ranged(throttled),
                "requests_per_second": null, "request_latency_ns": null, "latency_of": "bursts",
                "work_takes_ns": {"value": 1, "low": 1, "high": 2}, "predictable": true,
                "why_not": null
            }
        })
    };
    let all = json!(["4.19", "5.4", "6.1", "6.18", "7.2", "7.3"].map(run));
    let path = folder.join("study.json");
    fs::write(&path, all.to_string()).unwrap();
    path
}

static MADE: AtomicU32 = AtomicU32::new(0);

/// A group with that limit and a busy thread, removed at the end.
struct Busy {
    folders: Vec<PathBuf>,
    hog: Child,
}

impl Busy {
    fn start() -> Result<Busy, String> {
        let root = Path::new("/sys/fs/cgroup");
        let (pid, nr) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let name = format!("cpumax-verify-test-{pid}-{nr}");
        let is_v2 = root.join("cgroup.controllers").exists();
        let roots: &[&str] = if is_v2 { &[""] } else { &["cpu", "cpuacct"] };
        let folders: Vec<PathBuf> = roots.iter().map(|one| root.join(one).join(&name)).collect();
        for folder in &folders {
            let made = fs::create_dir(folder);
            made.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let hog = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let busy = Busy { folders, hog };
        for folder in &busy.folders {
            fs::write(folder.join("cgroup.procs"), busy.hog.id().to_string())
                .map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let limit = if is_v2 { ("cpu.max", "20000 100000") } else { ("cpu.cfs_quota_us", "20000") };
        fs::write(busy.folders[0].join(limit.0), limit.1).map_err(|error| error.to_string())?;
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.hog.kill();
        let _ = self.hog.wait();
        for folder in &self.folders {
            // Its processes are gone a little later.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn a_busy_thread_in_a_real_group_is_throttled_as_predicted() {
    let Some(busy) = found(Need::Cgroup, Busy::start()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let group = busy.folders[0].to_str().unwrap();
    let verify = |throttled| {
        let study = study(folder.path(), throttled);
        let study = study.to_str().unwrap();
        let output = cpumax(&["verify", study, "--cgroup", group, "--for", "4s", "--json", "-"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), told[0].clone())
    };
    let (status, told) = verify([98.0, 90.0, 100.0]);
    assert_eq!(status, Some(0), "{told}");
    let numbers = told["numbers"].as_array().unwrap();
    assert_eq!(numbers[0]["what"], "cpus");
    let used = numbers[0]["measured"]["value"].as_f64().unwrap();
    assert!((0.17..0.24).contains(&used), "{told}");
    let (status, told) = verify([1.0, 0.0, 5.0]);
    assert_eq!(status, Some(1), "{told}");
    assert_eq!(told["numbers"][1]["came_true"], false);
}

#[test]
fn what_cannot_be_verified_ends_with_2_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let study = study(folder.path(), [98.0, 90.0, 100.0]);
    let group = folder.path().join("group");
    fs::create_dir(&group).unwrap();
    let told = |arguments: &[&str]| {
        let mut all = vec!["verify", study.to_str().unwrap()];
        all.extend(arguments);
        let output = cpumax(&all);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let group_name = group.to_str().unwrap();
    let watch = ["--cgroup", group_name, "--for", "200ms"];
    assert!(told(&watch).contains("cpu.max"), "{}", told(&watch));
    fs::write(group.join("cpu.max"), "30000 100000\n").unwrap();
    fs::write(group.join("cpu.stat"), "usage_usec 5\nnr_periods 9\nnr_throttled 3\n").unwrap();
    assert!(told(&watch).contains("30000 100000"), "{}", told(&watch));
    fs::write(group.join("cpu.max"), "20000 100000\n").unwrap();
    assert!(told(&watch).contains("only 0 periods"), "{}", told(&watch));
    assert!(told(&["--cgroup", "/no/such/group"]).contains("no such group"));
    assert!(told(&[]).contains("--cgroup"));
}

#[test]
fn scrapes_are_held_against_the_study_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let study = study(folder.path(), [98.0, 90.0, 100.0]);
    let scrape = |name: &str, at: u64, usage: f64, periods: u64, throttled: u64| {
        let labels = r#"{container="app",pod="web-1"}"#;
        let text = format!(
            "container_cpu_usage_seconds_total{labels} {usage} {at}\n\
             container_cpu_cfs_periods_total{labels} {periods} {at}\n\
             container_cpu_cfs_throttled_periods_total{labels} {throttled} {at}\n\
             container_spec_cpu_quota{labels} 20000 {at}\n\
             container_spec_cpu_period{labels} 100000 {at}\n"
        );
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let first = scrape("1.txt", 1_700_000_000_000, 1.0, 100, 50);
    let good = scrape("2.txt", 1_700_000_060_000, 13.0, 700, 640);
    let bad = scrape("3.txt", 1_700_000_060_000, 13.0, 700, 50);
    let verify = |second: &str, kernel: &[&str]| {
        let mut arguments = vec!["verify", study.to_str().unwrap()];
        arguments.extend(["--openmetrics", &first, second, "--label", "pod=web-1"]);
        arguments.extend(kernel);
        cpumax(&arguments)
    };
    let output = verify(&good, &["--kernel", "6.18"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.starts_with("What was predicted of 20000 100000 came true."), "{told}");
    assert_eq!(verify(&bad, &["--kernel", "6.18"]).status.code(), Some(1));
    let several = verify(&good, &[]);
    let told = String::from_utf8(several.stderr).unwrap();
    assert!(several.status.code() == Some(2) && told.contains("--kernel"), "{told}");
}

#[test]
fn scrapes_that_tell_less_are_answered_as_far_as_they_go() {
    let folder = tempfile::tempdir().unwrap();
    let study = study(folder.path(), [98.0, 90.0, 100.0]);
    let labels = r#"container="app",pod="web-1""#;
    let scrape = |name: &str, at: u64, usage: f64, limit: Option<[u64; 3]>| {
        let usage = format!("container_cpu_usage_seconds_total{{{labels}}} {usage} {at}\n");
        let limited = |[quota, periods, throttled]: [u64; 3]| {
            format!(
                "container_cpu_cfs_periods_total{{{labels}}} {periods} {at}\n\
                 container_cpu_cfs_throttled_periods_total{{{labels}}} {throttled} {at}\n\
                 container_spec_cpu_quota{{{labels}}} {quota}\n"
            )
        };
        let period = format!("container_spec_cpu_period{{{labels}}} 100000\n");
        let path = folder.path().join(name);
        fs::write(&path, usage + &limit.map(limited).unwrap_or_default() + &period).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (first, last) = (1_700_000_000_000, 1_700_000_060_000);
    let advise = |paths: [&str; 2], more: &[&str]| {
        let mut arguments = vec!["advise", "--draws", "0", "--openmetrics", paths[0], paths[1]];
        arguments.extend(more);
        let output = cpumax(&arguments);
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), told.concat())
    };
    // Without a limit.
    let none = [scrape("1", first, 100.0, None), scrape("2", last, 130.0, None)];
    let (status, told) = advise([&none[0], &none[1]], &["--label", "pod=web-1"]);
    assert!(status == Some(3) && told.contains("0.50 CPUs, cpu.max max 100000"), "{told}");
    // Little use under a limit that throttles.
    let little = [
        scrape("3", first, 100.0, Some([8_000, 1000, 700])),
        scrape("4", first + 300_000, 101.14, Some([8_000, 1173, 833])),
    ];
    let (status, told) = advise([&little[0], &little[1]], &[]);
    assert!(status == Some(3) && told.contains("uses 0.0038 CPUs"), "{told}");
    let row = told.lines().find(|line| line.starts_with("80m")).unwrap();
    assert!(row.contains("76.9") && row.contains("present (measured)"), "{told}");
    assert!(told.lines().any(|line| line.starts_with("160m")), "{told}");
    // Without a fit nothing tells what throttling costs.
    let (status, told) = advise([&little[0], &little[1]], &["--all"]);
    let heading =
        "Throttling costs latency in 0 of 1 containers, nothing in 0; of 1 counters do\nnot";
    assert!(status == Some(0) && told.starts_with(heading), "{told}");
    let row = told.lines().find(|line| line.starts_with("web-1/app")).unwrap();
    assert!(row.contains("76.9") && row.contains("not told"), "{told}");
    // The limit changes between the scrapes.
    let changed = [
        scrape("5", first, 1.0, Some([30_000, 100, 50])),
        scrape("6", last, 13.0, Some([20_000, 700, 640])),
    ];
    let study = study.to_str().unwrap();
    let output = cpumax(&["verify", study, "--openmetrics", &changed[0], &changed[1]]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains("30000 100000 to 20000"), "{told}");
    // This file is no scrape.
    let json = folder.path().join("query.json");
    fs::write(&json, r#"{"status": "success", "data": {"resultType": "matrix"}}"#).unwrap();
    let json = json.to_str().unwrap();
    let (status, told) = advise([json, json], &["--label", "pod=web-1"]);
    assert!(status == Some(2) && told.contains("JSON of a query to Prometheus"), "{told}");
}

#[test]
fn counters_alone_tell_use_and_bounds_and_no_latency() {
    let Some(busy) = found(Need::Cgroup, Busy::start()) else { return };
    let group = busy.folders[0].to_str().unwrap();
    let advise = |more: &[&str]| {
        let mut arguments = vec!["advise", "--draws", "0", "--stat", group, "--for", "3s"];
        arguments.extend(["--json", "-"]);
        arguments.extend(more);
        let output = cpumax(&arguments);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), told[0].clone())
    };
    let (status, told) = advise(&["--p99", "50ms", "--throttled", "5%"]);
    assert_eq!((status, &told["not_told"][0]), (Some(3), &json!("--p99")), "{told}");
    let used = told["cpus"]["value"].as_f64().unwrap();
    assert!((0.17..0.24).contains(&used) && told["enough"].is_null(), "{told}");
    assert!(told["throttled_percent"]["value"].as_f64().unwrap() > 80.0, "{told}");
    let limits = told["limits"].as_array().unwrap();
    assert_eq!(limits[0]["too_small"], true, "{told}");
    assert_eq!(advise(&[]).0, Some(3), "no limit is named");
}

#[test]
fn counters_of_a_query_tell_what_other_limits_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let series = |name: &str, more: &str, [one, other]: [f64; 2]| {
        format!(
            r#"{{"metric": {{"__name__": "{name}", "pod": "web-1"{more}}},
            "values": [[1700000000, "{one}"], [1700000060, "{other}"]]}}"#
        )
    };
    let bucket =
        |le: &str, count| series("took_bucket", &format!(r#", "le": "{le}""#), [0.0, count]);
    let all = [
        series("container_cpu_usage_seconds_total", "", [100.0, 118.0]),
        series("container_cpu_cfs_periods_total", "", [1000.0, 1600.0]),
        series("container_cpu_cfs_throttled_periods_total", "", [500.0, 620.0]),
        series("container_spec_cpu_quota", "", [50_000.0; 2]),
        series("container_spec_cpu_period", "", [100_000.0; 2]),
        bucket("0.01", 900.0),
        bucket("0.04", 3400.0),
        bucket("0.08", 3600.0),
        bucket("+Inf", 3600.0),
    ];
    let path = folder.path().join("query.json");
    let all = all.join(",");
    fs::write(&path, format!(r#"{{"data": {{"resultType": "matrix", "result": [{all}]}}}}"#))
        .unwrap();
    let advise = |more: &[&str]| {
        let mut arguments = vec!["advise", "--draws", "640", "--openmetrics"];
        arguments.push(path.to_str().unwrap());
        arguments.extend(more);
        cpumax(&arguments)
    };
    let asked = ["--latency", "took", "--kernel", "6.1", "--other-kernels", "7.3", "--json", "-"];
    let output = advise(&asked);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fit = &told[0]["fit"];
    assert!(output.status.success() && fit["kernel"] == "6.1", "{told}");
    let limits = fit["limits"].as_array().unwrap();
    let lifted = limits.last().unwrap();
    assert!(lifted["p99_ns"]["high"].as_f64().unwrap() < 200e6, "{told}");
    assert!(limits[0]["p99_ns"].is_null() && limits[0]["p99_times"].is_null(), "{told}");
    assert_eq!(fit["on_kernels"][0]["kernel"], "7.3");
    let output = advise(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("From counters") && text.contains("500m now"), "{text}");
    assert!(text.contains("record the service"), "{text}");
    let two = advise(&["--kernel", "6.1,6.18"]);
    let told = String::from_utf8(two.stderr).unwrap();
    assert!(two.status.code() == Some(2) && told.contains("--other-kernels"), "{told}");
}
