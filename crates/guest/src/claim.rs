//! Ownership of control groups on a host: unique names, and marks that show whether the guest that
//! made a group still lives.
//!
//! A name has the guest's pid and random digits. Making the group fails if it exists. A name proves
//! nothing, so a guest also sets an extended attribute with its identity and locks (`flock`) the
//! group while it lives. Pids are comparable within one PID namespace only, locks within one cgroup
//! namespace.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Prefix of the names of guests' groups.
const PREFIX: &str = "cpumax-";
const RANDOM_DIGITS: usize = 16;
/// Extended attributes for the owner's identity. The first needs `CAP_SYS_ADMIN` in the initial
/// namespace, the second cgroup v2 and a kernel from 5.7 on.
const MARKS: [&str; 2] = ["trusted.cpumax", "user.cpumax"];
const MAX_MARK_BYTES: usize = 256;

/// A new unique name for the groups of this process: prefix, pid and 16 random digits.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn new_name() -> io::Result<String> {
    let mut bytes = [0u8; RANDOM_DIGITS / 2];
    // SAFETY: the bytes have room.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(io::Error::last_os_error());
    }
    Ok(format!("{PREFIX}{}-{:016x}", std::process::id(), u64::from_ne_bytes(bytes)))
}

/// The pid in a name that [`new_name`] made; `None` for other names.
pub fn pid_in(name: &str) -> Option<u32> {
    let (pid, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_random =
        random.len() == RANDOM_DIGITS && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    pid.parse().ok().filter(|_| is_random)
}

/// A group owned by this process until the claim is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The open, locked directory.
    _folder: File,
}

/// Makes a group, locks its directory until the claim is dropped, and marks it as owned by this
/// process.
///
/// # Errors
/// The group exists or cannot be made or locked.
pub fn make_group(dir: &Path) -> Result<Claim, String> {
    fs::create_dir(dir).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{}: {error}: only root may make control groups", dir.display())
        }
        _ => format!("{}: {error}", dir.display()),
    })?;
    let told = |error: io::Error| format!("{}: {error}", dir.display());
    let folder = File::open(dir).map_err(told)?;
    // The lock comes first: a marked group without a lock counts as left behind.
    if !flock(&folder, libc::LOCK_EX) {
        return Err(told(io::Error::last_os_error()));
    }
    // Without a mark other guests leave the group alone.
    mark(dir, &Owner::this());
    Ok(Claim { _folder: folder })
}

/// Whether a guest made this group and is gone: its process does not exist, or, if that was in
/// another pid namespace, nothing locks the group. False for groups without a mark.
pub fn is_left_behind(dir: &Path) -> bool {
    let Some(owner) = owner_of(dir) else { return false };
    let this = Owner::this();
    if owner.pid_namespace == this.pid_namespace {
        return !owner.is_alive();
    }
    let is_locked = || File::open(dir).is_ok_and(|dir| !flock(&dir, libc::LOCK_EX | libc::LOCK_NB));
    owner.cgroup_namespace == this.cgroup_namespace && !is_locked()
}

/// Identity of a process, unique since the boot.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    /// Start time in clock ticks since the boot.
    started: u64,
    pid_namespace: String,
    cgroup_namespace: String,
}

impl Owner {
    /// The calling process, with its start time and namespaces.
    fn this() -> Owner {
        let pid = std::process::id();
        let namespace = |kind: &str| {
            let link = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
            link.to_string_lossy().into_owned()
        };
        Owner {
            pid,
            started: start_time(pid).unwrap_or(0),
            pid_namespace: namespace("pid"),
            cgroup_namespace: namespace("cgroup"),
        }
    }

    /// Whether a process with this pid and start time exists in the caller's pid namespace.
    fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// The owner as the mark's text: pid, start time and both namespaces, with blanks between.
    fn print(&self) -> String {
        let Owner { pid, started, pid_namespace, cgroup_namespace } = self;
        format!("{pid} {started} {pid_namespace} {cgroup_namespace}")
    }

    /// Reads the text of a mark; `None` if it is not one.
    fn parse(text: &str) -> Option<Owner> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [pid, started, pid_namespace, cgroup_namespace] = parts[..] else { return None };
        Some(Owner {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
            pid_namespace: pid_namespace.to_owned(),
            cgroup_namespace: cgroup_namespace.to_owned(),
        })
    }
}

/// When a process started, clock ticks since boot; `None` if it does not exist or is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // A name may contain blanks. The fields behind it are counted from the third.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let is_there = !matches!(fields.first(), Some(&("Z" | "X")));
    fields.get(22 - 3)?.parse().ok().filter(|_| is_there)
}

/// Locks the folder by flock(2) with operation `how`, for as long as it stays open; returns whether
/// that succeeded.
fn flock(folder: &File, how: libc::c_int) -> bool {
    // SAFETY: the descriptor is the folder's.
    unsafe { libc::flock(folder.as_raw_fd(), how) == 0 }
}

/// Writes the owner into an extended attribute of the group: the first name of `MARKS` that can be
/// created. Failures are ignored.
fn mark(dir: &Path, owner: &Owner) {
    let Some(path) = c_string(dir) else { return };
    let text = owner.print();
    for name in MARKS.iter().filter_map(|name| CString::new(*name).ok()) {
        // SAFETY: path and name are C strings, the text is as long as that.
        let set = unsafe {
            let value = text.as_ptr().cast();
            libc::setxattr(path.as_ptr(), name.as_ptr(), value, text.len(), libc::XATTR_CREATE)
        };
        if set == 0 {
            return;
        }
    }
}

/// The owner that a group's extended attribute names; `None` without a readable one.
fn owner_of(dir: &Path) -> Option<Owner> {
    let path = c_string(dir)?;
    MARKS.iter().filter_map(|name| CString::new(*name).ok()).find_map(|name| {
        let mut bytes = [0u8; MAX_MARK_BYTES];
        // SAFETY: path and name are C strings, the bytes have room.
        let got = unsafe {
            let room = bytes.as_mut_ptr().cast();
            libc::getxattr(path.as_ptr(), name.as_ptr(), room, bytes.len())
        };
        let text = bytes.get(..usize::try_from(got).ok()?)?;
        Owner::parse(std::str::from_utf8(text).ok()?)
    })
}

/// The path for a system call; `None` if it contains a zero byte.
fn c_string(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_encoded_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let [first, second] = [new_name().unwrap(), new_name().unwrap()];
        assert_ne!(first, second);
        assert_eq!(pid_in(&first), Some(std::process::id()));
        for other in ["cpumax-99999", "cpumax-3-lent", "cpumax-3-0123", "cpumax-last", "a"] {
            assert_eq!(pid_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_differs_from_an_earlier_one_with_its_pid() {
        let this = Owner::this();
        assert!(this.is_alive() && this.started > 0);
        assert!(!Owner { started: this.started + 1, ..Owner::this() }.is_alive());
        assert_eq!(Owner::parse(&this.print()), Some(this));
        assert_eq!(Owner::parse("7 8 pid:[1]"), None);
        assert_eq!(Owner::parse("x 8 pid:[1] cgroup:[2]"), None);
    }
}
