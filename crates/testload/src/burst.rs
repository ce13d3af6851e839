//! Periodic bursts: each thread works at every tick of a fixed schedule. Latency counts from the
//! tick, so a backlog shows.

use crate::Common;
use crate::clock::{monotonic_ns, precise_timers, sleep_until_ns};
use crate::draw::{Span, Stream, parse_ns};
use crate::measure::{Latencies, Stopwatch};
use crate::spin;
use anyhow::Result;
use clap::Args;
use std::sync::{Arc, Barrier};
use std::thread;

#[derive(Args)]
pub struct Burst {
    #[command(flatten)]
    common: Common,
    /// Threads, 1 to 1024.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Time from one burst to the next.
    #[arg(long, default_value = "70ms", value_parser = parse_ns)]
    period: u64,
    /// CPU time of each thread's burst.
    #[arg(long, default_value = "20ms")]
    work: Span,
    /// Bursts of each thread, 1 to a million.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
}

impl Burst {
    pub fn run(&self) -> Result<()> {
        let start = Arc::new(Barrier::new(self.threads as usize + 1));
        let mut threads = Vec::new();
        for index in 0..u64::from(self.threads) {
            let mut stream = Stream::new(self.common.seed, index);
            let (period_ns, work, count) = (self.period, self.work, self.count);
            let start = Arc::clone(&start);
            threads.push(thread::Builder::new().name(format!("bur-{index:02}")).spawn(
                move || {
                    precise_timers();
                    let mut latencies = Latencies::new();
                    start.wait();
                    let first_ns = monotonic_ns() + period_ns;
                    for burst in 0..count {
                        let due_ns = first_ns + burst * period_ns;
                        sleep_until_ns(due_ns);
                        spin::spin_ns(work.draw_ns(&mut stream));
                        latencies.record_ns(monotonic_ns() - due_ns);
                    }
                    latencies
                },
            )?);
        }
        self.common.wait_for_start()?;
        let stopwatch = Stopwatch::start();
        start.wait();
        let mut latencies = Latencies::new();
        for thread in threads {
            latencies.add(&thread.join().expect("a bursting thread does not panic"));
        }
        stopwatch.report("burst", &latencies).print()
    }
}
