//! Unthrottling a run queue (kernel: `unthrottle_cfs_rq()`, `tg_unthrottle_up()`).

use crate::cpu::Resched;
use crate::fair::{Dequeue, Enqueue};
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId};
use crate::machine::Machine;
use crate::rules::Precheck;
use cpumax_outcome::trace::What;

impl Machine<'_> {
    /// Unthrottles a run queue: unlists it, stops its clock, thaws its subtree and puts its entity
    /// or parked tasks back; an idle CPU reschedules (kernel: `unthrottle_cfs_rq()`). Not if it has
    /// no runtime (6.18+); from 7.2 on the running task is charged first, which uses up the 1 ns
    /// granted.
    pub(crate) fn unthrottle(&mut self, q: CfsRqId) {
        if self.rules.pull {
            self.reopen(q);
            return;
        }
        if self.rules.precheck == Precheck::ChargedPositive {
            self.charge(q);
        }
        let bw = &self.cfs_rqs[q].bandwidth;
        if self.rules.precheck != Precheck::None && bw.enabled && bw.runtime_remaining_ns <= 0 {
            return;
        }
        let (group, cpu) = (self.cfs_rqs[q].group, self.cfs_rqs[q].cpu);
        self.renew_kept_clock(cpu);
        self.cfs_rqs[q].bandwidth.throttled = false;
        self.stop_clock(q);
        let throttled = &mut self.groups[group].pool.throttled;
        if let Some(at) = throttled.iter().position(|&x| x == q) {
            throttled.remove(at);
        }
        self.emit(cpu, What::Unthrottle { group: group.0 });
        let groups = self.groups[group].subtree;
        self.unthrottle_cost.count_unthrottled(u64::from(groups));
        self.walk_up(q, Self::unthrottle_up);
        if self.rules.unit.is_entity() {
            self.requeue_group_entity(q);
        }
        let c = &self.cpus[cpu];
        if c.is_idle() && c.nr_running > 0 && !self.has(Fault::IdleNotTold) {
            self.resched(cpu, Resched::Now);
        }
        self.touch(cpu, false);
    }

    /// Decrements the throttle count of a run queue in an unthrottled subtree; after the last
    /// throttle its load average decays again, its clock stops, and its parked tasks are enqueued
    /// (kernel: `tg_unthrottle_up()`).
    fn unthrottle_up(&mut self, q: CfsRqId) {
        if self.rules.precheck == Precheck::ChargedPositive {
            self.charge(q);
        }
        let bw = &mut self.cfs_rqs[q].bandwidth;
        debug_assert!(bw.throttle_count > 0);
        bw.throttle_count -= 1;
        if bw.throttle_count > 0 {
            return;
        }
        if !self.has(Fault::ReleasedStaysFrozen) {
            self.pelt_unfreeze(q);
        }
        self.stop_self_clock(q);
        self.release_limbo(q);
    }

    /// Queues the group's entity again, and its ancestors up to one that is queued already or
    /// throttled (to 6.17); its tasks count again above. Nothing if none are queued on it.
    fn requeue_group_entity(&mut self, q: CfsRqId) {
        let (tasks, runnable) = (self.cfs_rqs[q].h_nr, self.cfs_rqs[q].h_runnable);
        if self.cfs_rqs[q].nr == 0 {
            return;
        }
        self.unthrottle_cost.count_enqueued(1);
        let cpu = self.cfs_rqs[q].cpu;
        self.update_share(q);
        let mut child = self.cfs_rqs[q].se;
        let mut q = self.cfs_rqs[q].parent;
        let mut queueing = true;
        while q.is_some() {
            if queueing && self.ses[child].delayed {
                self.dequeue_entity(q, child, Dequeue::Sleep);
                self.ses[child].delayed = false;
            }
            queueing &= !self.ses[child].on_rq;
            if queueing {
                self.enqueue_entity(q, child, Enqueue::WakeUp);
            }
            let rq = &mut self.cfs_rqs[q];
            rq.h_nr += tasks;
            rq.h_runnable += runnable;
            if rq.bandwidth.throttled {
                return;
            }
            child = self.cfs_rqs[q].se;
            if child.is_some() && !self.ses[child].on_rq {
                self.update_share(q);
            }
            q = self.cfs_rqs[q].parent;
        }
        self.change_nr_running(cpu, runnable as i32);
    }

    /// The CPU with the lowest number that is on line; 0 if none is.
    pub(crate) fn first_online(&self) -> CpuId {
        self.cpus.ids().find(|&cpu| self.cpus[cpu].online).unwrap_or(CpuId(0))
    }
}
