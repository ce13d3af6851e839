//! Which tasks a balancer may take from a CPU, and taking one (kernel: `can_migrate_task()`,
//! `detach_task()`). `balance.rs` decides how many are wanted and from which CPU.

use super::NICE_TRIES;
use crate::fair::{Dequeue, Enqueue};
use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::interval::{BalanceLists, Found};
use crate::machine::Machine;
use crate::rules::BalanceTest;
use crate::se::Owner;
use cpumax_workload::Class;

/// A task that ran within this time is cache-hot and not taken, ns (kernel:
/// `sysctl_sched_migration_cost`).
const HOT_NS: u64 = 500_000;
/// Most queued entities examined at once.
const MAX_SCANNED: usize = 64;

impl Machine<'_> {
    /// Collects in `lists.movable` up to `want` queued tasks of one CPU that may move to another
    /// and are not cache-hot, those that wait longest last; delayed ones (6.14+) only `by_load`.
    /// Returns `Nothing` if any task there, running ones included, may move, else `Pinned` (kernel:
    /// `can_migrate_task()`).
    pub(super) fn find_movable(
        &self,
        from: CpuId,
        to: CpuId,
        want: u32,
        by_load: bool,
        lists: &mut BalanceLists,
    ) -> Found {
        let BalanceLists { pending, movable } = lists;
        pending.clear();
        movable.clear();
        let curr = self.cpus[from].curr;
        let may = |task: TaskId| self.may_use(task, to) && self.may_move(task, to);
        let runs = curr.is_some() && self.tasks[curr].is_fair() && may(curr);
        let takes_delayed = by_load || !self.rules.delayed_is_load_only;
        let mut found = if runs { Found::Nothing } else { Found::Pinned };
        if self.nothing_may_move(from, to) {
            return found;
        }
        self.collect_waiting(self.root(from), pending);
        let mut at = 0;
        while at < pending.len() && at < MAX_SCANNED && movable.len() < want as usize {
            let se = pending[at];
            at += 1;
            match self.ses[se].owner() {
                Owner::Group(q) => self.collect_waiting(q, pending),
                Owner::Task(task) => {
                    if (takes_delayed || !self.ses[se].delayed) && may(task) {
                        found = Found::Nothing;
                        if !self.is_hot(task, to) {
                            movable.push(task);
                        }
                    }
                }
            }
        }
        found
    }

    /// Whether a task ran so recently that its data is in the cache, and `to` has not failed often
    /// enough to take it yet (kernel: `task_hot()`).
    fn is_hot(&self, task: TaskId, to: CpuId) -> bool {
        let t = &self.tasks[task];
        t.attrs.class != Class::Idle
            && self.now < t.recent.ran_ns + HOT_NS
            && t.recent.ran_ns > 0
            && self.cpus[to].balancing.interval.failed <= NICE_TRIES
    }

    /// Whether everything queued on a CPU is in groups that are throttled on the other: a shortcut
    /// that avoids examining each task.
    fn nothing_may_move(&self, from: CpuId, to: CpuId) -> bool {
        /// Groups examined, so that this costs less than it saves.
        const MOST_GROUPS: usize = 8;
        let root = &self.cfs_rqs[self.root(from)];
        let mut left = root.h_nr;
        let mut q = root.links.first_child;
        for _ in 0..MOST_GROUPS {
            if left == 0 || q.is_none() {
                break;
            }
            let rq = &self.cfs_rqs[q];
            if rq.h_nr > 0 && !self.destination_throttled(rq.group, to) {
                return false;
            }
            left = left.saturating_sub(rq.h_nr);
            q = rq.links.next_sibling;
        }
        left == 0
    }

    /// Appends to `found` what waits on a queue, the last in line first, up to a limit, and the
    /// entity of the group that runs, as others of that group may wait.
    fn collect_waiting(&self, q: CfsRqId, found: &mut Vec<SeId>) {
        let rq = &self.cfs_rqs[q];
        found.extend(rq.timeline.nodes().iter().rev().take(MAX_SCANNED).map(|node| node.se));
        if rq.curr.is_some() && matches!(self.ses[rq.curr].owner(), Owner::Group(_)) {
            found.push(rq.curr);
        }
    }

    /// Whether throttling lets a balancer move the task (kernel: `can_migrate_task()`).
    pub(super) fn may_move(&self, task: TaskId, to: CpuId) -> bool {
        let group = self.tasks[task].group;
        let source = self.ses[self.tasks[task].se].q;
        if self.rules.balance_test == BalanceTest::SourceOrDestination
            && self.in_throttled_hierarchy(source)
        {
            return false;
        }
        !self.destination_throttled(group, to)
    }

    /// Whether a task of this group would be throttled on that CPU; a missing run queue counts as
    /// its nearest ancestor's. Creates none.
    fn destination_throttled(&self, mut group: GroupId, to: CpuId) -> bool {
        loop {
            if let Some(&q) = self.groups[group].cfs_rqs.get(to.ix())
                && q.is_some()
            {
                return self.in_throttled_hierarchy(q);
            }
            if group.ix() == 0 {
                return false;
            }
            group = self.groups[group].parent;
        }
    }

    /// Moves a queued, not running task to another CPU's queue, where it may preempt; a delayed one
    /// stays delayed.
    pub(crate) fn migrate(&mut self, task: TaskId, to: CpuId) {
        debug_assert!(self.cpus[self.tasks[task].cpu].curr != task);
        debug_assert!(!self.rules.unit.is_entity() || !self.tasks[task].throttle.parked);
        let is_delayed = self.ses[self.tasks[task].se].delayed;
        self.detach_load(task);
        self.dequeue_task(task, Dequeue::Move);
        self.set_cpu(task, to);
        self.enqueue_task(task, Enqueue::Move);
        if is_delayed {
            self.mark_delayed(task);
        }
        self.check_preempt(task);
    }
}
