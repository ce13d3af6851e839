//! Ticks: they charge the running task, and find that its slice or its group's runtime is used up
//! (kernel: `task_tick_fair()`, `entity_tick()`, `hrtick()`).
//!
//! A tick that would change nothing is not an event: the first one that matters is computed and
//! armed. On several CPUs with groups each tick beside competitors is an event, as it may find
//! changed shares. With `step_every_tick` every tick is one; a test proves that results are the
//! same.

use crate::cpu::Resched;
use crate::events::NEVER;
use crate::ids::{CfsRqId, CpuId};
use crate::machine::Machine;
use crate::rules::{Queue, Unprotected};
use crate::step::Step;
use crate::task::Segment;

/// Shortest time to a high-resolution tick, ns.
const HRTICK_MIN_NS: u64 = 10_000;
/// Ticks of a `nohz_full` CPU while one task runs, ns.
const REMOTE_TICK_NS: u64 = 1_000_000_000;

impl Machine<'_> {
    /// Time between ticks that this CPU should have now, ns: 1 s on a `nohz_full` CPU with one
    /// task, unless a limit keeps the tick.
    pub(crate) fn tick_interval_ns(&self, cpu: CpuId) -> u64 {
        let Some(set) = self.workload.machine.nohz_full else { return self.settings.tick_ns };
        let c = &self.cpus[cpu];
        if !self.settings.masks[1 + set as usize].contains(cpu)
            || c.nr_running != 1
            || !c.rt.queue.is_empty()
        {
            return self.settings.tick_ns;
        }
        let limited = c.curr.is_some() && self.is_limited(self.tasks[c.curr].group);
        if limited && self.rules.limit_keeps_tick { self.settings.tick_ns } else { REMOTE_TICK_NS }
    }

    /// Sets the CPU's tick interval to what it should be now, if the machine has `nohz_full` CPUs;
    /// the running task is charged first, as ticks up to now had the old interval.
    #[inline]
    pub(crate) fn adopt_tick_interval(&mut self, cpu: CpuId) {
        if self.workload.machine.nohz_full.is_some() {
            self.change_tick_interval(cpu);
        }
    }

    /// Changes interval and phase of a CPU's ticks, if the interval should be another now, to a
    /// tick or (`nohz_full` with one task) a second; charges the running task before.
    fn change_tick_interval(&mut self, cpu: CpuId) {
        let every_ns = self.tick_interval_ns(cpu);
        if self.cpus[cpu].tick_every_ns == every_ns {
            return;
        }
        let curr = self.cpus[cpu].curr;
        if curr.is_some() && self.tasks[curr].is_fair() {
            self.charge_path(self.ses[self.tasks[curr].se].q);
        }
        // A tick of the old interval that is due right now still comes, whether it was an event or
        // not.
        if self.tick_at_or_after(cpu, self.now, self.cpus[cpu].tick_every_ns) == self.now {
            self.cpus[cpu].next.tick_ns = self.now;
        }
        let c = &mut self.cpus[cpu];
        c.tick_every_ns = every_ns;
        c.tick_phase_ns %= self.settings.tick_ns;
        if every_ns == REMOTE_TICK_NS {
            c.tick_phase_ns += c.lab.remote_tick_ns;
        }
    }

    /// Draws at which tick of each second a `nohz_full` CPU gets its remote tick, under noise; it
    /// is fixed when the CPU comes on line (kernel: `sched_tick_start()`).
    pub(crate) fn draw_remote_ticks(&mut self) {
        let Some(delays) = &mut self.lab.delays else { return };
        if self.workload.machine.nohz_full.is_none() {
            return;
        }
        for cpu in self.cpus.ids() {
            self.cpus[cpu].lab.remote_tick_ns =
                delays.below(REMOTE_TICK_NS / self.settings.tick_ns) * self.settings.tick_ns;
        }
    }

    /// Time of the next tick that changes anything on this CPU, ns; [`NEVER`] if none does. Ticks
    /// before it are left out.
    pub(crate) fn next_tick_ns(&self, cpu: CpuId) -> u64 {
        let c = &self.cpus[cpu];
        if c.curr.is_none() || !self.tasks[c.curr].is_fair() {
            return NEVER;
        }
        if c.next.tick_ns <= self.now {
            // Due, and not taken yet.
            return c.next.tick_ns;
        }
        let every_ns = c.tick_every_ns;
        // A tick in an irq-off section comes when interrupts are on again, off the tick grid, and
        // finds what one on the grid would not.
        let first_ns = self.tick_at_or_after(cpu, self.now, every_ns);
        if first_ns <= c.irqs_off_until_ns {
            return first_ns;
        }
        // While an interrupt is on its way, a tick may come first and do what the interrupt is
        // for.
        let soon = c.resched == Resched::Lazy || c.next.ipi_ns != NEVER || c.kept_clock_ns != NEVER;
        let due_ns =
            if self.settings.step_every_tick || soon { self.now } else { self.tick_due_ns(cpu) };
        // The tick also finds what falls due before it has charged.
        let found_ns = due_ns.saturating_sub(self.lab.tick_charge_delay_max_ns());
        let found_ns = if due_ns == NEVER { NEVER } else { found_ns.max(self.now) };
        self.tick_at_or_after(cpu, found_ns, every_ns)
    }

    /// Time from which on a tick changes anything on this CPU, which runs a fair task, ns;
    /// [`NEVER`] if none does.
    fn tick_due_ns(&self, cpu: CpuId) -> u64 {
        let task = &self.tasks[self.cpus[cpu].curr];
        let is_flat_weight_late =
            self.is_flat() && self.flat_weight(task.se) != self.ses[task.se].weight;
        if is_flat_weight_late || self.refreshes_shares(cpu) {
            return self.now;
        }
        let mut due_ns = NEVER;
        let mut q = self.ses[task.se].q;
        while q.is_some() {
            due_ns = due_ns.min(self.runtime_due_ns(q));
            if self.cfs_rqs[q].bandwidth.weight_is_late {
                due_ns = self.now;
            }
            if self.rules.queue.is_cfs() {
                if let Some(ns) = self.cfs_preemption_due_ns(q) {
                    due_ns = due_ns.min(self.cfs_rqs[q].exec_start_ns.saturating_add(ns));
                }
            } else {
                due_ns = due_ns.min(self.deadline_due_ns(q));
            }
            q = self.cfs_rqs[q].parent;
        }
        due_ns
    }

    /// When the running child of a queue reaches its deadline or loses its protection, ns, if
    /// others compete there; else [`NEVER`].
    fn deadline_due_ns(&self, q: CfsRqId) -> u64 {
        let rq = &self.cfs_rqs[q];
        let competes = !self.is_flat() || rq.se.is_none();
        if !competes || rq.curr.is_none() || self.competitors(q) <= 1 {
            return NEVER;
        }
        let curr = &self.ses[rq.curr];
        let until = match self.rules.unprotected {
            Unprotected::Stays => curr.deadline,
            Unprotected::GoesIfAhead | Unprotected::Goes => curr.deadline.min(curr.protected_until),
        };
        rq.exec_start_ns.saturating_add(curr.ns_until(until))
    }

    /// Whether each tick may find that groups have another share of this CPU: on several CPUs, with
    /// groups and competitors.
    fn refreshes_shares(&self, cpu: CpuId) -> bool {
        self.cpus.len() > 1 && self.groups.len() > 1 && self.cpus[cpu].nr_running > 1
    }

    /// Number of whole tick intervals from this CPU's first tick to `at_ns`; 0 before it.
    pub(crate) fn tick_number(&self, cpu: CpuId, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.cpus[cpu].tick_phase_ns) / self.settings.tick_ns
    }

    /// Handles a tick: charges the running task on every level, tests for preemption (CFS; EEVDF
    /// does so in the charge), updates shares, and turns a lazy reschedule into one at once
    /// (kernel: `task_tick_fair()`).
    pub(crate) fn tick(&mut self, cpu: CpuId) {
        self.cpus[cpu].next.tick_ns = NEVER;
        self.renew_kept_clock(cpu);
        if self.cpus[cpu].resched == Resched::Lazy {
            self.cpus[cpu].resched = Resched::Now;
        }
        let curr = self.cpus[cpu].curr;
        if curr.is_none() || !self.tasks[curr].is_fair() {
            return;
        }
        let refreshes_shares = self.refreshes_shares(cpu);
        #[cfg(test)]
        let before = self.what_ticks_change(cpu);
        let mut q = self.ses[self.tasks[curr].se].q;
        while q.is_some() {
            self.charge(q);
            if self.rules.queue.is_cfs() {
                self.check_preempt_tick(q);
            }
            if self.rules.pull {
                self.top_up(q);
            }
            if refreshes_shares || self.cfs_rqs[q].bandwidth.weight_is_late {
                self.update_share(q);
            }
            q = self.cfs_rqs[q].parent;
        }
        self.reweight_flat_curr(cpu);
        #[cfg(test)]
        self.count_tick(cpu, &before);
    }

    /// Charges one level up to the last tick, as that tick did if it was an event; nothing if that
    /// tick would have had consequences.
    pub(crate) fn charge_to_last_tick(&mut self, q: CfsRqId) {
        let cpu = self.cfs_rqs[q].cpu;
        let phase_ns = self.tick_charge_phase_ns(cpu);
        // An armed tick has not happened yet, even if it is due and waits for interrupts to be on.
        let before_ns = self.now + u64::from(!self.events.are_to_come(cpu));
        let before_ns = before_ns.min(self.cpus[cpu].next.tick_ns);
        let Some(since_ns) = before_ns.checked_sub(phase_ns + 1) else { return };
        let every_ns = self.cpus[cpu].tick_every_ns;
        let last_ns = phase_ns + since_ns / every_ns * every_ns;
        let rq = &self.cfs_rqs[q];
        let ran_ns = last_ns.saturating_sub(rq.exec_start_ns) as i64;
        let bw = &rq.bandwidth;
        // A tick with consequences was an event. This one had none, and must not have any now.
        let takes = bw.enabled && (!bw.throttled || self.rules.throttled_may_take);
        let expired = self.rules.has_deadlines() && last_ns >= bw.expires_ns;
        if ran_ns > 0 && !(takes && (expired || bw.runtime_remaining_ns <= ran_ns)) {
            let now = std::mem::replace(&mut self.now, last_ns);
            self.charge(q);
            self.now = now;
        }
    }

    /// Sets the timer for the end of the running task's slice, if others wait (kernel:
    /// `hrtick_start_fair()`). From 6.12 on this happens only at a switch: a task that is picked
    /// again runs unwatched, mostly up to the next tick, and a timer set for one task may fire for
    /// another. After idling (`idled`) it is set some microseconds later under noise.
    pub(crate) fn start_hrtick(&mut self, cpu: CpuId, idled: bool) {
        /// A timer that would move by less stays where it is (7.1+).
        const SAME_NS: u64 = 5_000;
        let Some((left_ns, false)) = self.slice_left(cpu) else { return };
        // Under noise the switch to the task counts as part of its slice.
        let c = &self.cpus[cpu];
        let still_ns = c.stolen_ns.saturating_sub(self.now - c.accounted_ns);
        let stolen_ns = if self.lab.delays.is_some() { 0 } else { still_ns };
        let late_ns = self.delay_ns(Step::Slice)
            + if idled { self.delay_ns(Step::SwitchFromIdle) } else { 0 };
        let over_ns = self.now + stolen_ns + left_ns.max(HRTICK_MIN_NS) + late_ns;
        let set_ns = self.cpus[cpu].next.hrtick_ns;
        let moves = set_ns == NEVER || set_ns.abs_diff(over_ns) > SAME_NS;
        if moves || self.rules.hrtick.is_by_slice() {
            self.cpus[cpu].next.hrtick_ns = over_ns;
        }
    }

    /// Sets the slice timer anew when a task came to a CPU or, to 7.0, left it; requests a
    /// reschedule if the slice is over (kernel: `hrtick_update()`).
    pub(crate) fn update_hrtick(&mut self, cpu: CpuId, came: bool) {
        let is_set = self.cpus[cpu].next.hrtick_ns != NEVER;
        if !self.settings.hrtick || !self.rules.hrtick.is_by_slice() && (is_set || !came) {
            return;
        }
        match self.slice_left(cpu) {
            Some((_, true)) => self.resched(cpu, Resched::Now),
            _ => self.start_hrtick(cpu, false),
        }
    }

    /// Rest of the running task's slice, ns, and whether the slice is over; `None` where no timer
    /// watches it. Charges the task up to its last tick.
    fn slice_left(&mut self, cpu: CpuId) -> Option<(u64, bool)> {
        let curr = self.cpus[cpu].curr;
        let competitors = self.cfs_rqs[self.root(cpu)].h_nr;
        if !self.settings.hrtick || competitors < 2 || curr.is_none() || !self.tasks[curr].is_fair()
        {
            return None;
        }
        let se = self.tasks[curr].se;
        let tq = self.timeline_of(self.ses[se].q);
        self.charge_to_last_tick(tq);
        let entity = &self.ses[se];
        if !self.rules.hrtick.is_by_slice() {
            let over = entity.deadline < entity.vruntime;
            return Some((entity.ns_until(entity.deadline), over));
        }
        let ran_ns = self.extras.turns[se].ran_ns();
        let slice_ns = match self.rules.queue {
            Queue::Cfs => self.cfs_slice_ns(tq, se),
            _ => entity.slice_ns(),
        };
        Some((slice_ns.saturating_sub(ran_ns), ran_ns > slice_ns))
    }

    /// Handles the exhaustion timer of the pull rules: charges every level of the running task,
    /// which may lead to its parking.
    pub(crate) fn exhaustion_timer(&mut self, cpu: CpuId) {
        self.cpus[cpu].next.exhausted_ns = NEVER;
        let curr = self.cpus[cpu].curr;
        // A task whose work ends right now may be about to sleep.
        if curr.is_some() && self.tasks[curr].is_fair() && self.tasks[curr].segment != Segment::None
        {
            self.charge_path(self.ses[self.tasks[curr].se].q);
        }
    }

    /// Handles the slice timer: charges every level of the running task and requests a reschedule.
    pub(crate) fn hrtick(&mut self, cpu: CpuId) {
        self.cpus[cpu].next.hrtick_ns = NEVER;
        let curr = self.cpus[cpu].curr;
        if curr.is_none() || !self.tasks[curr].is_fair() {
            return;
        }
        self.charge_path(self.ses[self.tasks[curr].se].q);
        self.reweight_flat_curr(cpu);
        self.resched(cpu, Resched::Now);
        self.extend_hrtick(cpu);
        let ns = self.delay_ns(Step::Slice);
        self.steal_from_current(cpu, Step::Slice, ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;
    use crate::{Options, kernel};

    impl Machine<'_> {
        /// All that a tick may change but the charge itself.
        pub(super) fn what_ticks_change(&self, cpu: CpuId) -> Vec<i128> {
            let mut seen = vec![self.cpus[cpu].resched as i128];
            let mut q = self.ses[self.tasks[self.cpus[cpu].curr].se].q;
            while q.is_some() {
                let rq = &self.cfs_rqs[q];
                seen.push(i128::from(rq.bandwidth.throttled));
                seen.push(i128::from(self.groups[rq.group].pool.runtime_ns));
                if rq.curr.is_some() {
                    seen.push(i128::from(self.ses[rq.curr].deadline));
                    seen.push(i128::from(self.ses[rq.curr].weight));
                }
                q = rq.parent;
            }
            seen
        }

        pub(super) fn count_tick(&mut self, cpu: CpuId, before: &[i128]) {
            self.events.ticks.0 += 1;
            let excused = self.refreshes_shares(cpu) || self.cpus[cpu].next.ipi_ns != NEVER;
            self.events.ticks.1 += u64::from(!excused && before == self.what_ticks_change(cpu));
        }
    }

    #[test]
    fn hardly_an_event_is_a_tick_that_changes_nothing() {
        let nested = "../../scenarios/nested.toml";
        for file in ["../../scenarios/fibtest.toml", "benches/mix.toml", nested] {
            let text = std::fs::read_to_string(file).unwrap();
            let workload = cpumax_workload::parse(&text, file).unwrap();
            let workload = workload.with_duration(300_000_000).unwrap();
            for kernel in kernel::parse_kernels("..7.3").unwrap() {
                let options = Options::new(kernel, 1);
                let machine = Simulation::ended(&workload, &options);
                let (ticks, idle) = machine.events.ticks;
                let version = kernel.version;
                assert!(ticks > 0, "{file} on {version}");
                let events = machine.events.count;
                // To 6.16 a running task that got another weight is looked at in each tick: it may
                // be ahead by then.
                assert!(idle * 250 < events, "{file} on {version}: {idle} of {events} events");
            }
        }
    }
}
