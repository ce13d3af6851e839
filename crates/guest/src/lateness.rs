//! How late sleeps end where time is the host's: an emulated machine takes some tens of
//! microseconds to notice a timer.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

const STEPS: usize = 128;
const STEP_NS: u64 = 4_000;
/// Who comes later than this, in steps (0.2 ms), has waited for its CPU.
const MOST: usize = 50;
/// From so few who have not, nothing is known.
const LEAST: u32 = 5;

/// All sleeps of a run, by how late they were over, in steps.
pub struct Lateness([AtomicU32; STEPS]);

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness([const { AtomicU32::new(0) }; STEPS])
    }
}

impl Lateness {
    /// One was over so late, ns.
    pub fn note(&self, ns: u64) {
        let step = ((ns / STEP_NS) as usize).min(STEPS - 1);
        self.0[step].fetch_add(1, Relaxed);
    }

    /// None of those so far was in the run.
    pub fn forget(&self) {
        self.0.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// What a tenth of those that need not have waited for their CPU stayed below, ns: those that
    /// surely had not to.
    pub fn tenth_ns(&self) -> Option<u64> {
        let soon = &self.0[..MOST];
        let all: u32 = soon.iter().map(|count| count.load(Relaxed)).sum();
        let mut below = 0;
        let step = soon.iter().position(|count| {
            below += count.load(Relaxed);
            below > all / 10
        });
        (all >= LEAST).then_some(step? as u64 * STEP_NS + STEP_NS / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_sleeps_tells() {
        let lateness = Lateness::default();
        assert_eq!(lateness.tenth_ns(), None);
        for ns in [60_000, 61_000, 62_000, 900_000] {
            (0..5).for_each(|_| lateness.note(ns));
        }
        assert_eq!(lateness.tenth_ns(), Some(62_000));
        (0..3).for_each(|_| lateness.note(9_000));
        assert_eq!(lateness.tenth_ns(), Some(10_000));
        lateness.forget();
        assert_eq!(lateness.tenth_ns(), None);
    }

    #[test]
    fn who_has_to_wait_for_a_processor_tells_nothing() {
        let lateness = Lateness::default();
        (0..50).for_each(|_| lateness.note(3_000_000));
        assert_eq!(lateness.tenth_ns(), None);
        (0..5).for_each(|_| lateness.note(81_000));
        assert_eq!(lateness.tenth_ns(), Some(82_000));
    }
}
