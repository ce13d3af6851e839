//! Weight of parked tasks: a group's share of a CPU is that of all its tasks that want to run
//! there, parked or queued. If only queued tasks counted, a group with a small share would bring
//! back fewer tasks, weigh less for it, and get still less.

use crate::faults::Fault;
use crate::ids::{CfsRqId, TaskId};
use crate::machine::Machine;
use crate::se::Owner;

impl Machine<'_> {
    /// Adds the weight of a task that parks on this run queue to its group's tasks and to the
    /// parked load of the queue and its ancestors.
    pub(crate) fn add_parked_weight(&mut self, task: TaskId, q: CfsRqId) {
        if self.has(Fault::ParkedWeightless) {
            return;
        }
        self.change_group_tasks(self.tasks[task].group, 1);
        self.add_parked_load(q, self.nominal_weight(task));
    }

    /// Subtracts the weight of a task that is about to leave limbo, before it is queued, from its
    /// group's tasks and the parked load.
    pub(crate) fn remove_parked_weight(&mut self, task: TaskId, q: CfsRqId) {
        self.update_queued(self.tasks[task].se);
        if self.has(Fault::ParkedWeightless) {
            return;
        }
        self.change_group_tasks(self.tasks[task].group, -1);
        self.subtract_parked_load(q, self.nominal_weight(task));
    }

    /// Counts a group that has just been dequeued in its parent's parked load, if tasks below it
    /// are parked.
    #[inline]
    pub(crate) fn count_parked_after_dequeue(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].load_parked > 0 {
            self.count_group_as_parked(q);
        }
    }

    /// Subtracts the group of this queue, which is about to be queued, from its parent's parked
    /// load, if it counts there.
    #[inline]
    pub(crate) fn uncount_parked_before_enqueue(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].bandwidth.counts_as_parked {
            self.update_queued(self.cfs_rqs[q].se);
            self.cfs_rqs[q].bandwidth.counts_as_parked = false;
            let rq = &self.cfs_rqs[q];
            self.subtract_parked_load(rq.parent, self.ses[rq.se].weight);
        }
    }

    /// Replaces the weight `old` by `new` in the parent's parked load, if it counts the owner,
    /// whose entity is not queued.
    pub(crate) fn adjust_parked_load(&mut self, owner: Owner, old: u64, new: u64) {
        let Owner::Group(q) = owner else { return };
        if q.is_some() && self.cfs_rqs[q].bandwidth.counts_as_parked {
            let parent = self.cfs_rqs[q].parent;
            self.pelt_update(parent);
            let rq = &mut self.cfs_rqs[parent];
            rq.load_parked = rq.load_parked - old + new;
        }
    }

    /// Adds `weight` to the parked load of a queue, and counts the group in its ancestors' where it
    /// begins to have parked tasks only.
    fn add_parked_load(&mut self, q: CfsRqId, weight: u64) {
        self.pelt_update(q);
        let rq = &mut self.cfs_rqs[q];
        rq.load_parked += weight;
        if rq.se.is_some() && !self.ses[rq.se].on_rq && !rq.bandwidth.counts_as_parked {
            self.count_group_as_parked(q);
        }
    }

    /// Adds the weight of a queue's group to its parent's parked load, and to ancestors' where
    /// needed.
    fn count_group_as_parked(&mut self, q: CfsRqId) {
        self.update_queued(self.cfs_rqs[q].se);
        let rq = &mut self.cfs_rqs[q];
        rq.bandwidth.counts_as_parked = true;
        let (parent, weight) = (rq.parent, self.ses[rq.se].weight);
        self.add_parked_load(parent, weight);
    }

    /// Subtracts `weight` from the parked load of a queue, and from its ancestors' where a group no
    /// longer counts.
    fn subtract_parked_load(&mut self, q: CfsRqId, weight: u64) {
        self.pelt_update(q);
        let rq = &mut self.cfs_rqs[q];
        rq.load_parked -= weight;
        if rq.load_parked == 0 {
            self.uncount_parked_before_enqueue(q);
        }
    }
}
