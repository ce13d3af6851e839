//! Choosing the next task of a CPU (kernel: `__schedule()`, `pick_next_task_fair()`,
//! `put_prev_task_fair()`, `set_next_task_fair()`).
//!
//! The previous task is put back on all levels and the next one set on all levels. Where the
//! kernel stops at the level that both share, that level is computed, since levels that are *not*
//! checked matter in 7.2.

use crate::cpu::Resched;
use crate::events::NEVER;
use crate::fair::Dequeue;
use crate::ids::{CfsRqId, CpuId, SeId, TaskId};
use crate::machine::Machine;
use crate::rules::{Queue, WorkTest};
use crate::se::Owner;
use crate::step::Told;
use crate::task::{Mode, Segment, State};
use cpumax_outcome::trace::What;
use cpumax_workload::Class;

impl Machine<'_> {
    /// Puts the current task of a CPU back, picks the next and switches to it (kernel:
    /// `__schedule()`). Clears the pending reschedule; charges, throttles and balances on the way.
    pub(crate) fn schedule(&mut self, cpu: CpuId) {
        let prev = self.cpus[cpu].curr;
        self.cpus[cpu].resched = Resched::No;
        self.cpus[cpu].has_unnoticed_move = false;
        if self.rules.hrtick.is_by_slice() {
            self.cpus[cpu].next.hrtick_ns = NEVER;
        }
        self.account_work(cpu);
        let clock_ns = self.exclude_time_since_kept_clock(cpu);
        let queued = prev.is_some() && self.put_prev(prev);
        if self.has_parked_to_return(cpu) {
            self.bring_back_parked(cpu);
        }
        let next = self.pick_next(cpu);
        self.put_levels(cpu, prev, next, self.now - clock_ns);
        if queued {
            self.clear_prev(prev);
        }
        if next.is_some() && self.tasks[next].is_fair() {
            self.set_next(cpu, prev, next, true);
        }
        if clock_ns < self.now {
            self.charge_from(prev, next, clock_ns);
        }
        // The pick charged tasks that no longer run, and may have throttled them.
        self.cpus[cpu].resched = Resched::No;
        if self.has_parked_to_return(cpu) {
            self.resched(cpu, Resched::Lazy);
        }
        if next == prev {
            if self.rules.hrtick_each_pick {
                self.start_hrtick(cpu, false);
            }
            self.end_wait(next);
            return;
        }
        self.switch(cpu, prev, next);
    }

    /// Makes `next` the current task of a CPU, none for idle: ends its wait, starts the slice
    /// timer, updates utilisation, and emits the switch. Under noise the switch takes time.
    fn switch(&mut self, cpu: CpuId, prev: TaskId, next: TaskId) {
        if prev.is_some() {
            self.note_preempted(prev);
        }
        if next.is_some() {
            self.tell(next, Told::Resumed);
        }
        if prev.is_none() || next.is_none() {
            self.note_idle_change(cpu);
        }
        self.update_util_before_switch(cpu);
        self.update_task_util(next, false);
        self.cpus[cpu].curr = next;
        self.cpus[cpu].accounted_ns = self.now;
        if !self.locks.spinners.is_empty() {
            self.stop_spinning_for(prev);
        }
        self.charge_switch(cpu, prev);
        if next.is_none() {
            self.cpus[cpu].next.hrtick_ns = NEVER;
        } else {
            self.start_hrtick(cpu, prev.is_none());
        }
        let next = if next.is_some() { Some(next.0) } else { None };
        self.emit(cpu, What::Switch { next });
        self.end_wait(self.cpus[cpu].curr);
    }

    /// Stores the time of a wakeup that has requested a reschedule as the CPU's kept clock: the
    /// kernel's reschedule reuses that clock, however late it comes (kernel: `wakeup_preempt()`).
    pub(crate) fn keep_clock(&mut self, cpu: CpuId) {
        let c = &mut self.cpus[cpu];
        let keeps = c.resched == Resched::Now && c.curr.is_some() && !self.rules.pull;
        if keeps && self.tasks[c.curr].state == State::Runnable {
            c.kept_clock_ns = self.now.max(c.lab.leaves_irq_ns);
        }
    }

    /// Moves the CPU's kept clock, if any, to now, as any other action on the run queue before the
    /// reschedule does.
    pub(crate) fn renew_kept_clock(&mut self, cpu: CpuId) {
        let c = &mut self.cpus[cpu];
        if c.kept_clock_ns < self.now {
            c.kept_clock_ns = self.now;
        }
    }

    /// Has the current task charged only up to the kept clock of a reschedule, which is returned,
    /// ns, and cleared: the time since then is taken out of its next charge. Now if there is none.
    fn exclude_time_since_kept_clock(&mut self, cpu: CpuId) -> u64 {
        self.cpus[cpu].lab.point_ns = 0;
        let kept_ns = std::mem::replace(&mut self.cpus[cpu].kept_clock_ns, NEVER);
        let curr = self.cpus[cpu].curr;
        if kept_ns >= self.now || curr.is_none() || !self.tasks[curr].is_fair() {
            return self.now;
        }
        let leaf = self.ses[self.tasks[curr].se].q;
        let mut clock_ns = kept_ns;
        let mut q = leaf;
        while q.is_some() {
            // Ticks that were not events would have charged when they were due. No time is charged
            // twice.
            self.charge_to_last_tick(q);
            clock_ns = clock_ns.max(self.cfs_rqs[q].exec_start_ns);
            q = self.cfs_rqs[q].parent;
        }
        let mut q = leaf;
        while q.is_some() {
            self.cfs_rqs[q].exec_start_ns += self.now - clock_ns;
            q = self.cfs_rqs[q].parent;
        }
        clock_ns
    }

    /// Charges the time since `clock_ns` to the next task: its run queues count from then on.
    fn charge_from(&mut self, prev: TaskId, next: TaskId, clock_ns: u64) {
        if next.is_none() {
            return;
        }
        if !self.tasks[next].is_fair() {
            let ns = self.now - clock_ns;
            self.tasks[next].times.usage_ns += ns;
            self.account_rt_usage(self.tasks[next].group, ns);
            return;
        }
        let last = self.last_touched_level(self.tasks[next].cpu, prev, next);
        let mut stays = false;
        let mut q = self.ses[self.tasks[next].se].q;
        while q.is_some() {
            let rq = &mut self.cfs_rqs[q];
            if !stays || rq.se.is_none() {
                rq.exec_start_ns = clock_ns;
            }
            stays |= q == last;
            q = rq.parent;
        }
    }

    /// Puts the running task back on its queues if it is still runnable, charging each level;
    /// levels without runtime are throttled (to 7.1) (kernel: `put_prev_task_fair()`). True if it
    /// or a group of it was queued again.
    fn put_prev(&mut self, prev: TaskId) -> bool {
        let (class, state, se) =
            (self.tasks[prev].attrs.class, self.tasks[prev].state, self.tasks[prev].se);
        if state == State::Runnable && !self.tasks[prev].throttle.parked {
            self.tasks[prev].times.ready_since_ns = self.now;
            self.begin_stall(prev);
        }
        if class == Class::Rt {
            if state == State::Runnable {
                let cpu = self.tasks[prev].cpu;
                if !self.cpus[cpu].rt.queue.contains(&prev) {
                    self.cpus[cpu].rt.queue.push_front(prev);
                }
            }
            return false;
        }
        if self.rules.unit.is_entity() {
            self.check_runtime_from_above(self.ses[se].q);
        }
        let mut queued = false;
        let mut child = se;
        let mut q = self.ses[se].q;
        let root = self.root(self.cfs_rqs[q].cpu);
        let flat = self.is_flat();
        let late = self.puts_levels_late();
        while q.is_some() {
            if late && child != se && q != root {
                (child, q) = (self.cfs_rqs[q].se, self.cfs_rqs[q].parent);
                continue;
            }
            if self.ses[child].on_rq {
                self.charge(q);
            }
            self.check_runtime_at_put(q);
            let rq = &mut self.cfs_rqs[q];
            let (group_se, parent) = (rq.se, rq.parent);
            // The check may have dequeued this queue's entity; its own child stays queued.
            if rq.curr == child || flat {
                rq.curr = SeId::NONE;
                let on_timeline = !flat || q == root;
                let competitor = if flat { se } else { child };
                if on_timeline && self.ses[competitor].on_rq {
                    self.cfs_rqs[q].prev = competitor;
                    self.timeline_insert(q, competitor);
                    queued = true;
                }
            }
            child = group_se;
            q = parent;
        }
        queued
    }

    /// Throttles levels without runtime from the root down, as the pick does before the previous
    /// task is put back: a group is throttled before those below it. Only where a level has no
    /// other child; false where the descent ends.
    fn check_runtime_from_above(&mut self, q: CfsRqId) -> bool {
        let parent = self.cfs_rqs[q].parent;
        if parent.is_none() {
            return true;
        }
        let is_queued = self.ses[self.cfs_rqs[q].se].on_rq;
        if !self.check_runtime_from_above(parent) || self.cfs_rqs[parent].nr != 1 || !is_queued {
            return false;
        }
        self.charge(q);
        self.check_runtime_at_put(q);
        !self.cfs_rqs[q].bandwidth.throttled
    }

    /// Clears the entity that ran before (`prev`) on every level after a pick.
    fn clear_prev(&mut self, prev: TaskId) {
        let mut q = self.timeline_of(self.ses[self.tasks[prev].se].q);
        while q.is_some() {
            let rq = &mut self.cfs_rqs[q];
            rq.prev = SeId::NONE;
            q = rq.parent;
        }
    }

    /// Chooses the task to run next; none: idle. Takes a real-time task off its queue; a CPU about
    /// to go idle pulls tasks from others first.
    fn pick_next(&mut self, cpu: CpuId) -> TaskId {
        if let Some(task) = self.cpus[cpu].rt.queue.pop_front() {
            return task;
        }
        let mut tried_balancing = false;
        loop {
            let task = self.pick_fair(cpu);
            if task.is_some() {
                return task;
            }
            if self.has_parked_to_return(cpu) {
                // The last task that ran went to sleep during the pick.
                self.bring_back_parked(cpu);
                continue;
            }
            if tried_balancing || !self.balance_newidle(cpu) {
                return TaskId::NONE;
            }
            tried_balancing = true;
        }
    }

    /// Picks a fair task from the root down; none if no task is queued. Delayed entities that it
    /// meets are dequeued; levels out of runtime are throttled or have the task park (6.6 to 7.1).
    fn pick_fair(&mut self, cpu: CpuId) -> TaskId {
        'again: loop {
            let mut q = self.root(cpu);
            let mut throttled = false;
            loop {
                let se = self.pick(q);
                if se.is_none() {
                    debug_assert!(
                        q == self.root(cpu) || self.rules.queue.is_cfs(),
                        "empty group queued"
                    );
                    return TaskId::NONE;
                }
                if self.ses[se].delayed {
                    self.dequeue_delayed(se);
                    continue 'again;
                }
                match self.ses[se].owner() {
                    Owner::Group(child) => {
                        if self.check_level_at_pick(child, &mut throttled) {
                            continue 'again;
                        }
                        q = child;
                    }
                    Owner::Task(task) => {
                        if throttled {
                            self.give_throttle_work(task);
                        }
                        return task;
                    }
                }
            }
        }
    }

    /// Dequeues a delayed entity that a pick met, with groups that run empty: it now sleeps for
    /// good.
    pub(crate) fn dequeue_delayed(&mut self, se: SeId) {
        match self.ses[se].owner() {
            Owner::Group(_) => self.dequeue_delayed_group(se),
            Owner::Task(task) => {
                self.dequeue_task(task, Dequeue::Sleep);
            }
        }
    }

    /// Throttles a level that is out of runtime during the descent of a pick (6.6 to 7.1), and sets
    /// `throttled` where the task is to park. True: the pick must start again.
    fn check_level_at_pick(&mut self, q: CfsRqId, throttled: &mut bool) -> bool {
        if self.rules.exhaustion.throttles() || self.rules.queue.is_cfs() {
            return false;
        }
        let bw = &self.cfs_rqs[q].bandwidth;
        if bw.enabled && !bw.throttled && bw.runtime_remaining_ns <= 0 {
            let stopped = self.throttle(q);
            if stopped && self.rules.unit.is_entity() {
                return true;
            }
        }
        if self.rules.work_test == WorkTest::EveryPick {
            *throttled |= self.in_throttled_hierarchy(q);
        }
        false
    }

    /// Sets the next task as running on every level of its path: takes entities off timelines,
    /// begins slices and protection. Levels above the one on which both tasks compete are not set
    /// anew: neither their slice nor their protection begins again (kernel:
    /// `set_next_task_fair()`).
    pub(crate) fn set_next(&mut self, cpu: CpuId, prev: TaskId, next: TaskId, protects: bool) {
        if prev != next && self.probes.question.is_some() {
            self.answer_question(cpu, next);
        }
        let se = self.tasks[next].se;
        let leaf = self.ses[se].q;
        let flat = self.is_flat();
        let stays =
            !flat && prev.is_some() && self.tasks[prev].is_fair() && self.tasks[prev].cpu == cpu;
        let common =
            if stays && prev != next { self.common_cfs_rq(prev, next) } else { CfsRqId::NONE };
        let last = self.last_touched_level(cpu, prev, next);
        let mut untouched = false;
        let mut anew = prev != next;
        if flat {
            self.set_flat_curr(cpu, se);
            if anew {
                self.reweight_flat_curr(cpu);
                if protects {
                    self.protect(self.root(cpu), se);
                }
            }
        }
        let mut child = se;
        let mut q = leaf;
        while q.is_some() {
            if !self.ses[child].on_rq {
                // A task that moved while it ran into a group whose entity is throttled: it leaves
                // the CPU at the next reschedule, and is charged up to here until then.
                break;
            }
            if anew && self.settings.counts_turns {
                let turn = &mut self.extras.turns[child];
                turn.picked_sum_exec_ns = turn.sum_exec_ns;
            }
            if !flat {
                self.timeline_remove(q, child);
                if anew {
                    self.clear_buddies(q, child);
                }
                if anew && protects && !self.rules.queue.is_cfs() {
                    self.protect(q, child);
                }
            }
            anew &= q != common;
            let rq = &mut self.cfs_rqs[q];
            if !(flat && rq.se.is_none()) {
                rq.curr = child;
            }
            if !untouched || rq.se.is_none() {
                rq.exec_start_ns = self.now;
            }
            untouched |= q == last;
            child = rq.se;
            q = rq.parent;
        }
        if prev != next {
            self.check_runtime_at_set(prev, next);
        }
    }

    /// Takes an entity off the timeline of a flat queue's root, and makes it the running child,
    /// charged from now on.
    fn set_flat_curr(&mut self, cpu: CpuId, se: SeId) {
        let root = self.root(cpu);
        self.timeline_remove(root, se);
        self.cfs_rqs[root].curr = se;
        self.cfs_rqs[root].exec_start_ns = self.now;
    }

    /// Takes runtime on each level that is newly set, and gives the task throttle work if one has
    /// none (7.2+).
    fn check_runtime_at_set(&mut self, prev: TaskId, next: TaskId) {
        let stop = match self.rules.work_test {
            WorkTest::EveryPick => return,
            // Levels above the deepest common one keep their running child and are skipped.
            WorkTest::UpToCommon if prev.is_some() && self.tasks[prev].is_fair() => {
                let same_cpu = self.tasks[prev].cpu == self.tasks[next].cpu;
                if same_cpu { self.common_cfs_rq(prev, next) } else { CfsRqId::NONE }
            }
            WorkTest::UpToCommon | WorkTest::AllLevels => CfsRqId::NONE,
        };
        let mut throttled = false;
        let mut q = self.ses[self.tasks[next].se].q;
        while q.is_some() {
            throttled |= if self.rules.pull { !self.admit(q) } else { self.account_runtime(q, 0) };
            if q == stop || throttled && self.rules.pull {
                break;
            }
            q = self.cfs_rqs[q].parent;
        }
        if throttled {
            self.give_throttle_work(next);
            let goes_on = prev.is_some() && self.tasks[prev].throttle.parked;
            self.prefetch_parking(self.root(self.tasks[next].cpu), goes_on);
        }
    }

    /// Handles pending work of a task that returns to user mode: parking, a fatal signal or a stop
    /// (kernel: `exit_to_user_mode_loop()`). True: something happened, check again. False: nothing
    /// is pending, or parking takes time first.
    pub(crate) fn exit_to_user(&mut self, task: TaskId) -> bool {
        let t = &mut self.tasks[task];
        if t.throttle.work {
            if self.delay_parking(task) {
                return false;
            }
            self.run_throttle_work(task);
            return true;
        }
        if t.signals.kill {
            t.signals.kill = false;
            self.exit(task);
            return true;
        }
        if t.signals.stop {
            t.signals.stop = false;
            self.stop_by_signal(task);
            return true;
        }
        false
    }

    /// Stops the running task because of a signal: dequeues it and requests a reschedule.
    fn stop_by_signal(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        t.state = State::Stopped;
        t.mode = Mode::Kernel;
        self.end_stall(task);
        if self.tasks[task].attrs.class == Class::Rt {
            self.rt_dequeue(task);
        } else {
            self.dequeue_task(task, Dequeue::Sleep);
        }
        self.leave_cpu(task);
    }

    /// Applies `sched_yield(2)` of the running task and schedules at once (kernel:
    /// `do_sched_yield()`).
    pub(crate) fn yield_cpu(&mut self, task: TaskId) {
        let (cpu, se) = (self.tasks[task].cpu, self.tasks[task].se);
        self.tasks[task].mode = Mode::Kernel;
        if self.tasks[task].attrs.class == Class::Rt {
            self.cpus[cpu].rt.queue.push_back(task);
        } else if self.cpus[cpu].nr_running > 1 {
            self.charge_path(self.ses[se].q);
            match self.rules.queue {
                Queue::Cfs => {
                    self.clear_buddies(self.ses[se].q, se);
                    self.set_skip_buddy(se);
                }
                Queue::Eevdf | Queue::EevdfFlat => self.yield_eevdf(se),
            }
        }
        // A task without competitors is picked again, unless that finds its group out of runtime.
        self.cpus[cpu].resched = Resched::Now;
        self.schedule(cpu);
    }

    /// Takes a task off its CPU's queues, without delay, or out of limbo.
    pub(crate) fn remove_from_cpu(&mut self, task: TaskId) {
        if self.tasks[task].attrs.class == Class::Rt {
            self.rt_dequeue(task);
        } else if self.tasks[task].throttle.parked {
            self.out_of_limbo(task);
        } else if self.ses[self.tasks[task].se].on_rq {
            self.dequeue_task(task, Dequeue::Now);
        }
    }

    /// Ends the time in which a task is runnable and not running, if it does, and adds it to its
    /// kind's `wait_ns`.
    pub(crate) fn end_wait(&mut self, task: TaskId) {
        if task.is_none() {
            return;
        }
        let now = self.now;
        let t = &mut self.tasks[task];
        if t.times.ready_since_ns == NEVER {
            return;
        }
        let waited_ns = now - t.times.ready_since_ns;
        t.times.ready_since_ns = NEVER;
        if let Some(kind) = self.births.kinds.get_mut(t.kind as usize) {
            kind.wait_ns += waited_ns;
        }
    }

    /// Starts the time in which a task wants to continue and cannot, unless it has begun.
    pub(crate) fn begin_stall(&mut self, task: TaskId) {
        let now = self.now;
        let t = &mut self.tasks[task];
        t.times.stalled_since_ns = t.times.stalled_since_ns.min(now);
    }

    /// Ends the time in which a task wants to continue and cannot, unless it still spins for a
    /// lock; its kind keeps the longest.
    pub(crate) fn end_stall(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        let spins = matches!(t.segment, Segment::Spin | Segment::SpinOnOwner);
        if t.times.stalled_since_ns == NEVER || (spins && self.events.failed.is_none()) {
            return;
        }
        let stalled_ns = self.now - t.times.stalled_since_ns;
        t.times.stalled_since_ns = NEVER;
        if let Some(kind) = self.births.kinds.get_mut(t.kind as usize) {
            kind.longest_stall_ns = kind.longest_stall_ns.max(stalled_ns);
        }
    }
}
