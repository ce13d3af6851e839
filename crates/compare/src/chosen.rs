//! Selects the workloads of a comparison: scenarios by name, all built-in ones, random cases by
//! number.

use cpumax_study::{Error, builtin, given::Seeds, scenario};
use cpumax_workload::{Workload, as_name, random};
use std::path::Path;

/// The selected workloads, random cases last; with `parallel`, random cases have several CPUs. Each
/// workload has a name of its own, by which its cells are found.
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
    let mut workloads: Vec<Workload> = Vec::new();
    for argument in names {
        let mut workload = scenario::load(argument)?;
        let is_file = workload.name != argument;
        let is_taken = builtin::find(&workload.name).is_some()
            || workloads.iter().any(|other| other.name == workload.name);
        if is_file && is_taken {
            let name = with_folder(argument, &workload.name);
            let shows = workload.shows.clone();
            workload = workload.with_name(&name, &shows)?;
        }
        workloads.push(workload);
    }
    if let Some(Seeds { first, last }) = cases {
        let random = if parallel { random::real_on_several } else { random::real };
        workloads.extend((first..=last).map(random));
    }
    Ok(workloads)
}

/// A name such as `found/nested` for a file whose own name another scenario has.
fn with_folder(file: &str, name: &str) -> String {
    match Path::new(file).parent().and_then(Path::file_name) {
        Some(folder) => as_name(&format!("{}/{name}", folder.to_string_lossy()), usize::MAX),
        None => as_name(file, usize::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_told_from_the_built_in_scenario_of_its_name() {
        let found = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/found/");
        let file = |name: &str| format!("{found}{name}.toml");
        let asked = ["ancestor-leak".to_owned(), file("ancestor-leak"), file("concur")];
        let chosen = workloads(&asked, false, None, false).unwrap();
        let names: Vec<&str> = chosen.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["ancestor-leak", "found/ancestor-leak", "concur"]);
    }
}
