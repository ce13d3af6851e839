//! The completely fair scheduler (to 6.5): smallest virtual runtime first (kernel:
//! `pick_next_entity()`, `place_entity()`, `check_preempt_tick()`, `wakeup_preempt_entity()`,
//! `sched_slice()` as in 6.1).

use crate::cfs_rq::Buddies;
use crate::cpu::Resched;
use crate::fair::Enqueue;
use crate::ids::{CfsRqId, Id, SeId};
use crate::machine::Machine;
use crate::se::{Owner, scale};
use cpumax_workload::Class;

/// Latency target, minimum granularity and wake-up granularity of one CPU, ns.
const LATENCY_NS: u64 = 6_000_000;
const MIN_GRANULARITY_NS: u64 = 750_000;
const WAKEUP_GRANULARITY_NS: u64 = 1_000_000;
/// Entities that share the latency target.
const NR_LATENCY: u64 = 8;

impl Machine<'_> {
    /// Raises a queue's minimum vruntime to the least of its entities', the running one included;
    /// it never falls (kernel: `update_min_vruntime()`).
    pub(crate) fn update_min_vruntime(&mut self, q: CfsRqId) {
        let rq = &self.cfs_rqs[q];
        let curr = if rq.curr.is_some() && self.ses[rq.curr].on_rq {
            Some(self.ses[rq.curr].vruntime)
        } else {
            None
        };
        let first = rq.timeline.first().map(|n| n.key);
        let least = match (curr, first) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
        let rq = &mut self.cfs_rqs[q];
        rq.base_vruntime = rq.base_vruntime.max(least);
    }

    /// Sets the minimum vruntime of a new queue in comparisons with a real kernel, where it has
    /// been in use long enough for groups to get the full sleeper's bonus.
    pub(crate) fn set_initial_min_vruntime(&mut self, q: CfsRqId) {
        if self.rules.queue.is_cfs() && self.lab.observed.is_some() {
            self.cfs_rqs[q].base_vruntime = self.sleeper_bonus(false);
        }
    }

    /// How far before the minimum vruntime an entity that slept for long is placed, ns; an eighth
    /// of that for `SCHED_IDLE` (5.15+).
    fn sleeper_bonus(&self, is_idle: bool) -> i64 {
        let least = is_idle && self.rules.idle_sleeper_gains_less;
        let whole_ns = if least { MIN_GRANULARITY_NS } else { LATENCY_NS };
        (whole_ns * self.settings.scaling / 2) as i64
    }

    /// Whether an entity is that of a `SCHED_IDLE` task itself (kernel: `se_is_idle()`).
    fn is_idle(&self, se: SeId) -> bool {
        let Owner::Task(task) = self.ses[se].owner() else { return false };
        self.tasks[task].attrs.class == Class::Idle
    }

    /// Sets the vruntime of an entity that is being queued (kernel: `place_entity()`): a forked one
    /// a slice behind the minimum, a woken one at most a bonus before it, a moved one at its old
    /// distance.
    pub(crate) fn place_cfs(&mut self, q: CfsRqId, se: SeId, why: Enqueue) {
        let min = self.cfs_rqs[q].base_vruntime;
        let slice = match why {
            Enqueue::Fork => self.cfs_slice_ns(q, se),
            Enqueue::WakeUp | Enqueue::Move => 0,
        };
        let bonus = self.sleeper_bonus(self.is_idle(se));
        let entity = &mut self.ses[se];
        if entity.deadline_is_relative {
            entity.vruntime += min;
            entity.deadline_is_relative = false;
        }
        match why {
            Enqueue::Fork => entity.vruntime = min + entity.virtual_ns(slice, false),
            Enqueue::WakeUp => entity.vruntime = entity.vruntime.max(min - bonus),
            Enqueue::Move => {}
        }
    }

    /// Makes an entity's vruntime relative to its queue's minimum, unless it is: those of two
    /// queues cannot be compared.
    pub(crate) fn make_relative(&mut self, q: CfsRqId, se: SeId) {
        let min = self.cfs_rqs[q].base_vruntime;
        let entity = &mut self.ses[se];
        if !entity.deadline_is_relative {
            entity.vruntime -= min;
            entity.deadline_is_relative = true;
        }
    }

    /// CFS: makes the vruntime of a dequeued entity relative to its queue, up to the last tick
    /// there, as it moves to another, and updates minimum vruntimes that it leaves.
    pub(crate) fn detach_from_queue(&mut self, q: CfsRqId, se: SeId) {
        // The queue's minimum is that of the last tick there.
        self.charge_to_last_tick(q);
        self.make_relative(q, se);
        self.update_min_vruntime_up(q);
    }

    /// Updates the minimum vruntime of a queue that an entity has left, and of ancestors that its
    /// group left because it ran empty.
    pub(crate) fn update_min_vruntime_up(&mut self, mut q: CfsRqId) {
        loop {
            self.update_min_vruntime(q);
            let rq = &self.cfs_rqs[q];
            if rq.nr > 0 || rq.bandwidth.throttled || rq.parent.is_none() {
                return;
            }
            q = rq.parent;
        }
    }

    /// The entity to run next: the one furthest behind, or its next or last buddy if that is not
    /// unfair; not the skip buddy (kernel: `pick_next_entity()`). Changes nothing.
    pub(crate) fn pick_cfs(&self, q: CfsRqId) -> SeId {
        let nodes = self.cfs_rqs[q].timeline.nodes();
        let Some(first) = nodes.first() else { return SeId::NONE };
        let fair = |se: SeId| !self.is_behind(first.se, self.ses[se].vruntime);
        let Buddies { last, skip } = self.extras.buddies[q.ix()];
        let next = self.cfs_rqs[q].next;
        if let Some(buddy) = [next, last].into_iter().find(|&se| se.is_some() && fair(se)) {
            return buddy;
        }
        match nodes.get(1) {
            Some(second) if skip == first.se && fair(second.se) => second.se,
            _ => first.se,
        }
    }

    /// Whether an entity is behind this vruntime by more than the wakeup granularity, so that it
    /// may not wait.
    fn is_behind(&self, se: SeId, vruntime: i64) -> bool {
        let entity = &self.ses[se];
        vruntime - entity.vruntime
            > entity.virtual_ns(WAKEUP_GRANULARITY_NS * self.settings.scaling, false)
    }

    /// An entity's share of the latency target along its path, by weights, ns; at least the minimum
    /// granularity (kernel: `sched_slice()`).
    pub(crate) fn cfs_slice_ns(&self, q: CfsRqId, se: SeId) -> u64 {
        let min_granularity_ns = MIN_GRANULARITY_NS * self.settings.scaling;
        let root = self.root(self.cfs_rqs[q].cpu);
        let nr = u64::from(self.cfs_rqs[root].h_nr) + u64::from(!self.ses[se].on_rq);
        let period_ns = if nr > NR_LATENCY {
            nr * min_granularity_ns
        } else {
            LATENCY_NS * self.settings.scaling
        };
        let mut slice_ns = period_ns;
        // An entity that is being placed counts already.
        let placed = (!self.ses[se].on_rq).then_some(se);
        let (mut q, mut se) = (q, se);
        loop {
            let entity = &self.ses[se];
            let counted = entity.on_rq || Some(se) == placed;
            let load = self.cfs_rqs[q].load + if counted { 0 } else { entity.weight };
            slice_ns = scale(slice_ns, entity.weight, load.max(1));
            se = self.cfs_rqs[q].se;
            if se.is_none() {
                break;
            }
            q = self.cfs_rqs[q].parent;
        }
        slice_ns.max(min_granularity_ns)
    }

    /// CPU time from its last charge, ns, after which a tick preempts the running child of this
    /// queue, as its slice is used or it is too far ahead; `None`: never.
    pub(crate) fn cfs_preemption_due_ns(&self, q: CfsRqId) -> Option<u64> {
        let rq = &self.cfs_rqs[q];
        if rq.nr <= 1 || rq.curr.is_none() {
            return None;
        }
        let first = rq.timeline.first()?;
        let entity = &self.ses[rq.curr];
        let ran_ns = self.extras.turns[rq.curr].ran_ns();
        let ideal_ns = self.cfs_slice_ns(q, rq.curr);
        let by_slice_ns = (ideal_ns + 1).saturating_sub(ran_ns);
        let ahead_ns = entity.ns_until(first.key + ideal_ns as i64 + 1);
        let by_lead_ns =
            ahead_ns.max((MIN_GRANULARITY_NS * self.settings.scaling).saturating_sub(ran_ns));
        Some(by_slice_ns.min(by_lead_ns))
    }

    /// Requests a reschedule at a tick, after the charge, if the running child has used its slice
    /// or is too far ahead (kernel: `check_preempt_tick()`).
    pub(crate) fn check_preempt_tick(&mut self, q: CfsRqId) {
        if self.cfs_preemption_due_ns(q) != Some(0) {
            return;
        }
        let rq = &self.cfs_rqs[q];
        let (cpu, curr) = (rq.cpu, rq.curr);
        self.resched(cpu, Resched::Now);
        if self.extras.turns[curr].ran_ns() > self.cfs_slice_ns(q, curr) {
            self.clear_buddies(q, curr);
        }
    }

    /// Whether a waking entity is far enough behind the running one to preempt it, or that
    /// `makes_way`. It is then made the next buddy; a task preempted on a crowded queue is made the
    /// last buddy (kernel: `check_preempt_wakeup()`).
    pub(crate) fn preempts_cfs(&mut self, se: SeId, running: SeId, makes_way: bool) -> bool {
        if !makes_way {
            if !self.is_behind(se, self.ses[running].vruntime) {
                return false;
            }
            self.set_next_buddy(se);
        }
        let q = self.ses[running].q;
        let is_task = matches!(self.ses[running].owner(), Owner::Task(_));
        // A `SCHED_IDLE` task that makes way is not to continue.
        if is_task && !makes_way && u64::from(self.cfs_rqs[q].nr) >= NR_LATENCY {
            self.set_last_buddy(running);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::ids::CpuId;
    use crate::{Options, kernel};
    use cpumax_outcome::trace::{Recorded, What};

    const HOGS: &str = r#"
        duration = "30ms"
        [machine]
        cpus = 1
        [[group]]
        path = "/g"
        [[task]]
        name = "hog"
        count = 4
        group = "/g"
        program = [{ forever = [{ user = "1s" }] }]
    "#;

    #[test]
    fn buddies_are_picked_where_that_is_fair() {
        const US: i64 = 1_000;
        let workload = cpumax_workload::parse(HOGS, "hogs.toml").unwrap();
        let options = Options::new(kernel::parse_kernels("6.1").unwrap()[0], 1);
        let mut machine = Simulation::ended(&workload, &options);
        let group = machine.tasks[machine.cpus[CpuId(0)].curr].group;
        let q = machine.groups[group].cfs_rqs[0];
        let waiting: Vec<SeId> = machine.cfs_rqs[q].timeline.nodes().iter().map(|n| n.se).collect();
        let [a, b, c] = waiting[..] else { panic!("one of four runs") };
        let none = Buddies { last: SeId::NONE, skip: SeId::NONE };
        let mut picked = |b_us: i64, next: SeId, buddies: Buddies| {
            for (se, vruntime) in [(a, 0), (b, b_us * US), (c, 2_000 * US)] {
                machine.timeline_remove(q, se);
                machine.ses[se].vruntime = vruntime;
                machine.timeline_insert(q, se);
            }
            machine.cfs_rqs[q].next = next;
            machine.extras.buddies[q.ix()] = buddies;
            machine.pick_cfs(q)
        };
        assert_eq!(picked(500, SeId::NONE, none), a);
        assert_eq!(picked(500, b, none), b);
        assert_eq!(picked(500, c, none), a, "2 ms ahead is too unfair");
        assert_eq!(picked(500, c, Buddies { last: b, ..none }), b);
        assert_eq!(picked(500, SeId::NONE, Buddies { skip: a, ..none }), b);
        assert_eq!(picked(1_001, SeId::NONE, Buddies { skip: a, ..none }), a);
    }

    /// Each new task is placed by the share it will have, which is smaller the more there are; so
    /// the last one is first.
    #[test]
    fn of_tasks_that_start_together_the_last_one_runs_first() {
        let workload = cpumax_workload::parse(HOGS, "hogs.toml").unwrap();
        let options = Options::new(kernel::parse_kernels("6.1").unwrap()[0], 1);
        let mut trace = Recorded::default();
        crate::run(&workload, &options, Some(&mut trace), None).unwrap();
        let order = trace.events.iter().filter_map(|event| match event.what {
            What::Switch { next: Some(task) } => Some(task),
            _ => None,
        });
        assert_eq!(order.take(3).collect::<Vec<_>>(), [3, 2, 1]);
    }
}
