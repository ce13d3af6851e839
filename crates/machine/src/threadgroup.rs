//! `cgroup_threadgroup_rwsem`: every fork and exit takes it for reading, every move to another
//! group for writing (kernel: `cgroup_can_fork()` to `cgroup_post_fork()`, `exit_signals()`,
//! `cgroup_procs_write()`).
//!
//! The lock is a percpu rwsem. A writer stops new readers and waits for those inside. When it is
//! done, the readers that came before the next writer own the lock while still asleep (kernel:
//! `percpu_rwsem_wake_function()`). If a limit keeps one of them from its CPU, the next writer
//! waits, and with it all that fork or exit.
//!
//! Not modelled: the RCU grace period of the first writer after a quiet time; the locks of single
//! processes (6.18, `favordynmods` only). Workloads without both forks and moves have no such
//! lock.

use crate::ids::{GroupId, TaskId};
use crate::lock::Waiter;
use crate::machine::Machine;
use crate::step::Told;
use crate::task::{Mode, Passing, Segment, State};
use cpumax_workload::LockMode;

/// How long a fork and a move hold the lock, ns. Requests of `threadgroup-rwsem` then take 54 and
/// 40 us at the median, as on emulated kernels from 6.18.
const FORK_NS: u64 = 35_000;
const MOVE_NS: u64 = 22_000;

/// Its name in a trace.
pub(crate) const THREADGROUP: &str = "cgroup_threadgroup_rwsem";

impl Machine<'_> {
    /// Executes the steps before an action under `cgroup_threadgroup_rwsem`: takes the lock, then
    /// works under it. True while it waits or works (the instruction is then executed again), false
    /// when the action may happen or the lock is not modelled.
    pub(crate) fn step_under_threadgroup_lock(&mut self, task: TaskId, mode: LockMode) -> bool {
        let Some(lock) = self.locks.threadgroup else { return false };
        let t = &mut self.tasks[task];
        if t.locking.passing == Passing::Inside {
            return false;
        }
        t.at.pc -= 1;
        t.mode = Mode::Kernel;
        if t.locking.passing == Passing::No {
            t.locking.passing = Passing::Asked;
            self.lock(task, lock, mode);
        } else {
            t.locking.passing = Passing::Inside;
            t.segment = Segment::Run;
            t.left_ns = if mode == LockMode::Read { FORK_NS } else { MOVE_NS };
            self.tell(task, Told::Overhead);
        }
        true
    }

    /// Releases `cgroup_threadgroup_rwsem` after the action; nothing where it is not modelled.
    pub(crate) fn release_threadgroup_lock(&mut self, task: TaskId) {
        if let Some(lock) = self.locks.threadgroup {
            self.tasks[task].locking.passing = Passing::No;
            self.unlock(task, lock);
        }
    }

    /// Takes and releases `cgroup_threadgroup_rwsem` for an exiting task. True if it has to wait
    /// for it; its exit is then executed again.
    pub(crate) fn exit_waits_for_threadgroup(&mut self, task: TaskId) -> bool {
        let Some(lock) = self.locks.threadgroup else { return false };
        if self.tasks[task].locking.passing == Passing::Ended {
            return false;
        }
        if self.tasks[task].locking.passing != Passing::Ends {
            self.tasks[task].locking.passing = Passing::Ends;
            self.lock(task, lock, LockMode::Read);
            if self.tasks[task].state != State::Runnable {
                return true;
            }
        }
        self.tasks[task].locking.passing = Passing::Ended;
        self.unlock(task, lock);
        false
    }

    /// Moves all living tasks of a kind to a group from outside: now, or when
    /// `cgroup_threadgroup_rwsem` is free.
    pub(crate) fn move_from_outside(&mut self, kind: u32, group: GroupId) {
        self.locks.movers.push_back((kind, group));
        if let Some(lock) = self.locks.threadgroup.map(|lock| &mut self.locks.all[lock])
            && !lock.is_free_for(LockMode::Write, None)
        {
            let (mode, since_ns) = (LockMode::Write, self.now);
            lock.waiters.push_back(Waiter { task: TaskId::NONE, mode, since_ns });
            return;
        }
        self.execute_next_move();
    }

    /// Performs the move from outside that has waited longest, if any.
    pub(crate) fn execute_next_move(&mut self) {
        if let Some((kind, group)) = self.locks.movers.pop_front() {
            self.each_living(kind, |m, t| m.move_to_group(t, group));
        }
    }
}
