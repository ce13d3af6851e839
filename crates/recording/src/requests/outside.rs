//! Threads outside of the group: which of them ask it, and which it asks.

use crate::recording::Recording;
use crate::thread::{Cause, Step, Wait};
use std::collections::BTreeMap;

/// Least number of answers of a thread.
pub(super) const THREAD_ANSWERS_MIN: usize = 3;
/// A share of one in so many is hardly any.
const HARDLY_ONE_IN: usize = 16;

/// For each thread whether it is a client: outside, it talks with threads of the group. It wakes
/// them and is woken by them at least three times, itself or through other threads of its process,
/// and is no back end.
pub(crate) fn clients(recording: &Recording, inside: &[bool]) -> Vec<bool> {
    let mut talks = vec![(0, 0); inside.len()];
    for edge in &recording.edges {
        let (waker, wakee) = (edge.waker as usize, edge.wakee() as usize);
        if inside[wakee] && !inside[waker] {
            talks[waker].0 += 1;
        } else if inside[waker] && !inside[wakee] {
            talks[wakee].1 += 1;
        }
    }
    let counts = |ix: usize| {
        let thread = &recording.threads[ix];
        recording.is_included(ix) && !recording.is_kernel(thread)
    };
    let mut processes: BTreeMap<i32, (usize, usize)> = BTreeMap::new();
    for (ix, (asks, told)) in talks.iter().enumerate().filter(|(ix, _)| counts(*ix)) {
        if let Some(pid) = recording.threads[ix].pid {
            let sum = processes.entry(pid).or_default();
            *sum = (sum.0 + asks, sum.1 + told);
        }
    }
    let is_client = |(ix, own): (usize, &(usize, usize))| {
        let process = recording.threads[ix].pid.and_then(|pid| processes.get(&pid));
        let (asks, told) = process.unwrap_or(own);
        own.0.max(own.1) >= THREAD_ANSWERS_MIN
            && *asks.min(told) >= THREAD_ANSWERS_MIN
            && counts(ix)
    };
    let back_ends = back_ends(recording, inside);
    let talks = talks.iter().enumerate();
    talks.map(|one| is_client(one) && !back_ends[one.0]).collect()
}

/// For each thread whether it is of a back end: a process outside that hardly ever wakes the group
/// unless a thread of the group has woken it. Requests must begin elsewhere, at least one for
/// sixteen of its wakeups: the network or other processes wake the group. Clients that ask as soon
/// as they are answered look alike, but then nothing else begins requests.
pub(crate) fn back_ends(recording: &Recording, inside: &[bool]) -> Vec<bool> {
    let threads = || recording.threads.iter().enumerate();
    let process = |ix: usize| {
        let thread = &recording.threads[ix];
        thread.pid.map_or((false, thread.tid), |pid| (true, pid))
    };
    let mut begun: usize =
        threads().filter(|(ix, _)| inside[*ix]).map(|(_, thread)| thread.network_waits()).sum();
    // Wakeups of the group by each process, and those that it begins.
    let mut wakes: BTreeMap<(bool, i32), (usize, usize)> = BTreeMap::new();
    for (ix, thread) in threads().filter(|(ix, one)| !inside[*ix] && !recording.is_kernel(one)) {
        let mut was_told = false;
        for step in thread.steps.iter() {
            match step {
                Step::Wait(wait) => {
                    let waker = thread.waits[wait as usize].waker(recording);
                    was_told = waker.is_some_and(|waker| inside[waker]);
                }
                Step::Wake(edge) if inside[recording.edges[edge as usize].wakee() as usize] => {
                    let (all, begins) = wakes.entry(process(ix)).or_default();
                    *all += 1;
                    *begins += usize::from(!was_told);
                    begun += usize::from(!was_told);
                }
                _ => {}
            }
        }
    }
    let is_told = |ix: usize| {
        let (all, begins) = wakes.get(&process(ix)).copied().unwrap_or_default();
        let other = begun.saturating_sub(begins);
        begins * HARDLY_ONE_IN < all && other * HARDLY_ONE_IN >= all
    };
    threads().map(|(ix, _)| !inside[ix] && is_told(ix)).collect()
}

impl Wait {
    /// The thread that ended it, if it is known.
    pub(super) fn waker(&self, recording: &Recording) -> Option<usize> {
        let Cause::Thread { edge } = self.cause else { return None };
        Some(recording.edges[edge as usize].waker as usize)
    }
}
