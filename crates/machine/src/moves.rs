//! Changing a task while it runs, waits or is parked: its group, CPUs, nice, class (kernel:
//! `sched_move_task()`, `set_cpus_allowed_ptr()`, `set_user_nice()`, `__sched_setscheduler()`).

use crate::cpu::Resched;
use crate::events::NEVER;
use crate::fair::{Dequeue, Enqueue};
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::lab::Moving;
use crate::machine::Machine;
use crate::task::{Code, Segment, State, Task};
use cpumax_workload::Class;

/// A task's state before a change, which is restored afterwards.
struct Before {
    running: bool,
    queued: bool,
    parked: bool,
}

impl Machine<'_> {
    /// Whether the task is its CPU's current one.
    fn is_running(&self, task: TaskId) -> bool {
        self.cpus[self.tasks[task].cpu].curr == task
    }

    /// Takes a task off its queue or limbo for a change of group, CPU, class or weight, charging it
    /// before; returns where it was, for `requeue_after_change()` (kernel: `sched_change_begin()`).
    fn dequeue_for_change(&mut self, task: TaskId) -> Before {
        let (cpu, se) = (self.tasks[task].cpu, self.tasks[task].se);
        let running = self.is_running(task);
        if running {
            self.account_work(cpu);
        }
        let t = &self.tasks[task];
        let (parked, class, runnable) =
            (t.throttle.parked, t.attrs.class, t.state == State::Runnable);
        if parked {
            self.out_of_limbo(task);
        }
        let mut queued = false;
        if class == Class::Rt {
            queued = runnable;
            self.rt_dequeue(task);
        } else if self.ses[se].on_rq {
            // A delayed task that sleeps leaves for good.
            queued = runnable;
            self.dequeue_task(task, if runnable { Dequeue::Move } else { Dequeue::Sleep });
        }
        if running && class != Class::Rt {
            self.clear_curr(se);
        }
        Before { running, queued, parked }
    }

    /// Clears the task's entity, and the groups above it, as running children of their levels,
    /// which are charged; groups go back to their timelines.
    fn clear_curr(&mut self, se: SeId) {
        let mut child = se;
        let mut q = self.ses[se].q;
        let root = if q.is_some() { self.root(self.cfs_rqs[q].cpu) } else { CfsRqId::NONE };
        while q.is_some() {
            let was_curr = self.cfs_rqs[q].curr.is_some();
            if was_curr {
                self.charge(q);
            }
            self.cfs_rqs[q].curr = SeId::NONE;
            let competes = !self.is_flat() && q != self.ses[se].q || (!self.is_flat() && q == root);
            if competes && was_curr && self.ses[child].on_rq && child != se {
                self.timeline_insert(q, child);
            }
            child = self.cfs_rqs[q].se;
            q = self.cfs_rqs[q].parent;
        }
    }

    /// Puts a changed task back: queued in its group and on its CPU, running if it was, or in limbo
    /// again if its new group is throttled, too (kernel: `sched_change_end()`). Real-time tasks
    /// leave limbo.
    fn requeue_after_change(&mut self, task: TaskId, before: &Before) {
        if !before.queued && !before.parked {
            return;
        }
        let cpu = self.tasks[task].cpu;
        if before.parked && self.has(Fault::RealTimeStaysParked) && !self.tasks[task].is_fair() {
            self.put_in_limbo(task, self.ses[self.tasks[task].se].q);
            return;
        }
        if self.tasks[task].attrs.class == Class::Rt {
            // A parked task runs at once: no limit of the fair class applies to real-time tasks.
            if !before.running {
                self.rt_enqueue(task);
            }
            return;
        }
        let group = self.tasks[task].group;
        let leaf = self.cfs_rq_or_new(group, cpu);
        let direct = before.parked && !self.has(Fault::MovesByTheQueue);
        if direct && !before.running && !self.admits_user_mode(leaf) {
            // The destination is throttled too: the task stays parked, and no clock starts.
            let se = self.tasks[task].se;
            self.move_load(task, self.ses[se].q, leaf);
            self.ses[se].q = leaf;
            if self.rules.pull {
                self.add_parked_weight(task, leaf);
            }
            self.put_in_limbo(task, leaf);
            return;
        }
        self.enqueue_task(task, Enqueue::Move);
        if before.running {
            self.set_running(cpu, task);
        }
    }

    /// Makes the task, which is queued, the running child of every level of its path. To 7.1 levels
    /// without runtime take some or request a reschedule, which a throttled one also does.
    fn set_running(&mut self, cpu: CpuId, task: TaskId) {
        self.set_next(cpu, TaskId::NONE, task, self.rules.change_protects);
        if !self.rules.exhaustion.throttles() {
            let mut q = self.ses[self.tasks[task].se].q;
            while q.is_some() {
                self.account_runtime(q, 0);
                q = self.cfs_rqs[q].parent;
            }
            if self.in_throttled_hierarchy(self.ses[self.tasks[task].se].q) {
                self.resched(cpu, Resched::Now);
            }
        }
    }

    /// Moves a task to another group, with its load and lag; it may leave limbo or enter it,
    /// preempt, or be rescheduled if it runs (kernel: `sched_move_task()`). Usage that was not
    /// charged yet counts for the new group.
    pub(crate) fn move_to_group(&mut self, task: TaskId, group: GroupId) {
        if self.tasks[task].group == group {
            return;
        }
        let se = self.tasks[task].se;
        let q = self.ses[se].q;
        let mut late_from_ns = self.now;
        if self.is_running(task) && self.tasks[task].is_fair() && q.is_some() {
            // Ticks that were not events would have charged it when they were due.
            self.charge_to_last_tick(q);
            late_from_ns = self.cfs_rqs[q].exec_start_ns;
        }
        let before = self.dequeue_for_change(task);
        if !self.has(Fault::LateUseStays) {
            self.account_late_usage(self.tasks[task].group, group, self.now - late_from_ns);
        }
        if self.rules.queue.is_cfs() && q.is_some() {
            self.detach_from_queue(q, se);
        }
        self.tasks[task].group = group;
        self.requeue_after_change(task, &before);
        let t = &self.tasks[task];
        if (before.queued || before.parked)
            && !before.running
            && !t.throttle.parked
            && t.attrs.class != Class::Rt
        {
            let (cpu, is_idle) = (t.cpu, self.cpus[t.cpu].is_idle());
            // On a single CPU, the task that moves it is running.
            let is_alone = self.cpus.len() == 1;
            if self.rules.move_tests_preemption || is_alone && is_idle {
                self.check_preempt(task);
            }
            let waits = is_idle && self.cpus[cpu].nr_running > 0;
            self.cpus[cpu].has_unnoticed_move |=
                !self.rules.move_tests_preemption && !is_alone && waits;
        }
        let (cpu, t) = (self.tasks[task].cpu, &self.tasks[task]);
        // A task that runs must compete in the new group at once; one that moves itself, after it
        // has run there.
        if before.running && t.attrs.class != Class::Rt && t.lab.moving == Moving::No {
            self.resched(cpu, Resched::Now);
        }
        self.touch(cpu, false);
    }

    /// Moves `ns` of usage that was uncharged at a move from the old groups to the new ones: the
    /// `css_set` changes before the charge (kernel: `cgroup_migrate_execute()`,
    /// `cgroup_account_cputime()`).
    fn account_late_usage(&mut self, mut old: GroupId, mut new: GroupId, ns: u64) {
        while old.ix() != 0 {
            self.groups[old].usage_ns -= ns;
            old = self.groups[old].parent;
        }
        while new.ix() != 0 {
            self.groups[new].usage_ns += ns;
            new = self.groups[new].parent;
        }
    }

    /// Restricts a task to the CPUs of `mask` (an index into `masks`); one that is queued, parked
    /// or running elsewhere moves to the least loaded of these at once, unless it cannot be
    /// preempted.
    pub(crate) fn set_affinity(&mut self, task: TaskId, mask: u32) {
        self.tasks[task].mask = mask;
        let cpu = self.tasks[task].cpu;
        if self.may_use(task, cpu) || self.is_pinned_down(task) {
            return;
        }
        let t = &self.tasks[task];
        if self.ses[t.se].on_rq
            || t.throttle.parked
            || t.attrs.class == Class::Rt && t.state == State::Runnable
        {
            let to = self.least_loaded(task, cpu);
            self.evict(task, to);
        }
    }

    /// Whether the task runs and cannot be preempted: it holds a spin lock, spins, or has
    /// interrupts off.
    pub(crate) fn is_pinned_down(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        self.is_running(task)
            && (t.locking.spinning > 0 || matches!(t.segment, Segment::IrqOff | Segment::Spin))
    }

    /// Moves a task to another CPU, whatever its state, where it may preempt; a running one stops
    /// running and its CPU reschedules.
    pub(crate) fn evict(&mut self, task: TaskId, to: CpuId) {
        let from = self.tasks[task].cpu;
        let mut before = self.dequeue_for_change(task);
        if before.running {
            self.retry_lock(task);
            self.stop_spinning_for(task);
            before.running = false;
            self.note_idle_change(from);
            self.update_util_before_switch(from);
            self.cpus[from].curr = TaskId::NONE;
            self.tasks[task].times.ready_since_ns = self.now;
            self.begin_stall(task);
            self.emit(from, cpumax_outcome::trace::What::Switch { next: None });
            self.cpus[from].resched = Resched::Now;
            self.touch(from, true);
        }
        self.set_cpu(task, to);
        self.requeue_after_change(task, &before);
        let t = &self.tasks[task];
        if (before.queued || before.parked) && !t.throttle.parked && t.attrs.class != Class::Rt {
            self.check_preempt(task);
        }
        self.touch(to, false);
    }

    /// Changes a task's nice value and weight; it may preempt or lose the CPU (kernel:
    /// `set_user_nice()`).
    pub(crate) fn set_nice(&mut self, task: TaskId, nice: i8) {
        let nice = nice.clamp(-20, 19);
        let was = self.tasks[task].attrs.nice;
        if was == nice {
            return;
        }
        self.change_weight(task, false, |t| t.attrs.nice = nice);
        let (cpu, t) = (self.tasks[task].cpu, &self.tasks[task]);
        if t.attrs.class == Class::Rt || !self.ses[t.se].on_rq || t.throttle.parked {
            return;
        }
        // A lower priority may end its turn, a higher one may preempt (kernel:
        // `prio_changed_fair()`).
        if self.cpus[cpu].curr != task {
            self.check_preempt(task);
        } else if nice > was && self.cpus[cpu].nr_running > 1 {
            self.resched(cpu, Resched::Now);
        }
    }

    /// Takes a task off its queue, calls `change` on it, and queues it anew with the weight that it
    /// has then; its load is rescaled (kernel: `set_user_nice()`, `__sched_setscheduler()`). With
    /// `moves`, CFS updates the queue's minimum vruntime in between. Only `change` for real-time
    /// tasks.
    fn change_weight(&mut self, task: TaskId, moves: bool, change: impl FnOnce(&mut Task)) {
        if self.tasks[task].attrs.class == Class::Rt {
            change(&mut self.tasks[task]);
            return;
        }
        let before = self.dequeue_for_change(task);
        let q = self.ses[self.tasks[task].se].q;
        if moves && self.rules.queue.is_cfs() && q.is_some() {
            self.update_min_vruntime_up(q);
        }
        let old = self.nominal_weight(task);
        change(&mut self.tasks[task]);
        if q.is_some() {
            self.rescale_load(task, q, old, self.nominal_weight(task));
        }
        let se = self.tasks[task].se;
        // On a flat queue an entity's weight depends on its whole path, and is recomputed when it
        // is queued again.
        if !self.is_flat() || self.ses[se].on_rq {
            self.reweight(se, self.nominal_weight(task));
        }
        self.requeue_after_change(task, &before);
        self.touch(self.tasks[task].cpu, false);
    }

    /// Sets a new task's class, among the fair ones, and nice value at once: changes its weight and
    /// tests for preemption (kernel: `sched_setattr()`, which updates the queue where the priority
    /// changes).
    pub(crate) fn set_attributes(&mut self, task: TaskId, class: Class, nice: i8) {
        let t = &self.tasks[task];
        if t.attrs.class == class && t.attrs.nice == nice {
            return;
        }
        let moves = t.attrs.nice != nice;
        self.change_weight(task, moves, |t| {
            t.attrs.class = class;
            t.attrs.nice = nice;
        });
        if self.ses[self.tasks[task].se].on_rq && !self.tasks[task].throttle.parked {
            self.check_preempt(task);
        }
    }

    /// Changes a task's scheduling class: between fair classes its weight; else it changes queues,
    /// and on the way to real-time it leaves limbo and its load leaves its groups. Requests the
    /// reschedule that it needs.
    pub(crate) fn set_class(&mut self, task: TaskId, class: Class) {
        let old = self.tasks[task].attrs.class;
        if old == class {
            return;
        }
        if old != Class::Rt && class != Class::Rt {
            let was_parked = self.tasks[task].throttle.parked;
            self.change_weight(task, false, |t| t.attrs.class = class);
            // Runtime whose interrupt is on its way lets the task leave limbo here.
            if was_parked && !self.tasks[task].throttle.parked {
                self.check_preempt(task);
            }
            return;
        }
        let before = self.dequeue_for_change(task);
        if class == Class::Rt {
            self.detach_load(task);
        }
        self.tasks[task].attrs.class = class;
        if class != Class::Rt {
            self.reset_weight(task);
        }
        self.requeue_after_change(task, &before);
        let cpu = self.tasks[task].cpu;
        if before.queued && !before.running && class != Class::Rt {
            self.check_preempt(task);
        }
        if before.running && class != Class::Rt && !self.has(Fault::FairRunsOn) {
            self.resched(cpu, Resched::Now);
        }
        self.touch(cpu, false);
    }

    // Real-time tasks: one first-in-first-out queue per CPU, one priority.

    /// Appends a real-time task to its CPU's real-time queue and requests a reschedule, unless a
    /// real-time task runs.
    pub(crate) fn rt_enqueue(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        self.cpus[cpu].rt.queue.push_back(task);
        let curr = self.cpus[cpu].curr;
        if curr.is_none() || self.tasks[curr].attrs.class != Class::Rt {
            self.resched(cpu, Resched::Now);
        }
        self.keep_clock(cpu);
        if self.tasks[task].at.code == Code::Outside
            && let Some(woken_ns) = self.outside_woken_ns()
        {
            self.cpus[cpu].kept_clock_ns = woken_ns;
        }
    }

    /// Removes a task from its CPU's real-time queue.
    pub(crate) fn rt_dequeue(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        self.cpus[cpu].rt.queue.retain(|&t| t != task);
    }

    /// Whether this run queue or an ancestor is throttled, so that nothing below can run (to 6.17).
    fn is_below_throttled_entity(&self, mut q: CfsRqId) -> bool {
        while q.is_some() {
            if self.cfs_rqs[q].bandwidth.throttled {
                return true;
            }
            q = self.cfs_rqs[q].parent;
        }
        false
    }

    /// Whether a task is parked, or below a throttled group's entity (to 6.17).
    pub(crate) fn is_parked_or_stopped(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        let q = self.ses[t.se].q;
        t.throttle.parked
            || (self.rules.unit.is_entity() && q.is_some() && self.is_below_throttled_entity(q))
    }

    /// Whether the task is runnable and not running, parked tasks included.
    pub(crate) fn is_waiting(&self, task: TaskId) -> bool {
        self.tasks[task].times.ready_since_ns != NEVER
    }
}
