//! Selects the workloads of a comparison: scenarios by name, all built-in ones, random cases by
//! number.

use cpumax_engine::given::Seeds;
use cpumax_engine::{Error, builtin, scenario};
use cpumax_workload::{Workload, random};

/// The selected workloads, random cases last; with `parallel`, random cases have several CPUs.
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
