//! CPU work of a known size: turns of a loop that is one chain of dependent operations, so that its
//! length hardly depends on what runs on the core's other hyper-thread, and never on the clock.

use crate::clock::thread_cpu_ns;
use std::hint::black_box;

const CALIBRATION_TURNS: u64 = 400_000;
const CALIBRATION_PROBES: usize = 101;
const NS_PER_MS: u64 = 1_000_000;

/// How fast a CPU turns the loop.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    turns_per_ms: u64,
}

impl Speed {
    /// A speed known from before; at least one turn in a millisecond.
    pub fn new(turns_per_ms: u64) -> Speed {
        Speed { turns_per_ms: turns_per_ms.max(1) }
    }

    /// The median of many short probes on the thread's CPU clock; takes about 0.1 s.
    pub fn measured() -> Speed {
        let mut probes: Vec<u64> = (0..CALIBRATION_PROBES)
            .map(|_| {
                let begin_ns = thread_cpu_ns();
                turn(CALIBRATION_TURNS);
                (thread_cpu_ns() - begin_ns).max(1)
            })
            .collect();
        probes.sort_unstable();
        Speed::new(CALIBRATION_TURNS * NS_PER_MS / probes[CALIBRATION_PROBES / 2])
    }

    pub fn turns_per_ms(self) -> u64 {
        self.turns_per_ms
    }

    /// Turns that take this much CPU time.
    pub fn turns(self, cpu_ns: u64) -> u64 {
        (u128::from(cpu_ns) * u128::from(self.turns_per_ms) / u128::from(NS_PER_MS)) as u64
    }
}

/// Does that many turns of work. Never inlined: what is calibrated and what is used must be the same code.
#[inline(never)]
pub fn turn(turns: u64) {
    let mut x = black_box(1_u64);
    for _ in 0..turns {
        // The constants of a well-known generator; any odd factor would do.
        x = black_box(x)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_in_proportion_to_the_time_asked_for() {
        let speed = Speed::new(700_000);
        assert_eq!(speed.turns(2_000_000), 1_400_000);
        assert_eq!(speed.turns(0), 0);
        assert_eq!(Speed::new(0).turns_per_ms(), 1);
    }

    #[test]
    fn work_takes_about_the_cpu_time_asked_for() {
        let speed = Speed::measured();
        let begin_ns = thread_cpu_ns();
        turn(speed.turns(20_000_000));
        let used_ns = thread_cpu_ns() - begin_ns;
        assert!((10_000_000..80_000_000).contains(&used_ns), "20 ms of work took {used_ns} ns");
    }
}
