//! Kernels as they are asked for on the command line.

use crate::args::WorldName;
use crate::failure::Failure;
use crate::{interrupt, output};
use anyhow::anyhow;
use cpumax_compare::cell::Mode;
pub use cpumax_compare::worlds::How;
use cpumax_engine::{NamedKernel, kernels as lists};
use std::path::Path;

/// The kernels a list names, in that world.
pub fn kernels(list: &str, on: WorldName) -> Result<Vec<NamedKernel>, Failure> {
    match on {
        WorldName::Model => lists::modelled(list).map_err(Failure::of),
        WorldName::Vm => fetched(list),
    }
}

/// Real kernels; those of a range that are not here are told.
pub fn fetched(list: &str) -> Result<Vec<NamedKernel>, Failure> {
    let fetched = lists::fetched(list).map_err(Failure::of)?;
    for (range, absent) in &fetched.absent {
        let (names, arguments) = (absent.join(", "), absent.join(" "));
        output::say(format_args!(
            "{names} of {range} left out: `cpumax lab fetch {arguments}` gets them"
        ));
    }
    Ok(fetched.kernels)
}

/// The only kernel that a list names.
pub fn one(list: &str, on: WorldName, option: &str) -> Result<NamedKernel, Failure> {
    let mut kernels = kernels(list, on)?;
    match (kernels.pop(), kernels.is_empty()) {
        (Some(kernel), true) => Ok(kernel),
        _ => Err(anyhow!("{option} takes one kernel").into()),
    }
}

/// The kernel that others are held against, if not their own models.
pub fn against(list: Option<&str>, on: WorldName) -> Result<Option<NamedKernel>, Failure> {
    match list {
        Some(list) => Ok(Some(one(list, on, "--against")?)),
        None if on == WorldName::Model => {
            let what = "the model would be compared with itself";
            Err(anyhow!("{what}: give another kernel with --against").into())
        }
        None => Ok(None),
    }
}

/// How worlds run what they are given: one CPU, or several side by side.
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

/// Why a comparison or search ended.
pub fn failure(error: cpumax_compare::Error) -> Failure {
    match error {
        cpumax_compare::Error::Interrupted => Failure::Interrupted,
        cpumax_compare::Error::Engine(error) => Failure::of(error),
        other => Failure::Input(other.into()),
    }
}
