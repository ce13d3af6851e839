//! Whether the host's kernel can execute our machines (KVM). Its device is in some virtual machines
//! too, and starts nothing there, or takes minutes to boot. So the device is only a hint and a
//! kernel that has booted is the proof. Both that and a boot that failed count until the host
//! itself boots again, as its kernel and its CPUs may be others then.

use crate::Error;
use crate::cache::Cache;
use crate::whole::write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEVICE: &str = "/dev/kvm";
/// A number that is another one after each boot of the host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// `off` for machines that are emulated in any case.
const VARIABLE: &str = "CPUMAX_KVM";
/// A boot takes some two seconds, and the guest waits sixteen more for the kernel to settle.
pub const BOOT_TIME: Duration = Duration::from_secs(60);

/// Whether a boot is worth trying, or was tried with success.
pub fn may_work(cache: &Cache) -> bool {
    let is_off = std::env::var_os(VARIABLE).is_some_and(|value| value == "off");
    let opens = || File::options().read(true).write(true).open(DEVICE).is_ok();
    !is_off && opens() && !is_refused(&refusal(cache), &boot_id())
}

/// Remembers that a boot failed, and why, for whoever wonders.
///
/// # Errors
/// When that cannot be written.
pub fn refuse(cache: &Cache, why: &Error) -> Result<(), Error> {
    let path = refusal(cache);
    write(&path, &format!("{}\n{why}\n", boot_id())).map_err(Error::file("write", &path))
}

fn refusal(cache: &Cache) -> PathBuf {
    cache.folder().join("kvm-refused")
}

fn is_refused(path: &Path, boot_id: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.lines().next() == Some(boot_id))
}

/// Which boot of the host this is; empty where its kernel does not tell.
pub fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_holds_until_the_host_boots_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let path = refusal(&cache);
        assert!(!is_refused(&path, "this"));
        refuse(&cache, &Error::NoCache).unwrap();
        assert!(is_refused(&path, &boot_id()));
        assert!(!is_refused(&path, "another boot"));
        assert!(!may_work(&cache));
    }
}
