//! Utilisation of CPUs and tasks by the fair class (kernel: `util_avg`, `util_est`).
//!
//! A task's utilisation when it last went to sleep or parked is what it is expected to have when
//! it comes back. A CPU's utilisation is its average, or the sum of its tasks' expectations if
//! that is more.

use crate::fair::Dequeue;
use crate::fair::pelt::{PERIOD_SHIFT, WHOLE, decay};
use crate::ids::{CpuId, Id, TaskId};
use crate::machine::Machine;

/// A smaller difference does not change the expectation (kernel: `UTIL_EST_MARGIN`).
const MARGIN: u32 = (WHOLE / 100) as u32;

/// Average fraction of time in which something ran.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UtilAvg {
    /// Over whole periods, 2^16 for all; more for a while on a CPU to which tasks came.
    pub avg: u32,
    /// Running time in the current period up to `updated_ns`, ns.
    part_ns: u32,
    updated_ns: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TaskUtil {
    used: UtilAvg,
    expected: u32,
    /// Its expectation is part of its CPU's sum.
    counted: bool,
}

impl UtilAvg {
    /// Updates the average to now, by whether the task or CPU was busy since the last update. To be
    /// called before that changes.
    pub fn update(&mut self, now: u64, is_busy: bool) {
        const PERIOD_NS: u64 = 1 << PERIOD_SHIFT;
        let boundary_ns = (self.updated_ns | (PERIOD_NS - 1)) + 1;
        let ns = if is_busy { now.min(boundary_ns) - self.updated_ns } else { 0 };
        self.part_ns += ns as u32;
        self.updated_ns = now;
        if now < boundary_ns {
            return;
        }
        let mut pass = |part: u64, periods: u64| {
            let avg = decay(self.avg.into(), periods) + (part - decay(part, periods));
            self.avg = avg as u32;
        };
        let rest_ns = now - boundary_ns;
        pass((WHOLE * u64::from(self.part_ns)) >> PERIOD_SHIFT, 1);
        pass(if is_busy { WHOLE } else { 0 }, rest_ns >> PERIOD_SHIFT);
        self.part_ns = if is_busy { (rest_ns & (PERIOD_NS - 1)) as u32 } else { 0 };
    }
}

impl TaskUtil {
    /// Updates the expected utilisation when a task sleeps or parks: at once to a higher value, by
    /// a quarter of the difference to a lower one, unless the task wanted to run more (kernel:
    /// `util_est_update()`).
    fn update_expected(&mut self, wanted: u64) {
        let (used, expected) = (self.used.avg, self.expected);
        if used >= expected {
            self.expected = used;
        } else if expected - used >= MARGIN && u64::from(used + MARGIN) >= wanted {
            self.expected -= (expected - used) / 4;
        }
    }
}

impl Machine<'_> {
    /// Adds the utilisation of a new task, on machines with several CPUs.
    pub(crate) fn add_task_util(&mut self) {
        if self.cpus.len() > 1 {
            self.task_utils.push(TaskUtil::default());
        }
    }

    /// Sets a task's utilisation and its expectation to 0.
    pub(crate) fn reset_task_util(&mut self, task: TaskId) {
        if let Some(of) = self.task_utils.get_mut(task.ix()) {
            *of = TaskUtil::default();
        }
    }

    /// Updates utilisation of the CPU and its current task, before the CPU switches away, and notes
    /// when that last ran.
    pub(crate) fn update_util_before_switch(&mut self, cpu: CpuId) {
        self.update_cpu_util(cpu);
        let curr = self.cpus[cpu].curr;
        if curr.is_some() {
            self.tasks[curr].ran_ns = self.now;
            self.update_task_util(curr, true);
        }
    }

    /// Updates a CPU's average utilisation by fair tasks to now.
    pub(crate) fn update_cpu_util(&mut self, cpu: CpuId) {
        if self.cpus.len() > 1 {
            let curr = self.cpus[cpu].curr;
            let is_busy = curr.is_some() && self.tasks[curr].is_fair();
            let now = self.now;
            self.cpus[cpu].util.update(now, is_busy);
        }
    }

    /// Updates and returns the utilisation of a CPU, or the expected one if higher; [`WHOLE`] is
    /// all (kernel: `cpu_util_cfs()`).
    pub(crate) fn cpu_util(&mut self, cpu: CpuId) -> u64 {
        self.update_cpu_util(cpu);
        u64::from(self.cpus[cpu].util.avg).max(self.cpus[cpu].expected).min(WHOLE)
    }

    /// Updates a task's utilisation to now; `runs`: whether it ran since the last update.
    pub(crate) fn update_task_util(&mut self, task: TaskId, runs: bool) {
        let now = self.now;
        if let Some(of) = self.task_utils.get_mut(task.ix()) {
            of.used.update(now, runs);
        }
    }

    /// Subtracts the utilisation of a task that leaves for another CPU or class, both brought up to
    /// now, from its CPU's average, down to 0 at least; the task's own stays as it is (kernel:
    /// `detach_entity_load_avg()`, of `util_avg`).
    pub(crate) fn detach_util(&mut self, task: TaskId, from: CpuId) {
        self.update_cpu_util(from);
        let runs = self.cpus[from].curr == task;
        let mut used = self.task_utils[task.ix()].used;
        used.update(self.now, runs);
        let busy = &mut self.cpus[from].util;
        busy.avg = busy.avg.saturating_sub(used.avg);
    }

    /// Adds the utilisation of a task that comes to a CPU to the CPU's average (kernel:
    /// `attach_entity_load_avg()`).
    pub(crate) fn attach_util(&mut self, task: TaskId, to: CpuId) {
        self.update_cpu_util(to);
        let runs = self.cpus[to].curr == task;
        self.update_task_util(task, runs);
        let used = self.task_utils[task.ix()].used.avg;
        self.cpus[to].util.avg += used;
    }

    /// Leaves the time parked up to now out of a task's utilisation: its group's clock stood still.
    pub(crate) fn skip_parked_time(&mut self, task: TaskId) {
        let now = self.now;
        if let Some(of) = self.task_utils.get_mut(task.ix()) {
            of.used = UtilAvg { part_ns: 0, updated_ns: now, ..of.used };
        }
    }

    /// Adds a task that can now run to its CPU's expected utilisation, unless it is counted
    /// (kernel: `util_est_enqueue()`).
    pub(crate) fn add_expected_util(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        let Some(of) = self.task_utils.get_mut(task.ix()) else { return };
        if !of.counted && self.tasks[task].is_fair() {
            of.counted = true;
            self.cpus[cpu].expected += u64::from(of.expected);
        }
    }

    /// Subtracts a task that can no longer run there from its CPU's expected utilisation; one that
    /// sleeps or parks updates its expectation (kernel: `util_est_dequeue()`).
    pub(crate) fn remove_expected_util(&mut self, task: TaskId, why: Dequeue) {
        let cpu = self.tasks[task].cpu;
        let runs = self.cpus[cpu].curr == task;
        if !self.task_utils.get(task.ix()).is_some_and(|of| of.counted) {
            return;
        }
        self.update_task_util(task, runs);
        let of = &mut self.task_utils[task.ix()];
        of.counted = false;
        self.cpus[cpu].expected -= u64::from(of.expected);
        if matches!(why, Dequeue::Sleep | Dequeue::Throttle) {
            of.update_expected(self.tasks[task].wanted);
        }
    }

    /// Checks that a CPU's expected utilisation is the sum of its counted tasks'.
    ///
    /// # Errors
    /// Both sums.
    pub(crate) fn check_expected(&self, cpu: CpuId) -> Result<(), String> {
        let counted = self.tasks.ids().zip(&self.task_utils).filter(|(_, of)| of.counted);
        let here = counted.filter(|(task, _)| self.tasks[*task].cpu == cpu);
        let sum: u64 = here.map(|(_, of)| u64::from(of.expected)).sum();
        let expected = self.cpus[cpu].expected;
        if sum == expected {
            Ok(())
        } else {
            Err(format!("cpu {} expects {expected} of 65536 to be used, its tasks {sum}", cpu.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_use_is_believed_slowly_and_not_of_who_was_kept_from_it() {
        const PART: u32 = WHOLE as u32 / 8;
        let of = |eighths: u32| UtilAvg { avg: eighths * PART, ..UtilAvg::default() };
        let mut task = TaskUtil { used: of(4), ..TaskUtil::default() };
        let mut expected = |eighths: u32, wanted: u64| {
            task.used = of(eighths);
            task.update_expected(wanted);
            task.expected * 4 / PART
        };
        assert_eq!(expected(4, WHOLE), 16);
        assert_eq!(expected(2, WHOLE), 16);
        assert_eq!(expected(2, 2 * u64::from(PART)), 14);
        assert_eq!(expected(6, WHOLE), 24);
    }

    #[test]
    fn a_cpu_is_as_busy_as_it_was_of_late() {
        const MS: u64 = 1 << 20;
        let mut busy = UtilAvg::default();
        busy.update(32 * MS, true);
        assert!(busy.avg.abs_diff(1 << 15) <= 1, "{}", busy.avg);
        busy.update(64 * MS, false);
        assert!(busy.avg.abs_diff(1 << 14) <= 1, "{}", busy.avg);
        // A third of each millisecond, however it is cut, is a third in the end.
        let (mut busy, mut now) = (UtilAvg::default(), 0);
        for step in 0..6_000 {
            now += MS / 6;
            busy.update(now, step % 3 == 0);
        }
        assert!(busy.avg.abs_diff((1 << 16) / 3) < 1 << 10, "{}", busy.avg);
    }
}
