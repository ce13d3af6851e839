//! JSON of wprof, however broken: an error or a workload, never a panic.

#![no_main]

use cpumax_recording::{Options, Recording, Selection};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(recording) = Recording::read_bytes("fuzz", data, Options::default()) {
        let _ = recording.summary();
        let _ = recording.services();
        let limited = vec!["*s*".parse().expect("a pattern")];
        for limited in [Vec::new(), limited] {
            let _ = recording.import(&Selection { limited, ..Selection::default() });
        }
    }
});
