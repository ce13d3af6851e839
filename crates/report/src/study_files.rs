//! The files that a study is written to.

use crate::file::{ResultFile, WriteError};
use crate::{JsonArray, csv, parquet};
use cpumax_forecast::saved::Saved;
use serde::Serialize;
use std::io;
use std::path::PathBuf;

/// Files for the documents of a study, and for its table as CSV and as Parquet.
#[derive(Debug)]
pub struct StudyFiles {
    json: Option<JsonArray>,
    csv: Option<ResultFile>,
    parquet: Option<ResultFile>,
}

impl StudyFiles {
    /// Opens those that are asked for; `-` is standard output.
    ///
    /// # Errors
    /// A file cannot be written, or two of them are standard output.
    pub fn create(
        json: &Option<PathBuf>,
        csv: &Option<PathBuf>,
        parquet: &Option<PathBuf>,
    ) -> Result<StudyFiles, WriteError> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(ResultFile::create).transpose();
        let json = json.as_deref().map(JsonArray::create).transpose()?;
        let files = StudyFiles { json, csv: open(csv)?, parquet: open(parquet)? };
        if files.printed() > 1 {
            let told = "--json, --csv and --parquet print in one place: give all but one a file";
            return Err(WriteError::stdout(io::Error::other(told)));
        }
        Ok(files)
    }

    /// Whether standard output is free for a text.
    pub fn leave_stdout(&self) -> bool {
        self.printed() == 0
    }

    fn printed(&self) -> usize {
        let tables = [&self.csv, &self.parquet].into_iter().flatten();
        let json = self.json.iter().filter(|json| json.is_stdout());
        json.count() + tables.filter(|table| table.is_stdout()).count()
    }

    /// Writes the documents, and the table of the same study.
    ///
    /// # Errors
    /// A file cannot be written completely.
    pub fn write<T: Serialize>(
        self,
        documents: impl Iterator<Item = T>,
        study: impl FnOnce() -> Saved,
    ) -> Result<(), WriteError> {
        self.json.map_or(Ok(()), |json| json.write(documents))?;
        if self.csv.is_none() && self.parquet.is_none() {
            return Ok(());
        }
        let study = study();
        self.csv.map_or(Ok(()), |file| file.write_text(&csv(&study)))?;
        self.parquet.map_or(Ok(()), |file| file.write(|out| out.write_all(&parquet(&study)?)))
    }
}
