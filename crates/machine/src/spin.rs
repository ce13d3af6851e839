//! Optimistic spinning: a task that finds a kernel mutex or rwsem held by one running owner spins
//! instead of sleeping, and takes the lock at its release, before waiters that have to be woken
//! (kernel: `mutex_optimistic_spin()`, `rwsem_optimistic_spin()`, 5.11+: writers only).
//!
//! A spinner stops when the owner no longer runs or its own CPU must reschedule. It tries once
//! more, then sleeps; at a mutex it lets others run first. At an rwsem that is free but kept for
//! the first waiter it spins in vain (kernel: `OWNER_NULL`, `RWSEM_FLAG_HANDOFF`), up to the end
//! of its slice if that waiter needs its CPU.

use crate::cpu::Resched;
use crate::ids::{CpuId, Id, LockId, TaskId};
use crate::lock::Spinner;
use crate::machine::Machine;
use crate::step::Told;
use crate::task::{Mode, Segment, State};
use cpumax_workload::{Class, LockKind, LockMode};

impl Machine<'_> {
    /// Whether the running task is to spin for a kernel's mutex or rwsem that it cannot have: its
    /// owner runs, and no reschedule is pending (kernel: `mutex_can_spin_on_owner()`). Of waiters
    /// (`place` in the list) only the first spins, and only when no other may overtake it.
    pub(crate) fn should_spin(
        &self,
        task: TaskId,
        lock: LockId,
        mode: LockMode,
        place: Option<usize>,
    ) -> bool {
        let l = &self.locks.all[lock];
        let t = &self.tasks[task];
        let may = match place {
            None => true,
            Some(0) => l.handoff,
            Some(_) => false,
        };
        // The lock of moves is not the workload's.
        let is_kernels = l.barging && lock.ix() < self.workload.locks.len();
        // A free rwsem may be kept for the first waiter, which may not run yet.
        let is_kept = l.kind == LockKind::Rwsem && l.holders.is_empty();
        may && is_kernels
            && mode == LockMode::Write
            && (is_kept || l.held_for_writing && self.runs(l.holders[0]))
            && t.attrs.class != Class::Rt
            && !self.needs_resched(t.cpu)
    }

    /// Whether a task is its CPU's current one, and runnable.
    pub(crate) fn runs(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        self.cpus[t.cpu].curr == task && t.state == State::Runnable
    }

    /// Whether the CPU's current task sees a pending reschedule; a lazy one does not count on
    /// kernels with lazy preemption (kernel: `need_resched()`).
    pub(crate) fn needs_resched(&self, cpu: CpuId) -> bool {
        let resched = self.cpus[cpu].resched;
        resched == Resched::Now || resched == Resched::Lazy && !self.settings.preempt.is_lazy()
    }

    /// Makes the running task spin in the kernel for a lock, until its owner releases it or stops
    /// running.
    pub(crate) fn begin_spin(&mut self, task: TaskId, lock: LockId) {
        let t = &mut self.tasks[task];
        (t.mode, t.segment) = (Mode::Kernel, Segment::SpinOnOwner);
        self.locks.spinners.push(Spinner { task, lock, since_ns: self.now });
    }

    /// Ends a task's spin, if it is in one, and sets it back to the instruction that takes the
    /// lock.
    pub(crate) fn retry_lock(&mut self, task: TaskId) {
        if self.tasks[task].segment != Segment::SpinOnOwner {
            return;
        }
        self.end_spin(task);
        let t = &mut self.tasks[task];
        t.at.pc -= 1;
        t.retries = true;
    }

    /// Ends the spin of the CPU's current task, which must give way, and has it try the lock again.
    /// True if it spins at an rwsem, and so tries once more before it leaves the CPU.
    pub(crate) fn end_spin_to_reschedule(&mut self, cpu: CpuId) -> bool {
        let task = self.cpus[cpu].curr;
        let found = self.locks.spinners.iter().find(|spinner| spinner.task == task);
        let Some(&Spinner { lock, .. }) = found else { return false };
        let waits = self.locks.all[lock].kind == LockKind::Rwsem;
        self.retry_lock(task);
        waits
    }

    /// Ends all spins for locks of an owner that no longer runs; these tasks try the locks again.
    pub(crate) fn stop_spinning_for(&mut self, owner: TaskId) {
        let mut at = 0;
        while let Some(&Spinner { task, lock, .. }) = self.locks.spinners.get(at) {
            if self.locks.all[lock].holders.contains(&owner) {
                self.retry_lock(task);
            } else {
                at += 1;
            }
        }
    }

    /// Updates the spins for a lock after a release or handover: the first spinner takes a free
    /// lock; if the new owner does not run, all stop and try again.
    pub(crate) fn update_spinners(&mut self, lock: LockId) {
        let first =
            |m: &Self| m.locks.spinners.iter().find(|spinner| spinner.lock == lock).copied();
        let l = &self.locks.all[lock];
        let goes_on = l.held_for_writing && self.runs(l.holders[0]);
        let free = l.holders.is_empty();
        if free && !l.handoff {
            if let Some(Spinner { task, .. }) = first(self) {
                self.end_spin(task);
                self.take_lock(task, lock, LockMode::Write);
            }
        } else if !free && !goes_on {
            while let Some(Spinner { task, .. }) = first(self) {
                self.retry_lock(task);
            }
        }
    }

    /// Ends the spin of the first waiter of a mutex that was handed over to it. False if it did
    /// not spin.
    pub(crate) fn end_spin_if_handed(&mut self, task: TaskId) -> bool {
        let spun = self.tasks[task].segment == Segment::SpinOnOwner;
        if spun {
            self.end_spin(task);
        }
        spun
    }

    /// Ends a task's spin; its CPU goes on with the next instruction.
    fn end_spin(&mut self, task: TaskId) {
        let now = self.now;
        let at = self.locks.spinners.iter().position(|spinner| spinner.task == task);
        let Spinner { since_ns, .. } = self.locks.spinners.remove(at.expect("who spins is listed"));
        let t = &mut self.tasks[task];
        t.segment = Segment::None;
        let cpu = t.cpu;
        self.tell(task, Told::Spun(now - since_ns));
        self.touch(cpu, true);
    }
}
