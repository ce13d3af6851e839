//! The server: one thread for each connection. Each request asks for some CPU time, and is answered
//! afterwards. It carries the time at which it was due, so the server can measure its latency.

use crate::clock::monotonic_ns;
use crate::measure::{Latencies, Stopwatch};
use crate::spin;
use anyhow::{Context as _, Result};
use clap::Args;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// Bytes of a request and of an answer.
pub const MESSAGE_BYTES: usize = 24;

#[derive(Args)]
pub struct Serve {
    /// Port on 127.0.0.1; 0 takes a free one, printed as `listening PORT`.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Connections to serve, 1 to 1024; the server ends when all of them are closed.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub sequence: u64,
    /// `CLOCK_MONOTONIC` when it was due, ns.
    pub due_ns: u64,
    pub work_ns: u64,
}

impl Request {
    pub fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.due_ns.to_le_bytes());
        bytes[16..].copy_from_slice(&self.work_ns.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: [u8; MESSAGE_BYTES]) -> Request {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Request { sequence: word(0), due_ns: word(8), work_ns: word(16) }
    }
}

impl Serve {
    pub fn run(&self) -> Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .with_context(|| format!("cannot listen on 127.0.0.1:{}", self.port))?;
        println!("listening {}", listener.local_addr()?.port());
        std::io::stdout().flush()?;
        let mut threads = Vec::new();
        for index in 0..self.connections {
            let (stream, _) = listener.accept().context("cannot accept")?;
            stream.set_nodelay(true)?;
            threads.push(
                thread::Builder::new()
                    .name(format!("srv-{index:02}"))
                    .spawn(move || answer(stream))?,
            );
        }
        let stopwatch = Stopwatch::start();
        let mut latencies = Latencies::new();
        for thread in threads {
            latencies.add(&thread.join().expect("a server thread does not panic")?);
        }
        stopwatch.report("serve", &latencies).print()
    }
}

/// Serves one connection until the client closes it.
fn answer(mut stream: TcpStream) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut bytes = [0; MESSAGE_BYTES];
    loop {
        match stream.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(latencies),
            Err(error) => return Err(error).context("a connection broke"),
        }
        let request = Request::from_bytes(bytes);
        spin::spin_ns(request.work_ns);
        latencies.record_ns(monotonic_ns().saturating_sub(request.due_ns));
        stream.write_all(&bytes).context("cannot answer")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_wire() {
        let request = Request { sequence: 1, due_ns: u64::MAX - 1, work_ns: 0x0102_0304_0506_0708 };
        assert_eq!(Request::from_bytes(request.to_bytes()), request);
    }
}
