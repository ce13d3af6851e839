//! Errors of comparisons and searches.

/// Why a comparison or a search ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
    /// A world that fails.
    #[error("{world}: {reason}")]
    World {
        /// Label of the world.
        world: String,
        /// The cause.
        reason: String,
    },
    /// An error of a study, such as a kernel that has not been fetched.
    #[error(transparent)]
    Study(cpumax_study::Error),
    /// A file of a search that cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The cause.
        reason: String,
    },
}
