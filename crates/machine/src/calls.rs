//! Time that system calls take beside their purpose, under noise: to sleep, wait for a token, ask
//! for a lock, change a priority, move, exit, or let others have a lock.

use crate::cpu::Resched;
use crate::events::Event;
use crate::ids::{CpuId, GroupId, LockId, TaskId};
use crate::lab::Moving;
use crate::machine::Machine;
use crate::step::{Step, Told};
use crate::task::{Code, Mode, Segment};
use cpumax_workload::{LockKind, LockMode, Op, Target};

/// From a move or a change of priority to the next pick, per level of groups, ns.
const CHOICE_LEVEL_NS: u64 = 1_700;

impl Machine<'_> {
    /// Starts the time in the kernel that a task needs to go to sleep, under noise. True if it
    /// keeps running for that first.
    pub(crate) fn delay_sleep(&mut self, task: TaskId) -> bool {
        if self.lab.delays.is_none() || self.tasks[task].at.code != Code::Kind {
            return false;
        }
        self.tasks[task].lab.sleep_delay_ns = self.spend_in_kernel(task, Step::Sleep) as u16;
        true
    }

    /// Has a task run in the kernel for the length of a step, which is returned, ns: that becomes
    /// its segment.
    pub(crate) fn spend_in_kernel(&mut self, task: TaskId, step: Step) -> u64 {
        let ns = self.delay_ns(step);
        let t = &mut self.tasks[task];
        (t.mode, t.segment, t.left_ns) = (Mode::Kernel, Segment::Run, ns);
        self.tell(task, Told::Step(step, ns));
        ns
    }

    /// Delays the effect of a call by a random time in the kernel, under noise. True while delayed:
    /// the instruction is then executed again afterwards.
    pub(crate) fn delay_call(&mut self, task: TaskId, step: Step) -> bool {
        if self.lab.delays.is_none() || self.tasks[task].at.code != Code::Kind {
            return false;
        }
        let again = !self.tasks[task].lab.call_delayed;
        self.tasks[task].lab.call_delayed = again;
        if again {
            self.spend_in_kernel(task, step);
            self.tasks[task].at.pc -= 1;
        }
        again
    }

    /// Starts the time from a call's entry to its lock under noise, if the next instruction takes a
    /// lock. It is part of the call's length.
    pub(crate) fn delay_lock_request(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let next = self.program_of(task).get(t.at.pc as usize);
        if self.lab.delays.is_none() || !matches!(next, Some(Op::Lock { .. })) {
            return;
        }
        self.spend_in_kernel(task, Step::Enter);
    }

    /// Postpones the reschedule of a CPU whose current task changed its own priority by a random
    /// time (noise only).
    pub(crate) fn reschedule_after_priority_change(&mut self, task: TaskId, who: Target) {
        let cpu = self.tasks[task].cpu;
        if self.lab.delays.is_none() || who != Target::Myself || self.cpus[cpu].curr != task {
            return;
        }
        let levels_ns = u64::from(self.levels_of(task)) * CHOICE_LEVEL_NS;
        let ns = self.delay_reschedule(cpu, Step::Changed, levels_ns);
        self.tell(task, Told::Reschedules(ns));
    }

    /// Postpones a pending reschedule at the end of a call by a random time, as at the end of an
    /// interrupt (noise only; kernel: `exit_to_user_mode_loop()`).
    pub(crate) fn delay_reschedule_at_return(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        let c = &self.cpus[cpu];
        if self.lab.delays.is_some() && c.curr == task && c.resched != Resched::No {
            self.delay_reschedule(cpu, Step::Return, 0);
        }
    }

    /// Postpones the CPU's reschedule by the length of a step plus `more_ns`, without progress
    /// meanwhile. Returns the sum, ns.
    fn delay_reschedule(&mut self, cpu: CpuId, step: Step, more_ns: u64) -> u64 {
        let ns = self.delay_ns(step) + more_ns;
        let c = &mut self.cpus[cpu];
        c.lab.leaves_irq_ns = c.lab.leaves_irq_ns.max(self.now + ns);
        c.stolen_ns += ns;
        c.lab.tick_took_ns = 0;
        ns
    }

    /// Delays the wakeup of a reader by a random time on one CPU under noise, as a task that admits
    /// several readers wakes them one after the other (kernel: `wake_up_q()`). True if it is woken
    /// by an event later.
    pub(crate) fn delay_reader_wakeup(&mut self, task: TaskId) -> bool {
        if self.lab.delays.is_none() || self.cpus.len() > 1 {
            return false;
        }
        let cpu = CpuId(0);
        let ns = self.delay_ns(Step::WakeToo);
        let c = &mut self.cpus[cpu];
        c.lab.leaves_irq_ns = c.lab.leaves_irq_ns.max(self.now) + ns;
        let turn_ns = c.lab.leaves_irq_ns;
        self.steal_from_current(cpu, Step::WakeToo, ns);
        self.events.heap.push(turn_ns, Event::WakeReader(task));
        true
    }

    /// Called as work in the kernel begins: if the instruction before took a mutex or rwsem that
    /// the guest implements by a token, charges the task's CPU, under noise, a random time to take
    /// and put it back, which is in no length.
    pub(crate) fn charge_token_lock(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let program = self.program_of(task);
        let before = t.at.pc.checked_sub(2).and_then(|at| program.get(at as usize));
        let Some(&Op::Lock { lock, .. }) = before else { return };
        let lock = &self.locks.all[LockId(lock)];
        let is_token = !lock.written && matches!(lock.kind, LockKind::Mutex | LockKind::Rwsem);
        if self.lab.delays.is_some() && !self.lab.reads_cpu_time && t.in_syscall && is_token {
            let (cpu, ns) = (t.cpu, self.delay_ns(Step::Enter));
            self.cpus[cpu].stolen_ns += ns;
        }
    }

    /// The lock that tasks hold while they move themselves; it comes after the workload's locks.
    fn move_lock(&self) -> LockId {
        LockId(self.workload.locks.len() as u32)
    }

    /// Executes the next step of a task's own move to a group, which takes time and excludes other
    /// moves. False if the caller is to move it at once: without noise, or where
    /// `cgroup_threadgroup_rwsem` is modelled.
    pub(crate) fn step_self_move(&mut self, task: TaskId, group: GroupId) -> bool {
        if self.lab.delays.is_none() || self.locks.threadgroup.is_some() {
            return false;
        }
        let lock = self.move_lock();
        let t = &self.tasks[task];
        let next = match t.lab.moving {
            Moving::No => Moving::Enters { in_syscall: t.in_syscall },
            Moving::Enters { in_syscall } => {
                // A waiter is woken to try again.
                self.lock(task, lock, LockMode::Write);
                if !self.locks.all[lock].holders.contains(&task) {
                    return true;
                }
                Moving::Out { in_syscall }
            }
            Moving::Out { in_syscall } => {
                if self.tasks[task].group == group {
                    Moving::In { in_syscall }
                } else {
                    self.move_to_group(task, group);
                    Moving::Moved { in_syscall }
                }
            }
            Moving::Moved { in_syscall } => {
                self.resched(self.tasks[task].cpu, Resched::Now);
                Moving::In { in_syscall }
            }
            Moving::In { in_syscall } => {
                self.tasks[task].in_syscall = in_syscall;
                self.tasks[task].lab.moving = Moving::No;
                self.unlock(task, lock);
                return true;
            }
        };
        let step = match next {
            Moving::Enters { .. } => Step::MoveEnter,
            Moving::Moved { .. } => Step::Moved,
            Moving::In { .. } => Step::MoveOver,
            _ => Step::Move,
        };
        self.spend_in_kernel(task, step);
        if step == Step::Moved {
            self.tasks[task].left_ns += u64::from(self.levels_of(task)) * CHOICE_LEVEL_NS;
        }
        let t = &mut self.tasks[task];
        (t.lab.moving, t.in_syscall) = (next, true);
        t.at.pc -= 1;
        true
    }

    /// Starts the time that a task needs for the next part of its exit. True if it keeps running
    /// for now, false once it may exit. On the way it leaves its autogroup, which charges it and
    /// reschedules (kernel: `do_exit()`, `sched_autogroup_exit_task()`, `sched_move_task()`).
    pub(crate) fn delay_exit(&mut self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        let (cpu, moves) = (t.cpu, t.signals.exiting && !t.lab.has_left_autogroup);
        let exit_ns = match (t.signals.exiting, t.lab.has_left_autogroup) {
            (false, _) => self.delay_ns(Step::ExitMove),
            (true, false) => self.delay_ns(Step::Exit),
            (true, true) => 0,
        };
        if moves && exit_ns > 0 && self.tasks[task].is_fair() {
            self.charge_path(self.ses[self.tasks[task].se].q);
            self.resched(cpu, Resched::Now);
        }
        let t = &mut self.tasks[task];
        t.lab.has_left_autogroup = t.signals.exiting;
        t.signals.exiting = true;
        t.mode = Mode::Kernel;
        t.segment = if exit_ns > 0 { Segment::Run } else { Segment::None };
        t.left_ns = exit_ns;
        self.tell(task, Told::Overhead);
        exit_ns > 0
    }
}
