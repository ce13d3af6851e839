//! Results of runs, kept as files. The same job on the same emulated machine gives the same result
//! to the byte, so it need not run again. A file's name has a digest of machine and job. Runs with
//! KVM differ each time; the kept one is the first.

use crate::Error;
use crate::snapshot::Boot;
use crate::whole::link;
use cpumax_protocol::{FromGuest, ToGuest};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A folder of results.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
}

/// Content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    job: ToGuest,
    answer: FromGuest,
}

impl Kept {
    /// Opens the folder, and makes it if needed.
    pub fn open(folder: &Path) -> Result<Kept, Error> {
        fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        Ok(Kept { folder: folder.to_owned() })
    }

    /// Returns the kept answer to a job, which the guest reads as `line`; or else calls `run` and
    /// keeps its answer.
    pub fn answer_or_run(
        &self,
        boot: &Boot<'_>,
        job: ToGuest,
        line: &str,
        run: impl FnOnce() -> Result<FromGuest, Error>,
    ) -> Result<FromGuest, Error> {
        let digest = boot.digest(&[line.as_bytes()]);
        let path = self.folder.join(format!("{}-{digest}.json", boot.kernel.name));
        if let Some(entry) = read(&path)? {
            return Ok(entry.answer);
        }
        let entry = Entry { job, answer: run()? };
        self.write(&path, &entry).map_err(Error::file("write", &path))?;
        Ok(entry.answer)
    }

    /// Writes a file, which gets its name only when it is complete.
    fn write(&self, path: &Path, entry: &Entry) -> io::Result<()> {
        let mut file = tempfile::tempfile_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(entry)?)?;
        link(&mut file, path)
    }
}

fn read(path: &Path) -> Result<Option<Entry>, Error> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(Error::file("read", path))?,
    };
    let malformed = |error: serde_json::Error| Error::Malformed {
        path: path.to_owned(),
        reason: format!("not a run that was kept ({error}); it can be removed"),
    };
    serde_json::from_str(&text).map(Some).map_err(malformed)
}
