//! The worlds that workloads can be compared in: the model of a kernel, or the kernel itself in a
//! virtual machine.

mod vm;

pub use vm::{kernel_arguments, side_by_side};

use crate::args::WorldName;
use crate::failure::Failure;
use crate::interrupt;
use cpumax_compare::cell::Mode;
use cpumax_compare::{Error, Model, World};
use cpumax_machine::kernel::{self, Kernel};
use cpumax_workload::Workload;
use std::path::Path;

/// A kernel as it was asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// As it is called in tables.
    pub name: String,
    /// What the model takes it for.
    pub kernel: Kernel,
}

/// How worlds run what they are given.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// Where kernels are run.
    pub on: WorldName,
    /// One CPU, or several side by side.
    pub mode: Mode,
    /// Virtual machines at a time, if not as many as there are CPUs for.
    pub side_by_side: Option<u16>,
    /// Where real kernels' runs are kept, and taken from.
    pub kept: Option<&'a Path>,
}

/// The kernels a list names.
pub fn kernels(list: &str, on: WorldName) -> anyhow::Result<Vec<Asked>> {
    match on {
        WorldName::Model => Ok(kernel::parse_kernels(list)?
            .into_iter()
            .map(|kernel| Asked { name: kernel.version.to_string(), kernel })
            .collect()),
        WorldName::Vm => vm::kernels(list),
    }
}

/// Prepares kernels for what they will run, all at once rather than each when it is needed.
pub fn prepare(asked: &[&Asked], how: How<'_>, workloads: &[Workload]) -> Result<(), Failure> {
    match how.on {
        WorldName::Model => Ok(()),
        WorldName::Vm => vm::boot(asked, how, workloads),
    }
}

/// That kernel in that world.
pub fn world<'a>(asked: &Asked, how: How<'a>) -> anyhow::Result<Box<dyn World + 'a>> {
    match how.on {
        WorldName::Model => Ok(Box::new(model(asked))),
        WorldName::Vm => Ok(Box::new(vm::Machine::new(asked, how)?)),
    }
}

/// The model of that kernel.
pub fn model(asked: &Asked) -> Model {
    Model::new(asked.kernel, interrupt::requested)
}

/// Why a comparison or search ended.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Interrupted => Failure::Interrupted,
        other => Failure::Input(other.into()),
    }
}
