//! Actions on tasks and CPUs from outside: signals, interventions, hotplug (kernel:
//! `complete_signal()`, `sched_cpu_dying()`, `unthrottle_offline_cfs_rqs()`).

use crate::cpu::Resched;
use crate::events::{Event, NEVER};
use crate::faults::Fault;
use crate::ids::{CfsRqId, CpuId, GroupId, Id, TaskId};
use crate::lab::Moving;
use crate::machine::Machine;
use crate::rules::Offline;
use crate::step::Step;
use crate::task::{Mode, Segment, State, Wait};
use cpumax_workload::{Action, Signal};

impl Machine<'_> {
    /// Performs an intervention of the workload, and schedules its next repetition, if it has one
    /// in time.
    pub(crate) fn intervene(&mut self, index: u32) {
        let intervention = &self.workload.interventions[index as usize];
        self.execute_action(&intervention.action);
        if let Some(every_ns) = intervention.every_ns {
            let (first_ns, every_ns) = (intervention.at_ns, every_ns.max(1));
            let number = (self.now - first_ns) / every_ns + 1;
            let next_ns = first_ns.saturating_add(number.saturating_mul(every_ns));
            if next_ns < intervention.until_ns {
                self.events.heap.push(self.action_time_ns(next_ns), Event::Intervention(index));
            }
        }
    }

    /// Performs a change from outside at once: a limit or weight, or a signal, move or attribute
    /// for every living task of a kind, or a CPU on or off line.
    fn execute_action(&mut self, action: &Action) {
        match *action {
            Action::WriteLimit { group, limit } => self.write_limit(GroupId(group), limit),
            Action::WriteWeight { group, weight } => self.write_weight(GroupId(group), weight),
            Action::Signal { kind, signal } => {
                self.each_living(kind, |m, t| m.send_signal(t, signal));
            }
            Action::Move { kind, group } => self.move_from_outside(kind, GroupId(group)),
            Action::SetAffinity { kind, cpus } => {
                self.each_living(kind, |m, t| m.set_affinity(t, cpus + 1));
            }
            Action::SetNice { kind, nice } => {
                self.each_living(kind, |m, t| m.set_nice(t, nice));
            }
            Action::SetClass { kind, class } => {
                self.each_living(kind, |m, t| m.set_class(t, class));
            }
            Action::CpuOffline { cpu } => self.cpu_offline(CpuId(u32::from(cpu))),
            Action::CpuOnline { cpu } => self.cpu_online(CpuId(u32::from(cpu))),
        }
    }

    /// Sends a signal to a task; kernel threads ignore all (kernel: `sig_task_ignored()`). It is
    /// handled at the return to user mode: a fatal one interrupts sleeps and shortens work in the
    /// kernel, SIGCONT wakes a stopped task.
    fn send_signal(&mut self, task: TaskId, signal: Signal) {
        if !self.tasks[task].has_user_mode() {
            return;
        }
        match signal {
            Signal::Kill => {
                self.tasks[task].signals.kill = true;
                self.tasks[task].signals.stop = false;
                self.shorten_kernel_work(task);
                self.interrupt_sleep(task);
            }
            Signal::Stop => {
                if self.tasks[task].state != State::Stopped {
                    self.tasks[task].signals.stop = true;
                    self.kick(task);
                }
            }
            Signal::Cont => {
                self.tasks[task].signals.stop = false;
                if self.tasks[task].state == State::Stopped {
                    self.wake(task);
                }
            }
        }
    }

    /// Cuts the rest of a killed task's work in the kernel to a random time below a page, or 0
    /// without noise: long calls check for fatal signals now and then (kernel:
    /// `fatal_signal_pending()`).
    fn shorten_kernel_work(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let works =
            t.mode == Mode::Kernel && t.segment == Segment::Run && t.lab.moving == Moving::No;
        if !works || t.signals.exiting || t.lab.sleep_delay_ns > 0 {
            return;
        }
        if self.cpus[t.cpu].curr == task {
            self.account_work(t.cpu);
        }
        let most_ns = self.delay_ns(Step::Point);
        let t = &mut self.tasks[task];
        t.left_ns = t.left_ns.min(most_ns);
        if t.left_ns == 0 {
            t.segment = Segment::None;
        }
        self.touch(self.tasks[task].cpu, false);
    }

    /// For a fatal signal: wakes a task that is stopped or in a sleep that a signal can end (not
    /// for a lock or a softirq); a running one is made to enter the kernel; nothing for others.
    fn interrupt_sleep(&mut self, task: TaskId) {
        let state = self.tasks[task].state;
        match state {
            State::Stopped => self.wake(task),
            State::Asleep(_) if self.cancel_wait(task) => self.wake(task),
            _ => self.kick(task),
        }
    }

    /// Makes a running task enter the kernel, by an interrupt after the IPI's delay if it is on
    /// another CPU; nothing if it does not run (kernel: `kick_process()`).
    pub(crate) fn kick(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        if self.cpus[cpu].curr != task {
            return;
        }
        if self.events.here == cpu {
            self.touch(cpu, true);
            return;
        }
        let at_ns = self.now + self.workload.machine.ipi_ns;
        let c = &mut self.cpus[cpu];
        c.next.ipi_ns = c.next.ipi_ns.min(at_ns);
        self.touch(cpu, false);
    }

    /// Takes a CPU off line, unless it is the last: lifts its limits (to 6.13 those of all CPUs)
    /// for a moment, and moves its tasks and timers to other CPUs.
    fn cpu_offline(&mut self, cpu: CpuId) {
        let online = self.cpus.ids().filter(|&c| self.cpus[c].online).count();
        if !self.cpus[cpu].online || online == 1 {
            return;
        }
        while let Some(q) = self.cpus[cpu].csd.queue.pop_front() {
            self.cfs_rqs[q].bandwidth.csd_pending = false;
            self.return_mail(q);
        }
        self.cpus[cpu].next.csd_ns = NEVER;
        match self.rules.offline {
            _ if self.has(Fault::OfflineStaysLimited) => {}
            Offline::DyingCpu => self.open_limits(cpu),
            Offline::EveryCpu => {
                for cpu in self.cpus.ids() {
                    self.open_limits(cpu);
                }
            }
        }
        self.cpus[cpu].online = false;
        self.enable_limits();
        self.move_timers_away(cpu);
        for task in self.all_living() {
            let t = &self.tasks[task];
            let there = t.cpu == cpu && t.state != State::New;
            let softirq = t.state == State::Asleep(Wait::Softirq);
            if there
                && !softirq
                && (self.ses[t.se].on_rq || t.throttle.parked || self.is_rt_ready(task))
            {
                let to = self.least_loaded(task, cpu);
                self.evict(task, to);
            }
        }
        self.forget_parked(cpu);
        let c = &mut self.cpus[cpu];
        (c.next.ipi_ns, c.next.tick_ns, c.next.hrtick_ns) = (NEVER, NEVER, NEVER);
        // Its pending reschedule is obsolete.
        c.resched = Resched::No;
        c.kept_clock_ns = NEVER;
        self.touch(cpu, false);
    }

    /// Whether it is a runnable real-time task, running included.
    fn is_rt_ready(&self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        !t.is_fair() && t.state == State::Runnable
    }

    /// Puts a CPU on line; its run queues' limits hold again, and balancing may start.
    fn cpu_online(&mut self, cpu: CpuId) {
        if self.cpus[cpu].online {
            return;
        }
        self.cpus[cpu].online = true;
        self.cpus[cpu].accounted_ns = self.now;
        self.enable_limits();
        if self.cpus.ids().any(|c| self.cpus[c].nr_running >= 2) {
            self.arm_balance();
        }
    }

    /// Lifts the limits of all run queues of a CPU: gives each 1 ns of runtime and unthrottles it.
    /// Limits hold again after `enable_limits()`.
    fn open_limits(&mut self, cpu: CpuId) {
        for q in self.limited_cfs_rqs(cpu) {
            self.charge(q);
            self.touch(cpu, false);
            self.cfs_rqs[q].bandwidth.enabled = false;
            self.set_runtime(q, 1);
            self.limit_changed(q);
            if self.cfs_rqs[q].bandwidth.throttled {
                self.unthrottle(q);
            }
        }
    }

    /// Has the limits of all run queues hold on CPUs on line, and on no others; charges them
    /// before.
    fn enable_limits(&mut self) {
        for cpu in self.cpus.ids() {
            for q in self.limited_cfs_rqs(cpu) {
                self.charge(q);
                self.touch(cpu, false);
                self.cfs_rqs[q].bandwidth.enabled = self.cpus[cpu].online;
                self.limit_changed(q);
            }
        }
    }

    /// Run queues on a CPU of groups with a finite quota, in order of the groups.
    fn limited_cfs_rqs(&self, cpu: CpuId) -> Vec<CfsRqId> {
        let limited = self.groups.iter().filter(|(_, g)| g.pool.quota_ns.is_some());
        let cfs_rqs = limited.filter_map(|(_, g)| g.cfs_rqs.get(cpu.ix()).copied());
        cfs_rqs.filter(|q| q.is_some()).collect()
    }

    /// Moves bandwidth timers and distributions of a CPU that goes off line to the first one on
    /// line.
    fn move_timers_away(&mut self, cpu: CpuId) {
        let to = self.first_online();
        for group in self.groups.ids() {
            let pool = &mut self.groups[group].pool;
            if pool.timer.cpu == cpu {
                pool.timer.cpu = to;
            }
            if pool.slack_cpu == cpu {
                pool.slack_cpu = to;
            }
            if let Some(distribution) = &mut pool.distribution
                && distribution.cpu == cpu
            {
                distribution.cpu = to;
            }
        }
    }
}
