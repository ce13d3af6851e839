//! Walks over a run queue and all below it on its CPU (kernel: `walk_tg_tree_from()`). Only those
//! that exist are visited; costs count the others too.

use crate::cfs_rq::Subtree;
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, Id};
use crate::machine::Machine;
use std::rc::Rc;

/// Run queues prefetched at a time.
const AHEAD: usize = 64;

impl Machine<'_> {
    /// Visits a run queue and all below it on its CPU, children before parents.
    pub(crate) fn walk_up(&mut self, top: CfsRqId, mut visit: impl FnMut(&mut Self, CfsRqId)) {
        let cfs_rqs = self.subtree(top);
        for cfs_rqs in cfs_rqs.chunks(AHEAD) {
            self.prefetch_unthrottle(cfs_rqs);
            for &q in cfs_rqs {
                visit(self, q);
            }
        }
    }

    /// Visits a run queue and all below it on its CPU, parents before children. Siblings come in
    /// reverse of the kernel's order, which does not matter for a throttle.
    pub(crate) fn walk_down(&mut self, top: CfsRqId, mut visit: impl FnMut(&mut Self, CfsRqId)) {
        let cfs_rqs = self.subtree(top);
        for cfs_rqs in cfs_rqs.rchunks(AHEAD) {
            self.prefetch_throttle(cfs_rqs);
            for &q in cfs_rqs.iter().rev() {
                visit(self, q);
            }
        }
    }

    /// The run queue and all below it, children first; from the cache, which is renewed when the
    /// CPU has got new run queues.
    fn subtree(&mut self, top: CfsRqId) -> Rc<[CfsRqId]> {
        let made = self.made_on(self.cfs_rqs[top].cpu);
        let index = self.cfs_rqs[top].bandwidth.subtree as usize;
        if let Some(subtree) = self.extras.subtrees.get(index)
            && subtree.of_made == made
        {
            return Rc::clone(&subtree.cfs_rqs);
        }
        let cfs_rqs: Rc<[CfsRqId]> = self.children_first(top).into();
        let subtree = Subtree { cfs_rqs: Rc::clone(&cfs_rqs), of_made: made };
        if let Some(old) = self.extras.subtrees.get_mut(index) {
            *old = subtree;
        } else {
            self.cfs_rqs[top].bandwidth.subtree = self.extras.subtrees.len() as u32;
            self.extras.subtrees.push(subtree);
        }
        cfs_rqs
    }

    /// The run queue and all below it, children before parents, in the kernel's order.
    fn children_first(&self, top: CfsRqId) -> Vec<CfsRqId> {
        let mut cfs_rqs = Vec::new();
        let mut q = self.deepest_first(top);
        loop {
            cfs_rqs.push(q);
            if q == top {
                if self.has(Fault::OldestChildFirst) {
                    cfs_rqs[..].reverse();
                    cfs_rqs.rotate_left(1);
                }
                return cfs_rqs;
            }
            let sibling = self.cfs_rqs[q].links.next_sibling;
            q = if sibling.is_some() {
                self.deepest_first(sibling)
            } else {
                self.cfs_rqs[q].parent
            };
        }
    }

    /// The queue's first child's first child, and so on, down to a leaf.
    fn deepest_first(&self, mut q: CfsRqId) -> CfsRqId {
        while self.cfs_rqs[q].links.first_child.is_some() {
            q = self.cfs_rqs[q].links.first_child;
        }
        q
    }

    /// Number of group run queues made on a CPU so far.
    fn made_on(&self, cpu: CpuId) -> u32 {
        self.extras.vacant[cpu.ix()].made
    }
}
