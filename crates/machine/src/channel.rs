//! Channels, the tokens that they carry, and those that are due later. The rules of waiting are in
//! `locking.rs`.

use crate::MAX_TOKENS_DUE;
use crate::ids::{Arena, ChannelId, TaskId};
use cpumax_workload::{ChannelSpec, Domain, Op, Stream, Workload};
use std::collections::VecDeque;

/// The channels of a machine, and tokens on their way.
#[derive(Debug)]
pub(crate) struct Channels {
    pub all: Arena<ChannelId, Channel>,
    /// Capacity allocated for waiting tokens, all channels together; equal tokens count once.
    pub room: usize,
    pub sources: Vec<SourceState>,
    pub due: Due,
    pub counts: JobCounts,
    /// The task that is putting tokens into a channel.
    pub sender: TaskId,
}

impl Channels {
    /// The workload's channels, empty. Decides for each whether receivers that run may take tokens
    /// before woken ones, and whether every token wakes a receiver or only the first. Sources draw
    /// by the seed.
    pub fn new(workload: &Workload, seed: u64) -> Channels {
        let mut all = Arena::new();
        for channel in &workload.channels {
            all.push(Channel::new(channel));
        }
        for op in workload.programs().flatten() {
            match *op {
                Op::Recv { channel, n: 2.. } => all[ChannelId(channel)].barging = false,
                // Each token wakes one idle server.
                Op::Serve { channel } => all[ChannelId(channel)].polled = true,
                _ => {}
            }
        }
        let mut sources = Vec::new();
        for (index, source) in (0..).zip(&workload.sources) {
            all[ChannelId(source.channel)].polled = true;
            let random = Stream::new(seed, Domain::Source, index);
            sources.push(SourceState { random, arrived: 0, due_ns: 0 });
        }
        let (due, counts) = (Due::default(), JobCounts::default());
        Channels { all, room: 0, sources, due, counts, sender: TaskId::NONE }
    }
}

#[derive(Debug)]
pub(crate) struct SourceState {
    pub random: Stream,
    pub arrived: u64,
    /// When the next token is due, ns; its sender may be late.
    pub due_ns: u64,
}

/// The job of a token that carries none.
pub(crate) const NO_JOB: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    /// When its request started, ns.
    pub since_ns: u64,
    pub job: u32,
}

impl Token {
    /// A token without a job of a request that began at `since_ns`.
    pub fn plain(since_ns: u64) -> Token {
        Token { since_ns, job: NO_JOB }
    }
}

/// Consecutive tokens that are equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub token: Token,
    pub n: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Channel {
    pub capacity: u64,
    pub tokens: u64,
    /// Waiting tokens, in the order in which they are taken.
    pub arrivals: VecDeque<Arrived>,
    /// Ordered by the time of their requests, not by arrival.
    pub oldest_first: bool,
    pub receivers: VecDeque<TaskId>,
    /// Any receiver may take a token for which another one was woken.
    pub barging: bool,
    /// A token wakes a receiver even if others wait already, as with senders that poll for room
    /// (kernel: `poll_usage`).
    pub polled: bool,
    pub senders: VecDeque<TaskId>,
}

impl Channel {
    /// An empty channel.
    pub fn new(spec: &ChannelSpec) -> Channel {
        Channel {
            capacity: spec.capacity,
            oldest_first: spec.oldest_first,
            barging: true,
            ..Channel::default()
        }
    }

    /// Adds `n` tokens at the end, or among older requests where the channel asks for that; equal
    /// neighbours are merged. Ignores the capacity.
    #[inline]
    pub fn put(&mut self, token: Token, n: u64) {
        self.tokens = self.tokens.saturating_add(n);
        match self.arrivals.back_mut() {
            Some(last) if last.token == token => last.n = last.n.saturating_add(n),
            Some(last) if self.oldest_first && token.since_ns < last.token.since_ns => {
                self.put_before(token, n);
            }
            _ => self.arrivals.push_back(Arrived { token, n }),
        }
    }

    /// Inserts tokens before those of later requests.
    #[inline(never)]
    pub fn put_before(&mut self, token: Token, n: u64) {
        let until_ns = token.since_ns;
        let at = self.arrivals.partition_point(|other| other.token.since_ns <= until_ns);
        self.arrivals.insert(at, Arrived { token, n });
    }

    /// Takes the first token; the channel must not be empty.
    #[inline]
    pub fn take_one(&mut self) -> Token {
        self.tokens -= 1;
        let Some(first) = self.arrivals.front_mut() else { return Token::plain(0) };
        let token = first.token;
        first.n -= 1;
        if first.n == 0 {
            self.arrivals.pop_front();
        }
        token
    }

    /// Takes `n` tokens, which must be there. Returns the last one, and how many of those before it
    /// carry a job.
    #[inline(never)]
    pub fn take(&mut self, mut n: u64) -> (Token, u64) {
        self.tokens -= n;
        let mut last = Token::plain(0);
        let mut jobs = 0;
        while let Some(first) = self.arrivals.front_mut() {
            last = first.token;
            let taken = first.n.min(n);
            jobs += if last.job == NO_JOB { 0 } else { taken };
            n -= taken;
            first.n -= taken;
            if first.n > 0 {
                break;
            }
            self.arrivals.pop_front();
            if n == 0 {
                break;
            }
        }
        (last, jobs.saturating_sub(u64::from(last.job != NO_JOB)))
    }

    /// Whether `n` tokens fit. More than the capacity fit only into an empty channel.
    pub fn has_room(&self, n: u64) -> bool {
        self.tokens == 0 || self.tokens.saturating_add(n) <= self.capacity
    }
}

/// A token scheduled for later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueToken {
    pub channel: ChannelId,
    pub job: u32,
    /// Start of its request, ns; `None`: its arrival.
    pub since_ns: Option<u64>,
}

/// Tokens scheduled for later, by place; free places are reused.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub places: Vec<DueToken>,
    pub free: Vec<u32>,
}

impl Due {
    /// Stores a token that is due later; returns its place, or `None` if [`MAX_TOKENS_DUE`] are
    /// stored.
    pub fn put(&mut self, coming: DueToken) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = coming;
            return Some(place);
        }
        if self.places.len() == MAX_TOKENS_DUE {
            return None;
        }
        self.places.push(coming);
        Some(self.places.len() as u32 - 1)
    }

    /// Removes and returns the token at this place, which becomes free.
    pub fn take(&mut self, place: u32) -> DueToken {
        self.free.push(place);
        self.places[place as usize]
    }
}

/// Counts of tokens with jobs, for the conservation check.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct JobCounts {
    /// Put in a channel.
    pub put: u64,
    /// Taken by a task that executes the job.
    pub begun: u64,
    /// Taken by a task that does not.
    pub ignored: u64,
    pub ended: u64,
    /// Under way when their task exited.
    pub broken_off: u64,
}
