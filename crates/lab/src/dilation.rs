//! Machines whose clock goes slower than the host's: to them, everything the host does is as many times faster. An emulated
//! CPU works like one of iron then, what an emulator does once (to translate code) takes no time worth mentioning, and a host
//! with two CPUs can be a machine of eight, as each of these waits for a turn for some tens of microseconds only. It is paid
//! in time: a second of such a machine takes as many of the host. (Time dilation: Gupta et al., "To Infinity and Beyond:
//! Time-Warped Network Emulation", NSDI 2006.)
//!
//! QEMU cannot do that by itself. A small library that is loaded before its own gives it the clock (`preload/clock.c`).

use crate::Error;
use crate::qemu;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Made by `build.rs`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.so"));
/// Of the file in memory that it is loaded from, as its process tells.
const NAME: &str = "cpumax-clock";
/// Where the library finds its page, and how many times slower it is to be.
const VARIABLE: &str = "CPUMAX_CLOCK";
const NEVER_NS: i64 = i64::MAX;

/// The clock of one machine. It goes as the host's until it is told to slow down.
#[derive(Debug)]
pub struct Clock {
    /// The first eight bytes say from when on it is slower, ns of the host's monotonic clock.
    page: File,
}

/// What a machine needs to have that clock: files to pass to it, and its environment.
pub struct Parts {
    /// Under their own numbers.
    pub files: [OwnedFd; 2],
    /// Names and values.
    pub environment: [(&'static str, String); 2],
}

impl Clock {
    /// One that will be so many times slower.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(times: u16) -> Result<(Clock, Parts), Error> {
        let library = qemu::memory_file(NAME, LIBRARY)?;
        let page = qemu::memory_file("page of the clock", &NEVER_NS.to_ne_bytes())?;
        let ours = page.as_fd().try_clone_to_owned();
        let ours = ours.map_err(Error::file("keep", "page of the clock".as_ref()))?;
        let environment = [
            ("LD_PRELOAD", qemu::path_of(&library)),
            (VARIABLE, format!("{}:{times}", page.as_raw_fd())),
        ];
        let clock = Clock { page: ours.into() };
        Ok((clock, Parts { files: [library, page], environment }))
    }

    /// Slows it down, so long from now.
    ///
    /// # Errors
    /// As files in memory have them: hardly any.
    pub fn slow_down_in(&self, after: Duration) -> Result<(), Error> {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        let from_ns = now_ns.saturating_add(i64::try_from(after.as_nanos()).unwrap_or(NEVER_NS));
        let written = self.page.write_all_at(&from_ns.to_ne_bytes(), 0);
        written.map_err(Error::file("write", "page of the clock".as_ref()))
    }
}

/// Whether that process has the library.
pub fn is_loaded_in(process: u32) -> io::Result<bool> {
    Ok(fs::read_to_string(format!("/proc/{process}/maps"))?.contains(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::ptr;

    /// Set where this program is the process whose clock is looked at: how many times slower it should be.
    const LOOKED_AT: &str = "CPUMAX_TEST_CLOCK";
    const WAIT_NS: u64 = 20_000_000;

    /// As a program is told it that asks its C library, as QEMU does.
    fn own_ns() -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: there is room for the answer.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) }, 0);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// By the kernel's own code in this process, which nobody asks but rustix.
    fn hosts_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn counter() -> u64 {
        // SAFETY: reading it has no effects.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    fn wait() {
        let time = libc::timespec { tv_sec: 0, tv_nsec: WAIT_NS as i64 };
        // SAFETY: there are no files, and the time lives on this stack.
        assert_eq!(unsafe { libc::ppoll(ptr::null_mut(), 0, &raw const time, ptr::null()) }, 0);
    }

    /// Runs only where one of the tests below starts it.
    #[test]
    fn looked_at() {
        let Ok(times) = std::env::var(LOOKED_AT) else { return };
        let times: u64 = times.parse().unwrap();
        let begin = (own_ns(), counter(), hosts_ns());
        wait();
        let end = (hosts_ns(), counter(), own_ns());
        let (own, counted, hosts) = (end.2 - begin.0, end.1 - begin.1, end.0 - begin.2);
        assert!(own >= WAIT_NS && counted <= own, "{own} {counted}");
        // The two were read a moment apart.
        assert!(hosts >= WAIT_NS * times - 1000 && hosts <= own * times + times, "{own} {hosts}");
        // As long as it is as fast as the host's it is the same.
        assert!(times > 1 || (begin.0 <= begin.2 && begin.2 - begin.0 < 1_000_000_000));
        // What a division leaves over is less than a nanosecond.
        assert!(counted >= WAIT_NS.saturating_sub(1000), "{counted}");
    }

    fn look_at(slower: u16, expected: u16) {
        let (clock, parts) = Clock::new(slower).unwrap();
        if expected > 1 {
            clock.slow_down_in(Duration::ZERO).unwrap();
        }
        for file in &parts.files {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "dilation::tests::looked_at"]).stdin(Stdio::null());
        command.envs(parts.environment).env(LOOKED_AT, expected.to_string());
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    }

    #[test]
    fn a_clock_is_as_many_times_slower_as_it_is_told_to_be() {
        look_at(8, 8);
        look_at(3, 3);
    }

    #[test]
    fn a_clock_that_was_not_told_goes_as_the_hosts() {
        look_at(8, 1);
    }

    #[test]
    fn a_process_without_the_library_is_known() {
        assert!(!is_loaded_in(std::process::id()).unwrap());
        assert!(is_loaded_in(u32::MAX).is_err());
    }
}
