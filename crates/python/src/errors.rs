//! A class of exception for each kind of error of the libraries.

use cpumax_machine::kernel::KernelError as UnknownKernel;
use cpumax_report::escape;
use cpumax_study::Error as Of;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::{create_exception, prelude::*};

create_exception!(cpumax, Error, PyException, "Any error of cpumax.");
create_exception!(cpumax, OptionError, Error, "An option does not take that value.");
create_exception!(
    cpumax,
    LimitError,
    Error,
    "A limit is not understood, or the kernel refuses it."
);
create_exception!(cpumax, KernelError, Error, "There is no such kernel, or it lacks something.");
create_exception!(cpumax, RecordingError, Error, "A recording cannot be read or replayed.");
create_exception!(cpumax, SelectionError, Error, "No thread or group is chosen, or several are.");
create_exception!(cpumax, QuestionError, Error, "The question has no answer as it is put.");
create_exception!(cpumax, WorkloadError, Error, "A scenario is wrong, or a change to it.");
create_exception!(cpumax, RunError, Error, "A run cannot be completed.");
create_exception!(cpumax, ModelFault, Error, "The model contradicts itself; please report it.");
create_exception!(cpumax, StudyError, Error, "A file is no study, or cannot be read or written.");

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("OptionError", py.get_type::<OptionError>())?;
    module.add("LimitError", py.get_type::<LimitError>())?;
    module.add("KernelError", py.get_type::<KernelError>())?;
    module.add("RecordingError", py.get_type::<RecordingError>())?;
    module.add("SelectionError", py.get_type::<SelectionError>())?;
    module.add("QuestionError", py.get_type::<QuestionError>())?;
    module.add("WorkloadError", py.get_type::<WorkloadError>())?;
    module.add("RunError", py.get_type::<RunError>())?;
    module.add("ModelFault", py.get_type::<ModelFault>())?;
    module.add("StudyError", py.get_type::<StudyError>())
}

/// The exception for an error of a library.
pub fn of_library(error: impl Into<Of>) -> PyErr {
    of(error.into().into())
}

/// The exception for an error; its text has all causes.
pub fn of(error: anyhow::Error) -> PyErr {
    if let Some(words) = error.downcast_ref::<clap::Error>() {
        let text = words.to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        return OptionError::new_err(first.trim_start_matches("error: ").to_owned());
    }
    let text = escape::chain(error.chain());
    if error.downcast_ref::<UnknownKernel>().is_some() {
        return KernelError::new_err(text);
    }
    match error.downcast_ref::<Of>() {
        Some(of) => by_kind(of, text),
        None if error.is::<cpumax_machine::Error>() => RunError::new_err(text),
        None => Error::new_err(text),
    }
}

fn by_kind(error: &Of, text: String) -> PyErr {
    match error {
        Of::Interrupted => PyKeyboardInterrupt::new_err(()),
        Of::Run { .. } | Of::Trace(_) | Of::Threads { .. } | Of::Lab(_) | Of::Refused(_) => {
            RunError::new_err(text)
        }
        Of::ModelFault { .. } => ModelFault::new_err(text),
        Of::TooLong { .. } | Of::AllIsCost { .. } | Of::Recording(_) => {
            RecordingError::new_err(text)
        }
        Of::NoGroups { .. }
        | Of::NoThread { .. }
        | Of::NotInGroup { .. }
        | Of::TwoGroups { .. }
        | Of::GroupAndThreads { .. }
        | Of::NoPod { .. }
        | Of::Root => SelectionError::new_err(text),
        Of::Question(_) | Of::NoWindow { .. } => QuestionError::new_err(text),
        Of::Setting(_) => LimitError::new_err(text),
        Of::Kernel(_) | Of::NoBurst { .. } | Of::NoneFetched { .. } | Of::NotExact { .. } => {
            KernelError::new_err(text)
        }
        Of::Workload(_) | Of::Scenario(_) | Of::Expectation { .. } | Of::Change(_) => {
            WorkloadError::new_err(text)
        }
        Of::Saved { .. } | Of::File { .. } => StudyError::new_err(text),
        _ => Error::new_err(text),
    }
}
