//! Creates worlds: the model of a kernel, or the kernel in a virtual machine.

use crate::cell::Mode;
use crate::vm;
use crate::world::{Model, World};
use cpumax_study::{Error, NamedKernel};
use cpumax_workload::Workload;
use std::path::Path;

/// Options of worlds.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// Whether to run real kernels in virtual machines instead of models.
    pub real: bool,
    /// One CPU, or several in parallel.
    pub mode: Mode,
    /// Number of virtual machines at a time; `None`: as the host's CPUs allow.
    pub side_by_side: Option<usize>,
    /// Directory that keeps runs of real kernels for reuse.
    pub kept: Option<&'a Path>,
    /// Whether real kernels time calls that release tasks, and count their work.
    pub releases: bool,
    /// Polled; stops the run by returning true.
    pub stop: fn() -> bool,
}

/// Boots all virtual machines that the workloads need; nothing for models.
///
/// # Errors
/// A kernel has not been fetched, or does not boot.
pub fn prepare(asked: &[&NamedKernel], how: How<'_>, workloads: &[Workload]) -> Result<(), Error> {
    if how.real { Ok(vm::boot(asked, how, workloads)?) } else { Ok(()) }
}

/// The world of this kernel: itself, or its model.
///
/// # Errors
/// The kernel has not been fetched.
pub fn world<'a>(asked: &NamedKernel, how: How<'a>) -> Result<Box<dyn World + 'a>, Error> {
    if how.real {
        return Ok(Box::new(vm::Machine::new(asked, how)?));
    }
    Ok(Box::new(Model::new(asked.kernel, how.stop)))
}
