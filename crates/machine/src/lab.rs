//! State that only comparisons with a real kernel in the lab have: conditions observed there,
//! microseconds of noise, the guest's ways, and the outside task. Plain runs have none of it.

use crate::Options;
use crate::ids::TaskId;
use crate::noise::{Kind, Noise, READ_PAGE_NS, WRITE_PAGE_NS};
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
    pub noise: Option<Noise>,
    /// Later seeds of the noise, each with the time from which it applies, ns.
    noise_from: &'a [(u64, u64)],
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
            noise: options.noise.map(Noise::new),
            noise_from: options.noise_from,
            born_until_ns: 0,
            outside: TaskId::NONE,
        }
    }

    /// The source of noise for now, if the run has noise; replaces it where a later seed applies
    /// ([`Options::noise_from`]).
    pub fn noise_at(&mut self, now: u64) -> Option<&mut Noise> {
        let noise = self.noise.as_mut()?;
        while let Some((&(from_ns, seed), rest)) = self.noise_from.split_first()
            && from_ns <= now
        {
            *noise = Noise::new(seed);
            self.noise_from = rest;
        }
        Some(noise)
    }

    /// How much later than due timers end sleeps on an observed slow machine, beyond the noise of
    /// interrupt and switch, ns; 0 elsewhere.
    pub fn wakeup_lateness_ns(&self) -> u64 {
        let late_ns = self.observed.and_then(|o| o.wake_late_ns).unwrap_or(0);
        late_ns.saturating_sub(if self.noise.is_some() { IN_TIME_NS } else { 0 })
    }

    /// Converts a length of page work, ns, as measured where instructions are counted to that on
    /// the observed machine; at least 1.
    pub fn page_ns(&self, kind: Kind, ns: u64) -> u64 {
        let Some([read_ns, write_ns]) = self.observed.and_then(|o| o.page_ns) else { return ns };
        let ns = if kind == Kind::WritePoint {
            ns.saturating_mul(write_ns) / WRITE_PAGE_NS
        } else {
            ns.saturating_mul(read_ns) / READ_PAGE_NS
        };
        ns.max(1)
    }

    /// Longest time from a tick's due time to its charge, ns; 0 without noise.
    pub fn tick_charge_delay_max_ns(&self) -> u64 {
        if self.noise.is_some() { Kind::Tick.range_ns().1 } else { 0 }
    }

    /// Typical time from a tick's due time to its charge, ns; 0 without noise.
    pub fn tick_charge_delay_ns(&self) -> u64 {
        self.noise.as_ref().map_or(0, |noise| noise.typical_ns[Kind::Tick as usize])
    }

    /// When a run of `duration_ns` ends and its counters are read, ns: at its end plus the time
    /// until half of the counters are read, which the outside task's last observed visit shows (0
    /// without one). Under noise a random time up to twice that is drawn.
    pub fn end_ns(&mut self, duration_ns: u64) -> u64 {
        let last = self.observed.and_then(|o| o.outside_ns.last());
        let half_ns = last.map_or(0, |&(at_ns, ns)| (at_ns + ns).saturating_sub(duration_ns));
        duration_ns + self.noise.as_mut().map_or(half_ns, |noise| noise.below(2 * half_ns + 1))
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
