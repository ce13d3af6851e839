//! Hung-task reports about tasks that wait for a lock for minutes (kernel:
//! `check_hung_uninterruptible_tasks()`). Each check reports a task that has not moved since the
//! previous check. Checks count from the start of the run; those of a real kernel from its boot.
//! Not modelled: the kernel stops after ten reports.

use crate::ids::TaskId;
use crate::machine::Machine;
use crate::task::{State, Wait};

/// From one check to the next, ns (kernel: `hung_task_timeout_secs`).
const LOOKS_NS: u64 = 120_000_000_000;

impl Machine<'_> {
    /// Counts the reports that khungtaskd makes about a task during its wait for a kernel lock,
    /// which ends now, for its kind: one for each look (every 120 s) but the first. Nothing for
    /// other tasks.
    pub(crate) fn count_hung(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let State::Asleep(Wait::Lock(lock, _)) = t.state else { return };
        if self.locks.all[lock].in_kernel
            && let Some(kind) = self.births.kinds.get_mut(t.kind as usize)
        {
            let looks = self.now / LOOKS_NS - t.times.stalled_since_ns.min(self.now) / LOOKS_NS;
            kind.hung_reports += looks.saturating_sub(1);
        }
    }
}
