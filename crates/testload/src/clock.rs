//! Clocks: monotonic time for measurements and schedules, and CPU time for calibration.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC`, ns; equal for all processes of a machine.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

pub fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

pub fn process_cpu_ns() -> u64 {
    read_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Sleeps until `CLOCK_MONOTONIC` reaches `at_ns`; returns at once if that has passed.
pub fn sleep_until_ns(at_ns: u64) {
    if at_ns <= monotonic_ns() {
        return;
    }
    let at = TimeSpec::new((at_ns / NS_PER_S) as i64, (at_ns % NS_PER_S) as i64);
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at)
        == Err(Errno::EINTR)
    {}
}

/// Sets the calling thread's timer slack to 1 ns, instead of 50 us.
pub fn precise_timers() {
    // Refused only by kernels without timer slack.
    let _ = nix::sys::prctl::set_timerslack(1);
}

fn read_ns(clock: ClockId) -> u64 {
    // These clocks exist on every Linux; a zero would show as an absurd latency.
    clock_gettime(clock).map_or(0, |t| t.tv_sec() as u64 * NS_PER_S + t.tv_nsec() as u64)
}
