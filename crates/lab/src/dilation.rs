//! Machines whose clock goes slower than the host's: to them, everything the host does is as many times faster. An
//! emulated CPU works like one of iron then, what an emulator does once (to translate code) takes no time worth
//! mentioning, and a host with two CPUs can be a machine of eight, as each of these waits for a turn for a fraction of a
//! millisecond only. It is paid in time: a second of such a machine takes as many of the host. (Time dilation: Gupta et
//! al., "To Infinity and Beyond: Time-Warped Network Emulation", NSDI 2006.)
//!
//! QEMU cannot do that by itself. A small library that is loaded before its own gives it the clock (`preload/clock.c`).

use crate::Error;
use crate::qemu;
use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How many times slower the clock of a machine goes than the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dilation(u16);

impl Dilation {
    /// As fast as the host's.
    pub const NONE: Dilation = Dilation(1);
    /// The most there is.
    pub const MOST: Dilation = Dilation(1000);

    /// So many times slower, 1 to 1000.
    pub fn new(times: u16) -> Option<Dilation> {
        (Dilation::NONE.0..=Dilation::MOST.0).contains(&times).then_some(Dilation(times))
    }

    /// What is usual for a machine of so many CPUs: enough that neither an emulator's slowness nor a wait for a turn at a
    /// CPU of the host shows in the numbers that are compared.
    pub fn usual(cpus: u16) -> Dilation {
        const FOR_EACH_TURN: u16 = 8;
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = u16::try_from(usize::from(cpus).div_ceil(here)).unwrap_or(u16::MAX);
        Dilation(FOR_EACH_TURN.saturating_mul(turns)).min(Dilation::MOST)
    }

    /// The number.
    pub fn times(self) -> u16 {
        self.0
    }
}

/// Made by `build.rs`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.so"));
/// What it is made of: states that are kept depend on it, and not on who compiled it.
pub(crate) const SOURCE: &str = include_str!("../preload/clock.c");
/// Where the library finds its page, and what else it is told.
const VARIABLE: &str = "CPUMAX_CLOCK";
/// Where libraries stand that are loaded before a program's own.
const PRELOADED: &str = "LD_PRELOAD";
const NEVER_NS: i64 = i64::MAX;
/// A change of speed is told before it comes: whoever has read the clock already must not read less the next time.
const TOLD_BEFORE: Duration = Duration::from_millis(10);

/// The clock of one machine. It goes as the host's until it is told to slow down.
#[derive(Debug)]
pub struct Clock {
    /// Two numbers of eight bytes: from when on it is slower, ns of the host's monotonic clock, and whether it is used.
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
    pub fn new(dilation: Dilation) -> Result<(Clock, Parts), Error> {
        let library = qemu::memory_file("cpumax-clock", LIBRARY)?;
        let begin = [NEVER_NS.to_ne_bytes(), 0_i64.to_ne_bytes()].concat();
        let page = qemu::memory_file("page of the clock", &begin)?;
        let ours = page.as_fd().try_clone_to_owned();
        let ours = ours.map_err(Error::file("keep", "page of the clock".as_ref()))?;
        let mut preloaded = qemu::path_of(&library);
        if let Ok(others) = env::var(PRELOADED) {
            preloaded = format!("{preloaded}:{others}");
        }
        let told = format!("{}:{}", page.as_raw_fd(), dilation.times());
        let environment = [(PRELOADED, preloaded), (VARIABLE, told)];
        Ok((Clock { page: ours.into() }, Parts { files: [library, page], environment }))
    }

    /// Slows it down, so long from now, or a little later.
    ///
    /// # Errors
    /// As files in memory have them: hardly any.
    pub fn slow_down_in(&self, after: Duration) -> Result<(), Error> {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        let after_ns = i64::try_from(after.max(TOLD_BEFORE).as_nanos()).unwrap_or(NEVER_NS);
        let from_ns = now_ns.saturating_add(after_ns);
        let written = self.page.write_all_at(&from_ns.to_ne_bytes(), 0);
        written.map_err(Error::file("write", "page of the clock".as_ref()))
    }

    /// Whether the machine, which has begun, has taken it into use.
    pub fn is_used(&self) -> bool {
        let mut used = [0; 8];
        self.page.read_exact_at(&mut used, 8).is_ok() && i64::from_ne_bytes(used) == 1
    }
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

    /// The clock of this program, run as `program` names it, and whether it was used.
    fn look_at(program: &mut Command, slower: u16, expected: u16) -> bool {
        let (clock, parts) = Clock::new(Dilation::new(slower).unwrap()).unwrap();
        if expected > 1 {
            clock.slow_down_in(Duration::ZERO).unwrap();
            std::thread::sleep(TOLD_BEFORE);
        }
        for file in &parts.files {
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty()).unwrap();
        }
        program.arg(env::current_exe().unwrap());
        program.args(["--exact", "dilation::tests::looked_at", "--test-threads=2"]);
        program.stdin(Stdio::null()).envs(parts.environment).env(LOOKED_AT, expected.to_string());
        let output = program.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}{output:?}");
        clock.is_used()
    }

    #[test]
    fn a_clock_is_as_many_times_slower_as_it_is_told_to_be() {
        for times in [8, 3] {
            assert!(look_at(&mut Command::new("env"), times, times));
        }
    }

    #[test]
    fn a_clock_that_was_not_told_goes_as_the_hosts() {
        assert!(look_at(&mut Command::new("env"), 8, 1));
    }

    #[test]
    fn a_program_that_starts_another_one_hands_it_on() {
        let mut shell = Command::new("sh");
        assert!(look_at(shell.args(["-c", "exec \"$@\"", "sh"]), 8, 8));
    }

    #[test]
    fn a_clock_that_is_not_taken_is_known() {
        let mut without = Command::new("env");
        assert!(!look_at(without.args(["-u", PRELOADED, "-u", LOOKED_AT]), 8, 1));
    }

    #[test]
    fn a_dilation_is_one_that_there_is() {
        let times = |times| Dilation::new(times).map(Dilation::times);
        assert_eq!([0, 1, 1000, 1001].map(times), [None, Some(1), Some(1000), None]);
        assert_eq!(Dilation::usual(1).times(), 8);
        assert!(Dilation::usual(u16::MAX) <= Dilation::MOST);
    }
}
