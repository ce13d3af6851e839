//! Throttled time, as `cpu.stat` and `cpu.stat.local` count it (kernel: `throttled_clock`,
//! `throttled_clock_self`, `record_throttle_clock()`).

use crate::bandwidth::rules::ThrottleClock;
use crate::events::NEVER;
use crate::faults::Fault;
use crate::ids::CfsRqId;
use crate::machine::Machine;

impl Machine<'_> {
    /// The silo was throttled by its own limit.
    pub(crate) fn clock_throttled(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let starts = match self.rules.throttle_clock {
            ThrottleClock::Always => true,
            ThrottleClock::Queued => rq.nr > 0,
            ThrottleClock::FirstPark => false,
        };
        if starts {
            rq.bandwidth.throttled_clock_ns = now;
        }
    }

    /// The silo was throttled by any limit.
    pub(crate) fn clock_throttled_self(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        if self.rules.throttle_clock == ThrottleClock::Queued && rq.nr > 0 {
            rq.bandwidth.throttled_clock_self_ns = now;
        }
    }

    /// A silo got its first entity while throttled.
    pub(crate) fn clock_first_enqueued(&mut self, q: CfsRqId) {
        if self.rules.throttle_clock == ThrottleClock::Queued {
            self.start_clocks(q);
        }
    }

    /// A task parked in this silo: time counts from the first one on, at every level that is
    /// throttled.
    pub(crate) fn clock_parked(&mut self, leaf: CfsRqId) {
        if self.rules.pull {
            self.clock_parked_pulling(leaf);
            return;
        }
        let mut q = leaf;
        while q.is_some() && self.in_throttled_hierarchy(q) {
            self.start_clocks(q);
            if self.has(Fault::ClockOfLeafOnly) {
                return;
            }
            q = self.cfs_rqs[q].parent;
        }
    }

    /// Every level from the task's own to the highest that was turned down.
    fn clock_parked_pulling(&mut self, leaf: CfsRqId) {
        let now = self.now;
        let mut from = leaf;
        let mut q = leaf;
        while q.is_some() {
            let parent = self.cfs_rqs[q].parent;
            if self.cfs_rqs[q].bandwidth.throttled {
                self.clock_denied(q);
                while from != parent {
                    let silo = &mut self.cfs_rqs[from].bandwidth;
                    silo.throttled_clock_self_ns = silo.throttled_clock_self_ns.min(now);
                    from = self.cfs_rqs[from].parent;
                }
            }
            q = parent;
        }
    }

    /// The silo keeps tasks parked by its own limit.
    pub(crate) fn clock_denied(&mut self, q: CfsRqId) {
        let silo = &mut self.cfs_rqs[q].bandwidth;
        silo.throttled_clock_ns = silo.throttled_clock_ns.min(self.now);
    }

    fn start_clocks(&mut self, q: CfsRqId) {
        let now = self.now;
        let silo = &mut self.cfs_rqs[q].bandwidth;
        if silo.throttled {
            silo.throttled_clock_ns = silo.throttled_clock_ns.min(now);
        }
        if silo.throttle_count > 0 {
            silo.throttled_clock_self_ns = silo.throttled_clock_self_ns.min(now);
        }
    }

    /// The silo's own throttle ends.
    pub(crate) fn clock_unthrottled(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let since_ns = std::mem::replace(&mut rq.bandwidth.throttled_clock_ns, NEVER);
        if since_ns != NEVER {
            self.groups[rq.group].stat.throttled_ns += now - since_ns;
        }
    }

    /// No limit throttles the silo any more.
    pub(crate) fn clock_unthrottled_self(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let since_ns = std::mem::replace(&mut rq.bandwidth.throttled_clock_self_ns, NEVER);
        if since_ns != NEVER {
            self.groups[rq.group].throttled_self_ns += now - since_ns;
        }
    }
}
