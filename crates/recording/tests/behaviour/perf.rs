//! Reads a recording that `perf` of this machine makes with the command of
//! `docs/reference/recordings.md`: its threads run and sleep as they should.

use cpumax_recording::{Options, Recording};
use cpumax_require::{Need, found};
use std::path::Path;
use std::process::Command;

const GUIDE: &str = include_str!("../../../../docs/reference/recordings.md");
/// Computes, and then sleeps twice.
const LOAD: &str = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.05; sleep 0.05";

/// The words of the guide's command with system calls, without the command it runs.
fn documented() -> Vec<String> {
    let command = GUIDE.split("    perf record -a --all-cgroups").nth(1).expect("is in the guide");
    let arguments = command.split(" -- ").next().expect("runs something").replace("\\\n", " ");
    let words = arguments.split_whitespace().map(str::to_owned);
    ["record", "-a", "--all-cgroups"].map(str::to_owned).into_iter().chain(words).collect()
}

/// The recording of the load, or why there is none.
fn record(file: &Path, further: &[&str]) -> Result<Recording, String> {
    let mut perf = Command::new("perf");
    perf.args(documented()).args(further).arg("-o").arg(file).args(["--", "sh", "-c", LOAD]);
    let output = perf.output().map_err(|error| format!("perf: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(Recording::read(file, Options::default()).unwrap())
}

#[test]
fn a_recording_of_this_machine_tells_who_ran_and_who_slept() {
    let folder = tempfile::tempdir().unwrap();
    let recording = record(&folder.path().join("perf.data"), &[]);
    let Some(recording) = found(Need::Perf, recording) else { return };
    assert_tells(&recording);
}

#[test]
fn a_recording_compressed_by_each_thread_of_perf_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let recording = record(&folder.path().join("perf.data"), &["--threads", "-z"]);
    let Some(recording) = found(Need::Perf, recording) else { return };
    assert_tells(&recording);
}

fn assert_tells(recording: &Recording) {
    assert!(recording.span_ns() > 100_000_000, "{}", recording.span_ns());
    let threads = recording.summary().threads;
    let named = |name: &str| -> Vec<_> { threads.iter().filter(|t| t.comm == name).collect() };
    let computed_ns = named("sh").iter().map(|thread| thread.runtime_ns).max();
    assert!(computed_ns.is_some_and(|ns| ns > 1_000_000), "{threads:?}");
    assert!(named("sleep").len() >= 2, "{threads:?}");
}
