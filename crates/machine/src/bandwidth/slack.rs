//! The slack timer, and expiry of runtime. The timer hands runtime that idle run queues gave back
//! to throttled ones, before the next period (kernel: `start_cfs_slack_bandwidth()`,
//! `do_sched_cfs_slack_timer()`). Until 5.3 the runtime of a run queue had a deadline
//! (`expire_cfs_rq_runtime()`).

use crate::events::{NEVER, Slot};
use crate::faults::Fault;
use crate::group::Timer;
use crate::ids::{CfsRqId, CpuId, GroupId};
use crate::machine::Machine;
use crate::rules::Expiry;
use crate::step::Step;

/// From a give-back to the distribution, ns (kernel: `cfs_bandwidth_slack_period`).
const SLACK_DELAY_NS: u64 = 5_000_000;
/// No distribution if the period ends within this time, ns (kernel: `min_bandwidth_expiration`).
const MIN_LEFT_NS: u64 = 2_000_000;

impl Machine<'_> {
    /// Whether the period timer fires within `ns` from now (kernel: `runtime_refresh_within()`).
    fn refill_is_within(&self, group: GroupId, ns: u64) -> bool {
        let expiry_ns = self.events.expiry_ns(Slot::Period(group));
        expiry_ns.saturating_sub(self.now) < ns
    }

    /// Arms the slack timer on this CPU, 5 ms from now, unless a refill is due soon or, in newer
    /// kernels, it is armed already (kernel: `start_cfs_slack_bandwidth()`).
    pub(crate) fn arm_slack_timer(&mut self, group: GroupId, cpu: CpuId) {
        let late = self.refill_is_within(group, SLACK_DELAY_NS + MIN_LEFT_NS);
        if late && !self.has(Fault::SlackAtTheEnd) {
            return;
        }
        let pool = &mut self.groups[group].pool;
        if self.rules.slack_armed_once && pool.slack_started {
            return;
        }
        pool.slack_started = true;
        pool.slack_cpu = cpu;
        self.events.set(Slot::Slack(group), self.now + SLACK_DELAY_NS);
    }

    /// Handles the event of the slack timer: takes its interrupt, or defers it while interrupts are
    /// off, or hands it to the timer thread (`PREEMPT_RT`).
    pub(crate) fn slack_timer(&mut self, group: GroupId) {
        let slot = Slot::Slack(group);
        let cpu = self.groups[group].pool.slack_cpu;
        if self.defer_timer(slot, cpu)
            || self.hand_to_ktimers(slot, cpu, crate::cpu::SoftirqWork::Slack(group))
        {
            return;
        }
        self.events.set(slot, NEVER);
        self.finish_tick(cpu);
        self.enter_irq(cpu, Step::Period);
        self.in_interrupt_of(cpu, |m| m.slack_expired(group));
    }

    /// Distributes returned runtime to throttled run queues, unless a refill is due soon, a
    /// distribution is under way, or it is no more than a slice (kernel:
    /// `do_sched_cfs_slack_timer()`). Pull rules: mails shares of it.
    pub(crate) fn slack_expired(&mut self, group: GroupId) {
        self.groups[group].pool.slack_started = false;
        if self.rules.pull {
            self.mail_shares_in_irq(group);
            return;
        }
        let late = self.refill_is_within(group, MIN_LEFT_NS) && !self.has(Fault::SlackAtTheEnd);
        if late || self.groups[group].pool.distribution.is_some() {
            return;
        }
        let enough_ns = if self.has(Fault::LittleHandedOut) { 0 } else { self.slice_ns() };
        let pool = &self.groups[group].pool;
        let cpu = pool.slack_cpu;
        if pool.quota_ns.is_some() && pool.runtime_ns > enough_ns as u64 {
            self.distribute(group, Timer::Slack);
            self.keep_irq_open(cpu, group);
        }
    }

    /// To 5.3: discards the run queue's runtime after its deadline, or postpones the deadline by a
    /// tick where the CPU's clock is taken to run ahead (kernel: `expire_cfs_rq_runtime()`). Equal
    /// refill numbers mean that, to 4.17 different ones.
    pub(crate) fn expire_runtime(&mut self, q: CfsRqId) {
        let ahead_if_equal = match self.rules.expiry {
            Expiry::PutOff => false,
            Expiry::Lost => true,
            Expiry::Never => return,
        };
        let (now, tick_ns) = (self.now, self.settings.tick_ns);
        let rq = &mut self.cfs_rqs[q];
        let pool = &mut self.groups[rq.group].pool;
        let bw = &mut rq.bandwidth;
        if now < bw.expires_ns || bw.runtime_remaining_ns < 0 {
            return;
        }
        if (bw.expires_seq == pool.expires_seq) == ahead_if_equal {
            bw.expires_ns += tick_ns;
        } else {
            pool.books.discarded_ns += i128::from(bw.runtime_remaining_ns);
            bw.runtime_remaining_ns = 0;
        }
    }
}
