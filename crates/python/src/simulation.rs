//! A run under way, on a thread of its own.

use crate::errors::{self, RunError};
use crate::work::{Awaited, Progress};
use crate::workload::Workload;
use anyhow::anyhow;
use cpumax_machine::{CpuState, GroupState, Options, TaskState};
use cpumax_report::escape;
use cpumax_study::{Watch, given, kernels};
use pyo3::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// Signals are looked at so many times within a step.
const SLICES: u64 = 1000;
/// The shortest slice of simulated time, ns.
const SLICE_NS: u64 = 1_000_000;

type Running<'a> = cpumax_study::Simulation<'a>;
/// A question to the run; `None` once its outcome is taken.
type Ask = Box<dyn FnOnce(&mut Option<Running<'_>>) + Send>;

/// A run of a workload that stops at any time and can be looked at.
#[pyclass(frozen, module = "cpumax", name = "_Simulation")]
pub struct Simulation {
    asks: Sender<Ask>,
}

impl Simulation {
    /// Asks the run, and waits for its answer.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut Running<'_>, &Progress) -> anyhow::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        self.ask_whole(py, |held, progress| match held {
            Some(simulation) => ask(simulation, progress),
            None => Err(anyhow!("the run has ended: its outcome was taken")),
        })
    }

    fn ask_whole<T: Send + 'static>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut Option<Running<'_>>, &Progress) -> anyhow::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (done, result) = mpsc::channel();
        let progress = Arc::new(Progress::default());
        let of_thread = Arc::clone(&progress);
        // An answer that nobody waits for any more is dropped.
        let ask: Ask = Box::new(move |held| drop(done.send(ask(held, &of_thread))));
        self.asks.send(ask).map_err(|_| RunError::new_err("the run has failed"))?;
        Awaited::new(result).wait(py, &progress, None)
    }
}

#[pymethods]
impl Simulation {
    #[new]
    #[pyo3(signature = (workload, kernel, seed, check))]
    fn new(workload: &Workload, kernel: &str, seed: u64, check: bool) -> PyResult<Simulation> {
        let kernels = kernels::modelled(kernel).map_err(errors::of_library)?;
        let [kernel] = kernels.as_slice() else {
            return Err(errors::KernelError::new_err("a simulation has one kernel"));
        };
        let options = Options { check, ..Options::new(kernel.kernel, seed) };
        let workload = workload.plan.workload().clone();
        let (asks, asked) = mpsc::channel::<Ask>();
        let serve = move || {
            let mut held = Some(Running::new(&workload, &options, None));
            for ask in asked {
                ask(&mut held);
            }
        };
        thread::Builder::new().name("cpumax".to_owned()).spawn(serve)?;
        Ok(Simulation { asks })
    }

    /// Simulated time, ns.
    fn now_ns(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, |simulation, _| Ok(simulation.now()))
    }

    /// Runs up to a time such as `1s`. False when the run is over.
    fn step_until(&self, py: Python<'_>, time: &str) -> PyResult<bool> {
        let until_ns = given::run_time(time).map_err(errors::OptionError::new_err)?;
        self.ask(py, move |simulation, progress| {
            let slice_ns = (until_ns.saturating_sub(simulation.now()) / SLICES).max(SLICE_NS);
            while simulation.now() < until_ns {
                let next_ns = simulation.now().saturating_add(slice_ns).min(until_ns);
                if !simulation.step_until(next_ns)? {
                    return Ok(false);
                }
                if progress.stopped() {
                    return Err(cpumax_study::Error::Interrupted.into());
                }
            }
            Ok(true)
        })
    }

    /// A group as JSON; `None` if there is no such group.
    fn group(&self, py: Python<'_>, path: String) -> PyResult<Option<String>> {
        let state = self.ask(py, move |simulation, _| Ok(simulation.group(&path)))?;
        Ok(state.map(|state| of_group(&state).to_string()))
    }

    /// A CPU as JSON; `None` if there is no such CPU.
    fn cpu(&self, py: Python<'_>, cpu: u16) -> PyResult<Option<String>> {
        let state = self.ask(py, move |simulation, _| Ok(simulation.cpu(cpu)))?;
        Ok(state.map(|CpuState { online, running, nr_running, .. }| {
            json!({ "online": online, "running": running, "nr_running": nr_running }).to_string()
        }))
    }

    /// A task as JSON; `None` if it has not been started.
    fn task(&self, py: Python<'_>, name: String) -> PyResult<Option<String>> {
        let state = self.ask(py, move |simulation, _| Ok(simulation.task(&name)))?;
        Ok(state.map(|TaskState { group, cpu, doing, usage_ns, .. }| {
            let doing = format!("{doing:?}");
            json!({ "group": group, "cpu": cpu, "doing": doing, "usage_ns": usage_ns }).to_string()
        }))
    }

    /// The outcome so far as JSON; the run ends.
    fn outcome(&self, py: Python<'_>) -> PyResult<String> {
        self.ask_whole(py, |held, _| {
            let simulation = held.take().ok_or_else(|| anyhow!("its outcome was taken before"))?;
            let mut text = Vec::new();
            escape::to_json(&mut text, &simulation.outcome())?;
            Ok(String::from_utf8(text)?)
        })
    }
}

/// A group, under the names of the library; `runtime_ns` is what is left in its pool.
fn of_group(state: &GroupState) -> Value {
    json!({
        "quota_ns": state.quota_ns,
        "period_ns": state.period_ns,
        "burst_ns": state.burst_ns,
        "weight": state.weight,
        "runtime_ns": state.pool_ns,
        "throttled_cpus": state.throttled_cpus,
        "usage_ns": state.usage_ns,
        "nr_periods": state.nr_periods,
        "nr_throttled": state.nr_throttled,
        "completions": state.completions,
    })
}
