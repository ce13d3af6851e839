//! The file of a recording in progress: in the folder of the final file, with a unique name, and
//! readable by its owner only. At the end it replaces the final file or link. `-` is standard
//! output instead.

use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

#[derive(Debug)]
pub(super) struct Beside {
    /// `None`: standard output.
    file: Option<NamedTempFile>,
    place: PathBuf,
}

impl Beside {
    /// Creates the temporary file for a final path.
    ///
    /// # Errors
    /// It cannot be created, or the path is taken by something that is no file.
    pub fn create(place: &Path) -> Result<Beside, Error> {
        if place == Path::new("-") {
            return Ok(Beside { file: None, place: place.to_owned() });
        }
        let taken = fs::symlink_metadata(place).map(|there| there.file_type());
        if taken.is_ok_and(|kind| !kind.is_file() && !kind.is_symlink()) {
            let name = cpumax_limit::shown(place);
            let what = format!("{name} is no file: give another name with -o");
            return Err(Error::NotFound { what });
        }
        let made = || -> io::Result<Beside> {
            let name = place.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_string_lossy();
            let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty());
            let prefix = format!(".{name}.");
            let named = tempfile::Builder::new().prefix(&prefix).suffix(".part").to_owned();
            let file = named.tempfile_in(folder.unwrap_or(Path::new(".")))?;
            Ok(Beside { file: Some(file), place: place.to_owned() })
        };
        made().map_err(|error| Error::io(place, error))
    }

    /// A handle to write with.
    pub fn file(&self) -> Result<File, Error> {
        let file = match &self.file {
            Some(file) => file.as_file().try_clone(),
            None => io::stdout().as_fd().try_clone_to_owned().map(File::from),
        };
        file.map_err(|error| Error::io(&self.place, error))
    }

    /// Moves the file to its final path.
    pub fn give_name(self) -> Result<(), Error> {
        let given = self.file.map_or(Ok(()), |file| file.persist(&self.place).map(drop));
        given.map_err(|error| Error::io(&self.place, error.error))
    }

    /// Keeps the temporary file after a failure, and puts its path into the error.
    pub fn leave(self, error: Error) -> Error {
        match (self.file.map(NamedTempFile::keep), error) {
            (Some(Ok((_, path))), Error::Io { source, .. }) => Error::io(&path, source),
            (_, error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn it_replaces_its_place_when_complete_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let [place, other] = ["a.cpumax", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "somebody's").unwrap();
        symlink(&other, &place).unwrap();
        let [one, two] = [(), ()].map(|()| Beside::create(&place).unwrap());
        one.file().unwrap().write_all(b"one").unwrap();
        two.file().unwrap().write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "somebody's");
        one.give_name().unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "one");
        two.give_name().unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "two");
        assert_eq!(fs::read_to_string(&other).unwrap(), "somebody's");
        assert_eq!(fs::symlink_metadata(&place).unwrap().mode() & 0o777, 0o600);
        drop(Beside::create(&place).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_file_of_a_failed_recording_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("a.cpumax");
        let beside = Beside::create(&place).unwrap();
        beside.file().unwrap().write_all(b"half").unwrap();
        let left = beside.leave(Error::io(&place, io::ErrorKind::StorageFull.into()));
        let Error::Io { name, .. } = left else { panic!("{left}") };
        assert!(name.contains(".part") && fs::read_to_string(&name).unwrap() == "half", "{name}");
        assert!(!place.exists());
        for taken in [Path::new("/dev/null"), folder.path(), Path::new("/")] {
            let refused = Beside::create(taken).unwrap_err().to_string();
            assert!(refused.contains("is no file"), "{refused}");
        }
    }
}
