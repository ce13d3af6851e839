//! A command that is interrupted ends within a second and leaves nothing but earlier files. Its
//! exit status does not depend on its reader.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A scenario with many events.
const LONG: &str = r#"
duration = "24h"
[[channel]]
name = "c"
[[source]]
name = "a"
channel = "c"
every = "10us"
lossy = true
[[source]]
name = "b"
channel = "c"
every = "10us"
lossy = true
[[task]]
name = "w"
program = [{ sleep = "23h" }, { user = "1ms" }]
"#;
/// A scenario that fails its expectation.
const FAILS: &str = r#"
duration = "1s"
[[task]]
name = "h"
program = [{ forever = [{ user = "1ms" }] }]
[[expect]]
metric = "tasks.h.usage_usec"
max = 1
"#;
/// A second, and some time for a busy machine.
const TIMEOUT: Duration = Duration::from_millis(1500);

fn command(arguments: &[&str], folder: &Path) -> Command {
    cpumax_require::children_end_by_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cpumax"));
    command.args(arguments).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Sends a signal and checks that the command ends in time; returns its status.
fn ended_by(name: &str, mut child: Child) -> ExitStatus {
    thread::sleep(Duration::from_millis(500));
    assert_eq!(child.try_wait().unwrap(), None, "it has ended before");
    signal(&child, name);
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("{name}: it still runs after {TIMEOUT:?}");
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("long.toml"), LONG).unwrap();
    fs::write(folder.path().join("fails.toml"), FAILS).unwrap();
    fs::write(folder.path().join("old.json"), "of before").unwrap();
    folder
}

#[test]
fn runs_end_within_a_second_and_leave_what_was_there() {
    let folder = folder();
    let commands: [&[&str]; 4] = [
        &["run", "long.toml", "-k", "6.18", "--json", "old.json", "--trace", "new.json"],
        &["run", "long.toml", "-k", "6.18", "--json", "new.json"],
        &[
            "compare",
            "long.toml",
            "--on",
            "model",
            "-k",
            "6.18",
            "--against",
            "7.3",
            "--svg",
            "a.svg",
        ],
        &["weigh", "long.toml", "-k", "6.18,7.3"],
    ];
    for arguments in commands {
        for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129), ("-KILL", 0)] {
            let child = command(arguments, folder.path()).spawn().unwrap();
            let status = ended_by(name, child);
            match name {
                "-KILL" => assert_eq!(status.signal(), Some(9)),
                _ => assert_eq!(status.code(), Some(code), "{arguments:?} {name}"),
            }
        }
    }
    let mut left: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["fails.toml", "long.toml", "old.json"]);
    assert_eq!(fs::read_to_string(folder.path().join("old.json")).unwrap(), "of before");
}

#[test]
fn who_waits_for_a_recording_ends_too() {
    let folder = folder();
    for arguments in [["inspect", "-"].as_slice(), &["replay", "-", "--set", "10000 100000"]] {
        let mut child = command(arguments, folder.path()).stdin(Stdio::piped()).spawn().unwrap();
        // Keep the input open until the command has ended.
        let input = child.stdin.take();
        assert_eq!(ended_by("-INT", child).code(), Some(130), "{arguments:?}");
        drop(input);
    }
}

#[test]
fn a_signal_that_is_to_be_ignored_is() {
    let folder = folder();
    let script =
        concat!("trap '' HUP; exec ", env!("CARGO_BIN_EXE_cpumax"), " run long.toml -k 6.18");
    let child = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(300));
    signal(&child, "-HUP");
    assert_eq!(ended_by("-TERM", child).code(), Some(143));
}

#[test]
fn the_status_does_not_depend_on_who_reads() {
    let folder = folder();
    let cases: [(&[&str], i32); 6] = [
        (&["run", "fails.toml", "-k", "6.18"], 1),
        (&["run", "fails.toml", "-k", "6.18", "--json", "-"], 1),
        (&["run", "nested", "-k", "6.18"], 0),
        (&["run", "none.toml"], 2),
        (&["scenarios"], 0),
        (&["completions", "bash"], 0),
    ];
    for (arguments, code) in cases {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let read = command(arguments, folder.path()).status().unwrap();
        let unread = command(arguments, folder.path())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer)
            .status()
            .unwrap();
        assert_eq!((read.code(), unread.code()), (Some(code), Some(code)), "{arguments:?}");
    }
    // A failed write is never silent.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = command(&["scenarios"], folder.path()).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
