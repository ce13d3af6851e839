//! Result files, written beside an existing file and moved into its place: there is always a
//! complete old file or a complete new one.

use crate::stream::{IgnoreClosedPipe, raw_stdout};
use cpumax_limit::shown;
use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file or stream that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {place}")]
pub struct WriteError {
    /// The file, or standard output.
    pub place: String,
    /// The system's error.
    pub source: io::Error,
}

impl WriteError {
    /// An error of standard output.
    pub fn stdout(source: io::Error) -> WriteError {
        WriteError { place: "to standard output".to_owned(), source }
    }

    fn of(path: &Path) -> impl FnOnce(io::Error) -> WriteError + use<> {
        let place = shown(path);
        |source| WriteError { place, source }
    }
}

/// Permissions of a new file, before the user's umask.
const MODE: u32 = 0o666;

/// A result file, opened before the work starts so that a wrong path is reported at once. An
/// existing file stays until the result is complete.
///
/// ```
/// use cpumax_report::ResultFile;
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("results.txt");
/// let file = ResultFile::create(&path)?;
/// assert!(!path.exists(), "nothing is there yet");
/// file.write(|out| out.write_all(b"all of it"))?;
/// assert_eq!(std::fs::read(&path)?, b"all of it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ResultFile {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Stdout,
    /// A device, a pipe, or a file that cannot be replaced: written in place.
    Itself(File),
    /// A file without a name yet, and its later name.
    Beside(File, PathBuf),
    /// A file with a temporary name, on file systems without nameless files, and its later name. It
    /// is removed unless it is complete.
    Named(tempfile::NamedTempFile, PathBuf),
}

impl ResultFile {
    /// Opens the file for writing; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<ResultFile, WriteError> {
        if path == Path::new("-") {
            return Ok(ResultFile { path: path.to_owned(), place: Place::Stdout });
        }
        let place = Place::of(path).map_err(WriteError::of(path))?;
        Ok(ResultFile { path: path.to_owned(), place })
    }

    /// Whether the result goes to standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.place, Place::Stdout)
    }

    /// A file without a name on the disk of the result.
    pub(crate) fn scratch(&self) -> io::Result<File> {
        match &self.place {
            Place::Beside(_, target) | Place::Named(_, target) => {
                tempfile::tempfile_in(folder_of(target))
            }
            Place::Stdout | Place::Itself(_) => tempfile::tempfile(),
        }
    }

    /// Writes the result and moves it into place. A closed pipe is no error.
    ///
    /// # Errors
    /// The result cannot be written completely; an existing file then stays, unless it is written
    /// in place.
    pub fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let written = match self.place {
            Place::Stdout => {
                let mut out = BufWriter::new(raw_stdout());
                let written = write(&mut out).and_then(|()| out.flush());
                return written.map_err(WriteError::stdout);
            }
            Place::Itself(mut file) => {
                let is_file = file.metadata().is_ok_and(|data| data.is_file());
                let emptied = if is_file { file.set_len(0) } else { Ok(()) };
                emptied.and_then(|()| write(&mut IgnoreClosedPipe(&mut file)))
            }
            Place::Beside(mut file, target) => {
                write(&mut file).and_then(|()| give_name(&mut file, &target))
            }
            Place::Named(mut file, target) => {
                write(file.as_file_mut()).and_then(|()| Ok(file.persist(target).map(drop)?))
            }
        };
        written.map_err(WriteError::of(&self.path))
    }

    /// Writes a text as the result.
    ///
    /// # Errors
    /// See [`ResultFile::write`].
    pub fn write_text(self, text: &str) -> Result<(), WriteError> {
        self.write(|out| out.write_all(text.as_bytes()))
    }
}

impl Place {
    fn of(path: &Path) -> io::Result<Place> {
        // Replaces the target of a link, not the link.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let before = fs::metadata(&target).ok();
        if path.symlink_metadata().is_ok() {
            // Opening fails for a directory and for a read-only file.
            let itself = OpenOptions::new().write(true).open(path)?;
            if before.as_ref().is_none_or(|before| !before.is_file() || before.nlink() > 1) {
                return Ok(Place::Itself(itself));
            }
        }
        let folder = folder_of(&target).to_owned();
        let nameless = i32::try_from(OFlags::TMPFILE.bits()).unwrap_or(0);
        let made = OpenOptions::new().write(true).mode(MODE).custom_flags(nameless).open(&folder);
        let place = match made {
            Ok(file) => Place::Beside(file, target),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            Err(_) => {
                let permissions = Permissions::from_mode(MODE);
                let named = tempfile::Builder::new().permissions(permissions).tempfile_in(&folder);
                match (named, &before) {
                    (Ok(file), _) => Place::Named(file, target),
                    // A writable file in a read-only directory.
                    (Err(_), Some(_)) => Place::Itself(OpenOptions::new().write(true).open(path)?),
                    (Err(error), None) => return Err(error),
                }
            }
        };
        match before {
            Some(before) => place.like(&before, path),
            None => Ok(place),
        }
    }

    /// Copies the permissions of the file to be replaced. Falls back to writing in place where the
    /// owner or the permissions cannot be the same.
    fn like(self, before: &fs::Metadata, path: &Path) -> io::Result<Place> {
        let file = match &self {
            Place::Itself(_) | Place::Stdout => return Ok(self),
            Place::Beside(file, _) => file,
            Place::Named(file, _) => file.as_file(),
        };
        let own = file.metadata()?;
        let is_alike = (own.uid(), own.gid()) == (before.uid(), before.gid());
        if is_alike && file.set_permissions(before.permissions()).is_ok() {
            return Ok(self);
        }
        Ok(Place::Itself(OpenOptions::new().write(true).open(path)?))
    }
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives a nameless file the name `target`, and replaces the file of that name.
fn give_name(file: &mut File, target: &Path) -> io::Result<()> {
    // Only a rename replaces a file, and it needs a name.
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let beside = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    if linkat(CWD, nameless, CWD, &beside, AtFlags::SYMLINK_FOLLOW).is_err() {
        // Without /proc, copies to a file with a name.
        file.seek(SeekFrom::Start(0))?;
        io::copy(file, &mut File::create(&beside)?)?;
    }
    fs::rename(&beside, target).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn put(path: &Path, text: &str) -> Result<(), WriteError> {
        ResultFile::create(path)?.write_text(text)
    }

    #[test]
    fn what_is_in_a_file_stays_until_there_is_all_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "of before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let file = ResultFile::create(&path).unwrap();
        file.write(|out| {
            out.write_all(b"new")?;
            assert_eq!(text(&path), "of before");
            Ok(())
        })
        .unwrap();
        assert_eq!(text(&path), "new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let half = |path: &Path| {
            let file = ResultFile::create(path).unwrap();
            file.write(|out| out.write_all(b"half").and(Err(io::ErrorKind::StorageFull.into())))
                .unwrap_err()
        };
        half(&path);
        assert_eq!(text(&path), "new");
        let new = folder.path().join("new.json");
        half(&new);
        assert!(!new.exists(), "half of it would pass for all");
        drop(ResultFile::create(&new).unwrap());
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&path));
        let told = ResultFile::create(&path.join("b")).unwrap_err().to_string();
        assert!(told.starts_with("cannot write ") && told.ends_with("a.json/b"), "{told}");
    }

    #[test]
    fn a_link_stays_one_and_so_does_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link, hard] = ["a", "link", "hard"].map(|name| folder.path().join(name));
        fs::write(&path, "of before").unwrap();
        std::os::unix::fs::symlink("a", &link).unwrap();
        put(&link, "by link").unwrap();
        assert_eq!((text(&path).as_str(), link.is_symlink()), ("by link", true));
        fs::hard_link(&path, &hard).unwrap();
        put(&path, "both").unwrap();
        assert_eq!(text(&hard), "both");
        put(Path::new("/dev/null"), "nothing").unwrap();
        assert!(ResultFile::create(folder.path()).is_err());
    }
}
