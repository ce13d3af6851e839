//! Why nothing is recorded.

use crate::instead;
use crate::request::Request;
use std::io;
use std::path::Path;

/// Why a recording was not made, with what would be accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel, the rights there are or how this was built does not allow it.
    #[error("{why}. perf records the same:\n\n    {instead}\n")]
    NoBpf {
        /// What is missing.
        why: String,
        /// The commands that do without.
        instead: String,
    },
    /// What is to be recorded is not there, or what was given cannot be understood.
    #[error("{what}")]
    NotFound {
        /// What was looked for, and what there is.
        what: String,
    },
    /// A file cannot be written or read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// What the system says.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(name: &Path, source: io::Error) -> Error {
        Error::Io { name: cpumax_limit::shown(name), source }
    }

    /// There is no BPF here.
    pub(crate) fn no_bpf(why: impl Into<String>, request: &Request) -> Error {
        Error::NoBpf { why: why.into(), instead: instead::perf_record(request) }
    }
}
