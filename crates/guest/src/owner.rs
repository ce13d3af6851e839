//! A lock that the timer thread of a real-time kernel takes: that of the owner of `/dev/rtc0`, an
//! `rwlock_t`.
//!
//! Periodic interrupts of this clock are a timer. On `PREEMPT_RT` it is work of the CPU's timer
//! thread, as period timers are. The thread takes the lock to find the process to signal (kernel:
//! `rtc_pie_update_irq()`, `kill_fasync()`, `send_sigio()`). fcntl(2) takes the same lock to read
//! or set the owner. The lock is held for part of a microsecond, which cannot be chosen. Only in a
//! virtual machine: a kernel up to 6.17 can hang with it.

use crate::kernel::Facts;
use crate::sys;
use cpumax_workload::{LockIx, LockKind, LockMode, Op, Span, Workload};
use std::ffi::CStr;

const RTC_PATH: &CStr = c"/dev/rtc0";
/// Most kernel time of a `syscall` that fcntl(2) stands for, ns.
const MAX_NS: u64 = 2_000;
/// Most interrupts a second of the clock.
const MAX_HZ: u64 = 8192;

const RTC_PIE_ON: u64 = 0x7005;
const RTC_PIE_OFF: u64 = 0x7006;
const RTC_IRQP_SET: u64 = 0x4008_700c;

/// Whether a lock is made of the owner lock of `/dev/rtc0`: an rwlock, where timers run in a thread
/// (`PREEMPT_RT` in a virtual machine).
pub fn is_owner_lock(workload: &Workload, lock: LockIx, facts: Facts) -> bool {
    facts.timer_thread && workload.locks[lock as usize].kind == LockKind::Rwlock
}

/// Index of the first `ExitKernel` from `at` on, which ends a call; else the program's length.
pub fn call_end(program: &[Op], at: usize) -> usize {
    let rest = program[at..].iter().position(|op| *op == Op::ExitKernel);
    rest.map_or(program.len(), |end| at + end)
}

/// The lock, its mode and the kernel time (ns) of a `syscall`, whose steps are `ops`, that takes
/// and releases one lock once and has fixed kernel time; `None` if it does anything else or lasts
/// too long.
pub fn single_lock_call(ops: &[Op]) -> Option<(LockIx, LockMode, u64)> {
    let (mut taken, mut is_held, mut sum_ns) = (None, false, 0u64);
    for op in ops {
        match *op {
            Op::Kernel(Span::Fixed(ns)) => sum_ns = sum_ns.saturating_add(ns),
            Op::Lock { lock, mode } if taken.is_none() => {
                (taken, is_held) = (Some((lock, mode)), true);
            }
            Op::Unlock { lock } if is_held && taken.is_some_and(|(taken, _)| taken == lock) => {
                is_held = false;
            }
            _ => return None,
        }
    }
    let (lock, mode) = taken.filter(|_| !is_held && sum_ns <= MAX_NS)?;
    Some((lock, mode, sum_ns))
}

/// Checks that tasks take the lock only in calls that fcntl(2) can stand for, and that it is the
/// first rwlock.
///
/// # Errors
/// The use that is impossible, and what would be accepted.
pub fn check_use(workload: &Workload, lock: LockIx) -> Result<(), String> {
    let name = &workload.locks[lock as usize].name;
    if (0..lock).any(|other| workload.locks[other as usize].kind == LockKind::Rwlock) {
        return Err(format!("lock {name:?}: the timer thread takes one rwlock only, the first"));
    }
    for task in &workload.tasks {
        let (mut at, mut checked_to) = (0, 0);
        while at < task.program.len() {
            match task.program[at] {
                Op::EnterKernel => {
                    let end = call_end(&task.program, at);
                    if single_lock_call(&task.program[at + 1..end]).is_some() {
                        checked_to = end;
                    }
                }
                Op::Lock { lock: taken, .. } if taken == lock && at >= checked_to => {
                    return Err(format!(
                        "task {:?}: an rwlock is taken by fcntl() only: a `syscall` that takes it \
                         once and has at most {MAX_NS} ns of kernel time",
                        task.name
                    ));
                }
                _ => {}
            }
            at += 1;
        }
    }
    Ok(())
}

/// Interrupts a second of `/dev/rtc0` that stand for the scenario's softirq section; `None`: it has
/// none.
///
/// # Errors
/// The clock cannot do what the section asks for.
pub fn interrupts_hz(workload: &Workload, facts: Facts) -> Result<Option<u32>, String> {
    let [section, more @ ..] = &workload.machine.softirqs[..] else { return Ok(None) };
    if !facts.timer_thread {
        return Err(
            "a kernel's timer thread takes a lock only on PREEMPT_RT, in a virtual machine \
             (6.12-rt, 7.3-rt)"
                .to_owned(),
        );
    }
    let hz = 1_000_000_000 / section.every_ns.max(1);
    let is_whole = hz * section.every_ns == 1_000_000_000;
    let is_owner_lock =
        is_owner_lock(workload, section.lock, facts) && section.mode == LockMode::Read;
    if !more.is_empty()
        || workload.machine.cpus > 1
        || !is_owner_lock
        || section.hold_ns > MAX_NS
        || !is_whole
        || !(1..=MAX_HZ).contains(&hz)
    {
        return Err(format!(
            "a softirq section takes one rwlock for reading, on one CPU, for at most {MAX_NS} ns, \
             a whole number of times a second, at most {MAX_HZ}"
        ));
    }
    Ok(Some(hz as u32))
}

/// The open clock `/dev/rtc0`.
#[derive(Debug)]
pub struct Clock(i32);

impl Clock {
    /// Opens `/dev/rtc0`, has its interrupts signal this process (which makes it the owner), and
    /// ignores that signal, SIGIO.
    ///
    /// # Errors
    /// The device does not exist or is in use.
    pub fn open() -> Result<Clock, String> {
        let told = |what: &str| format!("/dev/rtc0: {what}: {}", std::io::Error::last_os_error());
        // SAFETY: the name is a C string; the other calls take numbers.
        unsafe {
            let fd = libc::open(RTC_PATH.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            if fd < 0 {
                return Err(told("cannot be opened"));
            }
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            if libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) < 0
                || libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC) < 0
            {
                return Err(told("no process can be told of interrupts"));
            }
            Ok(Clock(fd))
        }
    }

    /// Starts periodic interrupts of the clock, `hz` times a second.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&self, hz: u32) -> Result<(), String> {
        let set = sys::ioctl(self.0, RTC_IRQP_SET, hz as usize);
        let on = sys::ioctl(self.0, RTC_PIE_ON, 0);
        if set < 0 || on < 0 {
            return Err(format!("/dev/rtc0 does not interrupt {hz} times a second"));
        }
        Ok(())
    }

    /// Takes and releases the owner lock in one fcntl(2): reads the owner, or sets it to `owner`,
    /// which it already is. Returns the kernel's result.
    pub fn take_lock_once(&self, mode: LockMode, owner: usize) -> isize {
        match mode {
            LockMode::Read => sys::fcntl(self.0, libc::F_GETOWN, 0),
            LockMode::Write => sys::fcntl(self.0, libc::F_SETOWN, owner),
        }
    }

    /// Stops the clock's interrupts and closes it; waits for that. The kernel spins until an
    /// interrupt in progress is over, so a child of the fair class asks, which does not keep the
    /// timer thread from running.
    pub fn stop(&self) {
        // SAFETY: this process has no other threads; the child makes system calls only.
        match unsafe { libc::fork() } {
            0 => {
                sys::set_sched(0, sys::SchedAttr::fair(libc::SCHED_OTHER, 0, 0));
                sys::ioctl(self.0, RTC_PIE_OFF, 0);
                sys::exit(0)
            }
            child => {
                let mut status = 0;
                // SAFETY: the status has room.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
            }
        }
        // SAFETY: the descriptor is ours and not used again.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, RealLock, make_plan};
    use cpumax_workload::parse;

    fn of(timer_thread: bool, section: &str, call: &str) -> Result<Plan, String> {
        let text = format!(
            "duration = \"1s\"\n[machine]\npreempt = \"rt\"\n[[machine.softirq]]\ncpu = 0\n\
             {section}\n[[lock]]\nname = \"l\"\n\
             kind = \"rwlock\"\n[[task]]\nname = \"t\"\n\
             program = [{{ forever = [{call}, {{ user = \"1ms\" }}] }}]\n"
        );
        let workload = parse(&text, "plan.toml").unwrap_or_else(|error| panic!("{error}"));
        let facts = Facts {
            stops_anywhere: true,
            timer_requests: true,
            cpus: 1,
            timer_thread,
            ..Facts::default()
        };
        make_plan(&workload, facts)
    }

    const SECTION: &str = "every = \"20ms\"\nlock = \"l\"\nmode = \"read\"\nhold = \"1us\"";
    const CALL: &str = "{ syscall = [{ kernel = \"400ns\" }, { lock = \"l\", mode = \"read\" }, \
                        { kernel = \"300ns\" }, { unlock = \"l\" }] }";

    #[test]
    fn a_call_that_takes_it_once_is_an_fcntl() {
        let plan = of(true, SECTION, CALL).unwrap();
        assert_eq!((plan.interrupts_hz, &plan.locks[..]), (Some(50), &[RealLock::Owner][..]));
        assert!(!plan.lists);
    }

    #[test]
    fn what_the_clock_cannot_do_is_refused() {
        assert!(of(false, SECTION, CALL).unwrap_err().contains("PREEMPT_RT"));
        for section in [
            SECTION.replace("read", "write"),
            SECTION.replace("20ms", "30ms"),
            SECTION.replace("20ms", "100us"),
            SECTION.replace("1us", "5us"),
        ] {
            assert!(of(true, &section, CALL).unwrap_err().contains("whole number"), "{section}");
        }
        for call in [
            CALL.replace("300ns", "4ms"),
            CALL.replace(" }] }", " }, { sleep = \"1ms\" }] }"),
            "{ lock = \"l\", mode = \"read\" }, { user = \"1us\" }, { unlock = \"l\" }".to_owned(),
        ] {
            assert!(of(true, SECTION, &call).unwrap_err().contains("fcntl"), "{call}");
        }
    }
}
