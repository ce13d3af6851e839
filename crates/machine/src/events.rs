//! Future events, and the one being processed.
//!
//! [`Heap`] holds events that fire once (a wakeup, an arrival). [`Timers`] holds one time for each
//! CPU and each group's timers, set again at nearly every event: a winner tree, in which setting a
//! time costs one walk to the root, and cancelled times leave nothing behind.

use crate::Error;
use crate::ids::{CpuId, GroupId, Id, TaskId};

/// No time: later than everything.
pub(crate) const NEVER: u64 = u64::MAX;

/// Events that happen once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// The start of the first or a further instance of a kind of task begins: kind, instance.
    Start(u32, u32),
    /// An instance has been created and becomes runnable.
    Birth(u32, u32),
    /// A sleep ends, if the task is still in the sleep of this number.
    WakeUp(TaskId, u32),
    /// Another sleep ends in the interrupt that ended earlier ones.
    NextWakeUp(TaskId, u32),
    /// A reader that a lock admitted together with others is woken.
    WakeReader(TaskId),
    /// A token that was scheduled for later arrives.
    TokenDue(u32),
    Arrival(u32),
    Intervention(u32),
    /// A regular softirq section is due (`PREEMPT_RT`).
    Softirq(u32),
    Balance,
    Distribution(GroupId),
}

/// Timers that are armed again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Period(GroupId),
    Slack(GroupId),
    /// A CPU's next event.
    Cpu(CpuId),
}

/// The events of a machine. At one time timers of groups come first, in the order in which they
/// were set, then CPUs by number, then the heap's events: a period's end precedes ticks.
#[derive(Debug)]
pub(crate) struct Events {
    pub timers: Timers,
    pub heap: Heap<Event>,
    groups: usize,
    /// Timer slot of the event being processed; `usize::MAX` for the heap's.
    pub slot: usize,
    /// The CPU whose interrupt, system call or scheduler is being executed; none for actions from
    /// outside the machine. `Machine::on()` sets it.
    pub here: CpuId,
    /// CPUs that must settle before time advances.
    pub touched: Vec<CpuId>,
    /// Events processed so far.
    pub count: u64,
    /// Why no more are processed.
    pub failed: Option<Error>,
    /// Ticks processed as events, and how many of them changed nothing and were not needed for
    /// another reason.
    #[cfg(test)]
    pub ticks: (u64, u64),
}

impl Events {
    /// No events, of a machine with so many groups and CPUs.
    pub fn new(groups: usize, cpus: usize) -> Events {
        Events {
            timers: Timers::new(2 * groups, cpus),
            heap: Heap::new(),
            groups,
            slot: usize::MAX,
            here: CpuId::NONE,
            touched: Vec::new(),
            count: 0,
            failed: None,
            #[cfg(test)]
            ticks: (0, 0),
        }
    }

    /// Index of a slot among the timers.
    #[inline]
    fn index(&self, slot: Slot) -> usize {
        match slot {
            Slot::Period(group) => group.ix(),
            Slot::Slack(group) => self.groups + group.ix(),
            Slot::Cpu(cpu) => 2 * self.groups + cpu.ix(),
        }
    }

    /// The slot at this index among the timers.
    #[inline]
    pub fn slot_at(&self, index: usize) -> Slot {
        if index >= 2 * self.groups {
            Slot::Cpu(CpuId((index - 2 * self.groups) as u32))
        } else if index >= self.groups {
            Slot::Slack(GroupId((index - self.groups) as u32))
        } else {
            Slot::Period(GroupId(index as u32))
        }
    }

    /// Expiry of a timer, ns; [`NEVER`] if it is not set.
    #[inline]
    pub fn expiry_ns(&self, slot: Slot) -> u64 {
        self.timers.at(self.index(slot))
    }

    /// Sets the expiry of a timer, ns, in place of its old one; [`NEVER`] clears it.
    #[inline]
    pub fn set(&mut self, slot: Slot, time_ns: u64) {
        self.timers.set(self.index(slot), time_ns);
    }

    /// Whether events of this CPU at the current time have not been processed yet.
    #[inline]
    pub fn are_to_come(&self, cpu: CpuId) -> bool {
        self.index(Slot::Cpu(cpu)) > self.slot
    }
}

/// A 4-ary min-heap of events in order of time, then of insertion.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heap<E> {
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
    /// Order of events: by time, then by insertion.
    fn key(&self) -> (u64, u64) {
        (self.time_ns, self.order)
    }
}

impl<E: Copy> Heap<E> {
    /// An empty queue of events.
    pub fn new() -> Self {
        Heap { nodes: Vec::new(), inserted: 0 }
    }

    /// Time of the first event, ns, or [`NEVER`].
    pub fn next_ns(&self) -> u64 {
        self.nodes.first().map_or(NEVER, |n| n.time_ns)
    }

    /// Adds an event, after others of the same time.
    pub fn push(&mut self, time_ns: u64, event: E) {
        self.inserted += 1;
        self.push_as(self.inserted, time_ns, event);
    }

    /// Adds an event, before others of the same time.
    pub fn push_first(&mut self, time_ns: u64, event: E) {
        self.push_as(0, time_ns, event);
    }

    /// Adds an event with `order` as its place among events of one time.
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

    /// Removes the first event; returns it with its time, ns. `None` if there is none.
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

/// One time per slot, which can be set again; the earliest is known. The first slots are rarely
/// set and have a tree of their own, which keeps the path to the root short for the others. Of
/// equal times there, the one set first comes first, as with a kernel's timers
/// (`timerqueue_add()`); among the others, the lowest slot.
#[derive(Debug, Clone)]
pub(crate) struct Timers {
    seldom: Tree,
    /// How often one of these was set.
    sets: u32,
    often: Tree,
    /// The first slot of the frequently set ones.
    split: usize,
}

impl Timers {
    /// Timers without expiry for `seldom` slots that are rarely set and, numbered after them,
    /// `often` ones.
    pub fn new(seldom: usize, often: usize) -> Self {
        Timers { seldom: Tree::new(seldom), sets: 0, often: Tree::new(often), split: seldom }
    }

    /// Expiry of a slot, ns; [`NEVER`] if it is not set.
    pub fn at(&self, slot: usize) -> u64 {
        match slot.checked_sub(self.split) {
            Some(slot) => self.often.at(slot),
            None => self.seldom.at(slot),
        }
    }

    /// The earliest expiry, ns, and its slot; [`NEVER`] if none is set. Of equal ones slots set
    /// rarely come first, in the order in which they were set.
    #[inline]
    pub fn next(&self) -> (u64, usize) {
        let (seldom, often) = (self.seldom.nodes[1], self.often.nodes[1]);
        if often.time_ns < seldom.time_ns {
            (often.time_ns, self.split + often.slot as usize)
        } else {
            (seldom.time_ns, seldom.slot as usize)
        }
    }

    /// Sets the expiry of a slot, ns, in place of its old one; [`NEVER`] clears it.
    #[inline]
    pub fn set(&mut self, slot: usize, time_ns: u64) {
        if let Some(slot) = slot.checked_sub(self.split) {
            self.often.set(slot, time_ns, 0);
        } else {
            self.sets = self.sets.wrapping_add(1);
            self.seldom.set(slot, time_ns, self.sets);
        }
    }
}

#[derive(Debug, Clone)]
struct Tree {
    /// Binary: node 1 is the root, the children of `n` are `2n` and `2n + 1`. `nodes[leaves +
    /// slot]` are the slots; each inner node is a copy of the earlier of its children, of the left
    /// one if they are equal.
    nodes: Vec<Timer>,
    leaves: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Timer {
    time_ns: u64,
    slot: u32,
    /// At equal times the smallest goes first.
    order: u32,
}

impl Timer {
    /// Whether this timer fires first; of equal times the one set first.
    fn is_before(self, other: Timer) -> bool {
        self.time_ns < other.time_ns || self.time_ns == other.time_ns && self.order < other.order
    }
}

impl Tree {
    /// A tournament tree of this many slots, none set.
    fn new(slots: usize) -> Self {
        let leaves = slots.max(1).next_power_of_two();
        let mut nodes = vec![Timer { time_ns: NEVER, slot: 0, order: 0 }; 2 * leaves];
        for (slot, leaf) in nodes[leaves..].iter_mut().enumerate() {
            leaf.slot = slot as u32;
        }
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node];
        }
        Tree { nodes, leaves }
    }

    /// Expiry of a slot, ns.
    fn at(&self, slot: usize) -> u64 {
        self.nodes[self.leaves + slot].time_ns
    }

    /// Sets the expiry of a slot, ns, and its order among equal times, and updates the winners
    /// above it; the order of an unchanged time stays.
    fn set(&mut self, slot: usize, time_ns: u64, order: u32) {
        let mut node = self.leaves + slot;
        if self.nodes[node].time_ns == time_ns {
            return;
        }
        self.nodes[node].time_ns = time_ns;
        self.nodes[node].order = order;
        while node > 1 {
            let [left, right] = [self.nodes[node & !1], self.nodes[node | 1]];
            let winner = if right.is_before(left) { right } else { left };
            node /= 2;
            // An unchanged winner changes nothing above.
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
    fn at_one_time_groups_come_before_cpus() {
        let mut events = Events::new(2, 3);
        let group = [Slot::Slack(GroupId(1)), Slot::Period(GroupId(0))];
        let cpu = [Slot::Cpu(CpuId(0)), Slot::Cpu(CpuId(2))];
        for slot in [cpu[1], group[0], cpu[0], group[1]] {
            events.set(slot, 5);
        }
        for slot in group.into_iter().chain(cpu) {
            let (time_ns, index) = events.timers.next();
            assert_eq!((time_ns, events.slot_at(index)), (5, slot));
            events.slot = index;
            assert_eq!(events.are_to_come(CpuId(2)), slot != cpu[1]);
            events.set(slot, NEVER);
        }
        assert_eq!(events.timers.next().0, NEVER);
    }

    #[test]
    fn timers_agree_with_a_search() {
        for slots in [1, 2, 3, 7, 64, 100] {
            let split = slots / 3;
            let mut timers = Timers::new(split, slots - split);
            let mut plain = vec![(NEVER, 0); slots];
            for (i, time) in scrambled(3000).enumerate() {
                let slot = (i * 7919) % slots;
                let time = if time % 5 == 0 { NEVER } else { time };
                timers.set(slot, time);
                if plain[slot].0 != time {
                    plain[slot] = (time, if slot < split { i } else { usize::MAX });
                }
                let best = (0..slots).min_by_key(|&s| (plain[s], s)).unwrap();
                assert_eq!(timers.next().0, plain[best].0);
                if plain[best].0 != NEVER {
                    assert_eq!(timers.next().1, best);
                }
            }
        }
    }
}
