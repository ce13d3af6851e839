//! Files of the cache are there whole or not at all, whoever is killed while writing them.

use rustix::fs::{AtFlags, CWD, linkat};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Gives a file without a name one. Where there is another of that name, or the file system cannot,
/// a copy of it is moved there.
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

/// Writes a file, in place of the one that is there.
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
    fn what_is_there_is_replaced_and_never_written_into() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("about.json");
        write(&path, "first").unwrap();
        let before = fs::File::open(&path).unwrap();
        write(&path, "the second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "the second");
        assert_eq!(before.metadata().unwrap().len(), 5, "who reads the first has all of it");
        assert_ne!(before.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
