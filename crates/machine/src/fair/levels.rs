//! Levels that a switch puts back and sets on a flat queue (kernel: `put_prev_task_fair()`,
//! `set_next_task_fair()` of 7.3).

use crate::ids::{CfsRqId, CpuId, SeId, TaskId};
use crate::machine::Machine;

impl Machine<'_> {
    /// The highest level, below the root, that a switch from `prev` to `next` charges and puts
    /// back; none: all. On a flat queue a switch does not touch levels above the deepest one that
    /// both tasks share: only the next tick, timer or event charges them.
    pub(crate) fn last_touched_level(&self, cpu: CpuId, prev: TaskId, next: TaskId) -> CfsRqId {
        let fair = |task: TaskId| task.is_some() && self.tasks[task].is_fair();
        if !self.puts_levels_late() || !fair(prev) || !fair(next) {
            return CfsRqId::NONE;
        }
        let leaf = self.ses[self.tasks[prev].se].q;
        if prev == next {
            leaf
        } else if self.cfs_rqs[leaf].cpu == cpu && self.tasks[next].cpu == cpu {
            self.common_cfs_rq(prev, next)
        } else {
            CfsRqId::NONE
        }
    }

    /// Whether levels above a task's own group are put back only once the next task is known: on
    /// the flat queue of 7.3.
    pub(crate) fn puts_levels_late(&self) -> bool {
        self.is_flat() && !self.rules.pull
    }

    /// Puts back the levels above the leaf of `prev` once the next task is known: charges those
    /// that the switch touches and clears their running child. Levels that are not touched also get
    /// back the time that was left out of this charge.
    pub(crate) fn put_levels(&mut self, cpu: CpuId, prev: TaskId, next: TaskId, left_out_ns: u64) {
        if !self.puts_levels_late() || prev.is_none() || !self.tasks[prev].is_fair() {
            return;
        }
        let last = self.last_touched_level(cpu, prev, next);
        let leaf = self.ses[self.tasks[prev].se].q;
        let mut stays = leaf == last;
        let (mut child, mut q) = (self.cfs_rqs[leaf].se, self.cfs_rqs[leaf].parent);
        while child.is_some() && self.cfs_rqs[q].se.is_some() {
            if stays {
                self.cfs_rqs[q].exec_start_ns -= left_out_ns;
            } else {
                if self.ses[child].on_rq {
                    self.charge(q);
                }
                self.cfs_rqs[q].curr = SeId::NONE;
            }
            stays |= q == last;
            (child, q) = (self.cfs_rqs[q].se, self.cfs_rqs[q].parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Simulation;
    use crate::{Options, kernel};

    /// How often in 30 ms a group has been charged less than its child, whose tasks take turns as
    /// calls end.
    fn times_behind(version: &str) -> usize {
        let kernel = kernel::parse_kernels(version).unwrap()[0];
        let behind = |ms: &u64| {
            let text = format!(
                "duration = \"{ms}100us\"\n[machine]\ncpus = 1\nhrtick = false\n\
                 [[group]]\npath = \"/g\"\nmax = \"50000 100000\"\n\
                 [[group]]\npath = \"/g/h\"\nmax = \"50000 100000\"\n\
                 [[task]]\nname = \"t\"\ncount = 2\ngroup = \"/g/h\"\n\
                 program = [{{ forever = [{{ kernel = \"3ms\" }}] }}]\n"
            );
            let workload = cpumax_workload::parse(&text, "levels.toml").unwrap();
            let machine = Simulation::ended(&workload, &Options::new(kernel, 1));
            let groups: Vec<_> = machine.groups.ids().skip(1).collect();
            let [outer, inner] = [0, 1].map(|n| machine.groups[groups[n]].pool.books.charged_ns);
            assert!(outer <= inner, "{version}: {outer}, {inner}");
            outer < inner
        };
        (1..30).filter(behind).count()
    }

    #[test]
    fn on_a_flat_queue_a_switch_charges_no_level_above_the_common_one() {
        assert_eq!(times_behind("7.2"), 0);
        assert!(times_behind("7.3") > 5);
    }
}
