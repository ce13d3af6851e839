//! Each load does the work it was told to do, and says so.

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

fn testload(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testload"));
    command.args(arguments);
    command
}

fn report(arguments: &[&str]) -> Value {
    let output = testload(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a server and a client, and returns what both report.
fn serve(client: &[&str]) -> (Value, Value) {
    let mut server =
        testload(&["serve", "--connections", "3"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let port = first.strip_prefix("listening ").unwrap();
    let fixed = ["--port", port, "--connections", "3", "--requests", "5"];
    let client = report(&[client, &fixed[..]].concat());
    let server_line = lines.next().unwrap().unwrap();
    assert!(server.wait().unwrap().success());
    (serde_json::from_str(&server_line).unwrap(), client)
}

#[test]
fn every_request_of_a_closed_loop_is_answered_once() {
    let (server, client) = serve(&["closed", "--work", "1ms"]);
    assert_eq!(server["completions"], 15);
    assert_eq!(client["completions"], 15);
    // A client has its answer after the server has done the work, not before.
    assert!(client["latency_ns"]["max"].as_u64() >= server["latency_ns"]["p50"].as_u64());
}

#[test]
fn every_request_of_a_clock_is_answered_and_none_is_early() {
    let (server, client) = serve(&["rate", "--work", "100us", "--every", "2ms"]);
    assert_eq!(server["completions"], 15);
    assert_eq!(client["completions"], 15);
    // The last of 15 requests is due 30 ms after the start.
    assert!(client["duration_ns"].as_u64().unwrap() >= 30_000_000);
}

#[test]
fn a_backlog_of_bursts_shows_in_their_latency() {
    let burst = |period: &str| {
        report(&["burst", "--threads", "1", "--period", period, "--work", "4ms", "--count", "10"])
    };
    let overloaded = burst("1ms");
    assert_eq!(overloaded["completions"], 10);
    let cpu_ns = overloaded["cpu_ns"].as_u64().unwrap();
    // The last burst waits for the nine before it, which were due within 9 ms.
    assert!(overloaded["latency_ns"]["max"].as_u64().unwrap() > cpu_ns / 2);
}

#[test]
fn a_batch_and_a_pipeline_do_what_they_are_told() {
    let batch = report(&["batch", "--threads", "3", "--rounds", "4", "--work", "10us"]);
    assert_eq!(batch["completions"], 12);
    let pipeline = report(&["pipeline", "--groups", "2", "--fan", "2", "--loops", "3"]);
    assert_eq!(pipeline["completions"], 24);
}

#[test]
fn bad_arguments_are_refused_with_status_2() {
    for arguments in [
        &["burst", "--threads", "0"][..],
        &["closed", "--port", "1", "--work", "soon"],
        &["scrub", "/nonexistent", "/nonexistent"],
        &["validate", "--only", "nothing", "--dir", env!("CARGO_TARGET_TMPDIR")],
    ] {
        let output = testload(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
