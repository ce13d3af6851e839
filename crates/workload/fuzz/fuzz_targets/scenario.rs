//! Scenario files, however broken: an error or a workload, never a panic; and what is accepted
//! reads back the same after it is printed.
//!
//! `cargo +nightly fuzz run scenario fuzz/corpus/scenario ../../scenarios --
//! -dict=fuzz/scenario.dict`

#![no_main]

use cpumax_workload::{parse, print};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse(text, "fuzz.toml") {
        Err(error) => assert!(!error.to_string().is_empty()),
        // Ranges in names multiply, and a name made by one may look like another when it is read
        // again.
        Ok(_) if text.contains("..") => {}
        Ok(workload) => {
            let printed = print(&workload);
            assert_eq!(parse(&printed, "printed.toml").as_ref(), Ok(&workload), "{printed}");
        }
    }
});
