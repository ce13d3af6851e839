//! Averages over recent time (kernel: `sched_avg`), with the kernel's half-life of 32 periods of
//! about a millisecond. `fair/load.rs` and `fair/util.rs` keep them up.

/// A period is 2^20 ns.
pub(crate) const PERIOD_SHIFT: u32 = 20;
/// Bits of a whole weight, as weights are scaled.
pub(crate) const WEIGHT_SHIFT: u32 = 10;
/// Bits of one runnable task in averages; published averages use 10.
pub(crate) const RUNNABLE_SHIFT: u32 = 16;
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

/// `value` after decaying for this many periods (1.05 ms), halved by 32 of them (kernel:
/// `decay_load()`).
pub(crate) fn decay(value: u64, periods: u64) -> u64 {
    let halvings = periods / 32;
    if halvings >= 63 {
        return 0;
    }
    let value = value >> halvings;
    ((u128::from(value) * u128::from(DECAY[(periods % 32) as usize])) >> 32) as u64
}

/// All of an entity's time in averages: fine enough that rounding is no load.
pub(crate) const ALL: u64 = 1 << 24;
/// All of a task's time in averages.
pub(crate) const WHOLE: u64 = 1 << 16;

/// Averages of tasks and entities; empty on a single CPU.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    /// Utilisation of each task.
    pub task_utils: Vec<TaskUtil>,
    /// How much of the recent time each entity was queued.
    pub queued: Vec<Queued>,
}

/// Fraction of recent time in which an entity was queued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    /// [`ALL`] for all of it.
    pub avg: u32,
    /// Up to when `avg` is valid: periods of its queue.
    pub periods: u32,
    /// Whether a task's load is part of its queue's load.
    pub attached: bool,
}

/// A smaller difference does not change the expectation (kernel: `UTIL_EST_MARGIN`).
const MARGIN: u32 = (WHOLE / 100) as u32;

/// Average fraction of time in which something ran.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UtilAvg {
    /// Over whole periods, 2^16 for all; more for a while on a CPU to which tasks came.
    pub avg: u32,
    /// Running time in the current period up to `updated_ns`, ns.
    pub part_ns: u32,
    pub updated_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TaskUtil {
    pub used: UtilAvg,
    pub expected: u32,
    /// Its expectation is part of its CPU's sum.
    pub counted: bool,
}

impl UtilAvg {
    /// Updates the average to now, by whether the task or CPU was busy since the last update. To be
    /// called before that changes.
    pub fn update(&mut self, now: u64, is_busy: bool) {
        const PERIOD_NS: u64 = 1 << PERIOD_SHIFT;
        let boundary_ns = (self.updated_ns | (PERIOD_NS - 1)) + 1;
        let ns = if is_busy { now.min(boundary_ns) - self.updated_ns } else { 0 };
        self.part_ns += ns as u32;
        self.updated_ns = now;
        if now < boundary_ns {
            return;
        }
        let mut pass = |part: u64, periods: u64| {
            let avg = decay(self.avg.into(), periods) + (part - decay(part, periods));
            self.avg = avg as u32;
        };
        let rest_ns = now - boundary_ns;
        pass((WHOLE * u64::from(self.part_ns)) >> PERIOD_SHIFT, 1);
        pass(if is_busy { WHOLE } else { 0 }, rest_ns >> PERIOD_SHIFT);
        self.part_ns = if is_busy { (rest_ns & (PERIOD_NS - 1)) as u32 } else { 0 };
    }
}

impl TaskUtil {
    /// Updates the expected utilisation when a task sleeps or parks: at once to a higher value, by
    /// a quarter of the difference to a lower one, unless the task wanted to run more (kernel:
    /// `util_est_update()`).
    pub fn update_expected(&mut self, wanted: u64) {
        let (used, expected) = (self.used.avg, self.expected);
        if used >= expected {
            self.expected = used;
        } else if expected - used >= MARGIN && u64::from(used + MARGIN) >= wanted {
            self.expected -= (expected - used) / 4;
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

    #[test]
    fn less_use_is_believed_slowly_and_not_of_who_was_kept_from_it() {
        const PART: u32 = WHOLE as u32 / 8;
        let of = |eighths: u32| UtilAvg { avg: eighths * PART, ..UtilAvg::default() };
        let mut task = TaskUtil { used: of(4), ..TaskUtil::default() };
        let mut expected = |eighths: u32, wanted: u64| {
            task.used = of(eighths);
            task.update_expected(wanted);
            task.expected * 4 / PART
        };
        assert_eq!(expected(4, WHOLE), 16);
        assert_eq!(expected(2, WHOLE), 16);
        assert_eq!(expected(2, 2 * u64::from(PART)), 14);
        assert_eq!(expected(6, WHOLE), 24);
    }

    #[test]
    fn a_cpu_is_as_busy_as_it_was_of_late() {
        const MS: u64 = 1 << 20;
        let mut busy = UtilAvg::default();
        busy.update(32 * MS, true);
        assert!(busy.avg.abs_diff(1 << 15) <= 1, "{}", busy.avg);
        busy.update(64 * MS, false);
        assert!(busy.avg.abs_diff(1 << 14) <= 1, "{}", busy.avg);
        // A third of each millisecond, however it is cut, is a third in the end.
        let (mut busy, mut now) = (UtilAvg::default(), 0);
        for step in 0..6_000 {
            now += MS / 6;
            busy.update(now, step % 3 == 0);
        }
        assert!(busy.avg.abs_diff((1 << 16) / 3) < 1 << 10, "{}", busy.avg);
    }
}
