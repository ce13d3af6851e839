//! A batch job: threads that work in rounds, like a parallel program. A round ends when the last
//! thread has finished its share. Latency is that of a thread's share, from the start of the round.

use crate::Common;
use crate::clock::monotonic_ns;
use crate::draw::Span;
use crate::measure::{Latencies, run_threads};
use crate::spin;
use anyhow::Result;
use clap::Args;
use std::sync::Barrier;

#[derive(Args)]
pub struct Batch {
    #[command(flatten)]
    common: Common,
    /// Threads, 1 to 1024.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Rounds, 1 to a million.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rounds: u64,
    /// CPU time of each thread's share of a round.
    #[arg(long, default_value = "uniform:2ms..6ms")]
    work: Span,
}

impl Batch {
    pub fn run(&self) -> Result<()> {
        let round_over = Barrier::new(self.threads as usize);
        let (rounds, work) = (self.rounds, self.work);
        run_threads("batch", &self.common, self.threads, move |mut stream, start| {
            let mut latencies = Latencies::new();
            start.wait();
            for _ in 0..rounds {
                let begin_ns = monotonic_ns();
                spin::spin_ns(work.draw_ns(&mut stream));
                latencies.record_ns(monotonic_ns() - begin_ns);
                round_over.wait();
            }
            latencies
        })
    }
}
