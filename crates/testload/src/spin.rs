//! CPU work of a known length: a loop of dependent operations, whose speed hardly depends on the
//! other hyper-thread of the core.
//!
//! The length is CPU time, not a number of turns: the clock of a shared machine drifts by a tenth
//! within minutes, and tests compare scheduling, not processor speed. Each piece of work reads the
//! thread's CPU clock about five times, to aim at the rest of it.

use crate::clock::thread_cpu_ns;
use std::hint::black_box;

/// A first estimate for an unknown processor; low, so as not to overshoot.
const TURNS_PER_US: u64 = 100;
/// A rest below this is done without reading the clock again.
const CLOSE_NS: u64 = 5_000;

/// Uses this much CPU time of the calling thread, in user mode except for reading the clock. A
/// stopped thread continues afterwards with the rest.
pub fn spin_ns(cpu_ns: u64) {
    let begin_ns = thread_cpu_ns();
    let (mut turns_done, mut used_ns) = (0_u64, 0_u64);
    while used_ns < cpu_ns {
        let left_ns = cpu_ns - used_ns;
        let turns = |ns: u64| match used_ns {
            0 => ns * TURNS_PER_US / 1_000,
            _ => (u128::from(ns) * u128::from(turns_done) / u128::from(used_ns)) as u64,
        };
        if left_ns <= CLOSE_NS && used_ns > 0 {
            turn(turns(left_ns));
            return;
        }
        // Less than all of it, in case the processor has become slower.
        let now = turns(left_ns / 10 * 9).max(100);
        turn(now);
        turns_done += now;
        used_ns = thread_cpu_ns() - begin_ns;
    }
}

#[inline(never)]
fn turn(turns: u64) {
    let mut x = black_box(1_u64);
    for _ in 0..turns {
        // Constants of a well-known generator; any odd factor works.
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
    fn work_takes_the_cpu_time_asked_for() {
        for cpu_ns in [0, 20_000, 1_000_000, 20_000_000] {
            let begin_ns = thread_cpu_ns();
            spin_ns(cpu_ns);
            let used_ns = thread_cpu_ns() - begin_ns;
            // A busy machine adds interrupts, which count as the thread's time.
            let range = cpu_ns * 9 / 10..cpu_ns * 2 + 1_000_000;
            assert!(range.contains(&used_ns), "{cpu_ns} ns of work took {used_ns} ns");
        }
    }
}
