//! Time that a task mistakes for work although it did not run, under noise. The guest measures
//! work by its clock: where a piece of work takes slightly longer than needed, all of that counts.
//! An interrupt or a short preemption therefore leaves less to do in user mode. Work of a system
//! call stays as long as it is, and the work after it becomes shorter.

use crate::events::NEVER;
use crate::ids::{CpuId, TaskId};
use crate::lab::Absence;
use crate::machine::Machine;
use crate::task::{Code, Mode, Segment, State, Task};

/// The longest absence that is counted as work, ns (guest: `SLACK_NS`).
const UNSEEN_NS: u64 = 50_000;
/// Work in user mode between two looks at the clock, ns (guest: `CHUNK_NS`); on average half of it
/// is left.
const CHUNK_NS: u64 = 20_000;

impl Task {
    /// The part of an absence, ns, that a task in user mode mistakes for work done, as it measures
    /// work by the clock; 0 if the absence is so long that it is noticed, or little work is left.
    fn absence_as_work_ns(&self, absent_ns: u64) -> u64 {
        let unseen = self.mode == Mode::User && absent_ns <= UNSEEN_NS && self.left_ns > CHUNK_NS;
        if unseen { absent_ns.min(self.left_ns - CHUNK_NS / 2) } else { 0 }
    }

    /// How long the current work takes, ns, if the task continues after another absence of
    /// `away_ns`. Less than what is left where the absence passes for work.
    pub fn remaining_after_ns(&self, away_ns: u64) -> u64 {
        self.left_ns - self.absence_as_work_ns(self.lab.absence.ns + away_ns)
    }

    /// Has later work be shorter by an absence of `ns`, unless that is so long that the task
    /// notices it.
    fn add_debt(&mut self, ns: u64) {
        if ns <= UNSEEN_NS {
            self.lab.owes_ns += ns as i64;
        }
    }

    /// Adds `away_ns` to the absence. If the task then made progress, ends the absence and takes
    /// off the remaining work what of it passes for work; the rest makes later work shorter. The
    /// progress itself is taken off by the caller.
    pub fn account_absence(&mut self, away_ns: u64, progress_ns: u64) {
        self.lab.absence.ns += away_ns;
        if progress_ns == 0 {
            return;
        }
        let absent_ns = self.lab.absence.ns;
        if self.mode == Mode::User {
            let worked_ns = self.absence_as_work_ns(absent_ns);
            self.left_ns -= worked_ns;
            if self.left_ns <= CHUNK_NS && worked_ns == 0 {
                self.add_debt(absent_ns);
            }
            self.lab.absence = Absence::NONE;
        } else if self.left_ns <= progress_ns {
            self.add_debt(absent_ns);
            self.lab.absence = Absence::NONE;
        }
    }
}

impl Machine<'_> {
    /// Whether the task's current work is measured by the clock, so that short absences pass for
    /// work: program work of a fair task under noise.
    pub(crate) fn tells_work_by_clock(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        self.lab.delays.is_some()
            && !self.lab.reads_cpu_time
            && t.at.code == Code::Kind
            && t.is_fair()
            && t.segment == Segment::Run
            && t.lab.is_program_work
    }

    /// Begins an absence now, if the task is runnable and measures its work by the clock.
    pub(crate) fn note_preempted(&mut self, task: TaskId) {
        if self.tells_work_by_clock(task) && self.tasks[task].state == State::Runnable {
            self.tasks[task].lab.absence.since_ns = self.now;
        }
    }

    /// Ends the absence under way of a task that gets its CPU, and adds it to the task's absence.
    pub(crate) fn note_resumed(&mut self, task: TaskId) {
        let now = self.now;
        let absence = &mut self.tasks[task].lab.absence;
        let since_ns = std::mem::replace(&mut absence.since_ns, NEVER);
        absence.ns += now.saturating_sub(since_ns);
    }

    /// When the work of a CPU's current task is done if nothing intervenes, ns: time stolen by
    /// interrupts makes it later.
    pub(crate) fn work_ends_ns(&self, cpu: CpuId) -> u64 {
        let c = &self.cpus[cpu];
        let t = &self.tasks[c.curr];
        let left_ns = if self.tells_work_by_clock(c.curr) {
            t.remaining_after_ns(c.stolen_ns)
        } else {
            t.left_ns
        };
        (c.accounted_ns + c.stolen_ns).saturating_add(left_ns)
    }
}
