//! Clients: how each runs for some seconds, and how its results are read.

use super::server::ServerDir;
use crate::ask::AskReport;
use crate::process::Process;
use crate::stop::Stop;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::process::Command;

#[derive(Debug, Clone, Copy)]
pub enum Client {
    /// `testload ask` with these arguments.
    Ask(&'static [&'static str]),
    /// wrk: connections, and range of the pause before each request, ms.
    Wrk { connections: u32, think_ms: Option<(u32, u32)> },
    /// pgbench: sums over a random range of accounts, at a rate, or after a pause.
    Pgbench { clients: u32, rate: Option<u32>, think_ms: u32 },
    /// redis-benchmark, which counts requests, not seconds; `rate` is the requests a second without
    /// a limit.
    RedisBenchmark { connections: u32, rate: u32 },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClientResults {
    /// Time from the first request to the last, s.
    pub wall_s: f64,
    pub completions: u64,
    pub p50_ms: f64,
    /// redis-benchmark does not report it.
    pub p90_ms: Option<f64>,
    pub p99_ms: f64,
    pub errors: u64,
}

impl Client {
    /// The program that it needs.
    pub fn program(&self) -> Option<&'static str> {
        match self {
            Client::Ask(_) => None,
            Client::Wrk { .. } => Some("wrk"),
            Client::Pgbench { .. } => Some("pgbench"),
            Client::RedisBenchmark { .. } => Some("redis-benchmark"),
        }
    }

    /// Runs the client for about so many seconds. `share` is the part of its demand that the limit
    /// allows, for the client that counts requests.
    pub fn run(
        &self,
        place: &ServerDir,
        seconds: u32,
        share: f64,
        stop: &Stop,
    ) -> Result<ClientResults> {
        let port = place.port.to_string();
        match *self {
            Client::Ask(arguments) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["ask", "--port", &port, "--last", &format!("{seconds}s")]);
                command.args(arguments);
                read_ask(&run(command, "testload ask", stop)?)
            }
            Client::Wrk { connections, think_ms } => {
                let mut command = Command::new("wrk");
                command.arg("-t1").arg(format!("-c{connections}")).arg(format!("-d{seconds}s"));
                command.arg("-s").arg(place.file("wrk.lua"));
                command.args(["-H", "Accept-Encoding: gzip"]);
                command.arg(format!("http://127.0.0.1:{port}/text.txt"));
                if let Some((low, high)) = think_ms {
                    command.env("THINK_LOW", low.to_string()).env("THINK_HIGH", high.to_string());
                }
                read_wrk(&run(command, "wrk", stop)?)
            }
            Client::Pgbench { clients, rate, think_ms } => {
                pgbench(place, seconds, (clients, rate, think_ms), stop)
            }
            Client::RedisBenchmark { connections, rate } => {
                let count = (f64::from(rate * seconds) * share.min(1.0)).ceil().max(1.0) as u64;
                let mut command = Command::new("redis-benchmark");
                command.args(["--csv", "-p", &port, "-c", &connections.to_string()]);
                command.args(["-n", &count.to_string()]).args("SORT l DESC STORE d".split(' '));
                read_redis_benchmark(&run(command, "redis-benchmark", stop)?, count)
            }
        }
    }
}

fn run(command: Command, name: &str, stop: &Stop) -> Result<String> {
    Process::start(name, command)?.output(stop)
}

fn read_ask(output: &str) -> Result<ClientResults> {
    let answered: AskReport = serde_json::from_str(output)
        .with_context(|| format!("`{output}`: not what testload ask says"))?;
    ensure!(answered.requests > 0, "no request was answered");
    let ms = |ns: u64| ns as f64 / 1e6;
    Ok(ClientResults {
        wall_s: answered.duration_ns as f64 / 1e9,
        completions: answered.requests,
        p50_ms: ms(answered.latency_ns.p50),
        p90_ms: Some(ms(answered.latency_ns.p90)),
        p99_ms: ms(answered.latency_ns.p99),
        errors: 0,
    })
}

fn read_wrk(output: &str) -> Result<ClientResults> {
    #[derive(Deserialize)]
    struct Done {
        duration_us: u64,
        requests: u64,
        errors: u64,
        p50: u64,
        p90: u64,
        p99: u64,
    }
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let done: Done =
        serde_json::from_str(line).with_context(|| format!("`{output}`: not what wrk.lua says"))?;
    ensure!(done.requests > 0, "no request was answered");
    let ms = |us: u64| us as f64 / 1e3;
    Ok(ClientResults {
        wall_s: done.duration_us as f64 / 1e6,
        completions: done.requests,
        p50_ms: ms(done.p50),
        p90_ms: Some(ms(done.p90)),
        p99_ms: ms(done.p99),
        errors: done.errors,
    })
}

fn pgbench(
    place: &ServerDir,
    seconds: u32,
    (clients, rate, think_ms): (u32, Option<u32>, u32),
    stop: &Stop,
) -> Result<ClientResults> {
    let logs = place.dir.join("pgbench-log");
    let _ = fs::remove_dir_all(&logs);
    fs::create_dir(&logs).with_context(|| format!("cannot make {}", logs.display()))?;
    let script = place.file(if think_ms > 0 { "think.sql" } else { "sum.sql" });
    let mut command = Command::new("pgbench");
    command.args(place.postgres()).args(["--no-vacuum", "--log"]);
    command.args(["--client", &clients.to_string(), "--time", &seconds.to_string()]);
    command.args(["--jobs", &clients.div_ceil(4).to_string()]);
    command.arg("--define").arg(format!("think={think_ms}"));
    command.arg("--log-prefix").arg(logs.join("log")).arg("--file").arg(script);
    if let Some(rate) = rate {
        command.args(["--rate", &rate.to_string()]);
    }
    command.arg("postgres");
    run(command, "pgbench", stop)?;
    let mut text = String::new();
    for entry in fs::read_dir(&logs)? {
        text.push_str(&fs::read_to_string(entry?.path())?);
    }
    read_pgbench_log(&text, f64::from(think_ms))
}

/// Reads lines of `client number latency script seconds microseconds`. The latency includes the
/// script's pause, and at a rate counts from the due time.
fn read_pgbench_log(text: &str, think_ms: f64) -> Result<ClientResults> {
    let (mut first_s, mut last_s) = (f64::INFINITY, 0.0_f64);
    let mut latencies_ms = Vec::new();
    for line in text.lines() {
        let fields: Vec<f64> = line.split(' ').map_while(|field| field.parse().ok()).collect();
        let [_, _, latency_us, _, seconds, microseconds, ..] = fields[..] else {
            // A skipped or failed transaction has a word in place of the latency.
            continue;
        };
        let end_s = seconds + microseconds / 1e6;
        (first_s, last_s) = (first_s.min(end_s - latency_us / 1e6), last_s.max(end_s));
        latencies_ms.push((latency_us / 1e3 - think_ms).max(0.0));
    }
    ensure!(!latencies_ms.is_empty(), "pgbench says that no transaction was done");
    latencies_ms.sort_by(f64::total_cmp);
    let at = |share: f64| latencies_ms[(latencies_ms.len() as f64 * share) as usize];
    Ok(ClientResults {
        wall_s: last_s - first_s,
        completions: latencies_ms.len() as u64,
        p50_ms: at(0.5),
        p90_ms: Some(at(0.9)),
        p99_ms: at(0.99),
        errors: 0,
    })
}

/// Reads the last line: test, requests a second, and latencies, of which p50, p95, p99 and max are
/// the last.
fn read_redis_benchmark(output: &str, count: u64) -> Result<ClientResults> {
    let numbers: Vec<f64> = output
        .lines()
        .last()
        .unwrap_or_default()
        .rsplit(',')
        .map_while(|field| field.trim_matches('"').parse().ok())
        .collect();
    let [_max, p99_ms, _p95, p50_ms, _min, _mean, rate] = numbers[..] else {
        anyhow::bail!("`{output}`: not what redis-benchmark --csv says");
    };
    ensure!(rate > 0.0, "no request was answered");
    let wall_s = count as f64 / rate;
    Ok(ClientResults { wall_s, completions: count, p50_ms, p90_ms: None, p99_ms, errors: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_pgbench_tells_latency_without_the_pause() {
        let log = "0 1 21000 0 100 500000\n1 1 25000 0 101 0\n0 2 skipped 0 101 1\n";
        let seen = read_pgbench_log(log, 20.0).unwrap();
        assert_eq!((seen.completions, seen.p50_ms, seen.p99_ms), (2, 5.0, 5.0));
        assert!((seen.wall_s - 0.521).abs() < 1e-6, "{}", seen.wall_s);
        assert!(read_pgbench_log("", 0.0).is_err());
    }

    #[test]
    fn the_last_line_of_redis_benchmark_tells_what_it_saw() {
        let output = "\"test\",\"rps\",\"avg\"\n\
                      \"SORT l\",\"1000.0\",\"3.4\",\"1.0\",\"3.5\",\"3.7\",\"4.4\",\"7.6\"\n";
        let seen = read_redis_benchmark(output, 500).unwrap();
        assert_eq!((seen.wall_s, seen.p50_ms, seen.p99_ms), (0.5, 3.5, 4.4));
        assert!(read_redis_benchmark("Could not connect", 500).is_err());
    }

    #[test]
    fn what_wrk_says_is_found_in_its_output() {
        let output = "Running 6s test\n{\"duration_us\":2000000,\"requests\":10,\"errors\":1,\
                      \"p50\":1500,\"p90\":2000,\"p99\":3000}\n  10 requests\n";
        let seen = read_wrk(output).unwrap();
        assert_eq!((seen.wall_s, seen.completions, seen.errors), (2.0, 10, 1));
        assert_eq!(seen.p90_ms, Some(2.0));
        assert!(read_wrk("unable to connect").is_err());
    }
}
