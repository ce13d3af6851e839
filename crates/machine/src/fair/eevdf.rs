//! Earliest eligible virtual deadline first (6.6+; kernel: `pick_eevdf()`, `place_entity()`,
//! `update_entity_lag()`).
//!
//! V is the weighted mean of the virtual runtimes on a queue, the running one included. An entity
//! is eligible when it is not ahead of V. Not modelled: the shorter slice that a group entity
//! inherits from a short-slice task below it.

use crate::cpu::Resched;
use crate::fair::Enqueue;
use crate::ids::{CfsRqId, SeId};
use crate::machine::Machine;
use crate::rules::{LagLimit, Reweight, Unprotected, WakeupPick};
use crate::se::{Owner, rescale};
use crate::timeline::Node;

/// Sums are re-based when V has moved this far from their zero, so that most fit 64 bits.
const REBASE_BEYOND: i64 = 1 << 32;
/// How far a real kernel's group queue lags behind the virtual times here, which begin at 0, ns.
const AGE_OF_QUEUE: i64 = 1_000_000;

impl Machine<'_> {
    /// A weight as used in sums: to 7.0 scaled down so that products fit 64 bits (kernel:
    /// `scale_load_down()`, `avg_vruntime_weight()`, which drops bits only where they do not fit).
    pub(crate) fn weight_in_sums(&self, weight: u64) -> i64 {
        if self.rules.full_weights { weight as i64 } else { (weight >> 10).max(2) as i64 }
    }

    /// Total weight of a queue's entities as used in sums, and the sum of weight times (vruntime -
    /// `base_vruntime`), running entity included.
    fn sums(&self, q: CfsRqId) -> (i64, i128) {
        let rq = &self.cfs_rqs[q];
        let (mut weight, mut sum) = (rq.sum_weight, rq.sum_weighted_vruntime);
        if rq.curr.is_some() && self.ses[rq.curr].on_rq {
            let curr = &self.ses[rq.curr];
            let w = self.weight_in_sums(curr.weight);
            weight += w;
            sum += i128::from(w) * i128::from(curr.vruntime - rq.base_vruntime);
        }
        (weight, sum)
    }

    /// V of a queue, the average vruntime of its entities by weight, running one included; its last
    /// value when nothing is queued (kernel: `avg_vruntime()`).
    pub(crate) fn average_vruntime(&self, q: CfsRqId) -> i64 {
        let rq = &self.cfs_rqs[q];
        let curr = if rq.curr.is_some() { Some(&self.ses[rq.curr]) } else { None };
        match (rq.timeline.nodes(), curr) {
            ([], None) => return rq.base_vruntime,
            ([], Some(curr)) => return if curr.on_rq { curr.vruntime } else { rq.base_vruntime },
            ([only], None) => return only.vruntime,
            _ => {}
        }
        let (weight, sum) = self.sums(q);
        rq.base_vruntime
            + match i64::try_from(sum) {
                Ok(sum) => sum.div_euclid(weight),
                Err(_) => sum.div_euclid(i128::from(weight)) as i64,
            }
    }

    /// Moves the zero of the queue's sums (`base_vruntime`) to V and corrects the sums; no result
    /// depends on it.
    fn rebase(&mut self, q: CfsRqId, average: i64) {
        let rq = &mut self.cfs_rqs[q];
        let shift = average - rq.base_vruntime;
        rq.base_vruntime = average;
        rq.sum_weighted_vruntime -= i128::from(rq.sum_weight) * i128::from(shift);
    }

    /// Inserts a queued entity into the timeline, by deadline (CFS: vruntime), and into the sums of
    /// weights.
    pub(crate) fn timeline_insert(&mut self, q: CfsRqId, se: SeId) {
        let entity = &self.ses[se];
        let weight = self.weight_in_sums(entity.weight);
        let rq = &mut self.cfs_rqs[q];
        let cfs = self.rules.queue.is_cfs();
        let key = if cfs { entity.vruntime } else { entity.deadline };
        rq.timeline.insert(Node { key, vruntime: entity.vruntime, se });
        if !cfs {
            rq.sum_weight += weight;
            rq.sum_weighted_vruntime +=
                i128::from(weight) * i128::from(entity.vruntime - rq.base_vruntime);
        }
    }

    /// Removes an entity from the timeline and from the sums of weights.
    pub(crate) fn timeline_remove(&mut self, q: CfsRqId, se: SeId) {
        let entity = &self.ses[se];
        let weight = self.weight_in_sums(entity.weight);
        let rq = &mut self.cfs_rqs[q];
        let cfs = self.rules.queue.is_cfs();
        let key = if cfs { entity.vruntime } else { entity.deadline };
        rq.timeline.remove(key, se);
        if !cfs {
            rq.sum_weight -= weight;
            rq.sum_weighted_vruntime -=
                i128::from(weight) * i128::from(entity.vruntime - rq.base_vruntime);
        }
    }

    /// Sets the vruntime of an entity that is being queued as far from V as when it left, and a new
    /// deadline unless it moves; half a slice for a forked one (kernel: `place_entity()`).
    pub(crate) fn place_eevdf(&mut self, q: CfsRqId, se: SeId, why: Enqueue) {
        let rq = &self.cfs_rqs[q];
        let (mut average, mut lag) = (rq.base_vruntime, 0);
        let alone = rq.timeline.is_empty() && (rq.curr.is_none() || !self.ses[rq.curr].on_rq);
        if !alone {
            average = self.average_vruntime(q);
            if (average - rq.base_vruntime).abs() > REBASE_BEYOND {
                self.rebase(q, average);
            }
        }
        if !alone && self.ses[se].vlag != 0 {
            lag = self.lag_to_place(q, se, self.ses[se].vlag);
        }
        let entity = &mut self.ses[se];
        entity.vruntime = average - lag;
        entity.vruntime_rest = 0;
        if entity.deadline_is_relative {
            entity.deadline += entity.vruntime;
            entity.deadline_is_relative = false;
            return;
        }
        let mut slice = entity.virtual_ns(entity.slice_ns(), self.rules.full_weights);
        if why.is_fork() {
            slice /= 2;
        }
        entity.deadline = entity.vruntime + slice;
    }

    /// Lag with which an entity must be placed to end up with `vlag`, as queueing it moves V
    /// towards it.
    fn lag_to_place(&self, q: CfsRqId, se: SeId, vlag: i64) -> i64 {
        let (weight, _) = self.sums(q);
        let own = self.weight_in_sums(self.ses[se].weight);
        match vlag.checked_mul(weight + own) {
            Some(product) => product / weight,
            None => (i128::from(vlag) * i128::from(weight + own) / i128::from(weight)) as i64,
        }
    }

    /// Stores an entity's lag in `vlag` when it leaves; positive lag of a delayed entity becomes 0.
    pub(crate) fn store_lag_eevdf(&mut self, q: CfsRqId, se: SeId) {
        self.update_lag(q, se);
        let entity = &mut self.ses[se];
        if entity.delayed && entity.vlag > 0 {
            // The entity stayed queued to serve negative lag, not to earn positive lag.
            entity.vlag = 0;
        }
    }

    /// Stores an entity's current lag, within limits, in `vlag` (kernel: `update_entity_lag()`).
    /// True if limits changed it, so that the entity's place no longer matches.
    fn update_lag(&mut self, q: CfsRqId, se: SeId) -> bool {
        let average = self.average_vruntime(q);
        let mut lag = self.lag(q, se, average);
        let entity = &mut self.ses[se];
        if self.rules.delayed_keeps_lag && entity.delayed {
            lag = lag.max(entity.vlag).min(0);
        }
        entity.vlag = lag;
        let moves = average - lag != entity.vruntime;
        if self.rules.reweight == Reweight::Unprotects {
            self.ses[se].protected_until = self.protection_end_from_lag(q, lag);
        }
        moves
    }

    /// Vruntime at which the protection of an entity ends whose lag was stored in the same field
    /// (6.17 to 6.19), or `i64::MIN`: no protection. Virtual times of a group's queue begin at
    /// -2^20 in a kernel, and have advanced by some 50 us when a run begins; those of a root queue
    /// are as old as the machine.
    fn protection_end_from_lag(&self, q: CfsRqId, lag: i64) -> i64 {
        let ends = self.rules.unprotected == Unprotected::Goes && self.cfs_rqs[q].parent.is_some();
        if ends { lag + AGE_OF_QUEUE } else { i64::MIN }
    }

    /// Lag of an entity, virtual ns: `average`, which is V, less its vruntime, limited to two of
    /// its slices or a tick (to 6.18), or to the longest slice queued plus a tick. Changes nothing.
    fn lag(&self, q: CfsRqId, se: SeId, average: i64) -> i64 {
        let entity = &self.ses[se];
        let limit_ns = match self.rules.lag_limit {
            LagLimit::TwoSlicesOrTick => self.settings.tick_ns.max(2 * entity.slice_ns()),
            LagLimit::LongestSliceAndTick => {
                self.settings.tick_ns + self.slices(q).fold(entity.slice_ns(), u64::max)
            }
        };
        let lag = average - entity.vruntime;
        if lag == 0 {
            return 0;
        }
        let limit = entity.virtual_ns(limit_ns, self.rules.full_weights);
        lag.clamp(-limit, limit)
    }

    /// Slices of the queued entities, ns; empty where all tasks have the same.
    fn slices(&self, q: CfsRqId) -> impl Iterator<Item = u64> {
        let rq = &self.cfs_rqs[q];
        let nodes = if self.settings.slices_differ { rq.timeline.nodes() } else { &[] };
        let curr = (self.settings.slices_differ && rq.curr.is_some()).then_some(rq.curr);
        nodes.iter().map(|node| node.se).chain(curr).map(|se| self.ses[se].slice_ns())
    }

    /// Whether a task that goes to sleep stays queued (delayed dequeue), because it used more than
    /// its share. Changes nothing.
    pub(crate) fn delays_dequeue(&self, se: SeId) -> bool {
        if !self.rules.delayed_dequeue {
            return false;
        }
        let q = self.timeline_of(self.ses[se].q);
        !self.eligible(q, self.ses[se].vruntime)
    }

    /// Marks a group that has run empty as delayed, so that it stays queued, if it used more than
    /// its share; returns whether it does.
    pub(crate) fn delay_group_if_owing(&mut self, q: CfsRqId, se: SeId) -> bool {
        if !self.rules.delayed_dequeue || self.is_flat() {
            return false;
        }
        self.charge(q);
        let delays = !self.eligible(q, self.ses[se].vruntime);
        if delays {
            self.mark_entity_delayed(q, se);
        }
        delays
    }

    /// Marks an entity as delayed: it stays queued although it sleeps. It loses its buddies, and
    /// its lag is stored (7.1+).
    pub(crate) fn mark_entity_delayed(&mut self, q: CfsRqId, se: SeId) {
        self.clear_buddies(q, se);
        if self.rules.delayed_keeps_lag {
            self.update_lag(q, se);
        }
        self.ses[se].delayed = true;
    }

    /// Wakes a delayed task on the queue that it never left: it is no longer delayed, and is placed
    /// anew if its lag is positive or (7.1+) limits change it. The running task is charged up to
    /// now (7.2+), or its last tick (kernel: `requeue_delayed_entity()`).
    pub(crate) fn requeue_delayed(&mut self, se: SeId) {
        let q = self.timeline_of(self.ses[se].q);
        if self.rules.requeue_charges {
            self.charge_running(self.cfs_rqs[q].cpu);
            self.charge(q);
        } else {
            self.charge_to_last_tick(q);
        }
        let moved = self.update_lag(q, se);
        let entity = &mut self.ses[se];
        let placed = if self.rules.delayed_keeps_lag {
            moved
        } else {
            let ahead = entity.vlag > 0;
            entity.vlag = entity.vlag.min(0);
            ahead
        };
        entity.delayed = false;
        if placed && self.cfs_rqs[q].curr != se {
            self.timeline_remove(q, se);
            self.ses[se].on_rq = false;
            self.place_eevdf(q, se, Enqueue::WakeUp);
            self.ses[se].on_rq = true;
            self.timeline_insert(q, se);
        }
    }

    /// Whether an entity with this vruntime is not ahead of V (kernel: `vruntime_eligible()`).
    fn eligible(&self, q: CfsRqId, vruntime: i64) -> bool {
        let (weight, sum) = self.sums(q);
        sum >= i128::from(weight) * i128::from(vruntime - self.cfs_rqs[q].base_vruntime)
    }

    /// The eligible entity with the earliest deadline; the running one takes part, and keeps the
    /// CPU while it is protected (kernel: `pick_eevdf()`). An eligible next buddy comes first. None
    /// if nothing is queued. Changes nothing.
    pub(crate) fn pick_eevdf(&self, q: CfsRqId) -> SeId {
        self.pick_eevdf_of(q, true)
    }

    /// The eligible entity with the earliest deadline, or the running one while it is protected or
    /// alone; only if `stays` an eligible next buddy comes first. If rounding leaves none eligible:
    /// the running one, or else the one furthest behind.
    fn pick_eevdf_of(&self, q: CfsRqId, stays: bool) -> SeId {
        let rq = &self.cfs_rqs[q];
        if rq.curr.is_none()
            && let [only] = rq.timeline.nodes()
        {
            return only.se;
        }
        let (weight, sum) = self.sums(q);
        let eligible =
            |vruntime: i64| sum >= i128::from(weight) * i128::from(vruntime - rq.base_vruntime);
        let curr = if rq.curr.is_some() && self.ses[rq.curr].on_rq { rq.curr } else { rq.prev };
        let alone = rq.timeline.len() == usize::from(curr.is_some() && curr == rq.prev);
        if stays && rq.next.is_some() && !alone && eligible(self.ses[rq.next].vruntime) {
            return rq.next;
        }
        if curr.is_some() {
            let entity = &self.ses[curr];
            if alone || (entity.vruntime < entity.protected_until && eligible(entity.vruntime)) {
                return curr;
            }
        }
        let best = rq.timeline.nodes().iter().find(|node| eligible(node.vruntime));
        let curr = if rq.curr.is_some() && self.ses[rq.curr].on_rq { rq.curr } else { SeId::NONE };
        match best {
            Some(node) if curr.is_none() => node.se,
            Some(node) => {
                let entity = &self.ses[curr];
                let stays = eligible(entity.vruntime) && entity.deadline < node.key;
                if stays { curr } else { node.se }
            }
            None if curr.is_some() => curr,
            // Rounding can leave no entity eligible: the one furthest behind is picked.
            None => {
                rq.timeline.nodes().iter().min_by_key(|n| n.vruntime).map_or(SeId::NONE, |n| n.se)
            }
        }
    }

    /// Sets the vruntime up to which a picked entity is protected from preemption: its deadline, or
    /// if another slice is shorter than its own, the end of that slice (6.17+, kernel:
    /// `set_protect_slice()`).
    pub(crate) fn protect(&mut self, q: CfsRqId, se: SeId) {
        let own = self.ses[se].slice_ns();
        let shortest = if self.rules.unprotected == Unprotected::Goes {
            self.slices(q).fold(own, u64::min)
        } else {
            own
        };
        let entity = &mut self.ses[se];
        entity.protected_until = entity.deadline;
        if shortest != own {
            let until = entity.vruntime + entity.virtual_ns(shortest, self.rules.full_weights);
            entity.protected_until = until.min(entity.deadline);
        }
    }

    /// Advances a running entity's vruntime from `from_ns` to now, and renews its deadline at each
    /// tick that finds it passed, whether that tick was an event or not. With competitors it
    /// requests a reschedule then, or when protection is lost (kernel: `update_deadline()`).
    pub(crate) fn advance_eevdf(&mut self, q: CfsRqId, se: SeId, from_ns: u64) {
        let cpu = self.cfs_rqs[q].cpu;
        let mut at_ns = from_ns;
        if self.competitors(q) <= 1 {
            let every_ns = self.cpus[cpu].tick_every_ns;
            loop {
                let due_ns = at_ns + self.ses[se].ns_until(self.ses[se].deadline);
                let phase = self.tick_charge_phase_ns(cpu);
                let earliest = due_ns.max(at_ns + 1).max(phase);
                let tick_ns = phase + (earliest - phase).div_ceil(every_ns) * every_ns;
                if tick_ns >= self.now {
                    break;
                }
                self.ses[se].advance(tick_ns - at_ns);
                at_ns = tick_ns;
                self.renew_deadline(se);
            }
        }
        self.ses[se].advance(self.now - at_ns);
        let entity = &self.ses[se];
        let over = entity.vruntime >= entity.deadline;
        if over {
            self.renew_deadline(se);
        }
        if self.competitors(q) > 1 && (over || self.loses_protection(q, se)) {
            self.clear_buddies(q, se);
            // The end of a slice is a lazy reschedule where the kernel has those.
            self.resched(cpu, Resched::Lazy);
        }
    }

    /// Whether a running entity is to be rescheduled because its protection is over: to 6.11 never,
    /// from 6.12 to 6.16 if it is ahead of V, later always.
    fn loses_protection(&self, q: CfsRqId, se: SeId) -> bool {
        let entity = &self.ses[se];
        entity.vruntime >= entity.protected_until
            && match self.rules.unprotected {
                Unprotected::Stays => false,
                Unprotected::GoesIfAhead => !self.eligible(q, entity.vruntime),
                Unprotected::Goes => true,
            }
    }

    /// Sets an entity's deadline to a slice behind its vruntime.
    fn renew_deadline(&mut self, se: SeId) {
        let entity = &mut self.ses[se];
        entity.deadline =
            entity.vruntime + entity.virtual_ns(entity.slice_ns(), self.rules.full_weights);
    }

    /// Whether a waking task preempts the running one, as the pick would choose it; `se` and
    /// `running` are their entities on the level they share. `makes_way`: the running one gives way
    /// in any case (`SCHED_IDLE`). Ends the protection of a running entity with a longer slice;
    /// delayed entities that would be picked are dequeued (7.0+).
    pub(crate) fn preempts_eevdf(
        &mut self,
        q: CfsRqId,
        se: SeId,
        running: SeId,
        makes_way: bool,
    ) -> bool {
        let is_shorter = self.ses[se].slice_ns() < self.ses[running].slice_ns();
        if makes_way || is_shorter && self.rules.delayed_dequeue {
            // Protection ends at the current vruntime, not for good: an entity that then gets
            // another weight may stand before it (7.0+).
            let entity = &mut self.ses[running];
            entity.protected_until = entity.protected_until.min(entity.vruntime);
        }
        if makes_way {
            return true;
        }
        let stays = self.rules.wakeup_pick != WakeupPick::Deadline
            && !(is_shorter && self.rules.short_slice_ignores_next);
        loop {
            let first = self.pick_eevdf_of(q, stays);
            let leaves = self.rules.wakeup_pick == WakeupPick::Full && first != running;
            if !leaves || !self.ses[first].delayed {
                return first == se;
            }
            self.dequeue_delayed(first);
        }
    }

    /// Applies `sched_yield(2)` of the running task: if eligible, it forfeits the rest of its
    /// slice, as its vruntime moves to its deadline and that by another slice.
    pub(crate) fn yield_eevdf(&mut self, se: SeId) {
        let q = self.timeline_of(self.ses[se].q);
        self.clear_buddies(q, se);
        if self.eligible(q, self.ses[se].vruntime) {
            let entity = &mut self.ses[se];
            entity.vruntime = entity.deadline.max(entity.vruntime);
            entity.vruntime_rest = 0;
            self.renew_deadline(se);
        }
    }

    /// Sets an entity's weight; the lag and deadline of a queued or running one keep their meaning
    /// in time, and loads are updated. To 6.5 its parent's queue is charged if it runs there, even
    /// where the weight stays the same.
    #[inline]
    pub(crate) fn reweight(&mut self, se: SeId, weight: u64) {
        if self.rules.queue.is_cfs() && self.ses[se].on_rq {
            let q = self.ses[se].q;
            if self.cfs_rqs[q].curr == se {
                self.charge(q);
            }
        }
        if self.ses[se].weight != weight {
            self.set_entity_weight(se, weight);
        }
    }

    /// Changes the weight of an entity, queued or not, with loads and sums that it counts in; lag
    /// and deadline keep their meaning in time.
    fn set_entity_weight(&mut self, se: SeId, weight: u64) {
        let old = self.ses[se].weight;
        if matches!(self.ses[se].owner(), Owner::Group(_)) {
            self.rescale_group_load(se, old, weight);
        }
        if !self.ses[se].on_rq {
            self.adjust_parked_load(self.ses[se].owner(), old, weight);
            let deadline = self.ses[se].deadline;
            self.ses[se].set_weight_off_queue(weight);
            if !self.rules.rescales_deadline {
                self.ses[se].deadline = deadline;
            }
            return;
        }
        let q = self.ses[se].q;
        let tq = self.timeline_of(q);
        // When the running task is preempted depends on all weights.
        let cpu = self.cfs_rqs[q].cpu;
        self.touch(cpu, false);
        if !self.rules.queue.is_cfs() {
            self.charge(tq);
        }
        let competes = !self.is_flat() || matches!(self.ses[se].owner(), Owner::Task(_));
        if !self.is_flat() {
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            rq.load = rq.load - old + weight;
        } else if matches!(self.ses[se].owner(), Owner::Group(_)) {
            let rq = &mut self.cfs_rqs[q];
            rq.load = rq.load - old + weight;
        }
        if !competes {
            self.ses[se].weight = weight;
        } else if self.rules.queue.is_cfs() {
            self.ses[se].weight = weight;
            self.ses[se].vruntime_rest = 0;
        } else {
            self.place_by_weight(tq, se, weight);
        }
    }

    /// Sets the weight of a competing entity and moves its vruntime and deadline, so that its lag
    /// and the rest of its slice keep their length in time (kernel: `reweight_eevdf()`,
    /// `rescale_entity()`).
    fn place_by_weight(&mut self, tq: CfsRqId, se: SeId, weight: u64) {
        let old = self.ses[se].weight;
        let queued = self.cfs_rqs[tq].curr != se;
        let alone = !queued && self.cfs_rqs[tq].timeline.is_empty();
        let mut average = self.ses[se].vruntime;
        let mut lag = 0;
        if !alone {
            average = self.average_vruntime(tq);
            if queued {
                self.timeline_remove(tq, se);
            }
            lag = rescale(self.lag(tq, se, average), old, weight);
            if !queued && self.rules.reweight_counts_twice {
                self.ses[se].weight = weight;
                average = self.average_vruntime(tq);
                lag = self.lag_to_place(tq, se, lag);
            }
        }
        let from_average = self.rules.reweight == Reweight::FromAverage;
        let protection_end_from_lag = self.protection_end_from_lag(tq, lag);
        let entity = &mut self.ses[se];
        let until = entity.protected_until;
        let is_protected = !queued && entity.vruntime < until;
        let from = if from_average { average } else { entity.vruntime };
        let left = rescale(entity.deadline - from, old, weight);
        let protected = if is_protected { rescale(until - from, old, weight) } else { 0 };
        entity.vruntime = average - lag;
        let from = if from_average { average } else { entity.vruntime };
        entity.deadline = from + left;
        match self.rules.reweight {
            Reweight::Unprotects => entity.protected_until = protection_end_from_lag,
            Reweight::FromEntity | Reweight::FromAverage if is_protected => {
                entity.protected_until = from + protected;
            }
            _ => {}
        }
        entity.vruntime_rest = 0;
        entity.weight = weight;
        if queued {
            self.timeline_insert(tq, se);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Simulation;
    use crate::ids::CpuId;
    use crate::{Options, kernel};

    /// Whether a task is picked again that had to make way and then got a weight with which its
    /// lag puts it further back.
    fn is_picked_again(version: &str) -> bool {
        let text = "duration = \"20ms\"\n[machine]\ncpus = 1\n[[task]]\nname = \"t\"\ncount = 3\n\
                    program = [{ user = \"1s\" }]\n";
        let workload = cpumax_workload::parse(text, "protection.toml").unwrap();
        let options = Options::new(kernel::parse_kernels(version).unwrap()[0], 1);
        let mut machine = Simulation::ended(&workload, &options);
        let (q, runs) = (machine.root(CpuId(0)), machine.cpus[CpuId(0)].curr);
        let others: Vec<_> = machine.tasks.ids().filter(|&task| task != runs).collect();
        let [runs, waits, ahead] = [runs, others[0], others[1]].map(|task| machine.tasks[task].se);
        machine.timeline_remove(q, ahead);
        machine.ses[ahead].vruntime += 10_000_000;
        machine.timeline_insert(q, ahead);
        let waiting = (machine.ses[waits].vruntime, machine.ses[waits].deadline);
        machine.ses[runs].vruntime = waiting.0 - 100_000;
        machine.ses[runs].deadline = waiting.1 + 20_000_000;
        machine.protect(q, runs);
        assert_eq!(machine.pick(q), runs);
        assert!(machine.preempts_eevdf(q, waits, runs, true));
        assert_eq!(machine.pick(q), waits);
        machine.reweight(runs, 3 << 10);
        machine.pick(q) == runs
    }

    #[test]
    fn one_that_makes_way_is_protected_again_where_a_new_weight_puts_it_back() {
        // To 6.19 a new weight ends the protection, whatever was left of it.
        assert_eq!(["6.12", "7.0", "7.3"].map(is_picked_again), [false, true, true]);
    }
}
