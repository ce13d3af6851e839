//! What happens next.
//!
//! Two structures for two kinds of events. [`Heap`] holds events that fire once (a wake-up, an arrival).
//! [`Timers`] holds one time for each CPU and each group's timers, re-armed at nearly every event: a
//! winner tree, where setting a time costs one walk to the root and nothing is ever cancelled lazily.

/// No time: later than everything.
pub(crate) const NEVER: u64 = u64::MAX;

/// A 4-ary min-heap of events in order of time, then of insertion.
#[derive(Debug, Clone, Default)]
pub struct Heap<E> {
    nodes: Vec<Node<E>>,
    inserted: u64,
}

#[derive(Debug, Clone, Copy)]
struct Node<E> {
    time_ns: u64,
    order: u64,
    event: E,
}

impl<E> Node<E> {
    fn key(&self) -> (u64, u64) {
        (self.time_ns, self.order)
    }
}

impl<E: Copy> Heap<E> {
    /// One without events.
    pub fn new() -> Self {
        Heap { nodes: Vec::new(), inserted: 0 }
    }

    /// Time of the first event, or [`u64::MAX`].
    pub fn next_ns(&self) -> u64 {
        self.nodes.first().map_or(NEVER, |n| n.time_ns)
    }

    /// Puts in an event.
    pub fn push(&mut self, time_ns: u64, event: E) {
        self.inserted += 1;
        self.push_as(self.inserted, time_ns, event);
    }

    /// Before all others of that time.
    pub fn push_first(&mut self, time_ns: u64, event: E) {
        self.push_as(0, time_ns, event);
    }

    fn push_as(&mut self, order: u64, time_ns: u64, event: E) {
        self.nodes.push(Node { time_ns, order, event });
        let mut at = self.nodes.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.nodes[parent].key() <= self.nodes[at].key() {
                break;
            }
            self.nodes.swap(parent, at);
            at = parent;
        }
    }

    /// Takes out the first event, with its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        let last = self.nodes.pop()?;
        if self.nodes.is_empty() {
            return Some((last.time_ns, last.event));
        }
        let first = std::mem::replace(&mut self.nodes[0], last);
        let mut at = 0;
        loop {
            let children = 4 * at + 1..(4 * at + 5).min(self.nodes.len());
            let Some(least) = children.min_by_key(|&c| self.nodes[c].key()) else { break };
            if self.nodes[at].key() <= self.nodes[least].key() {
                break;
            }
            self.nodes.swap(at, least);
            at = least;
        }
        Some((first.time_ns, first.event))
    }
}

/// One re-armable time per slot; the earliest is known, of equal ones that of the lowest slot.
#[derive(Debug, Clone)]
pub(crate) struct Timers {
    /// A binary tree: node 1 is the root, the children of `n` are `2n` and `2n + 1`. `nodes[leaves + slot]`
    /// are the slots; each inner node is a copy of the earlier of its children.
    nodes: Vec<Timer>,
    leaves: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timer {
    time_ns: u64,
    slot: u32,
}

impl Timers {
    pub fn new(slots: usize) -> Self {
        let leaves = slots.max(1).next_power_of_two();
        let mut nodes = vec![Timer { time_ns: NEVER, slot: 0 }; 2 * leaves];
        for (slot, leaf) in nodes[leaves..].iter_mut().enumerate() {
            leaf.slot = slot as u32;
        }
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node];
        }
        Timers { nodes, leaves }
    }

    pub fn at(&self, slot: usize) -> u64 {
        self.nodes[self.leaves + slot].time_ns
    }

    /// The earliest time and its slot.
    pub fn next(&self) -> (u64, usize) {
        let first = self.nodes[1];
        (first.time_ns, first.slot as usize)
    }

    pub fn set(&mut self, slot: usize, time_ns: u64) {
        let mut node = self.leaves + slot;
        if self.nodes[node].time_ns == time_ns {
            return;
        }
        let mut winner = Timer { time_ns, slot: slot as u32 };
        self.nodes[node] = winner;
        while node > 1 {
            let other = self.nodes[node ^ 1];
            // Of equal times that of the lower slot, the left one's.
            let other_wins =
                other.time_ns < winner.time_ns || other.time_ns == winner.time_ns && node % 2 == 1;
            if other_wins {
                winner = other;
            }
            node /= 2;
            // Where the winner is what it was, nothing above changes.
            if self.nodes[node] == winner {
                break;
            }
            self.nodes[node] = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cheap sequence that visits many orders.
    fn scrambled(n: u64) -> impl Iterator<Item = u64> {
        (0..n).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52)
    }

    #[test]
    fn heap_gives_time_order_then_insertion_order() {
        let mut heap = Heap::new();
        for (i, time) in scrambled(5000).enumerate() {
            heap.push(time, i);
        }
        let mut last = (0, 0);
        let mut popped = 0;
        while let Some(next) = heap.pop() {
            assert!(next > last || popped == 0, "{next:?} after {last:?}");
            last = next;
            popped += 1;
        }
        assert_eq!(popped, 5000);
    }

    #[test]
    fn timers_agree_with_a_search() {
        for slots in [1, 2, 3, 7, 64, 100] {
            let mut timers = Timers::new(slots);
            let mut plain = vec![NEVER; slots];
            for (i, time) in scrambled(3000).enumerate() {
                let slot = (i * 7919) % slots;
                let time = if time % 5 == 0 { NEVER } else { time };
                timers.set(slot, time);
                plain[slot] = time;
                let best = (0..slots).min_by_key(|&s| (plain[s], s)).unwrap();
                assert_eq!(timers.next().0, plain[best]);
                if plain[best] != NEVER {
                    assert_eq!(timers.next().1, best);
                }
            }
        }
    }
}
