//! Short recordings that expand in memory are read or refused within 500 MB.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::thread;

/// Memory limit of the process, code and stacks included.
const MOST_KB: u32 = 500_000;

/// Runs a command in limited memory and feeds it a text, of which it may read a part.
fn fed(arguments: &[&str], text: String) -> Output {
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MOST_KB}; exec \"$@\""), "sh"])
        .arg(env!("CARGO_BIN_EXE_cpumax"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let feeder = thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output
}

/// A trace that repeats `times` what `write` writes, `step_ns` apart, after a switch.
fn repeated(times: u64, step_ns: u64, write: impl Fn(&mut String, [String; 8])) -> String {
    let mut text = "0 [0] 1.0: sched_switch: s:0 [1] R ==> a:1 [1]\n".to_owned();
    for n in 0..times {
        let at = |k: u64| {
            let ns = 1_000_000_000 + n * step_ns + k * step_ns / 8;
            format!("{}.{:09}:", ns / 1_000_000_000, ns % 1_000_000_000)
        };
        write(&mut text, std::array::from_fn(|k| at(k as u64)));
    }
    text
}

/// Each line is a missing exit, an entry and a transfer: the known text that expands most.
#[test]
fn what_is_too_much_to_be_kept_is_refused() {
    let text = repeated(1_500_000, 1000, |text, at| {
        writeln!(text, "1 [0] {} sys_enter: NR 1", at[0]).unwrap();
    });
    let output = fed(&["inspect", "-"], text);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("events are all that can be kept: "), "{said}");
    assert!(said.contains("`perf script -i FILE --time FROM,TO`"), "{said}");
}

/// A connection for each request: the known text whose replay takes most memory.
#[test]
fn what_is_read_can_be_replayed() {
    let text = repeated(215_000, 8000, |text, at| {
        let calls =
            [("enter: NR 43 (3)", "exit: NR 43 = 4"), ("enter: NR 0 (4)", "exit: NR 0 = 5")];
        let calls = calls.into_iter().chain([("enter: NR 1 (4)", "exit: NR 1 = 9")]);
        for ((enter, exit), at) in calls.zip(at.chunks(2)) {
            writeln!(text, "1 [0] {} sys_{enter}\n1 [0] {} sys_{exit}", at[0], at[1]).unwrap();
        }
        let [.., sleeps, wakes] = at;
        writeln!(text, "1 [0] {sleeps} sched_switch: a:1 [1] S ==> s:0 [1]").unwrap();
        writeln!(text, "0 [0] {wakes} sched_switch: s:0 [1] R ==> a:1 [1]").unwrap();
    });
    let arguments = ["replay", "-", "--group", "comm:a", "--set", "2000m", "--kernel", "6.18"];
    let output = fed(&[&arguments[..], &["--jobs", "1"]].concat(), text);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{:?}: {said}", output.status);
    assert!(String::from_utf8(output.stdout).unwrap().contains("requests"), "{said}");
}
