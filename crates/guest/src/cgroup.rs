//! The workload's groups as control groups: cgroup v2, or v1 where that has the `cpu` controller.
//!
//! In a virtual machine the workload's root is the root of the hierarchy. On a host it is a group
//! of the guest's own, and everything below it is removed at the end.

use crate::claim::{self, Claim};
use crate::lending::{self, PASSED_ON, has_cpu};
use cpumax_limit::{CpuStat, File, Limit, LocalStat};
use cpumax_workload::{GroupSpec, Workload};
use std::ffi::CString;
use std::os::fd::{IntoRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Attempts to remove a group, 5 ms apart, while its tasks die.
const TRIES: u32 = 200;

/// Where groups are made, and in which version of cgroups.
#[derive(Debug, Clone)]
pub struct Hierarchy {
    v2: bool,
    /// Directory of the workload's root.
    base: PathBuf,
    /// v1: directory of the root in the hierarchy of `cpuacct`, where that is a separate one.
    usage_base: Option<PathBuf>,
    /// On a host: name of the guest's own group.
    own_name: Option<String>,
}

/// A group that exists, with open descriptors. Dropping it closes them; the group stays.
#[derive(Debug)]
pub struct Group {
    /// Its directory.
    pub dir: PathBuf,
    usage_dir: Option<PathBuf>,
    /// Its directory, open, to create tasks in it (v2).
    pub dir_fd: RawFd,
    /// `cgroup.procs`, open: writing a pid there moves a process.
    pub procs_fd: RawFd,
    /// `cgroup.procs` in the hierarchy of `cpuacct`, or -1.
    pub usage_procs_fd: RawFd,
}

impl Hierarchy {
    /// Finds the hierarchy with the `cpu` controller, v2 before v1, below `/sys/fs/cgroup`. In a
    /// virtual machine the workload's root is the hierarchy's own; on a host it is a group with a
    /// new random name. Makes no group.
    ///
    /// # Errors
    /// No hierarchy with a `cpu` controller is mounted, or the kernel gives no random bytes.
    pub fn find(in_vm: bool) -> Result<Hierarchy, String> {
        let top = Path::new("/sys/fs/cgroup");
        let own_name = if in_vm { None } else { Some(claim::new_name()) };
        let own_name = own_name.transpose().map_err(|error| format!("no random name: {error}"))?;
        let own = own_name.clone().unwrap_or_default();
        if has_cpu(&top.join("cgroup.controllers")) {
            return Ok(Hierarchy { v2: true, base: top.join(own), usage_base: None, own_name });
        }
        let cpu = top.join("cpu");
        if !cpu.join("cpu.cfs_quota_us").exists() && !cpu.join("cpu.shares").exists() {
            return Err("there is no cgroup hierarchy with the cpu controller".to_owned());
        }
        let usage = top.join("cpuacct");
        let apart = !cpu.join("cpuacct.usage").exists() && usage.join("cpuacct.usage").exists();
        let usage_base = apart.then(|| usage.join(&own));
        Ok(Hierarchy { v2: false, base: cpu.join(own), usage_base, own_name })
    }

    /// Name of the guest's own group on a host, also used for its trace instance; `None` in a
    /// virtual machine.
    pub fn own_name(&self) -> Option<&str> {
        self.own_name.as_deref()
    }

    /// Makes the guest's own groups, marks them as its own and locks them (none in a virtual
    /// machine); removes those made if one fails. They must be removed before the claims are
    /// dropped.
    ///
    /// # Errors
    /// A group exists already or cannot be made.
    pub fn claim(&self) -> Result<Vec<Claim>, String> {
        let mut claims = Vec::new();
        for base in self.own_bases() {
            match claim::make_group(base) {
                Ok(claim) => claims.push(claim),
                Err(reason) => {
                    for made in self.own_bases().take(claims.len()) {
                        let _ = fs::remove_dir(made);
                    }
                    return Err(reason);
                }
            }
        }
        Ok(claims)
    }

    /// Whether a group with this name exists where the guest's own is made.
    pub fn has_group(&self, name: &str) -> bool {
        self.base.with_file_name(name).exists()
    }

    /// Directories of the guest's own group, which need not exist, in each hierarchy; none in a
    /// virtual machine.
    fn own_bases(&self) -> impl Iterator<Item = &PathBuf> {
        let bases = [Some(&self.base), self.usage_base.as_ref()].into_iter().flatten();
        bases.filter(|_| self.own_name.is_some())
    }

    /// Version of cgroups: 1 or 2.
    pub fn version(&self) -> u32 {
        1 + u32::from(self.v2)
    }

    /// Makes all groups of the workload with their weights, without limits, and enables the `cpu`
    /// controller for them (v2). `inner`: groups with children have tasks of their own, so all
    /// groups are threaded. Returns the groups in the workload's order, the root first.
    ///
    /// # Errors
    /// A group that could not be made or a file that could not be written.
    pub fn make_groups(&self, workload: &Workload, inner: bool) -> Result<Vec<Group>, String> {
        let root = self.base.clone();
        if let Some(above) = self.above() {
            lending::enable_cpu(above, &self.base)?;
        }
        let mut groups = vec![Self::open(&root, self.usage_base.clone())?];
        for spec in workload.groups.iter().skip(1) {
            let relative = spec.path.trim_start_matches('/');
            let dir = self.base.join(relative);
            let parent = spec.parent.map_or(&root, |ix| &groups[ix as usize].dir);
            if self.v2 {
                write(&parent.join(PASSED_ON), "+cpu")?;
            }
            self.make_dir(&dir, inner)?;
            let usage_dir = self.usage_base.as_ref().map(|base| base.join(relative));
            let group = Self::open(&dir, usage_dir)?;
            let (path, text) = self.weight_write(&group, spec.weight);
            write(&path, &text)?;
            groups.push(group);
        }
        Ok(groups)
    }

    /// Parent of the guest's own group, on a host with cgroup v2; else `None`.
    fn above(&self) -> Option<&Path> {
        self.base.parent().filter(|_| self.v2 && self.own_name.is_some())
    }

    /// Makes the group `cpumax-last` below `parent`, if it does not exist, and opens it. `inner`:
    /// as a threaded group.
    ///
    /// # Errors
    /// It could not be made.
    pub fn make_last(&self, parent: &Group, inner: bool) -> Result<Group, String> {
        let dir = parent.dir.join("cpumax-last");
        self.make_dir(&dir, inner)?;
        Self::open(&dir, None)
    }

    /// Makes a group unless it exists; with `threaded` writes its `cgroup.type` (v2), so that
    /// groups with children can have tasks.
    ///
    /// # Errors
    /// The kernel refuses the group or the type.
    fn make_dir(&self, dir: &Path, threaded: bool) -> Result<(), String> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", dir.display()));
            }
            _ => {}
        }
        if self.v2 && threaded {
            write(&dir.join("cgroup.type"), "threaded")?;
        }
        Ok(())
    }

    /// Opens an existing group for moves, and makes its group in the hierarchy of `cpuacct`
    /// (`usage_dir`) where that is a separate one.
    ///
    /// # Errors
    /// A path that cannot be opened or made.
    fn open(dir: &Path, usage_dir: Option<PathBuf>) -> Result<Group, String> {
        let procs_fd = open_write(&dir.join("cgroup.procs"))?;
        let usage_procs_fd = match &usage_dir {
            Some(dir) => {
                fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
                open_write(&dir.join("cgroup.procs"))?
            }
            None => -1,
        };
        let path = CString::new(dir.as_os_str().as_encoded_bytes()).unwrap_or_default();
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the path is a C string.
        let dir_fd = unsafe { libc::open(path.as_ptr(), flags) };
        if dir_fd < 0 {
            return Err(format!("{}: {}", dir.display(), io::Error::last_os_error()));
        }
        Ok(Group { dir: dir.to_owned(), usage_dir, dir_fd, procs_fd, usage_procs_fd })
    }

    /// Changes a group's limit from `old` to `new` (quota, period, burst) by writes to its files.
    ///
    /// # Errors
    /// A write that the kernel refused.
    pub fn write_limit(&self, group: &Group, old: Limit, new: Limit) -> Result<(), String> {
        let writes = self.limit_writes(group, old, new);
        writes.iter().try_for_each(|(path, text)| write(path, text))
    }

    /// Files and texts to write, in order, to change a group's limit from `old` to `new`. Steps in
    /// between keep every write valid for the kernel. Writes nothing itself.
    pub fn limit_writes(&self, group: &Group, old: Limit, new: Limit) -> Vec<(PathBuf, String)> {
        let put = |file: File, value: Limit| (group.dir.join(file.name()), value.read(file));
        let burst = if self.v2 { File::CpuMaxBurst } else { File::CfsBurstUs };
        let has_burst = group.dir.join(burst.name()).exists();
        let (mut writes, mut old) = (Vec::new(), old);
        for step in new.steps_from(old) {
            if step.burst_ns() != old.burst_ns() {
                if has_burst {
                    writes.push(put(burst, step));
                }
            } else if self.v2 {
                writes.push(put(File::CpuMax, step));
            } else if step.period_ns() == old.period_ns() {
                writes.push(put(File::CfsQuotaUs, step));
            } else {
                writes.push(put(File::CfsQuotaUs, Limit::UNLIMITED));
                writes.push(put(File::CfsPeriodUs, step));
                writes.push(put(File::CfsQuotaUs, step));
            }
            old = step;
        }
        writes
    }

    /// File and text to write to give a group a weight of 1 to 10000; v1 gets shares of weight *
    /// 10.24. Writes nothing itself.
    pub fn weight_write(&self, group: &Group, weight: u32) -> (PathBuf, String) {
        if self.v2 {
            return (group.dir.join("cpu.weight"), weight.to_string());
        }
        let shares = (u64::from(weight) * 1024).div_ceil(100).max(2);
        (group.dir.join("cpu.shares"), shares.to_string())
    }

    /// Reads `cpu.stat` of a group, and its own throttled time, ns, from `cpu.stat.local`; `None`
    /// where the kernel has no such file.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_stat(&self, group: &Group) -> Result<(CpuStat, Option<u64>), String> {
        let text = read(&group.dir.join("cpu.stat"))?;
        let mut stat = CpuStat::parse(&text).map_err(|error| error.to_string())?;
        if let Some(ns) = self.usage_ns(group) {
            stat.usage_ns = ns;
        }
        let local = fs::read_to_string(group.dir.join("cpu.stat.local")).ok();
        let local = local.and_then(|text| LocalStat::parse(&text).ok());
        Ok((stat, local.map(|local| local.throttled_ns)))
    }

    /// CPU time of a v1 group, ns, which its `cpu.stat` lacks; `None` for v2, or if it cannot be
    /// read.
    fn usage_ns(&self, group: &Group) -> Option<u64> {
        if self.v2 {
            return None;
        }
        let dir = group.usage_dir.as_ref().unwrap_or(&group.dir);
        fs::read_to_string(dir.join("cpuacct.usage")).ok()?.trim().parse().ok()
    }

    /// Kills all processes in the guest's groups, removes the groups, and takes back the `cpu`
    /// controller from the parent where the guest enabled it. Errors are ignored.
    pub fn remove_groups(&self) {
        match self.own_name {
            Some(_) => remove_trees(self.own_bases()),
            None => remove_dirs(groups_below(&self.base)),
        }
        if let Some(above) = self.above() {
            lending::disable_cpu(above, &self.base);
        }
    }

    /// Kills and removes groups beside the guest's own that guests left behind which are gone, and
    /// takes back controllers that these enabled.
    pub fn remove_stale(&self) {
        for top in self.own_bases().filter_map(|base| base.parent()) {
            let entries = || fs::read_dir(top).into_iter().flatten().flatten();
            let groups = entries().map(|entry| entry.path());
            let left: Vec<PathBuf> = groups.filter(|dir| claim::is_left_behind(dir)).collect();
            remove_trees(left.iter());
            if self.v2 {
                lending::disable_for_gone_guests(top);
            }
        }
    }
}

/// Kills all processes in these groups and the groups below, and removes all of them.
fn remove_trees<'a>(tops: impl Iterator<Item = &'a PathBuf>) {
    remove_dirs(tops.flat_map(|top| [vec![top.clone()], groups_below(top)].concat()).collect());
}

/// Kills all processes in these groups and removes them, children first; parents come before
/// children in `dirs`. Tries again for a limited time while groups remain.
fn remove_dirs(mut dirs: Vec<PathBuf>) {
    for _ in 0..TRIES {
        dirs.retain(|dir| dir.exists());
        for dir in dirs.iter().rev() {
            kill_all(dir);
            let _ = fs::remove_dir(dir);
        }
        if dirs.iter().all(|dir| !dir.exists()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

impl Group {
    /// Removes the group's directory.
    ///
    /// # Errors
    /// The group has processes or children.
    pub fn remove(&self) -> Result<(), String> {
        fs::remove_dir(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))
    }
}

impl Drop for Group {
    /// Closes the group's descriptors; the group itself stays.
    fn drop(&mut self) {
        for fd in [self.dir_fd, self.procs_fd, self.usage_procs_fd] {
            // SAFETY: the descriptors are this group's own.
            unsafe { libc::close(fd) };
        }
    }
}

/// Whether groups with children ever have tasks of their own, as `lives_in` tells. The workload's
/// root does not count where it is the root of the hierarchy (`root_is_root`), which may have
/// tasks.
pub fn has_inner_tasks(
    workload: &Workload,
    root_is_root: bool,
    lives_in: impl Fn(u32) -> bool,
) -> bool {
    let parents = workload.groups.iter().filter_map(|GroupSpec { parent, .. }| *parent);
    parents.filter(|&parent| parent != 0 || !root_is_root).any(lives_in)
}

/// Paths of all groups below one, parents before children.
fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            dirs.push(entry.path());
            dirs.append(&mut groups_below(&entry.path()));
        }
    }
    dirs
}

/// Sends SIGKILL to all processes and threads in a group itself, but not to the caller or init.
/// Groups below stay.
fn kill_all(dir: &Path) {
    let me = std::process::id().cast_signed();
    for file in ["cgroup.procs", "cgroup.threads"] {
        let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
        for pid in text.lines().filter_map(|line| line.parse::<i32>().ok()) {
            if pid > 1 && pid != me {
                crate::sys::kill(pid, libc::SIGKILL);
            }
        }
    }
}

/// Opens a file for writing; the caller owns the descriptor.
///
/// # Errors
/// It cannot be opened; the text names the path.
pub fn open_write(path: &Path) -> Result<RawFd, String> {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.map(IntoRawFd::into_raw_fd).map_err(|error| format!("{}: {error}", path.display()))
}

/// Text of a file; the error names the path.
fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a text to a kernel file.
///
/// # Errors
/// The kernel refused the text; the error names path and text.
pub fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: writing {text:?}: {error}", path.display()))
}
