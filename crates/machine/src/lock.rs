//! Locks and channels: who holds them, who waits, and whether they are free for a task. The rules
//! of waiting are in `locking.rs`.

mod used;

pub(crate) use used::{is_barging, is_in_kernel, is_written};

use crate::ids::{LockId, TaskId};
use crate::token::{NO_JOB, Token};
use cpumax_workload::{ChannelSpec, LockKind, LockMode};
use std::collections::VecDeque;

#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub kind: LockKind,
    /// A free lock goes to any task that arrives, even if others wait.
    pub barging: bool,
    /// Taken in system calls; waiters sleep uninterruptibly.
    pub in_kernel: bool,
    /// The guest implements work under it as a write to a file.
    pub written: bool,
    /// The next owner is the first waiter.
    pub handoff: bool,
    pub held_for_writing: bool,
    pub holders: Vec<TaskId>,
    pub waiters: VecDeque<Waiter>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    /// None: a move from outside.
    pub task: TaskId,
    pub mode: LockMode,
    pub since_ns: u64,
}

impl Lock {
    /// A free lock. `barging`: running tasks may take it before woken waiters. `written`: a write
    /// takes it and works under it in one call.
    pub fn new(kind: LockKind, barging: bool, written: bool) -> Lock {
        Lock {
            kind,
            barging,
            in_kernel: true,
            written,
            handoff: false,
            held_for_writing: false,
            holders: Vec::new(),
            waiters: VecDeque::new(),
        }
    }

    /// Whether the current holders allow another in this mode.
    pub fn admits(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Write => self.holders.is_empty(),
            LockMode::Read => !self.held_for_writing,
        }
    }

    /// Whether a task may take the lock now: one that arrives (`place` is none), or a woken waiter
    /// at this `place` of the list. With others waiting only barging locks allow it, within rules
    /// of fairness.
    pub fn is_free_for(&self, mode: LockMode, place: Option<usize>) -> bool {
        if !self.admits(mode) || self.waiters.is_empty() {
            return self.admits(mode);
        }
        // Others wait. Readers may overtake only where no reader is inside, or writers would
        // starve.
        let comes_past = match mode {
            LockMode::Write => !self.handoff || place == Some(0),
            LockMode::Read => !self.handoff && self.holders.is_empty(),
        };
        self.barging && comes_past
    }

    /// The mode in which this kind of lock is taken: `asked`, or writing if it has no readers.
    pub fn mode(&self, asked: LockMode) -> LockMode {
        match self.kind {
            LockKind::Mutex | LockKind::Spin => LockMode::Write,
            LockKind::Rwsem | LockKind::PercpuRwsem | LockKind::Rwlock => asked,
        }
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

/// A spinning task, its lock, and since when it spins, ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spinner {
    pub task: TaskId,
    pub lock: LockId,
    pub since_ns: u64,
}
