//! The period timer (kernel: `sched_cfs_period_timer()`, `do_sched_cfs_period_timer()`,
//! `start_cfs_bandwidth()`).

use crate::cpu::SoftirqWork;
use crate::events::{NEVER, Slot};
use crate::faults::Fault;
use crate::group::Timer;
use crate::ids::{CpuId, GroupId, Id};
use crate::machine::Machine;
use crate::rules::{Expiry, PeriodScaling, Refill};
use crate::step::Step;
use cpumax_outcome::trace::What;
use cpumax_workload::{Domain, Stream};

/// Passes of one timer call after which its period is considered too short.
const MAX_PASSES: u32 = 3;
/// A period does not grow beyond this, ns.
const MAX_PERIOD_NS: u64 = 1_000_000_000;

impl Machine<'_> {
    /// Expiry of a new group's period timer, ns: observed on a real kernel, set by workload and
    /// options, or (6.4+) random within a period, else 0. Changes nothing.
    pub(crate) fn initial_phase_ns(&self, group: GroupId, period_ns: u64) -> u64 {
        let (groups, is_random) = (&self.workload.groups, self.rules.random_phase);
        let path = &groups[group.ix()].path;
        if let Some(&edge_ns) = self.lab.observed.and_then(|o| o.first_edge_ns.get(path)) {
            return edge_ns;
        }
        if let Some(phase_ns) = self.workload.machine.timer_phase_ns {
            let apart_ns = if is_random { self.settings.timers_apart_ns } else { 0 };
            let before = groups[..group.ix()].iter().filter(|spec| spec.limit.quota_ns().is_some());
            return (phase_ns + before.count() as u64 * apart_ns) % period_ns;
        }
        if !is_random {
            return 0;
        }
        Stream::new(self.settings.seed, Domain::Group, u64::from(group.0)).below(period_ns)
    }

    /// Arms an inactive period timer on the current CPU, at its next multiple of the period after
    /// now (kernel: `start_cfs_bandwidth()`). An observed edge at time 0 is kept: a real kernel
    /// wakes the first tasks just before it.
    pub(crate) fn arm_period_timer(&mut self, group: GroupId) {
        let (now, here) = (self.now, self.events.here);
        let is_there = here.is_some() && self.cpus[here].online;
        let timer_cpu = if is_there { here } else { self.first_online() };
        let path = &self.workload.groups[group.ix()].path;
        let seen = self.lab.observed.and_then(|observed| observed.first_edge_ns.get(path));
        let on_start = now == 0 && seen == Some(&0);
        let pool = &mut self.groups[group].pool;
        pool.timer.active = true;
        pool.timer.cpu = timer_cpu;
        let passed =
            if on_start { 0 } else { forward(&mut pool.timer.expiry_ns, now, pool.period_ns) };
        if self.rules.expiry == Expiry::Lost {
            pool.expires_ns += (passed + 1) * pool.period_ns;
            pool.expires_seq += 1;
        }
        let expiry_ns = pool.timer.expiry_ns.max(now + 1);
        self.events.set(Slot::Period(group), expiry_ns);
    }

    /// Postpones a timer of a CPU that has interrupts off to the end of that. True if postponed.
    pub(crate) fn defer_timer(&mut self, slot: Slot, cpu: CpuId) -> bool {
        let until_ns = self.cpus[cpu].irqs_off_until_ns;
        if until_ns > self.now {
            self.events.set(slot, until_ns);
            return true;
        }
        false
    }

    /// Handles the event of the period timer: takes its interrupt, or defers it while interrupts
    /// are off or a distribution is under way, or hands it to the timer thread (`PREEMPT_RT`).
    pub(crate) fn period_timer(&mut self, group: GroupId) {
        let slot = Slot::Period(group);
        let cpu = self.groups[group].pool.timer.cpu;
        if self.defer_timer(slot, cpu)
            || self.hand_to_ktimers(slot, cpu, SoftirqWork::Period(group))
        {
            return;
        }
        if let Some(distribution) = &self.groups[group].pool.distribution {
            // The slack timer's distribution comes first.
            let after_ns = distribution.next_ns + 1;
            self.events.set(slot, after_ns);
            return;
        }
        self.finish_tick(cpu);
        self.enter_irq(cpu, Step::Period);
        self.in_interrupt_of(cpu, |m| {
            m.account_work(cpu);
            m.period_expired(group);
            m.keep_irq_open(cpu, group);
        });
    }

    /// Handles the expiry of a period in the interrupt: counts periods, refills, distributes, and
    /// sets the timer again or lets it rest (kernel: `sched_cfs_period_timer()`).
    pub(crate) fn period_expired(&mut self, group: GroupId) {
        let slot = Slot::Period(group);
        let cpu = self.groups[group].pool.timer.cpu;
        let now = self.now;
        let pool = &mut self.groups[group].pool;
        let periods = forward(&mut pool.timer.expiry_ns, now, pool.period_ns);
        if periods > 0 && self.has(Fault::PhaseLost) {
            let pool = &mut self.groups[group].pool;
            pool.timer.expiry_ns = now + pool.period_ns;
        }
        if periods > 0 {
            self.emit(cpu, What::Period { group: group.0 });
        }
        let spent_ns = self.unthrottle_cost.spent_ns();
        let periods = if self.has(Fault::LatePeriodsUncounted) { periods.min(1) } else { periods };
        match if periods > 0 { self.one_period(group, periods) } else { Pass::Over } {
            Pass::Over => {
                let costs = self.workload.machine.cost_timing;
                let spent_ns = if costs { self.unthrottle_cost.spent_ns() - spent_ns } else { 0 };
                self.end_pass(group, spent_ns, now + spent_ns);
            }
            Pass::Lasts if self.groups[group].pool.distribution.is_some() => {
                self.events.set(slot, NEVER);
            }
            Pass::Lasts => {}
            Pass::NotNeeded => {
                let pool = &mut self.groups[group].pool;
                (pool.timer.active, pool.timer.passes) = (false, 0);
                self.events.set(slot, NEVER);
            }
        }
    }

    /// Ends a pass of the period timer and sets it again: to its next expiry if unthrottling took
    /// no time (`spent_ns`), else to `over_ns`, when the same call checks again. After too many
    /// passes in one call it lengthens period and quota.
    pub(crate) fn end_pass(&mut self, group: GroupId, spent_ns: u64, over_ns: u64) {
        let pool = &mut self.groups[group].pool;
        pool.timer.passes += 1;
        if spent_ns == 0 {
            pool.timer.passes = 0;
        } else if pool.timer.passes > MAX_PASSES {
            pool.timer.passes = 0;
            self.scale_period(group);
        }
        // After a pass that took time the same call checks whether the timer is due again.
        let expiry_ns = self.groups[group].pool.timer.expiry_ns;
        self.events.set(Slot::Period(group), if spent_ns == 0 { expiry_ns } else { over_ns });
    }

    /// Keeps the CPU in the interrupt, so that it does not reschedule yet, while the group's
    /// distribution is under way.
    pub(crate) fn keep_irq_open(&mut self, cpu: CpuId, group: GroupId) {
        if self.groups[group].pool.distribution.is_some() {
            self.cpus[cpu].entered = false;
        }
    }

    /// Accounts for `periods` passed periods (`nr_periods`, `nr_throttled`), refills the pool, and
    /// distributes it to throttled run queues (kernel: `do_sched_cfs_period_timer()`). Returns
    /// whether the pass is over, lasts (distribution takes time), or is not needed: the group is
    /// idle or unlimited, so the timer may rest.
    fn one_period(&mut self, group: GroupId, periods: u64) -> Pass {
        if self.groups[group].pool.quota_ns.is_none() {
            return Pass::NotNeeded;
        }
        if self.rules.pull {
            self.charge_debts(group);
        }
        let rests = !self.has(Fault::TimerNeverRests);
        let unfilled = self.rules.refill == Refill::Set || self.has(Fault::RestsUnfilled);
        let g = &mut self.groups[group];
        let throttled = !g.pool.throttled.is_empty() || g.pool.pull.denied;
        let idle = g.pool.idle && !throttled && g.pool.pull.debt_ns == 0 && rests;
        g.stat.nr_periods += periods;
        if let Some(seen) = self.watched_now(group) {
            seen.nr_periods += periods;
        }
        // Burst needs the refill even when the timer is about to stop.
        if idle && unfilled {
            return Pass::NotNeeded;
        }
        self.refill(group);
        if idle {
            return Pass::NotNeeded;
        }
        if !throttled {
            self.groups[group].pool.idle = true;
            return Pass::Over;
        }
        self.groups[group].stat.nr_throttled += periods;
        if let Some(seen) = self.watched_now(group) {
            seen.nr_throttled += periods;
        }
        if self.rules.pull {
            self.mail_shares_in_irq(group);
            self.groups[group].pool.idle = false;
            return Pass::Over;
        }
        if !self.distribute(group, Timer::Period) {
            return Pass::Lasts;
        }
        self.groups[group].pool.idle = false;
        Pass::Over
    }

    /// Lengthens a period that is too short for its timer, and its quota alike: by 147/128 (5.1 to
    /// 5.3) or twofold, burst included (5.4+), up to a longest period; not before 5.1.
    fn scale_period(&mut self, group: GroupId) {
        let pool = &mut self.groups[group].pool;
        let Some(quota_ns) = pool.quota_ns.as_mut() else { return };
        match self.rules.period_scaling {
            PeriodScaling::None => {}
            PeriodScaling::P147In128 => {
                let old_ns = pool.period_ns;
                pool.period_ns = (old_ns * 147 / 128).min(MAX_PERIOD_NS);
                *quota_ns = (u128::from(*quota_ns) * u128::from(pool.period_ns)
                    / u128::from(old_ns)) as u64;
            }
            PeriodScaling::Double => {
                if pool.period_ns * 2 < MAX_PERIOD_NS {
                    pool.period_ns *= 2;
                    *quota_ns *= 2;
                    pool.burst_ns *= 2;
                }
            }
        }
    }
}

enum Pass {
    Over,
    /// The pass continues later in this interrupt.
    Lasts,
    NotNeeded,
}

/// Moves an expiry by whole periods past now; returns by how many, 0 if it is later than now
/// (kernel: `hrtimer_forward_now()`).
fn forward(expiry_ns: &mut u64, now: u64, period_ns: u64) -> u64 {
    if *expiry_ns > now {
        return 0;
    }
    let periods = (now - *expiry_ns) / period_ns + 1;
    *expiry_ns += periods * period_ns;
    periods
}
