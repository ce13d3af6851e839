//! What calls take beside what they are for, under noise: to go to sleep, to wait for a token, to
//! ask for a lock, to change how important a task is, to move it, to end it, to let others have a
//! lock.

use crate::cpu::Resched;
use crate::ids::{CpuId, GroupId, LockId, TaskId};
use crate::lock::Lock;
use crate::machine::{Event, Machine};
use crate::noise::Kind;
use crate::task::{Code, Mode, Moving, Segment};
use cpumax_workload::{LockKind, LockMode, Op, Target};

/// What the guest takes a sleep to cost beyond the call, ns: the switch to who is woken.
const WAKES_NS: u64 = 3_000;
/// From a move, or a change of importance, to the choice of who runs, for each level of groups, ns.
const CHOICE_LEVEL_NS: u64 = 1_700;
/// So much longer than it should is work under a lock, its way there included, ns.
const LOCKED_NS: u64 = 1_500;

impl Machine<'_> {
    /// A task that goes to sleep needs some time for that: true if it goes on for now.
    pub(crate) fn still_goes(&mut self, task: TaskId) -> bool {
        if self.noise.is_none() || self.tasks[task].code != Code::Kind {
            return false;
        }
        self.tasks[task].going_ns = self.takes(task, Kind::Sleep) as u16;
        true
    }

    /// A task needs some time in the kernel, how long, ns, and works as much less afterwards:
    /// always where it asks what it has used, or the guest knows what the call takes, elsewhere as
    /// its clock shows it.
    pub(crate) fn takes(&mut self, task: TaskId, kind: Kind) -> u64 {
        let ns = self.noise_ns(kind);
        let t = &mut self.tasks[task];
        (t.mode, t.segment, t.left_ns) = (Mode::Kernel, Segment::Run, ns);
        t.works = false;
        t.first_page_ns = None;
        if self.asks_for_use {
            t.owes_ns += ns as i64;
        } else if kind == Kind::Sleep {
            t.owes_ns += (ns + WAKES_NS) as i64;
        } else {
            t.calls_since_ns = t.calls_since_ns.min(self.now);
        }
        ns
    }

    /// A task is in a call that needs some time before it does what it is for: true if it goes on
    /// for now, and comes to it again.
    pub(crate) fn comes_again(&mut self, task: TaskId, kind: Kind) -> bool {
        if self.noise.is_none() || self.tasks[task].code != Code::Kind {
            return false;
        }
        let again = !self.tasks[task].again;
        self.tasks[task].again = again;
        if again {
            self.takes(task, kind);
            self.tasks[task].pc -= 1;
        }
        again
    }

    /// A call needs some time until it asks for a lock, which is part of its length.
    pub(crate) fn enters(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let next = self.program_of(task).get(t.pc as usize);
        if self.noise.is_none() || !matches!(next, Some(Op::Lock { .. })) {
            return;
        }
        let calls_since_ns = self.tasks[task].calls_since_ns;
        let ns = self.takes(task, Kind::Enter);
        if !self.asks_for_use {
            let t = &mut self.tasks[task];
            t.calls_since_ns = calls_since_ns;
            t.entered_ns = ns.saturating_sub(LOCKED_NS) as u32;
        }
    }

    /// A task has changed how important it is itself, and is on its way out of the kernel, where
    /// the CPU chooses anew.
    pub(crate) fn leaves_call(&mut self, task: TaskId, who: Target) {
        let cpu = self.tasks[task].cpu;
        if self.noise.is_none() || who != Target::Myself || self.cpus[cpu].curr != task {
            return;
        }
        let levels_ns = u64::from(self.levels_of(task)) * CHOICE_LEVEL_NS;
        let ns = self.chooses_later(cpu, Kind::Changed, levels_ns);
        if self.asks_for_use {
            let t = &mut self.tasks[task];
            t.owes_ns += ns as i64;
        }
    }

    /// A task is at the end of a call. If its CPU is to choose anew, that takes some time there, as
    /// it does at the end of an interrupt (kernel: `exit_to_user_mode_loop()`).
    pub(crate) fn returns(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        let c = &self.cpus[cpu];
        if self.noise.is_some() && c.curr == task && c.resched != Resched::No {
            self.chooses_later(cpu, Kind::Return, 0);
        }
    }

    /// The CPU is to choose anew when some time has passed, and so much more, in which nobody makes
    /// progress: how much, ns.
    fn chooses_later(&mut self, cpu: CpuId, kind: Kind, more_ns: u64) -> u64 {
        let ns = self.noise_ns(kind) + more_ns;
        let c = &mut self.cpus[cpu];
        c.leaves_irq_ns = c.leaves_irq_ns.max(self.now + ns);
        c.stolen_ns += ns;
        c.tick_took_ns = 0;
        ns
    }

    /// Who lets in several readers wakes one after the other, and does nothing else meanwhile
    /// (kernel: `wake_up_q()`): true for one whose turn comes later.
    pub(crate) fn wakes_later(&mut self, task: TaskId) -> bool {
        if self.noise.is_none() || self.cpus.len() > 1 {
            return false;
        }
        let cpu = CpuId(0);
        let ns = self.noise_ns(Kind::WakeToo);
        let c = &mut self.cpus[cpu];
        c.leaves_irq_ns = c.leaves_irq_ns.max(self.now) + ns;
        let turn_ns = c.leaves_irq_ns;
        self.interrupted(cpu, Kind::WakeToo, ns);
        self.heap.push(turn_ns, Event::WakeReader { task });
        true
    }

    /// The work that a task begins in the kernel is one request of a list, where a lock is a token:
    /// to take it and put it back is in no length.
    pub(crate) fn goes_down_list(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let program = self.program_of(task);
        let before = t.pc.checked_sub(2).and_then(|at| program.get(at as usize));
        let Some(&Op::Lock { lock, .. }) = before else { return };
        let lock = &self.locks[LockId(lock)];
        let is_token = !lock.written && matches!(lock.kind, LockKind::Mutex | LockKind::Rwsem);
        if self.noise.is_some() && !self.asks_for_use && t.in_syscall && is_token {
            let (cpu, ns) = (t.cpu, self.noise_ns(Kind::Enter));
            self.cpus[cpu].stolen_ns += ns;
        }
    }

    /// The lock that moves hold.
    fn move_lock(&self) -> LockId {
        LockId(self.workload.locks.len() as u32)
    }

    pub(crate) fn build_move_lock(&mut self) {
        if self.noise.is_some() {
            // An rwsem that is not handed over, on any kernel: who is handed a lock does not ask
            // for it again, and so would not begin to move.
            self.locks.push(Lock::new(LockKind::Rwsem, true, false));
        }
    }

    /// A task that moves itself needs some time for that, and nobody else moves in it: true where
    /// this does all that has to be done, step by step. Where tasks fork, they and who moves pass
    /// `cgroup_threadgroup_rwsem` instead.
    pub(crate) fn still_moves(&mut self, task: TaskId, group: GroupId) -> bool {
        if self.noise.is_none() || self.threadgroup.is_some() {
            return false;
        }
        let lock = self.move_lock();
        let t = &self.tasks[task];
        let next = match t.moving {
            Moving::No => Moving::Enters { in_syscall: t.in_syscall },
            Moving::Enters { in_syscall } => {
                // Who has to wait is woken to try again.
                self.lock(task, lock, LockMode::Write);
                if !self.locks[lock].holders.contains(&task) {
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
                self.tasks[task].moving = Moving::No;
                self.unlock(task, lock);
                return true;
            }
        };
        let kind = match next {
            Moving::Enters { .. } => Kind::MoveEnter,
            Moving::Moved { .. } => Kind::Moved,
            Moving::In { .. } => Kind::MoveOver,
            _ => Kind::Move,
        };
        self.takes(task, kind);
        if kind == Kind::Moved {
            self.tasks[task].left_ns += u64::from(self.levels_of(task)) * CHOICE_LEVEL_NS;
        }
        let t = &mut self.tasks[task];
        (t.moving, t.in_syscall) = (next, true);
        t.pc -= 1;
        true
    }

    /// A task that ends needs some time for that: true if it goes on for now. On the way it leaves
    /// its autogroup, and so is charged, and its CPU is to choose anew (kernel: `do_exit()`,
    /// `sched_autogroup_exit_task()`, `sched_move_task()`).
    pub(crate) fn still_exits(&mut self, task: TaskId) -> bool {
        let t = &self.tasks[task];
        let (cpu, moves) = (t.cpu, t.exiting && !t.left_autogroup);
        let exit_ns = match (t.exiting, t.left_autogroup) {
            (false, _) => self.noise_ns(Kind::ExitMove),
            (true, false) => self.noise_ns(Kind::Exit),
            (true, true) => 0,
        };
        if moves && exit_ns > 0 && self.tasks[task].is_fair() {
            self.charge_path(self.ses[self.tasks[task].se].q);
            self.resched(cpu, Resched::Now);
        }
        let t = &mut self.tasks[task];
        t.left_autogroup = t.exiting;
        t.exiting = true;
        t.works = false;
        t.mode = Mode::Kernel;
        t.segment = if exit_ns > 0 { Segment::Run } else { Segment::None };
        t.left_ns = exit_ns;
        exit_ns > 0
    }
}
