//! Exit status, files and streams of the command.

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const HOG: &str = r#"
shows = "A busy thread under a limit."
duration = "1s"
[[group]]
path = "/g"
max = "20000 100000"
[[task]]
name = "hog"
group = "/g"
program = [ { forever = [ { user = "1ms" } ] } ]
[[expect]]
metric = "groups./g.usage_usec"
min = 1
why = "It runs."
"#;

fn cpumax(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn scenario(text: &str) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("hog.toml");
    fs::write(&path, text).unwrap();
    (folder, path)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings")
}

/// CPUs that a recording used on the last kernel of the list, from `cpumax weigh`.
fn weighed_cpus(set: &str) -> f64 {
    let recording = recordings().join("web-rate.perf.data");
    let options = ["--set", set, "--kernel", "7.3,pull", "--seeds", "1..2"];
    let output = cpumax(&[&["weigh", text(&recording)], &options[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = stdout(&output);
    assert!(shown.contains("\nweb-rate.perf.data  7.3"), "{shown}");
    assert!(shown.contains("\nWhere pull is worse than 7.3 by more than 5 %:\n"), "{shown}");
    let row = shown.lines().find(|line| line.trim_start().starts_with("pull")).unwrap();
    row.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_recording_is_weighed_under_the_limit_that_is_given_until_its_work_is_done() {
    let (tight, loose) = (weighed_cpus("10000 100000"), weighed_cpus("50000 100000"));
    // The load begins half a second after the recording.
    assert!((0.07..=0.105).contains(&tight), "{tight}");
    assert!((0.2..=0.3).contains(&loose), "{loose}");
}

#[test]
fn a_scenario_that_shows_what_it_must_ends_well() {
    let (_folder, path) = scenario(HOG);
    let output = cpumax(&["run", text(&path), "--check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = stdout(&output);
    assert!(shown.starts_with("hog: A busy thread under a limit.\n"), "{shown}");
    assert!(shown.contains("pass  groups./g.usage_usec at least 1\n"), "{shown}");
    for kernel in ["4.19 G1", "5.4 G2", "6.12 G2a", "6.18 G3", "7.2 G4", "7.3 G4F"] {
        assert!(shown.contains(kernel), "{kernel} is not in: {shown}");
    }
    assert!(!shown.contains('\x1b'), "no colour where it is not asked for: {shown}");
}

#[test]
fn what_a_scenario_must_show_is_told_in_80_columns() {
    for name in ["hackbench-3deep", "lock-holder"] {
        let output = cpumax(&["run", name]);
        let shown = stdout(&output);
        let (_, told) = shown.split_once("\npass  ").unwrap();
        assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    }
}

#[test]
fn a_scenario_that_does_not_ends_with_1_and_is_not_checked_when_changed() {
    let (_folder, path) = scenario(&HOG.replace("min = 1", "max = 1"));
    let output = cpumax(&["run", text(&path), "--kernel", "6.18"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("FAIL  groups./g.usage_usec at most 1"), "{output:?}");
    let output = cpumax(&["run", text(&path), "--kernel", "6.18", "--json", "-"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("hog: FAIL"), "{output:?}");
    let runs: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = &runs[0]["expectations"][0];
    let usage = runs[0]["groups"]["/g"]["usage_usec"].as_f64();
    assert_eq!((expected["value"].as_f64(), &expected["passed"]), (usage, &Value::Bool(false)));
    let output = cpumax(&["run", text(&path), "--for", "100ms"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("not checked"), "{output:?}");
    let set = ["run", text(&path), "-k", "6.18", "--set", "/g:500m", "--json", "-"];
    let runs: Value = serde_json::from_slice(&cpumax(&set).stdout).unwrap();
    assert_eq!(runs[0]["understood"][0], "/g:500m = 50000 100000");
    assert_eq!(runs[0]["expectations"].as_array().unwrap().len(), 0);
}

#[test]
fn scenarios_and_weights_are_json_as_well() {
    let output = cpumax(&["scenarios", "--json"]);
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let nested = listed.iter().find(|one| one["scenario"] == "nested").unwrap();
    assert!(nested["expectations"].as_u64().unwrap() > 0 && nested["cpus"] == 1, "{nested}");
    let weigh = ["weigh", "nested", "-k", "6.12,7.3", "--for", "300ms", "--json", "-"];
    let weights: Vec<Value> = serde_json::from_slice(&cpumax(&weigh).stdout).unwrap();
    let [old, new] = &weights[..] else { panic!("one for each kernel: {weights:?}") };
    assert_eq!((&old["kernel"], &new["against"]), (&Value::from("6.12"), &Value::from("6.12")));
    assert!(new["used"].as_f64().unwrap() > 0.0 && old.get("against").is_none(), "{new}");
}

#[test]
fn a_limit_that_is_set_holds() {
    let (_folder, path) = scenario(HOG);
    let usage_usec = |set: &str| {
        let output = cpumax(&["run", text(&path), "--kernel", "7.3", "--set", set, "--json", "-"]);
        let runs: Value = serde_json::from_slice(&output.stdout).unwrap();
        runs[0]["groups"]["/g"]["usage_usec"].as_u64().unwrap()
    };
    assert!(usage_usec("/g:cpu.max=max") > 990_000);
    let limited = usage_usec("/g:cpu.max=50000 100000");
    // Periods do not begin with the run: eleven may have begun in a second.
    assert!((490_000..=560_000).contains(&limited), "{limited}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (folder, path) = scenario(HOG);
    let results = |jobs: &str| {
        let json = folder.path().join(jobs);
        let arguments =
            ["run", text(&path), "--seeds", "1..3", "--jobs", jobs, "--json", text(&json)];
        assert!(cpumax(&arguments).status.success());
        fs::read_to_string(json).unwrap()
    };
    let one = results("1");
    assert_eq!(one, results("4"));
    let runs: Vec<Value> = serde_json::from_str(&one).unwrap();
    let order: Vec<(&str, u64)> = runs
        .iter()
        .map(|run| (run["kernel"].as_str().unwrap(), run["seed"].as_u64().unwrap()))
        .collect();
    assert_eq!(order[..4], [("4.19", 1), ("4.19", 2), ("4.19", 3), ("5.4", 1)]);
    assert_eq!(runs.len(), 21);
}

#[test]
fn traces_are_written_one_for_each_run() {
    let (folder, path) = scenario(HOG);
    let trace = folder.path().join("trace.json");
    let status =
        cpumax(&["run", text(&path), "--kernel", "6.12,7.3", "--trace", text(&trace)]).status;
    assert!(status.success());
    for name in ["trace-6.12.json", "trace-7.3.json"] {
        let whole = fs::read(folder.path().join(name)).unwrap();
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        let events = whole["traceEvents"].as_array().unwrap();
        for (what, of) in [("hog", "X"), ("throttled", "X"), ("period", "i"), ("running", "X")] {
            let found = events.iter().any(|event| {
                event["ph"] == of
                    && event["name"].as_str().is_some_and(|name| name.starts_with(what))
            });
            assert!(found, "{name} has no {what}");
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_folder, path) = scenario(HOG);
    for arguments in [["run", text(&path), "--json", "-"], ["run", text(&path), "--kernel", "6.1"]]
    {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cpumax"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[cfg(unix)]
#[test]
fn the_keyboard_ends_a_run_that_goes_on_and_on() {
    cpumax_require::children_end_by_signals();
    let (_folder, path) = scenario(HOG);
    let mut child = Command::new(env!("CARGO_BIN_EXE_cpumax"))
        .args(["run", text(&path), "--for", "1day", "--every-tick"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = child.id().to_string();
    assert!(
        Command::new("sh").args(["-c", &format!("kill -INT {pid}")]).status().unwrap().success()
    );
    let status = child.wait().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(130), "{told}");
    assert_eq!(told, "interrupted\n");
}

#[test]
fn a_recording_is_slowed_down_by_a_limit_and_not_by_none() {
    let recording = recordings().join("bursts.perf.data");
    let arguments = [
        "replay",
        text(&recording),
        "--set",
        "20000 100000",
        "--set",
        "max",
        "--kernel",
        "6.1,6.18",
        "--scale-work",
        "1",
        "--json",
        "-",
    ];
    let output = cpumax(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(runs[0]["world"], "recording");
    let recorded = runs[0]["prediction"]["cpus"]["value"].as_f64().unwrap();
    let runs = &runs[1..];
    let told: Vec<(&str, &str)> = runs
        .iter()
        .map(|run| (run["cpu_max"].as_str().unwrap(), run["kernel"].as_str().unwrap()))
        .collect();
    // The run without a limit is there in any case, and once.
    let limits = ["max 100000", "20000 100000"];
    let expected: Vec<_> =
        limits.iter().flat_map(|limit| [(*limit, "6.1"), (*limit, "6.18")]).collect();
    assert_eq!(told, expected);
    for run in runs {
        let slowdown = run["slowdown"].as_f64().unwrap();
        let limited = run["cpu_max"] != "max 100000";
        assert_eq!(slowdown > 1.2, limited, "{run}");
        let cpus = &run["prediction"]["cpus"];
        let cpus = ["low", "value", "high"].map(|name| cpus[name].as_f64().unwrap());
        assert!(cpus.is_sorted(), "{run}");
        let as_recorded = (cpus[1] / recorded - 1.0).abs() < 0.03;
        assert_eq!(as_recorded, !limited, "{recorded} recorded, {run}");
        // The work is the same whatever the limit.
        let usage_usec = run["groups"]["/testload"]["usage_usec"].as_u64().unwrap();
        let first_usec = runs[0]["groups"]["/testload"]["usage_usec"].as_u64().unwrap();
        assert!(usage_usec.abs_diff(first_usec) * 100 < first_usec, "{run}");
    }
}

#[test]
fn every_shipped_recording_becomes_a_scenario_that_runs() {
    let folder = TempDir::new().unwrap();
    let mut found = 0;
    for entry in fs::read_dir(recordings()).unwrap() {
        let recording = entry.unwrap().path();
        if recording.extension().is_none_or(|extension| extension != "data") {
            continue;
        }
        found += 1;
        let scenario = folder.path().join("recorded.toml");
        let output = cpumax(&["replay", text(&recording), "--write-scenario", text(&scenario)]);
        assert_eq!(output.status.code(), Some(0), "{recording:?}: {output:?}");
        let output = cpumax(&["run", text(&scenario), "--kernel", "6.18", "--json", "-"]);
        assert_eq!(output.status.code(), Some(0), "{recording:?}: {output:?}");
        let runs: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            runs[0]["groups"]["/testload"]["completions"].as_u64().unwrap() > 0,
            "{recording:?}"
        );
    }
    assert!(found >= 3, "only {found} recordings");
}

#[test]
fn a_scenario_ends_where_the_load_is_told_to() {
    let folder = TempDir::new().unwrap();
    let (recording, scenario) =
        (recordings().join("bursts.perf.data"), folder.path().join("part.toml"));
    let part = ["--from", "100ms", "--to", "300ms", "--write-scenario", text(&scenario)];
    let output = cpumax(&[&["replay", text(&recording)], &part[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(fs::read_to_string(&scenario).unwrap().contains("\nduration = \"300ms\"\n"));
    let output = cpumax(&["run", text(&scenario), "--kernel", "6.18"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// The rule promises at most one slice, 5 ms, of overrun for each CPU; measured is one in all.
#[test]
fn no_recorded_load_overruns_a_limit_under_pull_in_any_period() {
    let folder = TempDir::new().unwrap();
    for entry in fs::read_dir(recordings()).unwrap() {
        let recording = entry.unwrap().path();
        if recording.extension().is_none_or(|extension| extension != "data") {
            continue;
        }
        let file = folder.path().join("recorded.toml");
        let limit = ["--set", "20000 100000", "--kernel", "pull"];
        let write = ["replay", text(&recording), "--write-scenario", text(&file)];
        let output = cpumax(&[&write, &limit[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{recording:?}: {output:?}");
        // Periods then begin where usage is counted.
        let scenario = fs::read_to_string(&file).unwrap();
        let scenario = scenario.replacen("[machine]", "[machine]\ntimer_phase = \"0s\"", 1);
        fs::write(&file, scenario).unwrap();
        let run = ["run", text(&file), "--for", "4s", "--kernel", "pull", "--json", "-"];
        let runs: Value = serde_json::from_slice(&cpumax(&run).stdout).unwrap();
        let most_us = &runs[0]["groups"]["/testload"]["max_period_usage_usec"];
        let most_us = most_us.as_u64().unwrap();
        assert!((20_000..=25_000).contains(&most_us), "{recording:?}: {most_us}");
    }
}

#[test]
fn a_recording_is_told_of_before_anything_is_asked() {
    let recording = recordings().join("web-closed.perf.data");
    let output = cpumax(&["inspect", text(&recording), "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(told["threads"][0]["runtime_ns"].as_u64() > Some(0), "{told}");
    assert!(told["defects"]["lost_events"].is_u64() && told["waits"]["all"].is_u64(), "{told}");
    let output = cpumax(&["inspect", text(&recording), "--top", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = stdout(&output);
    assert!(shown.starts_with("web-closed.perf.data: "), "{shown}");
    assert!(shown.contains("/testload") && shown.contains("srv-"), "{shown}");
    assert!(shown.contains("more threads: see --top"), "{shown}");
}

#[test]
fn the_text_of_perf_script_comes_in_by_a_pipe() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recording/tests/data/web.txt");
    let output = Command::new(env!("CARGO_BIN_EXE_cpumax"))
        .args(["inspect", "-"])
        .stdin(fs::File::open(text).unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).starts_with("standard input: "), "{output:?}");
}

/// The README shows a command and, as the next block, the table it prints. Its numbers move when
/// the model gets better; its form must be what a reader will see.
#[test]
fn the_readme_shows_a_table_of_the_form_that_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (before, block) = readme.split_once("```text\n").unwrap();
    let header = block.split_once("\n---").unwrap().0;
    let command = before.lines().rev().find_map(|line| line.strip_prefix("    cpumax ")).unwrap();
    let script = format!("'{}' {command}", env!("CARGO_BIN_EXE_cpumax"));
    let output = Command::new("sh").args(["-c", &script]).current_dir(&root).output().unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let printed = stdout(&output).split_once("\n---").unwrap().0;
    assert!(words(printed).ends_with(&words(header)), "{command} prints\n{}", stdout(&output));
}
