//! A thread that takes another name or goes into another group counts as another thread from then
//! on, so that each part of its work is told where it was done. What it did before must be worth
//! telling: programs are started in a shell's name, and pools name their threads as they start.

use super::on_cpu::OnCpu;
use super::{Asleep, State, Timeline};
use crate::thread::{Birth, Cause, Thread};

/// CPU time of a part that is told for itself, ns.
const PART_NS: u64 = 10_000_000;
/// A thread has no more parts than this.
const PARTS_MAX: usize = 8;

impl Timeline {
    /// Whether what the thread did so far is to be told for itself.
    pub(super) fn is_worth_a_part(&mut self, tid: i32) -> bool {
        let Some(live) = self.live.get(&tid) else { return false };
        let is_moving = live.transfer.is_some() || live.sending.is_some();
        let thread = &self.threads[live.thread as usize];
        let mut parts = 1;
        let mut at = thread;
        while let Some(was) = at.was.filter(|_| parts < PARTS_MAX) {
            at = &self.threads[was as usize];
            parts += 1;
        }
        !is_moving && !thread.is_perf() && thread.runtime_ns >= PART_NS && parts < PARTS_MAX
    }

    /// From here on the thread is another one.
    pub(super) fn begin_part(&mut self, tid: i32, now_ns: u64) {
        let new = self.threads.len() as u32;
        let Some(live) = self.live.get_mut(&tid) else { return };
        let old = std::mem::replace(&mut live.thread, new);
        let mut began_ns = now_ns;
        match &mut live.state {
            State::Running(on) => {
                let after = OnCpu::after(on, now_ns);
                let before = std::mem::replace(on, after);
                before.end(now_ns, &mut self.threads[old as usize]);
            }
            State::Asleep(Asleep { since_ns, .. }) => began_ns = *since_ns,
            _ => {}
        }
        let pending = match &live.state {
            State::Asleep(Asleep { wake, .. }) => *wake,
            _ => live.early_wake,
        };
        if let Some(Cause::Thread { edge }) = pending.map(|wake| wake.cause) {
            self.edges[edge as usize].set_wakee(new);
        }
        let in_call = live.call.is_some();
        let was = &mut self.threads[old as usize];
        was.last_ns = was.last_ns.max(began_ns);
        let at_ns = began_ns.saturating_sub(self.first_ns);
        let mut part = Thread::new(tid);
        (part.pid, part.parent_pid, part.was) = (was.pid, was.parent_pid, Some(old));
        part.comm.clone_from(&was.comm);
        (part.prio, part.kthread, part.owed_most_ns) = (was.prio, was.kthread, was.owed_most_ns);
        part.birth = Birth::Present { at_ns };
        part.starts_in_kernel = was.starts_in_kernel.map(|_| in_call);
        self.threads.push(part);
    }

    /// The group that the thread is in, as an event of its own tells.
    pub(super) fn in_group(&mut self, tid: i32, group: u64, now_ns: u64) {
        let before = self.live(tid).group.replace(group);
        if before.is_some_and(|before| before != group) && self.is_worth_a_part(tid) {
            self.begin_part(tid, now_ns);
        }
    }

    /// The id belongs to a new thread: the one that had it has ended, seen or not.
    pub(super) fn retire(&mut self, tid: i32, now_ns: u64) {
        if let Some(State::Running(on)) = self.live.get(&tid).map(|live| &live.state) {
            let cpu = on.cpu as usize;
            let end_ns = self.cpus[cpu].last_ns.map_or(now_ns, |last_ns| last_ns.min(now_ns));
            self.leave(cpu, tid, end_ns, None);
            self.cpus[cpu].current = None;
        }
        self.settle_wait(tid, now_ns, None);
        self.live.remove(&tid);
    }
}
