// SPDX-License-Identifier: GPL-2.0-only
//! Loads the BPF program, attaches it as the machine's scheduler, and detaches it.
//!
//! A load that fails gives one message: missing privileges, no `sched_ext`, no BTF, another
//! scheduler, a missing kernel function, a cgroup that cannot be represented, or the end of the
//! verifier's log.

use std::ffi::CStr;
use std::fs;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Func, Struct};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, OpenObject, PrintLevel};

use crate::shared::{Cpu, Group, Task};
use crate::topology::{CPUS_MAX, Topology};

#[allow(clippy::all, clippy::pedantic, missing_docs, unused)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/skeleton.rs"));
}
use skeleton::{MainSkel, MainSkelBuilder};

/// Settings of a load.
#[derive(Debug, Clone)]
pub struct Options {
    /// A task's turn, ns.
    pub slice_ns: u64,
    /// Most groups; a further one is refused.
    pub groups_max: u32,
    /// Most tasks that can be sent to the boundary; `None`: as many as the kernel allows.
    pub tasks_max: Option<u32>,
    /// Park tasks wherever they are queued, in kernel mode too; for comparison.
    pub park_at_enqueue: bool,
    /// Cures to leave out, as bits of `enum cure`.
    pub without: u32,
    /// Races whose windows are held open, as bits of `enum race`.
    pub stretched: u32,
    /// Print libbpf's messages.
    pub verbose: bool,
}

/// State of the scheduler, or the reason for its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It is attached.
    StillRunning,
    /// This program has detached it.
    Detached,
    /// The kernel asks to load it again.
    Restart(String),
    /// The kernel has ended it.
    Ejected(String),
}

/// A loaded scheduler. Dropping it returns the machine to the fair class.
pub struct Scheduler<'obj> {
    skel: MainSkel<'obj>,
    link: Option<Link>,
}

/// libbpf's messages since the last load, with those of the verifier.
static LIBBPF_LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
const LIBBPF_LOG_LINES_MAX: usize = 4000;

/// Log level of the verifier that prints statistics for each program.
const VERIFIER_STATISTICS: u32 = 4;

const CGROUPS: &str = "/sys/fs/cgroup";
const STATE: &str = "/sys/kernel/sched_ext/state";
const HOTPLUG_SEQ: &str = "/sys/kernel/sched_ext/hotplug_seq";
/// Longest time to enable, with many cgroups and tasks on a slow machine.
const ENABLE_TIME_MAX: Duration = Duration::from_secs(120);
/// Longest time for a release: a group's timer looks once a period, at most a second.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(3);
/// Time for many released tasks to have a turn.
const TURN_TIME: Duration = Duration::from_millis(500);
const EXIT_KIND_DONE: i32 = 1;
const EXIT_KIND_UNREGISTERED: i32 = 64;
const EXIT_CODE_RESTART: i64 = 1 << 48;

impl<'obj> Scheduler<'obj> {
    /// Checks the kernel, loads the program and attaches it. If a CPU has come or gone meanwhile,
    /// [`Scheduler::ending`] is [`Ending::Restart`] at once.
    pub fn load(options: &Options, storage: &'obj mut MaybeUninit<OpenObject>) -> Result<Self> {
        check_kernel()?;
        if let Some(refusal) = crate::refusal::of_hierarchy(Path::new(CGROUPS), options.groups_max)
        {
            bail!("{refusal}");
        }
        capture_libbpf_log(options.verbose);
        // Read before the CPUs are counted, so that the kernel notices a change.
        let hotplug_seq = fs::read_to_string(HOTPLUG_SEQ).unwrap_or_default();
        let topology = Topology::read();
        let mut open =
            MainSkelBuilder::default().open(storage).context("the BPF program cannot be opened")?;
        configure(&mut open, options, &topology)?;
        open.struct_ops.cpumax_ops_mut().hotplug_seq = hotplug_seq.trim().parse().unwrap_or(0);
        if options.verbose {
            for mut program in open.open_object_mut().progs_mut() {
                program.set_log_level(VERIFIER_STATISTICS);
            }
        }
        let mut skel = open.load().map_err(|error| explain_load(&error))?;
        let link = skel
            .maps
            .cpumax_ops
            .attach_struct_ops()
            .map_err(|error| explain_attach(&skel, &error))?;
        let mut this = Self { skel, link: Some(link) };
        this.wait_until_enabled()?;
        this.skel.maps.bss_data.as_deref_mut().expect("the program has data").cbw_in_charge = 1;
        Ok(this)
    }

    /// Waits until the scheduler is enabled. Newer kernels attach first and enable later; an error
    /// of that is only in the exit record.
    fn wait_until_enabled(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.ending() {
                Ending::Ejected(reason) => {
                    let data = self.skel.maps.bss_data.as_deref().expect("the program has data");
                    bail!(
                        "{}",
                        refusal_of(data).unwrap_or_else(|| format!(
                            "the kernel did not accept the scheduler: {reason}"
                        ))
                    );
                }
                Ending::Restart(_) => return Ok(()),
                Ending::StillRunning | Ending::Detached => {}
            }
            if fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled") {
                return Ok(());
            }
            if start.elapsed() > ENABLE_TIME_MAX {
                bail!(
                    "the kernel has not put the scheduler in charge for {} s",
                    ENABLE_TIME_MAX.as_secs()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it still runs, and if not, why.
    pub fn ending(&self) -> Ending {
        let record = &self.skel.maps.bss_data.as_deref().expect("the program has data").exit_record;
        if record.recorded == 0 {
            return Ending::StillRunning;
        }
        let reason = format!("{}: {}", text(&record.reason), text(&record.message));
        let reason = reason.trim_end_matches([':', ' ']).to_owned();
        match record.kind {
            kind if kind <= EXIT_KIND_DONE || kind == EXIT_KIND_UNREGISTERED => Ending::Detached,
            _ if record.code & EXIT_CODE_RESTART != 0 => Ending::Restart(reason),
            _ => Ending::Ejected(reason),
        }
    }

    /// The last refusal of a group, with a number that tells kinds apart.
    pub fn refusal(&self) -> Option<(u32, String)> {
        let data = self.skel.maps.bss_data.as_deref().expect("the program has data");
        Some((data.refusal.kind, refusal_of(data)?))
    }

    /// State of all CPUs and tasks when the kernel ended the scheduler.
    pub fn dump(&self) -> String {
        text(&self.skel.maps.bss_data.as_deref().expect("the program has data").exit_record.dump)
    }

    /// Returns the machine to the fair class.
    pub fn detach(&mut self) {
        if self.ending() == Ending::StillRunning {
            self.let_everybody_go();
        }
        self.link = None;
    }

    /// Ends all limits, and lets parked tasks reach user mode once. The kernel frees a program only
    /// when each task that it preempted has been there, which takes minutes under small limits.
    fn let_everybody_go(&mut self) {
        self.skel.maps.bss_data.as_deref_mut().expect("the program has data").cbw_in_charge = 0;
        let start = Instant::now();
        while start.elapsed() < RELEASE_TIME_MAX && self.anyone_parked() {
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(TURN_TIME);
    }

    fn anyone_parked(&self) -> bool {
        let id = |key: Vec<u8>| Some(u64::from_ne_bytes(key.try_into().ok()?));
        let groups =
            self.skel.maps.cbw_groups.keys().filter_map(id).filter_map(|id| self.group(id));
        groups.into_iter().any(|group| group.nr_parked > 0)
    }

    /// The record of a group by its cgroup id.
    pub fn group(&self, id: u64) -> Option<Group> {
        let address = self.address_of(id)?;
        // SAFETY: the program stores only addresses inside the arena, which libbpf maps into this
        // process while the skeleton lives. The memory of a removed group stays readable, but has
        // another id.
        let group = unsafe { address.read_volatile() };
        (group.id == id).then_some(group)
    }

    /// The per-CPU records of a group; empty if it does not exist.
    pub fn cpus(&self, id: u64) -> Vec<Cpu> {
        let rodata = self.skel.maps.rodata_data.as_ref().expect("the program has constants");
        let Some(address) = self.address_of(id) else { return Vec::new() };
        // SAFETY: as above; behind a group there is room for as many CPUs as the program was loaded
        // for.
        let cpu = |n| unsafe { address.add(1).cast::<Cpu>().add(n).read_volatile() };
        (0..rodata.nr_cpus as usize).map(cpu).collect()
    }

    fn address_of(&self, id: u64) -> Option<*const Group> {
        let groups = &self.skel.maps.cbw_groups;
        let value = groups.lookup(&id.to_ne_bytes(), libbpf_rs::MapFlags::ANY).ok()??;
        let address = u64::from_ne_bytes(value.get(value.len() - 8..)?.try_into().ok()?);
        (address != 0).then_some(address as *const Group)
    }

    /// The record of a thread, by its pidfd.
    pub fn task(&self, pidfd: &OwnedFd) -> Option<Task> {
        let key = pidfd.as_raw_fd().to_ne_bytes();
        let value = self.skel.maps.cbw_tasks.lookup(&key, libbpf_rs::MapFlags::ANY).ok()??;
        if value.len() < size_of::<Task>() {
            return None;
        }
        // SAFETY: the bytes are a whole `struct cbw_task`, for which every bit pattern is valid.
        Some(unsafe { value.as_ptr().cast::<Task>().read_unaligned() })
    }
}

fn configure(
    open: &mut skeleton::OpenMainSkel<'_>,
    options: &Options,
    topology: &Topology,
) -> Result<()> {
    let rodata = open.maps.rodata_data.as_deref_mut().expect("the program has constants");
    if rodata.group_size as usize != size_of::<Group>()
        || rodata.task_size as usize != size_of::<Task>()
        || rodata.cpu_size as usize != size_of::<Cpu>()
    {
        bail!(
            "src/shared.rs and src/bpf/intf.h disagree: groups {} and {} bytes, tasks {} and {}, \
             CPUs {} and {}",
            size_of::<Group>(),
            rodata.group_size,
            size_of::<Task>(),
            rodata.task_size,
            size_of::<Cpu>(),
            rodata.cpu_size
        );
    }
    rodata.nr_cpus = topology.cpu_count as u32;
    rodata.nr_llcs = topology.llc_count as u32;
    rodata.llc_of_cpu[..topology.llc_of_cpu.len()].copy_from_slice(&topology.llc_of_cpu);
    rodata.slice_ns = options.slice_ns;
    rodata.without = options.without;
    rodata.stretched = options.stretched;
    rodata.park_at_enqueue = options.park_at_enqueue;
    rodata.delegated_max = options.groups_max / 8;
    rodata.all_delegated_max = options.groups_max / 4 * 3;
    debug_assert!(topology.cpu_count <= CPUS_MAX);
    // A group has its record and a cache line for each CPU.
    let pages_each =
        (size_of::<Group>() + topology.cpu_count * size_of::<Cpu>()).div_ceil(4096) as u64;
    let pages = (u64::from(options.groups_max) * pages_each + 16).min(1 << 20);
    open.maps.arena.set_max_entries(pages as u32)?;
    open.maps.cbw_groups.set_max_entries(options.groups_max)?;
    let tasks_max = options.tasks_max.unwrap_or_else(threads_max);
    open.maps.cbw_work_a.set_max_entries(tasks_max)?;
    open.maps.cbw_work_b.set_max_entries(tasks_max)?;
    open.maps.cbw_cpu_timers.set_max_entries(topology.cpu_count as u32)?;
    open.maps.cbw_helpers.set_max_entries(topology.cpu_count as u32)?;
    if has_server() {
        open.struct_ops.cpumax_ops_mut().cpu_release = std::ptr::null_mut();
    }
    Ok(())
}

/// Whether the kernel itself reserves CPU time for `sched_ext` beside real-time tasks.
fn has_server() -> bool {
    let Ok(btf) = Btf::from_vmlinux() else { return false };
    let queue = btf.type_by_name::<Struct<'_>>("rq");
    queue.is_some_and(|queue| {
        queue.iter().any(|member| member.name.is_some_and(|name| name == "ext_server"))
    })
}

/// Twice the number of threads that the kernel allows, as that can be raised.
fn threads_max() -> u32 {
    let allowed = fs::read_to_string("/proc/sys/kernel/threads-max").unwrap_or_default();
    allowed.trim().parse::<u32>().unwrap_or(1 << 16).saturating_mul(2).clamp(1 << 12, 1 << 22)
}

fn check_kernel() -> Result<()> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        bail!("loading a scheduler needs root (CAP_SYS_ADMIN): run it with sudo");
    }
    if !Path::new("/sys/kernel/sched_ext").exists() {
        bail!(
            "this kernel ({}) has no sched_ext: it needs 6.18 or newer built with \
             CONFIG_SCHED_CLASS_EXT=y",
            kernel_release()
        );
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        bail!("this kernel ({}) has no BTF: it needs CONFIG_DEBUG_INFO_BTF=y", kernel_release());
    }
    let state = fs::read_to_string(STATE).unwrap_or_default();
    if state.trim() != "disabled" {
        let name = fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
        bail!(
            "the scheduler {:?} is loaded ({}): stop it first, there can be only one",
            name.trim(),
            state.trim()
        );
    }
    Ok(())
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn capture_libbpf_log(verbose: bool) {
    LIBBPF_LOG.lock().expect("no one panics with it").clear();
    let print = if verbose {
        |_: PrintLevel, line: String| eprint!("{line}")
    } else {
        |_: PrintLevel, line: String| {
            let mut log = LIBBPF_LOG.lock().expect("no one panics with it");
            if log.len() < LIBBPF_LOG_LINES_MAX {
                log.push(line);
            }
        }
    };
    libbpf_rs::set_print(Some((if verbose { PrintLevel::Debug } else { PrintLevel::Info }, print)));
}

/// The message for a failed load, from libbpf's output.
fn explain_load(error: &libbpf_rs::Error) -> anyhow::Error {
    let log = LIBBPF_LOG.lock().expect("no one panics with it").concat();
    if let Some(missing) = missing_function(&log) {
        return anyhow!(
            "{}",
            explain_missing(missing, is_of_another_form(missing), &kernel_release())
        );
    }
    let tail: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = tail[tail.len().saturating_sub(25)..].join("\n  ");
    anyhow!(
        "this kernel ({}) refused the program: {error}\n  {tail}\nThe whole log is shown by -v",
        kernel_release()
    )
}

/// The kernel function that libbpf did not find, if that was the reason.
fn missing_function(log: &str) -> Option<&str> {
    log.lines().find_map(|line| {
        let (_, rest) = line.split_once("kfunc '")?;
        Some(rest.split_once("' is referenced but wasn't resolved")?.0)
    })
}

/// Whether the kernel has a function of this name with other arguments.
fn is_of_another_form(name: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<Func<'_>>(name).is_some())
}

/// The message for a missing kernel function. Debian's 7.1.13 has functions with an argument that
/// the kernel adds, but its BTF lacks the mark that says so.
fn explain_missing(name: &str, other_form: bool, release: &str) -> String {
    let why = if other_form {
        "; it has it with arguments that the kernel should add by itself, and the type information \
         of this build lacks what says so: another build of this version, or a newer kernel, is in \
         order"
    } else {
        ""
    };
    format!("this kernel ({release}) does not offer {name} to BPF, which is needed{why}")
}

/// The message for a failed attach.
fn explain_attach(skel: &MainSkel<'_>, error: &libbpf_rs::Error) -> anyhow::Error {
    let data = skel.maps.bss_data.as_deref().expect("the program has data");
    if let Some(refusal) = refusal_of(data) {
        return anyhow!("{refusal}");
    }
    anyhow!("the kernel did not accept the scheduler: {error} {}", text(&data.exit_record.message))
}

/// The cgroup that could not be represented, if that was the reason.
fn refusal_of(data: &skeleton::types::bss) -> Option<String> {
    let refusal = &data.refusal;
    crate::refusal::describe(refusal.kind, refusal.error, refusal.group_id, refusal.level)
}

/// Text of a C string in a fixed field.
fn text(field: &[i8]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&c| c as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::{explain_missing, missing_function};

    #[test]
    fn only_a_missing_function_is_named() {
        let log = "libbpf: prog 'a': BPF program load failed\n42: <invalid kfunc call>\n\
                   kfunc 'scx_bpf_create_dsq' is referenced but wasn't resolved\n";
        assert_eq!(missing_function(log), Some("scx_bpf_create_dsq"));
        assert_eq!(missing_function("R1 invalid mem access 'scalar'\n"), None);
        let explained = explain_missing("scx_bpf_create_dsq", true, "7.1.13");
        assert!(explained.contains("type information of this build"), "{explained}");
        assert!(explain_missing("scx_bpf_kick_cpu", false, "7.3").ends_with("which is needed"));
    }
}
