//! Charging run queues for running time (kernel: `account_cfs_rq_runtime()`,
//! `check_enqueue_throttle()`, `check_cfs_rq_runtime()`).

use crate::cpu::Resched;
use crate::events::NEVER;
use crate::faults::Fault;
use crate::ids::{CfsRqId, GroupId, Id};
use crate::machine::Machine;
use crate::rules::Exhaustion;

impl Machine<'_> {
    /// Whether the group or an ancestor has a finite quota. The root never has.
    pub(crate) fn is_limited(&self, mut group: GroupId) -> bool {
        while group.ix() != 0 {
            if self.groups[group].pool.quota_ns.is_some() {
                return true;
            }
            group = self.groups[group].parent;
        }
        false
    }

    /// When the run queue's runtime will be used up (or, to 5.3, expire) if the current task keeps
    /// running, ns of simulated time; [`NEVER`] if it has no limit, runs nothing, or is throttled.
    /// Pull rules: a tick earlier, so that a tick can refill it.
    pub(crate) fn runtime_due_ns(&self, q: CfsRqId) -> u64 {
        let rq = &self.cfs_rqs[q];
        let bw = &rq.bandwidth;
        if !bw.enabled || rq.curr.is_none() {
            return NEVER;
        }
        if self.rules.pull {
            // A tick refills what would not last until the next.
            let ends_ns = self.runtime_ends_ns(q);
            let soon_ns = self.settings.tick_ns.min(self.slice_ns() as u64);
            return if ends_ns == NEVER { NEVER } else { (ends_ns + 1).saturating_sub(soon_ns) };
        }
        // Growing debt matters only between a grant and its unthrottle.
        if bw.throttled && !bw.csd_pending && !self.rules.throttled_may_take {
            return NEVER;
        }
        let left_ns = bw.runtime_remaining_ns.max(0) as u64;
        let due_ns = rq.exec_start_ns + left_ns;
        if self.rules.has_deadlines() { due_ns.min(bw.expires_ns) } else { due_ns }
    }

    /// Charges a run queue for `ns`, if it has a limit; where that uses up its runtime, it takes
    /// more from the pool, or else requests a reschedule (to 7.1) or is throttled (kernel:
    /// `account_cfs_rq_runtime()`). True if it is throttled by its own limit (7.2+ only).
    #[inline]
    pub(crate) fn account_runtime(&mut self, q: CfsRqId, ns: u64) -> bool {
        self.cfs_rqs[q].bandwidth.enabled && self.account_limited(q, ns)
    }

    /// Charges a run queue that has a limit for `ns`. Without runtime left it takes a slice from
    /// the pool; failing that, it requests a reschedule of a running task (to 7.1) or throttles
    /// (7.2+: true if it is throttled). To 5.3 expired runtime is dropped, too.
    fn account_limited(&mut self, q: CfsRqId, ns: u64) -> bool {
        let rq = &mut self.cfs_rqs[q];
        let bw = &mut rq.bandwidth;
        self.groups[rq.group].pool.books.charged_ns += i128::from(ns);
        if self.rules.pull {
            return self.account_pulling(q, ns);
        }
        bw.runtime_remaining_ns -= ns as i64;
        self.expire_runtime(q);
        let rq = &self.cfs_rqs[q];
        if rq.bandwidth.runtime_remaining_ns > 0 {
            return false;
        }
        match self.rules.exhaustion {
            Exhaustion::Resched => {
                if rq.bandwidth.throttled && !self.rules.throttled_may_take {
                    return false;
                }
                let (cpu, runs) = (rq.cpu, rq.curr.is_some());
                if !self.assign_runtime(q, self.slice_ns())
                    && runs
                    && !self.has(Fault::ExhaustedRunsOn)
                {
                    self.resched(cpu, Resched::Now);
                }
                false
            }
            Exhaustion::Throttle => rq.bandwidth.throttled || self.throttle(q),
        }
    }

    /// To be called when a run queue has got its first entity: takes runtime or throttles it, lets
    /// its load average decay again (6.18+), and starts its clocks of throttled time (6.6 to 6.17).
    pub(crate) fn after_first_enqueue(&mut self, q: CfsRqId) {
        self.check_enqueue_throttle(q);
        if !self.rules.unit.is_entity() && !self.has(Fault::FilledStaysFrozen) {
            self.pelt_unfreeze(q);
        }
        self.start_clocks_at_enqueue(q);
    }

    /// Takes runtime when the first entity is queued on a run queue without a running child, or
    /// throttles it if the pool has none (kernel: `check_enqueue_throttle()`). Pull rules: nothing
    /// happens.
    fn check_enqueue_throttle(&mut self, q: CfsRqId) {
        let rq = &self.cfs_rqs[q];
        // Under the pull rules runtime is taken when it is used.
        let asks = !self.rules.pull && !self.has(Fault::FirstEnqueueUnasked);
        let takes = rq.bandwidth.enabled && asks;
        if !takes || rq.curr.is_some() || rq.bandwidth.throttled {
            return;
        }
        self.account_runtime(q, 0);
        let bw = &self.cfs_rqs[q].bandwidth;
        if self.rules.enqueue_takes_slice && bw.runtime_remaining_ns <= 0 {
            self.throttle(q);
        }
    }

    /// To be called when a run queue has lost its last entity: returns surplus runtime to the pool,
    /// and freezes the load average of a throttled one (6.18+).
    pub(crate) fn after_last_dequeue(&mut self, q: CfsRqId) {
        if !self.has(Fault::NothingGivenBack) {
            self.return_runtime(q);
        }
        if !self.rules.unit.is_entity() && !self.has(Fault::EmptyNotFrozen) {
            self.pelt_freeze(q);
        }
    }

    /// Throttles a run queue without runtime when its task is put back, to 7.1 (kernel:
    /// `check_cfs_rq_runtime()` in `put_prev_entity()`). It may take runtime instead.
    #[inline]
    pub(crate) fn check_runtime_at_put(&mut self, q: CfsRqId) {
        let bw = &self.cfs_rqs[q].bandwidth;
        let stays = self.rules.exhaustion.throttles() || !bw.enabled || bw.throttled;
        if !stays && bw.runtime_remaining_ns <= 0 && !self.has(Fault::PutUnasked) {
            self.throttle(q);
        }
    }
}
