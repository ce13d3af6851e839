//! Weights: of tasks by nice and class, of groups by the fraction of their load on a CPU (kernel:
//! `sched_prio_to_weight`, `calc_group_shares()`; 7.3: "concur" mode).

use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::pelt::WEIGHT_SHIFT;
use crate::rules::GroupShare;
use crate::se::{NICE_0_WEIGHT, Owner, scale};
use cpumax_workload::Class;

/// Weights of nice -20 to 19; each step is a factor of 1.25.
const NICE_WEIGHT: [u64; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];
const IDLE_WEIGHT: u64 = 3;
/// A whole weight, as weights are scaled.
const SCALE: u64 = 1 << WEIGHT_SHIFT;
/// Smallest weight of a group's entity, unscaled, like the smallest share of one CPU of many.
const MIN_SHARE: u64 = 2;
/// Weight by which an entity of the smallest weight is charged (kernel: `__update_inv_weight()`).
const NOTHING: u64 = 2 << 10;

/// Weight of a group in this model's resolution (nice 0: 2^20) from its cgroup v2 weight, as the
/// kernel rounds it (`cpu_weight_write_u64()`).
pub(crate) fn of_group(weight: u32) -> u64 {
    let nice_0 = NICE_0_WEIGHT >> 10;
    ((u64::from(weight.max(1)) * nice_0 + 50) / 100) << 10
}

/// The cgroup v2 weight, 1 to 10000, of a group with this weight of this model's resolution.
pub(crate) fn to_group(weight: u64) -> u32 {
    let nice_0 = NICE_0_WEIGHT >> 10;
    (((weight >> 10) * 100 + nice_0 / 2) / nice_0) as u32
}

impl Machine<'_> {
    /// Weight of a task by its class and nice value, in this model's resolution (nice 0: 2^20).
    pub(crate) fn nominal_weight(&self, task: TaskId) -> u64 {
        let task = &self.tasks[task];
        if task.attrs.class == Class::Idle {
            return IDLE_WEIGHT << 10;
        }
        NICE_WEIGHT[(i32::from(task.attrs.nice) + 20).clamp(0, 39) as usize] << 10
    }

    /// Sets the weight of a task on no queue by its class and nice value; its lag is rescaled.
    pub(crate) fn reset_weight(&mut self, task: TaskId) {
        let se = self.tasks[task].se;
        let weight = self.nominal_weight(task);
        self.ses[se].set_weight_off_queue(weight);
    }

    /// Sets the weight of a queue's group entity to the group's share on this CPU, after its load
    /// changed (kernel: `update_cfs_group()`). An empty queue keeps its weight (6.12+); a throttled
    /// one is updated later (to 6.17).
    pub(crate) fn update_share(&mut self, q: CfsRqId) {
        let loses_weight = self.loses_weight();
        let rq = &mut self.cfs_rqs[q];
        let se = rq.se;
        let is_empty = rq.load + rq.load_parked == 0;
        let keeps = self.rules.empty_keeps_weight || rq.pelt.load_avg < SCALE;
        if se.is_none() || is_empty && keeps && !loses_weight {
            return;
        }
        if self.rules.unit.is_entity() && rq.bandwidth.throttle_count > 0 {
            rq.bandwidth.weight_is_late = true;
            return;
        }
        rq.bandwidth.weight_is_late = false;
        let share = self.share(q);
        self.reweight(se, share);
    }

    /// The group's share on the queue's CPU: its weight, from 7.3 on times the CPUs that it can
    /// use, times the queue's part of the load of all its queues (kernel: `calc_group_shares()`).
    /// Publishes loads before.
    pub(crate) fn share(&mut self, q: CfsRqId) -> u64 {
        let cpus = self.cpus.len() as u64;
        let group = self.cfs_rqs[q].group;
        self.publish_group_load(group);
        let rq = &mut self.cfs_rqs[q];
        let group = &mut self.groups[group];
        let tasks = match self.rules.group_share {
            GroupShare::Smp => 1,
            GroupShare::Concur => group.runnable_tasks().min(cpus),
            GroupShare::Queued => u64::from(group.h_nr).clamp(1, cpus),
        };
        let total = group.weight * tasks;
        if cpus == 1 {
            // The average is kept in whole weights: one that has decayed below that counts as
            // nothing.
            let is_nothing = rq.load + rq.load_parked == 0 && rq.pelt.load_avg < SCALE;
            return if is_nothing { NOTHING } else { total.max(MIN_SHARE) };
        }
        rq.publish_load(self.now, group);
        let load = (rq.load + rq.load_parked).max(rq.pelt.load_avg);
        let all = group.load_avg.saturating_sub(rq.pelt.published_load()) + load;
        let share = if all == 0 { total } else { scale(total, load, all) };
        share.clamp(MIN_SHARE.min(total), total)
    }

    /// Whether a group without load loses its weight: on one CPU, to 6.11. With several CPUs it
    /// keeps its last one.
    pub(crate) fn loses_weight(&self) -> bool {
        self.cpus.len() == 1 && !self.rules.empty_keeps_weight
    }

    /// On a flat queue: the weight of a task among all tasks of its CPU, which is its own times its
    /// ancestors' fractions of their queues; at least 2.
    pub(crate) fn flat_weight(&self, se: SeId) -> u64 {
        let Owner::Task(task) = self.ses[se].owner() else { return self.ses[se].weight };
        let mut weight = self.nominal_weight(task);
        let mut q = self.ses[se].q;
        while self.cfs_rqs[q].se.is_some() {
            let rq = &self.cfs_rqs[q];
            weight = scale(weight, self.ses[rq.se].weight, rq.load.max(1));
            q = rq.parent;
        }
        weight.max(2)
    }

    /// On a flat queue: sets the running task's weight anew, as ticks and slice timers do; the
    /// others keep that of their last event (kernel: `task_tick_fair()`).
    pub(crate) fn reweight_flat_curr(&mut self, cpu: CpuId) {
        if !self.is_flat() {
            return;
        }
        let curr = self.cfs_rqs[self.root(cpu)].curr;
        if curr.is_some() && self.ses[curr].on_rq {
            let weight = self.flat_weight(curr);
            self.reweight(curr, weight);
        }
    }

    /// Writes a group's cgroup v2 weight (`cpu.weight`) and updates its share on all CPUs.
    pub(crate) fn write_weight(&mut self, group: GroupId, weight: u32) {
        self.groups[group].weight = of_group(weight);
        for cpu in self.cpus.ids() {
            if let Some(&q) = self.groups[group].cfs_rqs.get(cpu.ix())
                && q.is_some()
            {
                self.update_share(q);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Simulation;
    use crate::{Options, kernel};

    /// Weight of `first` when the run ends: its group's 1024, of which a task of class idle that
    /// comes at 10 ms gets a part.
    fn weight_at(until_us: u64) -> u64 {
        let text = format!(
            "duration = \"{until_us}us\"\n[machine]\ncpus = 1\nhrtick = false\n[[group]]\n\
             path = \"/g\"\n\
             [[task]]\nname = \"first\"\ngroup = \"/g\"\nprogram = [{{ user = \"1s\" }}]\n\
             [[task]]\nname = \"idle\"\ngroup = \"/g\"\nstart = \"10ms\"\nclass = \"idle\"\n\
             program = [{{ user = \"1s\" }}]\n"
        );
        let workload = cpumax_workload::parse(&text, "weight.toml").unwrap();
        let kernel = kernel::parse_kernels("7.3").unwrap()[0];
        let options = Options::new(kernel, 1);
        let machine = Simulation::ended(&workload, &options);
        let first = machine.tasks.ids().next().unwrap();
        let se = machine.tasks[first].se;
        machine.ses[se].weight >> 10
    }

    #[test]
    fn a_running_task_on_a_flat_queue_gets_another_weight_at_a_tick() {
        // A task of class idle takes 3 of 1027 parts. The next tick after it comes is at 12 ms.
        assert_eq!([9_900, 11_900, 12_100].map(weight_at), [1024, 1024, 1021]);
    }
}
