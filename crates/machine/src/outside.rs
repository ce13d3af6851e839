//! Whoever starts tasks, sends what arrives and intervenes, where that is a task itself: in a run
//! on a real kernel, which this run is held against. It is a real-time one on CPU 0, or, as nobody
//! has told on which one of several it was, under noise on any; what it does is done when it comes,
//! whatever it takes.

use crate::ids::{CpuId, GroupId, SeId, TaskId};
use crate::machine::{Event, Machine};
use crate::noise::Kind;
use crate::task::{Code, Mode, Segment, State, Task, Wait};
use cpumax_workload::{Class, Domain, Preempt, Stream};

/// From the last birth to when whoever starts tasks sleeps again, ns: 9 to 19 us in emulated
/// kernels.
const BACK_NS: u64 = 12_000;

impl Machine<'_> {
    pub(crate) fn build_outside(&mut self) {
        let Some(&(first_ns, _)) = self.observed.and_then(|o| o.outside_ns.first()) else { return };
        let random = Stream::new(self.seed, Domain::Cpu, 0);
        let mut task = Task::new(u32::MAX, u32::MAX, SeId::NONE, GroupId(0), Class::Rt, random);
        task.code = Code::Outside;
        task.mode = Mode::Kernel;
        task.state = State::Asleep(Wait::Timer);
        let cpus = self.cpus.len() as u64;
        if let Some(noise) = self.noise.as_mut().filter(|_| cpus > 1) {
            task.cpu = CpuId(noise.below(cpus) as u32);
        }
        let task = self.add_task(task, self.base_slice_ns);
        self.outside = task;
        self.heap.push_first(first_ns, Event::WakeUp { task, sleeps: 0 });
    }

    /// Which CPU whoever does this is on, where that is one of several: others than that learn of
    /// it by an interrupt, or at their next tick.
    pub(crate) fn outside_cpu(&self) -> CpuId {
        if self.outside.is_none() || self.cpus.len() == 1 {
            return CpuId::NONE;
        }
        self.tasks[self.outside].cpu
    }

    /// When the run ends, and with that its counters are read: whoever does this comes at the end
    /// of the workload, and has read half of them when it says. Under noise all are read at one
    /// time somewhere between the first and the last.
    pub(crate) fn end_ns(&mut self) -> u64 {
        let duration_ns = self.workload.duration_ns;
        let last = self.observed.and_then(|o| o.outside_ns.last());
        let half_ns = last.map_or(0, |&(at_ns, ns)| (at_ns + ns).saturating_sub(duration_ns));
        duration_ns + self.noise.as_mut().map_or(half_ns, |noise| noise.below(2 * half_ns + 1))
    }

    /// When something is done that is to be done then: a real one may have to wait.
    pub(crate) fn outside_at(&self, at_ns: u64) -> u64 {
        self.outside_does_at(at_ns).max(self.now)
    }

    /// The same of what may have been done.
    pub(crate) fn outside_does_at(&self, at_ns: u64) -> u64 {
        let late = self.observed.map_or(&[][..], |o| &o.late_ns);
        let found = late.iter().find(|(wanted_ns, _)| *wanted_ns == at_ns);
        found.map_or(at_ns, |&(_, done_ns)| done_ns)
    }

    /// Whether whoever comes now had to wait before.
    pub(crate) fn outside_waited(&self) -> bool {
        let late = self.observed.map_or(&[][..], |o| &o.late_ns);
        late.iter().any(|&(_, done_ns)| done_ns == self.now)
    }

    /// When what is to be done now is done, if the interrupt still lasts that wakes up whoever does
    /// it.
    pub(crate) fn outside_comes_at(&self) -> Option<u64> {
        self.noise.as_ref().filter(|_| self.outside.is_some())?;
        let c = &self.cpus[self.tasks[self.outside].cpu];
        let comes = c.rt_queue.front() == Some(&self.outside) && c.curr != self.outside;
        (comes && c.leaves_irq_ns > self.now).then_some(c.leaves_irq_ns)
    }

    /// From when to when whoever starts those tasks is there whose start begins now, one after the
    /// other, ns; `None`: they are there at once. At the beginning a single CPU is not theirs
    /// before all of them are there.
    pub(crate) fn visit_for_births(&self) -> Option<(u64, u64)> {
        let matters = self.now > 0 || self.cpus.len() > 1;
        let visits = &self.observed.filter(|_| matters)?.outside_ns;
        let before = &visits[..visits.partition_point(|&(from_ns, _)| from_ns <= self.now)];
        let &(from_ns, took_ns) = before.last()?;
        let until_ns = (from_ns + took_ns).saturating_sub(BACK_NS);
        (until_ns >= self.now).then_some((from_ns, until_ns))
    }

    /// When who comes now was woken, if it is known to have waited since for the kernel to be
    /// preempted.
    pub(crate) fn outside_woken_ns(&self) -> Option<u64> {
        if self.preempt != Preempt::Voluntary {
            return None;
        }
        // A page, and the interrupt that it was woken in.
        let most = |kind: Kind| kind.range_ns().1;
        let most_ns = most(Kind::Point) + most(Kind::Tick) + most(Kind::TickOver);
        let late = self.observed.map_or(&[][..], |o| &o.late_ns);
        let came = |&&(wanted_ns, done_ns): &&(u64, u64)| {
            done_ns == self.now && done_ns.saturating_sub(wanted_ns) <= most_ns
        };
        late.iter().find(came).map(|&(wanted_ns, _)| wanted_ns)
    }

    /// Takes its time, then sleeps until it has to do the next thing.
    pub(crate) fn step_outside(&mut self, task: TaskId) {
        let visits = self.observed.map_or(&[][..], |o| &o.outside_ns);
        let t = &mut self.tasks[task];
        let Some(&(from_ns, took_ns)) = visits.get(t.pc as usize) else {
            self.block(task, Wait::Softirq);
            return;
        };
        if from_ns > self.now {
            self.tasks[task].sleeps += 1;
            let sleeps = self.tasks[task].sleeps;
            // Who comes then is there before what it brings.
            self.heap.push_first(from_ns, Event::WakeUp { task, sleeps });
            self.block(task, Wait::Timer);
            return;
        }
        t.pc += 1;
        if took_ns > 0 {
            // It has told when it was done, counted from when it was to come; then it goes to
            // sleep.
            let goes_ns = self.noise_ns(Kind::Go);
            let left_ns = (from_ns + took_ns).saturating_sub(self.now) + goes_ns;
            let t = &mut self.tasks[task];
            t.left_ns = left_ns;
            t.segment = if left_ns > 0 { Segment::Run } else { Segment::None };
        }
    }
}
