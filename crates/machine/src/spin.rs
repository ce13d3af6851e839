//! Optimistic spinning: who comes to a kernel's mutex or rwsem that another has alone does not
//! sleep while that one runs, and has it as soon as it is released, before who sleeps and is woken
//! then (kernel: `mutex_optimistic_spin()`, `rwsem_optimistic_spin()`, 5.11 and later: only
//! writers).
//!
//! Who spins stops when the other one runs no longer, or when its own CPU is to choose anew. It
//! then looks once more, and waits asleep; at a mutex it lets others run first. At an rwsem that is
//! released and kept for the first who waits it spins too, for nobody (kernel: `OWNER_NULL`,
//! `RWSEM_FLAG_HANDOFF`): up to the end of its slice, if that one waits for its CPU.

use crate::cpu::Resched;
use crate::ids::{CpuId, Id, LockId, TaskId};
use crate::machine::Machine;
use crate::task::{Mode, Segment, State};
use cpumax_workload::{Class, LockKind, LockMode};

/// Who spins for which lock, and since when, ns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spinner {
    pub task: TaskId,
    pub lock: LockId,
    since_ns: u64,
}

impl Machine<'_> {
    /// Whether the running task spins, from now on, for a lock that it cannot have. Of those who
    /// have waited asleep (at that `place`) only the first one does, once nobody is let in before
    /// it.
    pub(crate) fn spins(
        &self,
        task: TaskId,
        lock: LockId,
        mode: LockMode,
        place: Option<usize>,
    ) -> bool {
        let l = &self.locks[lock];
        let t = &self.tasks[task];
        let may = match place {
            None => true,
            Some(0) => l.handoff,
            Some(_) => false,
        };
        // That of moves is no workload's.
        let is_kernels = l.barging && lock.ix() < self.workload.locks.len();
        // An rwsem that is free may be kept for the first who waits, who may not have come to a CPU
        // yet.
        let is_kept = l.kind == LockKind::Rwsem && l.holders.is_empty();
        may && is_kernels
            && mode == LockMode::Write
            && (is_kept || l.held_for_writing && self.runs(l.holders[0]))
            && t.class != Class::Rt
            && !self.is_to_go(t.cpu)
    }

    pub(crate) fn runs(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        self.cpus[t.cpu].curr == task && t.state == State::Runnable
    }

    /// Whether what runs there sees that somebody else is to (kernel: `need_resched()`).
    pub(crate) fn is_to_go(&self, cpu: CpuId) -> bool {
        let resched = self.cpus[cpu].resched;
        resched == Resched::Now || resched == Resched::Lazy && !self.preempt.is_lazy()
    }

    pub(crate) fn begin_spin(&mut self, task: TaskId, lock: LockId) {
        let t = &mut self.tasks[task];
        (t.mode, t.segment) = (Mode::Kernel, Segment::SpinOnOwner);
        self.spinners.push(Spinner { task, lock, since_ns: self.now });
    }

    /// Ends a spin, if the task is in one, for another look at the lock.
    pub(crate) fn look_again(&mut self, task: TaskId) {
        if self.tasks[task].segment != Segment::SpinOnOwner {
            return;
        }
        self.end_spin(task);
        let t = &mut self.tasks[task];
        t.pc -= 1;
        t.retries = true;
    }

    /// What runs there is to go. True if it spins at an rwsem, and so has to look once more before
    /// it does.
    pub(crate) fn leaves_spin(&mut self, cpu: CpuId) -> bool {
        let task = self.cpus[cpu].curr;
        let found = self.spinners.iter().find(|spinner| spinner.task == task);
        let Some(&Spinner { lock, .. }) = found else { return false };
        let waits = self.locks[lock].kind == LockKind::Rwsem;
        self.look_again(task);
        waits
    }

    /// That task runs no longer: nobody spins for what it holds.
    pub(crate) fn owner_left(&mut self, owner: TaskId) {
        let mut at = 0;
        while let Some(&Spinner { task, lock, .. }) = self.spinners.get(at) {
            if self.locks[lock].holders.contains(&owner) {
                self.look_again(task);
            } else {
                at += 1;
            }
        }
    }

    /// The lock was released, or given to somebody. The first who spins has it, if it is free; if
    /// who has it does not run, nobody spins.
    pub(crate) fn spinners_see(&mut self, lock: LockId) {
        let first = |m: &Self| m.spinners.iter().find(|spinner| spinner.lock == lock).copied();
        let l = &self.locks[lock];
        let goes_on = l.held_for_writing && self.runs(l.holders[0]);
        let free = l.holders.is_empty();
        if free && !l.handoff {
            if let Some(Spinner { task, .. }) = first(self) {
                self.end_spin(task);
                self.take_lock(task, lock, LockMode::Write);
            }
        } else if !free && !goes_on {
            while let Some(Spinner { task, .. }) = first(self) {
                self.look_again(task);
            }
        }
    }

    /// The first who waits at a mutex was handed it while it spun.
    pub(crate) fn handed_while_spinning(&mut self, task: TaskId) -> bool {
        let spun = self.tasks[task].segment == Segment::SpinOnOwner;
        if spun {
            self.end_spin(task);
        }
        spun
    }

    /// Where it runs beside a real kernel, it works less for that later, as the guest's tasks do.
    fn end_spin(&mut self, task: TaskId) {
        let now = self.now;
        let at = self.spinners.iter().position(|spinner| spinner.task == task);
        let Spinner { since_ns, .. } = self.spinners.remove(at.expect("who spins is listed"));
        let t = &mut self.tasks[task];
        t.segment = Segment::None;
        if self.noise.is_some() {
            t.owes_ns += (now - since_ns) as i64;
        }
        let cpu = t.cpu;
        self.touch(cpu, true);
    }
}
