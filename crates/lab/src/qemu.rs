//! The program that makes virtual machines: which arguments make the machine we want, and how to
//! start it so that it never outlives us.
//!
//! Everything it reads it gets as open files (the initial file system and the jobs are in memory
//! only), so that a killed cpumax leaves no file behind either.

use crate::Error;
use crate::seat::Seat;
use rustix::fs::MemfdFlags;
use rustix::io::FdFlags;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = "qemu-system-x86_64";
const PACKAGE: &str = "qemu-system-x86";
/// CPUs that a machine has at most.
pub const MOST_CPUS: u16 = 255;
/// So many emulated CPUs boot as they always did.
const FEW_CPUS: u16 = 16;

/// How time passes in a machine, and with how many CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One CPU, and time is the number of instructions it has executed: what is measured does not
    /// depend on the host, and is the same to the byte in every run. Idle time costs nothing.
    Exact,
    /// This many CPUs. Where the host's CPUs can execute them (KVM), each is on a thread of the
    /// host and time is the host's; else they are emulated in turns, and the same holds as for
    /// [`Mode::Exact`].
    Parallel {
        /// 1 to 255.
        cpus: u16,
    },
}

/// Who executes a machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU, which works everywhere.
    Emulated,
    /// The host's CPUs. Only for [`Mode::Parallel`]: they do not count instructions.
    Kvm,
}

impl Mode {
    /// Number of CPUs.
    pub fn cpus(self) -> u16 {
        match self {
            Mode::Exact => 1,
            Mode::Parallel { cpus } => cpus,
        }
    }

    /// E.g. `exact` or `parallel4`, for names of files.
    pub(crate) fn name(self) -> String {
        match self {
            Mode::Exact => "exact".to_owned(),
            Mode::Parallel { cpus } => format!("parallel{cpus}"),
        }
    }
}

/// First line of what the program says of its version.
///
/// # Errors
/// [`Error::Missing`] when it is not installed.
pub fn version() -> Result<String, Error> {
    let output = Command::new(PROGRAM).arg("--version").output();
    let output = output.map_err(Error::start(PROGRAM, PACKAGE))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").to_owned())
}

/// The machine itself, without what it boots.
pub fn machine(mode: Mode, accelerator: Accelerator) -> Vec<String> {
    let memory = format!("{}", 256 + 8 * u32::from(mode.cpus()));
    let cpus = mode.cpus().to_string();
    let mut arguments = vec!["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"];
    arguments.extend(["-machine", "pc,usb=off", "-smp", &cpus, "-m", &memory]);
    // A write to it stops the machine, see `hypervisor.rs` of the guest.
    arguments.extend(["-device", "ib700", "-action", "watchdog=pause"]);
    match (mode, accelerator) {
        (Mode::Exact, _) => arguments.extend([
            "-accel",
            "tcg,thread=single",
            "-icount",
            "shift=1,sleep=off",
            "-rtc",
            "base=2026-01-01,clock=vm",
            "-seed",
            "42",
            "-cpu",
            "max,-rdrand,-rdseed",
        ]),
        (Mode::Parallel { .. }, Accelerator::Emulated) => arguments.extend([
            "-accel",
            "tcg,thread=single",
            "-rtc",
            "base=2026-01-01,clock=vm",
            "-seed",
            "42",
            "-cpu",
            // An interrupt right after `cmpxchg16b` brings QEMU 7.2 nonsense for flags (see
            // `TRAPPED` of `runner.rs`), and many CPUs have many interrupts: 6.12 with 64 died of
            // it as it booted. Without it kernels take a lock of their own.
            if mode.cpus() > FEW_CPUS {
                "max,-rdrand,-rdseed,-cx16"
            } else {
                "max,-rdrand,-rdseed"
            },
        ]),
        (Mode::Parallel { .. }, Accelerator::Kvm) => {
            arguments.extend(["-accel", "kvm", "-cpu", "host"]);
        }
    }
    arguments.into_iter().map(str::to_owned).collect()
}

/// What every kernel is told.
pub fn kernel_arguments(mode: Mode, accelerator: Accelerator) -> String {
    let mut text = "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr norandmaps".to_owned();
    // It uses up to a tenth of the one CPU on 6.17 to 7.1.
    text.push_str(" damon_stat.enabled=N");
    // Their workers come every two seconds and take turns from whoever is measured.
    text.push_str(" psi=0 cgroup_disable=memory");
    if accelerator == Accelerator::Emulated {
        // All clocks of the machine are one; the watchdog would measure them against each other.
        text.push_str(" tsc=reliable");
        if mode.cpus() > FEW_CPUS {
            // Else each CPU but the first spins for 80 ms until it knows how long a loop of
            // `udelay()` takes, one CPU after the other. The time-stamp counter, by which all of
            // them do that, goes by 1 GHz, and all kernels have 250 ticks a second; with more than
            // that, delays are longer than they need be.
            text.push_str(" lpj=4000000");
        }
    }
    text
}

/// A file in memory, to be passed to a machine.
///
/// # Errors
/// When there is no memory for it.
pub fn memory_file(name: &str, content: &[u8]) -> Result<OwnedFd, Error> {
    let describe = Error::file("keep in memory", name.as_ref());
    let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(std::io::Error::from);
    let written = made.and_then(|fd| {
        let mut file = std::fs::File::from(fd);
        file.write_all(content)?;
        Ok(OwnedFd::from(file))
    });
    written.map_err(describe)
}

/// The path by which a started machine opens a file that it was passed.
pub fn path_of(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Starts a machine that dies with this thread, and passes it the files, under their own numbers;
/// on that CPU alone if there is one.
///
/// # Errors
/// [`Error::Missing`] when the program is not installed.
pub fn start(
    arguments: &[String],
    environment: Option<&(&str, String)>,
    passed: Vec<OwnedFd>,
    seat: Option<&Seat>,
) -> Result<Child, Error> {
    let cpu = seat.map(Seat::cpu);
    let parent = getpid();
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.envs(environment.map(|(name, value)| (name, value)));
    // Ctrl-C is for us; we end the machine in our own way.
    command.process_group(0);
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(std::io::Error::other("cpumax has ended"));
        }
        // Where it is forbidden the machine works as well, only its results may differ by some
        // nanoseconds.
        let _ = cpu.map(Seat::sit);
        for file in &passed {
            rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only system calls; it touches no heap and no
    // lock.
    let command = unsafe { command.pre_exec(prepare) };
    command.spawn().map_err(Error::start(PROGRAM, PACKAGE))
}

/// Has the thread that serves a machine's timers, the first of the process, come to a CPU as soon
/// as it wants to, although those that are the machine's CPUs are busy there: by the wish for a
/// short slice (Linux 6.12 and later). Without it a timer is up to a slice of the host late, 3 ms,
/// where the last idle CPU begins to work.
pub(crate) fn serve_timers_promptly(pid: u32) {
    /// The shortest there is.
    const SLICE_NS: u64 = 100_000;
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        // SAFETY: the call takes numbers.
        sched_nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, pid) },
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the pointer is to a value that lives on this stack. Where it is refused, or means
    // nothing, timers are late.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attr, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_emulated_cpus_boot_otherwise_and_nothing_else_does() {
        let boots_otherwise = |mode, accelerator| {
            let told = kernel_arguments(mode, accelerator).contains(" lpj=");
            let lacks = machine(mode, accelerator).iter().any(|word| word.ends_with(",-cx16"));
            assert_eq!(told, lacks);
            told
        };
        let parallel = |cpus| Mode::Parallel { cpus };
        assert!(boots_otherwise(parallel(FEW_CPUS + 1), Accelerator::Emulated));
        for mode in [Mode::Exact, parallel(FEW_CPUS)] {
            assert!(!boots_otherwise(mode, Accelerator::Emulated));
        }
        let told = kernel_arguments(parallel(64), Accelerator::Kvm);
        assert!(!told.contains("lpj"), "{told}");
    }

    /// What the kernel says of a process: its nice value, and the slice it has, ns.
    fn nice_and_slice(pid: u32) -> (i32, u64) {
        // SAFETY: all zeroes is a value of it, and there is room for the answer.
        unsafe {
            let mut attr: libc::sched_attr = std::mem::zeroed();
            let size = size_of::<libc::sched_attr>();
            let got = libc::syscall(libc::SYS_sched_getattr, pid, &raw mut attr, size, 0);
            assert_eq!(got, 0);
            (attr.sched_nice, attr.sched_runtime)
        }
    }

    #[test]
    fn who_serves_timers_gets_a_short_slice_and_stays_as_nice_as_it_was() {
        let mut child = Command::new("nice").args(["-n", "7", "sleep", "60"]).spawn().unwrap();
        let nice = || nice_and_slice(child.id()).0;
        while nice() == nice_and_slice(0).0 {
            std::thread::yield_now();
        }
        let (nice, own_ns) = nice_and_slice(child.id());
        serve_timers_promptly(child.id());
        let (still, slice_ns) = nice_and_slice(child.id());
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(still, nice);
        // Before 6.12 there is nothing to wish for, and no slice is told.
        assert!(slice_ns == 100_000 || own_ns == 0, "{own_ns} {slice_ns}");
    }
}
