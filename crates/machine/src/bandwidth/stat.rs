//! Throttled time, as `cpu.stat` and `cpu.stat.local` count it (kernel: `throttled_clock`,
//! `throttled_clock_self`, `record_throttle_clock()`).

use crate::events::NEVER;
use crate::faults::Fault;
use crate::ids::CfsRqId;
use crate::machine::Machine;
use crate::rules::ThrottleClock;

impl Machine<'_> {
    /// Starts the run queue's clock of time throttled by its own limit (`throttled_usec`) at its
    /// throttle: always to 6.5, if something is queued from 6.6 to 6.17, never from 6.18 on.
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

    /// Starts the run queue's clock of time throttled by any limit (`cpu.stat.local`) at a
    /// throttle, if something is queued (6.6 to 6.17 only).
    pub(crate) fn start_self_clock_at_throttle(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        if self.rules.throttle_clock == ThrottleClock::Queued && rq.nr > 0 {
            rq.bandwidth.throttled_clock_self_ns = now;
        }
    }

    /// Starts both clocks of a throttled run queue when its first entity is queued (6.6 to 6.17);
    /// does nothing if it is not throttled.
    pub(crate) fn start_clocks_at_enqueue(&mut self, q: CfsRqId) {
        if self.rules.throttle_clock == ThrottleClock::Queued {
            self.start_clocks(q);
        }
    }

    /// Starts both clocks of every throttled level from the leaf up when its first task parks
    /// (6.18+); clocks that run go on.
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

    /// Starts the clocks of every level from the task's own to the highest denied one (pull rules).
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

    /// Starts the clock of time throttled by its own limit of a run queue that keeps tasks parked,
    /// unless it runs.
    pub(crate) fn start_clock_denied(&mut self, q: CfsRqId) {
        let bw = &mut self.cfs_rqs[q].bandwidth;
        bw.throttled_clock_ns = bw.throttled_clock_ns.min(self.now);
    }

    /// Starts those clocks of a run queue that do not run yet: its own if it is throttled, the
    /// other if any limit throttles it.
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

    /// Stops the clock of time throttled by its own limit and adds the time to the group's
    /// `throttled_ns`.
    pub(crate) fn stop_clock(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let since_ns = std::mem::replace(&mut rq.bandwidth.throttled_clock_ns, NEVER);
        if since_ns != NEVER {
            self.groups[rq.group].stat.throttled_ns += now - since_ns;
        }
    }

    /// Stops the clock of time throttled by any limit and adds the time to the group's local
    /// throttled time.
    pub(crate) fn stop_self_clock(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        let since_ns = std::mem::replace(&mut rq.bandwidth.throttled_clock_self_ns, NEVER);
        if since_ns != NEVER {
            self.groups[rq.group].throttled_self_ns += now - since_ns;
        }
    }
}
