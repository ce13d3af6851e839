//! Load balancing: moving runnable tasks between CPUs (kernel: `sched_balance_newidle()`,
//! `sched_balance_domains()`; simplified, see docs/reference/model.md).
//!
//! A CPU about to go idle pulls one task from the busiest CPU, near ones first. While some CPU has
//! waiting tasks, CPUs balance at ticks, at intervals of their own (`interval.rs`). Idle
//! CPUs pull half of what the busiest has. Busy CPUs that share a cache even out their average
//! loads; two caches even out their numbers of tasks.

mod detach;

use crate::events::{Event, NEVER};
use crate::ids::{CfsRqId, CpuId, Id, TaskId};
use crate::interval::Found;
use crate::machine::Machine;
use crate::pelt::{RUNNABLE_SHIFT, WHOLE};
use crate::se::scale;
use cpumax_workload::{Domain, Stream};
use std::ops::Range;

const MAX_MOVED: u32 = 32;
/// Balancing comes this long before the switch that the same tick requests, ns, so that the next
/// task is one of the waiting.
const BEFORE_NS: u64 = 1;
/// A CPU counts as more loaded than another from this percentage on (kernel: `imbalance_pct` of a
/// cache domain).
pub(crate) const IMBALANCE_PCT: u64 = 117;
/// After more failed attempts in a row than this, balancing also takes cache-hot tasks (kernel:
/// `cache_nice_tries`).
const NICE_TRIES: u32 = 1;
/// After more failed attempts in a row than this, an idle CPU takes the running task (kernel:
/// `imbalanced_active_balance()`).
const PATIENT_TRIES: u32 = NICE_TRIES + 2;
/// Under noise: at one of so many ticks a CPU comes before the one that counts the ticks (kernel:
/// `jiffies`), and balances a tick later. In ten seconds of three tasks on two CPUs of a real
/// 6.12, seven of 72 moves were so late.
const LATE: u64 = 10;
/// Longest balancing interval per CPU of the machine but one, ns. The kernel computes it when a
/// CPU comes online, before counting that CPU (`update_max_interval()`; read as 25, 75 and 175
/// ticks of 4 ms with 2, 4 and 8 CPUs on 6.18 and 7.3).
const MOST_BETWEEN_NS: u64 = 100_000_000;
/// Most CPUs tried at once where the tasks of the busiest ones may not move. (Kernels try all.)
const MAX_TRIED: usize = 4;

impl Machine<'_> {
    /// Starts rounds of balancing, from the next tick on, unless they run already or there is one
    /// CPU.
    pub(crate) fn arm_balance(&mut self) {
        if !self.is_balancing() && self.cpus.len() > 1 {
            for cpu in self.cpus.ids() {
                self.replay_idle_balancing(cpu);
            }
            self.schedule_balance(self.balance_tick_ns() + self.settings.tick_ns);
        }
    }

    /// Schedules the next round of balancing shortly before this tick, unless it is earlier anyway.
    fn schedule_balance(&mut self, tick_ns: u64) {
        if tick_ns < self.balancing.due_ns {
            self.balancing.due_ns = tick_ns;
            self.events.heap.push(tick_ns - BEFORE_NS, Event::Balance);
        }
    }

    /// The tick that the round under way is for, ns.
    fn balance_tick_ns(&self) -> u64 {
        (self.now + BEFORE_NS) / self.settings.tick_ns * self.settings.tick_ns
    }

    /// Performs a round of balancing: CPUs whose interval is over pull tasks from others, idle ones
    /// first. Schedules the next round while any CPU has waiting tasks, else ends the rounds.
    pub(crate) fn balance(&mut self) {
        let this_tick_ns = self.balance_tick_ns();
        if this_tick_ns != self.balancing.due_ns {
            // An earlier round was scheduled after this one.
            return;
        }
        let waits = |cpu: CpuId| self.balancing.nr_running[cpu.ix()] >= 2 && self.cpus[cpu].online;
        if !self.cpus.ids().any(waits) {
            self.balancing.due_ns = NEVER;
            for cpu in self.cpus.ids() {
                self.cpus[cpu].balancing.interval.seen_ns = this_tick_ns - 1;
            }
            return;
        }
        // Moves during the round do not schedule another.
        for idle in [true, false] {
            for cpu in self.cpus.ids() {
                let is_idle = self.cpus[cpu].is_idle() && self.cpus[cpu].nr_running == 0;
                if is_idle == idle && self.cpus[cpu].online {
                    self.balance_in_time(cpu, idle, this_tick_ns);
                }
            }
        }
        let online = self.cpus.ids().filter(|&cpu| self.cpus[cpu].online);
        let at_ns = online.map(|cpu| self.balance_at_ns(cpu)).min().unwrap_or(NEVER);
        self.balancing.due_ns = at_ns.max(this_tick_ns + self.settings.tick_ns);
        self.events.heap.push(self.balancing.due_ns - BEFORE_NS, Event::Balance);
    }

    /// Balances one CPU, if its interval is over at this tick, and updates its interval by the
    /// result. Under noise it may be a tick late.
    fn balance_in_time(&mut self, cpu: CpuId, idle: bool, this_tick_ns: u64) {
        let at_ns = self.balance_at_ns(cpu);
        if at_ns > this_tick_ns {
            return;
        }
        if at_ns == this_tick_ns && self.lab.happens(self.now, LATE) {
            self.cpus[cpu].balancing.interval.is_late = true;
            return;
        }
        if self.rules.idle_search_by_load {
            self.update_idle_search(&self.llc(cpu));
        }
        let found = if idle { self.pull_to_idle(cpu) } else { self.balance_busy(cpu) };
        let domain = self.llc(cpu).len() as u32;
        let interval = &mut self.cpus[cpu].balancing.interval;
        interval.note_result(found, domain);
        let was_late = std::mem::take(&mut interval.is_late);
        interval.last_ns = if was_late { at_ns } else { this_tick_ns } as i64;
    }

    /// Whether rounds of balancing run: some CPU has more than it can run.
    pub(crate) fn is_balancing(&self) -> bool {
        self.balancing.due_ns != NEVER
    }

    /// To be called when a CPU begins or ceases to be idle: brings its balancing interval up to now
    /// and notes when it became idle.
    pub(crate) fn note_idle_change(&mut self, cpu: CpuId) {
        if self.cpus.len() == 1 {
            return;
        }
        if !self.is_balancing() {
            self.replay_idle_balancing(cpu);
        }
        let now = self.now;
        if !self.cpus[cpu].is_idle() {
            self.cpus[cpu].balancing.interval.idle_ns = now;
        }
    }

    /// Updates a CPU's balancing interval to now for the time since its last update in which no
    /// rounds ran. No task waited, so balancing found nothing: at busy CPUs at the end of each
    /// interval, at idle ones at their first tick after it, as they have no further ticks.
    fn replay_idle_balancing(&mut self, cpu: CpuId) {
        let (now, tick_ns) = (self.now, self.settings.tick_ns);
        let domain = self.llc(cpu).len() as u32;
        let is_busy = !self.cpus[cpu].is_idle();
        let from_ns = std::mem::replace(&mut self.cpus[cpu].balancing.interval.seen_ns, now);
        let (first_ns, last_ns) = if is_busy {
            ((from_ns / tick_ns + 1) * tick_ns, now)
        } else {
            let tick = (self.cpus[cpu].balancing.interval.idle_ns / tick_ns + 1) * tick_ns;
            (if from_ns < tick { tick } else { NEVER }, tick.min(now))
        };
        loop {
            let interval_ns = self.balance_interval_ns(cpu, is_busy);
            let interval = &mut self.cpus[cpu].balancing.interval;
            let at_ns = interval_ns.saturating_add_signed(interval.last_ns).max(first_ns);
            if at_ns > last_ns {
                return;
            }
            let doubled = interval.interval_ms(domain);
            interval.note_result(Found::Balanced, domain);
            interval.last_ns = at_ns as i64;
            if interval.interval_ms(domain) == doubled {
                // The interval no longer changes.
                interval.last_ns += ((last_ns - at_ns) / interval_ns * interval_ns) as i64;
            }
        }
    }

    /// The tick at which the CPU's balancing interval is over, ns.
    fn balance_at_ns(&self, cpu: CpuId) -> u64 {
        let c = &self.cpus[cpu];
        let gives_way = self.rules.idle_class_is_free && self.runs_idle_class(cpu);
        let interval_ns = self.balance_interval_ns(cpu, c.nr_running > 0 && !gives_way);
        interval_ns.saturating_add_signed(c.balancing.interval.last_ns)
    }

    /// Draws, under noise, when CPUs last balanced before the run, and replaces their random
    /// streams, as both are unknown. No task waited; of nine CPUs read in emulated kernels seven
    /// had been idle so long that they balanced at their first tick.
    pub(crate) fn draw_balancing(&mut self) {
        if self.cpus.len() < 2 || self.lab.delays.is_none() {
            return;
        }
        for cpu in self.cpus.ids() {
            let domain = self.llc(cpu).len() as u32;
            self.cpus[cpu].balancing.interval.note_result(Found::Balanced, domain);
            let ticks = self.balance_interval_ns(cpu, true) / self.settings.tick_ns;
            let Some(delays) = &mut self.lab.delays else { return };
            let ago_ns = delays.below(4 * ticks) * self.settings.tick_ns;
            let c = &mut self.cpus[cpu];
            c.balancing.interval.last_ns = -(ago_ns as i64);
            c.balancing.random = Stream::new(delays.below(u64::MAX), Domain::Cpu, u64::from(cpu.0));
        }
    }

    /// A CPU's balancing interval, ns, in whole ticks: sixteen times as long for a busy one, less a
    /// tick (kernel: `get_sd_balance_interval()`).
    pub(crate) fn balance_interval_ns(&self, cpu: CpuId, is_busy: bool) -> u64 {
        let domain = self.llc(cpu).len() as u32;
        let ns = u64::from(self.cpus[cpu].balancing.interval.interval_ms(domain)) * 1_000_000;
        let ticks = if is_busy {
            (16 * ns).div_ceil(self.settings.tick_ns) - 1
        } else {
            ns.div_ceil(self.settings.tick_ns)
        };
        let most = MOST_BETWEEN_NS * (self.cpus.len() as u64 - 1).max(1) / self.settings.tick_ns;
        ticks.min(most).max(1) * self.settings.tick_ns
    }

    /// Pulls to an idle CPU half as many tasks as the busiest has, within its cache domain, or else
    /// from the whole machine.
    fn pull_to_idle(&mut self, cpu: CpuId) -> Found {
        let (own, all) = (self.llc(cpu), 0..self.cpus.len() as u32);
        let half = |range: &Range<u32>| (self.most_running(range) / 2).clamp(1, MAX_MOVED);
        let (near, far) = (half(&own), half(&all));
        let found = self.pull(cpu, own.clone(), near, true);
        let is_all = found == Found::Moved || own == all;
        if is_all { found } else { self.pull(cpu, all, far, true).or(found) }
    }

    /// Pulls tasks to a busy CPU: by load within its cache domain, or else by number of tasks from
    /// the machine.
    fn balance_busy(&mut self, to: CpuId) -> Found {
        let (own, all) = (self.llc(to), 0..self.cpus.len() as u32);
        let found =
            self.try_in_turn(|machine, tried| machine.even_out_load(to, own.clone(), tried));
        if own == all { found } else { self.even_out(to, all).or(found) }
    }

    /// Calls `take` for one CPU after the other until one has tasks that may move (kernel: `redo`
    /// in `sched_balance_rq()`). `take` gets the CPUs tried so far; it returns the one it tried and
    /// what it found, or `None` to end.
    fn try_in_turn(
        &mut self,
        take: impl Fn(&mut Self, &[CpuId]) -> Option<(CpuId, Found)>,
    ) -> Found {
        let mut tried = [CpuId::NONE; MAX_TRIED];
        let mut found = Found::Balanced;
        for at in 0..MAX_TRIED {
            let Some((from, found_there)) = take(self, &tried[..at]) else { break };
            found = found_there;
            if found != Found::Pinned {
                break;
            }
            tried[at] = from;
        }
        found
    }

    /// Pulls load from the most loaded CPU of a cache domain, except those `tried`, to a busy one,
    /// up to what both lack to the average (kernel: `sched_balance_find_src_group()`,
    /// `calculate_imbalance()`, for groups of one CPU each). `None` if no CPU has too much.
    fn even_out_load(
        &mut self,
        to: CpuId,
        domain: Range<u32>,
        tried: &[CpuId],
    ) -> Option<(CpuId, Found)> {
        let (mut busiest, mut sum, mut cpus) = (None, 0, 0);
        for cpu in domain.map(CpuId) {
            if !self.cpus[cpu].online {
                continue;
            }
            let load = self.cpu_load(cpu);
            sum += load;
            cpus += 1;
            let is_candidate = cpu != to && !tried.contains(&cpu) && self.is_overloaded(cpu);
            if is_candidate && busiest.is_none_or(|(_, most)| load > most) {
                busiest = Some((cpu, load));
            }
        }
        let (local, average) = (self.cpu_load(to), sum / cpus);
        let more = busiest.filter(|&(_, most)| {
            let is_near = self.is_overloaded(to) && 100 * most <= IMBALANCE_PCT * local;
            local < most && local < average && !is_near && !self.has_spare(to)
        });
        let (from, most) = more?;
        // A CPU with more load may have no waiting task.
        let short = average - local;
        let imbalance = most.checked_sub(average).map_or(short, |over| over.min(short));
        // Interrupts leave a CPU slightly less than its whole capacity, so two CPUs with one and
        // two tasks lack less than half a task.
        Some((from, self.pull_load(to, from, imbalance - imbalance / 256)))
    }

    /// Load average of a CPU now, in weights (kernel: `cpu_load()`); updates the average.
    pub(crate) fn cpu_load(&mut self, cpu: CpuId) -> u64 {
        let root = self.root(cpu);
        self.pelt_update(root);
        let load = self.cfs_rqs[root].pelt.load_avg;
        let Some(q) = self.lone_group(cpu) else { return load };
        let (now, fresh) = (self.group_load(q), self.share(q));
        (load + self.group_load_at(q, fresh)).saturating_sub(now)
    }

    /// The top-level group whose task runs alone on a CPU, if it is not throttled. Ticks leave its
    /// weight as it is, as it does not matter.
    fn lone_group(&self, cpu: CpuId) -> Option<CfsRqId> {
        let (root, curr) = (self.root(cpu), self.cpus[cpu].curr);
        if self.cpus[cpu].nr_running != 1 || curr.is_none() || !self.tasks[curr].is_fair() {
            return None;
        }
        let mut q = self.ses[self.tasks[curr].se].q;
        while q != root {
            let parent = self.cfs_rqs[q].parent;
            if parent == root {
                let is_throttled = self.cfs_rqs[q].bandwidth.throttle_count > 0;
                return (!is_throttled).then_some(q);
            }
            q = parent;
        }
        None
    }

    /// Tasks on a CPU, delayed ones included (kernel: `rq->nr_running`).
    fn queued(&self, cpu: CpuId) -> u32 {
        self.cfs_rqs[self.root(cpu)].h_nr
    }

    /// Whether two or more tasks are queued, and the CPU was hardly idle recently or had waiting
    /// tasks then (kernel: `group_is_overloaded()`). Updates averages.
    fn is_overloaded(&mut self, cpu: CpuId) -> bool {
        self.queued(cpu) > 1 && (self.was_busy(cpu) || self.has_waited(cpu))
    }

    /// Whether no task is queued, or the CPU was idle for part of recent time and none waited
    /// (kernel: `group_has_capacity()`). Updates averages.
    fn has_spare(&mut self, cpu: CpuId) -> bool {
        self.queued(cpu) == 0 || !self.was_busy(cpu) && !self.has_waited(cpu)
    }

    /// Whether the CPU's utilisation, which is updated, leaves no room for an imbalance (kernel:
    /// `cpu_util_cfs()`).
    fn was_busy(&mut self, cpu: CpuId) -> bool {
        self.cpu_util(cpu) * IMBALANCE_PCT >= 100 * WHOLE
    }

    /// Whether the CPU's recent average of runnable tasks is above one by more than the tolerated
    /// imbalance (kernel: `runnable_avg`).
    fn has_waited(&self, cpu: CpuId) -> bool {
        let runnable = self.cfs_rqs[self.root(cpu)].pelt.runnable_avg;
        u64::from(runnable) * 100 > IMBALANCE_PCT << RUNNABLE_SHIFT
    }

    /// Moves waiting tasks of about this load in total from one CPU to another; each failed attempt
    /// before doubles how heavy one may be (kernel: `detach_tasks()`).
    fn pull_load(&mut self, to: CpuId, from: CpuId, imbalance: u64) -> Found {
        let mut lists = std::mem::take(&mut self.balancing.lists);
        let mut found = self.find_movable(from, to, MAX_MOVED, true, &mut lists);
        let mut left = imbalance;
        let tries = self.cpus[to].balancing.interval.failed.min(63);
        for &task in &lists.movable {
            let load = self.task_h_load(task);
            if left > 0 && load >> tries <= left {
                left = left.saturating_sub(load);
                self.migrate(task, to);
                found = Found::Moved;
            }
        }
        self.balancing.lists = lists;
        found
    }

    /// A task's part of the load of its CPU, in weights, at least 1 (kernel: `task_h_load()`).
    pub(crate) fn task_h_load(&mut self, task: TaskId) -> u64 {
        let mut load = self.task_load(task);
        let mut q = self.ses[self.tasks[task].se].q;
        while self.cfs_rqs[q].se.is_some() {
            let all = self.cfs_rqs[q].pelt.load_avg.max(load).max(1);
            load = scale(load, self.group_load(q), all);
            q = self.cfs_rqs[q].parent;
        }
        load.max(1)
    }

    /// Pulls tasks from the CPU of a domain with the most, until both have about equally many; a
    /// small difference is tolerated.
    fn even_out(&mut self, to: CpuId, domain: Range<u32>) -> Found {
        let most = self.most_running(&domain);
        let difference = most.saturating_sub(self.cpus[to].nr_running);
        // Half the difference evens out. A difference below two, or below a sixth of many, is
        // tolerated.
        if difference < 2 || u64::from(difference) * 6 <= u64::from(most) {
            return Found::Balanced;
        }
        self.pull(to, domain, (difference / 2).min(MAX_MOVED), true)
    }

    /// Pulls a task to a CPU that is about to go idle, from its cache domain or else the machine
    /// (kernel: `sched_balance_newidle()`). True if it got any; else it may schedule an earlier
    /// round.
    pub(crate) fn balance_newidle(&mut self, cpu: CpuId) -> bool {
        if !self.is_balancing() || !self.cpus[cpu].online {
            // Armed whenever some CPU has two runnable tasks.
            return false;
        }
        let (own, all) = (self.llc(cpu), 0..self.cpus.len() as u32);
        let moved =
            self.pull_newidle(cpu, 0, own.clone()) || own != all && self.pull_newidle(cpu, 1, all);
        if !moved {
            // An idle CPU has a shorter interval.
            let next_ns = self.balance_tick_ns() + self.settings.tick_ns;
            self.schedule_balance(self.balance_at_ns(cpu).max(next_ns));
        }
        moved
    }

    /// Pulls one task to a CPU that goes idle from a domain (`level` 0: cache, 1: machine). Newer
    /// kernels draw by past success whether to try. True if a task came.
    fn pull_newidle(&mut self, cpu: CpuId, level: usize, domain: Range<u32>) -> bool {
        let by_success = self.rules.newidle_by_success;
        let c = &mut self.cpus[cpu];
        let weight = if by_success {
            c.balancing.newidle[level].draw(&mut c.balancing.random)
        } else {
            Some(0)
        };
        let found = weight.map(|_| self.pull(cpu, domain, 1, false));
        let moved = found == Some(Found::Moved);
        let successes = weight.filter(|_| moved).unwrap_or(0);
        let c = &mut self.cpus[cpu];
        c.balancing.newidle[level].note_call(successes);
        if let Some(found) = found.filter(|_| level == 0) {
            c.balancing.interval.note_newidle(found);
        }
        moved
    }

    /// Pulls up to `want` waiting tasks from the busiest CPU of a range that has any to give; a
    /// near idle CPU takes a running task after several failures. Attempts without result count
    /// only at ticks.
    fn pull(&mut self, to: CpuId, domain: Range<u32>, want: u32, at_tick: bool) -> Found {
        let is_near = self.balancing.nr_running[to.ix()] == 0 && domain == self.llc(to);
        self.try_in_turn(|machine, tried| {
            let from = machine.busiest(to, &domain, tried)?;
            let found = machine.pull_from(to, from, want);
            let failed = machine.cpus[to].balancing.interval.failed + u32::from(at_tick);
            let takes_running = found == Found::Nothing && is_near && failed > PATIENT_TRIES;
            let takes_it = takes_running && machine.pull_running(to, from);
            Some((from, if takes_it { Found::Moved } else { found }))
        })
    }

    /// Moves the running task of a CPU whose waiting tasks may not leave, if it may move (kernel:
    /// `active_load_balance_cpu_stop()`, a thread of that CPU, which preempts it). True if it does.
    fn pull_running(&mut self, to: CpuId, from: CpuId) -> bool {
        let curr = self.cpus[from].curr;
        if curr.is_none() || !self.tasks[curr].is_fair() || self.is_pinned_down(curr) {
            return false;
        }
        let may =
            self.may_use(curr, to) && self.may_move(curr, to) && !self.tasks[curr].signals.exiting;
        if may {
            self.evict(curr, to);
        }
        may
    }

    /// The CPU of a range, except those `tried`, with the most runnable tasks, if it has at least
    /// two more than `to`; of equals the first after `to`.
    fn busiest(&self, to: CpuId, domain: &Range<u32>, tried: &[CpuId]) -> Option<CpuId> {
        let is_left = |cpu: &CpuId| !tried.contains(cpu);
        let most = if tried.is_empty() {
            self.most_running(domain)
        } else {
            let left = domain.clone().map(CpuId).filter(is_left);
            left.map(|cpu| self.balancing.nr_running[cpu.ix()]).max()?
        };
        if most <= self.balancing.nr_running[to.ix()] + 1 {
            return None;
        }
        let first = to.0.clamp(domain.start, domain.end);
        let mut in_order = (first..domain.end).chain(domain.start..first).map(CpuId);
        in_order.find(|cpu| self.balancing.nr_running[cpu.ix()] == most && is_left(cpu))
    }

    /// Moves up to `want` waiting tasks from one CPU to another, cache-hot ones aside.
    fn pull_from(&mut self, to: CpuId, from: CpuId, want: u32) -> Found {
        let mut lists = std::mem::take(&mut self.balancing.lists);
        let mut found = self.find_movable(from, to, want, false, &mut lists);
        for &task in &lists.movable {
            self.migrate(task, to);
            found = Found::Moved;
        }
        self.balancing.lists = lists;
        found
    }

    /// Largest number of runnable tasks on a CPU of the range.
    fn most_running(&self, domain: &Range<u32>) -> u32 {
        let range = domain.start as usize..domain.end as usize;
        self.balancing.nr_running[range].iter().copied().max().unwrap_or(0)
    }
}
