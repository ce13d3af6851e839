//! The two kinds of clients. A closed one asks, waits for the answer, pauses, and asks again, so it
//! slows down with its server. A rate-driven one asks at times fixed in advance, and latency counts
//! from these times, so it includes the wait for a slow server.

use crate::Common;
use crate::clock::{monotonic_ns, precise_timers, sleep_until_ns};
use crate::draw::{Span, Stream};
use crate::measure::{Latencies, Stopwatch};
use crate::serve::{MESSAGE_BYTES, Request};
use anyhow::{Context as _, Result};
use clap::Args;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread;

/// First stream of pauses and arrivals; streams of work are below.
const OTHER_STREAM: u64 = 1 << 32;

#[derive(Args)]
pub struct Closed {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    target: Target,
    /// Pause between an answer and the next request.
    #[arg(long, default_value = "0ms")]
    think: Span,
}

#[derive(Args)]
pub struct Rate {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    target: Target,
    /// Time between one request and the next, over all connections.
    #[arg(long, default_value = "exp:10ms")]
    every: Span,
}

/// Server and requests.
#[derive(Args, Clone)]
struct Target {
    /// Port of the server on 127.0.0.1.
    #[arg(long)]
    port: u16,
    /// Connections, 1 to 1024; as many as the server was told.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Requests on each connection, 1 to a million.
    #[arg(
        long,
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    requests: u64,
    /// CPU time of each request at the server.
    #[arg(long, default_value = "exp:2ms")]
    work: Span,
}

impl Target {
    fn connect(&self) -> Result<Vec<TcpStream>> {
        (0..self.connections)
            .map(|_| {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
                    .with_context(|| format!("cannot connect to 127.0.0.1:{}", self.port))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .collect()
    }
}

impl Closed {
    pub fn run(&self) -> Result<()> {
        let start = Arc::new(Barrier::new(self.target.connections as usize + 1));
        let mut threads = Vec::new();
        for (index, stream) in self.target.connect()?.into_iter().enumerate() {
            let (target, think, seed) = (self.target.clone(), self.think, self.common.seed);
            let start = Arc::clone(&start);
            threads.push(thread::Builder::new().name(format!("cli-{index:02}")).spawn(
                move || {
                    start.wait();
                    ask_and_wait(stream, &target, think, seed, index as u64)
                },
            )?);
        }
        self.common.wait_for_start()?;
        let stopwatch = Stopwatch::start();
        start.wait();
        let mut latencies = Latencies::new();
        for thread in threads {
            latencies.add(&thread.join().expect("a client thread does not panic")?);
        }
        stopwatch.report("closed", &latencies).print()
    }
}

fn ask_and_wait(
    mut stream: TcpStream,
    target: &Target,
    think: Span,
    seed: u64,
    index: u64,
) -> Result<Latencies> {
    precise_timers();
    let mut work = Stream::new(seed, index);
    let mut pauses = Stream::new(seed, OTHER_STREAM + index);
    let mut latencies = Latencies::new();
    let mut answer = [0; MESSAGE_BYTES];
    for sequence in 0..target.requests {
        let pause_ns = think.draw_ns(&mut pauses);
        if pause_ns > 0 {
            thread::sleep(std::time::Duration::from_nanos(pause_ns));
        }
        let request =
            Request { sequence, due_ns: monotonic_ns(), work_ns: target.work.draw_ns(&mut work) };
        stream.write_all(&request.to_bytes()).context("cannot ask")?;
        stream.read_exact(&mut answer).context("no answer")?;
        latencies.record_ns(monotonic_ns() - request.due_ns);
    }
    Ok(latencies)
}

impl Rate {
    pub fn run(&self) -> Result<()> {
        let streams = self.target.connect()?;
        let mut receivers = Vec::new();
        for (index, stream) in streams.iter().enumerate() {
            let (stream, requests) = (stream.try_clone()?, self.target.requests);
            receivers.push(
                thread::Builder::new()
                    .name(format!("rcv-{index:02}"))
                    .spawn(move || receive(stream, requests))?,
            );
        }
        self.common.wait_for_start()?;
        let stopwatch = Stopwatch::start();
        let (target, every, seed) = (self.target.clone(), self.every, self.common.seed);
        thread::Builder::new()
            .name("rate".to_owned())
            .spawn(move || send(streams, &target, every, seed))?
            .join()
            .expect("the sender does not panic")?;
        let mut latencies = Latencies::new();
        for receiver in receivers {
            latencies.add(&receiver.join().expect("a receiver does not panic")?);
        }
        stopwatch.report("rate", &latencies).print()
    }
}

/// Sends requests on all connections in turn, each at its time.
fn send(mut streams: Vec<TcpStream>, target: &Target, every: Span, seed: u64) -> Result<()> {
    precise_timers();
    let mut arrivals = Stream::new(seed, OTHER_STREAM);
    let mut work: Vec<Stream> =
        (0..streams.len()).map(|index| Stream::new(seed, index as u64)).collect();
    let mut due_ns = monotonic_ns();
    for sequence in 0..target.requests {
        for (stream, work) in streams.iter_mut().zip(&mut work) {
            due_ns += every.draw_ns(&mut arrivals);
            sleep_until_ns(due_ns);
            let request = Request { sequence, due_ns, work_ns: target.work.draw_ns(work) };
            stream.write_all(&request.to_bytes()).context("cannot ask")?;
        }
    }
    Ok(())
}

fn receive(mut stream: TcpStream, requests: u64) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut answer = [0; MESSAGE_BYTES];
    for _ in 0..requests {
        stream.read_exact(&mut answer).context("no answer")?;
        let due_ns = Request::from_bytes(answer).due_ns;
        latencies.record_ns(monotonic_ns().saturating_sub(due_ns));
    }
    Ok(latencies)
}
