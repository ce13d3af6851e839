//! The worlds that workloads can be compared in: the model of a kernel, or the kernel itself in a
//! virtual machine.

use crate::cell::Mode;
use crate::vm;
use crate::world::{Model, World};
use cpumax_engine::{Error, NamedKernel};
use cpumax_workload::Workload;
use std::path::Path;

/// How worlds run what they are given.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// Kernels are run themselves, in virtual machines; otherwise their models are.
    pub real: bool,
    /// One CPU, or several side by side.
    pub mode: Mode,
    /// Virtual machines at a time, if not as many as there are CPUs for.
    pub side_by_side: Option<usize>,
    /// Where real kernels' runs are kept, and taken from.
    pub kept: Option<&'a Path>,
    /// Whether real kernels time what releases, and count what each call does.
    pub releases: bool,
    /// Asked now and then: whether to stop.
    pub stop: fn() -> bool,
}

/// Prepares kernels for what they will run, all at once rather than each when it is needed.
///
/// # Errors
/// One has not been fetched, or does not boot.
pub fn prepare(asked: &[&NamedKernel], how: How<'_>, workloads: &[Workload]) -> Result<(), Error> {
    if how.real { Ok(vm::boot(asked, how, workloads)?) } else { Ok(()) }
}

/// That kernel, itself or its model.
///
/// # Errors
/// It has not been fetched.
pub fn world<'a>(asked: &NamedKernel, how: How<'a>) -> Result<Box<dyn World + 'a>, Error> {
    if how.real {
        return Ok(Box::new(vm::Machine::new(asked, how)?));
    }
    Ok(Box::new(Model::new(asked.kernel, how.stop)))
}
