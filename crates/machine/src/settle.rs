//! A CPU's next event, and what it does before time advances: it charges, reschedules and executes
//! what takes no time.

use crate::cpu::Resched;
use crate::events::{NEVER, Slot};
use crate::ids::CpuId;
use crate::machine::Machine;
use crate::task::{Mode, Segment, State};
use cpumax_workload::{Class, Preempt};

impl Machine<'_> {
    /// Marks a CPU that must settle (charge, reschedule, set timers) before time advances.
    /// `entered`: it is in the kernel itself (its own interrupt), so it may reschedule on the way
    /// out.
    pub(crate) fn touch(&mut self, cpu: CpuId, entered: bool) {
        let c = &mut self.cpus[cpu];
        c.entered |= entered;
        if !c.touched {
            c.touched = true;
            self.events.touched.push(cpu);
        }
    }

    /// Executes what happens on this CPU; on [`CpuId::NONE`]: outside of the machine.
    #[inline]
    pub(crate) fn on<R>(&mut self, cpu: CpuId, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = std::mem::replace(&mut self.events.here, cpu);
        let result = act(self);
        self.events.here = before;
        result
    }

    /// Executes what an interrupt of this CPU does; it settles afterwards.
    pub(crate) fn in_interrupt_of(&mut self, cpu: CpuId, act: impl FnOnce(&mut Self)) {
        self.touch(cpu, true);
        self.on(cpu, act);
    }

    /// Requests a reschedule of a CPU, at once or at its next tick (lazy preemption); a weaker
    /// request than the pending one changes nothing (kernel: `resched_curr()`). Another CPU learns
    /// of it by an interrupt.
    pub(crate) fn resched(&mut self, cpu: CpuId, urgency: Resched) {
        let lazy_kernel = self.settings.preempt.is_lazy();
        let now = self.now;
        let ipi_ns = self.workload.machine.ipi_ns;
        let here = self.events.here;
        let c = &mut self.cpus[cpu];
        let urgency = if lazy_kernel && !c.is_idle() { urgency } else { Resched::Now };
        if c.resched >= urgency {
            return;
        }
        c.resched = urgency;
        if here.is_some() && here != cpu && urgency == Resched::Now {
            c.next.ipi_ns = c.next.ipi_ns.min(now + ipi_ns);
        }
        self.postpone_to_preemption_point(cpu);
        // Actions from outside the machine reach the CPU directly.
        self.touch(cpu, here.is_none());
    }

    /// Whether a pending reschedule of the CPU can happen now: by the preemption model, the task's
    /// mode, and what it holds or spins for. Changes nothing.
    fn can_reschedule(&self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu];
        if c.resched == Resched::No {
            return false;
        }
        if c.curr.is_none() {
            return true;
        }
        let task = &self.tasks[c.curr];
        if task.mode == Mode::User || task.state != State::Runnable || task.throttle.parked {
            return true;
        }
        if task.locking.spinning > 0 || matches!(task.segment, Segment::IrqOff | Segment::Spin) {
            return false;
        }
        if task.segment == Segment::SpinOnOwner {
            return self.needs_resched(cpu);
        }
        match self.settings.preempt {
            Preempt::None => task.attrs.class == Class::Kthread,
            Preempt::Lazy | Preempt::RtLazy => c.resched == Resched::Now,
            Preempt::Voluntary => c.lab.point_ns <= self.now || task.segment != Segment::Run,
            Preempt::Full | Preempt::Rt => true,
        }
    }

    /// Processes everything on this CPU that takes no time (if it is in the kernel: reschedules and
    /// the task's instructions), then arms its next event.
    pub(crate) fn settle(&mut self, cpu: CpuId) {
        let entered = std::mem::take(&mut self.cpus[cpu].entered);
        self.cpus[cpu].touched = false;
        if entered && self.cpus[cpu].online {
            self.on(cpu, |m| m.settle_steps(cpu));
        }
        self.adopt_tick_interval(cpu);
        self.arm_cpu_timer(cpu);
    }

    /// Takes steps on the way out of the kernel until nothing is left to do now.
    fn settle_steps(&mut self, cpu: CpuId) {
        self.account_work(cpu);
        // With many tasks, many small steps are legitimate.
        let most = MAX_ROUNDS.max(self.tasks.len() * MAX_ROUNDS_EACH);
        let mut rounds = 0;
        while self.settle_step(cpu) {
            rounds += 1;
            if rounds > most {
                self.livelock(self.cpus[cpu].curr);
                break;
            }
        }
    }

    /// Takes one step on the way out of the kernel: schedules, returns to user mode or executes an
    /// instruction. False when nothing is left to do now.
    fn settle_step(&mut self, cpu: CpuId) -> bool {
        if self.events.failed.is_some() || self.cpus[cpu].lab.leaves_irq_ns > self.now {
            return false;
        }
        if self.can_reschedule(cpu) {
            if self.end_spin_to_reschedule(cpu) {
                self.step(self.cpus[cpu].curr);
            } else {
                self.schedule(cpu);
            }
            return true;
        }
        let curr = self.cpus[cpu].curr;
        if curr.is_none() {
            return false;
        }
        if self.tasks[curr].mode == Mode::User && self.exit_to_user(curr) {
            return true;
        }
        // A task that runs only to park has not continued.
        if self.tasks[curr].lab.parking {
            return false;
        }
        if !self.tasks[curr].is_leaving_kernel() {
            self.end_stall(curr);
        }
        if self.tasks[curr].segment != Segment::None {
            return false;
        }
        if self.cpus[cpu].stolen_ns > 0 && self.lab.delays.is_some() {
            return false;
        }
        self.step(curr);
        true
    }

    /// Accounts the work of the CPU's running task up to now: takes progress off its segment,
    /// without time stolen by interrupts, and ends a segment that is done. Charges real-time tasks
    /// to their groups.
    pub(crate) fn account_work(&mut self, cpu: CpuId) {
        let now = self.now;
        let c = &mut self.cpus[cpu];
        let elapsed = now - c.accounted_ns;
        let progress = elapsed.saturating_sub(c.stolen_ns);
        c.stolen_ns = c.stolen_ns.saturating_sub(elapsed);
        c.accounted_ns = now;
        if c.curr.is_none() || elapsed == 0 {
            return;
        }
        let task = &mut self.tasks[c.curr];
        if !task.is_fair() {
            task.times.usage_ns += elapsed;
            let group = task.group;
            self.account_rt_usage(group, elapsed);
        }
        let curr = self.cpus[cpu].curr;
        let by_clock = self.tells_work_by_clock(curr);
        let task = &mut self.tasks[curr];
        match task.segment {
            Segment::Run | Segment::IrqOff => {
                if let Some(delays) = self.lab.delays.as_mut().filter(|_| by_clock) {
                    let (in_user, spent) =
                        (task.mode == Mode::User, (elapsed - progress, progress));
                    task.left_ns -= delays.resume(curr.0, in_user, task.left_ns, spent);
                }
                task.left_ns = task.left_ns.saturating_sub(progress);
                if task.left_ns == 0 {
                    task.segment = Segment::None;
                }
            }
            Segment::Spin | Segment::SpinOnOwner | Segment::None => {}
        }
    }

    /// Computes when anything happens next on the CPU (work done, tick, timers, interrupts) and
    /// sets its one timer to the earliest.
    pub(crate) fn arm_cpu_timer(&mut self, cpu: CpuId) {
        let c = &self.cpus[cpu];
        let curr = c.curr;
        let work_done_ns = if curr.is_none() {
            NEVER
        } else {
            match self.tasks[curr].segment {
                _ if self.tasks[curr].lab.parking => (c.accounted_ns + c.stolen_ns).max(self.now),
                Segment::Run | Segment::IrqOff => self.work_ends_ns(cpu),
                Segment::Spin | Segment::SpinOnOwner => NEVER,
                // Its work ended while another CPU acted, or the switch to it takes time.
                Segment::None => (c.accounted_ns + c.stolen_ns).max(self.now),
            }
        };
        if curr.is_some() && self.tasks[curr].segment == Segment::IrqOff {
            let c = &mut self.cpus[cpu];
            c.irqs_off_until_ns = c.irqs_off_until_ns.max(work_done_ns);
        }
        let late = self.cpus[cpu].lab.tick_is_late;
        let leaves_irq_ns = self.cpus[cpu].lab.leaves_irq_ns;
        let tick_ns = if late { leaves_irq_ns } else { self.next_tick_ns(cpu) };
        // A task without runtime cannot leave before an interrupt, or the switch to it, is over.
        let c = &self.cpus[cpu];
        let switches = self.lab.delays.is_some() && c.stolen_ns > 0;
        let busy_ns = if switches { c.accounted_ns + c.stolen_ns } else { 0 };
        let exhausted_ns = if self.rules.pull {
            self.exhaustion_ns(cpu).max(leaves_irq_ns).max(busy_ns)
        } else {
            NEVER
        };
        let c = &mut self.cpus[cpu];
        c.next.work_done_ns = work_done_ns;
        c.next.tick_ns = tick_ns;
        c.next.exhausted_ns = exhausted_ns;
        let irq_ns = c.next.irq_ns();
        let irq_ns = if irq_ns == NEVER { NEVER } else { irq_ns.max(c.irqs_off_until_ns) };
        // Work that ends during an interrupt is noticed after it.
        let point_ns = if c.lab.point_ns > self.now { c.lab.point_ns } else { NEVER };
        let goes_on_ns =
            if leaves_irq_ns > self.now { leaves_irq_ns } else { work_done_ns.min(point_ns) };
        let next_ns = goes_on_ns.min(irq_ns);
        self.events.set(Slot::Cpu(cpu), next_ns);
    }

    /// Processes the CPU's armed event, and marks the CPU to settle.
    pub(crate) fn cpu_event(&mut self, cpu: CpuId) {
        self.prefetch_cpus(cpu);
        self.touch(cpu, true);
        self.on(cpu, |m| m.take_interrupts(cpu));
    }

    /// Takes the CPU's interrupts that are due now, unless they are off.
    fn take_interrupts(&mut self, cpu: CpuId) {
        self.account_work(cpu);
        let now = self.now;
        if now >= self.cpus[cpu].irqs_off_until_ns {
            if self.cpus[cpu].next.csd_ns <= now {
                self.csd_handler(cpu);
            }
            if self.cpus[cpu].next.ipi_ns <= now {
                self.cpus[cpu].next.ipi_ns = NEVER;
            }
            if self.cpus[cpu].next.exhausted_ns <= now {
                self.exhaustion_timer(cpu);
            }
            if self.cpus[cpu].next.tick_ns <= now && !self.delay_tick(cpu) {
                self.tick(cpu);
            }
            if self.cpus[cpu].next.hrtick_ns <= now {
                self.hrtick(cpu);
            }
        }
    }

    /// Turns interrupts off on this CPU for `cost_ns`, behind sections under way, and steals that
    /// time from its task. Nothing without `cost_timing`.
    pub(crate) fn irq_section(&mut self, cpu: CpuId, cost_ns: u64) {
        if !self.workload.machine.cost_timing || cost_ns == 0 {
            return;
        }
        let now = self.now;
        let c = &mut self.cpus[cpu];
        let start_ns = c.irqs_off_until_ns.max(now);
        c.irqs_off_until_ns = start_ns + cost_ns;
        c.stolen_ns += cost_ns;
    }
}

/// Steps without time passing after which a program counts as an endless loop.
const MAX_ROUNDS: usize = 1_000_000;
/// The number of such steps per task, on machines with very many tasks.
const MAX_ROUNDS_EACH: usize = 256;
