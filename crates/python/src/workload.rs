//! Workloads, and runs of them in the model.

use crate::errors;
use crate::table::{self, Table};
use crate::work::{Events, Progress, watched};
use cpumax_outcome::trace::Recorded;
use cpumax_report::json_text;
use cpumax_study::suite::{Ended, Plan, Suite};
use cpumax_study::{Model, Running, given, kernels, scenario};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

/// Groups, tasks and their programs, perhaps under other limits.
#[pyclass(frozen, module = "cpumax")]
pub struct Workload {
    pub plan: Plan,
}

#[pymethods]
impl Workload {
    /// Parses the text of a scenario file; `name` stands in messages.
    #[staticmethod]
    #[pyo3(signature = (text, name="workload.toml"))]
    fn from_toml(text: &str, name: &str) -> PyResult<Workload> {
        let workload = cpumax_workload::parse(text, name).map_err(errors::of_library)?;
        Ok(Workload { plan: Plan::new(workload) })
    }

    /// Loads a built-in scenario by its name, or a scenario file by its path.
    #[staticmethod]
    fn load(scenario: &str) -> PyResult<Workload> {
        let workload = scenario::load(scenario).map_err(errors::of_library)?;
        Ok(Workload { plan: Plan::new(workload) })
    }

    /// This workload with another limit for a group, e.g. `with_limit("/web", "500m")`.
    fn with_limit(&self, group: &str, limit: &str) -> PyResult<Workload> {
        let plan = self.plan.clone().with_limit(&format!("{group}:{limit}"));
        Ok(Workload { plan: plan.map_err(errors::of_library)? })
    }

    /// This workload for another time, e.g. `with_duration("10s")`.
    fn with_duration(&self, time: &str) -> PyResult<Workload> {
        let ns = given::run_time(time).map_err(errors::OptionError::new_err)?;
        let plan = self.plan.clone().with_duration(ns);
        Ok(Workload { plan: plan.map_err(errors::of_library)? })
    }

    /// The text of its scenario file.
    fn to_toml(&self) -> PyResult<String> {
        let workload = self.plan.workload();
        cpumax_workload::to_file(workload, &workload.name).map_err(errors::of_library)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.plan.workload().name
    }
}

/// Runs of a workload.
#[pyclass(frozen, module = "cpumax", name = "_Runs")]
pub struct Runs {
    json: String,
    /// Whether every expectation of the scenario that was checked holds.
    #[pyo3(get)]
    passed: bool,
    events: BTreeMap<usize, Recorded>,
}

/// Runs a workload on kernels with seeds.
#[pyfunction]
#[pyo3(signature = (workload, kernels, seeds, check, noise, jobs, trace, progress))]
#[expect(clippy::too_many_arguments, reason = "they are the options of the command")]
pub fn run(
    py: Python<'_>,
    workload: &Workload,
    kernels: String,
    seeds: (u64, u64),
    check: bool,
    noise: Option<u64>,
    jobs: Option<u16>,
    trace: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Runs> {
    let plan = workload.plan.clone();
    let running = Running { check, noise, threads: jobs.map(usize::from), ..Running::default() };
    let events: Option<Events> = trace.then(Arc::default);
    let of = Progress::keeping(events.clone());
    watched(py, of, progress.as_ref(), move |watch| {
        let world = Box::new(Model { running });
        let asked = kernels::modelled(&kernels)?;
        let suite = Suite::new(vec![plan], asked, seeds.0..=seeds.1, world)?;
        let ended = suite.run(&suite.jobs(), watch)?;
        let json = json_text(ended.iter().flat_map(Ended::documents))?;
        let passed = ended.iter().all(Ended::passed);
        let kept = events.map(|all| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *all)
        });
        Ok(Runs { json, passed, events: kept.unwrap_or_default() })
    })
}

#[pymethods]
impl Runs {
    /// The documents, as `cpumax run --json` writes them.
    fn to_json(&self) -> &str {
        &self.json
    }

    /// The events of the run at this place; `None` if they were not kept.
    fn events(&self, py: Python<'_>, at: usize) -> Option<Table> {
        py.detach(|| self.events.get(&at).map(|events| Table(table::events(events))))
    }
}
