// SPDX-License-Identifier: GPL-2.0-only
//! Threads that the kernel creates in a process and that never return to user mode: workers of
//! `io_uring`, and its poller.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::guest::{COUNT, Checked, Group, Scheduler, beside_fair, counted, hold};

const LIMIT: &str = "20000 100000";
/// Value of `enum cure`.
const WITHOUT_IO_WORKER: &str = "--without=1024";

/// Sum of a value over the threads of a group whose names begin with the given text.
fn sum_of(group: &Group, name: &str, field: &str) -> u64 {
    let stat = group.stat();
    let threads = stat["tasks"].as_array().into_iter().flatten();
    let named = threads.filter(|task| task["comm"].as_str().is_some_and(|it| it.starts_with(name)));
    named.filter_map(|task| task[field].as_u64()).sum()
}

/// Requests completed in ten seconds, CPUs that the group used, how often its workers were parked
/// and the time they ran while throttled.
fn reads(ours: bool) -> (u64, f64, [u64; 2]) {
    let group = Group::new("ring", LIMIT);
    let load = group.load(&["ring", COUNT, "16384"]);
    sleep(Duration::from_secs(3));
    let before = counted(COUNT);
    let rate = group.rate(Duration::from_secs(10));
    let of_workers = |field| if ours { sum_of(&group, "iou-wrk", field) } else { 0 };
    let done = counted(COUNT) - before;
    let result = (done, rate, [of_workers("parks"), of_workers("kernel_overrun_usec")]);
    drop(load);
    let _ = fs::remove_file(COUNT);
    result
}

/// A task that leaves work to workers is parked, and its workers are parked between two requests. A
/// worker finishes a request that it has begun.
pub fn io_workers() -> Checked {
    let (fair, ours) = beside_fair(|ours| Ok(reads(ours)))?;
    let [parks, overrun] = ours.2;
    let said = format!(
        "{} requests and {:.4} CPUs of 0.2, workers parked {parks} times, {overrun} us run while \
         throttled; under the fair class {} and {:.4}",
        ours.0, ours.1, fair.0, fair.1
    );
    // Eight requests of seven milliseconds may be in flight at the beginning or at the end.
    hold(&said, ours.1, 0.2, 3.0)?;
    if ours.0 * 10 < fair.0 * 9 || parks == 0 || overrun == 0 { Err(said) } else { Ok(said) }
}

fn poller() -> f64 {
    let group = Group::new("poll", LIMIT);
    let _load = group.load(&["polled"]);
    sleep(Duration::from_secs(2));
    group.rate(Duration::from_secs(5))
}

/// A thread that polls for requests for ever, in the kernel, has the limit of its process.
pub fn io_poller() -> Checked {
    let (fair, ours) = beside_fair(|_| Ok(poller()))?;
    let scheduler = Scheduler::start(&[WITHOUT_IO_WORKER])?;
    let without = poller();
    scheduler.stop()?;
    let said = format!(
        "{ours:.4} CPUs of 0.2, without the cure {without:.4}; under the fair class {fair:.4}"
    );
    hold(&said, ours, 0.2, 1.0)?;
    if without < 0.5 { Err(said) } else { Ok(said) }
}
