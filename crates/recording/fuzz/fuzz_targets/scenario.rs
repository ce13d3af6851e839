//! Scenario files, however wrong: an error or a workload, never a panic; and a workload that is
//! written is read again as itself.

#![no_main]

use cpumax_workload::{parse, print, to_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(workload) = parse(text, "fuzz") else { return };
    if let Ok(printed) = to_file(&workload, "printed") {
        let again = parse(&printed, "printed").expect("what is written is accepted");
        assert_eq!(again, workload);
        assert_eq!(printed, print(&again));
    }
});
