//! Weight of parked tasks: a group's share of a CPU is that of all its tasks that want to run
//! there, parked or queued. If only queued tasks counted, a group with a small share would bring
//! back fewer tasks, weigh less for it, and get still less.

use crate::faults::Fault;
use crate::ids::{CfsRqId, TaskId};
use crate::machine::Machine;
use crate::se::Owner;

impl Machine<'_> {
    /// Adds the weight of a task that is parked, or about to leave the queue for that.
    pub(crate) fn add_parked_weight(&mut self, task: TaskId, q: CfsRqId) {
        if self.has(Fault::ParkedWeightless) {
            return;
        }
        self.change_group_tasks(self.tasks[task].group, 1);
        self.add_parked_load(q, self.nominal_weight(task));
    }

    /// Removes the weight of a task that is about to leave limbo, before it is queued.
    pub(crate) fn remove_parked_weight(&mut self, task: TaskId, q: CfsRqId) {
        self.update_queued(self.tasks[task].se);
        if self.has(Fault::ParkedWeightless) {
            return;
        }
        self.change_group_tasks(self.tasks[task].group, -1);
        self.subtract_parked_load(q, self.nominal_weight(task));
    }

    /// Counts a group that has just been dequeued as parked, if tasks below it are.
    #[inline]
    pub(crate) fn count_parked_after_dequeue(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].load_parked > 0 {
            self.count_group_as_parked(q);
        }
    }

    /// The group of this queue is about to be queued: its parked weight no longer counts at its
    /// parent.
    #[inline]
    pub(crate) fn uncount_parked_before_enqueue(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].bandwidth.counts_as_parked {
            self.update_queued(self.cfs_rqs[q].se);
            self.cfs_rqs[q].bandwidth.counts_as_parked = false;
            let rq = &self.cfs_rqs[q];
            self.subtract_parked_load(rq.parent, self.ses[rq.se].weight);
        }
    }

    /// Adjusts the parked load of the parent when the weight of an unqueued entity changes.
    pub(crate) fn adjust_parked_load(&mut self, owner: Owner, old: u64, new: u64) {
        let Owner::Group(q) = owner else { return };
        if q.is_some() && self.cfs_rqs[q].bandwidth.counts_as_parked {
            let parent = self.cfs_rqs[q].parent;
            self.pelt_update(parent);
            let rq = &mut self.cfs_rqs[parent];
            rq.load_parked = rq.load_parked - old + new;
        }
    }

    /// Adds to the parked load of a queue, and of its ancestors where a group begins to count.
    fn add_parked_load(&mut self, q: CfsRqId, weight: u64) {
        self.pelt_update(q);
        let rq = &mut self.cfs_rqs[q];
        rq.load_parked += weight;
        if rq.se.is_some() && !self.ses[rq.se].on_rq && !rq.bandwidth.counts_as_parked {
            self.count_group_as_parked(q);
        }
    }

    /// Counts the group of a queue in its parent's parked load, with the group's weight.
    fn count_group_as_parked(&mut self, q: CfsRqId) {
        self.update_queued(self.cfs_rqs[q].se);
        let rq = &mut self.cfs_rqs[q];
        rq.bandwidth.counts_as_parked = true;
        let (parent, weight) = (rq.parent, self.ses[rq.se].weight);
        self.add_parked_load(parent, weight);
    }

    /// Subtracts from the parked load of a queue, and of its ancestors where a group no longer
    /// counts.
    fn subtract_parked_load(&mut self, q: CfsRqId, weight: u64) {
        self.pelt_update(q);
        let rq = &mut self.cfs_rqs[q];
        rq.load_parked -= weight;
        if rq.load_parked == 0 {
            self.uncount_parked_before_enqueue(q);
        }
    }
}
