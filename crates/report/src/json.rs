//! Results as JSON: an array, one object on a line.

use crate::escape;
use crate::file::{ResultFile, WriteError};
use serde::Serialize;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A file for results.
#[derive(Debug)]
pub struct JsonArray(ResultFile);

impl JsonArray {
    /// Opens the file for writing; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<JsonArray, WriteError> {
        Ok(JsonArray(ResultFile::create(path)?))
    }

    /// Whether the results go to standard output.
    pub fn is_stdout(&self) -> bool {
        self.0.is_stdout()
    }

    /// Writes all items.
    ///
    /// # Errors
    /// They cannot be written completely.
    pub fn write<T: Serialize>(self, items: impl Iterator<Item = T>) -> Result<(), WriteError> {
        self.0.write(|out| array(BufWriter::new(out), items))
    }
}

/// All items as the text of such a file.
///
/// # Errors
/// An item cannot be written as JSON.
pub fn json_text<T: Serialize>(items: impl Iterator<Item = T>) -> io::Result<String> {
    let mut text = Vec::new();
    array(&mut text, items)?;
    String::from_utf8(text).map_err(io::Error::other)
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
