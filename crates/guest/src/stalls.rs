//! The longest time that each task wanted to go on and could not, from what the kernel tells of
//! switches and wakeups.
//!
//! A task cannot see that itself where it is stopped in the middle of a system call: it only sees
//! how long the whole took. Who waits for a lock wants to go on: in the kernel's own locks a task
//! sleeps uninterruptibly; in the pipes that stand for locks it sleeps as in any pipe, but then it
//! has told so, and another task wakes it, not a timer. Who gets the processor only to find the
//! lock taken again, or from 6.18 on only to park, has not gone on and is still kept from it.

use std::collections::BTreeMap;

/// Who leaves the processor so soon, ns, and wants to go on, has come to park.
const PARKS_NS: u64 = 25_000;

/// All tasks that were seen, by pid.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    parks: bool,
    tasks: BTreeMap<u32, Task>,
    /// When a task went into a call in which it takes locks, and out of it, ns since the start; in
    /// order of time.
    locking: BTreeMap<u32, Vec<(u64, bool)>>,
}

#[derive(Debug, Default)]
struct Task {
    /// When it came to the CPU, began to want it, fell asleep.
    came_ns: Option<u64>,
    stalled_ns: Option<u64>,
    slept_ns: Option<u64>,
    /// It waits for one of the kernel's locks, or has been woken to take it.
    locks: bool,
    /// Its longest stall, ns.
    longest: u64,
}

impl Stalls {
    /// Of nobody yet; `parks` tells whether tasks park.
    pub fn new(parks: bool) -> Stalls {
        Stalls { parks, ..Stalls::default() }
    }

    /// Tells that a task is, or is no longer, in a call in which it takes locks.
    pub fn locking(&mut self, pid: u32, at_ns: u64, is: bool) {
        self.locking.entry(pid).or_default().push((at_ns, is));
    }

    /// A task was woken, by another task or by an interrupt.
    pub fn woken(&mut self, pid: u32, at_ns: u64, by_task: bool) {
        let locks = self.locking.get(&pid);
        let task = self.tasks.entry(pid).or_default();
        if task.came_ns.is_some() || task.stalled_ns.is_some() {
            return;
        }
        let slept_ns = task.slept_ns.take();
        let locked_ns = slept_ns.filter(|slept_ns| by_task && is_locking(locks, *slept_ns));
        task.stalled_ns = Some(locked_ns.unwrap_or(at_ns));
    }

    /// A task left its CPU in that state, in the letters of `sched_switch`.
    pub fn left(&mut self, pid: u32, at_ns: u64, state: &str) {
        let task = self.tasks.entry(pid).or_default();
        let came_ns = task.came_ns.take();
        let is_short = came_ns.is_some_and(|came_ns| at_ns.saturating_sub(came_ns) < PARKS_NS);
        let too_late = task.locks && state.starts_with('D');
        if is_short && (self.parks && state.starts_with('R') || too_late) {
            task.stalled_ns = task.stalled_ns.or(Some(at_ns));
            return;
        }
        task.locks = state.starts_with('D');
        task.end(came_ns);
        (task.stalled_ns, task.slept_ns) = match state.chars().next() {
            Some('R' | 'D') => (Some(at_ns), None),
            Some('S') => (None, Some(at_ns)),
            _ => (None, None),
        };
    }

    /// A task got a CPU.
    pub fn came(&mut self, pid: u32, at_ns: u64) {
        let task = self.tasks.entry(pid).or_default();
        task.came_ns = Some(at_ns);
        task.slept_ns = None;
    }

    /// The longest stall of each task, ns, in a run that ends then.
    pub fn longest(mut self, end_ns: u64) -> impl Iterator<Item = (u32, u64)> {
        for (pid, task) in &mut self.tasks {
            let locks = self.locking.get(pid);
            let locked_ns = task.slept_ns.filter(|slept_ns| is_locking(locks, *slept_ns));
            task.stalled_ns = task.stalled_ns.or(locked_ns);
            task.end(task.came_ns.or(Some(end_ns)));
        }
        self.tasks.into_iter().map(|(pid, task)| (pid, task.longest))
    }
}

impl Task {
    /// It has gone on, when it got the processor.
    fn end(&mut self, came_ns: Option<u64>) {
        if let (Some(since_ns), Some(came_ns)) = (self.stalled_ns.take(), came_ns) {
            self.longest = self.longest.max(came_ns.saturating_sub(since_ns));
        }
    }
}

fn is_locking(locks: Option<&Vec<(u64, bool)>>, at_ns: u64) -> bool {
    let before = locks.map_or(&[][..], |locks| &locks[..locks.partition_point(|l| l.0 <= at_ns)]);
    before.last().is_some_and(|(_, is)| *is)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    fn longest(tell: impl Fn(&mut Stalls)) -> u64 {
        let mut stalls = Stalls::default();
        tell(&mut stalls);
        stalls.longest(1000).map(|(_, ns)| ns).max().unwrap_or(0)
    }

    #[test]
    fn each_wait_for_the_processor_counts_alone() {
        let waits = |stalls: &mut Stalls| {
            stalls.woken(PID, 10, true);
            stalls.came(PID, 40);
            stalls.woken(PID, 45, true);
            stalls.left(PID, 50, "R+");
            stalls.woken(PID, 60, false);
            stalls.came(PID, 100);
            stalls.left(PID, 120, "S");
        };
        assert_eq!(longest(waits), 50);
        let unfinished = |stalls: &mut Stalls| {
            waits(stalls);
            stalls.woken(PID, 900, false);
        };
        assert_eq!(longest(unfinished), 100);
    }

    #[test]
    fn who_comes_only_to_park_is_still_kept_from_going_on() {
        let comes = |parks: bool| {
            let mut stalls = Stalls::new(parks);
            stalls.left(PID, 100_000, "R");
            for at_ns in [200_000, 500_000, 1_000_000] {
                stalls.came(PID, at_ns);
                stalls.left(PID, at_ns + 10_000, "R");
            }
            stalls.came(PID, 1_500_000);
            stalls.longest(2_000_000).map(|(_, ns)| ns).max()
        };
        assert_eq!((comes(true), comes(false)), (Some(1_400_000), Some(490_000)));
    }

    #[test]
    fn who_comes_too_late_for_a_lock_still_waits_for_it() {
        let waits = |ran_ns: u64| {
            longest(move |stalls| {
                stalls.came(PID, 0);
                stalls.left(PID, 100_000, "D");
                stalls.woken(PID, 200_000, true);
                stalls.came(PID, 300_000);
                stalls.left(PID, 300_000 + ran_ns, "D");
                stalls.woken(PID, 500_000, true);
                stalls.came(PID, 600_000);
                stalls.left(PID, 900_000, "S");
            })
        };
        assert_eq!((waits(10_000), waits(50_000)), (500_000, 250_000));
    }

    #[test]
    fn a_lock_is_waited_for_and_a_timer_is_not() {
        let sleep = |state: &'static str, locking: bool, by_task: bool| {
            longest(move |stalls| {
                if locking {
                    stalls.locking(PID, 5, true);
                    stalls.locking(PID, 200, false);
                }
                stalls.came(PID, 0);
                stalls.left(PID, 10, state);
                stalls.woken(PID, 100, by_task);
                stalls.came(PID, 101);
                stalls.left(PID, 300, "X");
            })
        };
        assert_eq!(sleep("D", false, true), 91);
        assert_eq!(sleep("S", true, true), 91);
        assert_eq!(sleep("S", true, false), 1);
        assert_eq!(sleep("S", false, true), 1);
        assert_eq!(sleep("T", true, true), 1);
    }
}
