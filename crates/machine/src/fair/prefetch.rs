//! Prefetching. A large machine does not fit into the caches, and what will be unthrottled or
//! parked next, and which CPU comes next, is known some steps before. Affects only speed.

use crate::events::Slot;
use crate::ids::{CfsRqId, CpuId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::se::Owner;

const LINE: usize = 64;
/// Smaller machines fit the caches.
const LARGE_CPUS: usize = 128;
/// Tasks prefetched before they park.
const PARKS: usize = 16;

/// Prefetches the first `LINES` cache lines of a value; a hint to the processor without effect on
/// results, like all functions here.
#[inline(always)]
#[allow(clippy::inline_always, reason = "one instruction for each line")]
fn prefetch_lines<T, const LINES: usize>(place: &T) {
    let first = std::ptr::from_ref(place).cast::<i8>();
    for line in 0..LINES {
        let at = first.wrapping_add(line * LINE);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint that neither faults nor reads, wherever it points.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(at);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

impl Machine<'_> {
    /// Prefetches run queues that are about to be unthrottled, with their parked tasks.
    pub(crate) fn prefetch_unthrottle(&self, cfs_rqs: &[CfsRqId]) {
        self.prefetch_cfs_rqs(cfs_rqs);
        if self.rules.unit.is_entity() {
            // Only the group's entity is put back.
            return;
        }
        for &q in cfs_rqs {
            let rq = &self.cfs_rqs[q];
            self.prefetch_se(rq.se);
            prefetch_lines::<_, 1>(&self.groups[rq.group]);
            if !rq.bandwidth.limbo.is_empty() {
                self.prefetch_timeline(q);
                self.prefetch_timeline(rq.parent);
            }
            for &task in &rq.bandwidth.limbo {
                self.prefetch_task(task);
            }
        }
        for &q in cfs_rqs {
            for &task in &self.cfs_rqs[q].bandwidth.limbo {
                self.prefetch_se(self.tasks[task].se);
            }
        }
    }

    /// Prefetches run queues that are about to be throttled, with their tasks.
    pub(crate) fn prefetch_throttle(&self, cfs_rqs: &[CfsRqId]) {
        self.prefetch_cfs_rqs(cfs_rqs);
        if self.rules.unit.is_entity() {
            return;
        }
        for &q in cfs_rqs {
            let rq = &self.cfs_rqs[q];
            self.prefetch_se(rq.se);
            prefetch_lines::<_, 1>(&self.groups[rq.group]);
            if rq.nr > 0 {
                self.prefetch_timeline(q);
            }
        }
        if self.is_flat() {
            return;
        }
        let queued = || cfs_rqs.iter().filter(|&&q| self.cfs_rqs[q].nr > 0);
        for &q in queued() {
            self.prefetch_entities(q, usize::MAX);
        }
        for &q in queued() {
            self.prefetch_tasks(q, usize::MAX);
        }
    }

    /// Prefetches tasks of a flat queue that are about to park one after the other: the next few,
    /// and then one more after each (`goes_on`).
    pub(crate) fn prefetch_parking(&self, root: CfsRqId, goes_on: bool) {
        if !goes_on {
            self.prefetch_entities(root, 2 * PARKS);
            self.prefetch_tasks(root, PARKS);
            return;
        }
        let nodes = self.cfs_rqs[root].timeline.nodes();
        if let Some(node) = nodes.get(2 * PARKS - 1) {
            self.prefetch_se(node.se);
        }
        if let Some(node) = nodes.get(PARKS - 1)
            && let Owner::Task(task) = self.ses[node.se].owner()
        {
            self.prefetch_task(task);
        }
    }

    /// Prefetches the first `most` entities on a queue's timeline.
    fn prefetch_entities(&self, q: CfsRqId, most: usize) {
        for node in self.cfs_rqs[q].timeline.nodes().iter().take(most) {
            self.prefetch_se(node.se);
        }
    }

    /// Prefetches the tasks of the first `most` entities on a queue's timeline.
    fn prefetch_tasks(&self, q: CfsRqId, most: usize) {
        for node in self.cfs_rqs[q].timeline.nodes().iter().take(most) {
            if let Owner::Task(task) = self.ses[node.se].owner() {
                self.prefetch_task(task);
            }
        }
    }

    /// Prefetches the fields of run queues that a throttle needs.
    fn prefetch_cfs_rqs(&self, cfs_rqs: &[CfsRqId]) {
        for &q in cfs_rqs {
            prefetch_lines::<_, 2>(&self.cfs_rqs[q]);
        }
    }

    /// Prefetches the timeline of a queue; on a flat queue only the root has one.
    #[inline]
    fn prefetch_timeline(&self, q: CfsRqId) {
        if !self.is_flat() && q.is_some() {
            let rq = &self.cfs_rqs[q];
            prefetch_lines::<_, 1>(&rq.base_vruntime);
            prefetch_lines::<_, 1>(&rq.timeline);
        }
    }

    /// Prefetches an entity, if there is one.
    #[inline]
    fn prefetch_se(&self, se: SeId) {
        if se.is_some() {
            prefetch_lines::<_, 1>(&self.ses[se]);
        }
    }

    /// Prefetches the first cache line of a task, if there is one.
    #[inline]
    pub(crate) fn prefetch_task(&self, task: TaskId) {
        if task.is_some() {
            prefetch_lines::<_, 1>(&self.tasks[task]);
        }
    }

    /// Prefetches a run queue whose parked tasks come back.
    pub(crate) fn prefetch_parked(&self, q: CfsRqId) {
        prefetch_lines::<_, 1>(&self.parked[q.ix()]);
        prefetch_lines::<_, 3>(&self.cfs_rqs[q]);
    }

    /// Prefetches the next CPUs on large machines, where the same event is due on all.
    #[inline]
    pub(crate) fn prefetch_cpus(&self, cpu: CpuId) {
        if self.cpus.len() >= LARGE_CPUS && cpu.ix() + 5 < self.cpus.len() {
            self.prefetch_next_cpus(cpu);
        }
    }

    /// Prefetches state of the five CPUs after this one, if the next one's event is near.
    fn prefetch_next_cpus(&self, cpu: CpuId) {
        let after = |n: u32| CpuId(cpu.0 + n);
        if self.events.expiry_ns(Slot::Cpu(after(1))) - self.now > self.settings.tick_ns {
            return;
        }
        prefetch_lines::<_, 4>(&self.cpus[after(5)]);
        let curr = self.cpus[after(4)].curr;
        prefetch_lines::<_, 4>(&self.cfs_rqs[self.root(after(4))]);
        self.prefetch_task(curr);
        let curr = self.cpus[after(3)].curr;
        if curr.is_some() {
            self.prefetch_se(self.tasks[curr].se);
        }
        let curr = self.cpus[after(2)].curr;
        if curr.is_some() {
            let q = self.ses[self.tasks[curr].se].q;
            if q.is_some() {
                prefetch_lines::<_, 3>(&self.cfs_rqs[q]);
            }
        }
        let curr = self.cpus[after(1)].curr;
        if curr.is_some() {
            let q = self.ses[self.tasks[curr].se].q;
            if q.is_some() && self.cfs_rqs[q].parent.is_some() {
                self.prefetch_se(self.cfs_rqs[q].se);
                prefetch_lines::<_, 3>(&self.cfs_rqs[self.cfs_rqs[q].parent]);
            }
        }
    }
}
