//! Every shipped scenario shows what it says it shows, on every kernel that is modelled, with every
//! invariant checked. The largest one is left to `make profile`.

use std::path::PathBuf;
use std::process::Command;

/// Takes minutes with every invariant checked after every event; `profile-small` shows the same.
const TOO_LARGE: &str = "profile-384";

fn shipped() -> Vec<String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios"));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the scenarios are part of the repository")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names
}

#[test]
fn every_scenario_shows_what_it_says_on_every_kernel() {
    let mut failed = Vec::new();
    for name in shipped().iter().filter(|name| *name != TOO_LARGE) {
        let output = Command::new(env!("CARGO_BIN_EXE_cpumax"))
            .args(["run", name, "--kernel", "4.18..7.3", "--check"])
            .output()
            .expect("the command runs");
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            let erred = String::from_utf8_lossy(&output.stderr);
            failed.push(format!("{name}: {}\n{said}{erred}", output.status));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
