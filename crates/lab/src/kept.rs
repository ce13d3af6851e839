//! Answers of runs, kept as files. The same job on the same emulated machine gives the same answer, to the byte, so what is kept
//! need not be run again; a file's name has a digest of the machine and the job. A run by the host's CPUs is like no other: of
//! those that are asked for one after the other each is kept for itself, by its number.

use crate::Error;
use crate::qemu::Accelerator;
use crate::snapshot::{Boot, link};
use cpumax_guest::protocol::{FromGuest, ToGuest};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A folder of answers.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    /// How often each run by the host's CPUs was asked for.
    asked: Mutex<HashMap<String, u32>>,
}

/// What a file has in it.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    job: ToGuest,
    answer: FromGuest,
}

impl Kept {
    /// The folder, made if it is not there.
    pub fn at(folder: &Path) -> Result<Kept, Error> {
        fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        Ok(Kept { folder: folder.to_owned(), asked: Mutex::default() })
    }

    /// The answer to that job, which the guest reads as `line`: the one that is kept, or that of `run`, which is then kept.
    pub fn answer(
        &self,
        boot: &Boot<'_>,
        job: ToGuest,
        line: &str,
        run: impl FnOnce() -> Result<FromGuest, Error>,
    ) -> Result<FromGuest, Error> {
        let path = self.folder.join(self.file_name(boot, line));
        if let Some(entry) = read(&path)? {
            return Ok(entry.answer);
        }
        let entry = Entry { job, answer: run()? };
        self.write(&path, &entry).map_err(Error::file("write", &path))?;
        Ok(entry.answer)
    }

    fn file_name(&self, boot: &Boot<'_>, line: &str) -> String {
        let run = format!("{}-{}", boot.kernel.name, boot.digest(&[line.as_bytes()]));
        if boot.accelerator == Accelerator::Emulated {
            return format!("{run}.json");
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let number = asked.entry(run.clone()).or_default();
        *number += 1;
        format!("{run}-{number}.json")
    }

    /// The file has no name until it is whole.
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
