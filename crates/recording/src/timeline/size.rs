//! Bounds the memory of a recording, whatever the file says.
//!
//! The size of a file says little: compressed data grows a thousandfold, and a line of 27 bytes is
//! a system call with a transfer. Steps are therefore counted as they are kept. Two sums are
//! bounded: the memory kept, with that of the reader, and the memory of a replay, several times as
//! much. A perf.data file of 200 MB has some two million events and comes to a third of either.

use super::{State, Timeline};
use crate::event::{CPUS_MAX, Stop};
use crate::thread::{Edge, Io, Queued, Ready, Thread, Wait};
use cpumax_workload::bounds::{MAX_GROUP_DEPTH, MAX_GROUPS};

/// Bound on the memory kept and that of the reader, together.
const KEPT_MAX_BYTES: u64 = 420 << 20;
const REPLAY_MAX_BYTES: u64 = 430 << 20;
/// Most memory of a replay for one of each, as measured on the worst known texts
/// (`crates/cpumax/tests/memory.rs`).
const THREAD_BYTES: u64 = 6000;
const STEP_BYTES: u64 = 24;
const WAIT_BYTES: u64 = 260;
const EDGE_BYTES: u64 = 40;
const IO_BYTES: u64 = 450;
const READY_BYTES: u64 = 40;
const END_BYTES: u64 = 160;
/// The number of a socket in a tree.
const SOCKET_BYTES: u64 = 40;
const GROUP_CPU_BYTES: u64 = 8;
/// Events from one check of the sizes to the next.
const LOOK_EVERY: u64 = 1 << 12;

pub(super) const PATHS_MAX_BYTES: usize = 8 << 20;

impl Timeline {
    /// An error once the memory kept, or that of a replay, exceeds its bound; looks at every 4096th
    /// event only.
    pub(super) fn check_size(&self) -> Result<(), Stop> {
        if !self.events.is_multiple_of(LOOK_EVERY) {
            return Ok(());
        }
        let (mut steps, mut steps_bytes, mut waits, mut queued) = (0, 0, 0, 0);
        for thread in &self.threads {
            steps += thread.steps.len() as u64;
            steps_bytes += thread.steps.bytes() as u64;
            waits += thread.waits.len() as u64;
            queued += thread.queued.len() as u64;
        }
        for live in self.live.values() {
            if let State::Running(on) = &live.state {
                steps += on.points() as u64;
                steps_bytes += on.bytes() as u64;
            }
        }
        let [threads, edges, ios] =
            [self.threads.len(), self.edges.len(), self.ios.len()].map(|all| all as u64);
        let kept_bytes = self.reader_bytes
            + self.file_bytes
            + threads * size_of::<Thread>() as u64
            + steps_bytes
            + waits * size_of::<Wait>() as u64
            + queued * size_of::<Queued>() as u64
            + edges * size_of::<Edge>() as u64
            + ios * size_of::<Io>() as u64
            + self.ready.len() as u64 * size_of::<Ready>() as u64
            + self.sockets.len() as u64 * SOCKET_BYTES;
        // Groups of threads, and the groups above them.
        let groups = self.group_levels.min(threads * MAX_GROUP_DEPTH).min(MAX_GROUPS);
        let cpus = self.machine.cpus.unwrap_or(0).max(self.cpus.len() as u32).min(CPUS_MAX);
        let replay_bytes = threads * THREAD_BYTES
            + groups * u64::from(cpus) * GROUP_CPU_BYTES
            + steps * STEP_BYTES
            + waits * WAIT_BYTES
            + queued * size_of::<Queued>() as u64
            + edges * EDGE_BYTES
            + ios * IO_BYTES
            + self.ready.len() as u64 * READY_BYTES
            + self.sockets.len() as u64 * (SOCKET_BYTES + END_BYTES);
        if kept_bytes <= KEPT_MAX_BYTES && replay_bytes <= REPLAY_MAX_BYTES {
            return Ok(());
        }
        Err(Stop::TooMuchToKeep { events: self.events, threads, steps, waits, ios })
    }
}

#[cfg(test)]
mod tests {
    use super::LOOK_EVERY;
    use crate::event::{Event, Machine, Note, Sink, Stop};
    use crate::timeline::{EventCost, Timeline};

    #[test]
    fn groups_weigh_as_much_as_there_are_cpus() {
        let read = |cpus: u32| -> Result<(), Stop> {
            let mut timeline = Timeline::new(EventCost::default());
            timeline.machine(Machine { cpus: Some(cpus), ..Machine::default() });
            for id in 0..20_000 {
                timeline.note(&Note::Cgroup { id, path: &format!("/g{id}") });
            }
            (0..LOOK_EVERY).try_for_each(|n| {
                let tid = 1 + (n % 1000) as i32;
                timeline.event(&Event { tid, ..Event::without_thread(n, 0) })
            })
        };
        assert!(read(256).is_ok());
        assert!(matches!(read(4096), Err(Stop::TooMuchToKeep { threads: 1000, .. })));
    }
}
