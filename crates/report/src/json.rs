//! Results as JSON: an array, one object on a line.

use crate::escape;
use crate::file::{ResultFile, WriteError};
use crate::stream;
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Where the results go.
#[derive(Debug)]
pub struct JsonArray {
    /// `None` is standard output.
    file: Option<ResultFile>,
}

impl JsonArray {
    /// Sees that they can go there; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<JsonArray, WriteError> {
        let is_stdout = path == Path::new("-");
        Ok(JsonArray { file: (!is_stdout).then(|| ResultFile::create(path)).transpose()? })
    }

    /// Whether they go where tables would.
    pub fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Writes all of them.
    ///
    /// # Errors
    /// They cannot be written whole.
    pub fn write<T: Serialize>(self, items: impl Iterator<Item = T>) -> Result<(), WriteError> {
        if let Some(file) = self.file {
            return file.write(|out| array(BufWriter::new(out), items));
        }
        let place = "to standard output".to_owned();
        array(BufWriter::new(stream::raw_stdout()), items)
            .map_err(|source| WriteError { place, source })
    }
}

fn array<T: Serialize>(mut out: impl Write, items: impl Iterator<Item = T>) -> io::Result<()> {
    out.write_all(b"[")?;
    for (index, item) in items.enumerate() {
        out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        escape::to_json(&mut out, &item)?;
    }
    out.write_all(b"\n]\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_has_one_item_on_a_line() {
        let mut out = Vec::new();
        array(&mut out, [1, 2].iter()).unwrap();
        assert_eq!(out, b"[\n1,\n2\n]\n");
        out.clear();
        array(&mut out, [0; 0].iter()).unwrap();
        assert_eq!(serde_json::from_slice::<Vec<u8>>(&out).unwrap(), [0; 0]);
    }
}
