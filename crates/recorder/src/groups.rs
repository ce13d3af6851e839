//! Control groups: the mounted hierarchies, and groups by path.

use crate::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A mounted hierarchy whose groups can have CPU limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Mount point.
    pub root: PathBuf,
    /// Path of the mounted group in the hierarchy: `/`, except for a mount of a part.
    pub inside: String,
    /// cgroup v1 with the controller `cpu`; else cgroup v2.
    pub is_version_1: bool,
}

/// An existing group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its hierarchy.
    pub hierarchy: Hierarchy,
    /// Its path below the mount point, beginning with `/`.
    pub path: String,
}

impl Hierarchy {
    /// All hierarchies of this machine, that of the v1 controller `cpu` first.
    ///
    /// # Errors
    /// None is mounted.
    pub fn all() -> Result<Vec<Hierarchy>, Error> {
        let name = Path::new("/proc/self/mountinfo");
        let text = fs::read_to_string(name).map_err(|e| Error::io(name, e))?;
        let found = Hierarchy::in_mounts(&text);
        if found.is_empty() {
            let what = "no control groups are mounted here; mount them with `mount -t cgroup2 none \
                        /sys/fs/cgroup`, or record with --pid or --all";
            return Err(Error::NotFound { what: what.to_owned() });
        }
        Ok(found)
    }

    /// Hierarchies in the text of `/proc/PID/mountinfo`.
    fn in_mounts(text: &str) -> Vec<Hierarchy> {
        let mut found: Vec<Hierarchy> = text.lines().filter_map(Hierarchy::of_mount).collect();
        found.sort_by_key(|hierarchy| !hierarchy.is_version_1);
        found
    }

    fn of_mount(line: &str) -> Option<Hierarchy> {
        let (mount, fs) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3).map(|path| path.replace("\\040", " "));
        let (inside, root) = (mount.next()?, PathBuf::from(mount.next()?));
        let mut fs = fs.split(' ');
        let (kind, options) = (fs.next()?, fs.nth(1)?);
        let is_version_1 = match kind {
            "cgroup2" => false,
            "cgroup" if options.split(',').any(|option| option == "cpu") => true,
            _ => return None,
        };
        Some(Hierarchy { root, inside, is_version_1 })
    }

    /// The kernel's number of the hierarchy; 0: cgroup v2.
    fn number(&self) -> Option<i32> {
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        let of_cpu = |line: &str| {
            let (number, rest) = line.split_once(':')?;
            let controllers = rest.split_once(':')?.0;
            controllers.split(',').any(|name| name == "cpu").then(|| number.parse().ok())?
        };
        if self.is_version_1 { text.lines().find_map(of_cpu) } else { Some(0) }
    }
}

impl Group {
    /// The group with this path, below its hierarchy or with the mount point in front.
    ///
    /// # Errors
    /// There is none.
    pub fn find(asked: &str) -> Result<Group, Error> {
        Group::find_in(&Hierarchy::all()?, asked)
    }

    fn find_in(hierarchies: &[Hierarchy], asked: &str) -> Result<Group, Error> {
        for hierarchy in hierarchies {
            let below = Path::new(asked).strip_prefix(&hierarchy.root).ok();
            let path = below.map_or(asked, |below| below.to_str().unwrap_or(asked));
            let path = format!("/{}", path.trim_matches('/'));
            let is_inside = !path.split('/').any(|part| part == "..");
            if is_inside && hierarchy.root.join(&path[1..]).is_dir() {
                return Ok(Group { hierarchy: hierarchy.clone(), path });
            }
        }
        let roots: Vec<String> = hierarchies.iter().map(|h| cpumax_limit::shown(&h.root)).collect();
        let what = format!(
            "there is no control group {} below {}; `systemd-cgls` or `cat /proc/PID/cgroup` shows \
             the group of a service",
            cpumax_limit::one_line(asked),
            roots.join(" or ")
        );
        Err(Error::NotFound { what })
    }

    /// The folder with its files.
    pub fn folder(&self) -> PathBuf {
        self.hierarchy.root.join(&self.path[1..])
    }

    /// The kernel's id of the group: the inode number of its folder.
    ///
    /// # Errors
    /// The group does not exist any more.
    pub fn id(&self) -> Result<u64, Error> {
        let folder = self.folder();
        fs::metadata(&folder).map(|found| found.ino()).map_err(|e| Error::io(&folder, e))
    }

    /// Its path in the kernel, and the number of its hierarchy, by which it is recognized when it
    /// is made again. `None`: the number is unknown.
    pub(crate) fn in_kernel(&self) -> Option<(String, i32)> {
        let path = format!("{}{}", self.hierarchy.inside.trim_end_matches('/'), self.path);
        Some((path, self.hierarchy.number()?))
    }

    /// The group and its ancestors, without the root.
    pub fn upwards(&self) -> Vec<Group> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).skip(1).chain([self.path.len()]);
        let mut paths: Vec<&str> = ends.map(|end| &self.path[..end]).collect();
        paths.reverse();
        let group = |path: &str| Group { hierarchy: self.hierarchy.clone(), path: path.to_owned() };
        paths.into_iter().filter(|path| path.len() > 1).map(group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_in_mounts() {
        let text = "\
            25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            26 25 0:23 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
            27 25 0:24 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
            28 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let found = Hierarchy::in_mounts(text);
        let roots: Vec<_> =
            found.iter().map(|h| (h.root.to_str().unwrap(), h.is_version_1)).collect();
        let want = [("/sys/fs/cgroup/cpu,cpuacct", true), ("/sys/fs/cgroup/unified", false)];
        assert_eq!(roots, want);
    }

    #[test]
    fn a_group_is_found_by_either_path_and_never_outside() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("system.slice/web.service")).unwrap();
        let (root, inside) = (folder.path().to_owned(), "/".to_owned());
        let hierarchies = [Hierarchy { root, inside, is_version_1: false }];
        let whole = folder.path().join("system.slice/web.service/");
        for asked in
            ["/system.slice/web.service", "system.slice/web.service/", whole.to_str().unwrap()]
        {
            let group = Group::find_in(&hierarchies, asked).unwrap();
            assert_eq!(group.path, "/system.slice/web.service");
            let up: Vec<String> = group.upwards().into_iter().map(|group| group.path).collect();
            assert_eq!(up, ["/system.slice/web.service", "/system.slice"]);
        }
        for asked in ["/system.slice/other.service", "/../etc", "/system.slice/../.."] {
            assert!(Group::find_in(&hierarchies, asked).is_err(), "{asked}");
        }
    }
}
