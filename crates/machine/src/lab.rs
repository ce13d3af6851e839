//! State that only comparisons with a real kernel in the lab have: conditions observed there, steps
//! that take microseconds, and the outside task. Plain runs have none of it.

use crate::events::NEVER;
use crate::ids::TaskId;
use crate::step::Delays;
use crate::{Options, Step};
use cpumax_outcome::Conditions;

/// From a sleep's end until the task is in user mode, as far as noise models it, ns.
const IN_TIME_NS: u64 = 12_000;

/// The lab's part of a machine.
#[derive(Debug)]
pub(crate) struct Lab<'a> {
    pub observed: Option<&'a Conditions>,
    /// Tasks read their CPU time after each call, as the guest's do where time is the host's. Each
    /// read charges them (kernel: `task_sched_runtime()`).
    pub reads_cpu_time: bool,
    pub delays: Option<Box<dyn Delays>>,
    /// When the last of the tasks now being started exists, ns.
    pub born_until_ns: u64,
    /// The task that starts others and intervenes, in runs compared with a real kernel.
    pub outside: TaskId,
}

impl<'a> Lab<'a> {
    /// The lab that the options ask for, at time 0 and without the outside task.
    pub fn new(options: &Options<'a>) -> Lab<'a> {
        Lab {
            observed: options.observed,
            reads_cpu_time: options.observed.is_some_and(|seen| seen.page_ns.is_some()),
            delays: options.delays.map(|delays| delays.begin(options.observed)),
            born_until_ns: 0,
            outside: TaskId::NONE,
        }
    }

    /// The length of a step that begins `now`, ns; 0 without delays.
    pub fn delay_ns(&mut self, now: u64, step: Step) -> u64 {
        let Some(delays) = &mut self.delays else { return 0 };
        delays.advance(now);
        delays.draw_ns(step)
    }

    /// Whether something happens `now` that happens at one of `n` times; never without delays.
    pub fn happens(&mut self, now: u64, n: u64) -> bool {
        self.delays.as_mut().is_some_and(|delays| {
            delays.advance(now);
            delays.below(n) == 0
        })
    }

    /// How much later than due timers end sleeps on an observed slow machine, beyond the noise of
    /// interrupt and switch, ns; 0 elsewhere.
    pub fn wakeup_lateness_ns(&self) -> u64 {
        let late_ns = self.observed.and_then(|o| o.wake_late_ns).unwrap_or(0);
        late_ns.saturating_sub(if self.delays.is_some() { IN_TIME_NS } else { 0 })
    }

    /// Longest time from a tick's due time to its charge, ns; 0 without noise.
    pub fn tick_charge_delay_max_ns(&self) -> u64 {
        self.delays.as_ref().map_or(0, |delays| delays.most_ns(Step::Tick))
    }

    /// Typical time from a tick's due time to its charge, ns; 0 without noise.
    pub fn tick_charge_delay_ns(&self) -> u64 {
        self.delays.as_ref().map_or(0, |delays| delays.typical_ns(Step::Tick))
    }

    /// When a run of `duration_ns` ends and its counters are read, ns: at its end plus the time
    /// until half of the counters are read, which the outside task's last observed visit shows (0
    /// without one). Under noise a random time up to twice that is drawn.
    pub fn end_ns(&mut self, duration_ns: u64) -> u64 {
        let last = self.observed.and_then(|o| o.outside_ns.last());
        let half_ns = last.map_or(0, |&(at_ns, ns)| (at_ns + ns).saturating_sub(duration_ns));
        duration_ns + self.delays.as_mut().map_or(half_ns, |delays| delays.below(2 * half_ns + 1))
    }

    /// Actions of the outside task that were late: when they were due, and when they happened, ns.
    pub fn late(&self) -> &'a [(u64, u64)] {
        self.observed.map_or(&[], |observed| &observed.late_ns)
    }

    /// When an action planned for `at_ns` takes place, ns: as observed if it was late, which may be
    /// in the past, else `at_ns`.
    pub fn observed_action_ns(&self, at_ns: u64) -> u64 {
        let found = self.late().iter().find(|(wanted_ns, _)| *wanted_ns == at_ns);
        found.map_or(at_ns, |&(_, done_ns)| done_ns)
    }

    /// Whether the action under way happens `now` because the outside task came late to it.
    pub fn outside_came_late(&self, now: u64) -> bool {
        self.late().iter().any(|&(_, done_ns)| done_ns == now)
    }
}

/// The lab's part of a CPU, under noise.
#[derive(Debug, Clone, Default)]
pub(crate) struct CpuLab {
    /// End of the interrupt it is in, ns. Until then more interrupts may come, and no task is
    /// picked or continues.
    pub leaves_irq_ns: u64,
    /// Time of its last switch, ns.
    pub switched_ns: u64,
    /// When the last timer of that interrupt wakes a task, ns.
    pub woke_ns: u64,
    /// Length of the tick it is in, or left last, ns.
    pub tick_took_ns: u64,
    /// How long that tick lasts after its charge, ns.
    pub tick_over_ns: u64,
    /// End of the current task's way to the next preemption point, ns, where a kernel preempts
    /// only there.
    pub point_ns: u64,
    /// Offset of its first remote tick (`nohz_full`) in units of a second, ns.
    pub remote_tick_ns: u64,
    /// A tick that is due is processed at the end of the interrupt.
    pub tick_is_late: bool,
}

impl CpuLab {
    /// Of a CPU that has not switched yet and is in no interrupt.
    pub fn new() -> CpuLab {
        CpuLab { switched_ns: NEVER, ..CpuLab::default() }
    }
}

/// The lab's part of a task; all but `has_read_cpu_time` under noise only.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub(crate) struct TaskLab {
    /// In a call whose effect is still to come when the task continues.
    pub call_delayed: bool,
    /// About to park.
    pub parking: bool,
    /// Has left its autogroup on the way to exit.
    pub has_left_autogroup: bool,
    /// Has read its CPU time after its last call.
    pub has_read_cpu_time: bool,
    /// Its progress in a move that takes time.
    pub moving: Moving,
    /// On its way to a sleep until `wakes_ns`: how much later a sleep for a duration ends, ns;
    /// else 0.
    pub sleep_delay_ns: u16,
    /// Time from its dequeue when it parks to the switch, ns.
    pub parked_ns: u16,
}

/// Steps of a task's move of itself to another group, where that takes time (kernel:
/// `cgroup_procs_write()`). It holds `cgroup_mutex`, and its second half happens in the new group,
/// soon after a reschedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Moving {
    #[default]
    No,
    Enters {
        in_syscall: bool,
    },
    Out {
        in_syscall: bool,
    },
    Moved {
        in_syscall: bool,
    },
    In {
        in_syscall: bool,
    },
}
