//! Machines that have booted, kept as files: every run begins in the same state, and a boot is paid
//! once.
//!
//! A file is good for one kernel, one guest and one QEMU; its name has a digest of all that. The
//! guest stops itself where it waits for jobs (`hypervisor.rs` of the guest), so the state is that
//! between two instructions, and not one of some moment of the host.

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

/// Start-up work of the kernel goes on for about 12 s on 7.1 and later.
const SETTLE_S: u64 = 16;
/// A crash before `/init` was seen once in many boots.
const BOOT_ATTEMPTS: usize = 3;
/// How much longer the kernel's command line is each time, by blanks: an emulated machine that
/// boots the same does the same.
const ATTEMPTS_APART_BYTES: usize = 61;
/// Files kept for one kernel and mode: several guests may be in use at a time.
const KEPT: usize = 3;

/// A machine that has booted and waits for jobs.
#[derive(Debug)]
pub struct Snapshot {
    state: File,
    /// What its guest said of itself.
    pub ready: Ready,
}

/// What is kept beside a state.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    /// How long the state is.
    state_bytes: u64,
    /// What its guest said of itself.
    ready: Ready,
}

/// A file, if there is one; anything else of that name is none.
fn open(path: &Path) -> Result<Option<File>, Error> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() => File::open(path).map(Some).map_err(Error::file("read", path)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path)(error)),
    }
}

/// What a machine boots.
#[derive(Debug, Clone, Copy)]
pub struct Boot<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// How time passes.
    pub mode: Mode,
    /// Who executes it.
    pub accelerator: Accelerator,
    /// The program that becomes `/init`.
    pub guest: &'a [u8],
    /// More for the kernel's command line.
    pub kernel_arguments: &'a str,
    /// What QEMU says of its version.
    pub qemu_version: &'a str,
}

impl Snapshot {
    /// The one that is kept, or a new one. `told` is called before something boots.
    ///
    /// # Errors
    /// What keeps the machine from booting, or its state from being kept.
    pub fn of(
        boot: &Boot<'_>,
        cache: &Cache,
        stop: &dyn Fn() -> bool,
        told: &dyn Fn(),
    ) -> Result<Snapshot, Error> {
        let (kernel, mode) = (&boot.kernel.name, boot.mode.name());
        let stem = format!("{kernel}-{mode}-");
        let state = boot.state(cache);
        let folder = state.parent().map(Path::to_owned).unwrap_or_default();
        if let Some(kept) = Snapshot::kept(&state)? {
            return Ok(kept);
        }
        fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
        let _alone = Lock::take(&state.with_extension("lock"), stop)?;
        if let Some(kept) = Snapshot::kept(&state)? {
            return Ok(kept);
        }
        told();
        sweep(&folder);
        let mut console = String::new();
        let made = boot.make(&folder, &state, stop, &mut console);
        if boot.accelerator == Accelerator::Kvm {
            // An emulated machine comes after one that fails.
            made?;
        } else {
            cache.with_console(made, &console, &format!("{kernel}-{mode}-boot"))?;
        }
        prune(&folder, &stem);
        let made = Snapshot::kept(&state)?;
        made.ok_or_else(|| Error::file("read", &state)(io::ErrorKind::NotFound.into()))
    }

    /// One of which not all is there and whole is none.
    fn kept(state: &Path) -> Result<Option<Snapshot>, Error> {
        let Some(about) = open(&state.with_extension("json"))? else { return Ok(None) };
        let Ok(about) = serde_json::from_reader::<_, About>(BufReader::new(about)) else {
            return Ok(None);
        };
        let Some(file) = open(state)? else { return Ok(None) };
        let bytes = file.metadata().map_err(Error::file("read", state))?.len();
        let is_whole = bytes == about.state_bytes;
        Ok(is_whole.then_some(Snapshot { state: file, ready: about.ready }))
    }

    /// Removes the one that is kept: it cannot be restored.
    pub fn discard(boot: &Boot<'_>, cache: &Cache) {
        remove(&boot.state(cache), &["vm", "json"]);
    }

    /// A machine in this state that has these jobs to do.
    ///
    /// # Errors
    /// When QEMU cannot restore it.
    pub fn start(self, boot: &Boot<'_>, jobs: &str, stop: &dyn Fn() -> bool) -> Result<Vm, Error> {
        boot.restore(self.state, jobs, stop)
    }
}

impl Boot<'_> {
    /// The file that the state is kept in.
    fn state(&self, cache: &Cache) -> PathBuf {
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

    /// Of everything that the state depends on, and of what else is given.
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
        part(qemu::machine(self.mode, self.accelerator).join(" ").as_bytes());
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
        // It ends when the state is read or the machine is gone; a machine that got half of it says
        // so.
        thread::spawn(move || io::copy(&mut state, &mut writer));
        vm.resume(Patience { deadline: Instant::now() + boot_time(self.mode), stop })?;
        Ok(vm)
    }

    /// Boots and saves; a boot that fails before the guest speaks is tried again. Of one that fails
    /// `console` has what it said.
    fn make(
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
            match self.attempt(&initramfs, &later, folder, state, stop, console) {
                Err(Error::Panic { .. } | Error::Vm { .. })
                    if attempt < BOOT_ATTEMPTS && self.accelerator != Accelerator::Kvm =>
                {
                    attempt += 1;
                }
                ended => return ended,
            }
        }
    }

    fn attempt(
        &self,
        initramfs: &[u8],
        later: &str,
        folder: &Path,
        state: &Path,
        stop: &dyn Fn() -> bool,
        console: &mut String,
    ) -> Result<(), Error> {
        let (mut reader, writer) = io::pipe().map_err(Error::file("make", "a pipe".as_ref()))?;
        // Without a name until it is whole: if we are killed, nothing is left of it.
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
            // It takes the reader with it, also when the disk is full: else the machine would wait
            // for it for ever.
            let copy = scope.spawn(move || io::copy(&mut reader, file));
            let saved = vm.save(writer, stop);
            // Closes the pipe, which ends the copy.
            drop(vm);
            let copied = copy.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            // When the disk is full the copy knows it, the machine only that nobody listens.
            copied.map_err(full_or_file(folder)).and(saved)
        });
        written?;
        // What cannot be restored is not kept.
        let state_again = partial.seek(SeekFrom::Start(0)).and_then(|_| partial.try_clone());
        let state_again = state_again.map_err(Error::file("read in", folder))?;
        let mut again = self.restore(state_again, PAUSE, stop)?;
        // Where the host is busy the boot may have taken longer than it was given, for which this
        // machine did not wait.
        let ready = greeting(&mut again, patience()).inspect_err(|_| *console = again.console())?;
        // What is there is not whole.
        remove(state, &["vm", "json"]);
        let path = state.with_extension("json");
        let state_bytes = partial.metadata().map_err(Error::file("read in", folder))?.len();
        let text = serde_json::to_string(&About { state_bytes, ready }).map_err(io::Error::other);
        text.and_then(|text| write(&path, &text)).map_err(Error::file("write", &path))?;
        link(&mut partial, state).map_err(Error::file("make", state))
    }
}

/// Why a state cannot be written.
fn full_or_file(folder: &Path) -> impl FnOnce(io::Error) -> Error {
    let folder = folder.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::StorageFull => Error::Full { path: folder },
        _ => Error::file("write in", &folder)(error),
    }
}

/// What the guest says of itself.
fn greeting(vm: &mut Vm, patience: Patience<'_>) -> Result<Ready, Error> {
    loop {
        match vm.next(patience)? {
            FromGuest::Ready(ready) => return Ok(ready),
            FromGuest::Failed { reason } => return Err(Error::Guest { reason }),
            _ => {}
        }
    }
}

/// Several times what a boot takes, 10 s with one CPU and 40 s with 64. What a machine waits for a
/// CPU of the host does not count.
pub fn boot_time(mode: Mode) -> Duration {
    Duration::from_secs(90 + 4 * u64::from(mode.cpus()))
}

/// Removes all but the newest states of a kernel and mode. One that is in use stays open for its
/// user.
fn prune(folder: &Path, stem: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_state = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        // After it comes the digest, and nothing else.
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

/// Removes what processes left that were killed while they made a state.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_left = match extension {
            Some("lock" | "copy") => true,
            Some("json") => !path.with_extension("vm").exists(),
            _ => false,
        };
        // Where somebody is at work it is not left.
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
        // It can be removed the next time as well.
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_which_not_all_is_whole_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a.vm");
        let about = state.with_extension("json");
        let is_kept = || Snapshot::kept(&state).unwrap().is_some();
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
    fn what_killed_processes_left_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.lock", "a.json", "a.copy", "b.vm", "b.json", "b.lock", "c.json"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let at_work = Lock::take(&folder.path().join("c.lock"), &|| false).unwrap();
        sweep(folder.path());
        drop(at_work);
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["b.json", "b.vm", "c.json"]);
    }
}
