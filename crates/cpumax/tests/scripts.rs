//! Scripts in `bench/` print their usage.

use std::path::Path;
use std::process::{Command, Output};

/// Output of a script without arguments; `None` where its interpreter is missing.
fn without_arguments(language: &str, script: &str) -> Option<Output> {
    match Command::new(language).arg(Path::new("../..").join(script)).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("NOT TESTED: {script}, as {language} cannot be run: {error}");
            None
        }
    }
}

#[test]
fn scripts_that_are_given_nothing_say_what_they_need() {
    for (language, script) in [
        ("python3", "bench/record.py"),
        ("python3", "bench/same.py"),
        ("python3", "bench/microseconds.py"),
        ("sh", "bench/kvm.sh"),
    ] {
        let Some(output) = without_arguments(language, script) else { continue };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{script}: {said}");
        assert!(said.contains(script) && !said.contains("Traceback"), "{script}: {said}");
    }
}
