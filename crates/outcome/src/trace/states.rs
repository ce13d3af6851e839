//! Follows the state of each task through the events of a run.

use super::{TraceEvent, What};
use std::collections::BTreeMap;

/// The state of a task, as far as events tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum State {
    /// Asleep, not yet forked, or exited.
    Away,
    /// Running on this CPU.
    Running { cpu: u16 },
    /// Queued; it was last seen on this CPU.
    Ready { cpu: u16 },
    /// Dequeued on its way to user mode, as its group is throttled.
    Parked,
    /// Waiting for a lock.
    LockWait { lock: u32 },
}

/// A change of a task's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The task.
    pub task: u32,
    /// The state before, and since when, ns; `None` at its first event.
    pub was: Option<(State, u64)>,
    /// The state from now on.
    pub is: State,
}

/// The states of all tasks.
#[derive(Debug, Clone, Default)]
pub struct States {
    running: BTreeMap<u16, u32>,
    /// State by task, and since when, ns.
    states: BTreeMap<u32, (State, u64)>,
}

impl States {
    /// Updates the states by an event and returns the changes; a switch may change two tasks.
    pub fn event(&mut self, event: &TraceEvent) -> impl Iterator<Item = Change> + use<> {
        let TraceEvent { time_ns, cpu, what } = *event;
        let one = |change: Change| [Some(change), None];
        let changes = match what {
            What::Switch { next } => self.switch(cpu, next, time_ns),
            What::Wake { task } | What::Unpark { task } => {
                one(self.set(task, State::Ready { cpu }, time_ns))
            }
            // A task that waits for a lock may sleep meanwhile.
            What::Sleep { task } if matches!(self.of(task), Some((State::LockWait { .. }, _))) => {
                [None, None]
            }
            What::Sleep { task } | What::Exit { task } => one(self.set(task, State::Away, time_ns)),
            What::Park { task } => one(self.set(task, State::Parked, time_ns)),
            What::LockWait { task, lock } => one(self.set(task, State::LockWait { lock }, time_ns)),
            What::LockTaken { task, .. } => [self.lock_taken(task, cpu, time_ns), None],
            What::WokenBy { .. }
            | What::SendBegins(_)
            | What::Sent(_)
            | What::Received(_)
            | What::Forked { .. }
            | What::Done { .. }
            | What::Runtime { .. }
            | What::Throttle { .. }
            | What::Unthrottle { .. }
            | What::Release { .. }
            | What::Period { .. } => [None, None],
        };
        changes.into_iter().flatten()
    }

    /// The state of a task, and since when, ns; `None` before its first event.
    pub fn of(&self, task: u32) -> Option<(State, u64)> {
        self.states.get(&task).copied()
    }

    /// All tasks that were seen, with state and since when, ns.
    pub fn all(&self) -> impl Iterator<Item = (u32, State, u64)> + '_ {
        self.states.iter().map(|(&task, &(state, since_ns))| (task, state, since_ns))
    }

    /// Makes the previous task of a CPU ready, if it still runs there, and the next one running;
    /// returns both changes.
    fn switch(&mut self, cpu: u16, next: Option<u32>, time_ns: u64) -> [Option<Change>; 2] {
        let mut changes = [None, None];
        if let Some(previous) = self.running.remove(&cpu)
            && self.of(previous).is_some_and(|(state, _)| state == State::Running { cpu })
        {
            changes[0] = Some(self.set(previous, State::Ready { cpu }, time_ns));
        }
        if let Some(next) = next {
            self.running.insert(cpu, next);
            changes[1] = Some(self.set(next, State::Running { cpu }, time_ns));
        }
        changes
    }

    /// Ends a task's wait for a lock: it runs if it spun on its CPU, and is ready on `cpu` if it
    /// slept. `None` if it did not wait.
    fn lock_taken(&mut self, task: u32, cpu: u16, time_ns: u64) -> Option<Change> {
        if !matches!(self.of(task), Some((State::LockWait { .. }, _))) {
            return None;
        }
        let on = self.running.iter().find(|(_, running)| **running == task);
        let state = on.map_or(State::Ready { cpu }, |(&cpu, _)| State::Running { cpu });
        Some(self.set(task, state, time_ns))
    }

    /// Sets the state of a task from `time_ns` on, and returns the change.
    fn set(&mut self, task: u32, is: State, time_ns: u64) -> Change {
        Change { task, was: self.states.insert(task, (is, time_ns)), is }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_task_is_ready_unless_it_sleeps() {
        let mut states = States::default();
        let mut told = |time_ns, what| -> Vec<Change> {
            states.event(&TraceEvent { time_ns, cpu: 2, what }).collect()
        };
        let change = |task, was, is| Change { task, was, is };
        let running = State::Running { cpu: 2 };
        let switch = |next| What::Switch { next };
        assert_eq!(told(1, switch(Some(7))), [change(7, None, running)]);
        let ready = State::Ready { cpu: 2 };
        assert_eq!(
            told(3, switch(Some(8))),
            [change(7, Some((running, 1)), ready), change(8, None, running)]
        );
        assert_eq!(told(4, What::Sleep { task: 8 }), [change(8, Some((running, 3)), State::Away)]);
        assert_eq!(told(4, switch(None)), []);
        assert_eq!(told(5, What::LockTaken { task: 7, lock: 0 }), [], "it did not wait");
        let waits = State::LockWait { lock: 0 };
        assert_eq!(told(6, What::LockWait { task: 7, lock: 0 })[0].is, waits);
        assert_eq!(told(7, What::Sleep { task: 7 }), [], "for the lock");
        let taken = told(9, What::LockTaken { task: 7, lock: 0 });
        assert_eq!(taken, [change(7, Some((waits, 6)), ready)]);
    }
}
