//! `cpumax report`: one file with all in it, the same from saved JSON, also in a real browser.

use cpumax_require::{Need, found};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const LARGEST_BYTES: usize = 1 << 20;

fn cpumax(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    let output = command.args(arguments).env("NO_COLOR", "1").stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?} {output:?}");
    output
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The report of a recording under these limits, in that folder.
fn report(folder: &Path, recording: &str) -> PathBuf {
    let recording = root().join("recordings").join(recording);
    let path = folder.join("report.html");
    let [recording, out] = [&recording, &path].map(|path| path.to_str().unwrap());
    let limits = ["--set", "500m", "--set", "1", "--kernel", "5.4,6.18"];
    cpumax(&[&["report", recording, "-o", out], &limits[..]].concat());
    path
}

#[test]
fn a_report_of_saved_json_is_that_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let direct = fs::read_to_string(report(folder.path(), "web-closed.perf.data")).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = root().join("recordings/web-closed.perf.data");
    let limits = ["--set", "500m", "--set", "1", "--kernel", "5.4,6.18"];
    let (json, csv) = (path("study.json"), path("study.csv"));
    let save = ["replay", recording.to_str().unwrap(), "--json", &json, "--csv", &csv];
    cpumax(&[&save[..], &limits[..]].concat());
    cpumax(&["report", &json, "-o", &path("again.html")]);
    assert!(fs::read_to_string(path("again.html")).unwrap() == direct, "they differ");
    assert!(direct.len() < LARGEST_BYTES, "{} bytes", direct.len());
    for loads in ["http:", "https:", "<script", "src=", "url(", "@import"] {
        assert!(!direct.contains(loads), "{loads}");
    }
    let csv = fs::read_to_string(csv).unwrap();
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines.len(), 1 + 6 + 1, "{csv}");
    assert!(lines[0].starts_with("recording,role,kernel,cpu_max,") && lines[3].contains("50000"));
    let cells = |line: &str| line.split(',').count();
    assert!(lines[..7].iter().all(|line| cells(line) == cells(lines[0])), "{csv}");
}

#[test]
fn advice_is_told_first_and_two_studies_stand_below_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = root().join("recordings/web-closed.perf.data");
    let (json, html) = (path("advice.json"), path("advice.html"));
    let ask = ["--p99", "50ms", "--current", "500m", "--json", &json];
    let output = cpumax(&[&["advise", recording.to_str().unwrap()], &ask[..]].concat());
    cpumax(&["report", &json, "-o", &html]);
    let page = fs::read_to_string(&html).unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let limit = told.split_whitespace().next().unwrap();
    let answer = page.split("<p class=\"answer\">").nth(1).unwrap();
    assert!(answer.starts_with(limit), "{limit}: {answer}");
    assert!(page.contains(">advised</text>") && page.contains(">current</text>"));
    cpumax(&["report", &json, &json, "-o", &html]);
    assert_eq!(fs::read_to_string(&html).unwrap().matches("<section ").count(), 2);
}

#[test]
fn a_browser_shows_it_uses_each_control_and_finds_nothing_wrong() {
    let packages = root().join("target/browser");
    let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(|name| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
    });
    let has_packages = packages.join("node_modules/axe-core").is_dir();
    let program = program.filter(|_| has_packages);
    let program = program.ok_or("Chromium, and what `make browser` installs");
    let Some(program) = found(Need::Browser, program) else { return };
    let folder = tempfile::tempdir().unwrap();
    let report = report(folder.path(), "web-closed.perf.data");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/report.mjs");
    let output =
        Command::new("node").arg(script).args([&program, &packages, &report]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
}
