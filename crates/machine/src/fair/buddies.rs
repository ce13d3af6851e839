//! Who is to be picked next, or is not to be (kernel: `set_next_buddy()`, `set_last_buddy()`,
//! `set_skip_buddy()`, `clear_buddies()`).
//!
//! Each queue has one of each kind. They are forgotten where the entity they name is chosen anew or
//! leaves the queue, on its own level and on those above that name its group; a level that stays as
//! it was keeps its own.

use crate::bandwidth::rules::Queue;
use crate::ids::{CfsRqId, Id, SeId};
use crate::machine::Machine;

/// What only CFS has (to 6.5); the one it shares with EEVDF is the queue's `next`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buddies {
    /// Was preempted by who woke up, on a crowded queue: is to go on.
    pub last: SeId,
    /// Has yielded: somebody else is to run if that is not too unfair.
    pub skip: SeId,
}

impl Machine<'_> {
    /// Makes room for the buddies of all run queues there are.
    pub(crate) fn grow_buddies(&mut self) {
        if self.rules.queue == Queue::Cfs {
            let none = Buddies { last: SeId::NONE, skip: SeId::NONE };
            self.buddies.resize(self.cfs_rqs.len(), none);
        }
    }

    /// The next pick is to take this entity, and its groups above.
    pub(crate) fn prefer(&mut self, mut se: SeId) {
        if self.rules.queue == Queue::EevdfFlat {
            return;
        }
        while se.is_some() && self.ses[se].on_rq {
            let q = self.ses[se].q;
            self.cfs_rqs[q].next = se;
            se = self.cfs_rqs[q].se;
        }
    }

    /// CFS: who is preempted now is to go on afterwards.
    pub(crate) fn remember_preempted(&mut self, mut se: SeId) {
        while se.is_some() && self.ses[se].on_rq {
            let q = self.ses[se].q;
            self.buddies[q.ix()].last = se;
            se = self.cfs_rqs[q].se;
        }
    }

    /// CFS: others are to run first.
    pub(crate) fn skip(&mut self, mut se: SeId) {
        while se.is_some() {
            let q = self.ses[se].q;
            self.buddies[q.ix()].skip = se;
            se = self.cfs_rqs[q].se;
        }
    }

    /// Nobody is to stay with this entity any more, nor to pass it over.
    pub(crate) fn clear_buddies(&mut self, q: CfsRqId, se: SeId) {
        if self.cfs_rqs[q].next == se {
            self.clear_upwards(q, se, |machine, q| &mut machine.cfs_rqs[q].next);
        }
        if self.rules.queue == Queue::Cfs {
            self.clear_upwards(q, se, |machine, q| &mut machine.buddies[q.ix()].last);
            self.clear_upwards(q, se, |machine, q| &mut machine.buddies[q.ix()].skip);
        }
    }

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
