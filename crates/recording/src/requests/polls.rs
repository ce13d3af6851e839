//! When a thread learned that there was something to read.

use crate::recording::Recording;
use crate::syscalls::IoKind;
use crate::thread::{Birth, Io, Step};

/// Bounds of when a reading thread learned that there was something to read.
pub(super) struct PollTimes {
    /// Earliest and latest time, by index of the transfer, ns.
    bounds: Vec<(u64, u64)>,
}

impl PollTimes {
    /// Follows waits, polls and transfers of each thread. A transfer before any wait or poll has
    /// bounds of 0.
    pub fn of(recording: &Recording) -> PollTimes {
        let mut bounds = vec![(0, 0); recording.ios.len()];
        for thread in &recording.threads {
            let mut asked_ns = (0, 0);
            // A thread learned nothing before it was born.
            let born_ns = match thread.birth {
                Birth::Forked { at_ns, .. } => recording.first_ns.saturating_add(at_ns),
                Birth::Present { .. } => u64::MAX,
            };
            for step in thread.steps.iter() {
                match step {
                    Step::Wait(wait) => {
                        let end_ns = thread.waits[wait as usize].end_ns;
                        asked_ns = (end_ns, end_ns);
                    }
                    Step::Io(at) => {
                        let io = &recording.ios[at as usize];
                        // A thread that had to wait learned it when it was woken.
                        if io.kind == IoKind::Poll && asked_ns.1 < io.entered_ns {
                            let before_ns = match asked_ns.1 {
                                0 => born_ns.min(io.entered_ns),
                                ns => ns,
                            };
                            asked_ns = (before_ns, io.left_ns);
                        }
                        bounds[at as usize] = asked_ns;
                    }
                    _ => {}
                }
            }
        }
        PollTimes { bounds }
    }

    /// The middle of the bounds, or the beginning of the read if there are none, ns.
    pub fn arrival_ns(&self, at: u32, io: &Io) -> u64 {
        let (from_ns, to_ns) = self.bounds[at as usize];
        if to_ns == 0 { io.entered_ns } else { (from_ns / 2 + to_ns / 2).min(io.left_ns) }
    }
}
