//! Every shipped scenario can be read, and says what it shows and what must come of it.

use std::path::PathBuf;

fn shipped() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the scenarios are part of the repository")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_shipped_scenario_is_read_and_complete() {
    let paths = shipped();
    assert!(paths.len() >= 36, "31 experiments and the seeds' examples, not {}", paths.len());
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let workload = match cpumax_workload::load(&path) {
            Ok(workload) => workload,
            Err(error) => {
                wrong.push(error.to_string());
                continue;
            }
        };
        assert_eq!(workload.name, name);
        assert!(workload.shows.ends_with('.'), "{name} says in a sentence what it shows");
        assert!(!workload.expectations.is_empty(), "{name} expects something");
        for expectation in &workload.expectations {
            assert!(!expectation.why.is_empty(), "{name}: {} says why", expectation.metric);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
