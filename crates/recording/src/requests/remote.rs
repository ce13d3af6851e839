//! Requests of clients on other machines, where only the scheduler's events were recorded. Each is
//! a burst that data from the network began, of a thread that mostly waits for the network, and
//! those that follow waits for a back end.

use super::guess::{Role, Server, WokenBy, bursts};
use super::outside::THREAD_ANSWERS_MIN;
use crate::recording::Recording;
use crate::thread::Wait;
use std::collections::BTreeMap;

/// Threads of the group that clients on other machines wake: data from the network ends most of
/// their waits. Each such wait is followed by a request.
pub(super) fn servers(
    recording: &Recording,
    inside: &[bool],
    back_ends: &[bool],
) -> BTreeMap<usize, Server> {
    let goes_on = |wait: &Wait| wait.waker(recording).is_some_and(|waker| back_ends[waker]);
    let mut servers = BTreeMap::new();
    for ix in (0..recording.threads.len()).filter(|ix| inside[*ix]) {
        let thread = &recording.threads[ix];
        let asked = thread.network_waits();
        let others = thread.waits.iter().filter(|wait| !goes_on(wait)).count();
        if asked < THREAD_ANSWERS_MIN || 2 * asked <= others {
            continue;
        }
        let woken = |waker: usize| WokenBy::or_back_end(true, back_ends[waker]);
        let mut bursts = bursts(recording, ix, woken, |_| None);
        let mut is_asked = false;
        for (at, burst) in bursts.iter_mut().enumerate().skip(1) {
            if thread.waits[at - 1].is_for_network() {
                (burst.woken, is_asked) = (WokenBy::Outside, true);
            }
            if is_asked && !thread.waits.get(at).is_some_and(goes_on) {
                burst.marks.push((burst.work_ns, burst.end_ns));
                is_asked = false;
            }
        }
        servers.insert(ix, Server { remote: true, ..Server::new(Role::Answers, bursts) });
    }
    servers
}
