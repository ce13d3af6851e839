//! Scheduler recordings of real machines, read into workloads.
//!
//! A recording is a file of perf, trace-cmd, Perfetto or wprof with scheduler tracepoints, or text
//! printed from one. Three steps read it. A reader turns the file into events ([`Recording::read`]
//! chooses it). The timeline assembles what each thread executed and what it waited for.
//! [`Recording::workload`] turns threads into programs. Time spent waiting for a CPU is left out,
//! whatever the reason: the workload is what the threads wanted to do. docs/reference/recordings.md
//! describes each step.
//!
//! Memory grows with the number of threads and their steps, not with the size of the file, and is
//! bounded.

pub mod about;
mod build;
mod classify;
mod cost;
mod defects;
mod error;
mod event;
mod gaps;
mod input;
mod lines;
mod load;
mod packing;
mod perf_data;
mod perf_script;
mod perfetto;
mod raw;
mod recording;
mod requests;
mod selector;
mod steps;
mod summary;
mod syscalls;
mod thread;
mod timeline;
mod trace_dat;
mod tracepoint;
mod wprof;

pub use build::{Clock, Selection};
pub use cost::EventCost;
pub use defects::Defects;
pub use error::Error;
pub use gaps::{Gap, GapKind};
pub use input::Form;
pub use load::{Demand, Load, Usage, Window};
pub use packing::unpacked;
pub use recording::{Options, Recording};
pub use requests::evidence::{Clients, Evidence, Loop};
pub use requests::{Request, Service};
pub use selector::Selector;
pub use summary::{Summary, ThreadSummary, Waits};
pub use thread::unnumbered;

use defects::Defect;

/// The error for a sink that takes no further events; it names `name` and what to record instead.
fn refused(name: &str, stop: event::Stop) -> Error {
    let name = name.to_owned();
    match stop {
        event::Stop::Misordered { backwards, events, by_at_most_ns } => {
            Error::Misordered { name, backwards, events, by_at_most_ns }
        }
        event::Stop::TooMuchToKeep { events, threads, steps, waits, ios } => Error::Unsupported {
            name,
            what: format!(
                "its first {events} events are all that can be kept: {steps} steps, {waits} waits \
                 and {ios} transfers of {threads} threads; record for a shorter time, or only what \
                 is needed, or feed a part of it: `perf script -i FILE --time FROM,TO`"
            ),
        },
        event::Stop::TooManyThreads { most } => Error::Unsupported {
            name,
            what: format!(
                "more than {most} threads did something, the most that are read; record for a \
                 shorter time"
            ),
        },
        event::Stop::SeenEnough => {
            Error::Unsupported { name, what: "more than its first events".to_owned() }
        }
    }
}
