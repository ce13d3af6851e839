//! `PREEMPT_RT`, as far as its deadlock with entity throttling needs it: a real-time thread per
//! CPU (kernel: `ktimers/N`) runs period and slack timers, wakes sleeping tasks, and executes the
//! workload's regular sections. It may wait there for a lock whose holder is throttled.

use crate::cpu::SoftirqWork;
use crate::events::{Event, NEVER, Slot};
use crate::ids::{CpuId, GroupId, LockId, SeId, TaskId};
use crate::machine::Machine;
use crate::step::Step;
use crate::task::{Code, Mode, Segment, State, Task, Wait};
use cpumax_workload::{Class, Domain, Stream};

/// Progress of the timer thread (`pc`), under noise: woken, ready to act, done, about to sleep.
const WOKEN: u32 = 0;
const READY: u32 = 1;
const DONE: u32 = 2;
const GOES: u32 = 3;

impl Machine<'_> {
    /// Creates a timer thread (`ktimers`) on each CPU, on `PREEMPT_RT`, and schedules the
    /// workload's softirq sections.
    pub(crate) fn build_realtime(&mut self) {
        if !self.settings.preempt.is_rt() {
            return;
        }
        for cpu in self.cpus.ids() {
            let random = Stream::new(self.settings.seed, Domain::Cpu, u64::from(cpu.0));
            let mut task = Task::new(u32::MAX, cpu.0, SeId::NONE, GroupId(0), Class::Rt, random);
            task.at.code = Code::SoftirqIdle;
            task.mode = Mode::Kernel;
            task.state = State::Asleep(Wait::Softirq);
            task.cpu = cpu;
            // The masks of single CPUs come after those of the workload's sets.
            task.mask = 1 + self.workload.cpu_sets.len() as u32 + cpu.0;
            let task = self.add_task(task, self.settings.base_slice_ns);
            self.cpus[cpu].rt.ktimers = task;
        }
        for (index, section) in self.workload.machine.softirqs.iter().enumerate() {
            self.events.heap.push(section.every_ns, Event::Softirq(index as u32));
        }
    }

    /// Queues a softirq section that is due for its CPU's timer thread, and schedules the next one.
    pub(crate) fn softirq_due(&mut self, index: u32) {
        let section = &self.workload.machine.softirqs[index as usize];
        self.events
            .heap
            .push(self.now.saturating_add(section.every_ns.max(1)), Event::Softirq(index));
        if self.settings.preempt.is_rt() {
            let cpu = CpuId(u32::from(section.cpu).min(self.cpus.len() as u32 - 1));
            self.raise_softirq(cpu, SoftirqWork::Section(index));
        }
    }

    /// Hands a bandwidth timer, which is cleared, over to the CPU's timer thread on a real-time
    /// kernel. True if handed over, false elsewhere.
    pub(crate) fn hand_to_ktimers(&mut self, slot: Slot, cpu: CpuId, work: SoftirqWork) -> bool {
        if !self.settings.preempt.is_rt() {
            return false;
        }
        self.events.set(slot, NEVER);
        self.raise_softirq(cpu, work);
        true
    }

    /// Hands the end of a sleep over to the CPU's timer thread on a real-time kernel, except for
    /// real-time tasks (kernel: `hrtimer_setup_sleeper_on_stack()`). True if handed over.
    pub(crate) fn hand_wakeup_to_ktimers(&mut self, task: TaskId, sleeps: u32) -> bool {
        let t = &self.tasks[task];
        if !self.settings.preempt.is_rt() || t.attrs.class == Class::Rt || t.at.code != Code::Kind {
            return false;
        }
        self.raise_softirq(t.cpu, SoftirqWork::WakeUp(task, sleeps));
        true
    }

    /// Queues work for a CPU's timer thread, unless it is queued, and wakes the thread in an
    /// interrupt.
    fn raise_softirq(&mut self, cpu: CpuId, work: SoftirqWork) {
        let c = &mut self.cpus[cpu];
        // A queued timer is not queued twice.
        if !c.rt.softirqs.contains(&work) {
            c.rt.softirqs.push_back(work);
        }
        let ktimers = c.rt.ktimers;
        if self.tasks[ktimers].state == State::Asleep(Wait::Softirq) {
            self.finish_tick(cpu);
            self.enter_irq(cpu, Step::Wake);
            self.in_interrupt_of(cpu, |m| m.wake(ktimers));
        }
    }

    /// Executes the next step of a timer thread: the section that it is in, the next queued work,
    /// or sleep if there is none.
    pub(crate) fn step_softirq(&mut self, task: TaskId) {
        if let Code::Softirq(index) = self.tasks[task].at.code {
            self.step_section(task, index);
            return;
        }
        let cpu = self.tasks[task].cpu;
        if self.lab.delays.is_some()
            && self.delay_ktimers(task, self.cpus[cpu].rt.softirqs.is_empty())
        {
            return;
        }
        match self.cpus[cpu].rt.softirqs.pop_front() {
            None => self.block(task, Wait::Softirq),
            Some(SoftirqWork::Period(group)) => self.period_expired(group),
            Some(SoftirqWork::Slack(group)) => self.slack_expired(group),
            Some(SoftirqWork::WakeUp(sleeper, sleeps)) => {
                let t = &self.tasks[sleeper];
                if t.state == State::Asleep(Wait::Timer) && t.at.sleeps == sleeps {
                    self.wake(sleeper);
                }
            }
            Some(SoftirqWork::Section(index)) => {
                self.tasks[task].at.code = Code::Softirq(index);
                self.tasks[task].at.pc = 0;
            }
        }
    }

    /// Starts the time that a timer thread needs before it acts or sleeps, under noise. True if it
    /// is busy for now.
    fn delay_ktimers(&mut self, task: TaskId, nothing_left: bool) -> bool {
        let (next, kind) = match (self.tasks[task].at.pc, nothing_left) {
            (GOES, true) | (READY, false) => {
                self.tasks[task].at.pc = if nothing_left { WOKEN } else { DONE };
                return false;
            }
            (_, true) => (GOES, Step::Go),
            (WOKEN, false) => (READY, Step::Come),
            (_, false) => (READY, Step::WakeToo),
        };
        let left_ns = self.delay_ns(kind);
        let t = &mut self.tasks[task];
        (t.at.pc, t.segment, t.left_ns) = (next, Segment::Run, left_ns);
        true
    }

    /// Executes the next step of a softirq section in a timer thread: takes the lock, holds it,
    /// releases it.
    fn step_section(&mut self, task: TaskId, index: u32) {
        let section = &self.workload.machine.softirqs[index as usize];
        let step = self.tasks[task].at.pc;
        self.tasks[task].at.pc += 1;
        match step {
            0 => self.lock(task, LockId(section.lock), section.mode),
            1 => {
                if section.hold_ns > 0 {
                    self.tasks[task].segment = Segment::Run;
                    self.tasks[task].left_ns = section.hold_ns;
                }
            }
            _ => {
                self.unlock(task, LockId(section.lock));
                self.tasks[task].at.code = Code::SoftirqIdle;
                self.tasks[task].at.pc = DONE;
            }
        }
    }
}
