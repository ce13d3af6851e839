//! Output, files and exit status of `cpumax compare` and `cpumax search`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn cpumax(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cpumax"))
        .args(args)
        .current_dir(root())
        .output()
        .expect("the command can be started")
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_was_found_still_differs_and_nothing_else_does() {
    let found = |name: &str| format!("scenarios/found/{name}.toml");
    for (name, kernel, against, differs) in [
        ("ancestor-leak", "6.18", "7.2", true),
        ("ancestor-leak", "6.18", "6.19", false),
        ("skipped-release", "6.18", "7.3", true),
        ("boundary-skip-real", "6.18", "7.2", true),
        ("skipped-release", "7.2", "7.3", false),
    ] {
        let args = ["compare", &found(name), "--on", "model", "--kernel", kernel];
        let output = cpumax(&[&args[..], &["--against", against]].concat());
        let status = i32::from(differs);
        assert_eq!(output.status.code(), Some(status), "{name}\n{}", said(&output));
        let last = said(&output).lines().last().unwrap_or_default().to_owned();
        assert_eq!(last, if differs { "0 of 1 agree (0.0 %)" } else { "1 of 1 agree (100.0 %)" });
    }
}

#[test]
fn who_breaks_a_comparison_off_is_told_what_is_done() {
    cpumax_require::children_end_by_signals();
    let folder = tempfile::tempdir().expect("a folder");
    let (traces, document) = (folder.path().join("traces"), folder.path().join("matrix.md"));
    // Far more comparisons than are complete when the signal comes.
    let args =
        ["compare", "--on", "model", "--kernel", "6.18", "--against", "7.2", "--cases", "0..5000"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    command.args(args).arg("--trace").arg(&traces).arg("--markdown").arg(&document);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command can be started");
    let begin = Instant::now();
    while std::fs::read_dir(&traces).is_ok_and(|mut files| files.next().is_none())
        || !traces.exists()
    {
        assert!(begin.elapsed() < Duration::from_secs(60), "no cell is done");
        assert_eq!(child.try_wait().expect("it can be waited for"), None);
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("kill can be started").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let first = said(&output).lines().next().unwrap_or_default().to_owned();
    assert!(
        first.contains("; interrupted after ") && first.ends_with(" of 5001 comparisons"),
        "{first}"
    );
    assert!(said(&output).contains("case-0"), "{}", said(&output));
    assert!(!document.exists(), "it would pass for all of them");
}

#[test]
fn parallel_cases_are_of_several_cpus_and_the_document_says_how_it_was_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("matrix.md");
    let args = ["compare", "--on", "model", "--kernel", "6.18", "--against", "6.18"];
    let more = ["--parallel", "--cases", "1..2", "--markdown", path.to_str().expect("ASCII")];
    let json = folder.path().join("cells.json");
    let median = ["--median", "3", "--json", json.to_str().expect("ASCII")];
    let picture = folder.path().join("matrix.svg");
    let svg = ["--svg", picture.to_str().expect("ASCII")];
    let output = cpumax(&[&args[..], &more, &svg, &median].concat());
    let cells = std::fs::read_to_string(&json).expect("it was written");
    let cells: Vec<cpumax_compare::Cell> = serde_json::from_str(&cells).expect("cells");
    assert_eq!(cells.iter().map(|cell| cell.of_runs.len()).collect::<Vec<_>>(), [3, 3]);
    let picture = std::fs::read_to_string(&picture).expect("it was written");
    assert!(!picture.contains("case-1-of-2"), "{picture}");
    let text = std::fs::read_to_string(&path).expect("it was written");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("case-1-of-2") && said(&output).contains("case-2-of-8"));
    assert!(
        text.contains("--cases 1..2 --kernel 6.18 --on model --against 6.18 --parallel --median 3"),
        "{text}"
    );
}

#[test]
fn the_median_is_of_runs_side_by_side_without_a_trace() {
    for more in [
        &["--median", "3"][..],
        &["--parallel", "--median", "3", "--trace", "x"],
        &["--parallel", "--median", "0"],
    ] {
        let output = cpumax(&[&["compare", "nested", "--kernel", "6.18"], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
}

#[test]
fn where_two_runs_part_is_shown_side_by_side() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a name in ASCII");
    let found = "scenarios/found/ancestor-leak.toml";
    let args = ["compare", found, "--on", "model", "--kernel", "6.18", "--against", "7.2"];
    let output = cpumax(&[&args[..], &["--noisy", "3", "--trace", path]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let parting = folder.path().join("found-ancestor-leak-6.18-1-parting.txt");
    let shown = std::fs::read_to_string(parting).expect("it was written");
    let head = shown.lines().next().unwrap_or_default();
    assert!(head.starts_with("From ") && head.contains(" (model 6.18"), "{shown}");
    let on_one_side = |line: &&str| line.ends_with('|') || line.starts_with("      ");
    assert!(shown.lines().skip(2).any(|line| on_one_side(&line)), "{shown}");
}

#[test]
fn every_found_scenario_can_be_run() {
    let folder = root().join("scenarios/found");
    let files: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder is part of the repository")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        let output = cpumax(&["run", file.to_str().expect("a name in ASCII"), "--kernel", "7.3"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = std::fs::read_to_string(&file).expect("it can be read");
        assert!(
            text.starts_with("# Found by "),
            "{}: its head tells where it is from",
            file.display()
        );
    }
}

#[test]
fn a_matrix_is_told_as_json_picture_and_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name in ASCII").to_owned();
    let (json, svg, markdown) = (path("cells.json"), path("matrix.svg"), path("matrix.md"));
    let args = ["compare", "nested", "tick-quantum", "--on", "model", "--kernel", "6.12,6.18"];
    let more = ["--against", "6.17", "--seeds", "1..2", "--json", &json, "--svg", &svg];
    let output = cpumax(&[&args[..], &more, &["--markdown", &markdown]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let read = |path: &str| std::fs::read_to_string(path).expect("it was written");
    let cells: serde_json::Value = serde_json::from_str(&read(&json)).expect("is JSON");
    let cells = cells.as_array().expect("is an array");
    assert_eq!(cells.len(), 2 * 2 * 2, "scenarios, kernels, seeds");
    assert_eq!(cells[0]["outcomes"].as_array().map(Vec::len), Some(2));
    assert!(cells[0]["deviations"].as_array().is_some_and(|numbers| numbers.len() >= 10));
    assert_eq!(read(&svg).matches("<title>").count(), 4);
    assert!(read(&markdown).contains("| `nested` |"));
}

#[test]
fn what_cannot_be_compared_is_told() {
    for (args, message) in [
        (&["compare", "--on", "model"][..], "nothing to compare"),
        (&["compare", "nested", "--on", "model"], "--against"),
        (&["compare", "nested", "--on", "model", "--against", "6.1..7.3"], "--against takes one"),
        (&["compare", "nestd", "--on", "model", "--against", "6.1"], "nested"),
        (&["compare", "nested", "--on", "model", "--against", "6.1", "--runs", "r"], "--on vm"),
        (&["search", "--on", "model", "--kernel", "6.18"], "--against"),
        (&["search", "--kernel", "6.18", "--beyond", "0.5"], "a number from 1"),
    ] {
        let output = cpumax(args);
        let erred = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {erred}");
        assert!(erred.contains(message), "{args:?}: {erred}");
    }
}

#[test]
fn a_search_keeps_what_it_finds_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name in ASCII").to_owned();
    let (log, keep) = (path("log"), path("found"));
    let search = |cases: &str| {
        let args = ["search", "--on", "model", "--kernel", "6.18", "--against", "7.2"];
        let more = ["--beyond", "3", "--limits-only", "--shrink", "1", "--cases", cases];
        cpumax(&[&args[..], &more, &["--log", &log, "--keep", &keep]].concat())
    };
    let first = search("8");
    assert_eq!(first.status.code(), Some(1), "{}", said(&first));
    let kept =
        |output: &Output| said(output).lines().filter(|line| line.starts_with("case ")).count();
    assert!(kept(&first) >= 1, "{}", said(&first));
    let again = search("8");
    assert_eq!(kept(&again), 0, "nothing is left to do: {}", said(&again));
    assert!(said(&again).starts_with("8 cases, "), "{}", said(&again));
    let files: Vec<PathBuf> = std::fs::read_dir(&keep)
        .expect("it was made")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    assert_eq!(files.len(), kept(&first), "no partial file is left");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let again = text.lines().find_map(|line| line.strip_prefix("# Shown again by `cpumax "));
        let again = again.and_then(|line| line.strip_suffix("`.")).expect("the head tells how");
        let output = cpumax(&again.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(1), "{again}: {}", said(&output));
        // The shrunk scenario keeps the worst number, which its head shows.
        let worst = text.lines().find_map(|line| line.strip_suffix(" times the tolerance."));
        let ratio = worst.and_then(|line| line.rsplit(' ').next()).expect("a number");
        assert!(said(&output).contains(&format!("({ratio})")), "{text}\n{}", said(&output));
    }
}

#[test]
fn a_log_that_is_not_of_this_search_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a name in ASCII").to_owned();
    let (log, keep) = (path("log"), path("found"));
    let search = |kernel: &str| {
        let args = ["search", "--on", "model", "--against", "7.2", "--cases", "1", "--shrink", "0"];
        cpumax(&[&args[..], &["--kernel", kernel, "--log", &log, "--keep", &keep]].concat())
    };
    let refused = |kernel: &str, says: &[&str]| {
        let before = std::fs::read(&log).expect("it is there");
        let output = search(kernel);
        let erred = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{erred}");
        assert!(erred.contains(&log) && says.iter().all(|part| erred.contains(part)), "{erred}");
        assert_eq!(std::fs::read(&log).expect("it is there"), before);
    };
    std::fs::write(&log, "notes of my own\n").expect("it can be written");
    refused("6.18", &["not the log of a search"]);
    std::fs::write(&log, "").expect("it can be written");
    assert_ne!(search("6.18").status.code(), Some(2), "an empty file becomes a log");
    refused("6.12", &["the log of another search", "--kernel 6.18", "--kernel 6.12"]);
}

#[test]
fn files_are_tried_before_the_first_run_and_the_matrix_is_told_whatever_becomes_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("cells.json");
    std::fs::write(&json, "of before").expect("it can be written");
    let args = ["compare", "nested", "--on", "model", "--kernel", "6.18", "--against", "6.17"];
    let with = |more: &[&str]| {
        let output =
            cpumax(&[&args[..], &["--json", json.to_str().expect("ASCII")], more].concat());
        let erred = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{erred}");
        (said(&output), erred, std::fs::read_to_string(&json).expect("it is there"))
    };
    for option in ["--svg", "--markdown"] {
        let (said, erred, json) = with(&[option, "/no/such/folder/x"]);
        assert!(erred.contains("cannot write /no/such/folder/x"), "{erred}");
        assert_eq!((&*said, &*json), ("", "of before"), "nothing was run");
    }
    // /dev/full can be opened and is always full.
    if Path::new("/dev/full").exists() {
        let (said, erred, json) = with(&["--svg", "/dev/full"]);
        assert!(erred.contains("cannot write /dev/full"), "{erred}");
        assert!(said.contains("1 of 1 agree"), "{said}");
        assert!(json.starts_with('['), "{json}");
    }
}
