//! Placement of tasks that become runnable (kernel: `select_task_rq_fair()`, `wake_affine()`,
//! `select_idle_sibling()`; simplified, see docs/reference/model.md). Throttling plays no part, in
//! any generation.

use crate::cpu::Resched;
use crate::fair::Enqueue;
use crate::fair::balance::IMBALANCE_PCT;
use crate::ids::{CfsRqId, CpuId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::pelt::WHOLE;
use crate::rules::Queue;
use crate::se::Owner;
use crate::task::{Birth, Code, State};
use cpumax_outcome::trace::What;
use cpumax_workload::Class;

/// Placement of a new task.
enum First {
    /// On the CPU where it began on the observed machine.
    On(CpuId),
    /// Like a waking task.
    WhereItIs,
    /// Like a forked task.
    Anywhere,
}

impl Machine<'_> {
    /// CPUs that share a last-level cache with this one, as a range of numbers.
    pub(crate) fn llc(&self, cpu: CpuId) -> std::ops::Range<u32> {
        let all = self.cpus.len() as u32;
        let size = match u32::from(self.workload.machine.llc_cpus) {
            0 => all,
            size => size,
        };
        let first = cpu.0 / size * size;
        first..(first + size).min(all)
    }

    /// Whether the CPU is on line and in the task's affinity.
    pub(crate) fn may_use(&self, task: TaskId, cpu: CpuId) -> bool {
        self.cpus[cpu].online && self.settings.masks[self.tasks[task].mask as usize].contains(cpu)
    }

    /// Whether a CPU is idle, with no fair or real-time task queued either.
    fn is_free(&self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu];
        c.curr.is_none() && c.nr_running == 0 && c.rt.queue.is_empty()
    }

    /// Whether a single `SCHED_IDLE` task runs there and none waits (kernel: `sched_idle_cpu()`).
    pub(crate) fn runs_idle_class(&self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu];
        c.nr_running == 1
            && c.rt.queue.is_empty()
            && c.curr.is_some()
            && self.tasks[c.curr].attrs.class == Class::Idle
    }

    /// Whether this task can have the CPU at once: it is free, or only a `SCHED_IDLE` task runs
    /// there (5.4+), and the affinity allows it.
    fn is_free_for(&self, task: TaskId, cpu: CpuId) -> bool {
        let gives_way = self.rules.idle_class_is_free
            && self.tasks[task].attrs.class != Class::Idle
            && self.runs_idle_class(cpu);
        (gives_way || self.is_free(cpu)) && self.may_use(task, cpu)
    }

    /// The first CPU of a range that the task can have at once, searching from `from` on and
    /// around; `None` if there is none. Changes nothing.
    fn free_in(&self, task: TaskId, from: CpuId, range: std::ops::Range<u32>) -> Option<CpuId> {
        let most = u32::from(self.rules.idle_class_is_free);
        let free_of = |range: std::ops::Range<u32>| {
            let nr_running = &self.balancing.nr_running[range.start as usize..range.end as usize];
            let unused = (range.start..).zip(nr_running).filter(|&(_, &nr)| nr <= most);
            let mut unused = unused.map(|(cpu, _)| CpuId(cpu));
            unused.find(|&cpu| self.is_free_for(task, cpu))
        };
        free_of(from.0..range.end).or_else(|| free_of(range.start..from.0))
    }

    /// The CPU that the task may use with the fewest runnable tasks; of equal ones the first from
    /// `from` on. Any CPU on line if it may use none.
    pub(crate) fn least_loaded(&self, task: TaskId, from: CpuId) -> CpuId {
        let all = self.cpus.len() as u32;
        let order = (from.0..all).chain(0..from.0).map(CpuId);
        let busy = |cpu: &CpuId| {
            let c = &self.cpus[*cpu];
            u64::from(c.nr_running) + c.rt.queue.len() as u64 + u64::from(self.runs_rt(*cpu))
        };
        let (mut best, mut least) = (CpuId::NONE, u64::MAX);
        for cpu in order.clone() {
            // A lower bound of its load.
            if u64::from(self.balancing.nr_running[cpu.ix()]) < least && self.may_use(task, cpu) {
                let busy = busy(&cpu);
                if busy < least {
                    (best, least) = (cpu, busy);
                }
            }
        }
        if best.is_some() {
            return best;
        }
        order.clone().find(|&cpu| self.cpus[cpu].online).unwrap_or(from)
    }

    /// Whether the CPU's current task is a real-time one.
    fn runs_rt(&self, cpu: CpuId) -> bool {
        let curr = self.cpus[cpu].curr;
        curr.is_some() && self.tasks[curr].attrs.class == Class::Rt
    }

    /// Chooses the CPU of a task that becomes runnable: its last, its waker's or a free one near
    /// these (kernel: `select_task_rq_fair()`). Records the wakeup and recent CPU; does not move
    /// the task. `in_sync`: the waker is about to sleep.
    fn select_cpu(&mut self, task: TaskId, why: Enqueue, in_sync: bool) -> CpuId {
        let prev = self.tasks[task].cpu;
        let stays = self.tasks[task].at.code == Code::Outside && self.cpus[prev].online;
        if stays || self.cpus.len() == 1 {
            return prev;
        }
        let first = if why.is_fork() { self.first_placement(task) } else { First::WhereItIs };
        if let First::On(cpu) = first {
            return cpu;
        }
        if let First::Anywhere = first {
            let own_llc = self.llc(prev);
            if let Some(free) = self.free_in(task, prev, own_llc) {
                return free;
            }
            return self.least_loaded(task, prev);
        }
        let here = self.events.here;
        let is_wide = here.is_some() && self.note_wakee(task, here);
        let affine = here.is_some() && !is_wide && here != prev && self.may_use(task, here);
        let target = if !self.may_use(task, prev) {
            if !affine {
                return self.least_loaded(task, prev);
            }
            here
        } else if affine && self.prefers_waker_cpu(task, prev, here, in_sync) {
            here
        } else {
            prev
        };
        let near = self.llc(target);
        if self.is_free_for(task, prev) && near.contains(&prev.0) {
            return prev;
        }
        if self.is_free_for(task, target) {
            return target;
        }
        let recent = std::mem::replace(&mut self.tasks[task].recent.cpu, prev);
        let is_else = recent != prev && recent != target;
        if is_else && near.contains(&recent.0) && self.is_free_for(task, recent) {
            return recent;
        }
        self.search_idle(task, target, near).unwrap_or(target)
    }

    /// Records the wakeup of the task by the current task of CPU `here`; returns whether waker and
    /// wakee are to be spread (kernel: `record_wakee()`, `wake_wide()`, skipped where the task has
    /// no choice).
    fn note_wakee(&mut self, task: TaskId, here: CpuId) -> bool {
        let t = &self.tasks[task];
        let (own, number) = (t.recent.wakees, t.birth.number);
        if !t.is_fair() || self.settings.masks[t.mask as usize].is_one() {
            return false;
        }
        let (curr, now) = (self.cpus[here].curr, self.now);
        let is_idle = curr.is_none();
        let wakers = if is_idle {
            &mut self.cpus[here].usage.wakees
        } else {
            &mut self.tasks[curr].recent.wakees
        };
        wakers.record(number, now);
        let wakers = *wakers;
        wakers.is_wide(own, self.llc(here).len() as u32)
    }

    /// Whether a task wakes up near its waker's CPU `here` instead of near its last one `prev`, by
    /// idleness and load (kernel: `wake_affine()`).
    fn prefers_waker_cpu(&mut self, task: TaskId, prev: CpuId, here: CpuId, in_sync: bool) -> bool {
        let is_near = self.llc(here).contains(&prev.0);
        if is_near && self.is_free(here) {
            return !self.is_free(prev);
        }
        if in_sync && self.cpus[here].nr_running == 1 {
            return true;
        }
        if self.is_free(prev) || self.ses[self.tasks[task].se].q.is_none() {
            return false;
        }
        let mut load_here = self.cpu_load(here);
        let waker = self.cpus[here].curr;
        if in_sync && waker.is_some() && self.tasks[waker].is_fair() {
            let own = self.task_h_load(waker);
            if own > load_here {
                return true;
            }
            load_here -= own;
        }
        let load = self.task_h_load(task);
        let there = self.cpu_load(prev).saturating_sub(load);
        100 * (load_here + load) < (100 + (IMBALANCE_PCT - 100) / 2) * there + u64::from(in_sync)
    }

    /// A CPU in the range `near` that the task can have at once, from the target on, or `None`;
    /// from 6.0 on the domain's utilisation limits how many are searched (kernel:
    /// `select_idle_cpu()`).
    fn search_idle(
        &mut self,
        task: TaskId,
        target: CpuId,
        near: std::ops::Range<u32>,
    ) -> Option<CpuId> {
        let most = if self.rules.idle_search_by_load { self.idle_search(&near) } else { u32::MAX };
        if most >= near.len() as u32 {
            return self.free_in(task, target, near);
        }
        let order = (target.0 + 1..near.end).chain(near.start..=target.0).map(CpuId);
        let mut looked_at = order.filter(|&cpu| self.may_use(task, cpu)).take(most as usize);
        looked_at.find(|&cpu| self.is_free_for(task, cpu))
    }

    /// Most CPUs of a cache domain to search for an idle one, as computed when one of them last
    /// balanced. Where no rounds of balancing run it is computed again at a busy CPU's balancing
    /// interval.
    fn idle_search(&mut self, near: &std::ops::Range<u32>) -> u32 {
        let (most, until_ns) = self.cpus[CpuId(near.start)].balancing.idle_search;
        let stands = self.now < until_ns || until_ns > 0 && self.is_balancing();
        if stands { most } else { self.update_idle_search(near) }
    }

    /// Computes and stores how many CPUs of the domain to search for an idle one: fewer, the busier
    /// it is (kernel: `update_idle_cpu_scan()`).
    pub(crate) fn update_idle_search(&mut self, near: &std::ops::Range<u32>) -> u32 {
        let mut sum = 0;
        for cpu in near.clone().map(CpuId) {
            sum += self.cpu_util(cpu);
        }
        let cpus = near.len() as u64;
        let used = sum / cpus * IMBALANCE_PCT / 100;
        let hope = WHOLE - (used * used / WHOLE).min(WHOLE);
        let most = (hope * cpus / WHOLE) as u32;
        let first = CpuId(near.start);
        let until_ns = self.now + self.balance_interval_ns(first, true);
        self.cpus[first].balancing.idle_search = (most, until_ns);
        most
    }

    /// How to place a new task: on a certain CPU, where it is, or anywhere. On an observed machine,
    /// tasks started from outside were created long before, on CPUs in turn: one that did not begin
    /// there wakes where it was, unless another CPU is free.
    fn first_placement(&self, task: TaskId) -> First {
        let t = &self.tasks[task];
        let Birth { instance, parent, .. } = t.birth;
        let kind = self.workload.tasks.get(t.kind as usize).filter(|_| parent.is_none());
        let firsts = self.lab.observed.zip(kind).and_then(|(o, kind)| o.first_cpus.get(&kind.name));
        match firsts.and_then(|firsts| firsts.get(instance as usize)) {
            None => First::Anywhere,
            Some(None) => First::WhereItIs,
            Some(&Some(cpu)) => {
                let cpu = CpuId(cpu);
                let is_there = cpu.ix() < self.cpus.len() && self.may_use(task, cpu);
                if is_there { First::On(cpu) } else { First::Anywhere }
            }
        }
    }

    /// Makes a new task runnable: places it on a CPU, queues it for the first time, and tests for
    /// preemption (kernel: `wake_up_new_task()`).
    pub(crate) fn launch(&mut self, task: TaskId) {
        if self.cpus.len() > 1 && !matches!(self.first_placement(task), First::Anywhere) {
            self.reset_load(task);
        }
        let t = &mut self.tasks[task];
        t.state = State::Runnable;
        t.recent.wanted_ns = self.now;
        t.recent.cpu = t.cpu;
        self.become_ready(task, Enqueue::Fork, false);
    }

    /// Wakes a sleeping task: places and queues it, and tests for preemption; nothing if it is
    /// runnable or has exited (kernel: `try_to_wake_up()`).
    pub(crate) fn wake(&mut self, task: TaskId) {
        self.wake_up(task, false);
    }

    /// Wakes a sleeping task: places and queues it, and tests for preemption. Its waker is expected
    /// to sleep soon, as at the other end of a pipe, or as an exiting child (kernel: `WF_SYNC`),
    /// which favours the waker's CPU.
    pub(crate) fn wake_in_sync(&mut self, task: TaskId) {
        self.wake_up(task, true);
    }

    /// Wakes a sleeping task: emits the wakeup, counts reports of hung tasks, ends the sleep in its
    /// averages, and places and queues it. Nothing if it is runnable or has exited. `in_sync`: the
    /// waker is about to sleep.
    fn wake_up(&mut self, task: TaskId, in_sync: bool) {
        if self.tasks[task].state == State::Runnable || self.tasks[task].state == State::Exited {
            return;
        }
        let by = self.channels.sender;
        if by.is_some() && by != task {
            self.emit(self.tasks[by].cpu, What::WokenBy { task: task.0, by: by.0 });
        }
        self.count_hung(task);
        let t = &mut self.tasks[task];
        t.update_wanted(self.now);
        t.state = State::Runnable;
        self.become_ready(task, Enqueue::WakeUp, in_sync);
    }

    /// Places a task that becomes runnable on a CPU, queues it, and tests for preemption; a delayed
    /// one is requeued where it is. Its waiting time begins now.
    fn become_ready(&mut self, task: TaskId, why: Enqueue, in_sync: bool) {
        let now = self.now;
        let t = &mut self.tasks[task];
        t.times.ready_since_ns = now;
        let (class, se) = (t.attrs.class, t.se);
        self.begin_stall(task);
        if class == Class::Rt {
            let cpu = self.select_cpu(task, why, in_sync);
            self.tasks[task].cpu = cpu;
            self.emit(cpu, What::Wake { task: task.0 });
            self.rt_enqueue(task);
            return;
        }
        if self.ses[se].delayed {
            let (cpu, leaf) = (self.tasks[task].cpu, self.ses[se].q);
            self.requeue_delayed(se);
            self.count_runnable(leaf, 1);
            self.add_expected_util(task);
            self.emit(cpu, What::Wake { task: task.0 });
            // The task may still be on its CPU: it was about to leave, and now stays.
            if self.cpus[cpu].curr != task {
                self.check_preempt(task);
            }
            return;
        }
        let cpu = self.select_cpu(task, why, in_sync);
        self.set_cpu(task, cpu);
        self.emit(cpu, What::Wake { task: task.0 });
        self.enqueue_task(task, why);
        let curr = self.cpus[cpu].curr;
        if !why.is_fork() || self.rules.fork_preempts || curr.is_none() {
            self.check_preempt(task);
        }
    }

    /// Assigns a task that is on no queue to this CPU; CFS makes its vruntime relative. Queues
    /// nothing.
    pub(crate) fn set_cpu(&mut self, task: TaskId, cpu: CpuId) {
        let (old, se) = (self.tasks[task].cpu, self.tasks[task].se);
        if old == cpu {
            return;
        }
        let q = self.ses[se].q;
        if self.rules.queue.is_cfs() && q.is_some() {
            self.detach_from_queue(q, se);
        }
        self.tasks[task].cpu = cpu;
        debug_assert!(cpu.ix() < self.cpus.len());
    }

    /// Requests a reschedule if a newly queued task preempts its CPU's current one (kernel:
    /// `wakeup_preempt()`); an idle CPU is always told. The clock of the wakeup is kept for that
    /// reschedule.
    pub(crate) fn check_preempt(&mut self, task: TaskId) {
        self.test_preemption(task);
        self.keep_clock(self.tasks[task].cpu);
    }

    /// Requests a reschedule if a newly queued task preempts its CPU's current one, which is
    /// charged before; an idle CPU always. No task preempts a real-time one, or while parked or
    /// throttled; `SCHED_IDLE` ones preempt none and make way for others.
    fn test_preemption(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        let curr = self.cpus[cpu].curr;
        if curr.is_none() {
            // An idle CPU must be told even if the woken task is throttled.
            if self.cpus[cpu].nr_running > 0 {
                self.resched(cpu, Resched::Now);
            }
            return;
        }
        if curr == task
            || self.tasks[curr].attrs.class == Class::Rt
            || self.tasks[task].throttle.parked
        {
            return;
        }
        let (se, running) = (self.tasks[task].se, self.tasks[curr].se);
        if !self.ses[se].on_rq {
            return;
        }
        let leaf = self.ses[se].q;
        let entity_unit = self.rules.unit.is_entity();
        if entity_unit && self.in_throttled_hierarchy(leaf) {
            return;
        }
        if !self.is_flat() && self.cpus[cpu].resched == Resched::Now {
            return;
        }
        let (q, se, running) = if self.is_flat() {
            (self.root(cpu), se, running)
        } else {
            self.matching_entities(se, running)
        };
        if se == running {
            return;
        }
        let is_idle = |task: TaskId| self.tasks[task].attrs.class == Class::Idle;
        let [newcomer, present] = [(task, se), (curr, running)].map(|(task, se)| {
            // To 6.5 the class of a task counts whatever groups it is in.
            let is_own = self.ses[se].owner() == Owner::Task(task);
            is_idle(task) && (is_own || self.rules.queue.is_cfs())
        });
        let makes_way = present && !newcomer;
        if !makes_way && (present || newcomer || is_idle(task)) {
            // `SCHED_IDLE` tasks preempt none, also where their groups compete (kernel:
            // `normal_policy()`).
            return;
        }
        // A `SCHED_IDLE` task makes way without being charged.
        if !makes_way {
            if self.is_flat() {
                self.charge_path(self.ses[self.tasks[curr].se].q);
            } else {
                self.charge(q);
            }
        }
        let preempts = match self.rules.queue {
            Queue::Cfs => self.preempts_cfs(se, running, makes_way),
            Queue::Eevdf | Queue::EevdfFlat => self.preempts_eevdf(q, se, running, makes_way),
        };
        if preempts {
            self.resched(cpu, Resched::Lazy);
        }
    }

    /// The entities of `a` and `b`, or of groups above them, that compete with each other, and
    /// their queue, which comes first (kernel: `find_matching_se()`).
    pub(crate) fn matching_entities(&self, a: SeId, b: SeId) -> (CfsRqId, SeId, SeId) {
        let (mut up_a, mut up_b) = (a, b);
        // Climbing from both at once, they meet if they are equally deep, as most are.
        while up_a.is_some() && up_b.is_some() {
            let (qa, qb) = (self.ses[up_a].q, self.ses[up_b].q);
            if qa == qb {
                return (qa, up_a, up_b);
            }
            (up_a, up_b) = (self.cfs_rqs[qa].se, self.cfs_rqs[qb].se);
        }
        let up = |se: SeId| self.cfs_rqs[self.ses[se].q].se;
        // The path with steps left is deeper by that number.
        let (mut a, mut b) = (a, b);
        while up_a.is_some() {
            (up_a, a) = (up(up_a), up(a));
        }
        while up_b.is_some() {
            (up_b, b) = (up(up_b), up(b));
        }
        while self.ses[a].q != self.ses[b].q {
            (a, b) = (up(a), up(b));
        }
        (self.ses[a].q, a, b)
    }

    /// The deepest queue that both tasks' paths to the root have in common. Both must have their
    /// entities on queues of one CPU.
    pub(crate) fn common_cfs_rq(&self, a: TaskId, b: TaskId) -> CfsRqId {
        self.matching_entities(self.tasks[a].se, self.tasks[b].se).0
    }
}

#[cfg(test)]
mod tests {
    use cpumax_outcome::trace::{Recorded, TraceEvent, What};

    /// A task of class idle is charged where it leaves: a group whose quota is used up by then is
    /// throttled there, not where the other task wakes up.
    #[test]
    fn one_of_class_idle_makes_way_without_being_charged() {
        let text = r#"
            duration = "20ms"
            [machine]
            cpus = 1
            hz = 250
            preempt = "lazy"
            timer_phase = "0ms"
            [[group]]
            path = "/g"
            max = "5000 100000"
            [[task]]
            name = "idle"
            class = "idle"
            group = "/g"
            program = [{ kernel = "15ms" }]
            [[group]]
            path = "/g/other"
            [[task]]
            name = "first"
            group = "/g/other"
            program = [{ sleep = "4500us" }, { user = "1ms" }]
            [[task]]
            name = "second"
            group = "/g/other"
            program = [{ sleep = "6500us" }, { user = "1ms" }]
        "#;
        let workload = cpumax_workload::parse(text, "way.toml").unwrap();
        let options = crate::Options::new(crate::kernel::parse_kernels("6.17").unwrap()[0], 1);
        let mut trace = Recorded::default();
        crate::run(&workload, &options, Some(&mut trace), None).unwrap();
        let throttled = |event: &&TraceEvent| matches!(event.what, What::Throttle { .. });
        let first = trace.events.iter().find(throttled).map(|event| event.time_ns);
        assert_eq!(first, Some(8_000_000), "at the tick, not when the second one wakes up");
    }
}
