//! What is parked weighs: a group's share of a CPU is that of all that wants to run there, parked
//! or queued.
//!
//! Counted were only what is queued, a group that gets less of a CPU than another would bring back
//! fewer tasks there, weigh less for it, and get still less.

use crate::faults::Fault;
use crate::ids::{CfsRqId, TaskId};
use crate::machine::Machine;
use crate::se::Owner;

impl Machine<'_> {
    /// A task is parked here from now on, or about to leave the queue for that.
    pub(crate) fn weigh_parked(&mut self, task: TaskId, q: CfsRqId) {
        if self.has(Fault::ParkedWeightless) {
            return;
        }
        self.count_queued(self.tasks[task].group, 1);
        self.gain_parked(q, self.nominal_weight(task));
    }

    /// It is about to be parked no more, and not queued yet.
    pub(crate) fn weigh_parked_no_more(&mut self, task: TaskId, q: CfsRqId) {
        self.note_queued(self.tasks[task].se);
        if self.has(Fault::ParkedWeightless) {
            return;
        }
        self.count_queued(self.tasks[task].group, -1);
        self.lose_parked(q, self.nominal_weight(task));
    }

    /// The last of a group has left this queue; whatever is parked below still weighs.
    #[inline]
    pub(crate) fn weigh_off_queue(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].load_parked > 0 {
            self.count_entity(q);
        }
    }

    /// The group of this queue is about to be queued.
    #[inline]
    pub(crate) fn weigh_on_queue(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].bandwidth.weighs_parked {
            self.note_queued(self.cfs_rqs[q].se);
            self.cfs_rqs[q].bandwidth.weighs_parked = false;
            let rq = &self.cfs_rqs[q];
            self.lose_parked(rq.parent, self.ses[rq.se].weight);
        }
    }

    /// The entity of this queue, which is not queued, gets another weight.
    pub(crate) fn reweigh_parked(&mut self, owner: Owner, old: u64, new: u64) {
        let Owner::Group(q) = owner else { return };
        if q.is_some() && self.cfs_rqs[q].bandwidth.weighs_parked {
            let parent = self.cfs_rqs[q].parent;
            self.pelt_update(parent);
            let rq = &mut self.cfs_rqs[parent];
            rq.load_parked = rq.load_parked - old + new;
        }
    }

    fn gain_parked(&mut self, q: CfsRqId, weight: u64) {
        self.pelt_update(q);
        let rq = &mut self.cfs_rqs[q];
        rq.load_parked += weight;
        if rq.se.is_some() && !self.ses[rq.se].on_rq && !rq.bandwidth.weighs_parked {
            self.count_entity(q);
        }
    }

    /// What is parked below a queue weighs at its parent's as the group does.
    fn count_entity(&mut self, q: CfsRqId) {
        self.note_queued(self.cfs_rqs[q].se);
        let rq = &mut self.cfs_rqs[q];
        rq.bandwidth.weighs_parked = true;
        let (parent, weight) = (rq.parent, self.ses[rq.se].weight);
        self.gain_parked(parent, weight);
    }

    fn lose_parked(&mut self, q: CfsRqId, weight: u64) {
        self.pelt_update(q);
        let rq = &mut self.cfs_rqs[q];
        rq.load_parked -= weight;
        if rq.load_parked == 0 {
            self.weigh_on_queue(q);
        }
    }
}
