//! Where a task that becomes ready goes (kernel: `select_task_rq_fair()`, `wake_affine()`,
//! `select_idle_sibling()`; abstract, see docs/model.md). Throttling is no input, in any generation.

use crate::bandwidth::rules::{Queue, Unit};
use crate::cpu::Resched;
use crate::fair::Enqueue;
use crate::ids::{CfsRqId, CpuId, Id, SeId, TaskId};
use crate::machine::Machine;
use crate::se::Owner;
use crate::task::State;
use cpumax_outcome::trace::What;
use cpumax_workload::Class;

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

    pub(crate) fn may_use(&self, task: TaskId, cpu: CpuId) -> bool {
        self.cpus[cpu].online && self.masks[self.tasks[task].mask as usize].contains(cpu)
    }

    /// Idle, with nothing on its way to it either.
    fn is_free(&self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu];
        c.curr.is_none() && c.nr_running == 0 && c.rt_queue.is_empty()
    }

    /// Only one of class idle runs there, and nobody waits (kernel: `sched_idle_cpu()`).
    pub(crate) fn runs_idle_class(&self, cpu: CpuId) -> bool {
        let c = &self.cpus[cpu];
        c.nr_running == 1
            && c.rt_queue.is_empty()
            && c.curr.is_some()
            && self.tasks[c.curr].class == Class::Idle
    }

    /// Whether this task can have the CPU at once.
    fn is_free_for(&self, task: TaskId, cpu: CpuId) -> bool {
        let gives_way = self.rules.idle_class_is_free
            && self.tasks[task].class != Class::Idle
            && self.runs_idle_class(cpu);
        (gives_way || self.is_free(cpu)) && self.may_use(task, cpu)
    }

    fn free_in(&self, task: TaskId, from: CpuId, range: std::ops::Range<u32>) -> Option<CpuId> {
        let most = u32::from(self.rules.idle_class_is_free);
        let free_of = |range: std::ops::Range<u32>| {
            let nr_running = &self.nr_running[range.start as usize..range.end as usize];
            let unused = (range.start..).zip(nr_running).filter(|&(_, &nr)| nr <= most);
            let mut unused = unused.map(|(cpu, _)| CpuId(cpu));
            unused.find(|&cpu| self.is_free_for(task, cpu))
        };
        free_of(from.0..range.end).or_else(|| free_of(range.start..from.0))
    }

    /// The CPU with the fewest ready tasks; of equal ones the first after `from`.
    pub(crate) fn least_loaded(&self, task: TaskId, from: CpuId) -> CpuId {
        let all = self.cpus.len() as u32;
        let order = (from.0..all).chain(0..from.0).map(CpuId);
        let busy = |cpu: &CpuId| {
            let c = &self.cpus[*cpu];
            u64::from(c.nr_running) + c.rt_queue.len() as u64 + u64::from(self.runs_rt(*cpu))
        };
        let (mut best, mut least) = (CpuId::NONE, u64::MAX);
        for cpu in order.clone() {
            // No less busy than that.
            if u64::from(self.nr_running[cpu.ix()]) < least && self.may_use(task, cpu) {
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

    fn runs_rt(&self, cpu: CpuId) -> bool {
        let curr = self.cpus[cpu].curr;
        curr.is_some() && self.tasks[curr].class == Class::Rt
    }

    fn select_cpu(&self, task: TaskId, why: Enqueue) -> CpuId {
        let prev = self.tasks[task].cpu;
        if self.cpus.len() == 1 {
            return prev;
        }
        if why == Enqueue::Fork {
            let own_llc = self.llc(prev);
            if let Some(free) = self.free_in(task, prev, own_llc) {
                return free;
            }
            return self.least_loaded(task, prev);
        }
        let here = self.here;
        // The waker's CPU if nothing but the waker runs there; else where the task was. The kernel does so
        // for wakeups through pipes and sockets, whose waker is expected to sleep soon (`WF_SYNC`); for
        // others it compares loads, which gives the same where the waker is not a hog.
        let affine = here.is_some() && here != prev && self.may_use(task, here);
        let target = if affine && self.cpus[here].nr_running <= 1 {
            here
        } else if self.may_use(task, prev) {
            prev
        } else if affine {
            here
        } else {
            return self.least_loaded(task, prev);
        };
        if self.is_free_for(task, prev) && self.llc(prev).contains(&target.0) {
            return prev;
        }
        if self.is_free_for(task, target) {
            return target;
        }
        self.free_in(task, target, self.llc(target)).unwrap_or(target)
    }

    /// A new task comes onto a queue for the first time.
    pub(crate) fn launch(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        t.state = State::Runnable;
        t.wanted_ns = self.now;
        self.become_ready(task, Enqueue::Fork);
    }

    /// What a sleeping task waited for has come (kernel: `try_to_wake_up()`).
    pub(crate) fn wake(&mut self, task: TaskId) {
        if self.tasks[task].state == State::Runnable || self.tasks[task].state == State::Exited {
            return;
        }
        let t = &mut self.tasks[task];
        t.average_wanted(self.now);
        t.state = State::Runnable;
        self.become_ready(task, Enqueue::WakeUp);
    }

    fn become_ready(&mut self, task: TaskId, why: Enqueue) {
        let now = self.now;
        let t = &mut self.tasks[task];
        t.ready_since_ns = now;
        let (class, se) = (t.class, t.se);
        self.begin_stall(task);
        if class == Class::Rt {
            let cpu = self.select_cpu(task, why);
            self.tasks[task].cpu = cpu;
            self.emit(cpu, What::Wake { task: task.0 });
            self.rt_enqueue(task);
            return;
        }
        if self.ses[se].delayed {
            let (cpu, leaf) = (self.tasks[task].cpu, self.ses[se].q);
            self.requeue_delayed(se);
            self.count_runnable(leaf, 1);
            self.emit(cpu, What::Wake { task: task.0 });
            // It may still be on its CPU: it was about to go, and now stays.
            if self.cpus[cpu].curr != task {
                self.check_preempt(task);
            }
            return;
        }
        let cpu = self.select_cpu(task, why);
        self.set_cpu(task, cpu);
        self.emit(cpu, What::Wake { task: task.0 });
        self.enqueue_task(task, why);
        let curr = self.cpus[cpu].curr;
        if why != Enqueue::Fork || self.rules.fork_preempts || curr.is_none() {
            self.check_preempt(task);
        }
    }

    /// The task, on no queue, belongs to this CPU from now on.
    pub(crate) fn set_cpu(&mut self, task: TaskId, cpu: CpuId) {
        let (old, se) = (self.tasks[task].cpu, self.tasks[task].se);
        if old == cpu {
            return;
        }
        let q = self.ses[se].q;
        if self.rules.queue == Queue::Cfs && q.is_some() {
            self.leave_for_good(q, se);
        }
        self.tasks[task].cpu = cpu;
        debug_assert!(cpu.ix() < self.cpus.len());
    }

    /// Whether a task that just came onto a queue is to run at once (kernel: `wakeup_preempt()`).
    pub(crate) fn check_preempt(&mut self, task: TaskId) {
        self.test_preemption(task);
        self.keep_clock(self.tasks[task].cpu);
    }

    fn test_preemption(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        let curr = self.cpus[cpu].curr;
        if curr.is_none() {
            // An idle CPU has to be told even if what woke turns out to be throttled.
            if self.cpus[cpu].nr_running > 0 {
                self.resched(cpu, Resched::Now);
            }
            return;
        }
        if curr == task || self.tasks[curr].class == Class::Rt || self.tasks[task].parked {
            return;
        }
        let (se, running) = (self.tasks[task].se, self.tasks[curr].se);
        if !self.ses[se].on_rq {
            return;
        }
        let leaf = self.ses[se].q;
        let entity_unit = self.rules.unit == Unit::Entity;
        if entity_unit && self.in_throttled_hierarchy(leaf) {
            return;
        }
        if self.rules.queue != Queue::EevdfFlat && self.cpus[cpu].resched == Resched::Now {
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
        let is_idle = |task: TaskId| self.tasks[task].class == Class::Idle;
        let [newcomer, present] = if self.rules.queue == Queue::Cfs {
            // Whatever groups they are in.
            [task, curr].map(is_idle)
        } else {
            [se, running].map(|se| match self.ses[se].owner() {
                Owner::Task(task) => is_idle(task),
                Owner::Group(_) => false,
            })
        };
        let makes_way = present && !newcomer;
        if !makes_way && (present || newcomer || is_idle(task)) {
            // Idle tasks preempt nobody, also where their groups compete (kernel: `normal_policy()`).
            return;
        }
        if self.is_flat() {
            self.charge_path(self.ses[self.tasks[curr].se].q);
        } else {
            self.charge(q);
        }
        let preempts = match self.rules.queue {
            Queue::Cfs => self.preempts_cfs(se, running, makes_way),
            Queue::Eevdf | Queue::EevdfFlat => self.preempts_eevdf(q, se, running, makes_way),
        };
        if preempts {
            self.resched(cpu, Resched::Lazy);
        }
    }

    /// The ancestors of two entities that compete with each other, and where (kernel: `find_matching_se()`).
    pub(crate) fn matching_entities(&self, a: SeId, b: SeId) -> (CfsRqId, SeId, SeId) {
        let (mut up_a, mut up_b) = (a, b);
        // Going up from both at once they meet if they are equally deep, as most are.
        while up_a.is_some() && up_b.is_some() {
            let (qa, qb) = (self.ses[up_a].q, self.ses[up_b].q);
            if qa == qb {
                return (qa, up_a, up_b);
            }
            (up_a, up_b) = (self.cfs_rqs[qa].se, self.cfs_rqs[qb].se);
        }
        let up = |se: SeId| self.cfs_rqs[self.ses[se].q].se;
        // The one from which there is still a way is deeper by the rest of it.
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

    /// The level at which two tasks' paths meet, for the switch from one to the other.
    pub(crate) fn common_cfs_rq(&self, a: TaskId, b: TaskId) -> CfsRqId {
        self.matching_entities(self.tasks[a].se, self.tasks[b].se).0
    }
}
