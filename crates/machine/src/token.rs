//! Tokens, which channels carry, and those that are due later.

use crate::MAX_TOKENS_DUE;
use crate::ids::ChannelId;

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
