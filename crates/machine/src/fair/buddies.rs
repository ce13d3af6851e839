//! Preferences of the next pick (kernel: `set_next_buddy()`, `set_last_buddy()`,
//! `set_skip_buddy()`, `clear_buddies()`).
//!
//! Each queue has one of each kind. They are cleared where the entity they name is picked or
//! leaves the queue, on its own level and on those above that name its group; other levels keep
//! theirs.

use crate::cfs_rq::Buddies;
use crate::ids::{CfsRqId, Id, SeId};
use crate::machine::Machine;

impl Machine<'_> {
    /// Makes room for the buddies (CFS) of all run queues; to be called after new ones.
    pub(crate) fn grow_buddies(&mut self) {
        if self.rules.queue.is_cfs() {
            let none = Buddies { last: SeId::NONE, skip: SeId::NONE };
            self.extras.buddies.resize(self.cfs_rqs.len(), none);
        }
    }

    /// Makes the next pick prefer this entity, and its groups above (kernel: `set_next_buddy()`).
    /// Nothing on a flat queue.
    pub(crate) fn set_next_buddy(&mut self, mut se: SeId) {
        if self.rules.queue.is_flat() {
            return;
        }
        while se.is_some() && self.ses[se].on_rq {
            let q = self.ses[se].q;
            self.cfs_rqs[q].next = se;
            se = self.cfs_rqs[q].se;
        }
    }

    /// CFS: makes the pick after a preemption prefer this preempted entity, and its groups above
    /// (kernel: `set_last_buddy()`).
    pub(crate) fn set_last_buddy(&mut self, mut se: SeId) {
        while se.is_some() && self.ses[se].on_rq {
            let q = self.ses[se].q;
            self.extras.buddies[q.ix()].last = se;
            se = self.cfs_rqs[q].se;
        }
    }

    /// CFS: makes the next pick pass over this entity, and its groups above, if another is close
    /// (kernel: `set_skip_buddy()`).
    pub(crate) fn set_skip_buddy(&mut self, mut se: SeId) {
        while se.is_some() {
            let q = self.ses[se].q;
            self.extras.buddies[q.ix()].skip = se;
            se = self.cfs_rqs[q].se;
        }
    }

    /// Removes this entity, and its groups above, from the queues' next, last and skip buddies
    /// (kernel: `clear_buddies()`).
    pub(crate) fn clear_buddies(&mut self, q: CfsRqId, se: SeId) {
        if self.cfs_rqs[q].next == se {
            self.clear_upwards(q, se, |machine, q| &mut machine.cfs_rqs[q].next);
        }
        if self.rules.queue.is_cfs() {
            self.clear_upwards(q, se, |machine, q| &mut machine.extras.buddies[q.ix()].last);
            self.clear_upwards(q, se, |machine, q| &mut machine.extras.buddies[q.ix()].skip);
        }
    }

    /// Clears one kind of buddy from this queue up, as long as it is the entity or the group above
    /// it.
    fn clear_upwards(
        &mut self,
        mut q: CfsRqId,
        mut se: SeId,
        buddy: impl Fn(&mut Self, CfsRqId) -> &mut SeId,
    ) {
        while q.is_some() && se.is_some() && *buddy(self, q) == se {
            *buddy(self, q) = SeId::NONE;
            se = self.cfs_rqs[q].se;
            q = self.cfs_rqs[q].parent;
        }
    }
}
