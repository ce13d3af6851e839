//! What goes wrong in the lab, told so that the reader knows what to do about it.

use cpumax_limit::shown;
use std::io;
use std::path::{Path, PathBuf};

/// Why the lab cannot do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder that cannot be read, made or written.
    #[error("{}: cannot {what}: {source}", shown(path))]
    File {
        /// What was tried, e.g. `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program that is needed and is not there.
    #[error("{program} is not installed; on Debian or Ubuntu: apt-get install {package}")]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A program that could not be started, though it is there.
    #[error("cannot run {program}: {source}")]
    Start {
        /// Name of the program.
        program: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Nothing more can be written there.
    #[error(
        "{}: the disk is full; the lists of packages and a kernel take up to 300 MiB while they \
         are fetched, and 20 MiB afterwards, and a machine that has booted some 100 MiB. Make \
         room, or set XDG_CACHE_HOME to where there is some",
        shown(path)
    )]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// apt did not do what it was asked for.
    #[error("apt cannot {what}: {said}")]
    Apt {
        /// What it was to do.
        what: String,
        /// Its complaints.
        said: String,
    },
    /// The keyring does not know who signs a suite.
    #[error(
        "{} does not have the keys that sign {suites}; install a newer debian-archive-keyring, or \
         name one with --keyring",
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
    #[error("no kernel {name} for {flavour} in {suites}")]
    Gone {
        /// Name in `kernels.toml`.
        name: String,
        /// Its flavour.
        flavour: String,
        /// Where was looked.
        suites: String,
    },
    /// A package without what a kernel package has.
    #[error("{package} has no {file}")]
    Unpack {
        /// The package's name.
        package: String,
        /// What it lacks.
        file: &'static str,
    },
    /// A name that is not in `kernels.toml`.
    #[error("the lab has no kernel {name:?}; it has {known}")]
    UnknownKernel {
        /// What was given.
        name: String,
        /// What would be accepted.
        known: String,
    },
    /// A kernel that has not been fetched yet.
    #[error("kernel {name} is not here yet; get it with: cpumax lab fetch {name}")]
    NotFetched {
        /// Name in `kernels.toml`.
        name: String,
    },
    /// A file of the lab's own that does not say what it should.
    #[error("{}: {reason}", shown(path))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A kernel's image that is cut short, or is not what was fetched.
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
    /// The guest said nothing for too long.
    #[error(
        "no answer from the virtual machine for {seconds} s; the end of its console:\n{console}"
    )]
    Hung {
        /// How long the machine has been running, s.
        seconds: u64,
        /// The last lines of its console.
        console: String,
    },
    /// A command was not done in the time that it was given.
    #[error(
        "the command has not ended within {seconds} s, the time that it was given; the end of the \
         console:\n{console}"
    )]
    TimedOut {
        /// That time, s.
        seconds: f64,
        /// The last lines of the console.
        console: String,
    },
    /// The machine ended, or QEMU did not do what it was told.
    #[error("the virtual machine failed: {said}; the end of its console:\n{console}")]
    Vm {
        /// What QEMU says.
        said: String,
        /// The last lines of its console.
        console: String,
    },
    /// As the error inside, whose whole console is in a file.
    #[error("{error}\n(more of it is in {})", shown(path))]
    Kept {
        /// What went wrong.
        error: Box<Error>,
        /// Where the console is.
        path: PathBuf,
    },
    /// The world cannot do what the scenario asks for.
    #[error("{reason}")]
    Refused {
        /// What, and why not.
        reason: String,
    },
    /// The guest failed, through no fault of the scenario.
    #[error("the guest failed: {reason}")]
    Guest {
        /// What it says.
        reason: String,
    },
    /// The guest is of another version than this program.
    #[error(
        "{} speaks version {theirs} of the protocol, not {ours}: build it again with make guest",
        shown(path)
    )]
    OtherProtocol {
        /// The guest.
        path: PathBuf,
        /// Its version.
        theirs: u32,
        /// This program's.
        ours: u32,
    },
    /// The guest is not where it is looked for.
    #[error(
        "the guest program is not at {}{named}; `make guest` builds it, and $CPUMAX_GUEST names \
         another place",
        shown(path)
    )]
    NoGuest {
        /// Where it was looked for last.
        path: PathBuf,
        /// Who says so, or nothing.
        named: &'static str,
    },
    /// What is where the guest is looked for cannot be one.
    #[error(
        "{}{named} {what}: `make guest`, where the sources are, builds one that brings all it \
         needs, and it is found then",
        shown(path)
    )]
    OtherGuest {
        /// The file.
        path: PathBuf,
        /// Who names it, or nothing.
        named: &'static str,
        /// What it is.
        what: &'static str,
    },
    /// Somebody wants it to stop.
    #[error("interrupted")]
    Interrupted,
    /// No place to keep kernels.
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no place to keep kernels")]
    NoCache,
}

impl Error {
    /// Whether a command was not done in the time that it was given.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::TimedOut { .. } => true,
            Error::Kept { error, .. } => error.is_timeout(),
            _ => false,
        }
    }

    /// For `map_err` on what is done with a file.
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { what, path, source }
    }

    /// For `map_err` on starting a program.
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
