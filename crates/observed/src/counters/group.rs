//! A control group of this machine, in either hierarchy: its limit and its counters.

use super::Moment;
use super::cpus::{AllowedCpus, allowed};
use super::files::{mounted, read};
use cpumax_limit::{CpuStat, File, Limit, Rules, shown};
use cpumax_study::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A group with the files of the `cpu` controller.
///
/// ```
/// use cpumax_observed::counters::Group;
///
/// let folder = std::env::temp_dir().join(format!("cpumax-group-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(folder.join("cpu.max"), "50000 100000\n")?;
/// std::fs::write(folder.join("cpu.stat"), "usage_usec 7\nnr_periods 3\nnr_throttled 2\n")?;
/// let group = Group::open(&folder)?;
/// assert_eq!(group.limit()?.millicpus(), Some(500));
/// assert_eq!(group.moment(0)?.stat.map(|stat| stat.nr_throttled), Some(2));
/// std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Group {
    folder: PathBuf,
    /// v1: the file that counts its CPU time, where it is found.
    usage: Option<PathBuf>,
    cpus: Option<AllowedCpus>,
    is_v1: bool,
}

impl Group {
    /// Opens the group of this folder, or of this path below the root of the hierarchy.
    ///
    /// # Errors
    /// There is no such group, or it has no limit: the root, or a group without the `cpu`
    /// controller.
    pub fn open(path: &Path) -> Result<Group, Error> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below = path.strip_prefix("/").unwrap_or(path);
        let roots = ["cpu", ""].map(|controller| mounted(&mounts, controller));
        let in_roots = roots.iter().flatten().map(|root| root.join(below));
        let places: Vec<PathBuf> = std::iter::once(path.to_owned()).chain(in_roots).collect();
        let Some(folder) = places.into_iter().find(|place| place.is_dir()) else {
            let what = "no such group; give its folder, or its path below the root, such as \
                        /system.slice/web.service";
            return Err(Error::Question(format!("{}: {what}", shown(path))));
        };
        let has = |file: File| folder.join(file.name()).is_file();
        let is_v1 = !has(File::CpuMax) && has(File::CfsQuotaUs);
        if !is_v1 && !has(File::CpuMax) {
            let what = "it has neither cpu.max nor cpu.cfs_quota_us: give a group other than the \
                        root, below one whose cgroup.subtree_control has cpu";
            return Err(Error::Question(format!("{}: {what}", shown(&folder))));
        }
        let usage = is_v1.then(|| usage_of(&folder, &mounts)).flatten();
        let cpus = allowed(&folder, is_v1, &mounts);
        Ok(Group { folder, usage, cpus, is_v1 })
    }

    /// The CPUs that it could run on when it was opened; `None` where no file told.
    pub fn cpus(&self) -> Option<&AllowedCpus> {
        self.cpus.as_ref()
    }

    /// Its folder, escaped for messages.
    pub fn name(&self) -> String {
        shown(&self.folder)
    }

    /// Reads the group's own limit.
    ///
    /// # Errors
    /// A file cannot be read, or does not have the kernel's form.
    pub fn limit(&self) -> Result<Limit, Error> {
        let files: &[File] = if self.is_v1 {
            &[File::CfsPeriodUs, File::CfsQuotaUs, File::CfsBurstUs]
        } else {
            &[File::CpuMax, File::CpuMaxBurst]
        };
        let mut limit = Limit::UNLIMITED;
        for &file in files {
            let path = self.folder.join(file.name());
            let text = match read(&path) {
                // Kernels up to 5.13 have no such file.
                Err(Error::File { source, .. })
                    if source.kind() == io::ErrorKind::NotFound
                        && matches!(file, File::CpuMaxBurst | File::CfsBurstUs) =>
                {
                    continue;
                }
                text => text?,
            };
            let wrong = |error| Error::Question(format!("{}: {error}", shown(&path)));
            limit = limit.write(file, text.trim(), &Rules::NEWEST).map_err(wrong)?;
        }
        Ok(limit)
    }

    /// Reads its counters from `cpu.stat`, on v2 also `cpu.pressure`. `at_ns`, the time since the
    /// first reading, is only stored.
    ///
    /// # Errors
    /// A file cannot be read, or does not have the kernel's form.
    pub fn moment(&self, at_ns: u64) -> Result<Moment, Error> {
        let path = self.folder.join("cpu.stat");
        let stat = CpuStat::parse(&read(&path)?)
            .map_err(|error| Error::Question(format!("{}: {error}", shown(&path))))?;
        let usage_ns = match &self.usage {
            _ if !self.is_v1 => Some(stat.usage_ns),
            None => None,
            Some(path) => read(path)?.trim().parse().ok(),
        };
        let waited_ns = read(&self.folder.join("cpu.pressure")).ok();
        let waited_ns = waited_ns.as_deref().and_then(waited).filter(|_| !self.is_v1);
        let throttled_ns = Some(stat.throttled_ns);
        let is_anew = false;
        Ok(Moment { at_ns, usage_ns, stat: Some(stat), throttled_ns, waited_ns, is_anew })
    }
}

/// v1: the path of a group's `cpuacct.usage`, in its `folder` or where that controller is mounted;
/// `None` if there is no such file.
fn usage_of(folder: &Path, mounts: &str) -> Option<PathBuf> {
    const USAGE: &str = "cpuacct.usage";
    let here = folder.join(USAGE);
    let elsewhere = || {
        let below = folder.strip_prefix(mounted(mounts, "cpu")?).ok()?;
        Some(mounted(mounts, "cpuacct")?.join(below).join(USAGE))
    };
    Some(here).filter(|path| path.is_file()).or_else(elsewhere).filter(|path| path.is_file())
}

/// The `total=` of the line `some` of a `cpu.pressure`, converted from us to ns; `None` if
/// malformed.
fn waited(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|word| word.strip_prefix("total="))?;
    total.trim().parse::<u64>().ok()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("cpumax-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        folder
    }

    #[test]
    fn both_hierarchies_say_the_same() {
        let v1 = folder(
            "v1",
            &[
                ("cpu.cfs_quota_us", "20000\n"),
                ("cpu.cfs_period_us", "50000\n"),
                ("cpu.stat", "nr_periods 5\nnr_throttled 4\nthrottled_time 7000\n"),
                ("cpuacct.usage", "123456\n"),
            ],
        );
        let v2 = folder(
            "v2",
            &[
                ("cpu.max", "20000 50000\n"),
                ("cpu.max.burst", "0\n"),
                ("cpu.stat", "usage_usec 123\nnr_periods 5\nnr_throttled 4\nthrottled_usec 7\n"),
                ("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=31\n"),
            ],
        );
        let [old, new] = [&v1, &v2].map(|folder| Group::open(folder).unwrap());
        assert_eq!(old.limit().unwrap(), new.limit().unwrap());
        assert_eq!(new.limit().unwrap(), Limit::new(Some(20_000_000), 50_000_000, 0).unwrap());
        let [a, b] = [old, new].map(|group| group.moment(3).unwrap());
        assert_eq!((a.usage_ns, b.usage_ns), (Some(123_456), Some(123_000)));
        assert_eq!((a.waited_ns, b.waited_ns), (None, Some(31_000)));
        for moment in [a, b] {
            assert_eq!(moment.stat.map(|stat| stat.nr_throttled), Some(4));
            assert_eq!(moment.throttled_ns, Some(7_000));
        }
        for folder in [v1, v2] {
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn a_folder_that_is_not_a_group_is_refused() {
        let none = Group::open(Path::new("/no/such/group-of-ours")).unwrap_err().to_string();
        assert!(none.contains("no such group") && none.contains("/system.slice"), "{none}");
        let root = folder("root", &[("cpu.stat", "usage_usec 1\n")]);
        let told = Group::open(&root).unwrap_err().to_string();
        assert!(told.contains("cgroup.subtree_control"), "{told}");
        fs::write(root.join("cpu.max"), "x\n").unwrap();
        let told = Group::open(&root).unwrap().limit().unwrap_err().to_string();
        assert!(told.contains("cpu.max") && told.contains("QUOTA"), "{told}");
        fs::write(root.join("cpu.stat"), "nr_periods many\n").unwrap();
        let told = Group::open(&root).unwrap().moment(0).unwrap_err().to_string();
        assert!(told.contains("cpu.stat") && told.contains("line 1"), "{told}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn roots_are_those_of_mounts() {
        let mounts = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let v1 = Some(PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!((mounted(mounts, "cpu"), mounted(mounts, "cpuacct")), (v1.clone(), v1));
        assert_eq!(mounted(mounts, ""), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mounted(mounts, "memory"), None);
    }
}
