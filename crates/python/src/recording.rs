//! Recordings that are read.

use crate::table::{self, Table};
use crate::work::{Progress, watched};
use cpumax::Replaying;
use cpumax_forecast::recorded::{self, Inspected, services};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// A recording in memory.
#[pyclass(frozen, module = "cpumax", name = "_Recording")]
pub struct Recording {
    pub read: Arc<cpumax_recording::Recording>,
    /// Its name in answers.
    #[pyo3(get)]
    pub name: String,
}

/// Reads a recording; `words` are those of a `cpumax replay` that begins with it.
#[pyfunction]
pub fn read(py: Python<'_>, path: PathBuf, words: Vec<OsString>) -> PyResult<Recording> {
    watched(py, Progress::default(), None, move |_| {
        let options = Replaying::parse(&words)?.options;
        let read = Arc::new(recorded::read(&path, options)?);
        Ok(Recording { read, name: recorded::name(&path) })
    })
}

#[pymethods]
impl Recording {
    /// Its contents as JSON, like `cpumax inspect --json`.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        let (name, read) = (self.name.clone(), Arc::clone(&self.read));
        watched(py, Progress::default(), None, move |_| {
            Ok(cpumax_report::escape::pretty_json(&Inspected::new(&name, &read))? + "\n")
        })
    }

    /// Its threads, a row each.
    fn threads(&self, py: Python<'_>) -> PyResult<Table> {
        let read = Arc::clone(&self.read);
        watched(py, Progress::default(), None, move |_| Ok(Table(table::threads(&read.summary()))))
    }

    /// The requests of its services, a row each.
    fn requests(&self, py: Python<'_>) -> PyResult<Table> {
        let read = Arc::clone(&self.read);
        watched(py, Progress::default(), None, move |_| {
            Ok(Table(table::requests(&services(&read, &read.summary()))))
        })
    }
}
