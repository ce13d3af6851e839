//! What a task takes for work although it did not run, under noise. The guest tells the two apart
//! by its clock: who finds that a piece of work took a little longer than it needed counts all of
//! it. So an interrupt, or a short visit, leaves as much less to do in user mode; what a call of
//! the kernel has to do stays, and the work after it is shorter.

use crate::events::NEVER;
use crate::ids::{CpuId, TaskId};
use crate::machine::Machine;
use crate::task::{Code, Mode, Segment, State, Task};

/// The longest absence that is not told from work, ns (guest: `SLACK_NS`).
const UNSEEN_NS: u64 = 50_000;
/// Work in user mode between two looks at the clock, ns (guest: `CHUNK_NS`); half of it is left, in
/// the mean.
const CHUNK_NS: u64 = 20_000;

/// When a task did not run in the piece of work under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    /// For how long, since it made progress last; in the kernel, in all of the call, ns.
    ns: u64,
    /// Since when, if another one has the CPU, ns; else [`NEVER`].
    since_ns: u64,
}

impl Absence {
    pub const NONE: Absence = Absence::of(0);

    /// It comes to the work after so long in calls, or away, without a look at the clock, ns.
    pub const fn of(ns: u64) -> Absence {
        Absence { ns, since_ns: NEVER }
    }

    /// It had begun so long before it made way for another, ns.
    pub const fn lasted(&mut self, ns: u64) {
        self.ns += ns;
    }
}

impl Task {
    /// How much less it has to do in user mode after it was away for so long, ns.
    fn worked_away_ns(&self, absent_ns: u64) -> u64 {
        let unseen = self.mode == Mode::User && absent_ns <= UNSEEN_NS && self.left_ns > CHUNK_NS;
        if unseen { absent_ns.min(self.left_ns - CHUNK_NS / 2) } else { 0 }
    }

    /// How long the work in hand will take once it goes on, if it is away for so long from now on,
    /// ns.
    pub fn left_after_ns(&self, away_ns: u64) -> u64 {
        self.left_ns - self.worked_away_ns(self.absence.ns + away_ns)
    }

    fn owes(&mut self, ns: u64) {
        if ns <= UNSEEN_NS {
            self.owes_ns += ns as i64;
        }
    }

    /// It has been away for so long, and then at work for so long: what is left is less by both.
    pub fn goes_on(&mut self, away_ns: u64, progress_ns: u64) {
        self.absence.ns += away_ns;
        if progress_ns == 0 {
            return;
        }
        let absent_ns = self.absence.ns;
        if self.mode == Mode::User {
            let worked_ns = self.worked_away_ns(absent_ns);
            self.left_ns -= worked_ns;
            if self.left_ns <= CHUNK_NS && worked_ns == 0 {
                self.owes(absent_ns);
            }
            self.absence = Absence::NONE;
        } else if self.left_ns <= progress_ns {
            self.owes(absent_ns);
            self.absence = Absence::NONE;
        }
    }
}

impl Machine<'_> {
    /// Whether this task looks at the clock to know what it has done.
    pub(crate) fn tells_work_by_clock(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        self.noise.is_some()
            && !self.asks_for_use
            && t.code == Code::Kind
            && t.is_fair()
            && t.segment == Segment::Run
            && t.works
    }

    /// A task makes way for another in the midst of its work.
    pub(crate) fn goes_away(&mut self, task: TaskId) {
        if self.tells_work_by_clock(task) && self.tasks[task].state == State::Runnable {
            self.tasks[task].absence.since_ns = self.now;
        }
    }

    /// A task has the CPU again.
    pub(crate) fn comes_back(&mut self, task: TaskId) {
        let now = self.now;
        let absence = &mut self.tasks[task].absence;
        let since_ns = std::mem::replace(&mut absence.since_ns, NEVER);
        absence.ns += now.saturating_sub(since_ns);
    }

    /// When the work in hand on a CPU is done if nothing comes between, ns.
    pub(crate) fn work_ends_ns(&self, cpu: CpuId) -> u64 {
        let c = &self.cpus[cpu];
        let t = &self.tasks[c.curr];
        let left_ns =
            if self.tells_work_by_clock(c.curr) { t.left_after_ns(c.stolen_ns) } else { t.left_ns };
        (c.accounted_ns + c.stolen_ns).saturating_add(left_ns)
    }
}
