//! Locks: who holds them, who waits, and whether they are free for a task. The rules of waiting
//! are in `locking.rs`.

mod used;

use crate::ids::{Arena, GroupId, LockId, TaskId};
use cpumax_workload::{LockKind, LockMode, Preempt, Workload};
use std::collections::VecDeque;

/// The locks of a machine, and those that wait for them without sleeping.
#[derive(Debug)]
pub(crate) struct Locks {
    /// The workload's, then those that the model adds.
    pub all: Arena<LockId, Lock>,
    /// `cgroup_threadgroup_rwsem`; none in workloads where nothing can wait for it.
    pub threadgroup: Option<LockId>,
    /// Moves from outside that wait for it: kind of task and target group.
    pub movers: VecDeque<(u32, GroupId)>,
    /// Tasks that spin for a mutex or rwsem, in order of arrival.
    pub spinners: Vec<Spinner>,
}

impl Locks {
    /// The workload's locks, free. `moves_take_time`: another one, behind these, excludes tasks
    /// that move themselves from each other.
    pub fn new(workload: &Workload, preempt: Preempt, moves_take_time: bool) -> Locks {
        let mut all = Arena::new();
        for (ix, lock) in (0..).zip(&workload.locks) {
            let in_kernel = used::is_in_kernel(workload, ix);
            let barging = in_kernel && used::is_barging(lock.kind, preempt);
            let written = barging && used::is_written(workload, ix);
            all.push(Lock { in_kernel, ..Lock::new(lock.kind, barging, written) });
        }
        if moves_take_time {
            // An rwsem without handoff on any kernel: a task that is handed a lock does not
            // execute the operation again, and would not begin to move.
            all.push(Lock::new(LockKind::Rwsem, true, false));
        }
        let threadgroup = Lock::new(LockKind::PercpuRwsem, false, false);
        let threadgroup = workload.forks_meet_moves().then(|| all.push(threadgroup));
        Locks { all, threadgroup, movers: VecDeque::new(), spinners: Vec::new() }
    }
}

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

/// A spinning task, its lock, and since when it spins, ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spinner {
    pub task: TaskId,
    pub lock: LockId,
    pub since_ns: u64,
}
