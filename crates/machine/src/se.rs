//! Scheduling entities, which compete on run queues: a task or a whole group (kernel:
//! `sched_entity`).

use crate::ids::{CfsRqId, TaskId};

/// Weight of nice 0 and of a group with weight 100, in the resolution used here (kernel: 1024 <<
/// 10).
pub(crate) const NICE_0_WEIGHT: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Task(TaskId),
    Group(CfsRqId),
}

/// Fits a cache line; fields that only some kernels need are in [`Turn`].
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct Se {
    owner: PackedOwner,
    /// The queue to which it belongs. On a flat queue a task competes on its CPU's root queue
    /// instead.
    pub q: CfsRqId,
    slice_ns: u32,
    /// Queued there (running included).
    pub on_rq: bool,
    /// Asleep, but queued until its lag is served.
    pub delayed: bool,
    /// `deadline` is relative to vruntime, after a move while runnable. Under CFS: `vruntime` is
    /// relative to the queue's minimum.
    pub deadline_is_relative: bool,
    pub weight: u64,
    /// Virtual runtime, ns of a nice-0 task.
    pub vruntime: i64,
    /// Remainder of the division at the last charge, in units of 1/weight virtual ns, so that
    /// charging in two steps equals charging once.
    pub vruntime_rest: u64,
    pub deadline: i64,
    /// V - vruntime when it left the queue.
    pub vlag: i64,
    /// Protected from preemption up to this vruntime.
    pub protected_until: i64,
}

const _: () = assert!(size_of::<Se>() == 64);

/// Running time of an entity since its last pick, for kernels that end slices by it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turn {
    /// CPU time used, ns, and its value at the last pick.
    pub sum_exec_ns: u64,
    pub picked_sum_exec_ns: u64,
}

impl Turn {
    /// CPU time used since it was picked, ns.
    pub fn ran_ns(&self) -> u64 {
        self.sum_exec_ns - self.picked_sum_exec_ns
    }
}

/// An [`Owner`] in four bytes: the highest bit says which. No memory holds 2^31 of either.
#[derive(Debug, Clone, Copy)]
struct PackedOwner(u32);

const IS_TASK: u32 = 1 << 31;

impl PackedOwner {
    /// Packs an owner into four bytes.
    fn new(owner: Owner) -> PackedOwner {
        let (id, bit) = match owner {
            Owner::Task(task) => (task.0, IS_TASK),
            Owner::Group(q) => (q.0, 0),
        };
        PackedOwner(id & !IS_TASK | bit)
    }
}

impl Se {
    /// An entity with zero virtual times that is on no queue. `q`: the one to which it belongs.
    /// Slices beyond 4.29 s are cut.
    pub fn new(owner: Owner, q: CfsRqId, weight: u64, slice_ns: u64) -> Se {
        Se {
            owner: PackedOwner::new(owner),
            q,
            slice_ns: u32::try_from(slice_ns).unwrap_or(u32::MAX),
            on_rq: false,
            delayed: false,
            deadline_is_relative: false,
            weight,
            vruntime: 0,
            vruntime_rest: 0,
            deadline: 0,
            vlag: 0,
            protected_until: i64::MIN,
        }
    }

    /// The task, or the run queue of the group, whose entity this is.
    pub fn owner(&self) -> Owner {
        let id = self.owner.0 & !IS_TASK;
        if self.owner.0 & IS_TASK != 0 {
            Owner::Task(TaskId(id))
        } else {
            Owner::Group(CfsRqId(id))
        }
    }

    pub fn slice_ns(&self) -> u64 {
        self.slice_ns.into()
    }

    /// Virtual time of `ns` of CPU time at this weight (kernel: `calc_delta_fair()`). From 7.1 on a
    /// kernel `divides`; before, it multiplies by a rounded-down reciprocal, so the result may be a
    /// nanosecond too small. Ties depend on it: a group of twice the weight of a new task, whose
    /// first deadline is after half a slice, comes first.
    pub fn virtual_ns(&self, ns: u64, divides: bool) -> i64 {
        if self.weight == NICE_0_WEIGHT {
            return ns as i64;
        }
        if divides {
            return scale(ns, NICE_0_WEIGHT, self.weight) as i64;
        }
        let reciprocal = u64::from(u32::MAX) / (self.weight >> 10).max(2);
        let mut factor = reciprocal * (NICE_0_WEIGHT >> 10);
        // Drop bits that do not fit.
        let less = u64::BITS - (factor >> 32).leading_zeros();
        factor >>= less;
        ((u128::from(ns) * u128::from(factor)) >> (32 - less)) as i64
    }

    /// Advances vruntime for `ns` of CPU time by weight, keeping the remainder.
    pub fn advance(&mut self, ns: u64) {
        if self.weight == NICE_0_WEIGHT {
            self.vruntime += ns as i64;
            return;
        }
        let scaled = ns as u128 * NICE_0_WEIGHT as u128 + self.vruntime_rest as u128;
        if let Ok(scaled) = u64::try_from(scaled) {
            self.vruntime += (scaled / self.weight) as i64;
            self.vruntime_rest = scaled % self.weight;
        } else {
            self.vruntime += (scaled / self.weight as u128) as i64;
            self.vruntime_rest = (scaled % self.weight as u128) as u64;
        }
    }

    /// Changes the weight of an entity that is on no queue; its lag (and a relative deadline) keeps
    /// its length in time.
    pub fn set_weight_off_queue(&mut self, weight: u64) {
        self.vruntime_rest = 0;
        if weight == self.weight {
            return;
        }
        self.vlag = rescale(self.vlag, self.weight, weight);
        if self.deadline_is_relative {
            self.deadline = rescale(self.deadline, self.weight, weight);
        }
        self.weight = weight;
    }

    /// CPU time, ns, after which the entity's vruntime reaches `target`, rounded up; 0 if it has.
    pub fn ns_until(&self, target: i64) -> u64 {
        if self.vruntime >= target {
            return 0;
        }
        let distance = target.abs_diff(self.vruntime);
        let scaled = distance as u128 * self.weight as u128 - self.vruntime_rest as u128;
        scaled.div_ceil(NICE_0_WEIGHT as u128) as u64
    }
}

/// `value * numerator / denominator`, rounded down.
pub(crate) fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    match value.checked_mul(numerator) {
        Some(product) => product / denominator,
        None => (value as u128 * numerator as u128 / denominator as u128) as u64,
    }
}

/// Converts a virtual time from weight `old` to `new`, for the same CPU time; rounds towards zero.
pub(crate) fn rescale(virtual_ns: i64, old: u64, new: u64) -> i64 {
    let magnitude = scale(virtual_ns.unsigned_abs(), old, new) as i64;
    if virtual_ns < 0 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_is_what_a_kernel_gets_from_a_rounded_reciprocal_and_later_by_dividing() {
        let of = |weight: u64, divides: bool| {
            Se::new(Owner::Task(TaskId(0)), CfsRqId(0), weight << 10, 0)
                .virtual_ns(700_000, divides)
        };
        let weights = [1024, 2048, 512, 15, 88_761];
        let to_7_0 = [700_000, 349_999, 1_399_999, 47_786_666, 8_075];
        assert_eq!(weights.map(|weight| of(weight, false)), to_7_0);
        let from_7_1 = [700_000, 350_000, 1_400_000, 47_786_666, 8_075];
        assert_eq!(weights.map(|weight| of(weight, true)), from_7_1);
    }

    #[test]
    fn charging_in_steps_is_charging_at_once() {
        for weight in [2, 3 << 10, 335 << 10, NICE_0_WEIGHT, 88_761 << 10] {
            let mut once = Se::new(Owner::Task(TaskId(0)), CfsRqId(0), weight, 0);
            let mut steps = once.clone();
            once.advance(3_000_017 + 1_234_567_891 + 1);
            for ns in [3_000_017, 1_234_567_891, 1] {
                steps.advance(ns);
            }
            assert_eq!((once.vruntime, once.vruntime_rest), (steps.vruntime, steps.vruntime_rest));
        }
    }

    #[test]
    fn ns_until_is_the_least_that_reaches_the_target() {
        for weight in [2, 335 << 10, NICE_0_WEIGHT, 88_761 << 10] {
            for target in [0, 1, 999, 2_800_000, 7_000_000_000] {
                let mut se = Se::new(Owner::Task(TaskId(0)), CfsRqId(0), weight, 0);
                se.advance(12_345);
                let ns = se.ns_until(target);
                let mut reached = se.clone();
                reached.advance(ns);
                assert!(reached.vruntime >= target);
                if ns > 0 {
                    se.advance(ns - 1);
                    assert!(se.vruntime < target, "{weight} {target}");
                }
            }
        }
    }
}
