//! A CPU: its current task, what waits for it, and its next events (kernel: `rq`).

use crate::events::NEVER;
use crate::ids::{CfsRqId, GroupId, TaskId};
use crate::interval::CpuBalancing;
use crate::lab::CpuLab;
use crate::pelt::UtilAvg;
use crate::wakees::Wakees;
use cpumax_workload::Stream;
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

/// Next events of a CPU, ns or [`NEVER`].
#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "units stand last in names")]
pub(crate) struct Next {
    /// End of the work of the current task.
    pub work_done_ns: u64,
    /// The next tick that matters.
    pub tick_ns: u64,
    /// End of the current task's slice.
    pub hrtick_ns: u64,
    /// Arrival of an interrupt from another CPU.
    pub ipi_ns: u64,
    /// When a level's runtime is used up before the next tick (pull rules).
    pub exhausted_ns: u64,
    /// When [`Csd::queue`] is processed.
    pub csd_ns: u64,
}

impl Next {
    const NONE: Next = Next {
        work_done_ns: NEVER,
        tick_ns: NEVER,
        hrtick_ns: NEVER,
        ipi_ns: NEVER,
        exhausted_ns: NEVER,
        csd_ns: NEVER,
    };

    /// The first interrupt, ns; [`NEVER`] if none is to come.
    pub fn irq_ns(&self) -> u64 {
        let timers_ns = self.tick_ns.min(self.hrtick_ns).min(self.exhausted_ns);
        timers_ns.min(self.ipi_ns).min(self.csd_ns)
    }
}

/// Unthrottling that other CPUs ask for (kernel: `cfsb_csd_list`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Csd {
    /// Run queues to unthrottle.
    pub queue: VecDeque<CfsRqId>,
    /// How long processing the queue has waited for this CPU's lock, ns.
    pub waited_ns: u64,
    /// A section that unthrottles holds this CPU's run queue lock until then, ns.
    pub locked_until_ns: u64,
}

/// Real-time tasks of a CPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rt {
    /// Those that wait, in order.
    pub queue: VecDeque<TaskId>,
    /// The real-time kernel's timer thread and its work.
    pub ktimers: TaskId,
    pub softirqs: VecDeque<SoftirqWork>,
}

#[derive(Debug, Clone)]
pub(crate) struct Cpu {
    pub online: bool,
    /// The running task; none: idle.
    pub curr: TaskId,
    /// Runnable fair tasks, without delayed ones, and without those in a throttled hierarchy where
    /// the generation throttles entities.
    pub nr_running: u32,
    pub resched: Resched,
    /// Idle, and not told of a task that moved to another group.
    pub has_unnoticed_move: bool,
    /// Up to when the work of `curr` has been accounted, ns.
    pub accounted_ns: u64,
    /// Interrupt time since then, in which `curr` made no progress, ns.
    pub stolen_ns: u64,
    /// Interrupts are off until then, ns.
    pub irqs_off_until_ns: u64,
    pub next: Next,
    /// Offset of its ticks, ns.
    pub tick_phase_ns: u64,
    /// Time between ticks since the last change, ns.
    pub tick_every_ns: u64,
    /// The run queue's clock at a wakeup that requested a reschedule, ns; [`NEVER`]: the
    /// reschedule reads the clock itself (kernel: `rq_clock_skip_update()`).
    pub kept_clock_ns: u64,
    pub lab: CpuLab,
    pub rt: Rt,
    pub csd: Csd,
    pub usage: Usage,
    pub balancing: CpuBalancing,
    /// In the list of CPUs to settle before time advances.
    pub touched: bool,
    /// In an interrupt or system call now: reschedules take effect on the way out.
    pub entered: bool,
}

/// Use of a CPU by fair tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    pub util: UtilAvg,
    /// Sum of the expected utilisation of the tasks that can run there (kernel: `util_est` of the
    /// root `cfs_rq`).
    pub expected: u64,
    /// Tasks it woke while idle.
    pub wakees: Wakees,
}

impl Cpu {
    /// An idle CPU on line, without timers set; ticks come every `tick_every_ns` from
    /// `tick_phase_ns` on.
    pub fn new(tick_phase_ns: u64, tick_every_ns: u64, random: Stream) -> Cpu {
        Cpu {
            online: true,
            curr: TaskId::NONE,
            nr_running: 0,
            resched: Resched::No,
            has_unnoticed_move: false,
            accounted_ns: 0,
            stolen_ns: 0,
            irqs_off_until_ns: 0,
            next: Next::NONE,
            tick_phase_ns,
            tick_every_ns,
            kept_clock_ns: NEVER,
            lab: CpuLab::new(),
            rt: Rt::default(),
            csd: Csd::default(),
            usage: Usage::default(),
            balancing: CpuBalancing::new(random),
            touched: false,
            entered: false,
        }
    }

    /// Whether no task runs on it.
    pub fn is_idle(&self) -> bool {
        self.curr.is_none()
    }
}
