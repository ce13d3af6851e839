//! Work that a serving thread hands to a pool within its process, and gets back by a byte: an event
//! loop with worker threads, as in libuv.
//!
//! A worker has no connection with clients. It tells that it has finished by a write to a
//! descriptor, such as an eventfd, that wakes the thread which serves the client. Workers begin in
//! the order in which requests were read. A pool counts if that order explains its writes: each
//! comes from work that began after the read of its request, and ends before the answer.

use super::tags::Tag;
use super::{REQUESTS_MIN, Traffic};
use crate::recording::Recording;
use crate::syscalls::IoKind;
use crate::thread::Cause;
use std::collections::{BTreeMap, BTreeSet};

/// At least so many parts of 100 of a pool's writes have a request.
const EXPLAINED_PERCENT: usize = 95;
/// At least one in so many of them wakes a thread that serves.
const WAKES_ONE_IN: usize = 16;

/// A worker's write, which ends work for one request.
struct Finish {
    began_ns: u64,
    ended_ns: u64,
    /// Index into the transfers.
    io: u32,
}

/// The writes (index of transfer) by which threads `inside` the group without a connection tell
/// those that serve requests that work for a request is done, and these requests.
pub(super) fn finished(
    recording: &Recording,
    traffic: &Traffic,
    inside: &[bool],
) -> Vec<(u32, Tag)> {
    let serves = serving(recording, traffic);
    let wakes = wakes_of_serving(recording, &serves);
    let mut pools: BTreeMap<(i32, &str), (Vec<Finish>, usize)> = BTreeMap::new();
    let mut last_ns: BTreeMap<u32, u64> = BTreeMap::new();
    for (at, io) in recording.ios.iter().enumerate() {
        let thread = io.thread as usize;
        if io.kind != IoKind::Write || inside.get(thread) != Some(&true) || serves[thread] {
            continue;
        }
        let of = &recording.threads[thread];
        let before = of.waits.partition_point(|wait| wait.end_ns <= io.entered_ns);
        let asked =
            of.waits[..before].iter().rfind(|wait| matches!(wait.cause, Cause::Thread { .. }));
        let asked_ns = asked.map_or(recording.first_ns, |wait| wait.end_ns);
        let done_ns = last_ns.insert(io.thread, io.entered_ns).unwrap_or(0);
        let (pool, woken) = pools.entry((of.process(), of.unnumbered())).or_default();
        pool.push(Finish {
            began_ns: asked_ns.max(done_ns),
            ended_ns: io.entered_ns,
            io: at as u32,
        });
        let ends_ns = io.left_ns.max(io.entered_ns);
        let of_it = wakes.range((io.thread, io.entered_ns)..=(io.thread, ends_ns));
        *woken += usize::from(of_it.count() > 0);
    }
    let asked = requests(recording, traffic);
    let explained = |(finishes, woken): (Vec<Finish>, usize)| {
        let all = finishes.len();
        let matched = in_order(finishes, &asked);
        let is_pool = all >= REQUESTS_MIN
            && woken * WAKES_ONE_IN >= all
            && matched.len() * 100 >= all * EXPLAINED_PERCENT;
        if is_pool { matched } else { Vec::new() }
    };
    let mut all: Vec<(u32, Tag)> = pools.into_values().flat_map(explained).collect();
    all.sort_unstable();
    all
}

/// For each thread, whether it uses a connection of the group.
fn serving(recording: &Recording, traffic: &Traffic) -> Vec<bool> {
    let mut serves = vec![false; recording.threads.len()];
    let lines = traffic.connections.iter().flat_map(|one| &one.ends).copied();
    let inner = traffic.inner.iter().flat_map(|inner| [inner.client, inner.server]);
    for end in lines.chain(inner) {
        for io in &traffic.ends.all[end as usize].transfers {
            let thread = recording.ios[*io as usize].thread as usize;
            if let Some(serves) = serves.get_mut(thread) {
                *serves = true;
            }
        }
    }
    serves
}

/// The wakeups of serving threads: waker and time, ns.
fn wakes_of_serving(recording: &Recording, serves: &[bool]) -> BTreeSet<(u32, u64)> {
    let of = recording.edges.iter().filter(|edge| serves[edge.wakee() as usize]);
    of.map(|edge| (edge.waker, edge.at_ns)).collect()
}

/// All requests, in the order in which they were read: that time and that of the answer, ns.
fn requests(recording: &Recording, traffic: &Traffic) -> Vec<(u64, u64, Tag)> {
    let of = |(line, one): (usize, &super::Connection)| {
        let request = |(number, asked): (usize, &super::TracedRequest)| {
            let (read, answer) =
                (&recording.ios[asked.read as usize], &recording.ios[asked.answer as usize]);
            (read.left_ns.max(read.entered_ns), answer.entered_ns, (line as u32, number as u32))
        };
        one.requests.iter().enumerate().map(request).collect::<Vec<_>>()
    };
    let mut all: Vec<(u64, u64, Tag)> =
        traffic.connections.iter().enumerate().flat_map(of).collect();
    all.sort_unstable();
    all
}

/// Gives the finishes, in the order in which their work began, to the requests, in the order in
/// which they were read. Finishes and requests that fit no other are left out.
fn in_order(mut finishes: Vec<Finish>, requests: &[(u64, u64, Tag)]) -> Vec<(u32, Tag)> {
    finishes.sort_by_key(|one| (one.began_ns, one.ended_ns, one.io));
    let mut left = requests.iter().peekable();
    let mut matched = Vec::new();
    for Finish { began_ns, ended_ns, io } in finishes {
        while left.next_if(|(_, answered_ns, _)| *answered_ns < ended_ns).is_some() {}
        if let Some((_, _, tag)) = left.next_if(|(read_ns, ..)| *read_ns <= began_ns) {
            matched.push((io, *tag));
        }
    }
    matched
}
