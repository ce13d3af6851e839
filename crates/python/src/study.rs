//! Replays.

use crate::errors;
use crate::recording::Recording;
use crate::table::{self, Table};
use crate::work::{Progress, watched};
use cpumax::Replaying;
use cpumax_forecast::replay::{Recorded, Run, documents};
use cpumax_forecast::{Replay, saved::Saved};
use cpumax_report::{Named, StudyFiles, System, csv, escape, html, json_text};
use cpumax_study::{Try, answer::Document};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::iter;
use std::path::PathBuf;
use std::sync::Arc;

/// The predictions of a replay.
#[pyclass(frozen, module = "cpumax", name = "_Study")]
pub struct Study {
    recorded: Recorded,
    runs: Vec<Run>,
    /// Limits, kernels, and why they were not tried together.
    not_tried: Vec<(String, String, String)>,
}

/// Replays a recording; `words` are those of `cpumax replay`.
#[pyfunction]
#[pyo3(signature = (recording, words, stretches, progress))]
pub fn replay(
    py: Python<'_>,
    recording: &Recording,
    words: Vec<OsString>,
    stretches: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Study> {
    let (name, read) = (recording.name.clone(), Arc::clone(&recording.read));
    watched(py, Progress::default(), progress.as_ref(), move |watch| {
        let Replaying { request, kernels, seed, running, .. } = Replaying::parse(&words)?;
        let replay = Replay::new(&name, &read, &request)?;
        let kernels = kernels.unwrap_or_else(|| replay.kernels());
        let mut runs = replay.runs(&kernels, seed, &running, watch)?;
        if stretches {
            replay.trace_decisive(&mut runs, &running, watch)?;
        }
        let not_tried = replay.not_tried(&kernels).into_iter();
        let not_tried = not_tried.map(|(limit, kernel, why)| {
            (limit.label(), kernel.version.to_string(), why.to_string())
        });
        let not_tried = not_tried.collect();
        Ok(Study { recorded: replay.document(&kernels, &runs), runs, not_tried })
    })
}

/// Whether words of `cpumax replay` are understood.
#[pyfunction]
pub fn check(words: Vec<OsString>) -> PyResult<()> {
    Replaying::parse(&words).map(drop).map_err(errors::of)
}

/// The short form of a limit, as tables have it.
#[pyfunction]
pub fn limit_label(limit: &str) -> PyResult<String> {
    let parsed = Try::parse(limit).map_err(errors::of_library)?;
    Ok(parsed.label())
}

/// The table of a study without rows.
#[pyfunction]
pub fn no_rows() -> Table {
    let none = Saved { recordings: Vec::new(), runs: Vec::new(), advice: None };
    Table(table::study(&none))
}

/// A limit in the form of a system, with a sentence that says why; `None` if it has no such form.
#[pyfunction]
pub fn limit_in_form(
    system: &str,
    limit: &str,
    why: &str,
    group: &str,
) -> PyResult<Option<String>> {
    let parsed = Try::parse(limit).map_err(errors::of_library)?;
    let system = System::of(system).ok_or_else(|| no_system(system))?;
    Ok(cpumax_report::limit_in_form(system, &parsed, why, group, None).ok())
}

/// The error for a system that there is not.
pub fn no_system(name: &str) -> PyErr {
    let names = System::NAMES.join(", ");
    errors::OptionError::new_err(format!("there is no system '{name}': give one of {names}"))
}

impl Study {
    fn saved(&self) -> Saved {
        Saved::of_replay(self.recorded.clone(), self.runs.clone())
    }
}

#[pymethods]
impl Study {
    /// The documents, as `cpumax replay --json` writes them.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| json_text(documents(&self.recorded, &self.runs)))?)
    }

    /// The document of the recording.
    fn recorded(&self) -> PyResult<String> {
        Ok(json_text(std::iter::once(Document::from(&self.recorded)))?)
    }

    /// The document of the run at this place.
    fn run(&self, at: usize) -> PyResult<String> {
        Ok(json_text(self.runs.get(at).map(Document::from).into_iter())?)
    }

    /// Limits, as labels, and kernels of all runs.
    fn cells(&self) -> Vec<(String, String)> {
        let of = |run: &Run| (run.limit.label(), run.outcome.kernel.clone());
        self.runs.iter().map(of).collect()
    }

    /// Limits, as labels, and kernels that were not tried together, with the reason.
    fn not_tried(&self) -> Vec<(String, String, String)> {
        self.not_tried.clone()
    }

    /// A row for each run.
    fn table(&self) -> Table {
        Table(table::study(&self.saved()))
    }

    /// The rows as a Parquet file.
    fn to_parquet(&self, path: PathBuf) -> PyResult<()> {
        write_parquet(self.saved(), path)
    }

    /// A row for each bucket of the latencies of each run.
    fn histograms(&self, py: Python<'_>) -> Table {
        py.detach(|| Table(table::histograms(&self.saved())))
    }

    /// As `cpumax replay --csv` writes it.
    fn to_csv(&self) -> String {
        csv(&self.saved())
    }

    /// As `cpumax report` writes it.
    fn to_html(&self, py: Python<'_>) -> String {
        py.detach(|| page(&self.recorded.name, self.saved()))
    }
}

/// Writes the table of a study as a Parquet file.
pub fn write_parquet(study: Saved, path: PathBuf) -> PyResult<()> {
    let files = StudyFiles::create(&None, &None, &Some(path));
    let written = files.and_then(|files| files.write(iter::empty::<()>(), || study));
    written.map_err(|error| {
        errors::StudyError::new_err(escape::chain(anyhow::Error::new(error).chain()))
    })
}

/// The report of one study.
pub fn page(name: &str, study: Saved) -> String {
    html(&[Named { name: name.to_owned(), study }], env!("CARGO_PKG_VERSION"))
}
