//! Advice.

use crate::errors::QuestionError;
use crate::recording::Recording;
use crate::study::{no_system, page, write_parquet};
use crate::table::{self, Table};
use crate::work::{Progress, watched};
use cpumax::Advising;
use cpumax_forecast::advise::{self as forecast, Advised, Case};
use cpumax_forecast::saved::Saved;
use cpumax_report::{Chosen, Page, System, advice_in_form, advice_text, json_text};
use cpumax_study::answer::Document;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The limit that meets the goals, and why.
#[pyclass(frozen, module = "cpumax", name = "_Advice")]
pub struct Advice {
    answer: forecast::Advice,
    cases: Vec<Case>,
    document: Advised,
}

/// Advises on recordings; `words` are those of `cpumax advise`.
#[pyfunction]
#[pyo3(signature = (recordings, words, stretches, progress))]
pub fn advise(
    py: Python<'_>,
    recordings: Vec<PyRef<'_, Recording>>,
    words: Vec<OsString>,
    stretches: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Advice> {
    let of = |one: &PyRef<'_, Recording>| (one.name.clone(), Arc::clone(&one.read));
    let recordings: Vec<_> = recordings.iter().map(of).collect();
    watched(py, Progress::default(), progress.as_ref(), move |watch| {
        let Advising { request, question, running, .. } = Advising::parse(&words)?;
        let case = |(name, read): (String, Arc<_>)| Case::new(name, &read, &request);
        let cases = recordings.into_iter().map(case).collect::<Result<Vec<_>, _>>()?;
        let mut answer = forecast::advise(&cases, &question, &running, watch)?;
        if stretches {
            answer.trace(&cases, &running, watch)?;
        }
        let document = answer.document(&cases);
        Ok(Advice { answer, cases, document })
    })
}

#[pymethods]
impl Advice {
    /// The document, as `cpumax advise --json` writes it.
    fn to_json(&self) -> PyResult<String> {
        Ok(json_text(std::iter::once(Document::from(&self.document)))?)
    }

    /// The answer in words, as the command prints it.
    fn text(&self) -> String {
        let text = advice_text(&self.answer, &self.cases, Page::of(None));
        anstream::adapter::strip_str(&text).to_string()
    }

    /// The limit in the form of a system, for a container of an object or for its whole pod.
    #[pyo3(signature = (system, object, container, whole_pod))]
    fn in_form(
        &self,
        system: &str,
        object: Option<PathBuf>,
        container: Option<&str>,
        whole_pod: bool,
    ) -> PyResult<String> {
        let form = System::of(system).ok_or_else(|| no_system(system))?;
        let chosen = Chosen::read(Some(form), object.as_deref(), container, whole_pod);
        chosen
            .and_then(|of| advice_in_form(&self.answer, &self.cases, form, of.as_ref()))
            .map_err(|refused| QuestionError::new_err(refused.to_string()))
    }

    /// A row for each limit that decides, on each recording and kernel.
    fn table(&self) -> Table {
        Table(table::study(&self.saved()))
    }

    /// The rows as a Parquet file.
    fn to_parquet(&self, path: PathBuf) -> PyResult<()> {
        write_parquet(self.saved(), path)
    }

    /// As `cpumax report` writes it.
    fn to_html(&self) -> String {
        page("advice", self.saved())
    }
}

impl Advice {
    fn saved(&self) -> Saved {
        Saved::of_advice(self.document.clone())
    }
}
