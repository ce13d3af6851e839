//! QEMU: its arguments, and a start that ties it to this process.
//!
//! QEMU gets everything as open files (initramfs and jobs exist in memory only), so a killed cpumax
//! leaves no files behind.

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
/// Most CPUs of a machine.
pub const MAX_CPUS: u16 = 255;
/// Up to so many emulated CPUs boot without special arguments.
const FEW_CPUS: u16 = 16;

/// How time passes in a machine, and with how many CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One CPU whose time is the number of instructions that it has executed. Results do not depend
    /// on the host and are equal to the byte in every run. Idle time takes no time of the host.
    Exact,
    /// Several CPUs. With KVM each is a thread of the host, and time is the host's. Without KVM
    /// they are emulated in turns, and results are as repeatable as in [`Mode::Exact`].
    Parallel {
        /// Number of CPUs, 1 to 255.
        cpus: u16,
    },
}

/// Executes a machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's emulator, which works on every host.
    Emulated,
    /// The host's CPUs. Only for [`Mode::Parallel`], as they do not count instructions.
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

    /// `exact` or, with 4 CPUs, `parallel4`: for file names.
    pub(crate) fn name(self) -> String {
        match self {
            Mode::Exact => "exact".to_owned(),
            Mode::Parallel { cpus } => format!("parallel{cpus}"),
        }
    }
}

/// First line of the output of `qemu --version`.
///
/// # Errors
/// [`Error::Missing`] if QEMU is not installed.
pub fn version() -> Result<String, Error> {
    let output = Command::new(PROGRAM).arg("--version").output();
    let output = output.map_err(Error::start(PROGRAM, PACKAGE))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").to_owned())
}

/// QEMU's arguments for the machine itself, without kernel and files.
pub fn machine_arguments(mode: Mode, accelerator: Accelerator) -> Vec<String> {
    let memory = format!("{}", 256 + 8 * u32::from(mode.cpus()));
    let cpus = mode.cpus().to_string();
    let mut arguments = vec!["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"];
    arguments.extend(["-machine", "pc,usb=off", "-smp", &cpus, "-m", &memory]);
    // A write to this device pauses the machine, see `hypervisor.rs` of the guest.
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
            // An interrupt right after `cmpxchg16b` corrupts the flags in QEMU 7.2 (see `TRAPPED`
            // in `runner.rs`). Many CPUs have many interrupts: 6.12 with 64 CPUs crashed in its
            // boot. Without the instruction kernels use a lock.
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

/// Arguments on every kernel command line.
pub fn kernel_arguments(mode: Mode, accelerator: Accelerator) -> String {
    let mut text = "console=ttyS0 loglevel=4 panic=-1 oops=panic nokaslr norandmaps".to_owned();
    // DAMON uses up to a tenth of a single CPU on 6.17 to 7.1.
    text.push_str(" damon_stat.enabled=N");
    // Their workers run every two seconds and take CPU time from the tasks.
    text.push_str(" psi=0 cgroup_disable=memory");
    if accelerator == Accelerator::Emulated {
        // All clocks of the machine are one; the clocksource watchdog would only cost time.
        text.push_str(" tsc=reliable");
        if mode.cpus() > FEW_CPUS {
            // Otherwise each further CPU spins for 80 ms, one after the other, to calibrate
            // `udelay()`. The time-stamp counter, which it uses, has 1 GHz, and these kernels have
            // 250 ticks a second. With more ticks delays are longer than necessary.
            text.push_str(" lpj=4000000");
        }
    }
    text
}

/// Puts a file into memory, to be passed to QEMU.
///
/// # Errors
/// The memory cannot be had.
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

/// The path by which QEMU opens a file that it was passed.
pub fn path_of(file: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Starts QEMU, which dies with this thread, and passes it open files under their own numbers. With
/// a seat it runs on that CPU only.
///
/// # Errors
/// [`Error::Missing`] if QEMU is not installed.
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
    // Ctrl-C is for us, and we end QEMU.
    command.process_group(0);
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            return Err(std::io::Error::other("cpumax has ended"));
        }
        // Without this right the machine works too, but results may differ by some nanoseconds.
        let _ = cpu.map(Seat::pin_caller);
        for file in &passed {
            rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes only system calls; it uses neither the heap
    // nor a lock.
    let command = unsafe { command.pre_exec(prepare) };
    command.spawn().map_err(Error::start(PROGRAM, PACKAGE))
}

/// Asks for a short slice (Linux 6.12 and later) for QEMU's main thread, the first of process
/// `pid`, which serves timers. Otherwise a timer can be late by a slice of the host, 3 ms, when the
/// last idle CPU gets work while the others execute the machine.
pub(crate) fn shorten_timer_thread_slice(pid: u32) {
    /// The kernel's shortest slice.
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
    // SAFETY: the pointer is to a value on this stack. Where the call is refused or means nothing,
    // timers are late.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attr, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_emulated_cpus_boot_otherwise_and_nothing_else_does() {
        let boots_otherwise = |mode, accelerator| {
            let told = kernel_arguments(mode, accelerator).contains(" lpj=");
            let lacks =
                machine_arguments(mode, accelerator).iter().any(|word| word.ends_with(",-cx16"));
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

    /// Nice value of a process, and its slice, ns.
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
    fn the_timer_thread_gets_a_short_slice_and_keeps_its_nice_value() {
        let mut child = Command::new("nice").args(["-n", "7", "sleep", "60"]).spawn().unwrap();
        let nice = || nice_and_slice(child.id()).0;
        while nice() == nice_and_slice(0).0 {
            std::thread::yield_now();
        }
        let (nice, own_ns) = nice_and_slice(child.id());
        shorten_timer_thread_slice(child.id());
        let (still, slice_ns) = nice_and_slice(child.id());
        child.kill().and_then(|()| child.wait()).unwrap();
        assert_eq!(still, nice);
        // Kernels before 6.12 take no slice and show none.
        assert!(slice_ns == 100_000 || own_ns == 0, "{own_ns} {slice_ns}");
    }
}
