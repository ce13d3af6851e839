//! Walks over a run queue and all below it on its CPU (kernel: `walk_tg_tree_from()`). Only those
//! that exist are visited; costs count the others too.

use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, Id};
use crate::machine::Machine;
use std::rc::Rc;

/// Run queues prefetched at a time.
const AHEAD: usize = 64;

/// A run queue and all below it, children before parents.
#[derive(Debug)]
pub(crate) struct Subtree {
    silos: Rc<[CfsRqId]>,
    /// Run queues that the CPU had when this was computed.
    of_made: u32,
}

impl Machine<'_> {
    /// Visits children before parents.
    pub(crate) fn walk_up(&mut self, top: CfsRqId, mut visit: impl FnMut(&mut Self, CfsRqId)) {
        let silos = self.subtree(top);
        for silos in silos.chunks(AHEAD) {
            self.foresee_release(silos);
            for &q in silos {
                visit(self, q);
            }
        }
    }

    /// Visits parents before children. Siblings come in reverse of the kernel's order, which does
    /// not matter for a throttle.
    pub(crate) fn walk_down(&mut self, top: CfsRqId, mut visit: impl FnMut(&mut Self, CfsRqId)) {
        let silos = self.subtree(top);
        for silos in silos.rchunks(AHEAD) {
            self.foresee_throttle(silos);
            for &q in silos.iter().rev() {
                visit(self, q);
            }
        }
    }

    fn subtree(&mut self, top: CfsRqId) -> Rc<[CfsRqId]> {
        let made = self.made_on(self.cfs_rqs[top].cpu);
        let walk = self.cfs_rqs[top].bandwidth.walk as usize;
        if let Some(subtree) = self.subtrees.get(walk)
            && subtree.of_made == made
        {
            return Rc::clone(&subtree.silos);
        }
        let silos: Rc<[CfsRqId]> = self.children_first(top).into();
        let subtree = Subtree { silos: Rc::clone(&silos), of_made: made };
        if let Some(old) = self.subtrees.get_mut(walk) {
            *old = subtree;
        } else {
            self.cfs_rqs[top].bandwidth.walk = self.subtrees.len() as u32;
            self.subtrees.push(subtree);
        }
        silos
    }

    fn children_first(&self, top: CfsRqId) -> Vec<CfsRqId> {
        let mut silos = Vec::new();
        let mut q = self.deepest_first(top);
        loop {
            silos.push(q);
            if q == top {
                if self.has(Fault::OldestChildFirst) {
                    silos[..].reverse();
                    silos.rotate_left(1);
                }
                return silos;
            }
            let sibling = self.cfs_rqs[q].next_sibling;
            q = if sibling.is_some() {
                self.deepest_first(sibling)
            } else {
                self.cfs_rqs[q].parent
            };
        }
    }

    fn deepest_first(&self, mut q: CfsRqId) -> CfsRqId {
        while self.cfs_rqs[q].first_child.is_some() {
            q = self.cfs_rqs[q].first_child;
        }
        q
    }

    /// Number of group run queues on a CPU.
    fn made_on(&self, cpu: CpuId) -> u32 {
        self.vacant[cpu.ix()].made
    }
}
