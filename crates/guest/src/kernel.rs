//! Properties of the running kernel, and those of its settings that scenarios change.

use crate::sys::{self, AIO_PREAD, Iocb};
use cpumax_outcome::Preemption;
use cpumax_workload::{MachineSpec, Preempt};
use std::fs;
use std::path::Path;

const SLICE_US: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";
const DEBUG: &str = "/sys/kernel/debug/sched";

/// First release that stops tasks only at their return to user mode.
const RETURN_TO_USER: (u32, u32) = (6, 18);

/// Kernel release, as `uname -r` prints it.
pub fn release() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// Major and minor version of a release; 0 for a part that is no number.
pub fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Ticks a second (`CONFIG_HZ`), from the resolution of the coarse clock.
pub fn hz() -> u32 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    let tick_ns = resolution.tv_nsec.max(1);
    ((1_000_000_000 + tick_ns / 2) / tick_ns) as u32
}

/// Number of CPUs online.
pub fn cpus() -> u32 {
    // SAFETY: the call takes a number.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(n).unwrap_or(1).max(1)
}

/// Name of the clock source in use; empty where sysfs does not show it.
pub fn clocksource() -> String {
    read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// The kernel's preemption model, by `/proc/version` for real-time kernels and debugfs for others;
/// `None` where debugfs does not show it.
pub fn preemption() -> Option<Preemption> {
    let text = read(&format!("{DEBUG}/preempt"));
    let chosen = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let real_time = read("/proc/version").contains("PREEMPT_RT");
    match chosen.map(|(name, _)| name) {
        Some("lazy" | "laziest") if real_time => Some(Preemption::RtLazy),
        _ if real_time => Some(Preemption::Rt),
        Some("none") => Some(Preemption::None),
        Some("voluntary") => Some(Preemption::Voluntary),
        Some("lazy") => Some(Preemption::Lazy),
        Some("full") => Some(Preemption::Full),
        _ => None,
    }
}

/// Whether high-resolution ticks end slices now; `None` where debugfs does not show it.
pub fn hrtick() -> Option<bool> {
    let features = read(&format!("{DEBUG}/features"));
    let mut words = features.split_whitespace();
    words.find_map(|word| match word {
        "HRTICK" => Some(true),
        "NO_HRTICK" => Some(false),
        _ => None,
    })
}

/// The EEVDF base slice now, ns; `None` where the kernel has none or debugfs does not show it.
pub fn base_slice_ns() -> Option<u64> {
    read(&format!("{DEBUG}/base_slice_ns")).parse().ok()
}

/// Whether this kernel throttles a task anywhere, even inside a system call (to 6.17); else a task
/// parks at its return to user mode.
pub fn stops_anywhere() -> bool {
    version(&release()) < RETURN_TO_USER
}

/// Facts of the kernel and the machine that a plan depends on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// The kernel throttles a task wherever it is (to 6.17).
    pub stops_anywhere: bool,
    /// A list of requests can wait for a timer (from 6.10).
    pub timer_requests: bool,
    /// CPUs online.
    pub cpus: u32,
    /// Timers run in a thread (`PREEMPT_RT`, in a virtual machine).
    pub timer_thread: bool,
    /// The workload's root is the root of the cgroup hierarchy, not a group made by the guest.
    pub root_is_root: bool,
    /// CPUs with `nohz_full`, a bit for each of the first 64.
    pub nohz_full: u64,
}

/// The facts about this machine that a plan depends on. Tries a system call to find out about
/// timers.
pub fn facts(in_vm: bool) -> Facts {
    Facts {
        stops_anywhere: stops_anywhere(),
        timer_requests: can_list_timers(),
        cpus: cpus(),
        timer_thread: in_vm && is_real_time(),
        root_is_root: in_vm,
        nohz_full: cpu_bits(&read("/sys/devices/system/cpu/nohz_full")),
    }
}

/// CPUs below 64 of a kernel's list such as `1-3,5`, one bit each; parts that are no numbers are
/// left out.
fn cpu_bits(list: &str) -> u64 {
    let mut bits = 0;
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            (from..=to.min(63)).for_each(|cpu| bits |= 1u64.checked_shl(cpu).unwrap_or(0));
        }
    }
    bits
}

/// Tries whether a list of requests (`io_submit(2)`) can read a timerfd; kernels from 6.10 on can.
fn can_list_timers() -> bool {
    let mut context = 0;
    if sys::aio_setup(1, &mut context) < 0 {
        return false;
    }
    let fd = sys::timer_create() as i32;
    sys::timer_arm(fd, false, 1);
    let mut expirations = 0u64;
    let request = Iocb::new(AIO_PREAD, fd, &raw mut expirations as u64, 8);
    let submitted = sys::aio_submit(context, &[&raw const request]);
    // SAFETY: the descriptor is ours.
    unsafe { libc::close(fd) };
    submitted == 1 && expirations == 1
}

/// The settings that scenarios change, as the guest found them.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    preempt: Option<Preemption>,
    hrtick: Option<bool>,
    base_slice_ns: Option<u64>,
}

impl Settings {
    /// Reads preemption, hrtick and base slice as they are now; `None` where debugfs does not show
    /// one.
    pub fn read() -> Settings {
        Settings { preempt: preemption(), hrtick: hrtick(), base_slice_ns: base_slice_ns() }
    }

    /// Writes the kernel settings of a scenario (slice, preemption, hrtick, base slice); those that
    /// it does not mention get their values from before the first job. On a host nothing is
    /// written, and different values are an error.
    ///
    /// # Errors
    /// A setting that this machine cannot have.
    pub fn apply(&self, machine: &MachineSpec, in_vm: bool) -> Result<(), String> {
        let slice_us = (machine.bandwidth_slice_ns / 1000).max(1).to_string();
        write_setting(SLICE_US, read(SLICE_US) == slice_us, &slice_us, in_vm)?;
        let wanted = machine.preempt.map(|preempt| match preempt {
            Preempt::None => Preemption::None,
            Preempt::Voluntary => Preemption::Voluntary,
            Preempt::Lazy => Preemption::Lazy,
            Preempt::Full => Preemption::Full,
            Preempt::Rt => Preemption::Rt,
            Preempt::RtLazy => Preemption::RtLazy,
        });
        if let Some(wanted) = wanted.or(self.preempt) {
            let stands = preemption();
            if is_rt(wanted) && !stands.is_some_and(is_rt) {
                return Err("this is not a real-time kernel (PREEMPT_RT)".to_owned());
            }
            write_setting(
                &format!("{DEBUG}/preempt"),
                stands == Some(wanted),
                kernel_name(wanted),
                in_vm,
            )?;
        }
        if let Some(on) = machine.hrtick.or(self.hrtick) {
            let name = if on { "HRTICK" } else { "NO_HRTICK" };
            write_setting(&format!("{DEBUG}/features"), hrtick() == Some(on), name, in_vm)?;
        }
        if let Some(ns) = machine.base_slice_ns.or(self.base_slice_ns) {
            let path = format!("{DEBUG}/base_slice_ns");
            write_setting(&path, base_slice_ns() == Some(ns), &ns.to_string(), in_vm)?;
        }
        Ok(())
    }
}

/// Whether this is a real-time kernel (`PREEMPT_RT`), by `/proc/version`.
pub fn is_real_time() -> bool {
    preemption().is_some_and(is_rt)
}

/// Whether it is a preemption of a real-time kernel (`PREEMPT_RT`).
fn is_rt(preemption: Preemption) -> bool {
    matches!(preemption, Preemption::Rt | Preemption::RtLazy)
}

/// The kernel's word for a preemption, as its `preempt` file takes it. A real-time kernel stays one
/// whatever is written.
fn kernel_name(preemption: Preemption) -> &'static str {
    match preemption {
        Preemption::None => "none",
        Preemption::Voluntary => "voluntary",
        Preemption::Lazy | Preemption::RtLazy => "lazy",
        Preemption::Full | Preemption::Rt => "full",
    }
}

/// Writes a setting in a virtual machine, unless it has this value already (`stands`).
///
/// # Errors
/// The kernel refuses it; on a host, any setting that has another value.
fn write_setting(path: &str, stands: bool, wanted: &str, in_vm: bool) -> Result<(), String> {
    if stands {
        return Ok(());
    }
    if !in_vm {
        return Err(format!(
            "{path} would have to be {wanted:?}; the guest changes no settings of a host"
        ));
    }
    crate::cgroup::write(Path::new(path), wanted)
        .map_err(|error| format!("this kernel does not take the setting: {error}"))
}

/// Text of a file without blanks around it; empty if it cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_bits("1-3,5"), 0b10_1110);
        assert_eq!(cpu_bits("0"), 1);
        assert_eq!([cpu_bits(""), cpu_bits("(null)"), cpu_bits("70-80")], [0; 3]);
    }

    #[test]
    fn versions_are_read_from_releases() {
        assert_eq!(version("6.18.15+deb13-cloud-amd64"), (6, 18));
        assert_eq!(version("7.3-rc1"), (7, 3));
        assert_eq!(version(""), (0, 0));
        assert!(version("6.12.1") < RETURN_TO_USER && version("7.0.1") >= RETURN_TO_USER);
    }
}
