//! Measurements that a load reports.

use crate::Common;
use crate::clock::{monotonic_ns, process_cpu_ns};
use crate::draw::Stream;
use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Barrier};
use std::thread;

/// A histogram of latencies with three significant digits.
pub struct Latencies(Histogram<u64>);

impl Latencies {
    pub fn new() -> Latencies {
        // The constants meet the bounds of the constructor.
        Latencies(
            Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("constant bounds are valid"),
        )
    }

    pub fn record_ns(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns.max(1));
    }

    pub fn add(&mut self, other: &Latencies) {
        // Equal bounds: no value is out of range.
        self.0.add(&other.0).expect("same bounds");
    }

    pub fn summary(&self) -> Summary {
        Summary {
            count: self.0.len(),
            p50: self.0.value_at_quantile(0.5),
            p90: self.0.value_at_quantile(0.9),
            p99: self.0.value_at_quantile(0.99),
            max: self.0.max(),
            mean: self.0.mean() as u64,
        }
    }
}

/// Summary of a distribution, ns.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Summary {
    pub count: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
    pub mean: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    pub load: String,
    /// Requests, bursts, messages or rounds done.
    pub completions: u64,
    /// Time from the start to the last completion, ns.
    pub duration_ns: u64,
    /// CPU time of the process over that time, ns.
    pub cpu_ns: u64,
    /// Latency from the due time of a request to its end, ns.
    pub latency_ns: Summary,
}

impl Report {
    pub fn print(&self) -> Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// Measures a load from its start.
pub struct Stopwatch {
    begin_ns: u64,
    begin_cpu_ns: u64,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { begin_ns: monotonic_ns(), begin_cpu_ns: process_cpu_ns() }
    }

    pub fn report(&self, load: &str, latencies: &Latencies) -> Report {
        let latency_ns = latencies.summary();
        Report {
            load: load.to_owned(),
            completions: latency_ns.count,
            duration_ns: monotonic_ns() - self.begin_ns,
            cpu_ns: process_cpu_ns() - self.begin_cpu_ns,
            latency_ns,
        }
    }
}

/// Runs the threads of a load, and prints its report. Each thread gets random numbers of its own,
/// and waits at the barrier before it begins. Threads are named after the load: `bat-00`.
pub fn run_threads(
    load: &str,
    common: &Common,
    count: u32,
    work: impl Fn(Stream, &Barrier) -> Latencies + Send + Sync + 'static,
) -> Result<()> {
    let shared = Arc::new((work, Barrier::new(count as usize + 1)));
    let mut threads = Vec::new();
    for index in 0..u64::from(count) {
        let (shared, stream) = (Arc::clone(&shared), Stream::new(common.seed, index));
        let named = thread::Builder::new().name(format!("{}-{index:02}", &load[..3]));
        threads.push(named.spawn(move || (shared.0)(stream, &shared.1))?);
    }
    common.wait_for_start()?;
    let stopwatch = Stopwatch::start();
    shared.1.wait();
    let mut latencies = Latencies::new();
    for thread in threads {
        latencies.add(&thread.join().expect("a thread of a load does not panic"));
    }
    stopwatch.report(load, &latencies).print()
}
