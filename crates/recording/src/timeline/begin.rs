//! Finds where a recording begins whose oldest events were overwritten. Each CPU has a buffer of
//! its own, so each begins at another time. Events before the first one of the last CPU are left
//! out, because part of the machine is missing there.

use super::waker::Cpu;
use super::{Asleep, State, Timeline};
use crate::thread::Birth;

impl Timeline {
    /// Counts events that a ring buffer overwrote (`events` may be 0 if their number is unknown);
    /// the recording then begins where all CPUs have events.
    pub(super) fn note_overwritten(&mut self, events: u64) {
        self.defects.overwritten_events = self.defects.overwritten_events.saturating_add(events);
        self.is_overwritten = true;
    }

    /// Counts events lost on a CPU. Its current thread leaves the CPU at the last event there, for
    /// an unknown reason. Before the first event of that CPU the loss counts as overwriting.
    pub(super) fn note_lost_on(&mut self, cpu: u32, events: u64) {
        self.defects.add_lost(events, false);
        match self.cpus.get(cpu as usize) {
            Some(Cpu { last_ns: Some(last_ns), current, .. }) => {
                let (last_ns, current) = (*last_ns, *current);
                if let Some(tid) = current {
                    self.leave_cpu(cpu as usize, tid, last_ns, None);
                }
                self.cpus[cpu as usize].note_lost();
            }
            _ => self.is_overwritten = true,
        }
    }

    /// Drops everything before this time, at which a CPU has its first event: steps, wakeups and
    /// transfers. Threads stay, and are present from then on.
    pub(super) fn restart_at(&mut self, now_ns: u64) {
        let left_out_ns = now_ns - self.first_ns;
        self.defects.left_out_ns += left_out_ns;
        self.first_ns = now_ns;
        (self.signs.unseen_runs, self.signs.moved, self.signs.hidden_ns) = (0, 0, 0);
        self.edges.clear();
        self.ios.clear();
        self.ready.clear();
        self.accepts.clear();
        for thread in &mut self.threads {
            thread.forget();
            thread.birth = Birth::Present { at_ns: 0 };
        }
        for live in self.live.values_mut() {
            live.early_wake = None;
            live.sending = None;
            live.early_charge_ns = 0;
            match &mut live.state {
                State::Running(on) => on.restart(now_ns),
                State::Gone { after_ns, .. } => *after_ns = now_ns,
                State::Asleep(Asleep { wake: Some(_), .. }) => {
                    live.state = State::Ready { since_ns: now_ns }
                }
                State::Asleep(asleep) => asleep.since_ns = now_ns,
                State::Ready { since_ns } => *since_ns = now_ns,
                State::Unknown | State::Dead => {}
            }
        }
    }
}
