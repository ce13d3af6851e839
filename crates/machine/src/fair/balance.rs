//! Moving ready tasks between CPUs (kernel: `sched_balance_newidle()`, `sched_balance_domains()`;
//! abstract, see docs/model.md).
//!
//! A CPU about to go idle pulls one task from the busiest CPU, near ones first. While some CPU has tasks
//! waiting, idle CPUs are looked at every tick and busy ones every 16 ms per CPU of a cache domain.

use crate::bandwidth::rules::{BalanceTest, Unit};
use crate::fair::{Dequeue, Enqueue};
use crate::ids::{CfsRqId, CpuId, GroupId, Id, SeId, TaskId};
use crate::machine::{Event, Machine};
use crate::se::Owner;

/// Most tasks moved in one go.
const MAX_MOVED: u32 = 32;
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
        let at_ns = (self.now / self.tick_ns + 1) * self.tick_ns;
        self.heap.push(at_ns, Event::Balance);
    }

    /// A balancing round. Arms the next while there is anything to balance.
    pub(crate) fn balance(&mut self) {
        self.balance_armed = false;
        self.balance_round += 1;
        let waits = |cpu: CpuId| self.nr_running[cpu.ix()] >= 2 && self.cpus[cpu].online;
        if !self.cpus.ids().any(waits) {
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
        let busy_ns = self.busy_interval_ns();
        if self.balance_round * self.tick_ns % busy_ns < self.tick_ns {
            self.balance_busy();
        }
        // Without an idle CPU the next round that can do anything is a busy one.
        let rounds_ns =
            if idle_exists { self.tick_ns } else { busy_ns.div_ceil(self.tick_ns) * self.tick_ns };
        if !idle_exists {
            self.balance_round += rounds_ns / self.tick_ns - 1;
        }
        self.balance_armed = true;
        let at_ns = (self.now / self.tick_ns) * self.tick_ns + rounds_ns;
        self.heap.push(at_ns, Event::Balance);
    }

    fn busy_interval_ns(&self) -> u64 {
        let domain = self.llc(CpuId(0)).len() as u64;
        (16 * domain * 1_000_000).clamp(self.tick_ns, 1_000_000_000)
    }

    fn pull_to_idle(&mut self, cpu: CpuId) {
        let own = self.llc(cpu);
        if !self.pull(cpu, own.clone(), 1) {
            let all = 0..self.cpus.len() as u32;
            if own != all {
                self.pull(cpu, all, 1);
            }
        }
    }

    /// Evens out the number of ready tasks: the busiest CPU gives to the least busy one.
    fn balance_busy(&mut self) {
        let cpus = self.cpus.len() as u32;
        let mut first = 0;
        while first < cpus {
            let domain = self.llc(CpuId(first));
            for to in domain.clone().map(CpuId) {
                self.even_out(to, domain.clone());
            }
            first = domain.end;
        }
        if self.llc(CpuId(0)).len() as u32 != cpus {
            for to in (0..cpus).map(CpuId) {
                self.even_out(to, 0..cpus);
            }
        }
    }

    fn even_out(&mut self, to: CpuId, domain: std::ops::Range<u32>) {
        if !self.cpus[to].online {
            return;
        }
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
                    if !self.ses[se].delayed && self.may_use(task, to) && self.may_move(task, to) {
                        movable.push(task);
                    }
                }
            }
        }
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
        self.dequeue_task(task, Dequeue::Move);
        self.set_cpu(task, to);
        self.enqueue_task(task, Enqueue::Move);
        self.check_preempt(task);
    }
}
