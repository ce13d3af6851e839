//! Uses a recording in every way, once it could be read.

use cpumax_recording::{Error, Recording, Selection};

/// Asks for the summary, the services, and workloads with and without a limited group.
pub fn use_up(recording: Result<Recording, Error>) {
    let Ok(recording) = recording else { return };
    let _ = recording.summary();
    let _ = recording.services();
    let limited = vec!["*s*".parse().expect("a pattern")];
    for limited in [Vec::new(), limited] {
        let _ = recording.import(&Selection { limited, ..Selection::default() });
    }
}
