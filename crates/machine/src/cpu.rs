//! A CPU: its current task, and its next event.

use crate::events::NEVER;
use crate::fair::balance::interval::{BalanceInterval, Newidle};
use crate::fair::placement::Wakees;
use crate::fair::util::UtilAvg;
use crate::ids::{CfsRqId, CpuId, GroupId, TaskId};
use crate::machine::Machine;
use crate::task::{Mode, Segment, State};
use cpumax_workload::{Class, Preempt, Stream};
use std::collections::VecDeque;

/// How urgently a CPU must reschedule (kernel: `TIF_NEED_RESCHED`, `TIF_NEED_RESCHED_LAZY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resched {
    No,
    /// At the return to user mode; the next tick makes it `Now`.
    Lazy,
    /// At the next point where the kernel can be preempted.
    Now,
}

/// Work for a real-time kernel's timer thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoftirqWork {
    Period(GroupId),
    Slack(GroupId),
    /// A section of the workload, by index.
    Section(u32),
    /// The end of a sleep, by its number.
    WakeUp(TaskId, u32),
}

#[derive(Debug, Clone)]
pub(crate) struct Cpu {
    pub online: bool,
    /// The running task; none: idle.
    pub curr: TaskId,
    /// Runnable fair tasks, without delayed ones, and without those in a throttled hierarchy where
    /// the generation throttles entities.
    pub nr_running: u32,
    /// Waiting real-time tasks, in order.
    pub rt_queue: VecDeque<TaskId>,
    pub resched: Resched,
    /// Idle, and not told of a task that moved to another group.
    pub has_unnoticed_move: bool,
    /// Up to when the work of `curr` has been accounted, ns.
    pub accounted_ns: u64,
    /// Interrupt time since then, in which `curr` made no progress, ns.
    pub stolen_ns: u64,
    /// Interrupts are off until then, ns.
    pub irqs_off_until_ns: u64,

    /// Next events, ns or [`NEVER`]: end of the work of `curr`, next tick that matters, end of its
    /// slice (hrtick), arrival of an interrupt from another CPU.
    pub work_done_ns: u64,
    pub tick_ns: u64,
    pub hrtick_ns: u64,
    pub ipi_ns: u64,
    /// When a level's runtime is used up before the next tick (pull rules), ns or [`NEVER`].
    pub exhausted_ns: u64,
    /// When `csd` is processed, ns or [`NEVER`].
    pub csd_ns: u64,
    /// Run queues to unthrottle (kernel: `cfsb_csd_list`).
    pub csd: VecDeque<CfsRqId>,
    /// How long processing `csd` has waited for this CPU's lock, ns.
    pub csd_waited_ns: u64,
    /// A section that unthrottles holds this CPU's run queue lock until then, ns.
    pub locked_until_ns: u64,

    /// Offset of its ticks, ns.
    pub tick_phase_ns: u64,
    /// Under noise: offset of its first remote tick (`nohz_full`) in units of a second, ns.
    pub remote_tick_ns: u64,
    /// Time between ticks since the last change, ns.
    pub tick_every_ns: u64,
    /// The real-time kernel's timer thread and its work.
    pub ktimers: TaskId,
    pub softirqs: VecDeque<SoftirqWork>,
    /// End of the interrupt it is in, ns (under noise). Until then more interrupts may come, and
    /// no task is picked or continues.
    pub leaves_irq_ns: u64,
    /// Time of its last switch, ns (under noise).
    pub switched_ns: u64,
    /// When the last timer of that interrupt wakes a task, ns.
    pub woke_ns: u64,
    pub balancing: BalanceInterval,
    /// Success of newidle balancing: in its cache domain, and on the machine.
    pub newidle: [Newidle; 2],
    pub random: Stream,
    pub util: UtilAvg,
    /// Sum of the expected utilisation of the tasks that can run there (kernel: `util_est` of the
    /// root `cfs_rq`).
    pub expected: u64,
    /// On the first CPU of a cache domain: how many CPUs a waking task searches, and until when
    /// that is valid, ns.
    pub idle_search: (u32, u64),
    /// Tasks it woke while idle.
    pub wakees: Wakees,
    /// Length of the tick it is in, or left last, ns.
    pub tick_took_ns: u64,
    /// How long that tick lasts after its charge, ns.
    pub tick_over_ns: u64,
    /// End of the current task's way to the next preemption point, ns, where a kernel preempts
    /// only there.
    pub point_ns: u64,
    /// The run queue's clock at a wakeup that requested a reschedule, ns; [`NEVER`]: the
    /// reschedule reads the clock itself (kernel: `rq_clock_skip_update()`).
    pub kept_clock_ns: u64,
    /// A tick that is due is processed at the end of the interrupt (under noise).
    pub tick_is_late: bool,
    /// In the list of CPUs to settle before time advances.
    pub touched: bool,
    /// In an interrupt or system call now: reschedules take effect on the way out.
    pub entered: bool,
}

impl Cpu {
    /// An idle CPU on line, without timers set; ticks come every `tick_every_ns` from
    /// `tick_phase_ns` on.
    pub fn new(tick_phase_ns: u64, tick_every_ns: u64, random: Stream) -> Cpu {
        Cpu {
            online: true,
            curr: TaskId::NONE,
            nr_running: 0,
            rt_queue: VecDeque::new(),
            resched: Resched::No,
            accounted_ns: 0,
            stolen_ns: 0,
            irqs_off_until_ns: 0,
            work_done_ns: NEVER,
            tick_ns: NEVER,
            hrtick_ns: NEVER,
            ipi_ns: NEVER,
            exhausted_ns: NEVER,
            csd_ns: NEVER,
            csd: VecDeque::new(),
            csd_waited_ns: 0,
            locked_until_ns: 0,
            tick_phase_ns,
            remote_tick_ns: 0,
            tick_every_ns,
            ktimers: TaskId::NONE,
            softirqs: VecDeque::new(),
            leaves_irq_ns: 0,
            switched_ns: NEVER,
            woke_ns: 0,
            has_unnoticed_move: false,
            balancing: BalanceInterval::default(),
            newidle: [Newidle::new(); 2],
            random,
            util: UtilAvg::default(),
            expected: 0,
            idle_search: (0, 0),
            wakees: Wakees::default(),
            tick_took_ns: 0,
            tick_over_ns: 0,
            point_ns: 0,
            kept_clock_ns: NEVER,
            tick_is_late: false,
            touched: false,
            entered: false,
        }
    }

    /// Whether no task runs on it.
    pub fn is_idle(&self) -> bool {
        self.curr.is_none()
    }
}

impl Machine<'_> {
    /// Marks a CPU that must settle (charge, reschedule, set timers) before time advances.
    /// `entered`: it is in the kernel itself (its own interrupt), so it may reschedule on the way
    /// out.
    pub(crate) fn touch(&mut self, cpu: CpuId, entered: bool) {
        let c = &mut self.cpus[cpu];
        c.entered |= entered;
        if !c.touched {
            c.touched = true;
            self.touched.push(cpu);
        }
    }

    /// Requests a reschedule of a CPU, at once or at its next tick (lazy preemption); a weaker
    /// request than the pending one changes nothing (kernel: `resched_curr()`). Another CPU learns
    /// of it by an interrupt.
    pub(crate) fn resched(&mut self, cpu: CpuId, urgency: Resched) {
        let lazy_kernel = self.preempt.is_lazy();
        let now = self.now;
        let ipi_ns = self.workload.machine.ipi_ns;
        let here = self.here;
        let c = &mut self.cpus[cpu];
        let urgency = if lazy_kernel && !c.is_idle() { urgency } else { Resched::Now };
        if c.resched >= urgency {
            return;
        }
        c.resched = urgency;
        if here.is_some() && here != cpu && urgency == Resched::Now {
            c.ipi_ns = c.ipi_ns.min(now + ipi_ns);
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
        if task.mode == Mode::User || task.state != State::Runnable || task.parked {
            return true;
        }
        if task.spinning > 0 || matches!(task.segment, Segment::IrqOff | Segment::Spin) {
            return false;
        }
        if task.segment == Segment::SpinOnOwner {
            return self.needs_resched(cpu);
        }
        match self.preempt {
            Preempt::None => task.class == Class::Kthread,
            Preempt::Lazy | Preempt::RtLazy => c.resched == Resched::Now,
            Preempt::Voluntary => c.point_ns <= self.now || task.segment != Segment::Run,
            Preempt::Full | Preempt::Rt => true,
        }
    }

    /// Processes everything on this CPU that takes no time (if it is in the kernel: reschedules and
    /// the task's instructions), then arms its next event.
    pub(crate) fn settle(&mut self, cpu: CpuId) {
        let entered = std::mem::take(&mut self.cpus[cpu].entered);
        self.cpus[cpu].touched = false;
        if entered && self.cpus[cpu].online {
            self.here = cpu;
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
            self.here = CpuId::NONE;
        }
        self.adopt_tick_interval(cpu);
        self.arm_cpu_timer(cpu);
    }

    /// Takes one step on the way out of the kernel: schedules, returns to user mode or executes an
    /// instruction. False when nothing is left to do now.
    fn settle_step(&mut self, cpu: CpuId) -> bool {
        if self.failed.is_some() || self.cpus[cpu].leaves_irq_ns > self.now {
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
        if self.tasks[curr].parking {
            return false;
        }
        if !self.tasks[curr].is_leaving_kernel() {
            self.end_stall(curr);
        }
        if self.tasks[curr].segment != Segment::None {
            return false;
        }
        if self.cpus[cpu].stolen_ns > 0 && self.noise.is_some() {
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
            task.usage_ns += elapsed;
            let group = task.group;
            self.account_rt_usage(group, elapsed);
        }
        let curr = self.cpus[cpu].curr;
        let by_clock = self.tells_work_by_clock(curr);
        let task = &mut self.tasks[curr];
        match task.segment {
            Segment::Run | Segment::IrqOff => {
                if by_clock {
                    task.account_absence(elapsed - progress, progress);
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
                _ if self.tasks[curr].parking => (c.accounted_ns + c.stolen_ns).max(self.now),
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
        let late = self.cpus[cpu].tick_is_late;
        let leaves_irq_ns = self.cpus[cpu].leaves_irq_ns;
        let tick_ns = if late { leaves_irq_ns } else { self.next_tick_ns(cpu) };
        // A task without runtime cannot leave before an interrupt, or the switch to it, is over.
        let c = &self.cpus[cpu];
        let switches = self.noise.is_some() && c.stolen_ns > 0;
        let busy_ns = if switches { c.accounted_ns + c.stolen_ns } else { 0 };
        let exhausted_ns = if self.rules.pull {
            self.exhaustion_ns(cpu).max(leaves_irq_ns).max(busy_ns)
        } else {
            NEVER
        };
        let c = &mut self.cpus[cpu];
        c.work_done_ns = work_done_ns;
        c.tick_ns = tick_ns;
        c.exhausted_ns = exhausted_ns;
        let irq_ns = tick_ns.min(c.hrtick_ns).min(c.ipi_ns).min(c.csd_ns).min(exhausted_ns);
        let irq_ns = if irq_ns == NEVER { NEVER } else { irq_ns.max(c.irqs_off_until_ns) };
        // Work that ends during an interrupt is noticed after it.
        let point_ns = if c.point_ns > self.now { c.point_ns } else { NEVER };
        let goes_on_ns =
            if leaves_irq_ns > self.now { leaves_irq_ns } else { work_done_ns.min(point_ns) };
        let next_ns = goes_on_ns.min(irq_ns);
        let slot = self.cpu_slot(cpu);
        self.timers.set(slot, next_ns);
    }

    /// Processes the CPU's armed event: takes the interrupts that are due now, unless they are off,
    /// and marks the CPU to settle.
    pub(crate) fn cpu_event(&mut self, cpu: CpuId) {
        self.prefetch_cpus(cpu);
        self.here = cpu;
        self.touch(cpu, true);
        self.account_work(cpu);
        let now = self.now;
        if now >= self.cpus[cpu].irqs_off_until_ns {
            if self.cpus[cpu].csd_ns <= now {
                self.csd_handler(cpu);
            }
            if self.cpus[cpu].ipi_ns <= now {
                self.cpus[cpu].ipi_ns = NEVER;
            }
            if self.cpus[cpu].exhausted_ns <= now {
                self.exhaustion_timer(cpu);
            }
            if self.cpus[cpu].tick_ns <= now && !self.delay_tick(cpu) {
                self.tick(cpu);
            }
            if self.cpus[cpu].hrtick_ns <= now {
                self.hrtick(cpu);
            }
        }
        self.here = CpuId::NONE;
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
