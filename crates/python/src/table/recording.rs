//! Recordings: a row for each thread, or for each request.

use super::{batch, named};
use arrow_array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, StringArray, UInt64Array};
use cpumax_recording::{Request, Service, Summary, ThreadSummary};
use std::iter;
use std::sync::Arc;

/// The threads of a recording, those that used most CPU time first.
pub fn threads(summary: &Summary) -> RecordBatch {
    let threads = &summary.threads;
    let number = |of: fn(&ThreadSummary) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(threads.iter().map(of)))
    };
    let group = threads.iter().map(|thread| thread.group.as_deref());
    let kernel: Vec<bool> = threads.iter().map(|thread| thread.kernel).collect();
    let columns: [(&str, ArrayRef); 10] = [
        ("name", Arc::new(StringArray::from_iter_values(threads.iter().map(|t| &t.name)))),
        ("comm", Arc::new(StringArray::from_iter_values(threads.iter().map(|t| &t.comm)))),
        ("tid", Arc::new(Int32Array::from_iter_values(threads.iter().map(|t| t.tid)))),
        ("pid", Arc::new(threads.iter().map(|t| t.pid).collect::<Int32Array>())),
        ("group", Arc::new(group.collect::<StringArray>())),
        ("kernel", Arc::new(BooleanArray::from(kernel))),
        ("runtime_ns", number(|thread| thread.runtime_ns)),
        ("real_time_ns", number(|thread| thread.real_time_ns)),
        ("waits", number(|thread| thread.waits)),
        ("guessed_waits", number(|thread| thread.guessed_waits)),
    ];
    batch(columns)
}

/// The requests of services, as `cpumax_forecast::recorded::services` finds them: by service, then
/// connection, then time.
pub fn requests(services: &[(String, Service)]) -> RecordBatch {
    let names: Vec<String> = services.iter().map(|(name, _)| name.clone()).collect();
    let counts = services.iter().map(|(_, service)| service.requests.len()).zip(0..);
    let places = counts.flat_map(|(requests, at)| iter::repeat_n(Some(at), requests));
    let number = |of: fn(&Request) -> u64| -> ArrayRef {
        let requests = services.iter().flat_map(|(_, service)| &service.requests);
        Arc::new(UInt64Array::from_iter_values(requests.map(of)))
    };
    batch([
        ("service", named(places, &names)),
        ("connection", number(|request| u64::from(request.connection))),
        ("arrived_ns", number(|request| request.arrived_ns)),
        ("answered_ns", number(|request| request.answered_ns)),
        ("took_ns", number(Request::took_ns)),
    ])
}
