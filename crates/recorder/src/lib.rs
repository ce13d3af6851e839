//! `cpumax record`: what replay needs of a machine, recorded by BPF.
//!
//! A program in the kernel (`bpf/`) tells switches, wakeups, charges of CPU time, forks, system
//! calls and messages of sockets of the chosen threads and of those that wake them or are woken by
//! them; [`record`] writes them into a file that the Perfetto UI opens and that describes itself.
//! docs/guide/record.md has its form. Where BPF may not be used, or where this was built without the
//! feature `bpf`, [`Error::NoBpf`] says which `perf record` does the same.

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
pub use request::{Buffer, End, Progress, Request, Told, What, parse_size, told};

/// Records until its time, its size or its budget is used up, its command ends, or `go_on` says no;
/// that is asked and told how far it is a few times a second.
///
/// # Errors
/// When nothing can be recorded, or not be written.
pub fn record(request: &Request, go_on: &mut dyn FnMut(&Progress) -> bool) -> Result<Told, Error> {
    #[cfg(feature = "bpf")]
    return live::session::record(request, go_on);
    #[cfg(not(feature = "bpf"))]
    {
        let _ = go_on;
        Err(Error::no_bpf("this cpumax was built without `cpumax record`", request))
    }
}
