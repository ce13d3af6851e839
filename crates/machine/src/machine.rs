//! The state of the whole machine, and how an event is processed. Its parts (`task.rs`, `lock.rs`,
//! `lab.rs`) know nothing of it; each concept adds its own `impl Machine` in its own file.

use crate::Error;
use crate::cfs_rq::{CfsRq, Extras, Parked};
use crate::channel::{Channels, NO_JOB};
use crate::cost::UnthrottleCost;
use crate::cpu::Cpu;
use crate::events::{Event, Events, NEVER, Slot};
use crate::group::Group;
use crate::ids::{Arena, CfsRqId, ChannelId, CpuId, GroupId, SeId, TaskId};
use crate::interval::Balancing;
use crate::lab::Lab;
use crate::lock::Locks;
use crate::pelt::Averages;
use crate::rules::Rules;
use crate::se::Se;
use crate::settings::Settings;
use crate::task::{Births, Code, Task};
use crate::watch::Probes;
use cpumax_outcome::trace::{Message, TraceEvent, What};
use cpumax_workload::Workload;

pub(crate) struct Machine<'a> {
    pub workload: &'a Workload,
    pub rules: Rules,
    pub settings: Settings<'a>,
    pub lab: Lab<'a>,

    pub now: u64,
    pub events: Events,
    pub cpus: Arena<CpuId, Cpu>,
    pub groups: Arena<GroupId, Group>,
    pub cfs_rqs: Arena<CfsRqId, CfsRq>,
    /// Of each run queue, under the pull rules; else empty.
    pub parked: Vec<Parked>,
    pub ses: Arena<SeId, Se>,
    pub tasks: Arena<TaskId, Task>,
    pub extras: Extras,
    pub averages: Averages,
    pub balancing: Balancing,
    pub births: Births,
    pub locks: Locks,
    pub channels: Channels,
    pub unthrottle_cost: UnthrottleCost,
    pub probes: Probes<'a>,
}

impl Machine<'_> {
    /// Whether all tasks of a CPU compete on one queue, whatever their groups (7.3).
    pub fn is_flat(&self) -> bool {
        self.rules.queue.is_flat()
    }

    /// Whether this fault, a deliberate mistake for tests, is injected into the run.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn has(&self, fault: crate::faults::Fault) -> bool {
        self.settings.fault == Some(fault)
    }

    /// False: faults are injected in tests only.
    #[cfg(not(any(test, feature = "faults")))]
    #[expect(clippy::unused_self, reason = "tests ask the machine")]
    #[inline]
    pub(crate) fn has(&self, _: crate::faults::Fault) -> bool {
        false
    }

    /// The root run queue of a CPU.
    #[expect(clippy::unused_self, reason = "an accessor like the others")]
    pub fn root(&self, cpu: CpuId) -> CfsRqId {
        CfsRqId(cpu.0)
    }

    /// Sends an event at the current time to the trace, if there is one.
    pub fn emit(&mut self, cpu: CpuId, what: What) {
        if self.probes.trace.is_some() {
            self.write_trace(cpu, what);
        }
    }

    /// Emits a message event of the task at the current time, if the trace records messages.
    #[inline]
    pub fn emit_message(
        &mut self,
        kind: fn(Message) -> What,
        task: TaskId,
        (channel, job): (ChannelId, u32),
    ) {
        if self.probes.tells_messages {
            let job = Some(job).filter(|job| *job != NO_JOB);
            let message = Message { task: task.0, channel: channel.0, job };
            self.write_trace(self.tasks[task].cpu, kind(message));
        }
    }

    /// Sends an event at the current time to the trace, with the task numbers that traces use.
    #[cold]
    pub fn write_trace(&mut self, cpu: CpuId, what: What) {
        let what = self.with_trace_numbers(what);
        if let Some(sink) = self.probes.trace.as_mut() {
            let cpu = if cpu.is_none() { 0 } else { cpu.0 as u16 };
            sink.event(TraceEvent { time_ns: self.now, cpu, what });
        }
    }

    /// Processes one event, of a timer slot or (`usize::MAX`) of the heap, and lets CPUs settle.
    #[inline]
    pub fn process(&mut self, slot: usize) {
        self.events.count += 1;
        self.events.slot = slot;
        if slot != usize::MAX {
            self.timer_event(slot);
        } else if let Some((_, event)) = self.events.heap.pop() {
            self.process_or_postpone(event);
            if let Event::WakeUp(task, ..) = event
                && self.tasks[task].at.code == Code::Outside
            {
                // The interrupted task's CPU must have switched before the outside task acts.
                self.settle_touched();
            }
            self.process_simultaneous();
        }
        self.settle_touched();
    }

    /// Processes all heap events due now before any CPU reschedules: timers that expire together
    /// share one interrupt, and tasks that start together are created by a task that is not
    /// preempted.
    fn process_simultaneous(&mut self) {
        while self.events.heap.next_ns() == self.now
            && let Some((_, event)) = self.events.heap.pop()
        {
            self.events.count += 1;
            self.process_or_postpone(event);
        }
    }

    /// Processes an event, or pushes one from outside again for when the outside task is free.
    fn process_or_postpone(&mut self, event: Event) {
        let at_ns = match event {
            Event::Intervention(..) if self.lab.born_until_ns > self.now => {
                Some(self.lab.born_until_ns)
            }
            Event::Start(..)
            | Event::Arrival(..)
            | Event::TokenDue(..)
            | Event::Intervention(..) => self.outside_arrival_ns(),
            _ => None,
        };
        match at_ns {
            Some(at_ns) => self.events.heap.push(at_ns, event),
            None => self.execute_on_its_cpu(event),
        }
    }

    /// Processes an event, with the outside task's CPU as the current one (`here`) where it comes
    /// from outside.
    fn execute_on_its_cpu(&mut self, event: Event) {
        let cpu = match event {
            Event::Start(..)
            | Event::Birth(..)
            | Event::Arrival(..)
            | Event::TokenDue(..)
            | Event::Intervention(..) => self.outside_cpu(),
            _ => CpuId::NONE,
        };
        self.on(cpu, |m| m.execute_event(event));
    }

    /// Processes the timer of a slot: a CPU's event, a slack timer or a period timer.
    fn timer_event(&mut self, slot: usize) {
        match self.events.slot_at(slot) {
            Slot::Cpu(cpu) => self.cpu_event(cpu),
            Slot::Slack(group) => self.slack_timer(group),
            Slot::Period(group) => self.period_timer(group),
        }
    }

    /// Lets every marked CPU settle, also those marked meanwhile: reschedule, execute what takes no
    /// time, set its timer.
    pub fn settle_touched(&mut self) {
        let mut at = 0;
        while at < self.events.touched.len() {
            let cpu = self.events.touched[at];
            at += 1;
            self.settle(cpu);
        }
        self.events.touched.clear();
    }

    /// Calls the handler of a heap event.
    fn execute_event(&mut self, event: Event) {
        match event {
            Event::Start(kind, instance) => self.start_instance(kind, instance),
            Event::Birth(kind, instance) => self.create_instance(kind, instance),
            Event::WakeUp(task, sleeps) => self.sleep_ends(task, sleeps, false),
            Event::NextWakeUp(task, sleeps) => self.sleep_ends(task, sleeps, true),
            Event::WakeReader(task) => self.wake_reader(task),
            Event::Arrival(source) => self.deliver_arrival(source),
            Event::TokenDue(place) => self.deliver_due(place),
            Event::Intervention(index) => self.intervene(index),
            Event::Softirq(index) => self.softirq_due(index),
            Event::Balance => self.balance(),
            Event::Distribution(group) => self.continue_distribution(group),
        }
    }

    /// Makes the run fail because a task loops without using time; its job is named, too.
    pub fn livelock(&mut self, task: TaskId) {
        let mut name = if task.is_none() { "(idle)".to_owned() } else { self.task_name(task) };
        if task.is_some() && self.tasks[task].does_job() {
            let job = self.tasks[task].at.program as usize - self.workload.tasks.len();
            name = format!("{name} in job {}", self.workload.jobs[job].name);
        }
        self.events.failed.get_or_insert(Error::Livelock { task: name, at_ns: self.now });
    }

    /// Charges all running tasks and ends all open waits, for the counters at the end of the run.
    /// Throttles nothing.
    pub fn close(&mut self) {
        for cpu in self.cpus.ids() {
            self.account_work(cpu);
            let curr = self.cpus[cpu].curr;
            if curr.is_some() && self.tasks[curr].is_fair() {
                self.charge_path_for_close(curr);
            }
        }
        for task in self.tasks.ids() {
            self.count_hung(task);
            self.end_wait(task);
            self.end_stall(task);
        }
    }

    /// Time of the first tick of this CPU, ns, that is still to come and not before `due_ns`, if
    /// ticks come every `every_ns`; [`NEVER`] if `due_ns` is.
    pub fn tick_at_or_after(&self, cpu: CpuId, due_ns: u64, every_ns: u64) -> u64 {
        if due_ns == NEVER {
            return NEVER;
        }
        let phase = self.cpus[cpu].tick_phase_ns;
        let earliest = due_ns.max(self.now + u64::from(!self.events.are_to_come(cpu)));
        if earliest <= phase {
            return phase;
        }
        phase + (earliest - phase).div_ceil(every_ns) * every_ns
    }
}
