//! Invariants, verified after every event on request. Each message says what was found and where.

use crate::Error;
use crate::ids::{CfsRqId, CpuId, Id, TaskId};
use crate::lock::{Spinner, Waiter};
use crate::machine::Machine;
use crate::se::Owner;
use crate::task::{Segment, State};
use cpumax_workload::Class;

type Verdict = Result<(), String>;

impl Machine<'_> {
    /// Checks all invariants of the machine, changing nothing else; the run fails at the first
    /// violation.
    pub(crate) fn check_invariants(&mut self) {
        let verdict = self.tasks.ids().try_for_each(|task| self.check_task(task));
        let verdict =
            verdict.and_then(|()| self.used_cfs_rqs().try_for_each(|q| self.check_cfs_rq(q)));
        let verdict =
            verdict.and_then(|()| self.cpus.ids().try_for_each(|cpu| self.check_cpu(cpu)));
        let verdict = verdict.and_then(|()| self.check_groups());
        let verdict = verdict.and_then(|()| self.check_locks());
        let verdict = verdict.and_then(|()| self.check_tokens());
        if let Err(what) = verdict {
            self.events.failed = Some(Error::Invariant { at_ns: self.now, what });
        }
    }

    /// Checks that a task is in exactly one place (running, queued, in limbo, or asleep), and that
    /// its marks (parked, delayed) fit its state.
    fn check_task(&self, task: TaskId) -> Verdict {
        let t = &self.tasks[task];
        let name = || self.task_name(task);
        let se = &self.ses[t.se];
        let running = self.cpus[t.cpu].curr == task;
        if t.throttle.parked && se.on_rq {
            return Err(format!("{} is parked and on a queue", name()));
        }
        if t.throttle.parked && t.mode == crate::task::Mode::Kernel && !running {
            return Err(format!("{} is parked inside the kernel", name()));
        }
        if t.throttle.parked && self.rules.unit.is_entity() {
            return Err(format!("{} is parked by a kernel that parks nobody", name()));
        }
        if t.throttle.parked && !t.has_user_mode() {
            return Err(format!("{} is parked and never in user mode", name()));
        }
        let asleep = t.state != State::Runnable;
        if asleep && se.on_rq && !se.delayed {
            return Err(format!("{} is {:?} and on a queue", name(), t.state));
        }
        if se.delayed && !asleep {
            return Err(format!("{} is delayed and awake", name()));
        }
        if asleep || t.state == State::New {
            return Ok(());
        }
        let rt = t.attrs.class == Class::Rt;
        let queued_rt = self.cpus[t.cpu].rt.queue.iter().filter(|&&x| x == task).count();
        let places = usize::from(t.throttle.parked)
            + usize::from(se.on_rq)
            + queued_rt
            + usize::from(rt && running);
        if places != 1 {
            return Err(format!("{} is runnable and in {places} places", name()));
        }
        if t.throttle.parked {
            let limbo = &self.cfs_rqs[se.q].bandwidth.limbo;
            if limbo.iter().filter(|&&x| x == task).count() != 1 {
                return Err(format!("{} is parked and not in the limbo of its queue", name()));
            }
        }
        Ok(())
    }

    /// Checks a run queue: throttle count and throttled list, limbo, counts of what is queued, and
    /// sums of its timeline.
    fn check_cfs_rq(&self, q: CfsRqId) -> Verdict {
        let rq = &self.cfs_rqs[q];
        let path = &self.workload.groups[rq.group.ix()].path;
        let place = || format!("{path} on cpu {}", rq.cpu.0);
        let bw = &rq.bandwidth;
        if self.rules.pull {
            self.check_parked(q).map_err(|what| format!("{}: {what}", place()))?;
            self.check_counts(q).map_err(|what| format!("{}: {what}", place()))?;
            return self.check_sums(q).map_err(|what| format!("{}: {what}", place()));
        }
        let mut throttled = 0;
        let mut up = q;
        while up.is_some() {
            throttled += u16::from(self.cfs_rqs[up].bandwidth.throttled);
            up = self.cfs_rqs[up].parent;
        }
        if throttled != bw.throttle_count {
            return Err(format!(
                "{}: throttle count {} with {throttled} throttled",
                place(),
                bw.throttle_count
            ));
        }
        if !bw.limbo.is_empty() && bw.throttle_count == 0 {
            return Err(format!("{}: tasks in limbo and nothing throttled", place()));
        }
        let listed = self.groups[rq.group].pool.throttled.iter().filter(|&&x| x == q).count();
        if listed != usize::from(bw.throttled) {
            return Err(format!(
                "{}: throttled {} and {listed} times on the list",
                place(),
                bw.throttled
            ));
        }
        self.check_counts(q).map_err(|what| format!("{}: {what}", place()))?;
        self.check_sums(q).map_err(|what| format!("{}: {what}", place()))
    }

    /// Compares `nr`, `h_nr`, `load` and the timeline's length of a run queue with the entities
    /// that are queued.
    fn check_counts(&self, q: CfsRqId) -> Verdict {
        let rq = &self.cfs_rqs[q];
        let (mut nr, mut h_nr, mut load) = (0, 0, 0);
        for (_, se) in self.ses.iter().filter(|(_, se)| se.q == q && se.on_rq) {
            nr += 1;
            match se.owner() {
                Owner::Task(task) => {
                    h_nr += 1;
                    load += if self.is_flat() { self.nominal_weight(task) } else { se.weight };
                }
                Owner::Group(child) => {
                    h_nr += self.cfs_rqs[child].h_nr;
                    load += se.weight;
                }
            }
        }
        if (nr, h_nr, load) != (rq.nr, rq.h_nr, rq.load) {
            return Err(format!(
                "nr {} h_nr {} load {}, but {nr}, {h_nr} and {load} are there",
                rq.nr, rq.h_nr, rq.load
            ));
        }
        let runs = rq.curr.is_some();
        if runs && !self.ses[rq.curr].on_rq {
            return Err("the running child is not queued".to_owned());
        }
        if runs && !self.runs_below(q) {
            return Err("has a running child and nothing of it runs".to_owned());
        }
        let expected = if !self.is_flat() {
            rq.nr as usize - usize::from(runs)
        } else if rq.se.is_none() {
            rq.h_nr as usize - usize::from(runs)
        } else {
            0
        };
        if rq.timeline.len() != expected {
            return Err(format!("{} on the timeline instead of {expected}", rq.timeline.len()));
        }
        Ok(())
    }

    /// Whether the running task of the queue's CPU is in this queue or below it.
    fn runs_below(&self, q: CfsRqId) -> bool {
        let curr = self.cpus[self.cfs_rqs[q].cpu].curr;
        if curr.is_none() || !self.tasks[curr].is_fair() {
            return false;
        }
        let mut up = self.ses[self.tasks[curr].se].q;
        while up.is_some() && up != q {
            up = self.cfs_rqs[up].parent;
        }
        up == q
    }

    /// Checks that the timeline is in order and its sums (EEVDF: of weights and weighted vruntimes)
    /// are right.
    fn check_sums(&self, q: CfsRqId) -> Verdict {
        let rq = &self.cfs_rqs[q];
        let nodes = rq.timeline.nodes();
        if nodes.windows(2).any(|w| w[0].key > w[1].key) {
            return Err("timeline out of order".to_owned());
        }
        if nodes.iter().any(|n| self.ses[n.se].vruntime != n.vruntime) {
            return Err("timeline holds an old vruntime".to_owned());
        }
        if self.rules.queue.is_cfs() {
            return Ok(());
        }
        let weight = |n: &crate::timeline::Node| self.weight_in_sums(self.ses[n.se].weight);
        let sum_weight: i64 = nodes.iter().map(weight).sum();
        let sum: i128 = nodes
            .iter()
            .map(|n| i128::from(weight(n)) * i128::from(n.vruntime - rq.base_vruntime))
            .sum();
        if (sum_weight, sum) != (rq.sum_weight, rq.sum_weighted_vruntime) {
            return Err("sums of weights are wrong".to_owned());
        }
        Ok(())
    }

    /// Checks a CPU: its counts, that its current task can run there and no limit stops it, and
    /// that it is not idle while tasks wait.
    fn check_cpu(&self, cpu: CpuId) -> Verdict {
        let c = &self.cpus[cpu];
        let root = &self.cfs_rqs[self.root(cpu)];
        if root.h_runnable != c.nr_running || c.nr_running != self.balancing.nr_running[cpu.ix()] {
            return Err(format!(
                "cpu {}: nr_running {} but {} are there",
                cpu.0, c.nr_running, root.h_runnable
            ));
        }
        self.check_expected(cpu)?;
        self.check_load(cpu)?;
        if c.curr.is_none() {
            let waiting = c.nr_running > 0 || !c.rt.queue.is_empty();
            if waiting && !c.has_unnoticed_move && c.online && c.resched == crate::cpu::Resched::No
            {
                return Err(format!("cpu {} idles while {} wait", cpu.0, c.nr_running));
            }
            return Ok(());
        }
        let task = &self.tasks[c.curr];
        if task.cpu != cpu || task.state != State::Runnable || task.throttle.parked {
            return Err(format!("cpu {} runs {}, which cannot run", cpu.0, self.task_name(c.curr)));
        }
        if !c.online {
            return Err(format!("cpu {} is off line and runs {}", cpu.0, self.task_name(c.curr)));
        }
        if self.rules.pull {
            self.check_admitted(c.curr)?;
        }
        if self.is_parked_or_stopped(c.curr)
            && task.is_fair()
            && c.resched == crate::cpu::Resched::No
        {
            return Err(format!(
                "cpu {} runs {} of a stopped group",
                cpu.0,
                self.task_name(c.curr)
            ));
        }
        if self.is_waiting(c.curr) {
            return Err(format!("{} runs and counts as waiting", self.task_name(c.curr)));
        }
        Ok(())
    }

    /// Checks that runtime is conserved: all that refills added has been used, is in the pool, or
    /// in a `cfs_rq`.
    fn check_groups(&self) -> Verdict {
        for (group, g) in self.groups.iter() {
            let cfs_rqs = g.cfs_rqs.iter().filter(|q| q.is_some() && group.ix() != 0);
            let left: i128 =
                cfs_rqs.map(|&q| i128::from(self.cfs_rqs[q].bandwidth.runtime_remaining_ns)).sum();
            let pool = &g.pool;
            let books = pool.books.refilled_ns - pool.books.discarded_ns - pool.books.charged_ns;
            if self.rules.pull {
                let path = || &self.workload.groups[group.ix()].path;
                self.check_waiting(group).map_err(|what| format!("{}: {what}", path()))?;
            }
            let there = left + i128::from(pool.runtime_ns) + self.mail_less_debt_ns(group);
            if books != there {
                let path = &self.workload.groups[group.ix()].path;
                return Err(format!(
                    "{path}: {there} ns of runtime are there, the books say {books}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that a writer holds a lock alone, no free lock has only sleeping waiters, and tasks
    /// spin only for locks whose owner runs.
    fn check_locks(&self) -> Verdict {
        for (lock, l) in self.locks.all.iter() {
            let alone = !l.held_for_writing || l.holders.len() == 1;
            if !alone {
                return Err(format!(
                    "lock {} has a writer and {} holders",
                    lock.0,
                    l.holders.len()
                ));
            }
            // A woken waiter has yet to take the lock.
            let comes = |waiter: &Waiter| self.tasks[waiter.task].state == State::Runnable;
            if l.holders.is_empty() && !l.waiters.is_empty() && !l.waiters.iter().any(comes) {
                return Err(format!("lock {} is free and {} wait", lock.0, l.waiters.len()));
            }
        }
        for &Spinner { task, lock, .. } in &self.locks.spinners {
            let l = &self.locks.all[lock];
            let owned = match l.holders[..] {
                [owner] => owner != task && self.runs(owner),
                // The lock is kept for the first waiter.
                [] => l.handoff,
                _ => false,
            };
            if !owned || !self.runs(task) || self.tasks[task].segment != Segment::SpinOnOwner {
                let name = self.task_name(task);
                return Err(format!("{name} spins for lock {} and nobody who runs has it", lock.0));
            }
        }
        Ok(())
    }
}
