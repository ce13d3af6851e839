//! The completely fair scheduler (to 6.5): smallest virtual runtime first (kernel: `pick_next_entity()`,
//! `place_entity()`, `check_preempt_tick()`, `wakeup_preempt_entity()`). Left out: buddies but the skip of
//! a yield.

use crate::cpu::Resched;
use crate::fair::Enqueue;
use crate::ids::{CfsRqId, SeId};
use crate::machine::Machine;
use crate::se::scale;

/// Latency target, minimum granularity and wake-up granularity of one CPU, ns.
const LATENCY_NS: u64 = 6_000_000;
const MIN_GRANULARITY_NS: u64 = 750_000;
const WAKEUP_GRANULARITY_NS: u64 = 1_000_000;
/// Entities that share the latency target.
const NR_LATENCY: u64 = 8;

impl Machine<'_> {
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

    pub(crate) fn place_cfs(&mut self, q: CfsRqId, se: SeId, why: Enqueue) {
        self.update_min_vruntime(q);
        let min = self.cfs_rqs[q].base_vruntime;
        let slice = match why {
            Enqueue::Fork => self.cfs_slice_ns(q, se),
            _ => 0,
        };
        let bonus = (LATENCY_NS * self.scaling / 2) as i64;
        let entity = &mut self.ses[se];
        if entity.deadline_is_relative {
            entity.vruntime += min;
            entity.deadline_is_relative = false;
        }
        match why {
            Enqueue::Fork => entity.vruntime = min + entity.virtual_ns(slice),
            Enqueue::WakeUp => entity.vruntime = entity.vruntime.max(min - bonus),
            Enqueue::Move => {}
        }
    }

    /// Virtual runtimes of two queues cannot be compared: one that leaves takes its distance along.
    pub(crate) fn make_relative(&mut self, q: CfsRqId, se: SeId) {
        let min = self.cfs_rqs[q].base_vruntime;
        let entity = &mut self.ses[se];
        if !entity.deadline_is_relative {
            entity.vruntime -= min;
            entity.deadline_is_relative = true;
        }
    }

    pub(crate) fn pick_cfs(&self, q: CfsRqId) -> SeId {
        let nodes = self.cfs_rqs[q].timeline.nodes();
        match nodes {
            [] => SeId::NONE,
            // Who has just yielded is passed over for one that is not far ahead.
            [first, second, ..]
                if self.ses[first.se].protected_until == i64::MAX
                    && second.key - first.key < (WAKEUP_GRANULARITY_NS * self.scaling) as i64 =>
            {
                second.se
            }
            [first, ..] => first.se,
        }
    }

    /// Its share of the latency target along its path, ns.
    pub(crate) fn cfs_slice_ns(&self, q: CfsRqId, se: SeId) -> u64 {
        let min_granularity_ns = MIN_GRANULARITY_NS * self.scaling;
        let queued = u64::from(!self.ses[se].on_rq);
        let nr = u64::from(self.cfs_rqs[q].h_nr) + queued;
        let period_ns =
            if nr > NR_LATENCY { nr * min_granularity_ns } else { LATENCY_NS * self.scaling };
        let mut slice_ns = period_ns;
        let (mut q, mut se) = (q, se);
        loop {
            let entity = &self.ses[se];
            let load = self.cfs_rqs[q].load + if entity.on_rq { 0 } else { entity.weight };
            slice_ns = scale(slice_ns, entity.weight, load.max(1));
            se = self.cfs_rqs[q].se;
            if se.is_none() {
                break;
            }
            q = self.cfs_rqs[q].parent;
        }
        slice_ns.max(min_granularity_ns)
    }

    /// CPU time after which the running child of this queue is to be preempted at a tick, counted from its
    /// last charge, ns; `None`: never.
    pub(crate) fn cfs_preemption_due_ns(&self, q: CfsRqId) -> Option<u64> {
        let rq = &self.cfs_rqs[q];
        if rq.nr <= 1 || rq.curr.is_none() {
            return None;
        }
        let first = rq.timeline.first()?;
        let entity = &self.ses[rq.curr];
        let ran_ns = self.turns[rq.curr].ran_ns();
        let ideal_ns = self.cfs_slice_ns(q, rq.curr);
        let by_slice_ns = (ideal_ns + 1).saturating_sub(ran_ns);
        let ahead_ns = entity.ns_until(first.key + ideal_ns as i64 + 1);
        let by_lead_ns = ahead_ns.max((MIN_GRANULARITY_NS * self.scaling).saturating_sub(ran_ns));
        Some(by_slice_ns.min(by_lead_ns))
    }

    /// At a tick, after the charge.
    pub(crate) fn check_preempt_tick(&mut self, q: CfsRqId) {
        if self.cfs_preemption_due_ns(q) == Some(0) {
            let cpu = self.cfs_rqs[q].cpu;
            self.resched(cpu, Resched::Now);
        }
    }

    /// Whether a task that just became ready is far enough behind to preempt.
    pub(crate) fn preempts_cfs(&self, se: SeId, running: SeId) -> bool {
        let behind = self.ses[running].vruntime - self.ses[se].vruntime;
        behind > self.ses[se].virtual_ns(WAKEUP_GRANULARITY_NS * self.scaling)
    }
}
