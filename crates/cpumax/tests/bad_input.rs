//! Wrong input for scenarios and recordings: one clear message and exit status 2.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn cpumax(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must be refused in one message, which is returned.
fn refused(arguments: &[&str]) -> String {
    let output = cpumax(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    assert_eq!(message.matches("error:").count(), 1, "one message: {message}");
    assert!(message.lines().count() <= 8, "{arguments:?}: {message}");
    assert!(!message.contains("panicked"), "{message}");
    message
}

/// A folder with one file.
fn file(name: &str, contents: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, contents).unwrap();
    (folder, path)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn scenario_is_refused(contents: &str, says: &[&str]) {
    let (_folder, path) = file("bad.toml", contents.as_bytes());
    let message = refused(&["run", text(&path)]);
    for part in says {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
    assert!(message.contains("bad.toml:"), "names the file and the line: {message}");
}

#[test]
fn a_scenario_without_tasks() {
    for contents in ["", "duration = \"1s\"\n[[group]]\npath = \"/web\"\n"] {
        scenario_is_refused(contents, &["no tasks", "[[task]]"]);
    }
}

#[test]
fn locks_taken_in_a_circle() {
    let scenario = r#"
duration = "1s"
[[lock]]
name = "a"
kind = "mutex"
[[lock]]
name = "b"
kind = "mutex"
[[task]]
name = "one"
program = [ { lock = "a" }, { lock = "b" }, { user = "1ms" }, { unlock = "b" }, { unlock = "a" } ]
[[task]]
name = "two"
program = [ { lock = "b" }, { lock = "a" }, { user = "1ms" }, { unlock = "a" }, { unlock = "b" } ]
"#;
    scenario_is_refused(scenario, &["lock"]);
}

fn limited(limit: &str) -> String {
    format!(
        "duration = \"1s\"\n[[group]]\npath = \"/g\"\n{limit}\n[[task]]\nname = \"t\"\n\
         group = \"/g\"\nprogram = [ {{ user = \"1ms\" }} ]\n"
    )
}

#[test]
fn a_quota_below_a_millisecond() {
    scenario_is_refused(&limited("max = \"500 100000\""), &["quota", "500", "bad.toml:4"]);
}

#[test]
fn a_period_above_a_second() {
    scenario_is_refused(&limited("max = \"20000 2000000\""), &["period", "2000000", "bad.toml:4"]);
}

#[test]
fn a_burst_above_the_quota() {
    scenario_is_refused(&limited("max = \"20000 100000\"\nburst = 30000"), &["burst", "30000"]);
}

#[test]
fn a_group_under_itself() {
    scenario_is_refused(&limited("parent = \"/g\""), &["parent"]);
    let twice = format!("{}[[group]]\npath = \"/g/../g\"\n", limited(""));
    scenario_is_refused(&twice, &["/g/../g"]);
}

#[test]
fn an_unknown_kernel() {
    let (_folder, path) = file("good.toml", limited("").as_bytes());
    for kernel in ["3.10", "9.9", "latest", "7.3..6.1", ""] {
        let message = refused(&["run", text(&path), "--kernel", kernel]);
        assert!(message.contains("kernel"), "{message}");
    }
}

#[test]
fn a_rule_that_the_model_does_not_have() {
    let (_folder, path) = file("good.toml", limited("").as_bytes());
    for (rule, says) in [
        ("realease=Csd", "no rule 'realease': give one of expiry, refill,"),
        ("release=Soon", "no value 'Soon': give one of Sync, Csd, CsdAll"),
        ("release", "no value '': give one of Sync, Csd, CsdAll"),
    ] {
        let message = refused(&["run", text(&path), "--rule", rule]);
        assert!(message.contains(says), "{rule}: {message}");
    }
    let message = refused(&["run", text(&path), "--rule", "release=Csd", "--on", "host"]);
    assert!(message.contains("--rule works with --on model only"), "{message}");
}

#[test]
fn a_limit_on_the_command_line_that_the_kernel_would_refuse() {
    let (_folder, path) = file("good.toml", limited("").as_bytes());
    for (set, says) in [
        ("/g:cpu.max=500 100000", "quota"),
        ("/g:cpu.max=2000m", "or '2000m'"),
        ("/g:500", "'500m'"),
        ("/g:cpu.max=fast", "fast"),
        ("/g:cpu.max.burst=1.5", "1.5"),
        ("/g:cpu.weight=0", "1 to 10000"),
        ("/g:cpu.idle=1", "cpu.idle"),
        ("/h:cpu.max=20000", "there is no group '/h'"),
        ("/:cpu.max=20000", "root"),
        ("cpu.max=20000", "GROUP:LIMIT"),
        ("/g:500m,pod:1", "the group above '/g', and only the root"),
    ] {
        let message = refused(&["run", text(&path), "--set", set]);
        assert!(message.contains(says), "{set}: {message}");
    }
}

#[test]
fn a_recording_that_is_weighed_takes_a_limit_and_a_scenario_none() {
    let recording =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/web-rate.perf.data");
    let message = refused(&["weigh", text(&recording)]);
    assert!(message.contains("--set"), "{message}");
    let message = refused(&["weigh", text(&recording), "--set", "500 100000"]);
    assert!(message.contains("quota"), "{message}");
    let message = refused(&["weigh", "fibtest", "--set", "50000 100000"]);
    assert!(message.contains("--set is for recordings"), "{message}");
}

#[test]
fn what_is_no_scenario() {
    let folder = TempDir::new().unwrap();
    let message = refused(&["run", text(folder.path())]);
    assert!(message.contains("directory"), "{message}");
    let (_folder, path) = file("notes.txt", b"Dear diary,\ntoday I limited a service.\n");
    let message = refused(&["run", text(&path)]);
    assert!(message.contains("notes.txt:1"), "{message}");
    let (_folder, path) = file("binary.toml", &[0xff, 0xfe, 0, 1]);
    assert!(refused(&["run", text(&path)]).contains("text"));
    let (_folder, path) = file("perf.data", b"PERFILE2 and so on");
    assert!(refused(&["run", text(&path)]).contains("cpumax replay"));
    assert!(refused(&["run", "/no/such/file.toml"]).contains("/no/such/file.toml"));
    assert!(refused(&["run", "no-such-scenario"]).contains("cpumax scenarios"));
}

#[test]
fn ten_gigabytes_of_zeros() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("zeros.toml");
    File::create(&path).unwrap().set_len(10 << 30).unwrap();
    assert!(refused(&["run", text(&path)]).contains("larger than"));
    assert!(refused(&["replay", text(&path)]).contains("of no form that is known"));
    assert!(refused(&["inspect", text(&path)]).contains("of no form that is known"));
}

/// A shipped recording.
fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/bursts.perf.data")
}

#[test]
fn a_cut_recording() {
    let whole = fs::read(recording()).unwrap();
    for length in [0, 7, 100, 1000, whole.len() / 2, whole.len() - 1000] {
        let (_folder, path) = file("cut.data", &whole[..length]);
        let message = refused(&["replay", text(&path), "--kernel", "6.18"]);
        assert!(message.contains("cut.data"), "{length}: {message}");
    }
}

#[test]
fn a_recording_of_a_year() {
    let text_of_perf = include_str!("../../recording/tests/data/web.txt").trim_end();
    let (before, last) = text_of_perf.rsplit_once('\n').unwrap();
    let time =
        last.split_whitespace().find(|word| word.ends_with(':') && word.contains('.')).unwrap();
    let late = format!("{before}\n{}\n", last.replacen(time, "31536000.000000:", 1));
    let (_folder, path) = file("year.txt", late.as_bytes());
    let output = cpumax(&["inspect", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "a machine may be suspended");
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("No CPU has an event in 1 interval, 3153"), "{told}");
}

#[test]
fn what_is_no_recording() {
    let folder = TempDir::new().unwrap();
    assert!(refused(&["replay", text(folder.path())]).contains("directory"));
    assert!(refused(&["replay", "/no/such/perf.data"]).contains("No such file"));
    let (_folder, path) = file("notes.txt", b"Dear diary,\ntoday I limited a service.\n");
    for command in ["replay", "inspect"] {
        let message = refused(&[command, text(&path)]);
        assert!(message.contains("notes.txt"), "{message}");
    }
    let (_folder, path) = file("scenario.toml", limited("").as_bytes());
    assert!(refused(&["replay", text(&path)]).contains("scenario.toml"));
}

#[test]
fn a_replay_of_what_is_not_there() {
    let recording = recording();
    for (arguments, says) in [
        (["--group", "comm:nginx*"], "no recorded thread matches --group comm:nginx*"),
        (["--group", "pid:x"], "number of a process"),
        (["--set", "/nginx:cpu.max=50000"], "no recorded thread is in the group '/nginx'"),
        (["--set", "/:cpu.max=50000"], "root group"),
        (["--set", "2000ms"], "a part of a period"),
        (["--set", "500m,/a:1"], "no group '/a'"),
        (["--set", "cpu.max=500"], "quota of 500 us is too small"),
        (["--kernel", "3.10"], "older than the oldest"),
        (["--json", "/no/such/folder/x.json"], "cannot write"),
    ] {
        let message = refused(&["replay", text(&recording), arguments[0], arguments[1]]);
        assert!(message.contains(says), "{arguments:?}: {message}");
    }
}

#[test]
fn results_that_cannot_be_written_are_told_before_anything_runs() {
    let (_folder, path) = file("good.toml", limited("").as_bytes());
    let message = refused(&["run", text(&path), "--json", "/no/such/folder/x.json"]);
    assert!(message.contains("cannot write /no/such/folder/x.json"), "{message}");
}

#[test]
fn what_is_for_the_model_is_not_passed_over_on_real_kernels() {
    for on in ["vm", "host"] {
        for option in [&["--noise", "2"][..], &["--check"]] {
            let message = refused(&[&["run", "fibtest", "--on", on], option].concat());
            assert!(message.contains(option[0]) && message.contains("--on model"), "{message}");
        }
    }
    let message = refused(&["run", "fibtest", "--on", "host", "--histogram"]);
    assert!(message.contains("--histogram") && message.contains("--on model"), "{message}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cpumax"))
        .args(["kernels", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recordings/bursts.perf.data");

#[test]
fn a_load_that_ends_before_it_begins() {
    for (from, to) in [("400ms", "300ms"), ("300ms", "300ms"), ("1h", "2h")] {
        let given = ["replay", RECORDING, "--set", "500m", "--from", from, "--to", to];
        let message = refused(&given);
        assert!(message.contains("--from before --to"), "{message}");
    }
}

#[test]
fn events_that_cost_all_that_was_used() {
    for command in [["replay", "--set", "500m"].as_slice(), &["advise", "--p99", "50ms"]] {
        let given = [&command[..1], &[RECORDING, "--event-cost", "900ms"], &command[1..]].concat();
        let message = refused(&given);
        assert!(message.contains("900000000 ns") && message.contains("--event-cost"), "{message}");
    }
}

#[test]
fn names_that_are_not_utf_8() {
    use std::os::unix::ffi::OsStrExt;
    let folder = TempDir::new().unwrap();
    let name = std::ffi::OsStr::from_bytes(b"\xff.data");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
        let mut words = arguments.iter();
        command.current_dir(folder.path()).arg(words.next().unwrap()).arg(name).args(words);
        command.output().unwrap()
    };
    fs::copy(RECORDING, folder.path().join(name)).unwrap();
    let output = run(&["inspect"]);
    assert!(output.status.success(), "{output:?}");
    let output = run(&["run"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("invalid UTF-8") && !message.contains("panicked"), "{message}");
}
