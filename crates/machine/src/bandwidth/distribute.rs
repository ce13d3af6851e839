//! Handing the pool to throttled silos (kernel: `distribute_cfs_runtime()`, `__cfsb_csd_unthrottle()`).

use crate::bandwidth::rules::{Exhaustion, Release};
use crate::events::NEVER;
use crate::ids::{CfsRqId, CpuId, GroupId};
use crate::machine::Machine;

/// From the end of a distribution until the timer's own CPU processes its list, ns (7.2+).
const LOCAL_FLUSH_NS: u64 = 500;

impl Machine<'_> {
    /// Grants each throttled silo its debt and 1 ns, in order, while the pool lasts, and releases those
    /// that come out positive. True: some are still throttled.
    pub(crate) fn distribute(&mut self, group: GroupId) -> bool {
        let mut list = std::mem::take(&mut self.scratch);
        list.clear();
        list.extend_from_slice(&self.groups[group].pool.throttled);
        self.groups[group].pool.distributing = true;
        self.release.begin();
        let mut local = CfsRqId::NONE;
        let mut still_throttled = false;
        // Before 5.8 the walker spends a copy: what is given back meanwhile is not for it.
        let mut copy_ns = self.groups[group].pool.runtime_ns;
        for &q in &list {
            let left_ns = if self.rules.lump_distribution {
                copy_ns
            } else {
                self.groups[group].pool.runtime_ns
            };
            if left_ns == 0 {
                still_throttled = true;
                break;
            }
            if !self.cfs_rqs[q].bandwidth.throttled || self.cfs_rqs[q].bandwidth.csd_pending {
                continue;
            }
            copy_ns -= self.grant(group, q, left_ns);
            if self.cfs_rqs[q].bandwidth.runtime_remaining_ns <= 0 {
                still_throttled = true;
                if self.rules.exhaustion == Exhaustion::Throttle {
                    break;
                }
                continue;
            }
            self.send_release(q, &mut local);
        }
        if local.is_some() {
            self.unthrottle(local);
        }
        self.groups[group].pool.distributing = false;
        let cost_ns = self.release.end();
        if self.here.is_some() {
            self.irq_section(self.here, cost_ns);
        }
        self.scratch = list;
        match self.rules.release {
            Release::Sync => !self.groups[group].pool.throttled.is_empty(),
            Release::Csd | Release::CsdAll => still_throttled,
        }
    }

    /// Pays a silo's debt and 1 ns out of the pool, as far as it goes; says how much.
    fn grant(&mut self, group: GroupId, q: CfsRqId, left_ns: u64) -> u64 {
        if self.cfs_rqs[q].curr.is_some() {
            match self.rules.exhaustion {
                Exhaustion::Throttle => self.charge(q),
                // What is owed is what the last tick found, and that may not have been an event.
                Exhaustion::Resched => self.charge_to_last_tick(q),
            }
        }
        let silo = &mut self.cfs_rqs[q].bandwidth;
        let want_ns = u64::try_from(1 - silo.runtime_remaining_ns).unwrap_or(0);
        let grant_ns = want_ns.min(left_ns);
        silo.runtime_remaining_ns += grant_ns as i64;
        let pool = &mut self.groups[group].pool;
        silo.expires_ns = pool.expires_ns;
        silo.expires_seq = pool.expires_seq;
        pool.runtime_ns -= grant_ns;
        grant_ns
    }

    fn send_release(&mut self, q: CfsRqId, local: &mut CfsRqId) {
        let cpu = self.cfs_rqs[q].cpu;
        match self.rules.release {
            Release::Sync => {
                self.release.remote_lock();
                self.unthrottle(q);
            }
            Release::Csd if cpu == self.here => *local = q,
            Release::Csd | Release::CsdAll => {
                self.release.remote();
                self.cfs_rqs[q].bandwidth.csd_pending = true;
                let local = cpu == self.here;
                let delay_ns = match local {
                    // Time passes only for what runs meanwhile, and here nothing does.
                    true if self.cfs_rqs[q].curr.is_none() => 0,
                    true => LOCAL_FLUSH_NS,
                    false => self.workload.machine.ipi_ns,
                };
                let at_ns = self.now + delay_ns;
                let c = &mut self.cpus[cpu];
                if c.csd.is_empty() {
                    c.csd_ns = at_ns;
                } else if local {
                    c.csd_ns = c.csd_ns.max(at_ns);
                }
                c.csd.push_back(q);
                self.touch(cpu, false);
            }
        }
    }

    /// On its CPU: everything that was sent for release is released, in one irq-off section.
    pub(crate) fn csd_handler(&mut self, cpu: CpuId) {
        if self.rules.pull {
            self.mail_handler(cpu);
            return;
        }
        self.cpus[cpu].csd_ns = NEVER;
        self.release.begin();
        while let Some(q) = self.cpus[cpu].csd.pop_front() {
            self.cfs_rqs[q].bandwidth.csd_pending = false;
            if self.cfs_rqs[q].bandwidth.throttled {
                self.unthrottle(q);
            }
        }
        let cost_ns = self.release.end();
        self.irq_section(cpu, cost_ns);
    }
}
