//! Kernels as they are asked for on the command line.

use crate::args::WorldName;
use crate::failure::Failure;
use crate::output;
use cpumax_engine::{NamedKernel, kernels as lists};

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
        _ => Err(anyhow::anyhow!("{option} takes one kernel").into()),
    }
}

/// Why a comparison or search ended.
pub fn failure(error: cpumax_compare::Error) -> Failure {
    match error {
        cpumax_compare::Error::Interrupted => Failure::Interrupted,
        other => Failure::Input(other.into()),
    }
}
