//! A control group for the load, in all hierarchies of the machine; removed when dropped.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const ROOT: &str = "/sys/fs/cgroup";

/// The group's path in every hierarchy.
pub const PATH: &str = "/testload";

pub struct Cgroup {
    /// Directory with the limit and its statistics.
    cpu: PathBuf,
    v2: bool,
    /// Directories to remove.
    folders: Vec<PathBuf>,
}

/// Counters of the group at one moment, or their increase.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    pub usage_us: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    pub throttled_us: u64,
    pub nr_bursts: u64,
    pub burst_us: u64,
}

impl Counters {
    /// The increase since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        Counters {
            usage_us: self.usage_us - before.usage_us,
            nr_periods: self.nr_periods - before.nr_periods,
            nr_throttled: self.nr_throttled - before.nr_throttled,
            throttled_us: self.throttled_us - before.throttled_us,
            nr_bursts: self.nr_bursts - before.nr_bursts,
            burst_us: self.burst_us - before.burst_us,
        }
    }
}

impl Cgroup {
    /// Creates the group: on v2 one directory; on v1 one each for the limit and the usage, and one
    /// in the v2 tree, from which perf takes the names of groups.
    pub fn make() -> Result<Cgroup> {
        let root = Path::new(ROOT);
        let v2 = root.join("cgroup.controllers").exists();
        let hierarchies: Vec<PathBuf> = if v2 {
            let control = root.join("cgroup.subtree_control");
            fs::write(&control, "+cpu").with_context(|| cannot("write", &control))?;
            vec![root.to_owned()]
        } else {
            ["cpu", "cpuacct", "unified"]
                .into_iter()
                .map(|name| root.join(name))
                .filter(|path| path.exists())
                .collect()
        };
        let Some(first) = hierarchies.first() else {
            bail!("no cpu controller under {ROOT}");
        };
        let mut group = Cgroup { cpu: first.join(&PATH[1..]), v2, folders: Vec::new() };
        for hierarchy in &hierarchies {
            let folder = hierarchy.join(&PATH[1..]);
            fs::create_dir(&folder).with_context(|| cannot("make", &folder))?;
            group.folders.push(folder);
        }
        Ok(group)
    }

    /// Moves a process with all its threads into the group.
    pub fn add(&self, pid: u32) -> Result<()> {
        for folder in &self.folders {
            let procs = folder.join("cgroup.procs");
            fs::write(&procs, pid.to_string()).with_context(|| cannot("write", &procs))?;
        }
        Ok(())
    }

    /// Moves a server's processes into the group; one that ends meanwhile is no error.
    pub fn add_all(&self, pids: &[u32]) -> Result<()> {
        for &pid in pids {
            if let Err(error) = self.add(pid)
                && Path::new("/proc").join(pid.to_string()).exists()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes quota, period and burst; without a quota, no limit.
    pub fn limit(&self, quota_us: Option<u64>, period_us: u64, burst_us: u64) -> Result<()> {
        let quota = |none: &str| quota_us.map_or(none.to_owned(), |us| us.to_string());
        if self.v2 {
            self.write("cpu.max", &format!("{} {period_us}", quota("max")))?;
            self.write("cpu.max.burst", &burst_us.to_string())
        } else {
            self.write("cpu.cfs_period_us", &period_us.to_string())?;
            self.write("cpu.cfs_quota_us", &quota("-1"))?;
            self.write("cpu.cfs_burst_us", &burst_us.to_string())
        }
    }

    fn empty(&self) {
        for folder in &self.folders {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for pid in text.lines() {
                // The process may have ended meanwhile.
                let _ = fs::write(folder.with_file_name("cgroup.procs"), pid);
            }
        }
    }

    pub fn counters(&self) -> Result<Counters> {
        let stat = self.cpu.join("cpu.stat");
        let text = fs::read_to_string(&stat).with_context(|| cannot("read", &stat))?;
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
                .with_context(|| format!("{} has no {name}", stat.display()))
        };
        let (usage_us, throttled_us, burst_us) = if self.v2 {
            (field("usage_usec ")?, field("throttled_usec ")?, field("burst_usec "))
        } else {
            let burst_ns = field("burst_time ");
            (Self::v1_usage_us()?, field("throttled_time ")? / 1000, burst_ns.map(|ns| ns / 1000))
        };
        Ok(Counters {
            usage_us,
            nr_periods: field("nr_periods ")?,
            nr_throttled: field("nr_throttled ")?,
            throttled_us,
            // Kernels before 5.14 have no bursts.
            nr_bursts: field("nr_bursts ").unwrap_or(0),
            burst_us: burst_us.unwrap_or(0),
        })
    }

    fn v1_usage_us() -> Result<u64> {
        let file = Path::new(ROOT).join("cpuacct").join(&PATH[1..]).join("cpuacct.usage");
        let text = fs::read_to_string(&file).with_context(|| cannot("read", &file))?;
        let ns: u64 = text.trim().parse().with_context(|| cannot("read", &file))?;
        Ok(ns / 1000)
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.cpu.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.empty();
        // A killed process may remain a member for a moment.
        for folder in &self.folders {
            let gone = (0..100).any(|_| {
                fs::remove_dir(folder).is_ok() || {
                    thread::sleep(Duration::from_millis(20));
                    false
                }
            });
            if !gone {
                eprintln!("testload: cannot remove {}", folder.display());
            }
        }
    }
}

fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", path.display())
}
