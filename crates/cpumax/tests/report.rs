//! `cpumax report`: one complete file, equal when made from saved JSON, tested in a real browser.

use cpumax_require::{Need, found};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const LARGEST_BYTES: usize = 1 << 20;
/// Two kinds of limit, on two kernels.
const LIMITS: [&str; 8] =
    ["--set", "500m", "--set", "1", "--set", "8600 10000", "--kernel", "5.4,6.18"];

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
    cpumax(&[&["report", recording, "-o", out], &LIMITS[..]].concat());
    path
}

#[test]
fn a_report_of_saved_json_is_that_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let direct = fs::read_to_string(report(folder.path(), "web-closed.perf.data")).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = root().join("recordings/web-closed.perf.data");
    let (json, csv) = (path("study.json"), path("study.csv"));
    let save =
        ["replay", recording.to_str().unwrap(), "--stretches", "--json", &json, "--csv", &csv];
    cpumax(&[&save[..], &LIMITS[..]].concat());
    cpumax(&["report", &json, "-o", &path("again.html")]);
    assert!(fs::read_to_string(path("again.html")).unwrap() == direct, "they differ");
    assert!(direct.len() < LARGEST_BYTES, "{} bytes", direct.len());
    for loads in ["http:", "src=", "url(", "@import", "fetch(", "import("] {
        assert!(!direct.contains(loads), "{loads}");
    }
    // The only address is the button's, and only its script runs.
    assert_eq!(direct.matches("https:").count(), 1);
    assert_eq!(direct.matches("<script>").count(), 1);
    let (plots, marks) = (2 * 5, direct.matches(" data-x=").count());
    assert!(marks >= plots * 3, "{marks} marks in {plots} plots of three limits");
    assert!(direct.contains("content=\"default-src 'none'; ") && direct.contains("'sha256-"));
    assert!(direct.contains("<h3>Thread by thread: ") && direct.contains("stopped by the limit"));
    let csv = fs::read_to_string(csv).unwrap();
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines.len(), 1 + 8 + 1, "{csv}");
    assert!(lines[0].starts_with("recording,role,kernel,limit,") && lines[3].contains("50000"));
    let cells = |line: &str| line.split(',').count();
    assert!(lines[..9].iter().all(|line| cells(line) == cells(lines[0])), "{csv}");
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
    for mark in [">advised</text>", ">current</text>", ">target 50</text>"] {
        assert!(page.contains(mark), "{mark}");
    }
    let output = cpumax(&["report", &json, &json, "-o", &html]);
    let page = fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("<section ").count(), 3);
    assert!(page.contains("<h2 id=\"beside-h\">Before and after: "));
    let told = String::from_utf8(output.stdout).unwrap().replace('\n', " ");
    assert!(told.starts_with("None of ") && told.contains(" may be chance."), "{told}");
}

/// The sentence that compares two studies.
fn held(folder: &Path, before: &str, after: &str) -> String {
    let page = folder.join("both.html");
    cpumax(&["report", before, after, "-o", page.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    let sentence = page.split("Before and after: ").nth(1).unwrap();
    let sentence = sentence.split("<p class=\"answer\">").nth(1).unwrap();
    sentence.split("</p>").next().unwrap().to_owned()
}

#[test]
fn work_that_costs_more_shows_as_changed_though_ranges_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let recording = root().join("recordings/web-closed.perf.data");
    let replay = |name: &str, more: &[&str]| {
        let json = folder.path().join(name).to_str().unwrap().to_owned();
        let limit = ["--set", "90000 100000", "--kernel", "6.18", "--json", &json];
        cpumax(&[&["replay", recording.to_str().unwrap()], &limit[..], more].concat());
        json
    };
    let before = replay("before.json", &[]);
    let after = replay("after.json", &["--scale-work", "1.3"]);
    let again = replay("again.json", &["--seed", "77"]);
    let told = held(folder.path(), &before, &after);
    let (changed, rest) =
        told.split_once(" of 12 numbers changed").unwrap_or_else(|| panic!("{told}"));
    assert!(changed.parse::<u32>().unwrap() >= 7, "{told}");
    assert!(!rest.contains("ranges are compared"), "{told}");
    let told = held(folder.path(), &before, &before);
    assert_eq!(told, "None of 12 numbers changed by more than may be chance.");
    let told = held(folder.path(), &before, &again);
    assert!(told.starts_with("None of 12 numbers changed"), "{told}");
    assert!(told.contains("ranges are compared"), "{told}");
}

fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    parts.collect()
}

/// Arguments of the command that a report prints, which then writes this study.
fn printed(html: &str, study: &str) -> Vec<String> {
    let page = fs::read_to_string(html).unwrap();
    let made = page.split("<pre tabindex=\"0\"><code>").nth(1).unwrap();
    let line = made.lines().next().unwrap().replace("&#39;", "'").replace("&apos;", "'");
    let mut words = words(&line).into_iter();
    assert_eq!(words.next().as_deref(), Some("cpumax"), "{line}");
    words.map(|word| if word == "study.json" { study.to_owned() } else { word }).collect()
}

#[test]
fn without_limits_there_are_enough_for_a_curve_and_the_printed_command_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = root().join("recordings/bursts.perf.data");
    let (html, study, again) = (path("report.html"), path("study.json"), path("again.html"));
    cpumax(&["report", recording.to_str().unwrap(), "--kernel", "6.18", "-o", &html]);
    let line = printed(&html, &study);
    assert_eq!(line.iter().filter(|word| word.starts_with("--set=")).count(), 12, "{line:?}");
    cpumax(&line.iter().map(String::as_str).collect::<Vec<_>>());
    cpumax(&["report", &study, "-o", &again]);
    // The commands differ in the order of their options.
    let [html, again] = [html, again].map(|path| {
        let page = fs::read_to_string(path).unwrap();
        page.split("<h3>Made again by</h3>").next().unwrap().to_owned()
    });
    assert!(html == again, "{line:?} makes another report");
}

#[test]
fn the_command_that_a_report_prints_makes_the_same_study() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = root().join("recordings/web-closed.perf.data");
    let recording = recording.to_str().unwrap();
    let (json, html) = (path("study.json"), path("study.html"));
    let replay = ["replay", recording, "--set", "30000 50000,cpu.max.burst=10000", "--kernel"];
    let options = ["6.12", "--seed", "7", "--scale-work", "1.1", "--from", "600ms", "--jobs", "1"];
    let advise = ["advise", recording, "--p99", "60ms", "--period", "100ms,50ms", "--group"];
    let others = ["comm:srv-*", "--current", "500m", "--stretches"];
    for given in [[&replay[..], &options].concat(), [&advise[..], &others].concat()] {
        cpumax(&[&given[..], &["--json", &json]].concat());
        cpumax(&["report", &json, "-o", &html]);
        let other = path("other.json");
        let line = printed(&html, &other);
        cpumax(&line.iter().map(String::as_str).collect::<Vec<_>>());
        let [first, second] = [&json, &other].map(|path| fs::read_to_string(path).unwrap());
        assert!(first.contains("\"made_by\":[\"cpumax\""), "{line:?}");
        // Options differ in order, and lists are repeated options.
        let without = |text: &str| {
            let (before, after) = text.split_once("\"made_by\":[").unwrap();
            (before.to_owned(), after.split_once(']').unwrap().1.to_owned())
        };
        assert!(without(&first) == without(&second), "{line:?} makes another study");
    }
}

#[test]
fn a_dash_is_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let recording = root().join("recordings/bursts.perf.data");
    let recording = recording.to_str().unwrap();
    let limits = ["--set", "20000 100000", "--kernel", "6.18"];
    let printed = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
        let output = command.args(arguments).args(limits).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let page = printed(&["report", recording, "-o", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let table = printed(&["replay", recording, "--csv", "-"]);
    assert!(table.starts_with("recording,role,") && table.ends_with("\r\n"), "{table}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "there is no file called -");
    let both = ["replay", recording, "--csv", "-", "--parquet", "-"];
    let output = Command::new(env!("CARGO_BIN_EXE_cpumax")).args(both).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("one place"));
}

#[test]
fn where_nothing_more_can_be_written_that_is_said() {
    let recording = root().join("recordings/bursts.perf.data");
    let recording = recording.to_str().unwrap();
    let commands: [&[&str]; 9] = [
        &["kernels"],
        &["scenarios"],
        &["scenarios", "nested"],
        &["inspect", recording],
        &["run", "nested", "--kernel", "6.18"],
        &["replay", recording, "--set", "20000 100000"],
        &["replay", recording, "--set", "20000 100000", "--json", "-"],
        &["report", recording, "--set", "20000 100000", "-o", "-"],
        &["completions", "bash"],
    ];
    for arguments in commands {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
        let output = command.args(arguments).env("NO_COLOR", "1").stdout(full).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        let last = told.lines().last().unwrap();
        let says = "error: cannot write to standard output: No space left on device";
        assert!(last.starts_with(says), "{arguments:?}: {told}");
    }
}

#[test]
fn what_a_file_is_is_told_by_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = root().join("recordings/bursts.perf.data");
    let (named, study, html) = (path("bursts.json"), path("study"), path("report.html"));
    fs::copy(&recording, &named).unwrap();
    cpumax(&["replay", &named, "--set", "20000 100000", "--json", &study]);
    cpumax(&["report", &study, "-o", &html]);
    cpumax(&["report", &named, "--set", "20000 100000", "-o", &html]);
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
    let [script, pictures] = ["report.mjs", "pictures.txt"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser").join(name));
    let output =
        Command::new("node").arg(script).args([&program, &packages, &report, &pictures]).output();
    let output = output.unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
}
