//! CPU work of a known length. It is a loop that is one chain of dependent operations, so that its
//! speed hardly depends on what runs on the core's other hyper-thread.
//!
//! The length is in CPU time, not in turns: the clock of a shared machine drifts by a tenth within
//! minutes, and what is compared is scheduling, not the speed of the processor. The thread's CPU
//! clock is read some five times for each piece of work, each time to aim at what is left of it.

use crate::clock::thread_cpu_ns;
use std::hint::black_box;

/// A first guess for an unknown processor; slow, so as not to overshoot.
const TURNS_PER_US: u64 = 100;
/// What is left is done without looking at the clock again.
const CLOSE_NS: u64 = 5_000;

/// Uses that much CPU time of the calling thread, in user mode but for reading the clock. Nothing
/// waits for it: it does not end early when the thread is stopped for a while.
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
        // Not all of it, in case the processor has become slower.
        let now = turns(left_ns / 10 * 9).max(100);
        turn(now);
        turns_done += now;
        used_ns = thread_cpu_ns() - begin_ns;
    }
}

/// Does that many turns of the loop.
#[inline(never)]
fn turn(turns: u64) {
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
