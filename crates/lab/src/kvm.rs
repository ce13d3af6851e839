//! Whether KVM works on this host. The device `/dev/kvm` is only a hint: in some virtual machines
//! it starts nothing, or takes minutes to boot. The proof is a kernel that has booted. Success and
//! failure count until the host boots again, which may change its kernel or CPUs.

use crate::Error;
use crate::cache::Cache;
use crate::whole::write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DEVICE: &str = "/dev/kvm";
/// A number that changes with each boot of the host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The value `off` disables KVM.
const VARIABLE: &str = "CPUMAX_KVM";
/// A boot takes about 2 s, and the guest waits 16 s for the kernel to settle.
pub const BOOT_TIME: Duration = Duration::from_secs(60);

/// Whether KVM is worth a try: it is not disabled, its device opens, and no boot of it has failed.
pub fn may_work(cache: &Cache) -> bool {
    let is_off = std::env::var_os(VARIABLE).is_some_and(|value| value == "off");
    let opens = || File::options().read(true).write(true).open(DEVICE).is_ok();
    !is_off && opens() && !has_failed(&failure_file(cache), &boot_id())
}

/// Writes a file that notes a failed boot and its error; [`may_work`] is false from then on.
///
/// # Errors
/// The file cannot be written.
pub fn note_failed_boot(cache: &Cache, why: &Error) -> Result<(), Error> {
    let path = failure_file(cache);
    write(&path, &format!("{}\n{why}\n", boot_id())).map_err(Error::file("write", &path))
}

fn failure_file(cache: &Cache) -> PathBuf {
    cache.folder().join("kvm-refused")
}

fn has_failed(path: &Path, boot_id: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.lines().next() == Some(boot_id))
}

/// Number of the host's current boot; empty where the kernel does not tell.
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
        let path = failure_file(&cache);
        assert!(!has_failed(&path, "this"));
        note_failed_boot(&cache, &Error::NoCache).unwrap();
        assert!(has_failed(&path, &boot_id()));
        assert!(!has_failed(&path, "another boot"));
        assert!(!may_work(&cache));
    }
}
