//! Throttling a run queue (kernel: `throttle_cfs_rq()`, `tg_throttle_down()`).

use crate::fair::Dequeue;
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId};
use crate::machine::Machine;
use crate::rules::{SecondChance, ThrottledInsert};
use cpumax_outcome::trace::What;

impl Machine<'_> {
    /// Throttles a run queue without runtime, unless it can take some from the pool: lists it, arms
    /// the period timer, freezes its subtree's load, and dequeues its entity (to 6.17) or has tasks
    /// park (6.18+) (kernel: `throttle_cfs_rq()`). True if it is throttled.
    pub(crate) fn throttle(&mut self, q: CfsRqId) -> bool {
        let runs = {
            let curr = self.cfs_rqs[q].curr;
            curr.is_some() && self.ses[curr].on_rq
        };
        let chance_ns = match self.rules.second_chance {
            SecondChance::None => None,
            SecondChance::OneNs => Some(1),
            SecondChance::SliceIfRunning => Some(if runs { self.slice_ns() } else { 1 }),
        };
        if chance_ns.is_some_and(|ns| self.assign_runtime(q, ns)) {
            return false;
        }
        let (group, cpu) = (self.cfs_rqs[q].group, self.cfs_rqs[q].cpu);
        self.list_throttled(q);
        if !self.groups[group].pool.timer.active {
            self.arm_period_timer(group);
        }
        self.walk_down(q, Self::throttle_down);
        if self.rules.unit.is_entity() {
            self.dequeue_group_entity(q);
        }
        self.cfs_rqs[q].bandwidth.throttled = true;
        self.start_clock_at_throttle(q);
        self.emit(cpu, What::Throttle { group: group.0 });
        self.touch(cpu, false);
        let tells = runs && !self.has(Fault::RunningNotTold);
        if self.rules.exhaustion.throttles() && tells {
            self.give_work_to_running(cpu);
        }
        true
    }

    /// Adds a run queue to its group's throttled list: at the head to 4.18, and from 4.19 to 5.7
    /// during a distribution; else at the tail.
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

    /// Increments the throttle count of a run queue in a throttled subtree; the first freezes its
    /// load average and may start its clock (kernel: `tg_throttle_down()`).
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

    /// Takes the group's entity off its parent's queue, and so on upwards as queues run empty (to
    /// 6.17); its tasks stay inside and no longer count above.
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

    /// Gives a CPU's current task the work of parking itself when it returns to user mode.
    pub(crate) fn give_work_to_running(&mut self, cpu: CpuId) {
        let curr = self.cpus[cpu].curr;
        if curr.is_none() {
            return;
        }
        self.give_throttle_work(curr);
        let entered = self.events.here == cpu;
        self.touch(cpu, entered);
    }
}
