//! Messages through pipes, like hackbench: in each group, every sender writes to every receiver in
//! turn. Latency is that of a message, from its write to its read.

use crate::Common;
use crate::clock::monotonic_ns;
use crate::draw::{Span, Stream};
use crate::measure::{Latencies, Stopwatch};
use crate::spin;
use anyhow::{Context as _, Result};
use clap::Args;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

/// Bytes of a message, as in hackbench; the first eight hold the time of the write.
const MESSAGE_BYTES: usize = 100;

#[derive(Args)]
pub struct Pipeline {
    #[command(flatten)]
    common: Common,
    /// Groups, 1 to 64.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    groups: u32,
    /// Senders, and as many receivers, in each group, 1 to 64.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    fan: u32,
    /// Messages from each sender to each receiver, 1 to 100000.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    loops: u64,
    /// CPU time a receiver spends on a message.
    #[arg(long, default_value = "20us")]
    work: Span,
}

impl Pipeline {
    pub fn run(&self) -> Result<()> {
        let ends = 2 * self.fan * self.groups;
        let start = Arc::new(Barrier::new(ends as usize + 1));
        let mut receivers = Vec::new();
        let mut senders = Vec::new();
        for group in 0..self.groups {
            let mut writers = Vec::new();
            for fan in 0..self.fan {
                let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
                writers.push(writer);
                let stream = Stream::new(self.common.seed, u64::from(group * self.fan + fan));
                let name = format!("rcv-{group}.{fan:02}");
                receivers.push(self.receiver(name, reader, stream, &start)?);
            }
            for fan in 0..self.fan {
                let writers = writers
                    .iter()
                    .map(PipeWriter::try_clone)
                    .collect::<Result<Vec<_>, _>>()
                    .context("cannot share a pipe")?;
                senders.push(self.sender(format!("snd-{group}.{fan:02}"), writers, &start)?);
            }
        }
        self.common.wait_for_start()?;
        let stopwatch = Stopwatch::start();
        start.wait();
        for sender in senders {
            sender.join().expect("a sender does not panic")?;
        }
        let mut latencies = Latencies::new();
        for receiver in receivers {
            latencies.add(&receiver.join().expect("a receiver does not panic")?);
        }
        stopwatch.report("pipeline", &latencies).print()
    }

    fn receiver(
        &self,
        name: String,
        mut reader: PipeReader,
        mut stream: Stream,
        start: &Arc<Barrier>,
    ) -> Result<JoinHandle<Result<Latencies>>> {
        let (work, start) = (self.work, Arc::clone(start));
        let thread = thread::Builder::new().name(name).spawn(move || {
            let mut latencies = Latencies::new();
            let mut message = [0; MESSAGE_BYTES];
            start.wait();
            loop {
                match reader.read_exact(&mut message) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(latencies),
                    Err(error) => return Err(error).context("cannot read a pipe"),
                }
                spin::spin_ns(work.draw_ns(&mut stream));
                let mut sent_ns = [0; 8];
                sent_ns.copy_from_slice(&message[..8]);
                latencies.record_ns(monotonic_ns() - u64::from_le_bytes(sent_ns));
            }
        })?;
        Ok(thread)
    }

    fn sender(
        &self,
        name: String,
        mut writers: Vec<PipeWriter>,
        start: &Arc<Barrier>,
    ) -> Result<JoinHandle<Result<()>>> {
        let (loops, start) = (self.loops, Arc::clone(start));
        let thread = thread::Builder::new().name(name).spawn(move || {
            let mut message = [0; MESSAGE_BYTES];
            start.wait();
            for _ in 0..loops {
                for writer in &mut writers {
                    message[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
                    writer.write_all(&message).context("cannot write a pipe")?;
                }
            }
            Ok(())
        })?;
        Ok(thread)
    }
}
