//! Bandwidth control in which CPUs pull runtime: rules of our own, argued in docs/lab/proposal.md.
//!
//! A run queue holds 0 to one slice of runtime and never owes; time run without runtime is its
//! group's debt. A run queue that was denied runtime remembers the pool's epoch, so that asking
//! again is one comparison; nothing above or below it is marked. Parked tasks are kept in a tree
//! that contains only levels with some. A refill mails shares to a few of the waiting CPUs, each
//! of which does that for a few more. When a CPU schedules, it takes back as many tasks as its
//! runtime feeds.

mod check;
#[cfg(test)]
mod tests;
mod tree;
mod weight;

use crate::events::{NEVER, Slot};
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, GroupId, Id};
use crate::machine::Machine;
use cpumax_outcome::Releaser;
use cpumax_outcome::trace::What;

/// Smallest share for a waiting CPU, ns, if the pool and the slice allow it: less would not pay
/// for its interrupt.
const MIN_GRANT_NS: u64 = 100_000;
/// CPUs that one interrupt handler tells.
const FANOUT: u32 = 4;
/// A group that owes more than so many quotas gets nothing until it owes less.
const MAX_DEBT_QUOTAS: u64 = 4;

impl Machine<'_> {
    /// Whether tasks are parked on this run queue, or on linked ones below it.
    fn holds_parked(&self, q: CfsRqId) -> bool {
        !self.cfs_rqs[q].bandwidth.limbo.is_empty() || !self.parked[q.ix()].children.is_empty()
    }

    /// Whether a run queue was denied runtime, and neither got mail nor has its pool gained any
    /// since. Changes nothing.
    fn is_denied(&self, q: CfsRqId) -> bool {
        let rq = &self.cfs_rqs[q];
        let parked = &self.parked[q.ix()];
        let pool = &self.groups[rq.group].pool;
        rq.bandwidth.throttled && parked.mail_ns == 0 && parked.epoch == pool.pull.epoch
    }

    /// Whether this run queue or an ancestor is denied runtime. Takes no runtime.
    pub(crate) fn path_is_denied(&self, mut q: CfsRqId) -> bool {
        while q.is_some() {
            if self.is_denied(q) {
                return true;
            }
            q = self.cfs_rqs[q].parent;
        }
        false
    }

    /// Whether this run queue lets a task run in user mode (pull rules, a proposal that is in no
    /// kernel). Opens its mail or takes a slice from the pool if needed; unthrottles it if that
    /// succeeds after it was denied, and denies it if there is none.
    pub(crate) fn admit(&mut self, q: CfsRqId) -> bool {
        let bw = &self.cfs_rqs[q].bandwidth;
        if !bw.enabled || bw.runtime_remaining_ns > 0 && !bw.throttled {
            return true;
        }
        if self.is_denied(q) {
            return false;
        }
        if self.cfs_rqs[q].curr.is_some() && self.cfs_rqs[q].exec_start_ns != self.now {
            // Time run without runtime becomes debt, and is not taken off new runtime.
            self.charge(q);
            return self.admit(q);
        }
        self.open_mail(q);
        if self.cfs_rqs[q].bandwidth.runtime_remaining_ns <= 0 {
            self.take_slice(q);
        }
        let bw = &self.cfs_rqs[q].bandwidth;
        if bw.runtime_remaining_ns <= 0 {
            self.deny(q);
            return false;
        }
        if bw.throttled {
            self.reopen(q);
        }
        true
    }

    /// Whether this run queue and all above it let a task run in user mode; takes runtime from
    /// their pools where needed, and denies the first that gets none.
    pub(crate) fn admit_path(&mut self, mut q: CfsRqId) -> bool {
        while q.is_some() {
            if !self.admit(q) {
                return false;
            }
            if self.has(Fault::AncestorsNotAsked) {
                break;
            }
            q = self.cfs_rqs[q].parent;
        }
        true
    }

    /// Charges a run queue for `ns` under the pull rules; the group owes what a denied one runs.
    /// Takes runtime when that is used up. True if it has none.
    pub(crate) fn account_pulling(&mut self, q: CfsRqId, ns: u64) -> bool {
        let rq = &mut self.cfs_rqs[q];
        if rq.bandwidth.throttled {
            self.groups[rq.group].pool.pull.debt_ns += ns;
            return true;
        }
        rq.bandwidth.runtime_remaining_ns -= ns as i64;
        if self.has(Fault::RunsOn) {
            return false;
        }
        self.cfs_rqs[q].bandwidth.runtime_remaining_ns <= 0 && !self.admit(q)
    }

    /// Takes a slice at a tick if the runtime would run out before the next one, so that only the
    /// end of a quota needs a timer.
    pub(crate) fn top_up(&mut self, q: CfsRqId) {
        let bw = &self.cfs_rqs[q].bandwidth;
        let enough_ns = (self.settings.tick_ns as i64).min(self.slice_ns());
        if bw.enabled && !bw.throttled && bw.runtime_remaining_ns < enough_ns {
            self.take_slice(q);
        }
    }

    /// When the run queue's runtime ends if its task keeps running, ns; [`NEVER`] if nothing runs,
    /// it has no limit, or it is denied already.
    pub(crate) fn runtime_ends_ns(&self, q: CfsRqId) -> u64 {
        let rq = &self.cfs_rqs[q];
        if !rq.bandwidth.enabled || rq.bandwidth.throttled || rq.curr.is_none() {
            return NEVER;
        }
        rq.exec_start_ns + rq.bandwidth.runtime_remaining_ns.max(0) as u64
    }

    /// When a timer must stop the CPU's current task because runtime ends before the next tick, ns
    /// of simulated time, or [`NEVER`].
    pub(crate) fn exhaustion_ns(&self, cpu: CpuId) -> u64 {
        let curr = self.cpus[cpu].curr;
        if !self.rules.pull || curr.is_none() || !self.tasks[curr].is_fair() {
            return NEVER;
        }
        let mut ends_ns = NEVER;
        let mut q = self.ses[self.tasks[curr].se].q;
        while q.is_some() {
            // A level without runtime was not asked, as a level below was denied.
            let bw = &self.cfs_rqs[q].bandwidth;
            if bw.enabled && bw.runtime_remaining_ns > 0 {
                ends_ns = ends_ns.min(self.runtime_ends_ns(q));
            }
            q = self.cfs_rqs[q].parent;
        }
        let tick_ns = self.tick_at_or_after(cpu, self.now, self.tick_interval_ns(cpu));
        if ends_ns < tick_ns { ends_ns.max(self.now) } else { NEVER }
    }

    /// Takes a slice from the pool for the run queue, as far as there is one, and lets parked tasks
    /// come back for it.
    fn take_slice(&mut self, q: CfsRqId) {
        let before_ns = self.cfs_rqs[q].bandwidth.runtime_remaining_ns;
        self.assign_runtime(q, self.slice_ns());
        let left_ns = self.cfs_rqs[q].bandwidth.runtime_remaining_ns;
        if left_ns > 0 {
            self.feed(q, left_ns - before_ns);
        }
    }

    /// Runtime for which one parked task comes back, ns: about a base slice, a whole fraction of a
    /// bandwidth slice.
    fn feeds_one_ns(&self) -> i64 {
        let (slice_ns, own_ns) = (self.slice_ns(), self.settings.base_slice_ns as i64);
        slice_ns / (slice_ns / own_ns.max(1)).max(1)
    }

    /// Adds the runtime that was mailed to a run queue (taken from the pool for it by another CPU)
    /// to its own.
    fn open_mail(&mut self, q: CfsRqId) {
        let ns = std::mem::take(&mut self.parked[q.ix()].mail_ns);
        self.cfs_rqs[q].bandwidth.runtime_remaining_ns += ns as i64;
    }

    /// Lets as many parked tasks below a run queue come back as `ns` of runtime feed: adds to its
    /// allowance and links it to its parent.
    fn feed(&mut self, q: CfsRqId, ns: i64) {
        self.parked[q.ix()].feed_ns += ns;
        let open = !self.cfs_rqs[q].bandwidth.throttled;
        if open && !self.parked[q.ix()].linked && self.holds_parked(q) {
            self.link(q);
        }
    }

    /// Denies a run queue runtime (pull rules, a proposal that is in no kernel): marks it as
    /// throttled, so that its tasks park on their way to user mode; the group owes what they use
    /// until then. It waits for runtime if tasks are parked. Gives the running task throttle work.
    fn deny(&mut self, q: CfsRqId) {
        let rq = &mut self.cfs_rqs[q];
        let (group, cpu) = (rq.group, rq.cpu);
        let owed_ns = rq.bandwidth.runtime_remaining_ns.unsigned_abs();
        let forgiven = self.has(Fault::DebtForgiven);
        let rq = &mut self.cfs_rqs[q];
        let pool = &mut self.groups[group].pool;
        pool.pull.debt_ns += if forgiven { 0 } else { owed_ns };
        rq.bandwidth.runtime_remaining_ns = 0;
        pool.pull.denied = true;
        self.parked[q.ix()].epoch = pool.pull.epoch;
        if std::mem::replace(&mut rq.bandwidth.throttled, true) {
            return;
        }
        let runs = rq.curr.is_some() && self.ses[rq.curr].on_rq;
        self.unlink(q);
        if self.holds_parked(q) {
            self.start_clock_denied(q);
            self.wait_for_runtime(q);
        }
        self.emit(cpu, What::Throttle { group: group.0 });
        self.touch(cpu, false);
        if runs {
            self.give_work_to_running(cpu);
        }
    }

    /// Appends a run queue to its group's list of those that wait for runtime, unless it is on it.
    fn wait_for_runtime(&mut self, q: CfsRqId) {
        if self.has(Fault::WaiterForgotten) {
            return;
        }
        if !std::mem::replace(&mut self.parked[q.ix()].waiting, true) {
            self.groups[self.cfs_rqs[q].group].pool.throttled.push(q);
        }
    }

    /// Unthrottles a run queue that has runtime again, or no limit: stops its clock, takes it off
    /// the waiting list, and links its parked tasks so that they come back.
    pub(crate) fn reopen(&mut self, q: CfsRqId) {
        let (group, cpu) = (self.cfs_rqs[q].group, self.cfs_rqs[q].cpu);
        self.cfs_rqs[q].bandwidth.throttled = false;
        self.stop_clock(q);
        if std::mem::take(&mut self.parked[q.ix()].waiting) {
            self.groups[group].pool.throttled.retain(|&waiting| waiting != q);
        }
        self.emit(cpu, What::Unthrottle { group: group.0 });
        self.unthrottle_cost.count_unthrottled(1);
        self.parked[q.ix()].feed_ns = self.cfs_rqs[q].bandwidth.runtime_remaining_ns;
        if self.holds_parked(q) {
            self.link(q);
        }
        self.touch(cpu, false);
    }

    /// Takes shares out of the pool for up to [`FANOUT`] run queues that wait longest, and sends
    /// their CPUs interrupts in which they add these to their runtime (pull rules, a proposal that
    /// is in no kernel). These CPUs serve the next ones in turn.
    pub(crate) fn mail_shares(&mut self, group: GroupId) {
        let least_ns = MIN_GRANT_NS.min(self.slice_ns() as u64);
        let mut told = 0;
        let mut at = 0;
        while told < FANOUT {
            let pool = &mut self.groups[group].pool;
            if pool.runtime_ns == 0 || at == pool.throttled.len() {
                break;
            }
            let q = pool.throttled[at];
            at += 1;
            self.parked[q.ix()].waiting = false;
            if !self.holds_parked(q) {
                continue;
            }
            let pool = &mut self.groups[group].pool;
            let ns = pool.pull.share_ns.max(least_ns).min(pool.runtime_ns);
            pool.runtime_ns -= ns;
            pool.idle = false;
            if !self.has(Fault::ShareLost) {
                self.parked[q.ix()].mail_ns += ns;
            }
            told += 1;
            self.send_mail(q);
        }
        self.groups[group].pool.throttled.drain(..at);
        self.trace_runtime(group);
    }

    /// Sends a run queue's CPU the interrupt in which it opens its mail, unless one is under way;
    /// after the IPI's delay, or at once on this CPU.
    fn send_mail(&mut self, q: CfsRqId) {
        if self.has(Fault::MailNotSent) {
            return;
        }
        let cpu = self.cfs_rqs[q].cpu;
        let local = cpu == self.events.here;
        if !local {
            self.unthrottle_cost.count_remote(false);
        }
        if std::mem::replace(&mut self.cfs_rqs[q].bandwidth.csd_pending, true) {
            return;
        }
        let delay_ns = if local { 0 } else { self.workload.machine.ipi_ns };
        // Where sections take time, interrupts are sent one after the other.
        let sent_ns = if self.locks_cost() { self.unthrottle_cost.section_ns() } else { 0 };
        let c = &mut self.cpus[cpu];
        if c.csd.queue.is_empty() {
            c.next.csd_ns = self.now + sent_ns + delay_ns;
        }
        c.csd.queue.push_back(q);
        self.touch(cpu, false);
    }

    /// Handles that interrupt on `cpu` for one run queue: opens its mail or tries to take runtime,
    /// and mails shares of the pool to others. Comes again at once if more are due.
    pub(crate) fn mail_handler(&mut self, cpu: CpuId) {
        self.cpus[cpu].next.csd_ns = NEVER;
        self.begin_section(Releaser::Handler, cpu);
        if let Some(q) = self.cpus[cpu].csd.queue.pop_front() {
            self.cfs_rqs[q].bandwidth.csd_pending = false;
            self.charge(q);
            if !self.cfs_rqs[q].bandwidth.throttled {
                self.open_mail(q);
            } else if !self.admit(q) && self.holds_parked(q) {
                self.wait_for_runtime(q);
            }
            if !self.has(Fault::NobodyTellsOn) {
                self.mail_shares(self.cfs_rqs[q].group);
            }
        }
        let cost_ns = self.end_section();
        self.irq_section(cpu, cost_ns);
        // One at a time, so that other interrupts can come between.
        if !self.cpus[cpu].csd.queue.is_empty() {
            self.cpus[cpu].next.csd_ns = self.now + cost_ns;
        }
    }

    /// Mails shares of the pool inside a timer's interrupt, as one irq-off section whose cost its
    /// CPU is charged.
    pub(crate) fn mail_shares_in_irq(&mut self, group: GroupId) {
        let cpu = if self.events.here.is_some() {
            self.events.here
        } else {
            self.groups[group].pool.timer.cpu
        };
        self.begin_section(Releaser::Distribute, cpu);
        self.mail_shares(group);
        let cost_ns = self.end_section();
        if self.events.here.is_some() {
            self.irq_section(self.events.here, cost_ns);
        }
    }

    /// Charges, before a refill, what runs on denied run queues of the group up to its last tick,
    /// whether that was an event or not.
    pub(crate) fn charge_debts(&mut self, group: GroupId) {
        for cpu in self.cpus.ids() {
            let Some(&q) = self.groups[group].cfs_rqs.get(cpu.ix()) else { return };
            if q.is_some() && self.cfs_rqs[q].bandwidth.throttled && self.cfs_rqs[q].curr.is_some()
            {
                self.charge_to_last_tick(q);
            }
        }
    }

    /// Pays the group's debt (time run without runtime, pull rules) back out of a refilled pool: at
    /// most half of the quota, or all of the refill once the debt is too large. Then lets denied
    /// run queues ask again, and sets the share of each waiting one.
    pub(crate) fn repay(&mut self, group: GroupId) {
        let slice_ns = self.slice_ns() as u64;
        let unseen = self.has(Fault::RefillUnseen);
        let pool = &mut self.groups[group].pool;
        let quota_ns = pool.quota_ns.unwrap_or(0);
        let owes_too_much = pool.pull.debt_ns > quota_ns.saturating_mul(MAX_DEBT_QUOTAS);
        let most_ns = if owes_too_much { pool.runtime_ns } else { quota_ns / 2 };
        let ns = pool.pull.debt_ns.min(most_ns).min(pool.runtime_ns);
        pool.pull.debt_ns -= ns;
        pool.runtime_ns -= ns;
        pool.runtime_snap_ns = pool.runtime_ns;
        pool.pull.epoch += u64::from(!unseen);
        pool.pull.denied = false;
        let waiting = pool.throttled.len().max(1) as u64;
        pool.pull.share_ns =
            (pool.runtime_ns / waiting).clamp(MIN_GRANT_NS.min(slice_ns), slice_ns);
    }

    /// Lets denied run queues ask again after `cpu` gave runtime back, and fires the slack timer
    /// now if it is enough for one that waits.
    pub(crate) fn announce_returned_runtime(&mut self, group: GroupId, cpu: CpuId) {
        let unseen = self.has(Fault::GiveBackUnseen);
        let pool = &mut self.groups[group].pool;
        pool.pull.epoch += u64::from(!unseen);
        if pool.runtime_ns >= MIN_GRANT_NS && !pool.throttled.is_empty() {
            pool.slack_cpu = cpu;
            self.events.set(Slot::Slack(group), self.now);
        }
    }

    /// Returns the unopened mail of a run queue whose CPU goes offline to the pool, for others
    /// (pull rules only).
    pub(crate) fn return_mail(&mut self, q: CfsRqId) {
        if !self.rules.pull {
            return;
        }
        let (group, cpu) = (self.cfs_rqs[q].group, self.cfs_rqs[q].cpu);
        self.groups[group].pool.runtime_ns += std::mem::take(&mut self.parked[q.ix()].mail_ns);
        self.announce_returned_runtime(group, cpu);
    }

    /// To be called when a limit begins or ends to apply to a run queue, or changes: discards its
    /// mail, and lets parked tasks below it try again (pull rules only).
    pub(crate) fn limit_changed(&mut self, q: CfsRqId) {
        if !self.rules.pull {
            return;
        }
        let parked = &mut self.parked[q.ix()];
        let ns = std::mem::take(&mut parked.mail_ns);
        self.groups[self.cfs_rqs[q].group].pool.books.discarded_ns += i128::from(ns);
        parked.feed_ns = 1;
        if self.cfs_rqs[q].bandwidth.throttled {
            self.reopen(q);
        } else if !parked.linked && self.holds_parked(q) {
            self.link(q);
        }
    }
}
