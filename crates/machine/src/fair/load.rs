//! Load tracking, as far as group shares, balancing and wakeups need it (kernel:
//! kernel/sched/pelt.c). Loads are averaged with the kernel's half-life of 32 periods of about a
//! millisecond. Utilisation is in `util.rs`.

use crate::cfs_rq::{CfsRq, Pelt};
use crate::group::Group;
use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::pelt::{ALL, PERIOD_SHIFT, Queued, RUNNABLE_SHIFT, WEIGHT_SHIFT, WHOLE, decay};
use crate::rules::PeltFreeze;
use crate::se::{NICE_0_WEIGHT, Owner, scale};
use crate::task::{State, Task};

/// A contribution is published when it differs by more than a 64th. (A real kernel publishes at
/// most once a millisecond, which is how often it changes here.)
const PUBLISH_SHIFT: u32 = 6;
/// Most runnable tasks counted on one CPU.
const MAX_RUNNABLE: u32 = u16::MAX as u32;
const TASK_SHIFT: u32 = 10;

impl CfsRq {
    /// Updates the averages of load and runnable tasks to now, unless they are frozen. To be called
    /// before the load changes.
    #[inline]
    pub fn pelt_update(&mut self, now: u64) {
        let periods = (now - self.pelt.updated_ns) >> PERIOD_SHIFT;
        if periods > 0 && !self.bandwidth.pelt_frozen {
            self.pelt_pass(periods);
        }
    }

    /// Decays the averages of load and runnable tasks over this many periods of 1.05 ms towards
    /// their present values.
    fn pelt_pass(&mut self, periods: u64) {
        let load = self.load + self.load_parked;
        let pelt = &mut self.pelt;
        pelt.periods = pelt.periods.wrapping_add(periods as u32);
        pelt.updated_ns += periods << PERIOD_SHIFT;
        pelt.load_avg = decay(pelt.load_avg, periods) + (load - decay(load, periods));
        let tasks = if load > 0 { self.h_runnable.min(MAX_RUNNABLE) } else { 0 };
        let tasks = u64::from(tasks) << RUNNABLE_SHIFT;
        let avg = decay(pelt.runnable_avg.into(), periods) + (tasks - decay(tasks, periods));
        pelt.runnable_avg = avg as u32;
    }

    /// Publishes this CPU's load and tasks in the sums of the group, if they changed by more than
    /// 1/64 (kernel: `update_tg_load_avg()`).
    #[inline]
    pub fn publish_load(&mut self, now: u64, group: &mut Group) {
        self.pelt_update(now);
        let pelt = &mut self.pelt;
        let tasks = pelt.runnable_avg >> (RUNNABLE_SHIFT - TASK_SHIFT);
        let load = pelt.load_avg >> WEIGHT_SHIFT;
        let load = u32::try_from(load).unwrap_or(u32::MAX);
        let changed = load.abs_diff(pelt.published) > pelt.published >> PUBLISH_SHIFT
            || tasks.abs_diff(pelt.runnable_published) > pelt.runnable_published >> PUBLISH_SHIFT;
        if !changed {
            return;
        }
        group.load_avg -= pelt.published_load();
        group.runnable_avg = group.runnable_avg - pelt.runnable_published + tasks;
        pelt.published = load;
        pelt.runnable_published = tasks;
        group.load_avg += pelt.published_load();
    }
}

impl Pelt {
    /// The load published last, in weights of this model's resolution.
    pub fn published_load(&self) -> u64 {
        u64::from(self.published) << WEIGHT_SHIFT
    }
}

impl Task {
    /// Updates the decaying average of the time in which the task was runnable to now. To be called
    /// before it sleeps and before it wakes up.
    pub fn update_wanted(&mut self, now: u64) {
        let periods = now.saturating_sub(self.recent.wanted_ns) >> PERIOD_SHIFT;
        let new = if self.state == State::Runnable { WHOLE } else { 0 };
        self.recent.wanted_ns += periods << PERIOD_SHIFT;
        self.recent.wanted = decay(self.recent.wanted, periods) + (new - decay(new, periods));
    }
}

impl Group {
    /// Number of tasks counted where the group competes, at least 1: whole ones of its average.
    /// Tasks that always run count one less, as their average stays slightly below (kernel:
    /// `tg_tasks()`, 7.3).
    pub fn runnable_tasks(&self) -> u64 {
        u64::from(self.runnable_avg >> TASK_SHIFT).max(1)
    }
}

impl Machine<'_> {
    /// Updates a queue's averages of load and runnable tasks to now. To be called before its load
    /// changes. Nothing on one CPU where no weight depends on it.
    #[inline]
    pub(crate) fn pelt_update(&mut self, q: CfsRqId) {
        if self.cpus.len() > 1 || self.loses_weight() {
            let now = self.now;
            self.cfs_rqs[q].pelt_update(now);
        }
    }

    /// Publishes the load of all a group's queues in the group's sum, which ticks do on a real
    /// kernel; here before a share is computed, at most once a tick, on several CPUs.
    #[inline]
    pub(crate) fn publish_group_load(&mut self, group: GroupId) {
        let now = self.now;
        if self.cpus.len() > 1 && now >= self.groups[group].gathered_ns + self.settings.tick_ns {
            let group = &mut self.groups[group];
            group.gathered_ns = now;
            let queues = std::mem::take(&mut group.cfs_rqs);
            for &q in queues.iter().filter(|q| q.is_some()) {
                self.cfs_rqs[q].publish_load(now, group);
            }
            group.cfs_rqs = queues;
        }
    }

    /// Raises the load averages of a newly queued task's queue and ancestors, on one CPU; a new
    /// task adds all of its load (kernel: `init_entity_runnable_average()`,
    /// `attach_entity_load_avg()`). Only a rough load is kept: it matters how long it is above
    /// zero, where a group without load loses its weight.
    pub(crate) fn attach_load_on_single_cpu(&mut self, task: TaskId, leaf: CfsRqId, is_born: bool) {
        if !self.loses_weight() {
            return;
        }
        let (mut q, mut weight) = (leaf, self.nominal_weight(task));
        while self.cfs_rqs[q].se.is_some() {
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            let before = if is_born && q == leaf { rq.pelt.load_avg } else { 0 };
            rq.pelt.load_avg = rq.pelt.load_avg.max(before + weight);
            weight = self.groups[rq.group].weight;
            q = rq.parent;
        }
    }

    /// A task's part of its queue's load: its nominal weight times the fraction of recent time in
    /// which it was queued. Updates that fraction.
    pub(crate) fn task_load(&mut self, task: TaskId) -> u64 {
        let queued = self.update_queued_avg(self.tasks[task].se);
        scale(self.nominal_weight(task), u64::from(queued), ALL)
    }

    /// The load of a group's entity on its parent's queue: its weight times the fraction of recent
    /// time in which it was queued.
    pub(crate) fn group_load(&mut self, q: CfsRqId) -> u64 {
        self.group_load_at(q, self.ses[self.cfs_rqs[q].se].weight)
    }

    /// The load, on its parent's queue, that a group's entity would have with this weight: the
    /// weight times the fraction of recent time in which it was queued.
    pub(crate) fn group_load_at(&mut self, q: CfsRqId, weight: u64) -> u64 {
        let queued = self.update_queued_avg(self.cfs_rqs[q].se);
        scale(weight, u64::from(queued), ALL)
    }

    /// Adds the queued fraction of a new entity: a task counts as if it had always been queued, a
    /// group as never. Nothing on one CPU.
    pub(crate) fn add_queued(&mut self, owner: Owner) {
        if self.cpus.len() > 1 {
            let avg = if matches!(owner, Owner::Task(_)) { ALL as u32 } else { 0 };
            self.averages.queued.push(Queued { avg, periods: 0, attached: false });
        }
    }

    /// Resets an entity's average to that of a new task, as if it had always been queued.
    pub(crate) fn reset_queued(&mut self, se: SeId) {
        if let Some(queued) = self.averages.queued.get_mut(se.ix()) {
            *queued = Queued { avg: ALL as u32, periods: 0, attached: false };
        }
    }

    /// Updates and returns the fraction of recent time in which an entity was queued (or parked,
    /// where that counts), by its queue's clock. To be called before that changes.
    fn update_queued_avg(&mut self, se: SeId) -> u32 {
        let q = self.ses[se].q;
        if q.is_some() {
            self.pelt_update(q);
            let now = self.cfs_rqs[q].pelt.periods;
            let Queued { avg, periods, .. } = self.averages.queued[se.ix()];
            if now != periods {
                let is_parked = self.rules.pull
                    && match self.ses[se].owner() {
                        Owner::Task(task) => self.tasks[task].throttle.parked,
                        Owner::Group(child) => self.cfs_rqs[child].bandwidth.counts_as_parked,
                    };
                let new = if self.ses[se].on_rq || is_parked { ALL } else { 0 };
                let periods = u64::from(now.wrapping_sub(periods));
                let avg = decay(avg.into(), periods) + (new - decay(new, periods));
                let queued = &mut self.averages.queued[se.ix()];
                (queued.avg, queued.periods) = (avg as u32, now);
            }
        }
        self.averages.queued[se.ix()].avg
    }

    /// Updates the fraction of recent time in which an entity was queued, on machines with several
    /// CPUs. To be called before it is queued or dequeued.
    #[inline]
    pub(crate) fn update_queued(&mut self, se: SeId) {
        if self.cpus.len() > 1 {
            self.update_queued_avg(se);
        }
    }

    /// Sets the averages of a task that has slept for long and is about to wake up to 0.
    pub(crate) fn reset_load(&mut self, task: TaskId) {
        self.tasks[task].recent.wanted = 0;
        self.averages.queued[self.tasks[task].se.ix()].avg = 0;
    }

    /// Moves a task's load, at every level, from its old queue to the one that it is about to join;
    /// adds it if it has none attached (a new task, or one back from another class) (kernel:
    /// `attach_entity_load_avg()`).
    pub(crate) fn move_load(&mut self, task: TaskId, from: CfsRqId, to: CfsRqId) {
        if self.cpus.len() == 1 {
            return;
        }
        if from != to {
            self.detach_load(task);
        }
        let se = self.tasks[task].se;
        if !self.averages.queued[se.ix()].attached {
            if from == to {
                self.update_queued_avg(se);
            }
            self.attach_load(task, to);
        }
    }

    /// Removes a task's load, utilisation and runnable average from its queue, at every level, when
    /// it leaves for another one (kernel: `detach_entity_load_avg()`, `propagate_entity_cfs_rq()`).
    /// The remaining load of a group is its entity's weight times the average fraction for which
    /// the remaining tasks were queued (kernel: `update_tg_cfs_load()`). Where no task is queued,
    /// the remainder is taken relative to nice 0.
    pub(crate) fn detach_load(&mut self, task: TaskId) {
        let mut se = self.tasks[task].se;
        if self.cpus.len() == 1 || !std::mem::take(&mut self.averages.queued[se.ix()].attached) {
            return;
        }
        let now = self.now;
        self.detach_util(task, self.cfs_rqs[self.ses[se].q].cpu);
        self.tasks[task].update_wanted(now);
        let wanted = self.tasks[task].recent.wanted as u32;
        let mut load = self.task_load(task);
        let mut goes = true;
        let mut q = self.ses[se].q;
        while q.is_some() {
            self.pelt_update(q);
            goes &= self.ses[se].on_rq;
            let own = if goes { self.load_of(se) } else { 0 };
            let rq = &mut self.cfs_rqs[q];
            goes &= rq.nr == 1;
            rq.pelt.load_avg = rq.pelt.load_avg.saturating_sub(load);
            rq.pelt.runnable_avg -= rq.pelt.runnable_avg.min(wanted << (RUNNABLE_SHIFT - 16));
            let others = rq.load + rq.load_parked - own;
            let all = if others > 0 { others } else { NICE_0_WEIGHT };
            let left = scale(rq.pelt.load_avg, ALL, all).min(ALL);
            se = rq.se;
            let parent = rq.parent;
            if se.is_some() {
                rq.publish_load(now, &mut self.groups[rq.group]);
                let before = self.update_queued_avg(se);
                let after = before.min(left as u32);
                self.averages.queued[se.ix()].avg = after;
                load = scale(self.ses[se].weight, u64::from(before - after), ALL);
            }
            q = parent;
        }
    }

    /// Adds a task's load, utilisation and runnable average to a queue and its ancestors, and
    /// publishes the groups' (kernel: `attach_entity_load_avg()`).
    fn attach_load(&mut self, task: TaskId, to: CfsRqId) {
        self.pelt_update(to);
        self.attach_util(task, self.cfs_rqs[to].cpu);
        let (now, periods) = (self.now, self.cfs_rqs[to].pelt.periods);
        let wanted = self.tasks[task].recent.wanted as u32;
        let own = &mut self.averages.queued[self.tasks[task].se.ix()];
        (own.periods, own.attached) = (periods, true);
        let queued = own.avg;
        let mut load = scale(self.nominal_weight(task), u64::from(queued), ALL);
        let mut q = to;
        while q.is_some() {
            self.pelt_update(q);
            let rq = &mut self.cfs_rqs[q];
            rq.pelt.load_avg += load;
            let runnable = wanted << (RUNNABLE_SHIFT - 16);
            rq.pelt.runnable_avg = rq.pelt.runnable_avg.saturating_add(runnable);
            let (se, parent) = (rq.se, rq.parent);
            if se.is_some() {
                rq.publish_load(now, &mut self.groups[rq.group]);
                let before = self.update_queued_avg(se);
                let after = (before + queued).min(ALL as u32);
                self.averages.queued[se.ix()].avg = after;
                load = scale(self.ses[se].weight, u64::from(after - before), ALL);
            }
            q = parent;
        }
    }

    /// Rescales what a group's entity adds to its parent queue's load average from weight `old` to
    /// `new` (kernel: `reweight_entity()`). Nothing on one CPU.
    pub(crate) fn rescale_group_load(&mut self, se: SeId, old: u64, new: u64) {
        let q = self.ses[se].q;
        if self.cpus.len() == 1 || q.is_none() {
            return;
        }
        let queued = self.update_queued_avg(se);
        let of = |weight| scale(weight, u64::from(queued), ALL);
        let pelt = &mut self.cfs_rqs[q].pelt;
        pelt.load_avg = (pelt.load_avg + of(new)).saturating_sub(of(old));
    }

    /// Rescales what a task adds to its queue's load average from weight `old` to `new` (kernel:
    /// `reweight_entity()`).
    pub(crate) fn rescale_load(&mut self, task: TaskId, q: CfsRqId, old: u64, new: u64) {
        self.pelt_update(q);
        if self.loses_weight() {
            let pelt = &mut self.cfs_rqs[q].pelt;
            pelt.load_avg = pelt.load_avg.saturating_sub(old) + new;
        } else if self.cpus.len() > 1 && self.averages.queued[self.tasks[task].se.ix()].attached {
            let queued = u64::from(self.update_queued_avg(self.tasks[task].se));
            let [old, new] = [old, new].map(|weight| scale(weight, queued, ALL));
            let pelt = &mut self.cfs_rqs[q].pelt;
            pelt.load_avg = (pelt.load_avg + new).saturating_sub(old);
        }
    }

    /// Checks that a CPU's load average does not exceed the weights that are, or were last, on its
    /// root queue.
    ///
    /// # Errors
    /// The load and the most that it may be.
    pub(crate) fn check_load(&self, cpu: CpuId) -> Result<(), String> {
        if self.cpus.len() == 1 {
            return Ok(());
        }
        let root = self.root(cpu);
        let is_there = |task: &TaskId| {
            let Task { se, state, .. } = self.tasks[*task];
            self.ses[se].q == root && state != State::Exited
        };
        let tasks = self.tasks.ids().filter(is_there).map(|task| self.nominal_weight(task));
        let mut sum: u64 = tasks.sum();
        let mut child = self.cfs_rqs[root].links.first_child;
        while child.is_some() {
            let rq = &self.cfs_rqs[child];
            sum += self.ses[rq.se].weight;
            child = rq.links.next_sibling;
        }
        let load = self.cfs_rqs[root].pelt.load_avg;
        // One whole weight for rounding.
        if load > sum + (sum >> 16) + (1 << WEIGHT_SHIFT) {
            return Err(format!("cpu {} has a load of {load}, of at most {sum}", cpu.0));
        }
        Ok(())
    }

    /// Freezes the load average of a queue in a throttled hierarchy, at its value now; from 6.18 on
    /// only if the queue is empty.
    #[inline]
    pub(crate) fn pelt_freeze(&mut self, q: CfsRqId) {
        let rq = &self.cfs_rqs[q];
        let may_freeze = match self.rules.pelt_freeze {
            PeltFreeze::Throttled => true,
            PeltFreeze::ThrottledAndEmpty => rq.nr == 0,
        };
        if may_freeze && self.in_throttled_hierarchy(q) && !rq.bandwidth.pelt_frozen {
            self.pelt_update(q);
            self.cfs_rqs[q].bandwidth.pelt_frozen = true;
        }
    }

    /// Lets the frozen load average of a queue decay again, from now on.
    #[inline]
    pub(crate) fn pelt_unfreeze(&mut self, q: CfsRqId) {
        let now = self.now;
        let rq = &mut self.cfs_rqs[q];
        if std::mem::take(&mut rq.bandwidth.pelt_frozen) {
            rq.pelt.updated_ns = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Simulation;

    /// Loads of two CPUs, in whole weights, when the run ends.
    fn loads(kernel: &str, text: &str) -> [u64; 2] {
        let workload = cpumax_workload::parse(text, "pelt.toml").expect("is a workload");
        let kernel = crate::kernel::parse_kernels(kernel).expect("is a kernel")[0];
        let options = crate::Options { check: true, ..crate::Options::new(kernel, 1) };
        let mut machine = Simulation::ended(&workload, &options);
        [0, 1].map(|cpu| machine.cpu_load(CpuId(cpu)) >> WEIGHT_SHIFT)
    }

    #[test]
    fn a_migrating_task_takes_along_its_part_of_its_groups_load() {
        let text = "duration = \"201ms\"\n[machine]\ncpus = 2\n[[group]]\npath = \"/g\"\n\
                    [[group]]\npath = \"/g/h\"\n\
                    [[task]]\nname = \"goes\"\ngroup = \"/g/h\"\ncpus = \"0\"\n\
                    program = [{ user = \"1s\" }]\n\
                    [[task]]\nname = \"stays\"\nnice = 19\ncpus = \"0\"\n\
                    program = [{ user = \"1s\" }]\n\
                    [[at]]\ntime = \"200ms\"\ntask = \"goes\"\naffinity = \"1\"\n";
        for kernel in ["6.1", "6.12", "6.18", "7.3", "pull"] {
            let [left, came] = loads(kernel, text);
            assert!((14..=15).contains(&left), "{left} on {kernel}");
            assert!((1000..=1024).contains(&came), "{came} on {kernel}");
        }
    }

    #[test]
    fn a_group_weighs_what_it_was_queued_for_however_often_its_task_comes_and_goes() {
        let text = "duration = \"2s\"\n[machine]\ncpus = 2\n[[group]]\npath = \"/g\"\n\
                    [[task]]\nname = \"half\"\ngroup = \"/g\"\ncpus = \"0\"\n\
                    program = [{ forever = [{ user = \"2ms\" }, { sleep = \"2ms\" }] }]\n\
                    [[task]]\nname = \"other\"\ngroup = \"/g\"\ncpus = \"1\"\n\
                    program = [{ forever = [{ user = \"2ms\" }, { sleep = \"2ms\" }] }]\n";
        for kernel in ["6.1", "6.12", "6.18"] {
            for load in loads(kernel, text) {
                // Half of the 512 to 1024 that are its share, as the other one runs or sleeps
                // meanwhile.
                assert!((230..=560).contains(&load), "{load} on {kernel}");
            }
        }
    }
    /// A task of /g that begins on the first CPU, and an intervention.
    fn hog_until(until: &str, limit: &str, what: &str) -> String {
        format!(
            "duration = \"{until}\"\n[machine]\ncpus = 2\n[[group]]\npath = \"/g\"\n{limit}\n\
             [[task]]\nname = \"hog\"\n\
             group = \"/g\"\ncpus = \"0\"\nprogram = [{{ user = \"1s\" }}]\n{what}"
        )
    }

    #[test]
    fn a_parked_task_takes_its_load_along() {
        let what = "[[at]]\ntime = \"50ms\"\ntask = \"hog\"\naffinity = \"1\"\n";
        let text = hog_until("51ms", "max = \"10000 100000\"", what);
        for kernel in ["6.18", "7.3", "pull"] {
            let [left, came] = loads(kernel, &text);
            assert!(left == 0 && came > 100, "{left} and {came} on {kernel}");
        }
    }

    #[test]
    fn real_time_tasks_are_no_load_and_bring_theirs_when_they_are_none_any_more() {
        let to =
            |ms, class| format!("[[at]]\ntime = \"{ms}ms\"\ntask = \"hog\"\nclass = \"{class}\"\n");
        for kernel in ["6.1", "6.12", "7.3"] {
            let text = hog_until("101ms", "", &to(100, "rt"));
            assert_eq!(loads(kernel, &text), [0, 0], "{kernel}");
            let text = hog_until("106ms", "", &(to(100, "rt") + &to(105, "fair")));
            let [load, _] = loads(kernel, &text);
            assert!((700..1000).contains(&load), "{load} on {kernel}");
        }
    }
}
