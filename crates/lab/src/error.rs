//! Errors of the lab. Each text tells the reader what to do about it.

use cpumax_limit::shown;
use std::io;
use std::path::{Path, PathBuf};

/// Why the lab cannot do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read, made or written.
    #[error("{}: cannot {what}: {source}", shown(path))]
    File {
        /// The failed action, e.g. `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The host's processor is not the one of the lab's kernels.
    #[error(
        "the lab's kernels are for x86-64, and this machine is {}: use one that is",
        std::env::consts::ARCH
    )]
    Architecture,
    /// A needed program is not installed.
    #[error("{program} is not installed; on Debian or Ubuntu: apt-get install {package}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
    },
    /// An installed program could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Name of the program.
        program: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The disk of this folder is full.
    #[error(
        "{}: the disk is full. A fetch needs up to 300 MiB, a fetched kernel 20 MiB and a booted \
         machine 100 MiB: make room, or set XDG_CACHE_HOME to a folder on another disk",
        shown(path)
    )]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// apt failed.
    #[error("apt cannot {what}: {said}")]
    Apt {
        /// The failed action, e.g. `read the lists of packages`.
        what: String,
        /// apt's own errors and warnings.
        said: String,
    },
    /// The keyring lacks a key that signs a suite.
    #[error(
        "{} lacks the keys that sign {suites}; install a newer debian-archive-keyring, or name \
         another keyring with --keyring",
        shown(keyring)
    )]
    UnknownKey {
        /// The keyring that was used.
        keyring: PathBuf,
        /// The suites asked for.
        suites: String,
    },
    /// The machine's apt has no Debian mirror.
    #[error(
        "apt on this machine has no Debian mirror configured; name one with --mirror, e.g. \
         --mirror http://MIRROR/debian"
    )]
    NoMirror,
    /// No package of that version is left on the mirror.
    #[error("kernel {name} ({flavour}) is no longer in {suites}")]
    Gone {
        /// Name in `kernels.toml`.
        name: String,
        /// Its flavour.
        flavour: String,
        /// Suites that were searched.
        suites: String,
    },
    /// A kernel package lacks a file.
    #[error("{package} has no {file}")]
    Unpack {
        /// The package's name.
        package: String,
        /// The missing file.
        file: &'static str,
    },
    /// A name that is not in `kernels.toml`.
    #[error("the lab has no kernel {name:?}; it has {known}")]
    UnknownKernel {
        /// The given name.
        name: String,
        /// All names of the catalog.
        known: String,
    },
    /// A kernel that has not been fetched yet.
    #[error("kernel {name} is not here yet; get it with: cpumax lab fetch {name}")]
    NotFetched {
        /// Name in `kernels.toml`.
        name: String,
    },
    /// A file has the wrong content.
    #[error("{}: {reason}", shown(path))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The reason, and what would be accepted.
        reason: String,
    },
    /// A kernel's image is incomplete, or differs from the fetched one.
    #[error("{} is not what was fetched: `cpumax lab fetch {name}` gets it again", shown(path))]
    Damaged {
        /// The image.
        path: PathBuf,
        /// Name of the kernel.
        name: String,
    },
    /// The guest's kernel panicked.
    #[error("the kernel panicked; the end of its console:\n{console}")]
    Panic {
        /// The last lines of its console.
        console: String,
    },
    /// The guest sent no message for too long.
    #[error(
        "no answer from the virtual machine for {seconds} s; the end of its console:\n{console}"
    )]
    Hung {
        /// Time since the start of the machine, s.
        seconds: u64,
        /// The last lines of its console.
        console: String,
    },
    /// A command did not end within its time limit.
    #[error(
        "the command did not end within {seconds} s, its time limit; the end of the console:\n\
         {console}"
    )]
    TimedOut {
        /// The time limit, s.
        seconds: f64,
        /// The last lines of the console.
        console: String,
    },
    /// QEMU ended, or refused a command.
    #[error("the virtual machine failed: {said}; the end of its console:\n{console}")]
    Vm {
        /// QEMU's own error.
        said: String,
        /// The last lines of its console.
        console: String,
    },
    /// Another error, with its whole console in a file.
    #[error("{error}\n(the whole console is in {})", shown(path))]
    Kept {
        /// The error.
        error: Box<Error>,
        /// File with the console.
        path: PathBuf,
    },
    /// The machine cannot run the scenario.
    #[error("{reason}")]
    Refused {
        /// The part of the scenario that it cannot do, and why.
        reason: String,
    },
    /// The guest failed; the scenario is not to blame.
    #[error("the guest failed: {reason}")]
    Guest {
        /// The guest's own error.
        reason: String,
    },
    /// The guest speaks another version of the protocol than this program.
    #[error(
        "{} speaks version {theirs} of the protocol, and this program version {ours}: build the \
         guest again with `make guest`",
        shown(path)
    )]
    OtherProtocol {
        /// The guest.
        path: PathBuf,
        /// The guest's version.
        theirs: u32,
        /// This program's version.
        ours: u32,
    },
    /// There is no guest program.
    #[error(
        "there is no guest program at {}{named}; `make guest` builds it, and $CPUMAX_GUEST can \
         name another path",
        shown(path)
    )]
    NoGuest {
        /// The last path that was tried.
        path: PathBuf,
        /// Text that tells where the path comes from, or empty.
        named: &'static str,
    },
    /// A file with the guest's path cannot be the guest.
    #[error(
        "{}{named} {what}; build the guest with `make guest` in the folder of the sources",
        shown(path)
    )]
    OtherGuest {
        /// The file.
        path: PathBuf,
        /// Text that tells where the path comes from, or empty.
        named: &'static str,
        /// Text that tells why not.
        what: &'static str,
    },
    /// The user interrupted the program.
    #[error("interrupted")]
    Interrupted,
    /// No environment variable names a folder for the cache.
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no place to keep kernels")]
    NoCache,
}

impl Error {
    /// Whether a command did not end within its time limit.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::TimedOut { .. } => true,
            Error::Kept { error, .. } => error.is_timeout(),
            _ => false,
        }
    }

    /// For `map_err`: makes the error of a file operation.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { what, path, source }
    }

    /// For `map_err`: makes the error of a program start.
    pub(crate) fn start(
        program: &'static str,
        package: &'static str,
    ) -> impl FnOnce(io::Error) -> Error {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Error::Missing { program, package },
            _ => Error::Start { program, source },
        }
    }
}
