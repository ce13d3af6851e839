//! Microseconds that a real kernel needs for interrupts, switches, system calls and exits, and
//! that no workload describes.
//!
//! They decide the order of events where two tasks are equal or a debt is just paid.

use crate::ids::{CfsRqId, CpuId, LockId, TaskId};
use crate::machine::Machine;
use crate::step::{Call, Step, Told};
use crate::task::{Code, Mode, Segment, State};
use cpumax_workload::{Op, Preempt};

/// Up to this time after a tick, a switch counts as caused by the tick, ns: parking takes some
/// time.
const AFTER_TICK_NS: u64 = 20_000;
/// Part of a tick that is included in the length of work in the kernel: a tick without a switch,
/// ns.
const PLAIN_TICK_NS: u64 = 7_000;
/// Additional time to wake a task per level of groups, ns.
const WAKE_LEVEL_NS: u64 = 2_000;
/// Additional time to park per level of groups, ns: until the task is off the queue, and from
/// there to the switch.
const PARK_LEVEL_NS: u64 = 300;
const PARKED_LEVEL_NS: u64 = 550;

impl Machine<'_> {
    /// The length of a step that begins now, ns; 0 without delays.
    pub(crate) fn delay_ns(&mut self, step: Step) -> u64 {
        self.lab.delay_ns(self.now, step)
    }

    /// Gives the run's delays news of a task.
    #[inline]
    pub(crate) fn tell(&mut self, task: TaskId, told: Told) {
        if let Some(delays) = &mut self.lab.delays {
            delays.tell(self.now, task.0, told);
        }
    }

    /// Puts the CPU into an interrupt, which takes a random time under noise and steals it from the
    /// task, unless it is in one. Other interrupts that arrive in that time are processed before
    /// any task is picked.
    pub(crate) fn enter_irq(&mut self, cpu: CpuId, step: Step) {
        if self.lab.delays.is_some() && self.cpus[cpu].lab.leaves_irq_ns <= self.now {
            let ns = self.delay_ns(step);
            let c = &mut self.cpus[cpu];
            c.lab.leaves_irq_ns = self.now + ns;
            c.lab.tick_took_ns = if step == Step::Tick { ns } else { 0 };
            self.steal_from_current(cpu, step, ns);
        }
    }

    /// Lengthens the interrupt that the CPU is in by a random time, and takes that from its running
    /// task; returns how long it is, ns. 0 outside of interrupts.
    pub(crate) fn extend_irq(&mut self, cpu: CpuId, step: Step) -> u64 {
        if self.cpus[cpu].lab.leaves_irq_ns <= self.now {
            return 0;
        }
        let ns = self.delay_ns(step);
        self.cpus[cpu].lab.leaves_irq_ns += ns;
        self.steal_from_current(cpu, step, ns);
        ns
    }

    /// Puts the CPU into the interrupt of a timer that wakes a task; `None` then: wake it now. If
    /// others are being woken in the same interrupt, lengthens that and returns when this task's
    /// turn comes, ns.
    pub(crate) fn begin_timer_wakeup(&mut self, cpu: CpuId, task: TaskId) -> Option<u64> {
        if self.cpus[cpu].lab.leaves_irq_ns <= self.now {
            self.enter_irq(cpu, Step::Wake);
            self.cpus[cpu].lab.woke_ns = self.now;
            if self.lab.delays.is_some() {
                let deep_ns = u64::from(self.levels_of(task)) * WAKE_LEVEL_NS;
                self.cpus[cpu].lab.leaves_irq_ns += deep_ns;
                self.steal_from_current(cpu, Step::Wake, deep_ns);
            }
            return None;
        }
        let ns = self.extend_irq(cpu, Step::WakeToo);
        let c = &mut self.cpus[cpu];
        c.lab.woke_ns = c.lab.woke_ns.max(self.now) + ns;
        Some(c.lab.woke_ns)
    }

    /// Has the current task of the CPU make no progress for `ns` from now. Ticks steal nothing, as
    /// the length of work includes them.
    pub(crate) fn steal_from_current(&mut self, cpu: CpuId, step: Step, ns: u64) {
        if step != Step::Tick {
            // Until now it made progress.
            self.account_work(cpu);
            self.cpus[cpu].stolen_ns += ns;
        }
    }

    /// Postpones the CPU's reschedule to the next preemption point of its task's system call, under
    /// noise and voluntary preemption; else to no point. The guest's kernel work has one after each
    /// page it reads, where it asks for a lock, and at its end.
    pub(crate) fn postpone_to_preemption_point(&mut self, cpu: CpuId) {
        self.cpus[cpu].lab.point_ns = 0;
        let curr = self.cpus[cpu].curr;
        if self.lab.delays.is_none()
            || self.settings.preempt != Preempt::Voluntary
            || curr.is_none()
        {
            return;
        }
        // The outside task's observed lateness includes this delay.
        let first = self.cpus[cpu].rt.queue.front();
        if first.is_some_and(|&task| self.tasks[task].at.code == Code::Outside) {
            return;
        }
        let t = &self.tasks[curr];
        if t.is_fair() && t.mode == Mode::Kernel && t.segment == Segment::Run && !t.signals.exiting
        {
            let ns = self.known_point_ns(cpu).unwrap_or_else(|| self.point_ns(curr));
            self.cpus[cpu].lab.point_ns = self.now + ns;
        }
    }

    /// Draws the time to the next preemption point at an unknown place of a task's call, ns.
    fn point_ns(&mut self, task: TaskId) -> u64 {
        let writes = self.writes_under_lock(task);
        self.lab.delays.as_mut().map_or(0, |delays| delays.point_ns(self.now, writes))
    }

    /// Whether the task's work in the kernel is a write that takes its lock and works under it in
    /// one call.
    fn writes_under_lock(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        let program = self.program_of(task);
        let op = |back: u32| t.at.pc.checked_sub(back).and_then(|at| program.get(at as usize));
        match (op(2), op(0)) {
            (Some(&Op::Lock { lock, .. }), Some(Op::Unlock { .. })) => {
                self.locks.all[LockId(lock)].written
            }
            _ => false,
        }
    }

    /// Time of the running task to its next preemption point, and for interrupts, ns; `None` where
    /// that is unknown.
    fn known_point_ns(&self, cpu: CpuId) -> Option<u64> {
        let c = &self.cpus[cpu];
        // A charge up to the last tick, in the past, may preempt.
        let elapsed_ns = self.now.saturating_sub(c.accounted_ns);
        let progress_ns = elapsed_ns.saturating_sub(c.stolen_ns);
        let left_ns = self.tasks[c.curr].left_ns.saturating_sub(progress_ns);
        let rest_ns = self.lab.delays.as_ref()?.known_point_ns(c.curr.0, left_ns)?;
        Some(c.stolen_ns.saturating_sub(elapsed_ns) + rest_ns)
    }

    /// Tells of work in the kernel that begins, which may have preemption points (voluntary
    /// preemption).
    pub(crate) fn tell_pages(&mut self, task: TaskId) {
        if self.lab.delays.is_some() && self.settings.preempt == Preempt::Voluntary {
            let (t, writes) = (&self.tasks[task], self.writes_under_lock(task));
            let (left_ns, in_syscall) = (t.left_ns, t.in_syscall);
            self.tell(task, Told::Pages { left_ns, in_syscall, writes });
        }
    }

    /// Typical offset of a CPU's charges by ticks, modulo the time between ticks, ns; used for
    /// ticks that are not events.
    pub(crate) fn tick_charge_phase_ns(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu].tick_phase_ns + self.lab.tick_charge_delay_ns()
    }

    /// Starts the interrupt of a due tick, which takes effect at its end. True if that is to come,
    /// false if the tick is to be handled now.
    pub(crate) fn delay_tick(&mut self, cpu: CpuId) -> bool {
        if self.lab.delays.is_none() {
            return false;
        }
        let late = !self.cpus[cpu].lab.tick_is_late;
        self.cpus[cpu].lab.tick_is_late = late;
        if late {
            let is_first = self.cpus[cpu].lab.leaves_irq_ns <= self.now;
            self.enter_irq(cpu, Step::Tick);
            if is_first {
                let over_ns = self.charge_to_switch_ns(cpu, Step::TickOver);
                let c = &mut self.cpus[cpu];
                c.lab.tick_took_ns += over_ns;
                // Without deadlines the order does not matter.
                if self.rules.queue.is_cfs() {
                    c.lab.leaves_irq_ns += over_ns;
                } else {
                    c.lab.tick_over_ns = over_ns;
                }
            }
        } else {
            self.extend_tick(cpu);
        }
        late
    }

    /// Lengthens the interrupt of a tick that charges now up to the next pick. Time used meanwhile
    /// is charged at the switch: to the slice that began with the charge, where that ended one
    /// (kernel: `update_deadline()`, then `put_prev_entity()`).
    fn extend_tick(&mut self, cpu: CpuId) {
        let c = &mut self.cpus[cpu];
        c.lab.leaves_irq_ns += std::mem::take(&mut c.lab.tick_over_ns);
    }

    /// Lengthens the slice timer's interrupt by the time from its charge to the switch.
    pub(crate) fn extend_hrtick(&mut self, cpu: CpuId) {
        let ns = self.charge_to_switch_ns(cpu, Step::SliceOver);
        let c = &mut self.cpus[cpu];
        c.lab.leaves_irq_ns = c.lab.leaves_irq_ns.max(self.now) + ns;
        c.lab.tick_took_ns = 0;
    }

    /// Draws the time from the charge of a task to the switch, which grows with the depth of its
    /// groups, ns.
    fn charge_to_switch_ns(&mut self, cpu: CpuId, step: Step) -> u64 {
        let curr = self.cpus[cpu].curr;
        self.delay_ns(step) + self.levels_ns(curr)
    }

    /// Draws the time that the levels of a task's groups take from its charge to the switch, ns.
    fn levels_ns(&mut self, task: TaskId) -> u64 {
        (0..self.levels_of(task)).map(|_| self.delay_ns(Step::Level)).sum()
    }

    /// Number of groups above a task, without the root; 0 for real-time tasks.
    pub(crate) fn levels_of(&self, task: TaskId) -> u32 {
        if task.is_none() || !self.tasks[task].is_fair() {
            return 0;
        }
        let leaf = Some(self.ses[self.tasks[task].se].q).filter(|q| q.is_some());
        let above = |q: &CfsRqId| Some(self.cfs_rqs[*q].parent).filter(|parent| parent.is_some());
        (std::iter::successors(leaf, above).count() as u32).saturating_sub(1)
    }

    /// Completes a tick under way when another timer expires: it charges and handles the tick now.
    pub(crate) fn finish_tick(&mut self, cpu: CpuId) {
        if std::mem::take(&mut self.cpus[cpu].lab.tick_is_late) {
            self.extend_tick(cpu);
            self.in_interrupt_of(cpu, |m| {
                m.account_work(cpu);
                m.tick(cpu);
            });
        }
    }

    /// Steals the time of a switch from the next task, under noise; the previous one is given back
    /// progress that it did not make during the tick that caused the switch.
    pub(crate) fn charge_switch(&mut self, cpu: CpuId, prev: TaskId) {
        let Some(delays) = &self.lab.delays else { return };
        let c = &mut self.cpus[cpu];
        let tick_took_ns = std::mem::take(&mut c.lab.tick_took_ns);
        let after_ns = self.now.saturating_sub(c.lab.leaves_irq_ns);
        if tick_took_ns > 0 && prev.is_some() {
            let by_clock = self.tells_work_by_clock(prev);
            let t = &mut self.tasks[prev];
            let in_kernel = t.mode == Mode::Kernel;
            let to_a_point = self.settings.preempt == Preempt::Voluntary && in_kernel;
            let most_ns = if to_a_point { delays.most_ns(Step::Point) } else { AFTER_TICK_NS };
            if after_ns < most_ns && t.segment == Segment::Run {
                // The length of work in the kernel includes ticks without a switch.
                let plain_ns = if in_kernel { PLAIN_TICK_NS } else { 0 };
                t.left_ns += tick_took_ns.saturating_sub(plain_ns);
                if by_clock && !in_kernel {
                    self.tell(prev, Told::Interrupted(tick_took_ns));
                }
            }
        }
        let step = if prev.is_none() {
            Step::SwitchFromIdle
        } else if self.tasks[prev].state == State::Runnable {
            Step::SwitchFromReady
        } else {
            Step::SwitchFromSleeper
        };
        self.cpus[cpu].stolen_ns += self.delay_ns(step);
        if prev.is_none() || self.tasks[prev].throttle.parked {
            self.cpus[cpu].lab.switched_ns = self.now;
        }
    }

    /// Actual length of a piece of work of `ns`, ns: some microseconds more or less under noise.
    pub(crate) fn actual_work_ns(&mut self, task: TaskId, ns: u64, in_kernel: bool) -> u64 {
        if self.lab.delays.is_none() {
            return ns;
        }
        let call = in_kernel.then(|| Call {
            writes: self.writes_under_lock(task),
            levels: self.levels_of(task),
            tick_ns: self.settings.tick_ns,
        });
        let delays = self.lab.delays.as_mut();
        delays.map_or(ns, |delays| delays.work_ns(self.now, task.0, ns, call))
    }

    /// Starts the time that a task needs to park, under noise. True while it has not parked yet.
    /// From its dequeue to the switch no task pays, except groups above that hold others, and
    /// nobody's usage counts it (kernel: `throttle_cfs_rq_work()`, `put_prev_entity()`).
    pub(crate) fn delay_parking(&mut self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        if self.lab.delays.is_none() || t.signals.exiting || !t.is_fair() {
            return false;
        }
        let cpu = t.cpu;
        let leaf = self.ses[t.se].q;
        if !std::mem::replace(&mut self.tasks[task].lab.parking, true) {
            let levels = u64::from(self.levels_of(task));
            let ns = self.delay_ns(Step::Park) + levels * PARK_LEVEL_NS;
            let parked_ns = self.delay_ns(Step::Parked) + levels * PARKED_LEVEL_NS;
            // Groups are 64 deep at most.
            self.tasks[task].lab.parked_ns = u16::try_from(parked_ns).unwrap_or(u16::MAX);
            let c = &mut self.cpus[cpu];
            // The switch to a task that only parks is part of it.
            c.stolen_ns = if c.lab.switched_ns == self.now { ns } else { c.stolen_ns + ns };
        }
        if self.cpus[cpu].stolen_ns > 0 {
            return true;
        }
        let parked_ns = u64::from(std::mem::take(&mut self.tasks[task].lab.parked_ns));
        if parked_ns > 0 {
            let resched = self.cpus[cpu].resched;
            self.charge_path(leaf);
            let c = &mut self.cpus[cpu];
            c.resched = resched;
            c.stolen_ns = parked_ns;
            return true;
        }
        let (mut q, mut pays) = (leaf, false);
        while q.is_some() {
            if pays {
                self.charge_curr(q, false);
            }
            let rq = &mut self.cfs_rqs[q];
            rq.exec_start_ns = self.now;
            pays |= rq.nr > 1;
            q = rq.parent;
        }
        false
    }
    /// Whether the task's current work is measured by the clock, so that short absences pass for
    /// work: program work of a fair task under noise.
    pub(crate) fn tells_work_by_clock(&self, task: TaskId) -> bool {
        let Some(delays) = &self.lab.delays else { return false };
        let t = &self.tasks[task];
        t.at.code == Code::Kind
            && t.is_fair()
            && t.segment == Segment::Run
            && delays.counts_by_clock(task.0)
    }

    /// Begins an absence now, if the task is runnable and measures its work by the clock.
    pub(crate) fn note_preempted(&mut self, task: TaskId) {
        if self.tells_work_by_clock(task) && self.tasks[task].state == State::Runnable {
            self.tell(task, Told::Preempted);
        }
    }

    /// When the work of a CPU's current task is done if nothing intervenes, ns: time stolen by
    /// interrupts makes it later.
    pub(crate) fn work_ends_ns(&self, cpu: CpuId) -> u64 {
        let c = &self.cpus[cpu];
        let t = &self.tasks[c.curr];
        let mistaken_ns = match &self.lab.delays {
            Some(delays) if self.tells_work_by_clock(c.curr) => {
                delays.mistaken_ns(c.curr.0, t.mode == Mode::User, t.left_ns, c.stolen_ns)
            }
            _ => 0,
        };
        let left_ns = t.left_ns - mistaken_ns;
        (c.accounted_ns + c.stolen_ns).saturating_add(left_ns)
    }
}
