//! Requests of clients on other machines, where only the scheduler's events were recorded. Each is
//! a burst that data from the network began, of a thread that mostly waits for the network.

use super::guess::{Role, Server, THREAD_ANSWERS_MIN, WokenBy, bursts};
use crate::recording::Recording;
use std::collections::BTreeMap;

/// Threads of the group that clients on other machines wake: data from the network ends most of
/// their waits. Each such wait is followed by a request, which its burst answers at the end.
pub(super) fn servers(recording: &Recording, inside: &[bool]) -> BTreeMap<usize, Server> {
    let mut servers = BTreeMap::new();
    for ix in (0..recording.threads.len()).filter(|ix| inside[*ix]) {
        let thread = &recording.threads[ix];
        let asked = thread.network_waits();
        if asked < THREAD_ANSWERS_MIN || 2 * asked <= thread.waits.len() {
            continue;
        }
        let mut bursts = bursts(recording, ix, |_| WokenBy::Inside, |_| None);
        for (burst, wait) in bursts.iter_mut().skip(1).zip(&thread.waits) {
            if wait.is_for_network() {
                burst.woken = WokenBy::Outside;
                burst.marks.push((burst.work_ns, burst.end_ns));
            }
        }
        servers.insert(ix, Server { remote: true, ..Server::new(Role::Answers, bursts) });
    }
    servers
}
