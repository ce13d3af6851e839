//! Runs of workloads with seed 1.

use cpumax_machine::{Options, kernel, run};
use cpumax_noise::Microseconds;
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::Recorded;
use cpumax_workload::{Workload, parse};

/// The workload of a scenario's text.
pub fn workload(text: &str) -> Workload {
    parse(text, "text.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// Options for the kernel of that version, without checks.
pub fn plain(version: &str) -> Options<'static> {
    Options::new(kernel::parse_kernels(version).unwrap()[0], 1)
}

/// Options for the kernel of that version, with checks of all invariants after each event.
pub fn checked(version: &str) -> Options<'static> {
    Options { check: true, ..plain(version) }
}

pub fn outcome_of(workload: &Workload, options: &Options) -> Outcome {
    run(workload, options, None, None).unwrap()
}

/// Outcome and events.
pub fn recorded_of(workload: &Workload, options: &Options) -> (Outcome, Recorded) {
    let mut recorded = Recorded::default();
    let outcome = run(workload, options, Some(&mut recorded), None).unwrap();
    (outcome, recorded)
}

/// Outcome of a scenario's text, with checks.
pub fn outcome(text: &str, version: &str) -> Outcome {
    outcome_of(&workload(text), &checked(version))
}

/// Outcome and events of a scenario's text, with checks.
pub fn recorded(text: &str, version: &str) -> (Outcome, Recorded) {
    recorded_of(&workload(text), &checked(version))
}

/// Outcome and events of a scenario's text, with checks, under noise of this seed.
pub fn under_noise(text: &str, version: &str, seed: u64) -> (Outcome, Recorded) {
    let delays = Microseconds::of(seed);
    recorded_of(&workload(text), &Options { delays: Some(&delays), ..checked(version) })
}
