//! Perfetto traces, however broken: an error or a workload, never a panic.

#![no_main]

use cpumax_recording::{Options, Recording};
use cpumax_recording_fuzz::use_up;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| use_up(Recording::read_bytes("fuzz", data, Options::default())));
