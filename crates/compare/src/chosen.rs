//! The workloads of a comparison: scenarios by name, all that are built in, random cases by number.

use cpumax_engine::given::Seeds;
use cpumax_engine::{Error, builtin, scenario};
use cpumax_workload::{Workload, random};

/// All of them, random cases last; `parallel` ones have several CPUs.
///
/// # Errors
/// A scenario cannot be read.
pub fn workloads(
    scenarios: &[String],
    all: bool,
    cases: Option<Seeds>,
    parallel: bool,
) -> Result<Vec<Workload>, Error> {
    let built_in = builtin::ALL.iter().map(|built_in| built_in.name).filter(|_| all);
    let names = scenarios.iter().map(String::as_str).chain(built_in);
    let mut workloads = names.map(scenario::load).collect::<Result<Vec<_>, _>>()?;
    if let Some(Seeds { first, last }) = cases {
        let random = if parallel { random::real_on_several } else { random::real };
        workloads.extend((first..=last).map(random));
    }
    Ok(workloads)
}
