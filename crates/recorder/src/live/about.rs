//! The file's description of the machine and of the recorded groups, and changes during the
//! recording.

use crate::groups::{Group, Hierarchy};
use crate::request::{End, Finished, Request, Target};
use cpumax_recording::about::{About, Cache, Change, Ended, GroupFiles, functions};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files with limits and shares, which may change during the recording.
const SETTINGS: [&str; 9] = [
    "cpu.max",
    "cpu.max.burst",
    "cpu.weight",
    "cpu.idle",
    "cpuset.cpus.effective",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.cfs_burst_us",
    "cpu.shares",
];
const COUNTERS: [&str; 2] = ["cpu.stat", "cpu.pressure"];
const PRESSURE: [&str; 3] = ["cpu", "memory", "io"];
/// Settings of the scheduler; the place depends on the kernel version.
const SLICES: [&str; 8] = [
    "/sys/kernel/debug/sched/base_slice_ns",
    "/sys/kernel/debug/sched/min_granularity_ns",
    "/sys/kernel/debug/sched/latency_ns",
    "/sys/kernel/debug/sched/wakeup_granularity_ns",
    "/proc/sys/kernel/sched_min_granularity_ns",
    "/proc/sys/kernel/sched_latency_ns",
    "/proc/sys/kernel/sched_wakeup_granularity_ns",
    "/proc/sys/kernel/sched_cfs_bandwidth_slice_us",
];
/// Most bytes read from such a file.
const FILE_MAX: u64 = 1 << 16;
/// Time between two checks of the groups.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Most bytes of a kernel configuration.
const CONFIG_MAX: u64 = 1 << 22;
const CHANGES_MAX: usize = 10_000;

/// Describes the machine and the groups as they are now.
pub(crate) fn about(request: &Request, group: Option<&Group>, is_version_1: bool) -> About {
    let system = rustix::system::uname();
    let mut about = About::default();
    about.tool = format!("cpumax {}", env!("CARGO_PKG_VERSION"));
    about.command.clone_from(&request.command_line);
    about.chosen = match &request.what {
        Target::All => "all".to_owned(),
        Target::Group(_) | Target::Pod(_) => {
            format!("group {}", group.map_or("", |group| &group.path))
        }
        Target::Process(pid) => format!("process {pid}"),
        Target::Command(_) => "command".to_owned(),
    };
    about.release = system.release().to_string_lossy().into_owned();
    about.version = system.version().to_string_lossy().into_owned();
    about.functions = functions::here();
    about.arch = system.machine().to_string_lossy().into_owned();
    about.hz = hz(&about.release);
    about.preemption = preemption(&about.version);
    about.online = text("/sys/devices/system/cpu/online").unwrap_or_default();
    about.possible = text("/sys/devices/system/cpu/possible").unwrap_or_default();
    about.caches = caches();
    about.slices = SLICES.iter().filter_map(|path| Some((last(path), text(path)?))).collect();
    about.unix_ns = now_ns(ClockId::Realtime);
    about.boot_ns = now_ns(ClockId::Boottime);
    about.is_version_1 = is_version_1;
    about.groups = state(&watched(group, is_version_1));
    about.pressure = pressure();
    about
}

/// Checks settings of groups from time to time, and notes changes.
pub(crate) struct Watch {
    groups: Vec<Group>,
    before: Vec<GroupFiles>,
    changes: Vec<Change>,
    /// When the recorded group was made again, by the clock of the events.
    made_again_ns: Vec<u64>,
    boot_ns: u64,
    began: Instant,
    polled_at: Instant,
}

impl Watch {
    pub fn begin(about: &About, group: Option<&Group>) -> Watch {
        let groups = watched(group, about.is_version_1);
        let now = Instant::now();
        let before = about.groups.clone();
        let (changes, made_again_ns, boot_ns) = (Vec::new(), Vec::new(), about.boot_ns);
        Watch { groups, before, changes, made_again_ns, boot_ns, began: now, polled_at: now }
    }

    /// Notes the last time at which the recorded group was made again; 0: never.
    pub fn made_again_at(&mut self, made_ns: u64) {
        let last_ns = self.made_again_ns.last().copied().unwrap_or(0);
        if made_ns > last_ns && self.made_again_ns.len() < CHANGES_MAX {
            self.made_again_ns.push(made_ns);
        }
    }

    /// Number of times that the group was made again.
    pub fn made_again(&self) -> usize {
        self.made_again_ns.len()
    }

    pub fn poll(&mut self) {
        if self.polled_at.elapsed() >= POLL_EVERY {
            self.polled_at = Instant::now();
            let now = state(&self.groups);
            self.compare(now);
        }
    }

    fn compare(&mut self, now: Vec<GroupFiles>) {
        let at_ns = self.began.elapsed().as_nanos() as u64;
        for (before, now) in self.before.iter().zip(&now) {
            for name in SETTINGS {
                let value = now.files.get(name);
                if value == before.files.get(name) || self.changes.len() >= CHANGES_MAX {
                    continue;
                }
                let mut change = Change::default();
                (change.at_ns, change.path) = (at_ns, now.path.clone());
                name.clone_into(&mut change.file);
                change.value = value.cloned().unwrap_or_default();
                self.changes.push(change);
            }
        }
        self.before = now;
    }

    /// The file's description of the end.
    pub fn ended(mut self, finished: &Finished, handed_ns: u64, lost: BTreeMap<u32, u64>) -> Ended {
        let now = state(&self.groups);
        self.compare(now);
        let mut ended = Ended::default();
        match finished.end {
            End::Asked => "asked",
            End::Time => "time",
            End::Size => "size",
            End::Budget => "budget",
            End::Command(_) => "command",
        }
        .clone_into(&mut ended.why);
        ended.elapsed_ns = finished.progress.elapsed.as_nanos() as u64;
        ended.events = finished.progress.events;
        ended.lost = lost;
        ended.forgotten = finished.forgotten;
        ended.recorder_ns = finished.used.as_nanos() as u64;
        ended.event_ns = handed_ns;
        ended.groups = self.before;
        ended.changes = self.changes;
        let since = |ns: u64| ns.saturating_sub(self.boot_ns);
        ended.made_again = self.made_again_ns.into_iter().map(since).collect();
        ended.is_gone = finished.is_gone;
        ended.pressure = pressure();
        ended
    }
}

/// The recorded group and its ancestors with the root; without a group only the root.
fn watched(group: Option<&Group>, is_version_1: bool) -> Vec<Group> {
    let mut groups = group.map(Group::upwards).unwrap_or_default();
    let hierarchies = Hierarchy::all().unwrap_or_default();
    if let Some(root) = hierarchies.into_iter().find(|one| one.is_version_1 == is_version_1) {
        groups.push(Group { hierarchy: root, path: "/".to_owned() });
    }
    groups
}

fn state(groups: &[Group]) -> Vec<GroupFiles> {
    let files = |group: &Group| {
        let folder = group.folder();
        let names = SETTINGS.iter().chain(&COUNTERS);
        let mut found = GroupFiles::default();
        found.path.clone_from(&group.path);
        found.files =
            names.filter_map(|name| Some(((*name).to_owned(), text(folder.join(name))?))).collect();
        found
    };
    groups.iter().map(files).collect()
}

fn pressure() -> BTreeMap<String, String> {
    let of = |what: &str| Some((what.to_owned(), text(format!("/proc/pressure/{what}"))?));
    PRESSURE.iter().filter_map(|what| of(what)).collect()
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    let mut text = Vec::new();
    fs::File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end().to_owned())
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn now_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `CONFIG_HZ` in the kernel's configuration, if that is found.
fn hz(release: &str) -> Option<u32> {
    let places = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    let beside = || places.iter().find_map(|path| fs::read_to_string(path).ok());
    let config = own_configuration().or_else(beside)?;
    config.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok())
}

/// The configuration in `/proc/config.gz`, if the kernel has it.
fn own_configuration() -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open("/proc/config.gz").ok()?;
    flate2::read::GzDecoder::new(file).take(CONFIG_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The preemption model: as chosen at boot or run time, else as built.
fn preemption(version: &str) -> Option<String> {
    if let Some(chosen) = text("/sys/kernel/debug/sched/preempt") {
        let (_, from) = chosen.split_once('(')?;
        return Some(from.split_once(')')?.0.to_owned());
    }
    let words = [("PREEMPT_RT", "rt"), ("PREEMPT_DYNAMIC", "dynamic"), ("PREEMPT", "full")];
    let word = |name: &str| version.split_ascii_whitespace().any(|word| word == name);
    words.iter().find(|(name, _)| word(name)).map(|(_, name)| (*name).to_owned())
}

/// Caches of the first CPU.
fn caches() -> Vec<Cache> {
    let cache = |ix: u32| {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{ix}");
        let file = |name: &str| text(format!("{folder}/{name}"));
        let mut cache = Cache::default();
        cache.level = file("level")?.parse().ok()?;
        cache.kind = file("type").unwrap_or_default();
        cache.size = file("size").unwrap_or_default();
        cache.shared_by = file("shared_cpu_list").unwrap_or_default();
        Some(cache)
    };
    (0..16).map_while(cache).collect()
}
