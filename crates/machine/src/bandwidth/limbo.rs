//! Parked tasks (6.18+; kernel: `throttle_cfs_rq_work()`, `task_throttle_setup_work()`,
//! `throttled_limbo_list`).

use crate::cpu::Resched;
use crate::fair::{Dequeue, Enqueue};
use crate::faults::Fault;
use crate::ids::{CfsRqId, TaskId};
use crate::machine::Machine;
use crate::step::Step;
use cpumax_outcome::trace::What;

impl Machine<'_> {
    /// Marks a task to park itself when it returns to user mode (6.18+), unless it never does or
    /// exits (kernel: `task_throttle_setup_work()`). A task in user mode on another CPU is
    /// interrupted.
    pub(crate) fn give_throttle_work(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        if !self.rules.unit.is_entity() && t.is_fair() && t.has_user_mode() && !t.signals.exiting {
            t.throttle.work = true;
            // A task in user mode on another CPU is made to enter the kernel.
            if !self.has(Fault::NotKicked) {
                self.kick(task);
            }
        }
    }

    /// Runs a task's throttle work at its return to user mode, where it holds no kernel lock: if a
    /// limit still stops it, dequeues it into the limbo of its run queue, starts the clocks of
    /// throttled time and requests a reschedule (kernel: `throttle_cfs_rq_work()`).
    pub(crate) fn run_throttle_work(&mut self, task: TaskId) {
        self.tasks[task].throttle.work = false;
        self.tasks[task].lab.parking = false;
        if self.tasks[task].signals.exiting || !self.tasks[task].is_fair() {
            return;
        }
        let leaf = self.ses[self.tasks[task].se].q;
        if self.admits_user_mode(leaf) {
            return;
        }
        let now = self.now;
        self.tasks[task].times.ready_since_ns = now;
        self.begin_stall(task);
        if self.rules.pull {
            self.add_parked_weight(task, leaf);
        }
        self.dequeue_task(task, Dequeue::Throttle);
        self.start_clocks_at_park(leaf);
        self.put_in_limbo(task, leaf);
        let cpu = self.tasks[task].cpu;
        self.cpus[cpu].resched = Resched::Now;
        self.emit(cpu, What::Park { task: task.0 });
    }

    /// Whether no limit keeps a task of this run queue from user mode. Under the pull rules this
    /// may take runtime from pools, or deny run queues.
    pub(crate) fn admits_user_mode(&mut self, leaf: CfsRqId) -> bool {
        if self.rules.pull { self.admit_path(leaf) } else { !self.in_throttled_hierarchy(leaf) }
    }

    /// Whether the queue or an ancestor is throttled (kernel: `throttled_hierarchy()`). Changes
    /// nothing.
    #[inline]
    pub(crate) fn in_throttled_hierarchy(&self, q: CfsRqId) -> bool {
        if self.rules.pull {
            return self.path_is_denied(q);
        }
        self.cfs_rqs[q].bandwidth.throttle_count > 0
    }

    /// Marks a dequeued task as parked and adds it to the run queue's limbo list: at the end, or
    /// under the pull rules at its turn.
    pub(crate) fn put_in_limbo(&mut self, task: TaskId, q: CfsRqId) {
        self.tasks[task].throttle.parked = true;
        if self.rules.pull {
            self.insert_parked(task, q);
            return;
        }
        self.cfs_rqs[q].bandwidth.limbo.push(task);
    }

    /// Removes one task from the limbo list of its run queue; it is then neither parked nor queued.
    pub(crate) fn out_of_limbo(&mut self, task: TaskId) {
        let q = self.ses[self.tasks[task].se].q;
        let limbo = &mut self.cfs_rqs[q].bandwidth.limbo;
        if let Some(at) = limbo.iter().position(|&t| t == task) {
            limbo.remove(at);
        }
        if self.rules.pull {
            self.remove_parked_weight(task, q);
        }
        self.tasks[task].throttle.parked = false;
    }

    /// Enqueues all parked tasks of a run queue as woken, the one parked last first (6.18+). Stops
    /// where the queue is throttled again (7.2+).
    pub(crate) fn release_limbo(&mut self, q: CfsRqId) {
        if self.cfs_rqs[q].bandwidth.limbo.is_empty() {
            return;
        }
        let mut parked = std::mem::take(&mut self.cfs_rqs[q].bandwidth.limbo);
        if self.has(Fault::FirstParkedFirst) {
            parked.reverse();
        }
        while let Some(task) = parked.pop() {
            if self.rules.limbo_abortable && self.in_throttled_hierarchy(q) {
                parked.push(task);
                break;
            }
            self.tasks[task].throttle.parked = false;
            let levels = self.levels_to_root(q);
            self.unthrottle_cost.count_enqueued(levels);
            let cpu = self.tasks[task].cpu;
            self.extend_irq(cpu, Step::Unpark);
            self.emit(cpu, What::Unpark { task: task.0 });
            self.skip_parked_time(task);
            self.enqueue_task(task, Enqueue::WakeUp);
        }
        // Tasks that parked meanwhile parked later.
        let limbo = &mut self.cfs_rqs[q].bandwidth.limbo;
        if !limbo.is_empty() {
            parked.append(limbo);
        }
        *limbo = parked;
    }

    /// Number of run queues from this one up to the root, both included.
    fn levels_to_root(&self, mut q: CfsRqId) -> u64 {
        let mut levels = 0;
        while q.is_some() {
            levels += 1;
            q = self.cfs_rqs[q].parent;
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use crate::{Options, kernel, run};

    /// Tasks that the release puts back, where a written limit has left their CPU nothing.
    fn put_back(abortable: &str) -> u64 {
        let text = include_str!("../../../../scenarios/limbo-write.toml");
        let workload = cpumax_workload::parse(text, "limbo-write").expect("it is shipped");
        let kernel = kernel::parse_kernels("7.2").expect("it is modelled")[0];
        let kernel = kernel.with_rule("limit_write_leaves_ns", "0").expect("the rule before 6.18");
        let kernel = kernel.with_rule("limbo_abortable", abortable).expect("it is a rule");
        let options = Options { check: true, ..Options::new(kernel, 1) };
        run(&workload, &options, None, None).expect("it runs").release.tasks
    }

    /// From 6.18 on each limit write leaves 1 ns, so no kernel needs this any more.
    #[test]
    fn a_release_ends_where_its_first_task_throttles_the_group_again() {
        assert_eq!(put_back("true"), 1);
        assert_eq!(put_back("false"), 2);
    }
}
