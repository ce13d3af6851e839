//! What all fuzz targets of recordings do with one that could be read.

use cpumax_recording::{Error, Recording, Selection};

/// Asks for all that is told of it, and for workloads with and without a group that is limited.
pub fn use_up(recording: Result<Recording, Error>) {
    let Ok(recording) = recording else { return };
    let _ = recording.summary();
    let _ = recording.services();
    let limited = vec!["*s*".parse().expect("a pattern")];
    for limited in [Vec::new(), limited] {
        let _ = recording.import(&Selection { limited, ..Selection::default() });
    }
}
