//! Errors of a recording.

use std::io;
use std::path::Path;

/// The reason for which nothing is recorded, with what would be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, missing rights or this build does not allow BPF.
    #[error("{why}. perf records the same events, but no limits:\n\n    {instead}\n")]
    NoBpf {
        /// The missing thing.
        why: String,
        /// Commands that record without BPF.
        instead: String,
    },
    /// The target does not exist, or an argument is wrong.
    #[error("{what}")]
    NotFound {
        /// The argument, and what would be accepted.
        what: String,
    },
    /// A file cannot be written or read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(name: &Path, source: io::Error) -> Error {
        Error::Io { name: cpumax_limit::shown(name), source }
    }
}
