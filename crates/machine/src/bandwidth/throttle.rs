//! Throttling a run queue (kernel: `throttle_cfs_rq()`, `tg_throttle_down()`).

use crate::bandwidth::rules::{Exhaustion, ThrottledInsert, Unit};
use crate::fair::Dequeue;
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId};
use crate::machine::Machine;
use cpumax_outcome::trace::What;

impl Machine<'_> {
    /// Throttles a run queue without runtime, unless the pool has some left. True if it is
    /// throttled.
    pub(crate) fn throttle(&mut self, q: CfsRqId) -> bool {
        let runs = {
            let curr = self.cfs_rqs[q].curr;
            curr.is_some() && self.ses[curr].on_rq
        };
        // To 7.1 a running task's charge has just found the pool empty; before 5.8 a kernel does not
        // ask again.
        if self.assign_runtime(q, if runs { self.slice_ns() } else { 1 }) {
            return false;
        }
        let (group, cpu) = (self.cfs_rqs[q].group, self.cfs_rqs[q].cpu);
        self.list_throttled(q);
        if !self.groups[group].pool.active {
            self.arm_period_timer(group);
        }
        self.walk_down(q, Self::throttle_down);
        if self.rules.unit == Unit::Entity {
            self.dequeue_group_entity(q);
        }
        self.cfs_rqs[q].bandwidth.throttled = true;
        self.start_clock_at_throttle(q);
        self.emit(cpu, What::Throttle { group: group.0 });
        self.touch(cpu, false);
        let tells = runs && !self.has(Fault::RunningNotTold);
        if self.rules.exhaustion == Exhaustion::Throttle && tells {
            self.give_work_to_running(cpu);
        }
        true
    }

    /// Adds a run queue to its group's throttled list, at the place that the generation chooses.
    fn list_throttled(&mut self, q: CfsRqId) {
        let pool = &mut self.groups[self.cfs_rqs[q].group].pool;
        let at_head = match self.rules.throttled_insert {
            ThrottledInsert::Head => true,
            ThrottledInsert::HeadWhileDistributing => pool.distributing,
            ThrottledInsert::Tail => false,
        };
        let at = if at_head { 0 } else { pool.throttled.len() };
        pool.throttled.insert(at, q);
    }

    /// Counts a throttle at a level of the subtree (kernel: `tg_throttle_down()`).
    fn throttle_down(&mut self, q: CfsRqId) {
        let first = self.cfs_rqs[q].bandwidth.throttle_count == 0;
        self.cfs_rqs[q].bandwidth.throttle_count += 1;
        if first {
            if !self.has(Fault::NotFrozen) {
                self.pelt_freeze(q);
            }
            self.start_self_clock_at_throttle(q);
        }
    }

    /// To 6.17: takes the group's entity off its parent's queue, and so on upwards as queues run
    /// empty; its tasks stay inside and no longer count above.
    fn dequeue_group_entity(&mut self, q: CfsRqId) {
        let (tasks, runnable) = (self.cfs_rqs[q].h_nr, self.cfs_rqs[q].h_runnable);
        let cpu = self.cfs_rqs[q].cpu;
        let mut child = self.cfs_rqs[q].se;
        let mut q = self.cfs_rqs[q].parent;
        let mut dequeueing = true;
        if !self.ses[child].on_rq {
            return;
        }
        while q.is_some() {
            if dequeueing && !self.ses[child].on_rq {
                return;
            }
            if dequeueing {
                self.dequeue_entity(q, child, Dequeue::Throttle);
                self.ses[child].delayed = false;
            }
            let rq = &mut self.cfs_rqs[q];
            rq.h_nr -= tasks;
            rq.h_runnable -= runnable;
            if rq.bandwidth.throttled {
                return;
            }
            dequeueing &= rq.nr == 0;
            if dequeueing {
                self.update_share(q);
            }
            child = self.cfs_rqs[q].se;
            q = self.cfs_rqs[q].parent;
        }
        self.change_nr_running(cpu, -(runnable as i32));
    }

    /// Makes the current task of a CPU park itself when it returns to user mode.
    pub(crate) fn give_work_to_running(&mut self, cpu: CpuId) {
        let curr = self.cpus[cpu].curr;
        if curr.is_none() {
            return;
        }
        self.give_throttle_work(curr);
        let entered = self.here == cpu;
        self.touch(cpu, entered);
    }
}
