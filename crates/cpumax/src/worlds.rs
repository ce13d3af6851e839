//! The worlds that workloads can be compared in: the model of a kernel, or the kernel itself in a virtual machine.

use crate::args::WorldName;
use crate::failure::Failure;
use crate::interrupt;
use anyhow::bail;
use cpumax_compare::{Error, Model, World};
use cpumax_machine::kernel::{self, Kernel};

/// A kernel as it was asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// As it is called in tables.
    pub name: String,
    /// What the model takes it for.
    pub kernel: Kernel,
}

/// The kernels a list names.
pub fn kernels(list: &str, on: WorldName) -> anyhow::Result<Vec<Asked>> {
    match on {
        WorldName::Model => Ok(kernel::parse_kernels(list)?
            .into_iter()
            .map(|kernel| Asked { name: kernel.version.to_string(), kernel })
            .collect()),
        WorldName::Vm => {
            bail!("real kernels cannot be started yet: compare two models, --on model")
        }
    }
}

/// That kernel in that world.
pub fn world(asked: &Asked, on: WorldName) -> anyhow::Result<Box<dyn World>> {
    match on {
        WorldName::Model => Ok(Box::new(model(asked))),
        WorldName::Vm => {
            bail!("real kernels cannot be started yet: compare two models, --on model")
        }
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
