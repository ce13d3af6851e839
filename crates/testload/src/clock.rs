//! The two clocks a load needs: monotonic time to measure and to keep a schedule, and the calling
//! thread's CPU time to calibrate with.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

const NS_PER_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC`, ns; the same for all processes of a machine.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the whole process, ns.
pub fn process_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Sleeps until `CLOCK_MONOTONIC` shows `at_ns`; not at all when it is past.
pub fn sleep_until_ns(at_ns: u64) {
    if at_ns <= monotonic_ns() {
        return;
    }
    let at = TimeSpec::new((at_ns / NS_PER_S) as i64, (at_ns % NS_PER_S) as i64);
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at)
        == Err(Errno::EINTR)
    {}
}

/// Wakes the calling thread at the time it asked for, not up to 50 us later.
pub fn precise_timers() {
    // Refused only where the kernel has no timer slack: then there is none to remove.
    let _ = nix::sys::prctl::set_timerslack(1);
}

fn read_ns(clock: ClockId) -> u64 {
    // These clocks exist on every Linux; zero would show as an absurd latency.
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * NS_PER_S + t.tv_nsec() as u64)
}
