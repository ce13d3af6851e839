//! A lock file that excludes other processes, and is removed at the end.

use crate::Error;
use rustix::fs::FlockOperation;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A held lock file. Dropping it removes the file; a killed process leaves an unlocked file.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits for the lock and takes it.
    ///
    /// # Errors
    /// The file cannot be made or locked, or `stop` returns true.
    pub fn take(path: &Path, stop: &dyn Fn() -> bool) -> Result<Lock, Error> {
        loop {
            if stop() {
                return Err(Error::Interrupted);
            }
            if let Some(lock) = Lock::try_take(path)? {
                return Ok(lock);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn try_take(path: &Path) -> Result<Option<Lock>, Error> {
        let file = File::create(path).map_err(Error::file("write", path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The last holder may have removed the file after we opened it.
            Ok(()) if is_at(&file, path) => Ok(Some(Lock { path: path.to_owned(), _file: file })),
            Ok(()) | Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(Error::file("lock", path)(error.into())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If the file stays, the next holder locks it.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.lock");
        let lock = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        assert!(matches!(Lock::take(&path, &|| true), Err(Error::Interrupted)));
        drop(lock);
        assert!(!path.exists());
        // A file of a killed process.
        File::create(&path).unwrap();
        drop(Lock::take(&path, &|| false).unwrap());
        assert!(!path.exists());
    }
}
