//! Each load does the requested work, and reports it.

use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

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

/// Runs a server and a client, and returns their reports.
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
    // The client gets its answer after the server has finished the work.
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

/// Starts an HTTP server that takes this long for each request; returns its port.
fn slow_server(takes: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut answers = stream.try_clone().unwrap();
                // An empty line ends a request.
                for _ in
                    BufReader::new(stream).lines().map_while(Result::ok).filter(String::is_empty)
                {
                    thread::sleep(takes);
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if answers.write_all(answer).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn a_closed_client_asks_no_more_than_its_connections_and_pauses_allow() {
    let port = slow_server(Duration::from_millis(5));
    let fixed = ["ask", "--port", &port, "--connections", "2", "--last", "200ms"];
    let asked = report(&[&fixed[..], &["--think", "5ms"]].concat());
    let requests = asked["requests"].as_u64().unwrap();
    // Each connection needs 10 ms for a request.
    assert!((2..=40).contains(&requests), "{asked}");
    assert!(asked["unanswered"].as_u64().unwrap() <= 2, "{asked}");
    assert!(asked["latency_ns"]["p50"].as_u64().unwrap() >= 5_000_000, "{asked}");
}

#[test]
fn latency_of_an_open_client_counts_from_when_a_request_was_due() {
    let port = slow_server(Duration::from_millis(20));
    let fixed = ["ask", "--port", &port, "--connections", "1", "--last", "400ms"];
    let asked = report(&[&fixed[..], &["--every", "5ms"]].concat());
    let (requests, unanswered) = (&asked["requests"], asked["unanswered"].as_u64().unwrap());
    // 80 are due, at most 20 can be answered, and the last of them waited for most of the time.
    assert!((1..=20).contains(&requests.as_u64().unwrap()), "{asked}");
    assert_eq!(requests.as_u64().unwrap() + unanswered, 80, "{asked}");
    assert!(asked["latency_ns"]["max"].as_u64().unwrap() > 100_000_000, "{asked}");
}

#[test]
fn a_client_with_a_connection_for_each_request_is_answered() {
    let port = slow_server(Duration::from_millis(1));
    let asked = report(&["ask", "--port", &port, "--last", "100ms", "--reconnect"]);
    assert!(asked["requests"].as_u64().unwrap() >= 8, "{asked}");
}

#[test]
fn the_score_of_kept_predictions_is_told_as_tables_and_as_json() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("proof-score");
    fs::create_dir_all(&folder).unwrap();
    let run = r#"{"workload": "http.x", "setting": "50/100", "quota_us": 50000, "period_us": 100000,
        "burst_us": 0, "perf": "none", "rep": 1, "at": "12:00:00", "wall_s": 2.0, "usage_s": 1.0,
        "cpus_used": 0.5, "nr_periods": 20, "nr_throttled": 18, "metrics": {"requests": 100,
        "req_per_s": 50.0, "lat_p50_ms": 60.0}}"#;
    fs::write(folder.join("results.json"), format!("[{run}]")).unwrap();
    let said = r#"[{"recording": "http.x.plain", "setting": "50/100", "scale": null, "failed": null,
        "said": {"cpus": {"value": 0.55, "low": 0.5, "high": 0.6}, "predictable": false,
        "why_not": "the limit is what the load asks for"}}]"#;
    fs::write(folder.join("predictions.json"), said).unwrap();
    let score = ["proof", "--steps", "score", "--dir", folder.to_str().unwrap()];
    let told = testload(&score).output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    for part in [
        "| CPUs used ",
        "10.0 %",
        "0.550 (0.500..0.600) / 0.500 (0.500..0.500)",
        "- http.x.plain under 50/100: the limit is what the load asks for",
        "50 ms in 100 ms, not predictable",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    assert_eq!(fs::read_to_string(folder.join("score.md")).unwrap(), text);
    let score = report(&[&score[..], &["--json"]].concat());
    assert_eq!(score["summaries"][0]["covered"], 1);
    assert_eq!(score["summaries"][0]["within"], 0);
    assert_eq!(score["cells"][0]["quantity"], "cpus");
}

#[test]
fn bad_arguments_are_refused_with_status_2() {
    for arguments in [
        &["burst", "--threads", "0"][..],
        &["closed", "--port", "1", "--work", "soon"],
        &["scrub", "/nonexistent", "/nonexistent"],
        &["proof", "--only", "nothing", "--dir", concat!(env!("CARGO_TARGET_TMPDIR"), "/proof")],
        &["proof", "--limits", "50"],
        &["ask", "--port", "1", "--every", "1ms", "--think", "1ms"],
    ] {
        let output = testload(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}
