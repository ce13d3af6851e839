//! Distributing the pool to throttled run queues (kernel: `distribute_cfs_runtime()`,
//! `__cfsb_csd_unthrottle()`).

use crate::cost::{REMOTE_NS, Section};
use crate::events::{Event, NEVER};
use crate::faults::Fault;
use crate::group::{Distribution, Timer};
use crate::ids::{CfsRqId, CpuId, GroupId};
use crate::machine::Machine;
use crate::rules::{Exhaustion, UnthrottleBy};
use cpumax_outcome::Releaser;
use cpumax_outcome::trace::What;

/// From the end of a distribution until the timer's own CPU processes its list, ns (7.2+).
const LOCAL_FLUSH_NS: u64 = 500;

enum Step {
    /// A run queue was unthrottled; the lock of this CPU is held for as long as that takes.
    Released(CpuId),
    /// Another section holds the lock until then, ns.
    Locked(u64),
    Done,
}

impl Machine<'_> {
    /// Begins an irq-off section on the CPU, in place of the last one. Sections do not nest.
    pub(crate) fn begin_section(&mut self, by: Releaser, cpu: CpuId) {
        self.unthrottle_cost.resume(Section::begun(by, cpu, self.now));
    }

    /// Ends the section under way, records it and emits it as a trace event; returns its length by
    /// the cost model, ns. 0 if it unthrottled nothing.
    pub(crate) fn end_section(&mut self) -> u64 {
        let Some((by, call)) = self.unthrottle_cost.finish_section() else { return 0 };
        self.emit(CpuId(call.cpu.into()), What::release(by, call));
        call.ns
    }

    /// Grants the group's throttled run queues, in order, runtime to pay their debt and 1 ns, while
    /// the pool lasts, and unthrottles those that become positive, at once or by interrupt (kernel:
    /// `distribute_cfs_runtime()`). True if it is over; false where this takes time, as the
    /// distribution then continues by events.
    pub(crate) fn distribute(&mut self, group: GroupId, timer: Timer) -> bool {
        let mut walk = self.begin_distribution(group, timer, 0);
        if self.locks_cost() {
            self.step_distribution(group, Box::new(walk));
            return false;
        }
        self.unthrottle_cost.resume(walk.section);
        while !matches!(self.distribute_next(group, &mut walk), Step::Done) {}
        let cost_ns = self.end_section();
        if self.events.here.is_some() {
            self.irq_section(self.events.here, cost_ns);
        }
        let again = self.end_distribution(group, walk);
        debug_assert!(!again, "only while a distribution takes time others throttle or give back");
        true
    }

    /// Whether irq-off sections take simulated time, so that one may have to wait for a CPU's lock:
    /// with `cost_timing`, inside an interrupt, and not on `PREEMPT_RT`.
    pub(crate) fn locks_cost(&self) -> bool {
        self.workload.machine.cost_timing
            && self.events.here.is_some()
            && !self.settings.preempt.is_rt()
    }

    /// Starts a distribution over a copy of the group's throttled list and marks the pool as
    /// distributing. `spent_ns`: time of earlier distributions in this timer call.
    fn begin_distribution(&mut self, group: GroupId, timer: Timer, spent_ns: u64) -> Distribution {
        let mut list = std::mem::take(&mut self.extras.scratch);
        let pool = &mut self.groups[group].pool;
        let of_timer = if timer == Timer::Slack { pool.slack_cpu } else { pool.timer.cpu };
        let cpu = if self.events.here.is_some() { self.events.here } else { of_timer };
        list.clear();
        list.extend_from_slice(&pool.throttled);
        pool.distributing = true;
        Distribution {
            cpu,
            timer,
            list,
            at: 0,
            local: CfsRqId::NONE,
            still_throttled: false,
            copy_ns: pool.runtime_ns,
            section: Section::begun(Releaser::Distribute, cpu, self.now),
            spent_ns,
            next_ns: self.now,
        }
    }

    /// Ends a distribution: the pool is no longer marked as distributing. True if runtime is left
    /// and some run queues stay throttled.
    fn end_distribution(&mut self, group: GroupId, walk: Distribution) -> bool {
        let pool = &mut self.groups[group].pool;
        pool.distributing = false;
        self.extras.scratch = walk.list;
        let still_throttled = match self.rules.release {
            UnthrottleBy::Sync => !pool.throttled.is_empty(),
            UnthrottleBy::Csd | UnthrottleBy::CsdAll => walk.still_throttled,
        };
        still_throttled && pool.runtime_ns > 0
    }

    /// Handles the event of a distribution that takes time: goes on, in the interrupt in which it
    /// began, up to its next step. Does nothing if the group has none.
    pub(crate) fn continue_distribution(&mut self, group: GroupId) {
        let Some(walk) = self.groups[group].pool.distribution.take() else { return };
        let cpu = walk.cpu;
        self.account_work(cpu);
        self.touch(cpu, false);
        self.on(cpu, |m| m.step_distribution(group, walk));
        if self.groups[group].pool.distribution.is_none() {
            self.touch(cpu, true);
        }
    }

    /// Continues a distribution that takes time up to its next unthrottle or lock, charges the CPU
    /// for that, stores it in the pool and schedules the next step. At its end a slack timer's is
    /// over; a period timer's ends the pass, or distributes again while runtime and throttled run
    /// queues are left.
    fn step_distribution(&mut self, group: GroupId, mut walk: Box<Distribution>) {
        loop {
            let before_ns = walk.section.ns();
            self.unthrottle_cost.resume(walk.section);
            let step = self.distribute_next(group, &mut walk);
            if let Step::Locked(until_ns) = step {
                self.unthrottle_cost.add_wait(until_ns - self.now);
            }
            walk.section = self.unthrottle_cost.suspend();
            let took_ns = walk.section.ns() - before_ns;
            self.irq_section(walk.cpu, took_ns);
            if let Step::Released(cpu) = step {
                self.cpus[cpu].csd.locked_until_ns = self.now + took_ns;
            }
            if !matches!(step, Step::Done) {
                walk.next_ns = self.now + took_ns;
                // Other interrupts come after the next step.
                self.cpus[walk.cpu].irqs_off_until_ns = walk.next_ns + 1;
                self.events.heap.push(walk.next_ns, Event::Distribution(group));
                self.groups[group].pool.distribution = Some(walk);
                return;
            }
            self.unthrottle_cost.resume(walk.section);
            let spent_ns = walk.spent_ns + self.end_section();
            let timer = walk.timer;
            let again = self.end_distribution(group, *walk);
            if timer == Timer::Slack {
                return;
            }
            if !again || self.has(Fault::DistributesOnce) {
                self.groups[group].pool.idle = false;
                self.end_pass(group, spent_ns, self.now);
                return;
            }
            walk = Box::new(self.begin_distribution(group, timer, spent_ns));
        }
    }

    /// Goes on in the throttled list, granting runtime from the pool (before 5.8: from a copy of
    /// it), up to the next run queue that is unthrottled (`Released`), whose CPU's lock is taken
    /// (`Locked`, with the time of its release), or the end (`Done`). A run queue of this CPU may
    /// come last.
    fn distribute_next(&mut self, group: GroupId, walk: &mut Distribution) -> Step {
        while let Some(&q) = walk.list.get(walk.at) {
            let pool = &self.groups[group].pool;
            let left_ns = if self.rules.lump_distribution { walk.copy_ns } else { pool.runtime_ns };
            if left_ns == 0 {
                walk.still_throttled = true;
                break;
            }
            let rq = &self.cfs_rqs[q];
            let (cpu, bw) = (rq.cpu, &rq.bandwidth);
            if !bw.throttled || bw.csd_pending {
                walk.at += 1;
                continue;
            }
            if self.is_locked(cpu) {
                return Step::Locked(self.cpus[cpu].csd.locked_until_ns);
            }
            walk.at += 1;
            walk.copy_ns = left_ns - self.grant(group, q, left_ns);
            if self.cfs_rqs[q].bandwidth.runtime_remaining_ns <= 0 {
                // The pool did not suffice, so it is empty, and the distribution ends.
                walk.still_throttled = true;
                continue;
            }
            if self.send_release(q, &mut walk.local) {
                return Step::Released(cpu);
            }
        }
        walk.at = walk.list.len();
        let local = walk.local;
        // A limit written meanwhile unthrottles all.
        if local.is_none() || !self.cfs_rqs[local].bandwidth.throttled {
            walk.local = CfsRqId::NONE;
            return Step::Done;
        }
        let cpu = self.cfs_rqs[local].cpu;
        if self.is_locked(cpu) {
            return Step::Locked(self.cpus[cpu].csd.locked_until_ns);
        }
        walk.local = CfsRqId::NONE;
        self.unthrottle(local);
        Step::Released(cpu)
    }

    /// Whether another section holds the CPU's lock now, where that costs time.
    fn is_locked(&self, cpu: CpuId) -> bool {
        self.cpus[cpu].csd.locked_until_ns > self.now && self.locks_cost()
    }

    /// Moves runtime from the pool to a run queue: its debt and 1 ns, at most `left_ns`; returns
    /// the grant, ns. A running child is charged before.
    fn grant(&mut self, group: GroupId, q: CfsRqId, left_ns: u64) -> u64 {
        if self.cfs_rqs[q].curr.is_some() {
            match self.rules.exhaustion {
                Exhaustion::Throttle if self.has(Fault::GrantUncharged) => {}
                Exhaustion::Throttle => self.charge(q),
                // The debt is that of the last tick, which may not have been an event.
                Exhaustion::Resched => self.charge_to_last_tick(q),
            }
        }
        let bw = &mut self.cfs_rqs[q].bandwidth;
        let want_ns = u64::try_from(1 - bw.runtime_remaining_ns).unwrap_or(0);
        let grant_ns = want_ns.min(left_ns);
        bw.runtime_remaining_ns += grant_ns as i64;
        let pool = &mut self.groups[group].pool;
        bw.expires_ns = pool.expires_ns;
        bw.expires_seq = pool.expires_seq;
        // Runtime that others took meanwhile is spent twice (before 5.8).
        let there_ns = grant_ns.min(pool.runtime_ns);
        pool.runtime_ns -= there_ns;
        pool.books.refilled_ns += i128::from(grant_ns - there_ns);
        self.trace_runtime(group);
        grant_ns
    }

    /// Unthrottles a run queue that got its grant: now (to 6.2), or by an interrupt that is sent to
    /// its CPU (6.3+). False (6.3 to 7.1): it is of this CPU, is put into `local` and unthrottled
    /// at the end.
    fn send_release(&mut self, q: CfsRqId, local: &mut CfsRqId) -> bool {
        let cpu = self.cfs_rqs[q].cpu;
        match self.rules.release {
            UnthrottleBy::Sync => {
                self.unthrottle_cost.count_remote_lock();
                self.unthrottle(q);
            }
            UnthrottleBy::Csd if cpu == self.events.here => {
                *local = q;
                return false;
            }
            UnthrottleBy::Csd | UnthrottleBy::CsdAll => {
                let sent_ns = if self.locks_cost() { REMOTE_NS } else { 0 };
                let local = cpu == self.events.here;
                self.unthrottle_cost.count_remote(local);
                self.cfs_rqs[q].bandwidth.csd_pending = true;
                let delay_ns = match local {
                    // Time matters only to a running task, and none runs here.
                    true if self.cfs_rqs[q].curr.is_none() => 0,
                    true if self.has(Fault::FlushedAtOnce) => 0,
                    true => LOCAL_FLUSH_NS,
                    false => self.workload.machine.ipi_ns,
                };
                let at_ns = self.now + sent_ns + delay_ns;
                let c = &mut self.cpus[cpu];
                if c.csd.queue.is_empty() {
                    c.next.csd_ns = at_ns;
                } else if local {
                    c.next.csd_ns = c.next.csd_ns.max(at_ns);
                }
                c.csd.queue.push_back(q);
                self.touch(cpu, false);
            }
        }
        true
    }

    /// Handles the interrupt sent by a distribution, on `cpu`: unthrottles all run queues sent to
    /// it, in one irq-off section (kernel: `__cfsb_csd_unthrottle()`). Comes again later while the
    /// CPU's lock is held. Pull rules: opens mail.
    pub(crate) fn csd_handler(&mut self, cpu: CpuId) {
        if self.rules.pull {
            self.mail_handler(cpu);
            return;
        }
        let waits_ns = self.cpus[cpu].csd.locked_until_ns.saturating_sub(self.now);
        if waits_ns > 0 && self.locks_cost() {
            // A distribution holds this CPU's lock; interrupts stay off until it is done.
            let c = &mut self.cpus[cpu];
            c.next.csd_ns = c.csd.locked_until_ns;
            c.csd.waited_ns += waits_ns;
            self.irq_section(cpu, waits_ns);
            return;
        }
        self.cpus[cpu].next.csd_ns = NEVER;
        self.begin_section(Releaser::Handler, cpu);
        let waited_ns = std::mem::take(&mut self.cpus[cpu].csd.waited_ns);
        self.unthrottle_cost.add_wait(waited_ns);
        while let Some(q) = self.cpus[cpu].csd.queue.pop_front() {
            self.cfs_rqs[q].bandwidth.csd_pending = false;
            if self.cfs_rqs[q].bandwidth.throttled {
                self.unthrottle(q);
            }
        }
        // A section without anything to unthrottle costs only its wait.
        let work_ns = self.end_section().saturating_sub(waited_ns);
        self.irq_section(cpu, work_ns);
        if self.locks_cost() {
            self.cpus[cpu].csd.locked_until_ns = self.now + work_ns;
        }
    }
}
