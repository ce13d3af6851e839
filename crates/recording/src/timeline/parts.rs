//! A thread that takes another name or group counts as another thread from then on, so that each
//! part of its work is attributed correctly. Short parts do not count: a program starts under the
//! name of its shell, and a pool names its threads as they start.

use super::on_cpu::OnCpu;
use super::{Asleep, State, Timeline};
use crate::thread::{Birth, Cause, Thread};

/// Least CPU time of a part, ns.
const PART_NS: u64 = 10_000_000;
const PARTS_MAX: usize = 8;

impl Timeline {
    /// Whether the thread has used 10 ms of CPU time and may end a part of its work here: it is no
    /// thread of perf, not in a transfer, and has fewer than eight parts.
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

    /// Ends the present part of a thread, and begins another one as a new thread of this id. A wait
    /// under way, and its wakeup, go to the new one.
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

    /// Notes the group in which an event shows the thread; another group than before may begin
    /// another part.
    pub(super) fn set_group(&mut self, tid: i32, group: u64, now_ns: u64) {
        let before = self.live(tid).group.replace(group);
        if before.is_some_and(|before| before != group) && self.is_worth_a_part(tid) {
            self.begin_part(tid, now_ns);
        }
    }

    /// Ends the thread that had this id, because the id belongs to a new thread: settles its stay
    /// and its wait.
    pub(super) fn retire(&mut self, tid: i32, now_ns: u64) {
        if let Some(State::Running(on)) = self.live.get(&tid).map(|live| &live.state) {
            let cpu = on.cpu as usize;
            let end_ns = self.cpus[cpu].last_ns.map_or(now_ns, |last_ns| last_ns.min(now_ns));
            self.leave_cpu(cpu, tid, end_ns, None);
            self.cpus[cpu].current = None;
        }
        self.settle_wait(tid, now_ns, None);
        self.live.remove(&tid);
    }
}
