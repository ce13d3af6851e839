//! How many different tasks a task or an idle CPU wakes.

/// The task that a waker woke last, and how often that changed, halved each second (kernel:
/// `last_wakee`, `wakee_flips`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wakees {
    /// Number of the last wakee.
    pub last: Option<u32>,
    pub flips: u32,
    pub since_ns: u64,
}

impl Wakees {
    /// Counts the wakeup of task `number`: a flip if it is another one than the last; flips are
    /// halved every second (kernel: `record_wakee()`).
    pub fn record(&mut self, number: u32, now: u64) {
        const DECAY_NS: u64 = 1_000_000_000;
        if now > self.since_ns + DECAY_NS {
            self.flips /= 2;
            self.since_ns = now;
        }
        if self.last != Some(number) {
            self.last = Some(number);
            self.flips += 1;
        }
    }

    /// Whether waker (`self`) and wakee (`other`) are better spread, as both wake many different
    /// tasks and one many more than the other (kernel: `wake_wide()`). `cpus`: size of the cache
    /// domain.
    pub fn is_wide(self, other: Wakees, cpus: u32) -> bool {
        let (most, least) = (self.flips.max(other.flips), self.flips.min(other.flips));
        least >= cpus && most >= least * cpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_of_many_is_spread_from_a_waker_of_half_as_many() {
        let (mut many, mut few) = (Wakees::default(), Wakees::default());
        (0..6).for_each(|n| many.record(n % 3, 0));
        few.record(0, 0);
        few.record(0, 0);
        assert!(!many.is_wide(few, 2), "who wakes the same one again and again");
        few.record(1, 0);
        assert!(many.is_wide(few, 2) && few.is_wide(many, 2));
        assert!(!many.is_wide(few, 3), "fewer than there are CPUs");
        many.record(0, 1_500_000_000);
        assert_eq!(many.flips, 4, "half of them were a second ago");
        many.record(0, 1_500_000_001);
        assert_eq!(many.flips, 4);
        assert!(many.is_wide(few, 2));
    }
}
