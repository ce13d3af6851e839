//! Moving ready tasks between CPUs (kernel: `sched_balance_newidle()`, `sched_balance_domains()`;
//! abstract, see docs/model.md).
//!
//! A CPU about to go idle pulls one task from the busiest CPU, near ones first. While some CPU has tasks
//! waiting, idle CPUs are looked at every tick and busy ones every 16 ms per CPU of a cache domain. Busy ones that share a
//! cache have their loads evened out, as averaged; of two caches the numbers of their tasks are.

use crate::bandwidth::rules::{BalanceTest, Unit};
use crate::events::NEVER;
use crate::fair::pelt::RUNNABLE_SHIFT;
use crate::fair::{Dequeue, Enqueue};
use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::machine::{Event, Machine};
use crate::se::{Owner, scale};
use cpumax_workload::Class;

/// Most tasks moved in one go.
const MAX_MOVED: u32 = 32;
/// A tick's balancing comes before the switch that the tick asks for, ns: whoever is to be next is one that waits.
const BEFORE_NS: u64 = 1;
/// A CPU has more load than another if it is so many hundredths of that (kernel: `imbalance_pct` of a cache domain).
pub(crate) const IMBALANCE_PCT: u64 = 117;
/// Who ran within that time is cached where it ran, ns, and not taken from there (kernel: `sysctl_sched_migration_cost`).
const HOT_NS: u64 = 500_000;
/// Unless balancing has found nothing to take more often than that in a row (kernel: `cache_nice_tries`).
const NICE_TRIES: u32 = 1;
/// Most queued entities looked at in one go.
const MAX_SCANNED: usize = 64;

/// Lists of a balancer at work, kept for the next time.
#[derive(Debug, Default)]
pub(crate) struct Balancing {
    pending: Vec<SeId>,
    movable: Vec<TaskId>,
}

impl Machine<'_> {
    /// Some CPU has more than it can run: balancing may have something to do from the next tick on.
    pub(crate) fn arm_balance(&mut self) {
        if self.balance_armed || self.cpus.len() == 1 {
            return;
        }
        self.balance_armed = true;
        let tick_ns = self.balance_tick_ns() + self.tick_ns;
        self.heap.push(tick_ns - BEFORE_NS, Event::Balance);
    }

    /// The tick whose balancing it is time for, ns.
    fn balance_tick_ns(&self) -> u64 {
        (self.now + BEFORE_NS) / self.tick_ns * self.tick_ns
    }

    /// A balancing round. Arms the next while there is anything to balance.
    pub(crate) fn balance(&mut self) {
        let waits = |cpu: CpuId| self.nr_running[cpu.ix()] >= 2 && self.cpus[cpu].online;
        // What moves meanwhile does not arm another one.
        self.balance_armed = self.cpus.ids().any(waits);
        if !self.balance_armed {
            return;
        }
        let idle_exists =
            self.cpus.ids().any(|cpu| self.cpus[cpu].is_idle() && self.cpus[cpu].online);
        if idle_exists {
            for cpu in self.cpus.ids() {
                if self.cpus[cpu].is_idle()
                    && self.cpus[cpu].online
                    && self.cpus[cpu].nr_running == 0
                {
                    self.pull_to_idle(cpu);
                }
            }
        }
        // One with tasks of class idle alone does not wait for its time either.
        let gives_way =
            self.rules.idle_class_is_free && self.cpus.ids().any(|cpu| self.runs_idle_class(cpu));
        let this_tick_ns = self.balance_tick_ns();
        let next_ns = this_tick_ns + self.tick_ns;
        let mut at_ns = NEVER;
        for cpu in self.cpus.ids() {
            if self.nr_running[cpu.ix()] == 0 || !self.cpus[cpu].online {
                continue;
            }
            if this_tick_ns >= self.cpus[cpu].balance_ns || gives_way && self.runs_idle_class(cpu) {
                self.balance_busy(cpu);
                self.cpus[cpu].balance_ns = this_tick_ns + self.busy_interval_ns(cpu);
            }
            at_ns = at_ns.min(self.cpus[cpu].balance_ns);
        }
        // Without an idle CPU the next round that can do anything is a busy one.
        let at_ns = if idle_exists || gives_way { next_ns } else { at_ns.max(next_ns) };
        self.heap.push(at_ns - BEFORE_NS, Event::Balance);
    }

    /// How long a busy CPU leaves it at that: 16 ms for each CPU of its cache, twice as much after it was found balanced, less
    /// a tick (kernel: `get_sd_balance_interval()`).
    fn busy_interval_ns(&self, cpu: CpuId) -> u64 {
        let domain = self.llc(cpu).len() as u64;
        let factor = if self.cpus[cpu].was_balanced { 2 } else { 1 };
        let most_ns = 100_000_000 * self.cpus.len() as u64;
        let ns = (16 * domain * 1_000_000 * factor).min(most_ns);
        (ns.div_ceil(self.tick_ns) - 1).max(1) * self.tick_ns
    }

    fn pull_to_idle(&mut self, cpu: CpuId) {
        let (own, all) = (self.llc(cpu), 0..self.cpus.len() as u32);
        let waits = self.most_running(&all) > 1;
        let moved = self.pull(cpu, own.clone(), 1) || own != all && self.pull(cpu, all, 1);
        let c = &mut self.cpus[cpu];
        c.balance_failed = if moved || !waits { 0 } else { c.balance_failed.saturating_add(1) };
    }

    /// A busy CPU takes from others that have more: of those it shares a cache with by load, of all by number.
    fn balance_busy(&mut self, to: CpuId) {
        let (own, all) = (self.llc(to), 0..self.cpus.len() as u32);
        self.even_out_load(to, own.clone());
        if own != all {
            self.even_out(to, all);
        }
    }

    /// A CPU with tasks takes from the one that has the most load of those it shares a cache with, up to what both are short
    /// of the average (kernel: `sched_balance_find_src_group()`, `calculate_imbalance()`, of groups of one CPU each).
    fn even_out_load(&mut self, to: CpuId, domain: std::ops::Range<u32>) {
        let (mut busiest, mut sum, mut cpus) = (None, 0, 0);
        for cpu in domain.map(CpuId) {
            if !self.cpus[cpu].online {
                continue;
            }
            let load = self.cpu_load(cpu);
            sum += load;
            cpus += 1;
            if cpu != to && self.is_overloaded(cpu) && busiest.is_none_or(|(_, most)| load > most) {
                busiest = Some((cpu, load));
            }
        }
        let (local, average) = (self.cpu_load(to), sum / cpus);
        let more = busiest.filter(|&(_, most)| {
            let is_near = self.is_overloaded(to) && 100 * most <= IMBALANCE_PCT * local;
            local < most && local < average && !is_near && !self.has_spare(to)
        });
        self.cpus[to].was_balanced = more.is_none();
        let Some((from, most)) = more else {
            self.cpus[to].balance_failed = 0;
            return;
        };
        // One with more load may have nobody who waits.
        let short = average - local;
        let imbalance = most.checked_sub(average).map_or(short, |over| over.min(short));
        // Interrupts leave a CPU a little less than its whole capacity: half a task is more than what two CPUs with one and two of
        // them are short of.
        let moved = self.pull_load(to, from, imbalance - imbalance / 256);
        let c = &mut self.cpus[to];
        c.balance_failed = if moved { 0 } else { c.balance_failed + 1 };
    }

    /// Load of a CPU as averaged (kernel: `cpu_load()`).
    pub(crate) fn cpu_load(&mut self, cpu: CpuId) -> u64 {
        let root = self.root(cpu);
        self.pelt_update(root);
        self.cfs_rqs[root].pelt.load_avg
    }

    /// Somebody waits, and it was not idle for long in the last time (kernel: `group_is_overloaded()`).
    fn is_overloaded(&self, cpu: CpuId) -> bool {
        self.nr_running[cpu.ix()] > 1 && !self.has_spare(cpu)
    }

    /// It was idle for some of the last time (kernel: `group_has_capacity()`).
    fn has_spare(&self, cpu: CpuId) -> bool {
        let root = &self.cfs_rqs[self.root(cpu)];
        root.pelt.runnable_avg as u64 * IMBALANCE_PCT < 100 << RUNNABLE_SHIFT
    }

    /// Moves tasks that are together about as heavy as that; the more often none was light enough, the heavier it may be
    /// (kernel: `detach_tasks()`). True if any was.
    fn pull_load(&mut self, to: CpuId, from: CpuId, imbalance: u64) -> bool {
        let mut lists = std::mem::take(&mut self.balancing);
        self.find_movable(from, to, MAX_MOVED, &mut lists);
        let (mut left, mut moved) = (imbalance, false);
        for &task in &lists.movable {
            let load = self.task_h_load(task);
            if left > 0 && load >> self.cpus[to].balance_failed.min(63) <= left {
                left = left.saturating_sub(load);
                self.migrate(task, to);
                moved = true;
            }
        }
        self.balancing = lists;
        moved
    }

    /// What a task is of the load of its CPU (kernel: `task_h_load()`).
    pub(crate) fn task_h_load(&mut self, task: TaskId) -> u64 {
        let mut load = self.task_load(task);
        let mut q = self.ses[self.tasks[task].se].q;
        while self.cfs_rqs[q].se.is_some() {
            let rq = &self.cfs_rqs[q];
            load = scale(load, self.ses[rq.se].weight, rq.pelt.load_avg.max(load).max(1));
            q = rq.parent;
        }
        load.max(1)
    }

    /// A CPU with tasks takes from the one that has most, until both have as many.
    fn even_out(&mut self, to: CpuId, domain: std::ops::Range<u32>) {
        let most = self.most_running(&domain);
        let difference = most.saturating_sub(self.cpus[to].nr_running);
        // Half the difference evens out; less than two is none, and a sixth of many is within tolerance.
        if difference >= 2 && u64::from(difference) * 6 > u64::from(most) {
            self.pull(to, domain, (difference / 2).min(MAX_MOVED));
        }
    }

    /// A CPU has nothing to run: takes something from one that has too much. True if it got any.
    pub(crate) fn balance_newidle(&mut self, cpu: CpuId) -> bool {
        if !self.balance_armed || !self.cpus[cpu].online {
            // Armed whenever some CPU has two ready tasks.
            return false;
        }
        let own = self.llc(cpu);
        if self.pull(cpu, own.clone(), 1) {
            return true;
        }
        let all = 0..self.cpus.len() as u32;
        own != all && self.pull(cpu, all, 1)
    }

    /// Moves up to `want` tasks to a CPU from the busiest of a range that has any to give.
    fn pull(&mut self, to: CpuId, domain: std::ops::Range<u32>, want: u32) -> bool {
        let most = self.most_running(&domain);
        if most <= self.nr_running[to.ix()] + 1 {
            return false;
        }
        // Of equally busy ones the first after the CPU that pulls.
        let in_range = |range: std::ops::Range<u32>| {
            let range = range.start as usize..range.end as usize;
            let at = self.nr_running[range.clone()].iter().position(|&nr| nr == most)?;
            Some(CpuId::from_ix(range.start + at))
        };
        let first = to.0.clamp(domain.start, domain.end);
        let from = in_range(first..domain.end).or_else(|| in_range(domain.start..first));
        let Some(from) = from else { return false };
        let mut lists = std::mem::take(&mut self.balancing);
        self.find_movable(from, to, want, &mut lists);
        for &task in &lists.movable {
            self.migrate(task, to);
        }
        let moved = !lists.movable.is_empty();
        self.balancing = lists;
        moved
    }

    /// Ready tasks of the CPU of a range that has most.
    fn most_running(&self, domain: &std::ops::Range<u32>) -> u32 {
        let range = domain.start as usize..domain.end as usize;
        self.nr_running[range].iter().copied().max().unwrap_or(0)
    }

    /// Up to `want` queued tasks of one CPU that may go to another, those that wait longest last.
    fn find_movable(&self, from: CpuId, to: CpuId, want: u32, lists: &mut Balancing) {
        let Balancing { pending, movable } = lists;
        pending.clear();
        movable.clear();
        if self.nothing_may_move(from, to) {
            return;
        }
        self.entities(self.root(from), pending);
        let mut at = 0;
        while at < pending.len() && at < MAX_SCANNED && movable.len() < want as usize {
            let se = pending[at];
            at += 1;
            match self.ses[se].owner() {
                Owner::Group(q) => self.entities(q, pending),
                Owner::Task(task) => {
                    let can = !self.ses[se].delayed && self.may_use(task, to);
                    if can && !self.is_hot(task, to) && self.may_move(task, to) {
                        movable.push(task);
                    }
                }
            }
        }
    }

    /// Whether it is cached where it is, and the other CPU need not have it yet (kernel: `task_hot()`).
    fn is_hot(&self, task: TaskId, to: CpuId) -> bool {
        let t = &self.tasks[task];
        t.class != Class::Idle
            && self.now < t.ran_ns + HOT_NS
            && t.ran_ns > 0
            && self.cpus[to].balance_failed <= NICE_TRIES
    }

    /// Whether all that is queued on a CPU is in groups that are throttled, as a whole, on the other: then no task has to be looked at.
    fn nothing_may_move(&self, from: CpuId, to: CpuId) -> bool {
        /// Groups looked at, lest this costs more than it saves.
        const MOST_GROUPS: usize = 8;
        let root = &self.cfs_rqs[self.root(from)];
        let mut left = root.h_nr;
        let mut q = root.first_child;
        for _ in 0..MOST_GROUPS {
            if left == 0 || q.is_none() {
                break;
            }
            let rq = &self.cfs_rqs[q];
            if rq.h_nr > 0 && !self.destination_throttled(rq.group, to) {
                return false;
            }
            left = left.saturating_sub(rq.h_nr);
            q = rq.next_sibling;
        }
        left == 0
    }

    /// What waits on a queue, and the group of what runs: others of that group may wait.
    fn entities(&self, q: CfsRqId, found: &mut Vec<SeId>) {
        let rq = &self.cfs_rqs[q];
        found.extend(rq.timeline.nodes().iter().rev().take(MAX_SCANNED).map(|node| node.se));
        if rq.curr.is_some() && matches!(self.ses[rq.curr].owner(), Owner::Group(_)) {
            found.push(rq.curr);
        }
    }

    /// Whether throttling lets a balancer move the task (kernel: `can_migrate_task()`).
    fn may_move(&self, task: TaskId, to: CpuId) -> bool {
        let group = self.tasks[task].group;
        let source = self.ses[self.tasks[task].se].q;
        if self.rules.balance_test == BalanceTest::SourceOrDestination
            && self.in_throttled_hierarchy(source)
        {
            return false;
        }
        !self.destination_throttled(group, to)
    }

    fn destination_throttled(&self, mut group: GroupId, to: CpuId) -> bool {
        loop {
            if let Some(&q) = self.groups[group].cfs_rqs.get(to.ix())
                && q.is_some()
            {
                return self.in_throttled_hierarchy(q);
            }
            if group.ix() == 0 {
                return false;
            }
            group = self.groups[group].parent;
        }
    }

    /// Takes a queued task to another CPU.
    pub(crate) fn migrate(&mut self, task: TaskId, to: CpuId) {
        debug_assert!(self.cpus[self.tasks[task].cpu].curr != task);
        debug_assert!(self.rules.unit == Unit::Task || !self.tasks[task].parked);
        self.carry_load(task, to);
        self.dequeue_task(task, Dequeue::Move);
        self.set_cpu(task, to);
        self.enqueue_task(task, Enqueue::Move);
        self.check_preempt(task);
    }
}
