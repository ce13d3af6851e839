//! Every scenario in `tests/refused` is refused with the message beside it. `SNAPSHOTS=overwrite`
//! writes the messages.

use cpumax_workload::{Error, load, parse};
use snapbox::{Data, assert_data_eq};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused")
}

#[test]
fn bad_scenarios() {
    let mut files: Vec<PathBuf> =
        folder().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= 25, "{} bad scenarios", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        let message = match parse(&text, name) {
            Ok(_) => panic!("{name} is accepted"),
            Err(error) => format!("{error}\n"),
        };
        assert!(message.starts_with(&format!("{name}:")), "{message}");
        assert_data_eq!(message, Data::read_from(&file.with_extension("txt"), None).raw());
    }
}

#[test]
fn what_is_not_a_scenario_file() {
    let folder_error = load(&folder()).unwrap_err().to_string();
    assert!(folder_error.ends_with("is a directory; a scenario is a TOML file"), "{folder_error}");
    let missing = load(&folder().join("missing")).unwrap_err();
    assert!(matches!(missing, Error::File { .. }), "{missing}");
    // An endless file is not read to its end.
    let zeros = load(Path::new("/dev/zero")).unwrap_err().to_string();
    assert_eq!(zeros, "/dev/zero: is larger than 4 MiB");
    let binary = load(&std::env::current_exe().unwrap()).unwrap_err();
    assert!(matches!(binary, Error::File { .. }), "{binary}");
}
