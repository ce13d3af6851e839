//! `cpumax record`: records the scheduling of chosen threads by BPF, for replay.
//!
//! A BPF program (`bpf/`) reports switches, wakeups, charges of CPU time, forks, system calls and
//! socket messages of the chosen threads, and of threads that wake them or are woken by them.
//! [`record`] writes these into a file that the Perfetto UI opens and that describes itself
//! (docs/guide/record.md). Where BPF may not be used, or in a build without the feature `bpf`,
//! [`Error::NoBpf`] shows a `perf record` command that records the same events.

#![cfg_attr(not(feature = "bpf"), allow(dead_code, reason = "it is a recording that needs it"))]

mod error;
mod groups;
mod instead;
#[cfg(feature = "bpf")]
mod live;
mod pods;
mod request;

pub use error::Error;
pub use groups::{Group, Hierarchy};
pub use request::{Buffer, End, Finished, Progress, Request, Target, describe_end, parse_size};

/// Records until the time, the size or the budget is used up, the command ends, or `go_on` returns
/// false. `go_on` is called with the progress some times a second.
///
/// # Errors
/// Nothing can be recorded, or the file cannot be written.
pub fn record(
    request: &Request,
    go_on: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Finished, Error> {
    #[cfg(feature = "bpf")]
    return live::session::record(request, go_on);
    #[cfg(not(feature = "bpf"))]
    {
        let _ = go_on;
        Err(Error::no_bpf("this cpumax was built without `cpumax record`", request))
    }
}
