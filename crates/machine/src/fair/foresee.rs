//! Reading ahead. A large machine does not fit into a cache, and what is released or parked next is known some steps
//! before: it is read then, so that it is there when it is needed. Changes nothing but time.

use crate::ids::{CfsRqId, SeId, TaskId};
use crate::machine::Machine;
use crate::se::Owner;
use std::hint::black_box;

impl Machine<'_> {
    /// A walk over silos is about to look at this one, whose next sibling comes after it.
    #[inline]
    pub(crate) fn foresee_walk(&self, q: CfsRqId) {
        let next = self.cfs_rqs[q].next_sibling;
        if next.is_none() {
            return;
        }
        let rq = &self.cfs_rqs[next];
        if let Some(&task) = rq.bandwidth.limbo.last() {
            self.foresee_task(task);
            self.foresee_se(rq.se);
        }
        self.foresee_rq(rq.next_sibling);
        if let Some(&task) = self.cfs_rqs[q].bandwidth.limbo.last() {
            self.foresee_se(self.tasks[task].se);
        }
    }

    /// The task that now runs is to park, and so are those picked after it.
    pub(crate) fn foresee_parks(&self, q: CfsRqId) {
        let nodes = self.cfs_rqs[q].timeline.nodes();
        if let Some(third) = nodes.get(2) {
            self.foresee_se(third.se);
        }
        if let Some(second) = nodes.get(1) {
            let se = &self.ses[second.se];
            match se.owner {
                Owner::Task(task) => {
                    self.foresee_task(task);
                    self.foresee_rq(se.q);
                }
                Owner::Group(child) => self.foresee_rq(child),
            }
        }
        if let Some(first) = nodes.first() {
            let se = &self.ses[first.se];
            match se.owner {
                Owner::Task(_) => {
                    let rq = &self.cfs_rqs[se.q];
                    self.foresee_se(rq.se);
                    self.foresee_rq(rq.parent);
                }
                Owner::Group(child) => {
                    if let Some(node) = self.cfs_rqs[child].timeline.nodes().first() {
                        self.foresee_se(node.se);
                    }
                }
            }
        }
    }

    #[inline]
    fn foresee_rq(&self, q: CfsRqId) {
        if q.is_some() {
            let rq = &self.cfs_rqs[q];
            black_box((rq.nr, rq.bandwidth.throttled_clock_self_ns));
        }
    }

    #[inline]
    fn foresee_se(&self, se: SeId) {
        if se.is_some() {
            let se = &self.ses[se];
            black_box((se.weight, se.slice_ns));
        }
    }

    #[inline]
    fn foresee_task(&self, task: TaskId) {
        black_box(self.tasks[task].left_ns);
    }
}
