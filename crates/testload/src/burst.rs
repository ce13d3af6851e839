//! Periodic bursts: each thread works at every tick of a fixed schedule. Latency counts from the
//! tick, so a backlog shows.

use crate::Common;
use crate::clock::{monotonic_ns, precise_timers, sleep_until_ns};
use crate::draw::{Span, parse_ns};
use crate::measure::{Latencies, run_threads};
use crate::spin;
use anyhow::Result;
use clap::Args;

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
        let (period_ns, work, count) = (self.period, self.work, self.count);
        run_threads("burst", &self.common, self.threads, move |mut stream, start| {
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
        })
    }
}
