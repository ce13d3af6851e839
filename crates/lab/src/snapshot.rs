//! States of booted machines, kept as files: every run begins in the same state, and a kernel boots
//! once.
//!
//! A file fits one kernel, one guest and one QEMU; its name has a digest of these. The guest pauses
//! the machine where it waits for jobs (`hypervisor.rs` of the guest), so the state lies between
//! two instructions and does not depend on timing of the host.

use crate::Error;
use crate::cache::{Cache, Kernel};
use crate::initramfs;
use crate::kvm;
use crate::lock::Lock;
use crate::qemu::{self, Accelerator, Mode};
use crate::turns;
use crate::vm::{Begin, Machine, Patience, Vm};
use crate::whole::{link, write};
use cpumax_protocol::hypervisor::{PAUSE, SETTLE};
use cpumax_protocol::{FromGuest, Ready};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Seconds to wait after a boot: kernels from 7.1 on work for about 12 s after their start.
const SETTLE_S: u64 = 16;
/// Attempts at a boot; one in many crashed before `/init`.
const BOOT_ATTEMPTS: usize = 3;
/// Blanks by which the kernel command line grows with each attempt: an emulated machine that boots
/// from the same bytes does the same again.
const ATTEMPTS_APART_BYTES: usize = 61;
/// States kept for one kernel and mode, as several guests may be in use.
const KEPT: usize = 3;

/// State of a machine that has booted and waits for jobs.
#[derive(Debug)]
pub struct Snapshot {
    state: File,
    /// Properties of the machine, from its guest.
    pub ready: Ready,
}

/// Content of the file beside a state.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    /// Length of the state, bytes.
    state_bytes: u64,
    /// Properties of the machine, from its guest.
    ready: Ready,
}

/// Opens a file; `None` if there is no regular file with this name.
fn open(path: &Path) -> Result<Option<File>, Error> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() => File::open(path).map(Some).map_err(Error::file("read", path)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

/// Everything that a boot depends on.
#[derive(Debug, Clone, Copy)]
pub struct Boot<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// How time passes.
    pub mode: Mode,
    /// Emulation or KVM.
    pub accelerator: Accelerator,
    /// The guest program, which becomes `/init`.
    pub guest: &'a [u8],
    /// More arguments for the kernel command line.
    pub kernel_arguments: &'a str,
    /// Version of QEMU, from its own output.
    pub qemu_version: &'a str,
}

impl Snapshot {
    /// Returns the kept state, or boots a machine and keeps its state. Calls `told` before a boot.
    ///
    /// # Errors
    /// The machine does not boot, or its state cannot be saved.
    pub fn load_or_boot(
        boot: &Boot<'_>,
        cache: &Cache,
        stop: &dyn Fn() -> bool,
        told: &dyn Fn(),
    ) -> Result<Snapshot, Error> {
        let (kernel, mode) = (&boot.kernel.name, boot.mode.name());
        let stem = format!("{kernel}-{mode}-");
        let state = boot.state_path(cache);
        let folder = state.parent().map(Path::to_owned).unwrap_or_default();
        if let Some(kept) = Snapshot::load(&state)? {
            return Ok(kept);
        }
        fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
        let _alone = Lock::take(&state.with_extension("lock"), stop)?;
        if let Some(kept) = Snapshot::load(&state)? {
            return Ok(kept);
        }
        told();
        remove_stale(&folder);
        let mut console = String::new();
        let made = boot.boot_and_save(&folder, &state, stop, &mut console);
        if boot.accelerator == Accelerator::Kvm {
            // The caller falls back to an emulated machine.
            made?;
        } else {
            cache.with_console(made, &console, &format!("{kernel}-{mode}-boot"))?;
        }
        remove_old(&folder, &stem);
        let made = Snapshot::load(&state)?;
        made.ok_or_else(|| Error::file("read", &state)(io::ErrorKind::NotFound.into()))
    }

    /// The kept state; `None` if a file is missing or incomplete.
    fn load(state: &Path) -> Result<Option<Snapshot>, Error> {
        let Some(about) = open(&state.with_extension("json"))? else { return Ok(None) };
        let Ok(about) = serde_json::from_reader::<_, About>(BufReader::new(about)) else {
            return Ok(None);
        };
        let Some(file) = open(state)? else { return Ok(None) };
        let bytes = file.metadata().map_err(Error::file("read", state))?.len();
        let is_whole = bytes == about.state_bytes;
        Ok(is_whole.then_some(Snapshot { state: file, ready: about.ready }))
    }

    /// Removes a state that cannot be restored.
    pub fn discard(boot: &Boot<'_>, cache: &Cache) {
        remove(&boot.state_path(cache), &["vm", "json"]);
    }

    /// Starts a machine in this state with these jobs.
    ///
    /// # Errors
    /// QEMU cannot restore the state.
    pub fn start(self, boot: &Boot<'_>, jobs: &str, stop: &dyn Fn() -> bool) -> Result<Vm, Error> {
        boot.restore(self.state, jobs, stop)
    }
}

impl Boot<'_> {
    /// Path of the state's file.
    fn state_path(&self, cache: &Cache) -> PathBuf {
        let name = format!("{}-{}-{}.vm", self.kernel.name, self.mode.name(), self.digest(&[]));
        cache.folder().join("snapshots").join(name)
    }

    fn arguments(&self) -> String {
        format!("{SETTLE}={SETTLE_S} {}", self.kernel_arguments)
    }

    fn machine<'a>(
        &'a self,
        initramfs: &'a [u8],
        arguments: &'a str,
        jobs: &'a str,
    ) -> Machine<'a> {
        let image = &self.kernel.image;
        Machine {
            mode: self.mode,
            accelerator: self.accelerator,
            image,
            initramfs,
            kernel_arguments: arguments,
            memory_mib: None,
            jobs,
        }
    }

    /// Digest of everything that the state depends on, and of `more`; 16 hexadecimal digits.
    pub fn digest(&self, more: &[&[u8]]) -> String {
        let mut digest = Sha256::new();
        let origin = &self.kernel.origin;
        let mut part = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        part(origin.release.as_bytes());
        part(origin.package_version.as_bytes());
        for (package, sum) in &origin.packages {
            part(package.as_bytes());
            part(sum.as_bytes());
        }
        part(self.guest);
        part(self.qemu_version.as_bytes());
        part(qemu::machine_arguments(self.mode, self.accelerator).join(" ").as_bytes());
        part(qemu::kernel_arguments(self.mode, self.accelerator).as_bytes());
        part(self.arguments().as_bytes());
        match (self.accelerator, self.mode) {
            (Accelerator::Kvm, _) => part(kvm::boot_id().as_bytes()),
            (Accelerator::Emulated, Mode::Parallel { .. }) => part(turns::SOURCE.as_bytes()),
            (Accelerator::Emulated, Mode::Exact) => {}
        }
        for bytes in more {
            part(bytes);
        }
        let start =
            digest.finalize().iter().take(8).fold(0, |sum: u64, &b| sum << 8 | u64::from(b));
        format!("{start:016x}")
    }

    fn restore(&self, mut state: File, jobs: &str, stop: &dyn Fn() -> bool) -> Result<Vm, Error> {
        let (reader, mut writer) = io::pipe().map_err(Error::file("make", "a pipe".as_ref()))?;
        let arguments = self.arguments();
        let machine = self.machine(&[], &arguments, jobs);
        let mut vm = Vm::start(&machine, Begin::Restore(reader))?;
        // The thread ends when the state is read or QEMU is gone. QEMU reports an incomplete state.
        thread::spawn(move || io::copy(&mut state, &mut writer));
        vm.resume(Patience { deadline: Instant::now() + boot_time(self.mode), stop })?;
        Ok(vm)
    }

    /// Boots a machine and saves its state. Repeats a boot that fails before the guest speaks.
    /// `console` gets the console of a failed boot.
    fn boot_and_save(
        &self,
        folder: &Path,
        state: &Path,
        stop: &dyn Fn() -> bool,
        console: &mut String,
    ) -> Result<(), Error> {
        let initramfs = initramfs::build([("init", self.guest)]);
        let mut attempt = 1;
        loop {
            let later = " ".repeat((attempt - 1) * ATTEMPTS_APART_BYTES);
            match self.try_boot(&initramfs, &later, folder, state, stop, console) {
                Err(Error::Panic { .. } | Error::Vm { .. })
                    if attempt < BOOT_ATTEMPTS && self.accelerator != Accelerator::Kvm =>
                {
                    attempt += 1;
                }
                ended => return ended,
            }
        }
    }

    fn try_boot(
        &self,
        initramfs: &[u8],
        later: &str,
        folder: &Path,
        state: &Path,
        stop: &dyn Fn() -> bool,
        console: &mut String,
    ) -> Result<(), Error> {
        let (mut reader, writer) = io::pipe().map_err(Error::file("make", "a pipe".as_ref()))?;
        // The file has no name until it is complete, so nothing is left if we are killed.
        let mut partial = tempfile::tempfile_in(folder).map_err(Error::file("write in", folder))?;
        let arguments = self.arguments() + later;
        let machine = self.machine(initramfs, &arguments, PAUSE);
        let mut vm = Vm::start(&machine, Begin::Boot)?;
        let boot_time = match self.accelerator {
            Accelerator::Emulated => boot_time(self.mode),
            Accelerator::Kvm => kvm::BOOT_TIME,
        };
        let patience = || Patience { deadline: Instant::now() + boot_time, stop };
        vm.wait_until_stopped(patience()).inspect_err(|_| *console = vm.console())?;
        let written = thread::scope(|scope| {
            let file = &mut partial;
            // The thread takes the reader with it, even if the disk is full; otherwise QEMU would
            // wait for the reader for ever.
            let copy = scope.spawn(move || io::copy(&mut reader, file));
            let saved = vm.save(writer, stop);
            // Closes the pipe, which ends the copy.
            drop(vm);
            let copied = copy.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            // The copy knows of a full disk, QEMU only of a closed pipe.
            copied.map_err(full_or_file(folder)).and(saved)
        });
        written?;
        // Try to restore the state: one that cannot be restored is not kept.
        let state_again = partial.seek(SeekFrom::Start(0)).and_then(|_| partial.try_clone());
        let state_again = state_again.map_err(Error::file("read in", folder))?;
        let mut again = self.restore(state_again, PAUSE, stop)?;
        // The patience begins anew: on a busy host the boot may have used up the first.
        let ready =
            first_message(&mut again, patience()).inspect_err(|_| *console = again.console())?;
        // An old file is incomplete.
        remove(state, &["vm", "json"]);
        let path = state.with_extension("json");
        let state_bytes = partial.metadata().map_err(Error::file("read in", folder))?.len();
        let text = serde_json::to_string(&About { state_bytes, ready }).map_err(io::Error::other);
        text.and_then(|text| write(&path, &text)).map_err(Error::file("write", &path))?;
        link(&mut partial, state).map_err(Error::file("make", state))
    }
}

/// The error for a state that cannot be written.
fn full_or_file(folder: &Path) -> impl FnOnce(io::Error) -> Error {
    let folder = folder.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::StorageFull => Error::Full { path: folder },
        _ => Error::file("write in", &folder)(error),
    }
}

/// Waits for the guest's first message.
fn first_message(vm: &mut Vm, patience: Patience<'_>) -> Result<Ready, Error> {
    loop {
        match vm.next_message(patience)? {
            FromGuest::Ready(ready) => return Ok(ready),
            FromGuest::Failed { reason } => return Err(Error::Guest { reason }),
            _ => {}
        }
    }
}

/// Time limit of a boot, several times its usual length: 10 s with one CPU, 40 s with 64. Time in
/// which the machine waits for a host CPU does not count.
pub fn boot_time(mode: Mode) -> Duration {
    Duration::from_secs(90 + 4 * u64::from(mode.cpus()))
}

/// Removes all but the newest [`KEPT`] states of a kernel and mode. A state in use stays open for
/// its user.
fn remove_old(folder: &Path, stem: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_state = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        // Only the digest follows.
        let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".vm"));
        rest.is_some_and(|rest| !rest.contains('-'))
    };
    let age = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    let mut states: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_state).collect();
    states.sort_by_key(|path| std::cmp::Reverse(age(path)));
    for path in states.iter().skip(KEPT) {
        remove(path, &["vm", "json"]);
    }
}

/// Removes files of processes that were killed while they made a state.
fn remove_stale(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_left = match extension {
            Some("lock" | "copy") => true,
            Some("json") => !path.with_extension("vm").exists(),
            _ => false,
        };
        // A held lock means that a process is still at work.
        if is_left && let Ok(Some(_lock)) = Lock::try_take(&path.with_extension("lock")) {
            remove(&path, &["copy"]);
            if !path.with_extension("vm").exists() {
                remove(&path, &["json"]);
            }
        }
    }
}

fn remove(path: &Path, extensions: &[&str]) {
    for extension in extensions {
        let path = path.with_extension(extension);
        // A file that cannot be removed now can be removed the next time.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_state_counts_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a.vm");
        let about = state.with_extension("json");
        let is_kept = || Snapshot::load(&state).unwrap().is_some();
        assert!(!is_kept());
        fs::write(&state, "state").unwrap();
        assert!(!is_kept());
        fs::write(&about, "{\"state_bytes\":").unwrap();
        assert!(!is_kept());
        let whole = About { state_bytes: 5, ready: Ready::default() };
        fs::write(&about, serde_json::to_string(&whole).unwrap()).unwrap();
        assert!(is_kept());
        for part in ["", "stat"] {
            fs::write(&state, part).unwrap();
            assert!(!is_kept(), "{part:?}");
        }
        remove(&state, &["vm"]);
        fs::create_dir_all(state.join("a")).unwrap();
        assert!(!is_kept());
        fs::remove_file(&about).unwrap();
        fs::create_dir(&about).unwrap();
        assert!(!is_kept());
        remove(&state, &["vm", "json"]);
        assert!(!state.exists() && !about.exists());
    }

    #[test]
    fn files_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.lock", "a.json", "a.copy", "b.vm", "b.json", "b.lock", "c.json"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let at_work = Lock::take(&folder.path().join("c.lock"), &|| false).unwrap();
        remove_stale(folder.path());
        drop(at_work);
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["b.json", "b.vm", "c.json"]);
    }
}
