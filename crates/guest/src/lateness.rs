//! How late sleeps end in a run whose time is the host's: an emulated machine takes some tens of
//! microseconds to notice a timer.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

const STEPS: usize = 128;
const STEP_NS: u64 = 4_000;
/// A sleep later than this, in steps (0.2 ms), includes a wait for a CPU.
const MAX_STEPS: usize = 50;
/// With fewer sleeps below `MAX_STEPS` the lateness is unknown.
const MIN_SLEEPS: u32 = 5;

/// Histogram of all sleeps of a run by lateness, in steps.
pub struct Lateness([AtomicU32; STEPS]);

impl Default for Lateness {
    /// An empty histogram.
    fn default() -> Lateness {
        Lateness([const { AtomicU32::new(0) }; STEPS])
    }
}

impl Lateness {
    /// Counts one sleep that ended `ns` late in the histogram.
    pub fn count(&self, ns: u64) {
        let step = ((ns / STEP_NS) as usize).min(STEPS - 1);
        self.0[step].fetch_add(1, Relaxed);
    }

    /// Empties the histogram, before the run begins.
    pub fn reset(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// The lateness, ns, that a tenth of the sleeps stayed below. Very late sleeps, which waited
    /// for a CPU, do not count. `None` if too few were counted.
    pub fn tenth_percentile_ns(&self) -> Option<u64> {
        let soon = &self.0[..MAX_STEPS];
        let all: u32 = soon.iter().map(|count| count.load(Relaxed)).sum();
        let mut below = 0;
        let step = soon.iter().position(|count| {
            below += count.load(Relaxed);
            below > all / 10
        });
        (all >= MIN_SLEEPS).then_some(step? as u64 * STEP_NS + STEP_NS / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_sleeps_tells() {
        let lateness = Lateness::default();
        assert_eq!(lateness.tenth_percentile_ns(), None);
        for ns in [60_000, 61_000, 62_000, 900_000] {
            (0..5).for_each(|_| lateness.count(ns));
        }
        assert_eq!(lateness.tenth_percentile_ns(), Some(62_000));
        (0..3).for_each(|_| lateness.count(9_000));
        assert_eq!(lateness.tenth_percentile_ns(), Some(10_000));
        lateness.reset();
        assert_eq!(lateness.tenth_percentile_ns(), None);
    }

    #[test]
    fn sleeps_that_wait_for_a_cpu_do_not_count() {
        let lateness = Lateness::default();
        (0..50).for_each(|_| lateness.count(3_000_000));
        assert_eq!(lateness.tenth_percentile_ns(), None);
        (0..5).for_each(|_| lateness.count(81_000));
        assert_eq!(lateness.tenth_percentile_ns(), Some(82_000));
    }
}
