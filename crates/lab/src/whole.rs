//! Writes files of the cache atomically: a killed process leaves a complete file or none.

use rustix::fs::{AtFlags, CWD, linkat};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Gives a nameless file the name `path`. If that name is taken, or the file system cannot do it, a
/// copy of the file replaces the one with the name.
pub fn link(file: &mut File, path: &Path) -> io::Result<()> {
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    if linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW).is_ok() {
        return Ok(());
    }
    let mut beside = tempfile::NamedTempFile::new_in(folder(path))?;
    file.seek(SeekFrom::Start(0))?;
    io::copy(file, &mut beside)?;
    beside.persist(path)?;
    Ok(())
}

/// Writes a file atomically, replacing the one with its name.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = tempfile::tempfile_in(folder(path))?;
    file.write_all(text.as_bytes())?;
    link(&mut file, path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::write;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_replaced_and_never_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("about.json");
        write(&path, "first").unwrap();
        let before = fs::File::open(&path).unwrap();
        write(&path, "the second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "the second");
        assert_eq!(before.metadata().unwrap().len(), 5, "the open first file stays complete");
        assert_ne!(before.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
