//! What the guest finds out about the kernel it runs on, and the knobs of it that scenarios turn.

use crate::plan::Facts;
use crate::sys::{self, AIO_PREAD, Iocb};
use cpumax_outcome::Preemption;
use cpumax_workload::{MachineSpec, Preempt};
use std::fs;
use std::path::Path;

const SLICE_US: &str = "/proc/sys/kernel/sched_cfs_bandwidth_slice_us";
const DEBUG: &str = "/sys/kernel/debug/sched";

/// First release that stops tasks only at their return to user mode.
const RETURN_TO_USER: (u32, u32) = (6, 18);

/// As `uname -r` shows it.
pub fn release() -> String {
    read("/proc/sys/kernel/osrelease")
}

/// Major and minor version of a release; 0 for what is no number.
pub fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Ticks a second.
pub fn hz() -> u32 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut resolution) };
    let tick_ns = resolution.tv_nsec.max(1);
    ((1_000_000_000 + tick_ns / 2) / tick_ns) as u32
}

/// CPUs on line.
pub fn cpus() -> u32 {
    // SAFETY: the call takes a number.
    let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u32::try_from(n).unwrap_or(1).max(1)
}

/// The clock source in use.
pub fn clocksource() -> String {
    read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Where this kernel lets itself be preempted, if it tells.
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

/// Whether a high-resolution tick ends slices, if the kernel tells.
pub fn hrtick() -> Option<bool> {
    let features = read(&format!("{DEBUG}/features"));
    let mut words = features.split_whitespace();
    words.find_map(|word| match word {
        "HRTICK" => Some(true),
        "NO_HRTICK" => Some(false),
        _ => None,
    })
}

/// The EEVDF base slice, ns, if the kernel has one and tells.
pub fn base_slice_ns() -> Option<u64> {
    read(&format!("{DEBUG}/base_slice_ns")).parse().ok()
}

/// Whether a task may be stopped in the middle of a system call (to 6.17); else it parks on its way
/// out.
pub fn stops_anywhere() -> bool {
    version(&release()) < RETURN_TO_USER
}

/// What a plan depends on.
pub fn facts(in_vm: bool) -> Facts {
    Facts {
        stops_anywhere: stops_anywhere(),
        timer_requests: timer_requests(),
        cpus: cpus(),
        timer_thread: in_vm && is_real_time(),
        root_is_root: in_vm,
        nohz_full: cpu_bits(&read("/sys/devices/system/cpu/nohz_full")),
    }
}

/// Of a list of CPUs such as `1-3,5` those below 64, a bit each; none if it is no such list.
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

/// Whether a list of requests can contain the read of a timer.
fn timer_requests() -> bool {
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

/// The knobs that scenarios turn, as they stood when the guest began.
#[derive(Debug, Clone, Default)]
pub struct Knobs {
    preempt: Option<Preemption>,
    hrtick: Option<bool>,
    base_slice_ns: Option<u64>,
}

impl Knobs {
    /// As they stand now.
    pub fn read() -> Knobs {
        Knobs { preempt: preemption(), hrtick: hrtick(), base_slice_ns: base_slice_ns() }
    }

    /// Turns them as a scenario asks for, and back where it does not ask. In a virtual machine
    /// everything may be turned; on the host only what already stands right is accepted.
    ///
    /// # Errors
    /// What cannot be had here.
    pub fn set(&self, machine: &MachineSpec, in_vm: bool) -> Result<(), String> {
        let slice_us = (machine.bandwidth_slice_ns / 1000).max(1).to_string();
        turn(SLICE_US, read(SLICE_US) == slice_us, &slice_us, in_vm)?;
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
                return Err("this kernel is not a real-time one (PREEMPT_RT)".to_owned());
            }
            turn(&format!("{DEBUG}/preempt"), stands == Some(wanted), name(wanted), in_vm)?;
        }
        if let Some(on) = machine.hrtick.or(self.hrtick) {
            let name = if on { "HRTICK" } else { "NO_HRTICK" };
            turn(&format!("{DEBUG}/features"), hrtick() == Some(on), name, in_vm)?;
        }
        if let Some(ns) = machine.base_slice_ns.or(self.base_slice_ns) {
            let path = format!("{DEBUG}/base_slice_ns");
            turn(&path, base_slice_ns() == Some(ns), &ns.to_string(), in_vm)?;
        }
        Ok(())
    }
}

/// Whether it is a real-time kernel (`PREEMPT_RT`).
pub fn is_real_time() -> bool {
    preemption().is_some_and(is_rt)
}

fn is_rt(preemption: Preemption) -> bool {
    matches!(preemption, Preemption::Rt | Preemption::RtLazy)
}

/// What the kernel calls it. Whether it is a real-time one cannot be turned.
fn name(preemption: Preemption) -> &'static str {
    match preemption {
        Preemption::None => "none",
        Preemption::Voluntary => "voluntary",
        Preemption::Lazy | Preemption::RtLazy => "lazy",
        Preemption::Full | Preemption::Rt => "full",
    }
}

fn turn(path: &str, stands: bool, wanted: &str, in_vm: bool) -> Result<(), String> {
    if stands {
        return Ok(());
    }
    if !in_vm {
        return Err(format!("{path} would have to be {wanted:?}; on the host it is left alone"));
    }
    crate::cgroup::write(Path::new(path), wanted)
        .map_err(|error| format!("this kernel cannot be told: {error}"))
}

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
