//! Throttled time, as `cpu.stat` and `cpu.stat.local` count it (kernel: `throttled_clock`,
//! `throttled_clock_self`, `record_throttle_clock()`).

use crate::bandwidth::rules::ThrottleClock;
use crate::events::NEVER;
use crate::faults::Fault;
use crate::ids::CfsRqId;
use crate::machine::Machine;

impl Machine<'_> {
    /// Starts a run queue's own clock at its throttle, where the generation does so.
    pub(crate) fn start_clock_at_throttle(&mut self, q: CfsRqId) {
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

    /// Starts the clock of throttling by any limit, where the generation does so.
    pub(crate) fn start_self_clock_at_throttle(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        if self.rules.throttle_clock == ThrottleClock::Queued && rq.nr > 0 {
            rq.bandwidth.throttled_clock_self_ns = now;
        }
    }

    /// Starts the clocks of a throttled run queue when its first entity is queued (6.6 to 6.17).
    pub(crate) fn start_clocks_at_enqueue(&mut self, q: CfsRqId) {
        if self.rules.throttle_clock == ThrottleClock::Queued {
            self.start_clocks(q);
        }
    }

    /// Starts the clocks of every throttled level when its first task parks (6.18+).
    pub(crate) fn start_clocks_at_park(&mut self, leaf: CfsRqId) {
        if self.rules.pull {
            self.start_clocks_at_park_pulling(leaf);
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

    /// Starts the clocks of every level from the task's own to the highest denied one.
    fn start_clocks_at_park_pulling(&mut self, leaf: CfsRqId) {
        let now = self.now;
        let mut from = leaf;
        let mut q = leaf;
        while q.is_some() {
            let parent = self.cfs_rqs[q].parent;
            if self.cfs_rqs[q].bandwidth.throttled {
                self.start_clock_denied(q);
                while from != parent {
                    let bw = &mut self.cfs_rqs[from].bandwidth;
                    bw.throttled_clock_self_ns = bw.throttled_clock_self_ns.min(now);
                    from = self.cfs_rqs[from].parent;
                }
            }
            q = parent;
        }
    }

    /// Starts the own clock of a run queue whose limit keeps tasks parked.
    pub(crate) fn start_clock_denied(&mut self, q: CfsRqId) {
        let bw = &mut self.cfs_rqs[q].bandwidth;
        bw.throttled_clock_ns = bw.throttled_clock_ns.min(self.now);
    }

    /// Starts those clocks of a throttled run queue that do not run yet.
    fn start_clocks(&mut self, q: CfsRqId) {
        let now = self.now;
        let bw = &mut self.cfs_rqs[q].bandwidth;
        if bw.throttled {
            bw.throttled_clock_ns = bw.throttled_clock_ns.min(now);
        }
        if bw.throttle_count > 0 {
            bw.throttled_clock_self_ns = bw.throttled_clock_self_ns.min(now);
        }
    }

    /// Ends a run queue's own throttled time.
    pub(crate) fn stop_clock(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let since_ns = std::mem::replace(&mut rq.bandwidth.throttled_clock_ns, NEVER);
        if since_ns != NEVER {
            self.groups[rq.group].stat.throttled_ns += now - since_ns;
        }
    }

    /// Ends the time in which some limit throttles a run queue.
    pub(crate) fn stop_self_clock(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let since_ns = std::mem::replace(&mut rq.bandwidth.throttled_clock_self_ns, NEVER);
        if since_ns != NEVER {
            self.groups[rq.group].throttled_self_ns += now - since_ns;
        }
    }
}
