//! Tasks executing their programs, one instruction at a time.

use crate::channel::{NO_JOB, Token};
use crate::cpu::Resched;
use crate::events::Event;
use crate::ids::{ChannelId, CpuId, GroupId, Id, LockId, SeId, TaskId};
use crate::machine::Machine;
use crate::step::{Step, Told};
use crate::task::{Attrs, Code, Mode, Passing, Segment, State, Task, Wait};
use cpumax_outcome::trace::What;
use cpumax_workload::{Affinity, Class, Domain, LockMode, Op, Span, Stream, Target, Workload};

/// Name of an instance of a kind, with its number if the kind has several; tasks outside the
/// workload have names in brackets or of threads.
pub(crate) fn name_of(workload: &Workload, kind: u32, instance: u32) -> String {
    match workload.tasks.get(kind as usize) {
        Some(kind) if kind.count > 1 => format!("{}/{instance}", kind.name),
        Some(kind) => kind.name.clone(),
        None if instance == u32::MAX => "(outside)".to_owned(),
        None => format!("ktimers/{instance}"),
    }
}

impl Machine<'_> {
    /// Name of a task as in traces: its kind's, with its number if the kind has several.
    pub(crate) fn task_name(&self, task: TaskId) -> String {
        name_of(self.workload, self.tasks[task].kind, self.tasks[task].birth.instance)
    }

    /// Executes the next instruction of the running task; those that take time become the task's
    /// segment. Also takes it through exit, sleep and return to user mode.
    pub(crate) fn step(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        if t.at.code != Code::Kind {
            return self.step_without_program(task);
        }
        if t.signals.exiting || t.locking.passing == Passing::Ends {
            return self.exit(task);
        }
        if t.lab.sleep_delay_ns > 0 {
            return self.set_sleep_timer(task);
        }
        if t.is_leaving_kernel() {
            t.mode = Mode::User;
            self.delay_reschedule_at_return(task);
            return;
        }
        let program = self.settings.programs[t.at.program as usize];
        let Some(op) = program.get(t.at.pc as usize) else {
            return if t.does_job() { self.end_job(task) } else { self.exit(task) };
        };
        let asks = self.lab.reads_cpu_time
            && !t.in_syscall
            && t.locking.passing == Passing::No
            && (t.at.pc == 0 || program[t.at.pc as usize - 1].is_call());
        if asks
            && !std::mem::replace(&mut t.lab.has_read_cpu_time, true)
            && self.read_cpu_time(task)
        {
            return;
        }
        let t = &mut self.tasks[task];
        t.lab.has_read_cpu_time = false;
        t.at.pc += 1;
        self.execute(task, op);
    }

    /// Executes the next step of a task outside the workload: the outside task or a timer thread.
    #[inline(never)]
    fn step_without_program(&mut self, task: TaskId) {
        match self.tasks[task].at.code {
            Code::Kind => {}
            Code::Outside => self.step_outside(task),
            Code::SoftirqIdle | Code::Softirq(_) => self.step_softirq(task),
        }
    }

    /// Executes one instruction of the running task, behind which `pc` is already. Under noise a
    /// call may first take time, and is then executed again.
    fn execute(&mut self, task: TaskId, op: &Op) {
        match *op {
            Op::User(span) => self.start_work(task, span, Segment::Run, false),
            Op::Kernel(span) => self.start_work(task, span, Segment::Run, true),
            Op::IrqOff(span) => self.start_work(task, span, Segment::IrqOff, true),
            Op::EnterKernel => {
                self.tasks[task].in_syscall = true;
                self.tasks[task].mode = Mode::Kernel;
                self.delay_lock_request(task);
            }
            // The next step returns to user mode.
            Op::ExitKernel => {
                self.tasks[task].in_syscall = false;
                self.tell(task, Told::LeavesCall);
            }
            Op::Sleep(span) => {
                let ns = self.draw_span(task, span);
                self.sleep_until(task, self.now.saturating_add(ns));
            }
            Op::Every { period_ns } => self.next_activation(task, period_ns),
            Op::Lock { lock, mode } => self.lock(task, LockId(lock), mode),
            Op::Unlock { lock } => self.unlock(task, LockId(lock)),
            Op::Send { .. } if self.delay_call(task, Step::Send) => {}
            Op::Send { channel, n } => {
                self.send(task, ChannelId(channel), n, Token::plain(self.now));
            }
            Op::Recv { channel, n } => self.receive(task, ChannelId(channel), n),
            Op::Serve { channel } => self.receive(task, ChannelId(channel), 1),
            Op::Post { channel, job } => self.post(task, ChannelId(channel), job),
            Op::After { delay, channel, job, keep } => {
                self.post_later(task, delay, (ChannelId(channel), job), keep);
            }
            Op::Fork { kind } if !self.may_fork(kind) => {}
            Op::Fork { .. } if self.step_under_threadgroup_lock(task, LockMode::Read) => {}
            Op::Fork { kind } => {
                self.release_threadgroup_lock(task);
                self.fork(task, kind);
            }
            Op::WaitChildren => {
                if self.tasks[task].birth.children > 0 {
                    self.block(task, Wait::Children);
                }
            }
            Op::Exit => self.exit(task),
            Op::Yield if self.delay_call(task, Step::Yield) => {}
            Op::Yield => self.yield_cpu(task),
            Op::Move { .. } if self.step_under_threadgroup_lock(task, LockMode::Write) => {}
            Op::Move { who: Target::Myself, group }
                if self.step_self_move(task, GroupId(group)) => {}
            Op::Move { who, group } => {
                self.for_target(task, who, |m, t| m.move_to_group(t, GroupId(group)));
                self.release_threadgroup_lock(task);
            }
            Op::SetAffinity { .. } | Op::SetNice { .. } | Op::SetClass { .. } => {
                self.change_scheduling(task, op);
            }
            Op::Begin => self.tasks[task].at.begun_ns = Some(self.now),
            Op::Done => self.complete_request(task),
            Op::LoopStart { times: 0, end } => self.tasks[task].at.pc = end + 1,
            Op::LoopStart { times, .. } => self.tasks[task].at.loops.push(times),
            Op::LoopEnd { start } => self.loop_end(task, start),
        }
    }

    /// Executes an instruction that changes affinity, nice value or class of the task or a kind;
    /// under noise calls take time.
    fn change_scheduling(&mut self, task: TaskId, op: &Op) {
        match *op {
            Op::SetAffinity { who, cpus } => {
                self.for_target(task, who, |m, t| m.set_affinity(t, cpus + 1));
            }
            Op::SetNice { who: Target::Myself, .. } | Op::SetClass { who: Target::Myself, .. }
                if self.delay_call(task, Step::Change) => {}
            Op::SetNice { who, nice } => {
                self.for_target(task, who, |m, t| m.set_nice(t, nice));
                self.reschedule_after_priority_change(task, who);
            }
            Op::SetClass { who, class } => {
                self.for_target(task, who, |m, t| m.set_class(t, class));
                self.reschedule_after_priority_change(task, who);
            }
            _ => {}
        }
    }

    /// Creates a task of this kind in the group and on the CPU of the running one, and makes it
    /// runnable.
    fn fork(&mut self, task: TaskId, kind: u32) {
        let (group, cpu) = (self.tasks[task].group, self.tasks[task].cpu);
        self.tasks[task].birth.children += 1;
        let instance = self.births.kinds[kind as usize].count as u32;
        let child = self.new_task(kind, instance, group);
        self.tasks[child].birth.parent = Some((task, self.tasks[task].birth.number));
        self.tasks[child].cpu = cpu;
        if self.probes.tells_messages {
            self.write_trace(cpu, What::Forked { task: task.0, child: child.0 });
        }
        self.launch(child);
    }

    /// Jumps back to the start of a task's loop, or leaves it after its last round; a killed task
    /// in a call leaves it at once.
    fn loop_end(&mut self, task: TaskId, start: u32) {
        let t = &mut self.tasks[task];
        // A dying task leaves the loop: its work in the kernel takes no time, so the loop would
        // never end.
        let is_last = t.in_syscall && t.signals.kill;
        let Some(rounds) = t.at.loops.last_mut() else { return };
        if is_last {
            t.at.loops.pop();
        } else if *rounds == u64::MAX {
            t.at.pc = start + 1;
        } else if *rounds > 1 {
            *rounds -= 1;
            t.at.pc = start + 1;
        } else {
            t.at.loops.pop();
        }
    }

    /// Charges the task for its work up to now, as reading its CPU time does at its start and after
    /// each call of the guest. Under noise its next work is shorter by the excess over the work
    /// asked for so far (interrupts, switches, calls). True if its slice is over and it may have to
    /// leave the CPU first.
    fn read_cpu_time(&mut self, task: TaskId) -> bool {
        if !self.tasks[task].is_fair() {
            return false;
        }
        self.charge_leaf(self.ses[self.tasks[task].se].q);
        let t = &self.tasks[task];
        let (usage_ns, begins) = (t.times.usage_ns, t.at.pc == 0 && !t.does_job());
        self.tell(task, Told::ReadCpuTime { usage_ns, begins });
        let goes = self.cpus[self.tasks[task].cpu].resched != Resched::No;
        if goes {
            self.delay_reschedule_at_return(task);
        }
        goes
    }

    /// Makes work of a drawn length, adjusted by cost and noise, the task's segment.
    fn start_work(&mut self, task: TaskId, span: Span, segment: Segment, in_kernel: bool) {
        let ns = self.draw_span(task, span);
        let ns = self.cost_ns(task, ns);
        let ns = self.actual_work_ns(task, ns, in_kernel);
        let t = &mut self.tasks[task];
        if in_kernel {
            t.mode = Mode::Kernel;
        }
        let is_cut = in_kernel && segment == Segment::Run && t.signals.kill;
        if ns > 0 && !is_cut {
            t.segment = segment;
            t.left_ns = ns;
            self.tell(task, Told::Works);
            if in_kernel {
                self.tell_pages(task);
                self.charge_token_lock(task);
            }
        }
    }

    /// The span's length, ns; a random one is drawn from the task's random stream.
    pub(crate) fn draw_span(&mut self, task: TaskId, span: Span) -> u64 {
        match span {
            Span::Fixed(ns) => ns,
            Span::Drawn(distribution) => self.workload.distributions[distribution as usize]
                .draw(&mut self.tasks[task].at.random),
        }
    }

    /// Calls `act` for the caller, or for every living task of a kind.
    fn for_target(&mut self, caller: TaskId, who: Target, mut act: impl FnMut(&mut Self, TaskId)) {
        match who {
            Target::Myself => act(self, caller),
            Target::Kind(kind) => self.each_living(kind, act),
        }
    }

    /// Calls `act` for every living task of a kind, in order of their start.
    pub(crate) fn each_living(&mut self, kind: u32, mut act: impl FnMut(&mut Self, TaskId)) {
        for task in self.births.kinds[kind as usize].living.clone() {
            if self.tasks[task].state != State::Exited {
                act(self, task);
            }
        }
    }

    /// Completes the task's request now: records its latency for its kind and groups, and begins
    /// the next one.
    fn complete_request(&mut self, task: TaskId) {
        let now = self.now;
        let t = &mut self.tasks[task];
        let start_ns = t.at.request_since_ns();
        t.at.begun_ns = None;
        let latency_ns = now - start_ns.min(now);
        t.at.request_start_ns = now;
        let (mut group, cpu) = (t.group, t.cpu);
        self.births.kinds[t.kind as usize].latencies.record(latency_ns);
        while group.ix() != 0 {
            self.groups[group].latencies.record(latency_ns);
            if let Some(seen) = self.watched_now(group) {
                seen.latencies_ns.push(latency_ns);
            }
            group = self.groups[group].parent;
        }
        self.emit(cpu, What::Done { task: task.0, took_ns: latency_ns });
    }

    /// Counts one more activation of the task and has it sleep until that many periods after its
    /// start; returns at once if that has passed. The due time begins the next request.
    fn next_activation(&mut self, task: TaskId, period_ns: u64) {
        let t = &mut self.tasks[task];
        t.at.activations += 1;
        let due_ns = t.birth.started_ns.saturating_add(period_ns.saturating_mul(t.at.activations));
        t.at.request_start_ns = due_ns;
        if due_ns > self.now {
            self.sleep_until(task, due_ns);
        }
    }

    /// Begins a sleep until `time_ns`, which begins the next request; under noise the call takes
    /// time first.
    fn sleep_until(&mut self, task: TaskId, time_ns: u64) {
        let t = &mut self.tasks[task];
        t.at.wakes_ns = time_ns;
        if !t.does_job() {
            t.at.request_start_ns = time_ns;
        }
        if !self.delay_sleep(task) {
            self.fall_asleep(task, time_ns);
        }
    }

    /// Sets the timer of a sleep whose call has taken its time, and blocks the task. A sleep for a
    /// duration is later by that time; one until a time is not.
    fn set_sleep_timer(&mut self, task: TaskId) {
        let t = &mut self.tasks[task];
        let late_ns = u64::from(std::mem::take(&mut t.lab.sleep_delay_ns));
        let op = &self.settings.programs[t.at.program as usize][t.at.pc as usize - 1];
        let late_ns = if matches!(op, Op::Sleep(_)) { late_ns } else { 0 };
        let time_ns = t.at.wakes_ns.saturating_add(late_ns).max(self.now + 1);
        self.fall_asleep(task, time_ns);
    }

    /// Schedules the end of a sleep at `until_ns`, or later on a slow observed machine, and blocks
    /// the task.
    fn fall_asleep(&mut self, task: TaskId, until_ns: u64) {
        self.tasks[task].at.sleeps = self.tasks[task].at.sleeps.wrapping_add(1);
        let sleeps = self.tasks[task].at.sleeps;
        let ends_ns = until_ns.saturating_add(self.lab.wakeup_lateness_ns());
        self.events.heap.push(ends_ns, Event::WakeUp(task, sleeps));
        self.block(task, Wait::Timer);
    }

    /// Handles the event of a sleep's timer: wakes the task, in an interrupt of the CPU on which it
    /// went to sleep or by the timer thread, or defers that. `in_turn`: its turn has come in the
    /// interrupt of another timer. A stale timer (`sleeps` differs) does nothing.
    pub(crate) fn sleep_ends(&mut self, task: TaskId, sleeps: u32, in_turn: bool) {
        let t = &self.tasks[task];
        if t.state != State::Asleep(Wait::Timer) || t.at.sleeps != sleeps {
            return;
        }
        let cpu = t.cpu;
        let irqs_off_until_ns = self.cpus[cpu].irqs_off_until_ns;
        if irqs_off_until_ns > self.now {
            self.events.heap.push(irqs_off_until_ns, Event::WakeUp(task, sleeps));
            return;
        }
        if self.hand_wakeup_to_ktimers(task, sleeps) {
            return;
        }
        self.finish_tick(cpu);
        match self.tasks[task].at.code {
            Code::Outside if self.now == 0 || self.lab.outside_came_late(self.now) => {}
            Code::Outside => self.enter_irq(cpu, Step::Come),
            _ if in_turn => {}
            _ => {
                if let Some(turn_ns) = self.begin_timer_wakeup(cpu, task) {
                    self.events.heap.push(turn_ns, Event::NextWakeUp(task, sleeps));
                    return;
                }
            }
        }
        self.in_interrupt_of(cpu, |m| m.wake(task));
    }

    /// Makes a new task runnable, as started from outside. In comparisons with a real kernel on one
    /// CPU it starts with default class and nice value, and gets its own right after.
    fn start_from_outside(&mut self, task: TaskId) {
        let Attrs { class, nice, .. } = self.tasks[task].attrs;
        if self.lab.observed.is_none() || self.cpus.len() > 1 || class == Class::Rt {
            self.launch(task);
            return;
        }
        if class == Class::Idle {
            self.tasks[task].attrs.class = Class::Fair;
        }
        self.tasks[task].attrs.nice = 0;
        self.reset_weight(task);
        self.launch(task);
        self.set_attributes(task, class, nice);
    }

    /// Creates the instances of a kind that start now, from `instance` on, or schedules their
    /// births within the outside task's visit; then schedules the next later start.
    pub(crate) fn start_instance(&mut self, kind: u32, mut instance: u32) {
        let spec = &self.workload.tasks[kind as usize];
        let visit = self.visit_for_births();
        loop {
            if let Some(visit) = visit {
                let at_ns = self.birth_time_ns(kind, instance, visit);
                self.lab.born_until_ns = self.lab.born_until_ns.max(at_ns);
                self.events.heap.push(at_ns, Event::Birth(kind, instance));
            } else {
                self.create_instance(kind, instance);
            }
            instance += 1;
            if instance >= spec.count {
                return;
            }
            if spec.stagger_ns > 0 {
                self.schedule_start(kind, instance);
                return;
            }
        }
    }

    /// When an instance whose start begins now exists, ns. The outside task's visit, from `from_ns`
    /// to `until_ns`, is divided evenly among all starts in it, in order of their planned times;
    /// starts planned during another one follow it.
    fn birth_time_ns(&self, kind: u32, instance: u32, (from_ns, until_ns): (u64, u64)) -> u64 {
        let own = (self.planned_start_ns(kind, instance), kind, instance);
        let (mut begins_ns, mut number, mut all) = (self.now, 0, 0);
        for (kind, spec) in (0..).zip(&self.workload.tasks) {
            let together = if spec.stagger_ns > 0 { 1 } else { spec.count };
            for first in (0..spec.count).step_by(together.max(1) as usize) {
                let start_ns = self.planned_start_ns(kind, first);
                let at_ns = self.lab.observed_action_ns(start_ns);
                if !(from_ns..=until_ns).contains(&at_ns) {
                    continue;
                }
                begins_ns = begins_ns.min(at_ns);
                all += u64::from(together);
                let until = (first..first + together).filter(|at| (start_ns, kind, *at) <= own);
                number += until.count() as u64;
            }
        }
        let ns = until_ns.saturating_sub(begins_ns) * number / all.max(1);
        (begins_ns + ns).max(self.now)
    }

    /// Creates an instance of a kind and makes it runnable; its requests count from its planned
    /// start.
    pub(crate) fn create_instance(&mut self, kind: u32, instance: u32) {
        let spec = &self.workload.tasks[kind as usize];
        let task = self.new_task(kind, instance, GroupId(spec.group));
        // Its time counts from its planned start.
        let start_ns = self.planned_start_ns(kind, instance);
        let t = &mut self.tasks[task];
        (t.birth.started_ns, t.at.request_start_ns) = (start_ns, start_ns);
        // The outside task starts tasks round robin; placement continues from there.
        self.tasks[task].cpu = CpuId(self.tasks[task].birth.number % self.cpus.len() as u32);
        self.start_from_outside(task);
    }

    /// Schedules the start of an instance at its planned time, and of those that start with it.
    pub(crate) fn schedule_start(&mut self, kind: u32, instance: u32) {
        let at_ns = self.action_time_ns(self.planned_start_ns(kind, instance));
        self.events.heap.push(at_ns, Event::Start(kind, instance));
    }

    /// When an instance starts by the workload, ns.
    fn planned_start_ns(&self, kind: u32, instance: u32) -> u64 {
        let spec = &self.workload.tasks[kind as usize];
        spec.start_ns.saturating_add(spec.stagger_ns.saturating_mul(instance.into()))
    }

    /// Creates a task of the workload with its kind's attributes; it is on no queue and not started
    /// yet.
    fn new_task(&mut self, kind: u32, instance: u32, group: GroupId) -> TaskId {
        let spec = &self.workload.tasks[kind as usize];
        // Counts only tasks of the workload: other tasks must not change their random draws.
        let number = self.births.of_workload;
        self.births.of_workload += 1;
        let random = Stream::new(self.settings.seed, Domain::Task, number);
        let slice_ns = spec.slice_ns.unwrap_or(self.settings.base_slice_ns);
        let task = Task::new(kind, instance, SeId::NONE, group, spec.class, random);
        let task = self.add_task(task, slice_ns);
        let cpus = self.cpus.len() as u32;
        let sets = self.workload.cpu_sets.len() as u32;
        let t = &mut self.tasks[task];
        t.attrs.nice = spec.nice;
        t.mask = match spec.cpus {
            Affinity::All => 0,
            Affinity::Set(set) => 1 + set,
            Affinity::Each => 1 + sets + instance % cpus,
        };
        // Its first steps are the kernel's: it returns to user mode like from any system call.
        t.mode = Mode::Kernel;
        t.birth.started_ns = self.now;
        t.at.request_start_ns = self.now;
        self.births.kinds[kind as usize].count += 1;
        self.births.kinds[kind as usize].living.push(task);
        self.reset_weight(task);
        task
    }

    /// Ends the running task: releases its locks, dequeues it, counts its exit, wakes its parent if
    /// that waits, and leaves the CPU. It may first take time or wait for a lock, and is then
    /// called again. It stays in the kernel and is not throttled from here on (6.18+).
    pub(crate) fn exit(&mut self, task: TaskId) {
        // A task killed while it waits has waited until now.
        self.end_stall(task);
        if self.exit_waits_for_threadgroup(task) || self.delay_exit(task) {
            return;
        }
        let now = self.now;
        self.unlock_all(task);
        let cpu = self.tasks[task].cpu;
        self.emit(cpu, What::Exit { task: task.0 });
        self.remove_from_cpu(task);
        self.detach_load(task);
        let t = &mut self.tasks[task];
        t.state = State::Exited;
        let (kind, parent) = (t.kind as usize, t.birth.parent);
        self.channels.counts.broken_off += u64::from(t.does_job());
        self.births.kinds[kind].exited += 1;
        self.watch_exit(kind);
        self.births.kinds[kind].last_exit_ns = now;
        if let Some(at) = self.births.kinds[kind].living.iter().position(|&other| other == task) {
            self.births.kinds[kind].living.remove(at);
        }
        self.leave_cpu(task);
        self.births.ended.push_back((now, task));
        if let Some((parent, number)) = parent
            && self.tasks[parent].birth.number == number
            && self.tasks[parent].state != State::Exited
        {
            self.tasks[parent].birth.children -= 1;
            let waits = self.tasks[parent].state == State::Asleep(Wait::Children);
            if waits && self.tasks[parent].birth.children == 0 {
                self.wake_in_sync(parent);
            }
        }
    }

    /// Puts the running task to sleep for this reason: dequeues it (delayed, perhaps) and requests
    /// a reschedule.
    pub(crate) fn block(&mut self, task: TaskId, wait: Wait) {
        if !matches!(wait, Wait::Lock(..)) {
            self.tell(task, Told::Sleeps);
        }
        let t = &mut self.tasks[task];
        debug_assert_eq!(t.state, State::Runnable);
        t.update_wanted(self.now);
        t.mode = Mode::Kernel;
        t.state = State::Asleep(wait);
        t.segment = Segment::None;
        let cpu = t.cpu;
        self.emit(cpu, What::Sleep { task: task.0 });
        if self.tasks[task].attrs.class == Class::Rt {
            self.rt_dequeue(task);
        } else {
            self.dequeue_task(task, crate::fair::Dequeue::Sleep);
        }
        self.leave_cpu(task);
    }

    /// Puts a source's due token, with the source's next job, into its channel, and schedules the
    /// next one unless it was the source's last. A lossy token is dropped where no receiver waits,
    /// but counts as arrived. Latencies count from when it was due.
    pub(crate) fn deliver_arrival(&mut self, source: u32) {
        let spec = &self.workload.sources[source as usize];
        let channel = ChannelId(spec.channel);
        let state = &mut self.channels.sources[source as usize];
        state.arrived += 1;
        let due_ns = state.due_ns;
        if !spec.lossy || !self.channels.all[channel].receivers.is_empty() {
            let turn = (state.arrived - 1) % (spec.jobs.len() as u64).max(1);
            let job = spec.jobs.get(turn as usize).copied().unwrap_or(NO_JOB);
            self.deliver_token(channel, Token { since_ns: due_ns, job });
        }
        self.schedule_arrival(source, due_ns);
    }

    /// Draws when the next token of a source arrives, the one before having been due at `from_ns`,
    /// and schedules that. None follows after the source's count, or its last listed time.
    pub(crate) fn schedule_arrival(&mut self, source: u32, from_ns: u64) {
        let spec = &self.workload.sources[source as usize];
        let state = &mut self.channels.sources[source as usize];
        if state.arrived >= spec.count {
            return;
        }
        let at_ns = match &spec.arrivals {
            cpumax_workload::Arrivals::At(times) => match times.get(state.arrived as usize) {
                Some(&time) => time.saturating_add(spec.start_ns),
                None => return,
            },
            cpumax_workload::Arrivals::Between(Span::Fixed(ns)) => from_ns.saturating_add(*ns),
            cpumax_workload::Arrivals::Between(Span::Drawn(d)) => from_ns
                .saturating_add(self.workload.distributions[*d as usize].draw(&mut state.random)),
        };
        state.due_ns = at_ns;
        self.events.heap.push(self.action_time_ns(at_ns), Event::Arrival(source));
    }
}
