//! The Python package cpumax: classes and functions over the libraries. Words and paths come in,
//! documents and Arrow tables go out; python/cpumax gives them a form for people.

#![allow(clippy::needless_pass_by_value, reason = "Python hands over values")]

mod advice;
mod errors;
mod goals;
mod recording;
mod simulation;
mod study;
mod table;
mod work;
mod workload;

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command; `words` are those of its line. Returns its exit status.
#[pyfunction]
fn main(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| cpumax::main(&words))
}

#[pymodule]
fn _cpumax(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(recording::read, module)?)?;
    module.add_function(wrap_pyfunction!(study::replay, module)?)?;
    module.add_function(wrap_pyfunction!(study::check, module)?)?;
    module.add_function(wrap_pyfunction!(study::limit_label, module)?)?;
    module.add_function(wrap_pyfunction!(study::limit_in_form, module)?)?;
    module.add_function(wrap_pyfunction!(study::no_rows, module)?)?;
    module.add("PAGE_STYLE", cpumax_report::PAGE_STYLE)?;
    module.add_function(wrap_pyfunction!(advice::advise, module)?)?;
    module.add_function(wrap_pyfunction!(workload::run, module)?)?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<study::Study>()?;
    module.add_class::<advice::Advice>()?;
    module.add_class::<goals::Goals>()?;
    module.add_class::<workload::Workload>()?;
    module.add_class::<workload::Runs>()?;
    module.add_class::<simulation::Simulation>()?;
    module.add_class::<table::Table>()?;
    errors::add_to(module)
}
