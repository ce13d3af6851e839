//! A program of the user's own on a real kernel: booted with it in the first file system, run, and
//! gone.

use crate::Error;
use crate::guest::is_static;
use crate::initramfs;
use crate::qemu::{Accelerator, Mode};
use crate::runner::{Lab, Watch};
use crate::snapshot::boot_time;
use crate::vm::{Begin, Machine, Patience, Vm};
use cpumax_protocol::{self as protocol, FromGuest, ToGuest};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Without one of the user's own; nobody waits longer.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// What loads programs that are not static; it must be in the machine then.
const LOADERS: &str = "ld-";

/// What to run, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Name of the kernel in `kernels.toml`.
    pub kernel: String,
    /// How time passes.
    pub mode: Mode,
    /// The program and its arguments. A program that `files` does not bring is one of this machine.
    pub words: Vec<String>,
    /// Files of this machine, and their absolute paths in the virtual one.
    pub files: Vec<(PathBuf, String)>,
    /// More for the kernel's command line.
    pub kernel_arguments: String,
    /// Memory, MiB, if not what is usual.
    pub memory_mib: Option<u32>,
    /// How long the program may take.
    pub patience: Option<Duration>,
}

impl Lab {
    /// Runs it, hands on what it writes (to its standard error: `true`), and gives its exit status
    /// as shells tell it.
    ///
    /// # Errors
    /// A file that cannot be read, a program that needs what is not there, a kernel that is not
    /// here; a panic, a machine that takes too long, an interruption.
    pub fn run_command(
        &self,
        command: &Command,
        watch: &dyn Watch,
        mut written: impl FnMut(bool, &[u8]),
    ) -> Result<u8, Error> {
        let kernel = self.kernel(&command.kernel)?;
        let (files, words) = contents(command)?;
        let size_bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
        let guest = ("init", self.guest.bytes.as_slice());
        let others = files.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
        let initramfs = initramfs::build(std::iter::once(guest).chain(others));
        drop(files);
        let message = ToGuest::Command(protocol::Command { words });
        let jobs = serde_json::to_string(&message)
            .map_err(|error| Error::Guest { reason: error.to_string() })?;
        let machine = Machine {
            mode: command.mode,
            accelerator: Accelerator::Emulated,
            image: &kernel.image,
            initramfs: &initramfs,
            kernel_arguments: &command.kernel_arguments,
            memory_mib: command.memory_mib.or_else(|| memory_mib(command.mode, size_bytes)),
            jobs: &jobs,
        };
        let stop = || watch.stopped();
        let mut vm = Vm::start(&machine, Begin::Boot)?;
        let boot_time = boot_time(command.mode);
        let patience = Patience { deadline: Instant::now() + boot_time, stop: &stop };
        let ended = self.follow(&mut vm, patience, command.patience, &mut written);
        let name = format!("{}-command", kernel.name);
        self.cache.with_console(ended, &vm.console(), &name)
    }

    fn follow(
        &self,
        vm: &mut Vm,
        mut patience: Patience<'_>,
        time: Option<Duration>,
        written: &mut dyn FnMut(bool, &[u8]),
    ) -> Result<u8, Error> {
        let mut begun = false;
        loop {
            let said = vm.next(patience).map_err(|error| match (error, time) {
                (Error::Hung { console, .. }, Some(time)) if begun => {
                    Error::TimedOut { seconds: time.as_secs_f64(), console }
                }
                (error, _) => error,
            });
            match said? {
                FromGuest::Ready(ready) if ready.protocol != protocol::VERSION => {
                    let path = self.guest.path.clone();
                    let (theirs, ours) = (ready.protocol, protocol::VERSION);
                    return Err(Error::OtherProtocol { path, theirs, ours });
                }
                FromGuest::Ready(_) => {
                    begun = true;
                    patience.deadline = Instant::now() + time.unwrap_or(PATIENCE);
                }
                FromGuest::Progress(_) | FromGuest::Result(_) => {}
                FromGuest::Output { is_error, text } => {
                    let bytes: Vec<u8> =
                        text.chars().filter_map(|c| u8::try_from(c).ok()).collect();
                    written(is_error, &bytes);
                }
                FromGuest::Exited { status } => return Ok(status),
                FromGuest::Refused { reason } => return Err(Error::Refused { reason }),
                FromGuest::Failed { reason } => return Err(Error::Guest { reason }),
            }
        }
    }
}

/// A file of the machine: its path and what is in it.
type Content = (String, Vec<u8>);

/// The files of the machine, with the program among them, and the command as it is called there.
fn contents(command: &Command) -> Result<(Vec<Content>, Vec<String>), Error> {
    let mut files = Vec::new();
    for (host, guest) in &command.files {
        files.push((guest.clone(), read(host)?));
    }
    let mut words = command.words.clone();
    let Some(program) = words.first_mut() else {
        return Err(Error::Refused { reason: "no command".to_owned() });
    };
    let is_it = |guest: &str| guest == program || guest.rsplit('/').next() == Some(program);
    if !files.iter().any(|(guest, _)| is_it(guest)) {
        let host = PathBuf::from(&*program);
        let content = read(&host)?;
        let name = host.file_name().unwrap_or_default().to_string_lossy();
        *program = format!("/bin/{name}");
        let is_loaded = files.iter().any(|(guest, _)| file_name(guest).starts_with(LOADERS));
        if content.starts_with(b"\x7fELF") && !is_static(&content) && !is_loaded {
            let reason =
                "needs shared libraries, which the virtual machine does not have: link it \
                          statically, or bring its loader and libraries with --file"
                    .to_owned();
            return Err(Error::Malformed { path: host, reason });
        }
        files.push((program.clone(), content));
    }
    Ok((files, words))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::file("read", path))
}

/// Files are there twice while the kernel unpacks them, and the program wants to work.
fn memory_mib(mode: Mode, size_bytes: usize) -> Option<u32> {
    let files_mib = u32::try_from(size_bytes >> 20).unwrap_or(u32::MAX);
    (files_mib > 16)
        .then(|| (256 + 8 * u32::from(mode.cpus())).saturating_add(files_mib.saturating_mul(3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str], files: &[(&Path, &str)]) -> Command {
        Command {
            kernel: "6.12".to_owned(),
            mode: Mode::Exact,
            words: words.iter().map(|&word| word.to_owned()).collect(),
            files: files.iter().map(|&(host, guest)| (host.into(), guest.to_owned())).collect(),
            kernel_arguments: String::new(),
            memory_mib: None,
            patience: None,
        }
    }

    #[test]
    fn a_program_comes_from_here_unless_a_file_brings_it() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("x.sh");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let name = script.to_str().unwrap();
        let (files, words) = contents(&command(&[name, "a"], &[])).unwrap();
        assert_eq!(words, ["/bin/x.sh", "a"]);
        assert_eq!(files, [("/bin/x.sh".to_owned(), b"#!/bin/sh\n".to_vec())]);
        for word in ["/usr/bin/y", "y"] {
            let (files, words) = contents(&command(&[word], &[(&script, "/usr/bin/y")])).unwrap();
            assert_eq!((files.len(), words), (1, vec![word.to_owned()]));
        }
        let told = contents(&command(&["./nothing"], &[])).unwrap_err().to_string();
        assert!(told.contains("nothing"), "{told}");
    }

    #[test]
    fn a_program_that_needs_libraries_is_told_before_anything_boots() {
        let us = std::env::current_exe().unwrap();
        let told = contents(&command(&[us.to_str().unwrap()], &[])).unwrap_err().to_string();
        assert!(told.contains("link it statically"), "{told}");
        let loaded = command(&[us.to_str().unwrap()], &[(&us, "/lib64/ld-linux.so")]);
        assert_eq!(contents(&loaded).unwrap().0.len(), 2);
    }
}
