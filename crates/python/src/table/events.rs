//! The events of a run.

use super::{batch, named, optional};
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, UInt16Array, UInt64Array};
use cpumax_outcome::trace::{Recorded, What};
use std::sync::Arc;

/// A row for each event, in order of time: when, on which CPU, its kind, the task, the group, and
/// a length in ns (how long a request or a release took; the runtime left in a pool). Columns that
/// an event does not have are null.
pub fn events(recorded: &Recorded) -> RecordBatch {
    let Recorded { events, names } = recorded;
    let parts = || events.iter().map(|event| parts(event.what));
    let times = events.iter().map(|event| event.time_ns);
    let mut kinds = Vec::new();
    let of_kinds: Vec<u32> = events.iter().map(|event| place(&mut kinds, event.what)).collect();
    let columns: [(&str, ArrayRef); 6] = [
        ("time_ns", Arc::new(UInt64Array::from_iter_values(times))),
        ("cpu", Arc::new(UInt16Array::from_iter_values(events.iter().map(|event| event.cpu)))),
        ("event", named(of_kinds.iter().copied().map(Some), &kinds)),
        ("task", named(parts().map(|(task, ..)| task), &names.tasks)),
        ("group", named(parts().map(|(_, group, _)| group), &names.groups)),
        ("ns", Arc::new(optional::<UInt64Type>(parts().map(|(.., ns)| ns)))),
    ];
    batch(columns)
}

/// The place of an event's kind among those seen, which are few.
fn place(kinds: &mut Vec<&'static str>, what: What) -> u32 {
    let kind = what.kind();
    let at = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
        kinds.push(kind);
        kinds.len() - 1
    });
    at as u32
}

/// The task, the group, and the length, ns.
fn parts(what: What) -> (Option<u32>, Option<u32>, Option<u64>) {
    match what {
        What::Switch { next } => (next, None, None),
        What::Done { task, took_ns } => (Some(task), None, Some(took_ns)),
        What::Runtime { group, left_ns } => (None, Some(group), Some(left_ns)),
        What::Throttle { group } | What::Unthrottle { group } | What::Period { group } => {
            (None, Some(group), None)
        }
        What::Release { took_ns, .. } => (None, None, Some(took_ns)),
        What::Sleep { task }
        | What::Wake { task }
        | What::WokenBy { task, .. }
        | What::Park { task }
        | What::Unpark { task }
        | What::LockWait { task, .. }
        | What::LockTaken { task, .. }
        | What::Exit { task }
        | What::Forked { task, .. } => (Some(task), None, None),
        What::SendBegins(one) | What::Sent(one) | What::Received(one) => {
            (Some(one.task), None, None)
        }
    }
}
