//! The fair class: queues tasks at every level of the group tree, and charges running time.
//! Kernel: `enqueue_task_fair()`, `dequeue_task_fair()` and `update_curr()` of
//! kernel/sched/fair.c, 3.16 to 7.3. On the flat queue of 7.3 only tasks compete, on their CPU's
//! root queue; group levels keep counts, load and bandwidth.

pub(crate) mod balance;
pub(crate) mod buddies;
pub(crate) mod cfs;
pub(crate) mod eevdf;
pub(crate) mod levels;
mod load;
pub(crate) mod placement;
mod prefetch;
mod reason;
pub(crate) mod util;
pub(crate) mod weight;

pub(crate) use reason::{Dequeue, Enqueue};

use crate::cfs_rq::{CfsRq, Vacant};
use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::rules::Queue;
use crate::se::{Owner, Se};

/// Run queues allocated at once for one CPU, side by side in memory.
const BLOCK: u32 = 32;

impl Machine<'_> {
    /// The group's run queue on a CPU; made, with its ancestors', where missing, throttled like
    /// these.
    pub(crate) fn cfs_rq_or_new(&mut self, group: GroupId, cpu: CpuId) -> CfsRqId {
        let g = &mut self.groups[group];
        if g.cfs_rqs.is_empty() {
            g.cfs_rqs = vec![CfsRqId::NONE; self.cpus.len()];
        }
        let existing = g.cfs_rqs[cpu.ix()];
        if existing.is_some() {
            return existing;
        }
        let (parent_group, weight) = (g.parent, g.weight);
        let parent = self.cfs_rq_or_new(parent_group, cpu);
        let (id, se) = self.allocate_cfs_rq(cpu);
        self.ses[se] = Se::new(Owner::Group(id), parent, weight, self.settings.base_slice_ns);
        let mut rq = CfsRq::new(group, cpu, parent, se);
        let (before, after) = self.siblings_of_new(group, parent);
        rq.links.next_sibling = after;
        rq.pelt.updated_ns = self.now;
        rq.bandwidth.throttle_count = self.cfs_rqs[parent].bandwidth.throttle_count;
        rq.bandwidth.pelt_frozen = rq.bandwidth.throttle_count > 0;
        rq.bandwidth.enabled = self.groups[group].pool.quota_ns.is_some() && self.cpus[cpu].online;
        self.cfs_rqs[id] = rq;
        self.set_initial_min_vruntime(id);
        if before.is_some() {
            self.cfs_rqs[before].links.next_sibling = id;
        } else {
            self.cfs_rqs[parent].links.first_child = id;
        }
        self.groups[group].cfs_rqs[cpu.ix()] = id;
        if self.cfs_rqs[id].bandwidth.enabled && self.lab.observed.is_some() {
            // On a real kernel its limit was written just before the run.
            self.set_runtime(id, self.rules.limit_write_leaves_ns);
        }
        id
    }

    /// The siblings before and after the place of a group's new queue among its parent's children,
    /// none at an end: walks visit the newest group first (kernel: `list_add_rcu()` in
    /// `sched_online_group()`), whichever was used first.
    fn siblings_of_new(&self, group: GroupId, parent: CfsRqId) -> (CfsRqId, CfsRqId) {
        let (mut before, mut after) = (CfsRqId::NONE, self.cfs_rqs[parent].links.first_child);
        while after.is_some() && self.cfs_rqs[after].group.0 > group.0 {
            before = after;
            after = self.cfs_rqs[after].links.next_sibling;
        }
        (before, after)
    }

    /// Takes an unused run queue and entity out of the CPU's block, or makes a new block of these.
    fn allocate_cfs_rq(&mut self, cpu: CpuId) -> (CfsRqId, SeId) {
        if self.extras.vacant[cpu.ix()].left == 0 {
            let (rq, se) = (CfsRqId::from_ix(self.cfs_rqs.len()), SeId::from_ix(self.ses.len()));
            for _ in 0..BLOCK {
                self.cfs_rqs.push(CfsRq::new(GroupId::NONE, cpu, CfsRqId::NONE, SeId::NONE));
                self.add_entity(Owner::Group(CfsRqId::NONE), 0);
            }
            self.extras.vacant[cpu.ix()] =
                Vacant { rq, se, left: BLOCK, ..self.extras.vacant[cpu.ix()] };
            self.grow_parked();
            self.grow_buddies();
        }
        let vacant = &mut self.extras.vacant[cpu.ix()];
        vacant.left -= 1;
        vacant.made += 1;
        let used = BLOCK - 1 - vacant.left;
        (CfsRqId(vacant.rq.0 + used), SeId(vacant.se.0 + used))
    }

    /// All run queues that belong to a group.
    pub(crate) fn used_cfs_rqs(&self) -> impl Iterator<Item = CfsRqId> {
        self.cfs_rqs.iter().filter(|(_, rq)| rq.group.is_some()).map(|(q, _)| q)
    }

    /// The run queue on which to queue an entity, of its group on this CPU; mostly the one it was
    /// last on. Creates a missing one.
    fn leaf_cfs_rq(&mut self, se: SeId, group: GroupId, cpu: CpuId) -> CfsRqId {
        let q = self.ses[se].q;
        let stays = q.is_some() && self.cfs_rqs[q].group == group && self.cfs_rqs[q].cpu == cpu;
        if stays { q } else { self.cfs_rq_or_new(group, cpu) }
    }

    /// The queue on whose timeline the children of `q` compete: the CPU's root queue on a flat
    /// queue, else `q` itself.
    pub(crate) fn timeline_of(&self, q: CfsRqId) -> CfsRqId {
        if self.is_flat() { self.root(self.cfs_rqs[q].cpu) } else { q }
    }

    /// Number of entities that compete where the children of `q` do, the running one included.
    pub(crate) fn competitors(&self, q: CfsRqId) -> u32 {
        if self.is_flat() {
            self.cfs_rqs[self.root(self.cfs_rqs[q].cpu)].h_nr
        } else {
            self.cfs_rqs[q].nr
        }
    }

    /// Puts a task that is on no queue on that of its group and CPU, with its groups above as far
    /// as they are not queued; updates loads, counts and virtual times (kernel:
    /// `enqueue_task_fair()`). It ends at a throttled level (to 6.17).
    pub(crate) fn enqueue_task(&mut self, task: TaskId, why: Enqueue) {
        let (group, cpu) = (self.tasks[task].group, self.tasks[task].cpu);
        let se = self.tasks[task].se;
        let leaf = self.leaf_cfs_rq(se, group, cpu);
        self.charge_running(cpu);
        self.move_load(task, self.ses[se].q, leaf);
        // The running task has another competitor, which changes when its next tick matters.
        self.touch(cpu, false);
        self.ses[se].q = leaf;
        self.change_group_tasks(group, 1);
        self.add_expected_util(task);
        if !why.is_wakeup() {
            self.attach_load_on_single_cpu(task, leaf, why.is_fork());
        }
        let mut child = se;
        let mut q = leaf;
        let mut queueing = true;
        loop {
            if queueing && self.ses[child].on_rq {
                queueing = false;
                if self.ses[child].delayed {
                    self.requeue_delayed(child);
                }
            }
            if queueing {
                self.enqueue_entity(q, child, why);
            }
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            rq.h_nr += 1;
            rq.h_runnable += 1;
            if self.rules.unit.is_entity() && rq.bandwidth.throttled {
                return;
            }
            child = rq.se;
            if child.is_none() {
                break;
            }
            let parent = rq.parent;
            self.update_share(q);
            q = parent;
        }
        if self.is_flat() {
            // Its weight depends on all levels, which now include it.
            let weight = self.flat_weight(se);
            self.ses[se].set_weight_off_queue(weight);
            self.enqueue_on_timeline(self.root(cpu), se, why);
        }
        self.change_nr_running(cpu, 1);
        self.update_hrtick(cpu, true);
    }

    /// Takes a task off its queue, and its groups above as they run empty; charges the running task
    /// and updates loads and counts (kernel: `dequeue_task_fair()`). False if it stays queued,
    /// delayed, because it goes to sleep with negative lag.
    pub(crate) fn dequeue_task(&mut self, task: TaskId, why: Dequeue) -> bool {
        let se = self.tasks[task].se;
        let leaf = self.ses[se].q;
        let (cpu, group) = (self.cfs_rqs[leaf].cpu, self.cfs_rqs[leaf].group);
        let was_delayed = self.ses[se].delayed;
        self.touch(cpu, false);
        self.charge_running(cpu);
        self.charge(self.timeline_of(leaf));
        self.remove_expected_util(task, why);
        if why.is_sleep() && !was_delayed && self.delays_dequeue(se) {
            self.mark_entity_delayed(self.timeline_of(leaf), se);
            self.count_runnable(leaf, -1);
            return false;
        }
        if self.is_flat() {
            self.charge_path(leaf);
        }
        self.change_group_tasks(group, -1);
        let mut child = se;
        let mut q = leaf;
        let mut dequeueing = true;
        let mut reached_root = false;
        loop {
            if dequeueing
                && child != se
                && !why.is_throttle()
                && self.delay_group_if_owing(q, child)
            {
                dequeueing = false;
            }
            if dequeueing {
                self.dequeue_entity(q, child, why);
                let stopped = self.rules.unit.is_entity() && self.in_throttled_hierarchy(q);
                if self.cfs_rqs[q].nr > 0 && !why.is_move() && !stopped {
                    self.set_next_buddy(self.cfs_rqs[q].se);
                }
            }
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            rq.h_nr -= 1;
            rq.h_runnable -= u32::from(!was_delayed);
            if self.rules.unit.is_entity() && rq.bandwidth.throttled {
                break;
            }
            child = rq.se;
            let parent = rq.parent;
            dequeueing &= rq.nr == 0;
            self.update_share(q);
            if self.rules.pull {
                self.after_dequeue_pulling(q);
            }
            if child.is_none() {
                reached_root = true;
                break;
            }
            // The entity may be off already, below a throttled ancestor.
            dequeueing = dequeueing && self.ses[child].on_rq;
            q = parent;
        }
        if reached_root && !was_delayed {
            self.change_nr_running(cpu, -1);
        }
        self.ses[se].delayed = false;
        self.update_hrtick(cpu, false);
        true
    }

    /// Dequeues a delayed group that was picked, and its ancestors as they run empty, up to one
    /// that is delayed itself (kernel: `dequeue_entities()` with `DEQUEUE_DELAYED`).
    pub(crate) fn dequeue_delayed_group(&mut self, mut se: SeId) {
        loop {
            let q = self.ses[se].q;
            self.dequeue_entity(q, se, Dequeue::Sleep);
            self.ses[se].delayed = false;
            se = self.cfs_rqs[q].se;
            if self.cfs_rqs[q].nr > 0 {
                self.set_next_buddy(se);
                return;
            }
            if se.is_none() || self.delay_group_if_owing(self.ses[se].q, se) {
                return;
            }
        }
    }

    /// Marks a queued task as delayed, as on the queue that it left: it does not count as runnable.
    pub(crate) fn mark_delayed(&mut self, task: TaskId) {
        let se = self.tasks[task].se;
        self.remove_expected_util(task, Dequeue::Move);
        self.ses[se].delayed = true;
        self.count_runnable(self.ses[se].q, -1);
    }

    /// Changes the count of runnable tasks at every level from `q` up, and `nr_running` of its CPU,
    /// when a queued task becomes delayed (-1) or is delayed no longer (+1). Up to 6.17 a throttled
    /// level is the last that is changed.
    pub(crate) fn count_runnable(&mut self, mut q: CfsRqId, change: i32) {
        let cpu = self.cfs_rqs[q].cpu;
        self.touch(cpu, false);
        while q.is_some() {
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            rq.h_runnable = rq.h_runnable.checked_add_signed(change).expect("counts match");
            if self.rules.unit.is_entity() && rq.bandwidth.throttled {
                return;
            }
            q = rq.parent;
        }
        self.change_nr_running(cpu, change);
    }

    /// Changes a CPU's number of runnable tasks; two or more start rounds of balancing.
    pub(crate) fn change_nr_running(&mut self, cpu: CpuId, change: i32) {
        let c = &mut self.cpus[cpu];
        c.nr_running = c.nr_running.checked_add_signed(change).expect("counts match");
        let nr_running = c.nr_running;
        self.balancing.nr_running[cpu.ix()] = nr_running;
        if change > 0 && nr_running >= 2 {
            self.arm_balance();
        }
    }

    /// Changes a group's and its ancestors' number of queued and parked tasks (pull rules only).
    pub(crate) fn change_group_tasks(&mut self, group: GroupId, change: i32) {
        if self.rules.group_share != crate::rules::GroupShare::Queued {
            return;
        }
        let mut group = group;
        while group.ix() != 0 {
            let g = &mut self.groups[group];
            g.h_nr = g.h_nr.saturating_add_signed(change);
            group = g.parent;
        }
    }

    /// Weight that an entity contributes to its queue's load: on a flat queue a task's nominal one.
    pub(crate) fn load_of(&self, se: SeId) -> u64 {
        match self.ses[se].owner() {
            Owner::Task(task) if self.is_flat() => self.nominal_weight(task),
            _ => self.ses[se].weight,
        }
    }

    /// Queues an entity on one level: charges the queue, places the entity on the timeline, updates
    /// load and count (kernel: `enqueue_entity()`). The first on a queue takes runtime, or
    /// throttles it.
    pub(crate) fn enqueue_entity(&mut self, q: CfsRqId, se: SeId, why: Enqueue) {
        self.charge(q);
        self.pelt_update(q);
        let load = self.load_of(se);
        self.update_queued(se);
        if self.is_flat() {
            match self.ses[se].owner() {
                Owner::Task(_) => self.charge(self.root(self.cfs_rqs[q].cpu)),
                Owner::Group(child) => self.uncount_parked_before_enqueue(child),
            }
            self.cfs_rqs[q].load += load;
        } else {
            let is_task = matches!(self.ses[se].owner(), Owner::Task(_));
            self.cfs_rqs[q].load += load;
            self.enqueue_on_timeline(q, se, if is_task { why } else { Enqueue::WakeUp });
        }
        self.ses[se].on_rq = true;
        let rq = &mut self.cfs_rqs[q];
        rq.nr += 1;
        if rq.nr == 1 {
            self.after_first_enqueue(q);
        }
    }

    /// Dequeues an entity from one level: charges the queue, stores the entity's lag, takes it off
    /// the timeline, updates load and count (kernel: `dequeue_entity()`). The last one returns the
    /// queue's runtime.
    pub(crate) fn dequeue_entity(&mut self, q: CfsRqId, se: SeId, why: Dequeue) {
        self.charge(q);
        self.pelt_update(q);
        let is_task = matches!(self.ses[se].owner(), Owner::Task(_));
        if is_task || !self.is_flat() {
            let tq = self.timeline_of(q);
            if tq != q {
                self.charge(tq);
            }
            self.clear_buddies(tq, se);
            self.store_lag(tq, se);
            let rq = &mut self.cfs_rqs[tq];
            if rq.prev == se {
                rq.prev = SeId::NONE;
            }
            if rq.curr != se {
                self.timeline_remove(tq, se);
            }
            // A group that runs empty is dequeued as if it slept, whatever its task does.
            self.keep_distance(tq, se, if is_task { why } else { Dequeue::Sleep });
        }
        let load = self.load_of(se);
        self.update_queued(se);
        self.ses[se].on_rq = false;
        if self.rules.queue.is_cfs() && !why.is_move() {
            // A task that moves may return to where it was: see `detach_from_queue()`.
            self.update_min_vruntime(q);
        }
        let rq = &mut self.cfs_rqs[q];
        rq.load -= load;
        rq.nr -= 1;
        if rq.nr == 0 {
            self.after_last_dequeue(q);
        }
        if let Owner::Group(child) = self.ses[se].owner() {
            self.count_parked_after_dequeue(child);
        }
    }

    /// Charges the running task in this group up to now: on a flat queue at every level, else at
    /// this one (kernel: `update_curr_fair()`).
    pub(crate) fn charge_leaf(&mut self, leaf: CfsRqId) {
        if self.is_flat() {
            self.charge_path(leaf);
        } else {
            self.charge(leaf);
        }
    }

    /// On a flat queue: charges the CPU's running task in its own group, and in none above, when
    /// another task is queued or delayed (kernel: `update_curr_eevdf()`).
    pub(crate) fn charge_running(&mut self, cpu: CpuId) {
        if self.is_flat() {
            let curr = self.cfs_rqs[self.root(cpu)].curr;
            if curr.is_some() && self.ses[curr].on_rq {
                self.charge(self.ses[curr].q);
            }
        }
    }

    /// Charges every level from this queue to the root up to now.
    pub(crate) fn charge_path(&mut self, mut q: CfsRqId) {
        while q.is_some() {
            self.charge(q);
            q = self.cfs_rqs[q].parent;
        }
    }

    /// Charges a running task and its groups at the end of the run; takes no runtime.
    pub(crate) fn charge_path_for_close(&mut self, task: TaskId) {
        let mut q = self.ses[self.tasks[task].se].q;
        while q.is_some() {
            let (from, group) = (self.cfs_rqs[q].exec_start_ns, self.cfs_rqs[q].group);
            if group.ix() == 0 {
                self.tasks[task].times.usage_ns += self.now - from;
            } else {
                self.account_usage(group, from);
            }
            self.cfs_rqs[q].exec_start_ns = self.now;
            q = self.cfs_rqs[q].parent;
        }
    }

    /// Charges the running child of one level for the time since its last charge: usage, virtual
    /// time, runtime (kernel: `update_curr()`). It may throttle or request a reschedule.
    #[inline]
    pub(crate) fn charge(&mut self, q: CfsRqId) {
        let rq = &self.cfs_rqs[q];
        if rq.curr.is_some() && rq.exec_start_ns != self.now {
            self.charge_curr(q, true);
        }
    }

    /// Charges the running child of a queue since its last charge: virtual time; usage, if it is
    /// use, of the task at the root, else of the group; below the root runtime, which may throttle.
    pub(crate) fn charge_curr(&mut self, q: CfsRqId, is_use: bool) {
        let rq = &mut self.cfs_rqs[q];
        let (from, curr, group, cpu) = (rq.exec_start_ns, rq.curr, rq.group, rq.cpu);
        rq.exec_start_ns = self.now;
        let ran_ns = self.now - from;
        let is_root = group.ix() == 0;
        if is_root || !self.is_flat() {
            self.advance(q, curr, from);
        }
        if is_use && is_root {
            self.tasks[self.cpus[cpu].curr].times.usage_ns += ran_ns;
        } else if is_use {
            self.account_usage(group, from);
        }
        if !is_root {
            self.account_runtime(q, ran_ns);
        }
    }

    /// Advances the virtual time of a queue's running child for the CPU time since `from_ns`, and
    /// what depends on it: minimum vruntime or deadline.
    fn advance(&mut self, q: CfsRqId, se: SeId, from_ns: u64) {
        if self.settings.counts_turns {
            self.extras.turns[se].sum_exec_ns += self.now - from_ns;
        }
        match self.rules.queue {
            Queue::Cfs => {
                self.ses[se].advance(self.now - from_ns);
                self.update_min_vruntime(q);
            }
            Queue::Eevdf | Queue::EevdfFlat => self.advance_eevdf(q, se, from_ns),
        }
    }

    /// Adds the CPU time since `from_ns` to a group's usage, to its usage by windows of a period if
    /// it is limited, and to the measurements of a watched group.
    fn account_usage(&mut self, group: GroupId, from_ns: u64) {
        self.watch_usage(group, from_ns);
        let (now, g) = (self.now, &mut self.groups[group]);
        g.usage_ns += now - from_ns;
        if g.pool.quota_ns.is_some() {
            g.windows.add(from_ns, now);
            if g.windows.are_many() {
                self.close_windows(group);
            }
        }
    }

    /// Closes usage windows before the time up to which all the group's running tasks are charged.
    #[cold]
    fn close_windows(&mut self, group: GroupId) {
        let queues = self.groups[group].cfs_rqs.iter().filter(|q| q.is_some());
        let running = queues.map(|&q| &self.cfs_rqs[q]).filter(|rq| rq.curr.is_some());
        let charged_ns = running.map(|rq| rq.exec_start_ns).min().unwrap_or(self.now);
        self.groups[group].windows.close_before(charged_ns);
    }

    /// Adds `ns` up to now of CPU time of a real-time task to its groups' usage; no limit applies.
    pub(crate) fn account_rt_usage(&mut self, mut group: GroupId, ns: u64) {
        while group.ix() != 0 {
            self.account_usage(group, self.now - ns);
            group = self.groups[group].parent;
        }
    }

    /// Sets virtual time (and deadline) of an entity that is being queued, and inserts it into the
    /// timeline unless it runs.
    fn enqueue_on_timeline(&mut self, tq: CfsRqId, se: SeId, why: Enqueue) {
        self.place(tq, se, why);
        if self.cfs_rqs[tq].curr != se {
            self.timeline_insert(tq, se);
        }
    }

    /// Sets virtual time and deadline of an entity that is being queued (kernel: `place_entity()`).
    fn place(&mut self, tq: CfsRqId, se: SeId, why: Enqueue) {
        match self.rules.queue {
            Queue::Cfs => self.place_cfs(tq, se, why),
            Queue::Eevdf | Queue::EevdfFlat => self.place_eevdf(tq, se, why),
        }
    }

    /// Stores an entity's lag (EEVDF) before it leaves the timeline.
    fn store_lag(&mut self, tq: CfsRqId, se: SeId) {
        match self.rules.queue {
            Queue::Cfs => {}
            Queue::Eevdf | Queue::EevdfFlat => self.store_lag_eevdf(tq, se),
        }
    }

    /// Makes virtual time (CFS) or deadline (EEVDF) of a dequeued entity relative, if it moves to
    /// another queue, as absolute ones cannot be compared.
    fn keep_distance(&mut self, tq: CfsRqId, se: SeId, why: Dequeue) {
        match self.rules.queue {
            Queue::Cfs if why.is_move() => self.make_relative(tq, se),
            Queue::Cfs => {}
            Queue::Eevdf | Queue::EevdfFlat => {
                let entity = &mut self.ses[se];
                entity.deadline_is_relative = why.is_move();
                if why.is_move() {
                    entity.deadline -= entity.vruntime;
                }
            }
        }
    }

    /// The entity of a queue to run next; changes nothing. None if nothing is queued.
    pub(crate) fn pick(&mut self, tq: CfsRqId) -> SeId {
        match self.rules.queue {
            Queue::Cfs => self.pick_cfs(tq),
            Queue::Eevdf | Queue::EevdfFlat => self.pick_eevdf(tq),
        }
    }
}
