//! A group's pool: refilled each period; run queues take runtime from it and give some back when
//! they run empty (kernel: `__refill_cfs_bandwidth_runtime()`, `__assign_cfs_rq_runtime()`,
//! `__return_cfs_rq_runtime()`, `tg_set_cfs_bandwidth()`).

use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, GroupId};
use crate::machine::Machine;
use crate::rules::Refill;
use cpumax_limit::Limit;
use cpumax_outcome::trace::What;
use cpumax_workload::GroupSpec;

/// Runtime that an idle run queue keeps, ns (kernel: `min_cfs_rq_runtime`).
pub(crate) const KEEP_NS: i64 = 1_000_000;

impl Machine<'_> {
    /// Runtime that a run queue takes at once, ns (kernel: `sched_cfs_bandwidth_slice()`).
    pub(crate) fn slice_ns(&self) -> i64 {
        self.workload.machine.bandwidth_slice_ns as i64
    }

    /// Sets a new group's quota, period and burst, as if written at the start of the run; with a
    /// quota it fills the pool and arms the period timer.
    pub(crate) fn set_initial_limit(&mut self, group: GroupId, spec: &GroupSpec) {
        let pool = &mut self.groups[group].pool;
        pool.quota_ns = spec.limit.quota_ns();
        pool.period_ns = spec.limit.period_ns();
        pool.burst_ns = spec.limit.burst_ns();
        if pool.quota_ns.is_some() {
            self.refill(group);
            self.set_observed_pool(group, &spec.path);
            self.arm_period_timer(group);
        }
    }

    /// Sets the pool of a group to the runtime observed on a real kernel, where one was, at most
    /// quota and burst (kernels with bursts only).
    fn set_observed_pool(&mut self, group: GroupId, path: &str) {
        let seen = self.lab.observed.and_then(|observed| observed.pool_ns.get(path));
        let (Some(&seen_ns), Refill::AddCapped) = (seen, self.rules.refill) else { return };
        let pool = &mut self.groups[group].pool;
        let seen_ns = seen_ns.min(pool.quota_ns.unwrap_or(0) + pool.burst_ns);
        pool.books.refilled_ns += i128::from(seen_ns) - i128::from(pool.runtime_ns);
        (pool.runtime_ns, pool.runtime_snap_ns) = (seen_ns, seen_ns);
    }

    /// Adds the quota to the pool, up to quota and burst, or sets it to the quota (to 5.13); counts
    /// bursts (kernel: `__refill_cfs_bandwidth_runtime()`). Moves the deadline of runtime (to 5.3);
    /// pays debt back under the pull rules. Nothing without a quota.
    pub(crate) fn refill(&mut self, group: GroupId) {
        let now = self.now;
        let unbounded = self.has(Fault::BurstUnbounded);
        let g = &mut self.groups[group];
        let pool = &mut g.pool;
        let Some(quota_ns) = pool.quota_ns else { return };
        pool.books.refilled_ns += i128::from(quota_ns);
        match self.rules.refill {
            Refill::Set => {
                pool.books.discarded_ns += i128::from(pool.runtime_ns);
                pool.runtime_ns = quota_ns;
            }
            Refill::AddCapped => {
                pool.runtime_ns += quota_ns;
                if pool.runtime_snap_ns > pool.runtime_ns {
                    g.stat.burst_ns += pool.runtime_snap_ns - pool.runtime_ns;
                    g.stat.nr_bursts += 1;
                }
                let cap_ns = if unbounded { u64::MAX } else { quota_ns + pool.burst_ns };
                let over_ns = pool.runtime_ns.saturating_sub(cap_ns);
                let owed_ns = pool.pull.debt_ns.min(over_ns);
                pool.pull.debt_ns -= owed_ns;
                pool.books.discarded_ns += i128::from(over_ns - owed_ns);
                pool.runtime_ns = pool.runtime_ns.min(cap_ns);
                pool.runtime_snap_ns = pool.runtime_ns;
            }
        }
        if self.rules.has_deadlines() {
            pool.expires_ns = now + pool.period_ns;
            pool.expires_seq += 1;
        }
        if self.rules.pull {
            self.repay(group);
        }
        self.trace_runtime(group);
    }

    /// Emits the pool's runtime as a trace event.
    pub(crate) fn trace_runtime(&mut self, group: GroupId) {
        let left_ns = self.groups[group].pool.runtime_ns;
        self.emit(CpuId::NONE, What::Runtime { group: group.0, left_ns });
    }

    /// Takes runtime from the pool so that the run queue has `target_ns`, or as much as there is,
    /// and arms an inactive period timer. True if the run queue then has any (kernel:
    /// `__assign_cfs_rq_runtime()`).
    pub(crate) fn assign_runtime(&mut self, q: CfsRqId, target_ns: i64) -> bool {
        let group = self.cfs_rqs[q].group;
        let want_ns = target_ns - self.cfs_rqs[q].bandwidth.runtime_remaining_ns;
        debug_assert!(want_ns > 0, "a cfs_rq with runtime takes none");
        let mut got_ns = want_ns as u64;
        if self.groups[group].pool.quota_ns.is_some() {
            if !self.groups[group].pool.timer.active && !self.has(Fault::TimerNotStarted) {
                self.arm_period_timer(group);
            }
            let pool = &mut self.groups[group].pool;
            got_ns = got_ns.min(pool.runtime_ns);
            if got_ns > 0 {
                pool.runtime_ns -= got_ns;
                pool.idle = false;
                self.trace_runtime(group);
            }
        } else {
            self.groups[group].pool.books.refilled_ns += i128::from(got_ns);
        }
        let pool = &self.groups[group].pool;
        let bw = &mut self.cfs_rqs[q].bandwidth;
        bw.runtime_remaining_ns += got_ns as i64;
        if self.rules.has_deadlines() && bw.expires_seq != pool.expires_seq {
            bw.expires_seq = pool.expires_seq;
            bw.expires_ns = pool.expires_ns;
        }
        bw.runtime_remaining_ns > 0
    }

    /// Returns the runtime above `KEEP_NS` of an empty run queue to the pool, and arms the slack
    /// timer if that can serve throttled ones (kernel: `__return_cfs_rq_runtime()`). Runtime that
    /// has expired is discarded.
    pub(crate) fn return_runtime(&mut self, q: CfsRqId) {
        let (group, cpu) = (self.cfs_rqs[q].group, self.cfs_rqs[q].cpu);
        let enough_ns = if self.has(Fault::LittleHandedOut) { 0 } else { self.slice_ns() };
        let keep_ns = if self.has(Fault::KeepsNothing) { 0 } else { KEEP_NS };
        let expires = self.rules.has_deadlines() && !self.has(Fault::ExpiredGivenBack);
        let bw = &mut self.cfs_rqs[q].bandwidth;
        if !bw.enabled || bw.runtime_remaining_ns <= keep_ns {
            return;
        }
        let surplus_ns = bw.runtime_remaining_ns - keep_ns;
        bw.runtime_remaining_ns -= surplus_ns;
        let pool = &mut self.groups[group].pool;
        let valid = !expires || bw.expires_seq == pool.expires_seq;
        if pool.quota_ns.is_some() && valid {
            pool.runtime_ns += surplus_ns as u64;
            let is_for_others = pool.runtime_ns > enough_ns as u64 && !pool.throttled.is_empty();
            self.trace_runtime(group);
            if self.rules.pull {
                self.announce_returned_runtime(group, cpu);
            } else if is_for_others && !self.has(Fault::SlackNotArmed) {
                self.arm_slack_timer(group, cpu);
            }
        } else {
            pool.books.discarded_ns += i128::from(surplus_ns);
        }
    }

    /// Sets the runtime of a run queue to `ns` outside of the accounting; the difference is booked
    /// as discarded, so that the sums of `check` stay right.
    pub(crate) fn set_runtime(&mut self, q: CfsRqId, ns: i64) {
        let rq = &mut self.cfs_rqs[q];
        let change_ns = ns - rq.bandwidth.runtime_remaining_ns;
        rq.bandwidth.runtime_remaining_ns = ns;
        self.groups[rq.group].pool.books.discarded_ns -= i128::from(change_ns);
    }

    /// Sets the debt of a group that has no limit any more to 0 and corrects the books (pull
    /// rules).
    fn cancel_debt(&mut self, group: GroupId) {
        let pool = &mut self.groups[group].pool;
        pool.books.discarded_ns -= i128::from(std::mem::take(&mut pool.pull.debt_ns));
    }

    /// Changes a group's limit while it runs: one write for each file that changes, with all
    /// effects on pool, timer and throttled run queues.
    pub(crate) fn write_limit(&mut self, group: GroupId, limit: Limit) {
        let pool = &self.groups[group].pool;
        let old = Limit::new(pool.quota_ns, pool.period_ns, pool.burst_ns);
        for step in limit.steps_from(old.unwrap_or(limit)) {
            self.apply_limit_file(group, step);
        }
    }

    /// Applies one write to a limit file: charges the writer's CPU, refills, arms the timer, resets
    /// the runtime of all run queues and unthrottles them (kernel: `tg_set_cfs_bandwidth()`).
    fn apply_limit_file(&mut self, group: GroupId, limit: Limit) {
        let cfs_rqs: Vec<CfsRqId> =
            self.groups[group].cfs_rqs.iter().copied().filter(|q| q.is_some()).collect();
        // The writer takes its CPU from whoever runs there, whose time is so charged under the old
        // limit. Time of others since their last tick is charged under the new one.
        let writer = self.writing_cpu();
        for &q in &cfs_rqs {
            let cpu = self.cfs_rqs[q].cpu;
            self.account_work(cpu);
            if self.has(Fault::WriteUncharged) {
                continue;
            }
            if cpu == writer {
                self.charge(q);
            } else {
                self.charge_to_last_tick(q);
            }
        }
        let pool = &mut self.groups[group].pool;
        pool.quota_ns = limit.quota_ns();
        pool.period_ns = limit.period_ns();
        pool.burst_ns = limit.burst_ns();
        self.groups[group].windows.change_period(self.now, limit.period_ns());
        if !self.has(Fault::WriteFillsNothing) {
            self.refill(group);
        }
        let limited = limit.quota_ns().is_some();
        if !limited {
            self.cancel_debt(group);
        }
        if limited && !self.groups[group].pool.timer.active {
            self.arm_period_timer(group);
        }
        for q in cfs_rqs {
            let cpu = self.cfs_rqs[q].cpu;
            self.cfs_rqs[q].bandwidth.enabled = limited && self.cpus[cpu].online;
            self.set_runtime(q, self.rules.limit_write_leaves_ns);
            self.limit_changed(q);
            if self.cfs_rqs[q].bandwidth.throttled && !self.has(Fault::WriteReleasesNobody) {
                self.unthrottle(q);
            }
            self.touch(cpu, false);
        }
    }
}
