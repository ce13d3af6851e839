//! Results as JSON: an array, one object on a line.

use anyhow::Context;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Where the results go, opened before anything is run so that a wrong path is told at once.
#[derive(Debug)]
pub struct JsonArray {
    path: PathBuf,
    /// `None` is standard output.
    file: Option<File>,
}

impl JsonArray {
    /// `-` is standard output.
    pub fn create(path: &Path) -> anyhow::Result<JsonArray> {
        let file = if path == Path::new("-") {
            None
        } else {
            Some(File::create(path).with_context(|| format!("cannot write {}", path.display()))?)
        };
        Ok(JsonArray { path: path.to_owned(), file })
    }

    pub fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    pub fn write<T: Serialize>(self, items: impl Iterator<Item = T>) -> anyhow::Result<()> {
        let out: Box<dyn Write> = match self.file {
            Some(file) => Box::new(file),
            None => Box::new(io::stdout().lock()),
        };
        array(BufWriter::new(out), items)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

fn array<T: Serialize>(mut out: impl Write, items: impl Iterator<Item = T>) -> anyhow::Result<()> {
    out.write_all(b"[")?;
    for (index, item) in items.enumerate() {
        out.write_all(if index == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut out, &item)?;
    }
    out.write_all(b"\n]\n")?;
    Ok(out.flush()?)
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
