//! Utilisation of CPUs and tasks by the fair class (kernel: `util_avg`, `util_est`).
//!
//! A task's utilisation when it last went to sleep or parked is what it is expected to have when
//! it comes back. A CPU's utilisation is its average, or the sum of its tasks' expectations if
//! that is more.

use crate::fair::Dequeue;
use crate::ids::{CpuId, Id, TaskId};
use crate::machine::Machine;
use crate::pelt::{TaskUtil, UtilAvg, WHOLE};

impl Machine<'_> {
    /// Adds the utilisation of a new task, on machines with several CPUs.
    pub(crate) fn add_task_util(&mut self) {
        if self.cpus.len() > 1 {
            self.averages.task_utils.push(TaskUtil::default());
        }
    }

    /// Sets a task's utilisation and its expectation to 0.
    pub(crate) fn reset_task_util(&mut self, task: TaskId) {
        if let Some(of) = self.averages.task_utils.get_mut(task.ix()) {
            *of = TaskUtil::default();
        }
    }

    /// Updates utilisation of the CPU and its current task, before the CPU switches away, and notes
    /// when that last ran.
    pub(crate) fn update_util_before_switch(&mut self, cpu: CpuId) {
        self.update_cpu_util(cpu);
        let curr = self.cpus[cpu].curr;
        if curr.is_some() {
            self.tasks[curr].recent.ran_ns = self.now;
            self.update_task_util(curr, true);
        }
    }

    /// Updates a CPU's average utilisation by fair tasks to now.
    pub(crate) fn update_cpu_util(&mut self, cpu: CpuId) {
        if self.cpus.len() > 1 {
            let curr = self.cpus[cpu].curr;
            let is_busy = curr.is_some() && self.tasks[curr].is_fair();
            let now = self.now;
            self.cpus[cpu].usage.util.update(now, is_busy);
        }
    }

    /// Updates and returns the utilisation of a CPU, or the expected one if higher; [`WHOLE`] is
    /// all (kernel: `cpu_util_cfs()`).
    pub(crate) fn cpu_util(&mut self, cpu: CpuId) -> u64 {
        self.update_cpu_util(cpu);
        u64::from(self.cpus[cpu].usage.util.avg).max(self.cpus[cpu].usage.expected).min(WHOLE)
    }

    /// Updates a task's utilisation to now; `runs`: whether it ran since the last update.
    pub(crate) fn update_task_util(&mut self, task: TaskId, runs: bool) {
        let now = self.now;
        if let Some(of) = self.averages.task_utils.get_mut(task.ix()) {
            of.used.update(now, runs);
        }
    }

    /// Subtracts the utilisation of a task that leaves for another CPU or class, both brought up to
    /// now, from its CPU's average, down to 0 at least; the task's own stays as it is (kernel:
    /// `detach_entity_load_avg()`, of `util_avg`).
    pub(crate) fn detach_util(&mut self, task: TaskId, from: CpuId) {
        self.update_cpu_util(from);
        let runs = self.cpus[from].curr == task;
        let mut used = self.averages.task_utils[task.ix()].used;
        used.update(self.now, runs);
        let busy = &mut self.cpus[from].usage.util;
        busy.avg = busy.avg.saturating_sub(used.avg);
    }

    /// Adds the utilisation of a task that comes to a CPU to the CPU's average (kernel:
    /// `attach_entity_load_avg()`).
    pub(crate) fn attach_util(&mut self, task: TaskId, to: CpuId) {
        self.update_cpu_util(to);
        let runs = self.cpus[to].curr == task;
        self.update_task_util(task, runs);
        let used = self.averages.task_utils[task.ix()].used.avg;
        self.cpus[to].usage.util.avg += used;
    }

    /// Leaves the time parked up to now out of a task's utilisation: its group's clock stood still.
    pub(crate) fn skip_parked_time(&mut self, task: TaskId) {
        let now = self.now;
        if let Some(of) = self.averages.task_utils.get_mut(task.ix()) {
            of.used = UtilAvg { part_ns: 0, updated_ns: now, ..of.used };
        }
    }

    /// Adds a task that can now run to its CPU's expected utilisation, unless it is counted
    /// (kernel: `util_est_enqueue()`).
    pub(crate) fn add_expected_util(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        let Some(of) = self.averages.task_utils.get_mut(task.ix()) else { return };
        if !of.counted && self.tasks[task].is_fair() {
            of.counted = true;
            self.cpus[cpu].usage.expected += u64::from(of.expected);
        }
    }

    /// Subtracts a task that can no longer run there from its CPU's expected utilisation; one that
    /// sleeps or parks updates its expectation (kernel: `util_est_dequeue()`).
    pub(crate) fn remove_expected_util(&mut self, task: TaskId, why: Dequeue) {
        let cpu = self.tasks[task].cpu;
        let runs = self.cpus[cpu].curr == task;
        if !self.averages.task_utils.get(task.ix()).is_some_and(|of| of.counted) {
            return;
        }
        self.update_task_util(task, runs);
        let of = &mut self.averages.task_utils[task.ix()];
        of.counted = false;
        self.cpus[cpu].usage.expected -= u64::from(of.expected);
        if matches!(why, Dequeue::Sleep | Dequeue::Throttle) {
            of.update_expected(self.tasks[task].recent.wanted);
        }
    }

    /// Checks that a CPU's expected utilisation is the sum of its counted tasks'.
    ///
    /// # Errors
    /// Both sums.
    pub(crate) fn check_expected(&self, cpu: CpuId) -> Result<(), String> {
        let counted = self.tasks.ids().zip(&self.averages.task_utils).filter(|(_, of)| of.counted);
        let here = counted.filter(|(task, _)| self.tasks[*task].cpu == cpu);
        let sum: u64 = here.map(|(_, of)| u64::from(of.expected)).sum();
        let expected = self.cpus[cpu].usage.expected;
        if sum == expected {
            Ok(())
        } else {
            Err(format!("cpu {} expects {expected} of 65536 to be used, its tasks {sum}", cpu.0))
        }
    }
}
