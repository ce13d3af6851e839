//! A client for real servers: one thread, an event loop, many connections. In a closed loop each
//! connection waits for its answer, pauses, and asks again. In an open loop requests are due at
//! times fixed in advance, the next free connection sends the due one, and latency counts from the
//! due time. The client ends after a given time.

mod wire;

use crate::clock::{NS_PER_S, monotonic_ns, precise_timers};
use crate::draw::{Span, Stream, parse_ns};
use crate::measure::{Latencies, Summary};
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use wire::{Protocol, Wire};

/// Token of the timer in epoll.
const TIMER: u64 = u64::MAX;
/// First stream of pauses, different from the stream of arrivals.
const THINK_STREAM: u64 = 1 << 32;

#[derive(Args, Debug, Clone)]
pub struct Ask {
    /// Port of the server on 127.0.0.1.
    #[arg(long)]
    port: u16,
    /// Connections, 1 to 1024.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Protocol of the server.
    #[arg(long, value_enum, default_value = "http")]
    protocol: Protocol,
    /// Request: a path, or a Redis command whose words are separated by blanks.
    #[arg(long, default_value = "/")]
    request: String,
    /// A line of an HTTP request's head, such as `Accept-Encoding: gzip`; repeatable.
    #[arg(long)]
    header: Vec<String>,
    /// Pause between an answer and the next request of its connection.
    #[arg(long, default_value = "0ms")]
    think: Span,
    /// Open loop: the pause between one request and the next over all connections.
    #[arg(long, conflicts_with = "think")]
    every: Option<Span>,
    /// Time after which it ends.
    #[arg(long, default_value = "5s", value_parser = parse_ns)]
    last: u64,
    /// Open a connection for each request.
    #[arg(long)]
    reconnect: bool,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskReport {
    /// Time from the first request to the end, ns.
    pub duration_ns: u64,
    /// Requests answered in that time.
    pub requests: u64,
    /// Requests that were due and not answered at the end.
    pub unanswered: u64,
    /// Latency from the due time (open loop) or the sending (closed loop) to the answer, ns.
    pub latency_ns: Summary,
}

impl Ask {
    pub fn run(&self) -> Result<()> {
        precise_timers();
        let mut client = Client::connect(self)?;
        client.ask_until_the_end()?;
        println!("{}", serde_json::to_string(&client.report())?);
        Ok(())
    }
}

struct Connection {
    stream: Option<TcpStream>,
    wire: Wire,
    /// When its request was due, ns; `None` between requests.
    due_ns: Option<u64>,
    pauses: Stream,
}

struct Client<'a> {
    plan: &'a Ask,
    request: Vec<u8>,
    epoll: Epoll,
    timer: TimerFd,
    connections: Vec<Connection>,
    /// Closed loop: end of each connection's pause, ns, earliest first.
    thinking: BinaryHeap<Reverse<(u64, usize)>>,
    /// Open loop: connections without a request, longest free first.
    free: VecDeque<usize>,
    /// Open loop: due times of requests without a connection, ns.
    waiting: VecDeque<u64>,
    /// Open loop: time at which the next request is due, ns.
    next_due_ns: u64,
    arrivals: Stream,
    begin_ns: u64,
    end_ns: u64,
    ended_ns: u64,
    latencies: Latencies,
}

impl<'a> Client<'a> {
    fn connect(plan: &'a Ask) -> Result<Client<'a>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let mut lines = plan.header.clone();
        if plan.reconnect {
            lines.push("Connection: close".to_owned());
        }
        let mut client = Client {
            plan,
            request: plan.protocol.request(&plan.request, &lines),
            epoll,
            timer,
            connections: Vec::new(),
            thinking: BinaryHeap::new(),
            free: VecDeque::new(),
            waiting: VecDeque::new(),
            next_due_ns: 0,
            arrivals: Stream::new(plan.seed, 0),
            begin_ns: 0,
            end_ns: 0,
            ended_ns: 0,
            latencies: Latencies::new(),
        };
        for index in 0..plan.connections as usize {
            client.connections.push(Connection {
                stream: None,
                wire: Wire::new(plan.protocol),
                due_ns: None,
                pauses: Stream::new(plan.seed, THINK_STREAM + index as u64),
            });
            if !plan.reconnect {
                client.open(index)?;
            }
        }
        Ok(client)
    }

    fn open(&mut self, index: usize) -> Result<()> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.plan.port))
            .with_context(|| format!("cannot connect to 127.0.0.1:{}", self.plan.port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        self.connections[index].stream = Some(stream);
        Ok(())
    }

    fn ask_until_the_end(&mut self) -> Result<()> {
        self.begin_ns = monotonic_ns();
        self.end_ns = self.begin_ns.saturating_add(self.plan.last);
        self.next_due_ns = self.begin_ns;
        for index in 0..self.connections.len() {
            self.rest(index, self.begin_ns);
        }
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let now_ns = monotonic_ns();
            if now_ns >= self.end_ns {
                self.ended_ns = now_ns;
                return Ok(());
            }
            self.send_due(now_ns)?;
            self.set_timer()?;
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => 0,
                other => other.context("cannot wait for answers")?,
            };
            for event in &events[..count] {
                match event.data() {
                    TIMER => {
                        // A timer that has not expired leaves nothing to read.
                        let _ = self.timer.wait();
                    }
                    index => self.receive(index as usize)?,
                }
            }
        }
    }

    /// Starts the pause of a connection (closed loop), or makes it free (open loop).
    fn rest(&mut self, index: usize, now_ns: u64) {
        if self.plan.every.is_some() {
            self.free.push_back(index);
        } else {
            let pause_ns = self.plan.think.draw_ns(&mut self.connections[index].pauses);
            self.thinking.push(Reverse((now_ns + pause_ns, index)));
        }
    }

    /// Sends all due requests for which there are connections.
    fn send_due(&mut self, now_ns: u64) -> Result<()> {
        if let Some(every) = self.plan.every {
            while self.next_due_ns <= now_ns {
                self.waiting.push_back(self.next_due_ns);
                self.next_due_ns += every.draw_ns(&mut self.arrivals).max(1);
            }
            while !self.waiting.is_empty() && !self.free.is_empty() {
                if let (Some(due_ns), Some(index)) =
                    (self.waiting.pop_front(), self.free.pop_front())
                {
                    self.send(index, due_ns)?;
                }
            }
            return Ok(());
        }
        while let Some(&Reverse((at_ns, index))) = self.thinking.peek() {
            if at_ns > now_ns {
                break;
            }
            self.thinking.pop();
            self.send(index, monotonic_ns())?;
        }
        Ok(())
    }

    fn send(&mut self, index: usize, due_ns: u64) -> Result<()> {
        if self.connections[index].stream.is_none() {
            self.open(index)?;
        }
        let connection = &mut self.connections[index];
        connection.due_ns = Some(due_ns);
        let stream = connection.stream.as_mut().context("no connection")?;
        stream.write_all(&self.request).context("cannot ask")
    }

    fn set_timer(&mut self) -> Result<()> {
        let next_ns = if self.plan.every.is_some() {
            self.next_due_ns
        } else {
            self.thinking.peek().map_or(self.end_ns, |Reverse((at_ns, _))| *at_ns)
        };
        let at_ns = next_ns.min(self.end_ns);
        let at = TimeSpec::new((at_ns / NS_PER_S) as i64, (at_ns % NS_PER_S) as i64);
        self.timer
            .set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            .context("cannot set the timer")
    }

    /// Reads everything that arrived on a connection.
    fn receive(&mut self, index: usize) -> Result<()> {
        let mut bytes = [0; 16384];
        loop {
            let connection = &mut self.connections[index];
            let Some(stream) = connection.stream.as_mut() else { return Ok(()) };
            let count = match stream.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.context("no answer")?,
            };
            if count == 0 {
                ensure!(connection.due_ns.is_none(), "the server closed a connection unasked");
                connection.stream = None;
                return Ok(());
            }
            if connection.wire.take(&bytes[..count])? {
                self.done(index);
            }
        }
    }

    fn done(&mut self, index: usize) {
        let now_ns = monotonic_ns();
        let connection = &mut self.connections[index];
        let Some(due_ns) = connection.due_ns.take() else { return };
        if now_ns <= self.end_ns {
            self.latencies.record_ns(now_ns.saturating_sub(due_ns));
        }
        if self.plan.reconnect {
            connection.stream = None;
        }
        self.rest(index, now_ns);
    }

    fn report(&self) -> AskReport {
        let latency_ns = self.latencies.summary();
        let under_way = self.connections.iter().filter(|each| each.due_ns.is_some()).count();
        AskReport {
            duration_ns: self.ended_ns - self.begin_ns,
            requests: latency_ns.count,
            unanswered: (under_way + self.waiting.len()) as u64,
            latency_ns,
        }
    }
}
