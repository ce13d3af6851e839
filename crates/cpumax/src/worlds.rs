//! Turns kernels on the command line into kernels of a world.

use crate::failure::Failure;
use crate::{interrupt, output};
use anyhow::anyhow;
use clap::ValueEnum;
pub use cpumax_compare::How;
use cpumax_compare::Mode;
use cpumax_study::{NamedKernel, kernels as lists};
use std::path::Path;

/// Where a kernel is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorldName {
    /// In the model
    Model,
    /// As a real kernel in a virtual machine
    Vm,
}

/// The kernels of a list, in the model or as real ones.
pub fn kernels(list: &str, on: WorldName) -> Result<Vec<NamedKernel>, Failure> {
    match on {
        WorldName::Model => lists::modelled(list).map_err(Failure::of),
        WorldName::Vm => fetched(list),
    }
}

/// Fetched real kernels of a list; prints those of a range that are not fetched.
pub fn fetched(list: &str) -> Result<Vec<NamedKernel>, Failure> {
    let fetched = lists::fetched(list).map_err(Failure::of)?;
    for (range, absent) in &fetched.absent {
        let (names, arguments) = (absent.join(", "), absent.join(" "));
        output::eprint_line(format_args!(
            "{range} runs without {names}, not fetched yet: `cpumax lab fetch {arguments}`"
        ));
    }
    Ok(fetched.kernels)
}

/// The kernel of a list that may have one only.
pub fn single_kernel(list: &str, on: WorldName, option: &str) -> Result<NamedKernel, Failure> {
    let mut kernels = kernels(list, on)?;
    match (kernels.pop(), kernels.is_empty()) {
        (Some(kernel), true) => Ok(kernel),
        _ => Err(anyhow!("{option} takes one kernel, not a list").into()),
    }
}

/// The kernel to compare with; `None`: each kernel's own model.
pub fn against(list: Option<&str>, on: WorldName) -> Result<Option<NamedKernel>, Failure> {
    match list {
        Some(list) => Ok(Some(single_kernel(list, on, "--against")?)),
        None if on == WorldName::Model => {
            let what = "the model would be compared with itself";
            Err(anyhow!("{what}: give another kernel with --against").into())
        }
        None => Ok(None),
    }
}

/// How worlds run workloads: on one CPU or on several, and how many runs at a time.
pub fn how(on: WorldName, parallel: bool, jobs: Option<u16>, kept: Option<&Path>) -> How<'_> {
    How {
        real: on == WorldName::Vm,
        mode: if parallel { Mode::Parallel } else { Mode::Exact },
        side_by_side: jobs.map(usize::from),
        kept,
        releases: false,
        stop: interrupt::requested,
    }
}

/// The failure for the end of a comparison or search.
pub fn failure(error: cpumax_compare::Error) -> Failure {
    match error {
        cpumax_compare::Error::Interrupted => Failure::Interrupted,
        cpumax_compare::Error::Study(error) => Failure::of(error),
        other => Failure::Input(other.into()),
    }
}
