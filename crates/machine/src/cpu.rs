//! A CPU: its current task, what waits for it, and its next events (kernel: `rq`).

use crate::events::NEVER;
use crate::ids::{CfsRqId, GroupId, TaskId};
use crate::interval::{BalanceInterval, Newidle};
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
