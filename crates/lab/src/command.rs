//! Runs a program of the user on a real kernel: boots a virtual machine with the program in its
//! initramfs, and ends it with the program.

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

/// Patience for a program without a time limit.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Prefix of a dynamic loader's name; a program that is not static needs one in the machine.
const LOADERS: &str = "ld-";

/// A program to run on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Name of the kernel in `kernels.toml`.
    pub kernel: String,
    /// How time passes.
    pub mode: Mode,
    /// The program and its arguments. The program is taken from `files`, or else from this machine.
    pub words: Vec<String>,
    /// Files of this machine, and their absolute paths in the virtual machine.
    pub files: Vec<(PathBuf, String)>,
    /// More arguments for the kernel command line.
    pub kernel_arguments: String,
    /// Memory, MiB; `None`: as much as the files need.
    pub memory_mib: Option<u32>,
    /// Time limit of the program.
    pub patience: Option<Duration>,
}

impl Lab {
    /// Runs a program and passes each piece of its output to `written` (`true`: standard error).
    /// Returns its exit status; 128 plus the signal if one ended it.
    ///
    /// # Errors
    /// An unreadable file, a program without its libraries, a kernel not fetched, a kernel panic, a
    /// timeout, an interruption.
    pub fn run_command(
        &self,
        command: &Command,
        watch: &dyn Watch,
        mut written: impl FnMut(bool, &[u8]),
    ) -> Result<u8, Error> {
        let kernel = self.kernel(&command.kernel)?;
        let (files, words) = files_and_words(command)?;
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
        let ended = self.wait_for_exit(&mut vm, patience, command.patience, &mut written);
        let name = format!("{}-command", kernel.name);
        self.cache.with_console(ended, &vm.console(), &name)
    }

    fn wait_for_exit(
        &self,
        vm: &mut Vm,
        mut patience: Patience<'_>,
        time: Option<Duration>,
        written: &mut dyn FnMut(bool, &[u8]),
    ) -> Result<u8, Error> {
        let mut begun = false;
        loop {
            let said = vm.next_message(patience).map_err(|error| match (error, time) {
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

/// A file of the virtual machine: its path and content.
type Content = (String, Vec<u8>);

/// The files of the virtual machine, the program included, and the command to run there.
fn files_and_words(command: &Command) -> Result<(Vec<Content>, Vec<String>), Error> {
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

/// Memory for large files: each is in memory twice while the kernel unpacks it.
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
        let (files, words) = files_and_words(&command(&[name, "a"], &[])).unwrap();
        assert_eq!(words, ["/bin/x.sh", "a"]);
        assert_eq!(files, [("/bin/x.sh".to_owned(), b"#!/bin/sh\n".to_vec())]);
        for word in ["/usr/bin/y", "y"] {
            let (files, words) =
                files_and_words(&command(&[word], &[(&script, "/usr/bin/y")])).unwrap();
            assert_eq!((files.len(), words), (1, vec![word.to_owned()]));
        }
        let told = files_and_words(&command(&["./nothing"], &[])).unwrap_err().to_string();
        assert!(told.contains("nothing"), "{told}");
    }

    #[test]
    fn a_program_without_its_libraries_is_refused_before_the_boot() {
        let us = std::env::current_exe().unwrap();
        let told = files_and_words(&command(&[us.to_str().unwrap()], &[])).unwrap_err().to_string();
        assert!(told.contains("link it statically"), "{told}");
        let loaded = command(&[us.to_str().unwrap()], &[(&us, "/lib64/ld-linux.so")]);
        assert_eq!(files_and_words(&loaded).unwrap().0.len(), 2);
    }
}
