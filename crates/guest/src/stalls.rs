//! The longest stall of each task: the longest time that it wanted to go on and could not, from the
//! kernel's trace of switches and wakeups.
//!
//! A task cannot measure a stall in the middle of a system call itself: it only sees the length of
//! the whole call. A wait for a lock is a stall. In kernel locks a task sleeps uninterruptibly. In
//! pipes that stand for locks it sleeps as in any pipe; such a sleep counts as a lock where the
//! task has logged that it takes locks, and another task, not a timer, wakes it. A stall continues
//! where a task gets the CPU only to find the lock taken again or, from 6.18 on, only to park.

use std::collections::BTreeMap;

/// A task that still wants to run but leaves the CPU within this time, ns, has come only to park.
const PARK_NS: u64 = 25_000;

/// All tasks of the trace, by pid.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    /// Whether tasks park at the return to user mode (6.18).
    parks: bool,
    tasks: BTreeMap<u32, Task>,
    /// When a task entered (true) and left (false) calls that take locks, ns since the start, in
    /// order of time.
    locking: BTreeMap<u32, Vec<(u64, bool)>>,
}

#[derive(Debug, Default)]
struct Task {
    /// When it got the CPU.
    came_ns: Option<u64>,
    /// When its stall began.
    stalled_ns: Option<u64>,
    /// When it fell asleep.
    slept_ns: Option<u64>,
    /// It waits for a kernel lock, or has been woken to take one.
    locks: bool,
    /// Its longest stall, ns.
    longest: u64,
}

impl Stalls {
    /// No tasks yet. `parks`: the kernel's tasks park at the return to user mode, which looks like
    /// a short turn on the CPU.
    pub fn new(parks: bool) -> Stalls {
        Stalls { parks, ..Stalls::default() }
    }

    /// Notes that a task enters (`is`) or leaves a call that takes locks. Must be in order of time.
    pub fn note_locking(&mut self, pid: u32, at_ns: u64, is: bool) {
        self.locking.entry(pid).or_default().push((at_ns, is));
    }

    /// Notes a wakeup, by another task or by an interrupt. A stall begins with it, or with the
    /// sleep before it if that was a wait for a lock; a task that runs or stalls already is left as
    /// it is.
    pub fn note_wakeup(&mut self, pid: u32, at_ns: u64, by_task: bool) {
        let locks = self.locking.get(&pid);
        let task = self.tasks.entry(pid).or_default();
        if task.came_ns.is_some() || task.stalled_ns.is_some() {
            return;
        }
        let slept_ns = task.slept_ns.take();
        let locked_ns = slept_ns.filter(|slept_ns| by_task && is_locking(locks, *slept_ns));
        task.stalled_ns = Some(locked_ns.unwrap_or(at_ns));
    }

    /// Notes that a task left its CPU, in a state of `sched_switch`. The stall before it ends,
    /// unless the task left again at once to park or to wait for a lock. A stall begins if it is
    /// preempted (`R`) or blocks (`D`); a sleep (`S`) is kept until its wakeup.
    pub fn note_left(&mut self, pid: u32, at_ns: u64, state: &str) {
        let task = self.tasks.entry(pid).or_default();
        let came_ns = task.came_ns.take();
        let is_short = came_ns.is_some_and(|came_ns| at_ns.saturating_sub(came_ns) < PARK_NS);
        let too_late = task.locks && state.starts_with('D');
        if is_short && (self.parks && state.starts_with('R') || too_late) {
            task.stalled_ns = task.stalled_ns.or(Some(at_ns));
            return;
        }
        task.locks = state.starts_with('D');
        task.end_stall(came_ns);
        (task.stalled_ns, task.slept_ns) = match state.chars().next() {
            Some('R' | 'D') => (Some(at_ns), None),
            Some('S') => (None, Some(at_ns)),
            _ => (None, None),
        };
    }

    /// Notes that a task got a CPU at `at_ns`. Its stall ends only when it leaves later than at
    /// once.
    pub fn note_got_cpu(&mut self, pid: u32, at_ns: u64) {
        let task = self.tasks.entry(pid).or_default();
        task.came_ns = Some(at_ns);
        task.slept_ns = None;
    }

    /// The longest stall of each task, pid and ns, in a run that ends at `end_ns`; stalls that last
    /// until then count.
    pub fn longest(mut self, end_ns: u64) -> impl Iterator<Item = (u32, u64)> {
        for (pid, task) in &mut self.tasks {
            let locks = self.locking.get(pid);
            let locked_ns = task.slept_ns.filter(|slept_ns| is_locking(locks, *slept_ns));
            task.stalled_ns = task.stalled_ns.or(locked_ns);
            task.end_stall(task.came_ns.or(Some(end_ns)));
        }
        self.tasks.into_iter().map(|(pid, task)| (pid, task.longest))
    }
}

impl Task {
    /// Ends the stall in progress at `came_ns`, if the task got the CPU, and keeps the longest;
    /// drops it otherwise.
    fn end_stall(&mut self, came_ns: Option<u64>) {
        if let (Some(since_ns), Some(came_ns)) = (self.stalled_ns.take(), came_ns) {
            self.longest = self.longest.max(came_ns.saturating_sub(since_ns));
        }
    }
}

/// Whether a task was in a call that takes locks at `at_ns`.
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
            stalls.note_wakeup(PID, 10, true);
            stalls.note_got_cpu(PID, 40);
            stalls.note_wakeup(PID, 45, true);
            stalls.note_left(PID, 50, "R+");
            stalls.note_wakeup(PID, 60, false);
            stalls.note_got_cpu(PID, 100);
            stalls.note_left(PID, 120, "S");
        };
        assert_eq!(longest(waits), 50);
        let unfinished = |stalls: &mut Stalls| {
            waits(stalls);
            stalls.note_wakeup(PID, 900, false);
        };
        assert_eq!(longest(unfinished), 100);
    }

    #[test]
    fn a_task_that_comes_only_to_park_still_stalls() {
        let comes = |parks: bool| {
            let mut stalls = Stalls::new(parks);
            stalls.note_left(PID, 100_000, "R");
            for at_ns in [200_000, 500_000, 1_000_000] {
                stalls.note_got_cpu(PID, at_ns);
                stalls.note_left(PID, at_ns + 10_000, "R");
            }
            stalls.note_got_cpu(PID, 1_500_000);
            stalls.longest(2_000_000).map(|(_, ns)| ns).max()
        };
        assert_eq!((comes(true), comes(false)), (Some(1_400_000), Some(490_000)));
    }

    #[test]
    fn a_task_that_finds_the_lock_taken_again_still_stalls() {
        let waits = |ran_ns: u64| {
            longest(move |stalls| {
                stalls.note_got_cpu(PID, 0);
                stalls.note_left(PID, 100_000, "D");
                stalls.note_wakeup(PID, 200_000, true);
                stalls.note_got_cpu(PID, 300_000);
                stalls.note_left(PID, 300_000 + ran_ns, "D");
                stalls.note_wakeup(PID, 500_000, true);
                stalls.note_got_cpu(PID, 600_000);
                stalls.note_left(PID, 900_000, "S");
            })
        };
        assert_eq!((waits(10_000), waits(50_000)), (500_000, 250_000));
    }

    #[test]
    fn a_lock_is_waited_for_and_a_timer_is_not() {
        let sleep = |state: &'static str, locking: bool, by_task: bool| {
            longest(move |stalls| {
                if locking {
                    stalls.note_locking(PID, 5, true);
                    stalls.note_locking(PID, 200, false);
                }
                stalls.note_got_cpu(PID, 0);
                stalls.note_left(PID, 10, state);
                stalls.note_wakeup(PID, 100, by_task);
                stalls.note_got_cpu(PID, 101);
                stalls.note_left(PID, 300, "X");
            })
        };
        assert_eq!(sleep("D", false, true), 91);
        assert_eq!(sleep("S", true, true), 91);
        assert_eq!(sleep("S", true, false), 1);
        assert_eq!(sleep("S", false, true), 1);
        assert_eq!(sleep("T", true, true), 1);
    }
}
