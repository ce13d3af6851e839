//! Load tracking, as far as group shares, balancing and wake-ups need it (kernel: kernel/sched/pelt.c).
//!
//! The load of a group on a CPU is averaged with the kernel's half-life of 32 periods of about a
//! millisecond. Left out: the propagation of runnable sums. How busy CPUs are is in `util.rs`.

use crate::bandwidth::rules::PeltFreeze;
use crate::cfs_rq::CfsRq;
use crate::group::Group;
use crate::ids::{CfsRqId, CpuId, GroupId, TaskId};
use crate::machine::Machine;
use crate::se::scale;
use crate::task::{State, Task};

/// A period is 2^20 ns.
pub(crate) const PERIOD_SHIFT: u32 = 20;
/// 2^32 times 2^(-k/32).
const DECAY: [u64; 32] = [
    0x1_0000_0000,
    0xfa83_b2db,
    0xf525_7d15,
    0xefe4_b99c,
    0xeac0_c6e8,
    0xe5b9_06e7,
    0xe0cc_deec,
    0xdbfb_b798,
    0xd744_fccb,
    0xd2a8_1d92,
    0xce24_8c15,
    0xc9b9_bd86,
    0xc567_2a11,
    0xc12c_4ccb,
    0xbd08_a39f,
    0xb8fb_af48,
    0xb504_f334,
    0xb123_f582,
    0xad58_3eea,
    0xa9a1_5ab5,
    0xa5fe_d6a9,
    0xa270_4303,
    0x9ef5_3260,
    0x9b8d_39ba,
    0x9837_f052,
    0x94f4_efa9,
    0x91c3_d373,
    0x8ea4_398b,
    0x8b95_c1e4,
    0x8898_0e81,
    0x85aa_c368,
    0x82cd_8699,
];
/// A contribution is published when it differs by more than a 64th. (At most once a millisecond on a real kernel, which is
/// how often it changes here.)
const PUBLISH_SHIFT: u32 = 6;
/// One runnable task, as averaged; as published it is 2^10.
pub(crate) const RUNNABLE_SHIFT: u32 = 16;
/// No more are counted on one CPU.
const MAX_RUNNABLE: u32 = u16::MAX as u32;
const TASK_SHIFT: u32 = 10;

/// `value` after that many periods.
pub(crate) fn decay(value: u64, periods: u64) -> u64 {
    let halvings = periods / 32;
    if halvings >= 63 {
        return 0;
    }
    let value = value >> halvings;
    ((u128::from(value) * u128::from(DECAY[(periods % 32) as usize])) >> 32) as u64
}

impl CfsRq {
    /// Brings the load average up to now. Called before the load changes.
    #[inline]
    pub fn pelt_update(&mut self, now: u64) {
        let periods = (now - self.pelt.updated_ns) >> PERIOD_SHIFT;
        if periods > 0 && !self.bandwidth.pelt_frozen {
            self.pelt_pass(periods);
        }
    }

    fn pelt_pass(&mut self, periods: u64) {
        let load = self.load + self.load_parked;
        let pelt = &mut self.pelt;
        pelt.updated_ns += periods << PERIOD_SHIFT;
        pelt.load_avg = decay(pelt.load_avg, periods) + (load - decay(load, periods));
        let tasks = if load > 0 { self.h_runnable.min(MAX_RUNNABLE) } else { 0 };
        let tasks = u64::from(tasks) << RUNNABLE_SHIFT;
        let avg = decay(pelt.runnable_avg.into(), periods) + (tasks - decay(tasks, periods));
        pelt.runnable_avg = avg as u32;
    }

    /// Lets the group know of this CPU's load and tasks (kernel: `update_tg_load_avg()`).
    #[inline]
    pub fn publish_load(&mut self, now: u64, group: &mut Group) {
        self.pelt_update(now);
        let pelt = &mut self.pelt;
        let tasks = pelt.runnable_avg >> (RUNNABLE_SHIFT - TASK_SHIFT);
        let changed = pelt.load_avg.abs_diff(pelt.published) > pelt.published >> PUBLISH_SHIFT
            || tasks.abs_diff(pelt.runnable_published) > pelt.runnable_published >> PUBLISH_SHIFT;
        if !changed {
            return;
        }
        group.load_avg = group.load_avg - pelt.published + pelt.load_avg;
        group.runnable_avg = group.runnable_avg - pelt.runnable_published + tasks;
        pelt.published = pelt.load_avg;
        pelt.runnable_published = tasks;
    }
}

/// All of a task's time, as averaged.
pub(crate) const WHOLE: u64 = 1 << 16;

impl Task {
    /// Brings up to now how much of its time it wanted to run. Called before it falls asleep, and before it wakes up.
    pub fn average_wanted(&mut self, now: u64) {
        let periods = now.saturating_sub(self.wanted_ns) >> PERIOD_SHIFT;
        let new = if self.state == State::Runnable { WHOLE } else { 0 };
        self.wanted_ns += periods << PERIOD_SHIFT;
        self.wanted = decay(self.wanted, periods) + (new - decay(new, periods));
    }
}

impl Group {
    /// How many tasks count where the group competes: whole ones only, so of those that always run one less than there are,
    /// as their average stays a little below (kernel: `tg_tasks()`, 7.3).
    pub fn runnable_tasks(&self) -> u64 {
        u64::from(self.runnable_avg >> TASK_SHIFT).max(1)
    }
}

impl Machine<'_> {
    /// Brings a queue's load average up to now. Called before its load changes.
    #[inline]
    pub(crate) fn pelt_update(&mut self, q: CfsRqId) {
        if self.cpus.len() > 1 || self.loses_weight() {
            let now = self.now;
            self.cfs_rqs[q].pelt_update(now);
        }
    }

    /// Lets the group know of the load of all its queues, as their ticks do on a real kernel: here it is
    /// done when a share is asked for, once in the time of a tick.
    #[inline]
    pub(crate) fn gather_load(&mut self, group: GroupId) {
        let now = self.now;
        if self.cpus.len() > 1 && now >= self.groups[group].gathered_ns + self.tick_ns {
            let group = &mut self.groups[group];
            group.gathered_ns = now;
            let queues = std::mem::take(&mut group.cfs_rqs);
            for &q in queues.iter().filter(|q| q.is_some()) {
                self.cfs_rqs[q].publish_load(now, group);
            }
            group.cfs_rqs = queues;
        }
    }

    /// Who is new on a queue brings load along, a new task all of it (kernel: `init_entity_runnable_average()`,
    /// `attach_entity_load_avg()`). Only what matters is kept: how long it is more than nothing, where a group without any
    /// loses its weight.
    pub(crate) fn bring_load(&mut self, task: TaskId, leaf: CfsRqId, is_born: bool) {
        if !self.loses_weight() {
            return;
        }
        let (mut q, mut weight) = (leaf, self.nominal_weight(task));
        while self.cfs_rqs[q].se.is_some() {
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            let before = if is_born && q == leaf { rq.pelt.load_avg } else { 0 };
            rq.pelt.load_avg = rq.pelt.load_avg.max(before + weight);
            weight = self.groups[rq.group].weight;
            q = rq.parent;
        }
    }

    /// A task's part of its queue's load.
    pub(crate) fn task_load(&mut self, task: TaskId) -> u64 {
        let now = self.now;
        self.tasks[task].average_wanted(now);
        scale(self.nominal_weight(task), self.tasks[task].wanted, WHOLE)
    }

    /// A queued task that goes to another CPU takes its load along, on all levels (kernel: `detach_entity_load_avg()`,
    /// `attach_entity_load_avg()`, `propagate_entity_cfs_rq()`).
    pub(crate) fn carry_load(&mut self, task: TaskId, to: CpuId) {
        let mut load = self.task_load(task);
        let wanted = self.tasks[task].wanted as u32;
        let mut from = self.ses[self.tasks[task].se].q;
        while from.is_some() {
            let there = self.cfs_rq(self.cfs_rqs[from].group, to);
            self.pelt_update(from);
            self.pelt_update(there);
            let rq = &mut self.cfs_rqs[from];
            let (se, parent, all) = (rq.se, rq.parent, rq.pelt.load_avg.max(load).max(1));
            let runnable = rq.pelt.runnable_avg.min(wanted << (RUNNABLE_SHIFT - 16));
            rq.pelt.load_avg = rq.pelt.load_avg.saturating_sub(load);
            rq.pelt.runnable_avg -= runnable;
            let rq = &mut self.cfs_rqs[there];
            rq.pelt.load_avg += load;
            rq.pelt.runnable_avg = rq.pelt.runnable_avg.saturating_add(runnable);
            if se.is_some() {
                load = scale(load, self.ses[se].weight, all);
            }
            from = parent;
        }
    }

    /// The load of a task is what it was at another weight (kernel: `reweight_entity()`).
    pub(crate) fn rescale_load(&mut self, q: CfsRqId, old: u64, new: u64) {
        if self.loses_weight() {
            self.pelt_update(q);
            let pelt = &mut self.cfs_rqs[q].pelt;
            pelt.load_avg = pelt.load_avg.saturating_sub(old) + new;
        }
    }

    /// The hierarchy of this queue was throttled, or its last entity left while it was.
    #[inline]
    pub(crate) fn pelt_freeze(&mut self, q: CfsRqId) {
        let rq = &self.cfs_rqs[q];
        let may_freeze = match self.rules.pelt_freeze {
            PeltFreeze::Throttled => true,
            PeltFreeze::ThrottledAndEmpty => rq.nr == 0,
        };
        if may_freeze && self.in_throttled_hierarchy(q) && !rq.bandwidth.pelt_frozen {
            self.pelt_update(q);
            self.cfs_rqs[q].bandwidth.pelt_frozen = true;
        }
    }

    /// Time goes on for its load, from now.
    #[inline]
    pub(crate) fn pelt_unfreeze(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        if std::mem::take(&mut rq.bandwidth.pelt_frozen) {
            rq.pelt.updated_ns = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_life_is_32_periods() {
        assert_eq!(decay(1 << 20, 0), 1 << 20);
        assert_eq!(decay(1 << 20, 32), 1 << 19);
        assert_eq!(decay(1 << 20, 64), 1 << 18);
        assert_eq!(decay(u64::MAX, 32 * 64), 0);
        for (k, factor) in DECAY.iter().enumerate() {
            let exact = 2f64.powf(32.0 - k as f64 / 32.0);
            assert!((*factor as f64 - exact).abs() <= 1.0, "{k}: {factor:#x} {exact}");
        }
    }
}
