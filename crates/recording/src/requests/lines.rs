//! Assigns requests to connections where these are not known: the connection that is idle longest
//! brings the next request.

use std::collections::{BTreeSet, VecDeque};

/// The connections of clients that ask the same threads.
#[derive(Debug)]
pub(crate) struct ClientConnections {
    /// Idle connections with the time since when, ns; longest first.
    free: VecDeque<(u64, u32)>,
    busy: BTreeSet<(u64, u32)>,
    made: usize,
    known: usize,
    /// Whether there are exactly `known` connections.
    sure: bool,
}

impl ClientConnections {
    /// At least so many connections; exactly so many if `sure`.
    pub fn new(known: usize, sure: bool) -> ClientConnections {
        ClientConnections { free: VecDeque::new(), busy: BTreeSet::new(), made: 0, known, sure }
    }

    /// Takes the connection for a request: of at least the known number, the one idle longest.
    /// Returns it, and since when it was idle, ns. `new` is the number that a new connection gets.
    pub fn assign(&mut self, (arrived_ns, answered_ns): (u64, u64), new: u32) -> (u32, u64) {
        let all_taken = |lines: &ClientConnections| lines.sure && lines.made >= lines.known;
        while let Some(&(free_ns, number)) = self.busy.first()
            && (free_ns <= arrived_ns || self.free.is_empty() && all_taken(self))
        {
            self.busy.pop_first();
            self.free.push_back((free_ns, number));
        }
        let (free_ns, number) = match self.free.front().copied() {
            Some(free) if self.made >= self.known => {
                self.free.pop_front();
                free
            }
            _ => {
                self.made += 1;
                (0, new)
            }
        };
        self.busy.insert((answered_ns, number));
        (number, free_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connections of requests that each take 5, one beginning every 3.
    fn numbers(mut lines: ClientConnections) -> Vec<u32> {
        let mut made = 0;
        let mut number = |at_ns| {
            let (number, _) = lines.assign((at_ns, at_ns + 5), made);
            made = made.max(number + 1);
            number
        };
        (0..6).map(|n| number(n * 3)).collect()
    }

    #[test]
    fn the_connection_idle_longest_asks_next() {
        assert_eq!(numbers(ClientConnections::new(0, false)), [0, 1, 0, 1, 0, 1]);
        assert_eq!(numbers(ClientConnections::new(4, false)), [0, 1, 2, 3, 0, 1]);
        assert_eq!(numbers(ClientConnections::new(1, true)), [0; 6]);
    }
}
