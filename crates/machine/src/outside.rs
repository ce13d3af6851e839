//! The outside task: it starts tasks, sends arrivals and intervenes, in runs that are compared
//! with a real kernel. It has real-time priority and runs on CPU 0, or under noise on any CPU, as
//! the recording does not say on which. Its actions take effect when it arrives, however long they
//! take.

use crate::events::Event;
use crate::ids::{CpuId, GroupId, SeId, TaskId};
use crate::machine::Machine;
use crate::step::Step;
use crate::task::{Code, Mode, Segment, State, Task, Wait};
use cpumax_workload::{Class, Domain, Preempt, Stream};

/// From the last birth to the outside task's next sleep, ns: 9 to 19 us in emulated kernels.
const BACK_NS: u64 = 12_000;
/// Longest wait for a preemption point: a page that is read, and the interrupt that woke it, ns.
const POINT_NS: u64 = 220_300;

impl Machine<'_> {
    /// Creates the outside task, a real-time task that stands for the guest's controller, if the
    /// observed conditions have one, and schedules its first visit.
    pub(crate) fn build_outside(&mut self) {
        let Some(&(first_ns, _)) = self.lab.observed.and_then(|o| o.outside_ns.first()) else {
            return;
        };
        let random = Stream::new(self.settings.seed, Domain::Cpu, 0);
        let mut task = Task::new(u32::MAX, u32::MAX, SeId::NONE, GroupId(0), Class::Rt, random);
        task.at.code = Code::Outside;
        task.mode = Mode::Kernel;
        task.state = State::Asleep(Wait::Timer);
        let cpus = self.cpus.len() as u64;
        if let Some(delays) = self.lab.delays.as_mut().filter(|_| cpus > 1) {
            task.cpu = CpuId(delays.below(cpus) as u32);
        }
        let task = self.add_task(task, self.settings.base_slice_ns);
        self.lab.outside = task;
        self.events.heap.push_first(first_ns, Event::WakeUp(task, 0));
    }

    /// The CPU of the outside task; none without one, or on a single CPU. Other CPUs learn of its
    /// actions by interrupts or at their next tick.
    pub(crate) fn outside_cpu(&self) -> CpuId {
        if self.lab.outside.is_none() || self.cpus.len() == 1 {
            return CpuId::NONE;
        }
        self.tasks[self.lab.outside].cpu
    }

    /// The CPU on which limits are written: that of the outside task, else CPU 0.
    pub(crate) fn writing_cpu(&self) -> CpuId {
        if self.lab.outside.is_none() { CpuId(0) } else { self.tasks[self.lab.outside].cpu }
    }

    /// When an action planned for `at_ns` takes place, ns: it may be late. Not before now.
    pub(crate) fn action_time_ns(&self, at_ns: u64) -> u64 {
        self.lab.observed_action_ns(at_ns).max(self.now)
    }

    /// When the outside task can act, ns, if the interrupt that wakes it is still running; `None`:
    /// now.
    pub(crate) fn outside_arrival_ns(&self) -> Option<u64> {
        self.lab.delays.as_ref().filter(|_| self.lab.outside.is_some())?;
        let c = &self.cpus[self.tasks[self.lab.outside].cpu];
        let comes = c.rt.queue.front() == Some(&self.lab.outside) && c.curr != self.lab.outside;
        (comes && c.lab.leaves_irq_ns > self.now).then_some(c.lab.leaves_irq_ns)
    }

    /// Start and end, ns, of the outside task's visit in which the births that begin now happen;
    /// `None`: they happen at once. At time 0 a single CPU is not given to new tasks before all
    /// exist.
    pub(crate) fn visit_for_births(&self) -> Option<(u64, u64)> {
        let matters = self.now > 0 || self.cpus.len() > 1;
        let visits = &self.lab.observed.filter(|_| matters)?.outside_ns;
        let before = &visits[..visits.partition_point(|&(from_ns, _)| from_ns <= self.now)];
        let &(from_ns, took_ns) = before.last()?;
        let until_ns = (from_ns + took_ns).saturating_sub(BACK_NS);
        (until_ns >= self.now).then_some((from_ns, until_ns))
    }

    /// When the outside task, which comes now, was woken, ns, if it has waited since for a
    /// preemption point (voluntary preemption); else `None`.
    pub(crate) fn outside_woken_ns(&self) -> Option<u64> {
        if self.settings.preempt != Preempt::Voluntary {
            return None;
        }
        let came = |&&(wanted_ns, done_ns): &&(u64, u64)| {
            done_ns == self.now && done_ns.saturating_sub(wanted_ns) <= POINT_NS
        };
        self.lab.late().iter().find(came).map(|&(wanted_ns, _)| wanted_ns)
    }

    /// Has the outside task spend the time of its next visit on the CPU, or sleep until it comes.
    pub(crate) fn step_outside(&mut self, task: TaskId) {
        let visits = self.lab.observed.map_or(&[][..], |o| &o.outside_ns);
        let t = &mut self.tasks[task];
        let Some(&(from_ns, took_ns)) = visits.get(t.at.pc as usize) else {
            self.block(task, Wait::Softirq);
            return;
        };
        if from_ns > self.now {
            self.tasks[task].at.sleeps += 1;
            let sleeps = self.tasks[task].at.sleeps;
            // The outside task arrives before its actions.
            self.events.heap.push_first(from_ns, Event::WakeUp(task, sleeps));
            self.block(task, Wait::Timer);
            return;
        }
        t.at.pc += 1;
        if took_ns > 0 {
            // The recording has when it was done, counted from when it was due; then it goes to
            // sleep.
            let goes_ns = self.delay_ns(Step::Go);
            let left_ns = (from_ns + took_ns).saturating_sub(self.now) + goes_ns;
            let t = &mut self.tasks[task];
            t.left_ns = left_ns;
            t.segment = if left_ns > 0 { Segment::Run } else { Segment::None };
        }
    }
}
