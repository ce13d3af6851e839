//! The tree of parked tasks, and how they come back.
//!
//! Per CPU, a run queue with parked tasks is linked below its parent, up to the first level that
//! holds them back: one that is throttled and waits in its group's list, or one whose runtime has
//! brought back its share. Tasks linked to the root may come back; the children of each level take
//! turns.

use crate::cfs_rq::{Limbo, Parked};
use crate::cpu::Resched;
use crate::fair::Enqueue;
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, Id, TaskId};
use crate::machine::Machine;
use cpumax_outcome::Releaser;
use cpumax_outcome::trace::What;

/// Tasks that come back in one section with interrupts off.
const FEED_MOST: u32 = 16;

impl Machine<'_> {
    /// Makes room for the pull rules' state of all run queues; to be called after new ones.
    pub(crate) fn grow_parked(&mut self) {
        if self.rules.pull {
            self.parked.resize(self.cfs_rqs.len(), Parked::default());
        }
    }

    /// Links a run queue with parked tasks into its parent's list of children to bring back, and so
    /// on up, as far as levels have runtime; a level without waits for a grant (pull rules, a
    /// proposal that is in no kernel). At the root it requests a reschedule, in which tasks come
    /// back.
    pub(super) fn link(&mut self, mut q: CfsRqId) {
        loop {
            let bw = &self.cfs_rqs[q].bandwidth;
            if bw.throttled {
                // `reopen()` has linked it.
                if !self.admit(q) {
                    self.wait_for_runtime(q);
                }
                return;
            }
            let asked = !bw.enabled || bw.runtime_remaining_ns > 0;
            if !asked && !self.admit(q) {
                self.wait_for_runtime(q);
                return;
            }
            let limited = self.cfs_rqs[q].bandwidth.enabled;
            if limited && self.parked[q.ix()].feed_ns <= 0 || self.parked[q.ix()].linked {
                return;
            }
            let parent = self.cfs_rqs[q].parent;
            if parent.is_none() {
                let cpu = self.cfs_rqs[q].cpu;
                if !self.has(Fault::CpuNotAsked) {
                    self.resched(cpu, Resched::Lazy);
                }
                return;
            }
            self.before_first_parked(parent);
            self.insert_child(parent, q);
            q = parent;
        }
    }

    /// Inserts a run queue among its parent's children to bring back; the one whose last turn is
    /// longest ago comes first.
    fn insert_child(&mut self, parent: CfsRqId, q: CfsRqId) {
        let turn_ns = self.parked[q.ix()].turn_ns;
        let siblings = &self.parked[parent.ix()].children;
        let before = siblings.iter().rposition(|&other| self.parked[other.ix()].turn_ns <= turn_ns);
        let at = before.map_or(0, |at| at + 1);
        self.parked[parent.ix()].children.insert(at, q);
        self.parked[q.ix()].linked = true;
    }

    /// Gives the path of a task that came back and parked again without running its old turns
    /// (`since_ns`), so that it is first again.
    fn return_turn(&mut self, mut q: CfsRqId, since_ns: u64) {
        while self.parked[q.ix()].turn_ns > since_ns {
            self.parked[q.ix()].turn_ns = since_ns;
            let parent = self.cfs_rqs[q].parent;
            if self.parked[q.ix()].linked {
                self.unlink(q);
                self.insert_child(parent, q);
            }
            if parent.is_none() {
                return;
            }
            q = parent;
        }
    }

    /// To be called before a task parks at a level: for the first, the allowance to come back
    /// starts as the level's runtime.
    fn before_first_parked(&mut self, q: CfsRqId) {
        let bw = &self.cfs_rqs[q].bandwidth;
        if bw.enabled && !self.holds_parked(q) {
            self.parked[q.ix()].feed_ns = bw.runtime_remaining_ns;
        }
    }

    /// Removes a run queue from its parent's children to bring back, if it is linked.
    pub(super) fn unlink(&mut self, q: CfsRqId) {
        if std::mem::take(&mut self.parked[q.ix()].linked) {
            let parent = self.cfs_rqs[q].parent;
            self.parked[parent.ix()].children.retain(|child| *child != q);
        }
    }

    /// Unlinks the run queues of a CPU that goes off line, from which all parked tasks have moved
    /// away, from their parents' children to bring back.
    pub(crate) fn forget_parked(&mut self, cpu: CpuId) {
        if self.rules.pull {
            for group in self.groups.ids() {
                if let Some(&q) = self.groups[group].cfs_rqs.get(cpu.ix()).filter(|q| q.is_some()) {
                    self.unlink(q);
                }
            }
        }
    }

    /// Adds a task to its run queue's limbo list, those first that have waited longest, and links
    /// the queue if it has runtime. A task that came back and found the runtime gone regains its
    /// old place.
    pub(crate) fn insert_parked(&mut self, task: TaskId, q: CfsRqId) {
        self.before_first_parked(q);
        let since_ns = self.tasks[task].times.stalled_since_ns.min(self.now);
        let limbo = &self.cfs_rqs[q].bandwidth.limbo;
        let before = limbo.iter().rposition(|&t| self.tasks[t].times.stalled_since_ns <= since_ns);
        let at = before.map_or(0, |at| at + 1);
        if self.has(Fault::TurnLost) {
            self.cfs_rqs[q].bandwidth.limbo.push(task);
        } else {
            self.cfs_rqs[q].bandwidth.limbo.insert(at, task);
            self.return_turn(q, since_ns);
        }
        if !self.has(Fault::NotHung) {
            self.link(q);
        }
    }

    /// To be called after a task was dequeued: allows one parked task to take its place, unless the
    /// queue is denied.
    pub(crate) fn after_dequeue_pulling(&mut self, q: CfsRqId) {
        if self.holds_parked(q) && !self.cfs_rqs[q].bandwidth.throttled {
            self.feed(q, self.feeds_one_ns());
        }
    }

    /// Whether parked tasks of this CPU may come back: some run queue with runtime is linked up to
    /// the root.
    pub(crate) fn has_parked_to_return(&self, cpu: CpuId) -> bool {
        self.rules.pull && !self.parked[self.root(cpu).ix()].children.is_empty()
    }

    /// Enqueues parked tasks of the CPU when it schedules, as many as their run queues' runtime
    /// feeds (up to [`FEED_MOST`]), as an irq-off section whose cost is charged.
    pub(crate) fn bring_back_parked(&mut self, cpu: CpuId) {
        self.begin_section(Releaser::Handler, cpu);
        for _ in 0..FEED_MOST {
            if !self.has_parked_to_return(cpu) {
                break;
            }
            self.bring_back_one(cpu);
        }
        let cost_ns = self.end_section();
        self.irq_section(cpu, cost_ns);
    }

    /// Takes one task out of limbo, from the child whose turn it is at every level, and enqueues
    /// it; charges each level's allowance. Without one, drops a child that has none to give.
    fn bring_back_one(&mut self, cpu: CpuId) {
        let mut path = std::mem::take(&mut self.extras.scratch);
        path.clear();
        let mut q = self.root(cpu);
        let last = self.has(Fault::LastParkedFirst);
        let first = |limbo: &mut Limbo| limbo.remove(if last { limbo.len() - 1 } else { 0 });
        let task = loop {
            path.push(q);
            let parked = &mut self.parked[q.ix()];
            let limbo = &mut self.cfs_rqs[q].bandwidth.limbo;
            parked.own_turn = !parked.own_turn || parked.children.is_empty();
            if parked.own_turn && !limbo.is_empty() {
                break first(limbo);
            }
            match self.take_next_child(q) {
                Some(child) => q = child,
                None if self.cfs_rqs[q].bandwidth.limbo.is_empty() => break TaskId::NONE,
                None => break first(&mut self.cfs_rqs[q].bandwidth.limbo),
            }
        };
        self.prefetch_task(task);
        self.unthrottle_cost.count_visited(path.len() as u64 - 1);
        let now = self.now;
        let fed_ns = if task.is_some() { self.feeds_one_ns() } else { 0 };
        for (level, &q) in path.iter().enumerate().skip(1).rev() {
            let parked = &mut self.parked[q.ix()];
            parked.feed_ns -= fed_ns;
            if task.is_some() {
                parked.turn_ns = now;
            }
            let sated = self.cfs_rqs[q].bandwidth.enabled && parked.feed_ns <= 0;
            if self.holds_parked(q) && !sated {
                self.insert_child(path[level - 1], q);
            }
        }
        self.extras.scratch = path;
        if task.is_some() {
            self.unpark(task);
        } else if self.cfs_rqs[q].nr == 0 {
            self.return_runtime(q);
        }
    }

    /// Unlinks children of a run queue in order of their turns up to the first that has runtime for
    /// a parked task, which is returned; `None` if no child has.
    fn take_next_child(&mut self, q: CfsRqId) -> Option<CfsRqId> {
        while let Some(&child) = self.parked[q.ix()].children.first() {
            self.prefetch_parked(child);
            self.parked[q.ix()].children.remove(0);
            let parked = &mut self.parked[child.ix()];
            parked.linked = false;
            debug_assert!(!self.cfs_rqs[child].bandwidth.throttled, "a throttled cfs_rq is linked");
            if !self.cfs_rqs[child].bandwidth.enabled || parked.feed_ns > 0 {
                return Some(child);
            }
        }
        None
    }

    /// Enqueues a task that was taken out of the limbo list: it weighs as queued again, and clocks
    /// of throttled time above it stop.
    fn unpark(&mut self, task: TaskId) {
        let (cpu, se) = (self.tasks[task].cpu, self.tasks[task].se);
        let mut q = self.ses[se].q;
        self.remove_parked_weight(task, q);
        self.tasks[task].throttle.parked = false;
        let mut levels = 0;
        while q.is_some() {
            self.stop_self_clock(q);
            levels += 1;
            q = self.cfs_rqs[q].parent;
        }
        self.unthrottle_cost.count_enqueued(levels);
        self.emit(cpu, What::Unpark { task: task.0 });
        self.enqueue_task(task, Enqueue::WakeUp);
    }
}
