//! A task of the workload: a process that executes the program of its kind with real work and real
//! system calls.
//!
//! All tasks share memory (see `sys`). A task reads the time-stamp counter where the workload
//! measures something, and makes no system call that the workload does not ask for.

mod call;
mod process;
pub mod rehearsal;

pub use process::{TaskBuffers, start_process};

use crate::channel::token_ns;
use crate::owner::Clock;
use crate::sys;
use crate::work::{SCRATCH_BYTES, read_tsc, spin};
use crate::world::attributes::{
    apply_attributes, initial_attributes, move_task, set_affinity, set_class, set_nice,
};
use crate::world::{Cue, ENDED, Fault, Phase, SLACK_NS, Slot, World};
use cpumax_workload::{Domain, LockMode, Op, Span, Stream, Target};
use process::VECTOR;
use rehearsal::rehearse;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Deepest nesting of loops.
const MAX_LOOPS: usize = 40;
/// Most locks held at once.
const MAX_HELD: usize = 33;

/// Interpreter of one program: its position, its open loops and locks, and its measurements.
pub(crate) struct Task {
    pub world: &'static World,
    pub slot: &'static Slot,
    pub program: &'static [Op],
    pub pc: usize,
    pub random: Stream,
    /// When the current request became ready, ns since the start of the run.
    pub request_start_ns: u64,
    /// When a `begin` step started the current request, ns since the start of the run.
    pub begun_ns: Option<u64>,
    pub started_ns: u64,
    pub activations: u64,
    pub last_stamp: u64,
    /// CPU time used beyond what the program asked for, ns; the next work is shorter by that.
    pub overrun_ns: i64,
    /// Work that the program asked for so far, ns.
    asked_ns: u64,
    /// CPU time before the first step, ns.
    used_before_ns: i64,
    loops: [u64; MAX_LOOPS],
    depth: usize,
    held: [(u32, LockMode); MAX_HELD],
    holds: usize,
    whole_calls: bool,
}

/// Entry of a task's process, with the index of its slot: waits for its cue, rehearses when told
/// to, runs its program once the cue is to begin, exits.
extern "C" fn task_main(ix: usize) -> ! {
    let world = World::installed();
    let slot = &world.slots[ix];
    if world.die_with_parent {
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
    }
    loop {
        match slot.cue.load(Relaxed) {
            go if go == Cue::Begin as u32 => break,
            go if go == Cue::Rehearse as u32 => rehearse(world, slot),
            wait => drop(sys::futex_wait(slot.cue.as_ptr(), wait, u32::MAX)),
        }
    }
    let started_ns = slot.start_at_ns.load(Relaxed);
    world.kind_counts[slot.kind.load(Relaxed) as usize].note_first_cpu(slot.instance.load(Relaxed));
    let mut task = Task::new(world, slot, started_ns);
    slot.task.store(&raw mut task, Relaxed);
    task.run_program();
    task.end()
}

impl Task {
    /// The interpreter of the task in a slot, at the start of its program, which begins
    /// `started_ns` after the start of the run. This and the functions below are not inlined, so a
    /// rehearsal executes the machine code of the run.
    #[inline(never)]
    pub fn new(world: &'static World, slot: &'static Slot, started_ns: u64) -> Task {
        let kind = slot.kind.load(Relaxed) as usize;
        let spec = &world.workload.tasks[kind];
        let is_forked = spec.count == 0;
        // CPU time of fork and exit.
        let overrun_ns = if is_forked { world.speed.child_ns as i64 } else { 0 };
        let used_ns = if world.is_exact { 0 } else { cpu_time_ns() };
        Task {
            world,
            slot,
            program: &spec.program,
            pc: 0,
            random: Stream::new(world.seed, Domain::Task, slot.number.load(Relaxed)),
            request_start_ns: started_ns,
            begun_ns: None,
            started_ns,
            activations: 0,
            last_stamp: world.start_stamp.load(Relaxed) + world.speed.stamps(started_ns),
            overrun_ns,
            asked_ns: 0,
            used_before_ns: used_ns - overrun_ns,
            loops: [0; MAX_LOOPS],
            depth: 0,
            held: [(0, LockMode::Read); MAX_HELD],
            holds: 0,
            whole_calls: world.plan.whole_calls[kind],
        }
    }

    /// Executes the program from `pc` on to its end, or to an `Exit`.
    #[inline(never)]
    pub fn run_program(&mut self) {
        self.account_time(0);
        while let Some(&op) = self.program.get(self.pc) {
            self.pc += 1;
            if op == Op::Exit {
                break;
            }
            self.execute(op);
        }
    }

    /// Executes one instruction by real work and system calls, blocking where it waits; `pc` is
    /// behind it already. After a system call it compares CPU time used with that asked for, so
    /// that the next work makes up for the difference.
    #[inline(never)]
    pub fn execute(&mut self, op: Op) {
        match op {
            Op::User(span) => self.user_time(span),
            Op::Kernel(span) => self.kernel_alone(span),
            Op::EnterKernel if self.whole_calls => self.execute_call(),
            Op::Sleep(span) => self.sleep(span),
            Op::Every { period_ns } => self.sleep_to_next_period(period_ns),
            Op::Lock { lock, mode } => self.lock(lock, mode),
            Op::Unlock { lock } => self.unlock(lock),
            Op::Send { channel, n } => self.send(channel, n),
            Op::Recv { channel, n } => self.receive(channel, n),
            Op::Fork { kind } => self.fork(kind),
            Op::WaitChildren => self.wait_children(),
            Op::Yield => sys::yield_now(),
            Op::Move { who, group } => {
                self.for_each_target(who, |w, slot| move_task(w, slot, group));
            }
            Op::SetAffinity { who, cpus } => {
                self.for_each_target(who, |w, slot| set_affinity(w, slot, cpus as u16 + 1));
            }
            Op::SetNice { who, nice } => self.for_each_target(who, |_, slot| set_nice(slot, nice)),
            Op::SetClass { who, class } => {
                self.for_each_target(who, |_, slot| set_class(slot, class));
            }
            Op::Begin => self.begun_ns = Some(self.world.now_ns()),
            Op::Done => self.complete_request(self.world.now_ns()),
            Op::LoopStart { times, end } => self.loop_start(times, end),
            Op::LoopEnd { start } => self.loop_end(start),
            // The plan refuses these.
            Op::EnterKernel
            | Op::ExitKernel
            | Op::IrqOff(_)
            | Op::Exit
            | Op::Serve { .. }
            | Op::Post { .. }
            | Op::After { .. } => {}
        }
        // Reading the CPU time is a system call, so it happens only right after one.
        if op.is_call() && !self.world.is_exact {
            self.overrun_ns = cpu_time_ns() - self.used_before_ns - self.asked_ns as i64;
        }
    }

    /// Works in user mode for a drawn length, in chunks of the calibrated loop, and accounts for
    /// it. Waits for a CPU do not count as work.
    fn user_time(&mut self, span: Span) {
        let speed = &self.world.speed;
        let mut left_ns = self.draw_work(span);
        self.set_phase(Phase::Ready, left_ns.min(speed.chunk_ns));
        while left_ns > 0 {
            let turns = speed.turns(left_ns);
            if turns <= speed.chunk_turns {
                spin(turns);
                self.account_work(left_ns);
                return;
            }
            spin(speed.chunk_turns);
            let done_ns = self.account_time(speed.chunk_ns);
            left_ns = left_ns.saturating_sub(done_ns);
            self.slot.needs_ns.store(left_ns.min(speed.chunk_ns), Relaxed);
        }
    }

    /// Spends kernel time of a drawn length in a system call of its own: reads as many random bytes
    /// as take that long. Accounts for it; a failure is noted as the run's fault.
    pub fn kernel_alone(&mut self, span: Span) {
        let ns = self.draw_work(span);
        self.set_phase(Phase::Ready, ns);
        let world = self.world;
        let (mut left, in_several) = world.speed.read_bytes(ns);
        while left > 0 {
            let got = if !in_several {
                sys::read(world.files.random, world.scratch, left)
            } else if left <= SCRATCH_BYTES {
                // An empty second buffer makes it a read into several buffers, of calibrated cost.
                let of = |iov_len| libc::iovec { iov_base: world.scratch.cast(), iov_len };
                let two = [of(left), of(0)];
                sys::readv(world.files.random, two.as_ptr(), two.len())
            } else {
                let (vector, n) = self.vector(left);
                sys::readv(world.files.random, vector, n)
            };
            // A signal shortens a read.
            left = match got {
                1.. => left.saturating_sub(got as usize),
                _ if got == -(libc::EINTR as isize) => left,
                _ => return world.note_fault(Fault::Call, got),
            };
        }
        self.account_work(ns);
    }

    /// Spends `ns` of kernel time under an inode's lock: one write of the calibrated length.
    /// Accounts for it; a failure is noted as the run's fault.
    pub fn write_alone(&mut self, lock: u32, ns: u64) {
        let world = self.world;
        let file = world.locks[lock as usize].file;
        let bytes = world.speed.write_bytes(ns, true).max(1);
        self.set_phase(Phase::Blocked, ns);
        let written = if bytes <= SCRATCH_BYTES {
            sys::pwrite(file, world.scratch, bytes, 0)
        } else {
            let (vector, n) = self.vector(bytes);
            sys::pwritev(file, vector, n)
        };
        if written < 0 {
            world.note_fault(Fault::Call, written);
        }
        self.account_work(ns);
    }

    /// Spends `ns` of kernel time under `mmap_lock`: one mprotect(2) or madvise(2). Accounts for
    /// it; a failure is noted as the run's fault.
    pub fn hold_memory_map(&mut self, mode: LockMode, ns: u64) {
        let world = self.world;
        let Some(map) = world.memory_map.get() else { return };
        self.set_phase(Phase::Blocked, ns);
        let held = map.hold(mode, ns);
        if held < 0 {
            world.note_fault(Fault::Call, held);
        }
        self.account_work(ns);
    }

    /// Takes the owner lock of `/dev/rtc0` for a moment in one fcntl(2), which reads the owner, or
    /// sets it to the same value. The call stands for `ns` of kernel time, which is accounted for.
    /// The call's own length cannot be chosen; later work makes up for the difference. A failure is
    /// noted as the run's fault.
    pub fn hold_owner_lock(&mut self, clock: &Clock, mode: LockMode, ns: u64) {
        self.asked_ns += ns;
        self.set_phase(Phase::Blocked, ns);
        let asked = clock.take_lock_once(mode, self.world.pid);
        if asked < 0 {
            self.world.note_fault(Fault::Call, asked);
        }
        self.account_work(ns);
    }

    /// Sets up the task's vector of buffers for `bytes`, or for the most that one call takes;
    /// returns its address and number of elements.
    pub fn vector(&mut self, bytes: usize) -> (*const libc::iovec, usize) {
        // SAFETY: this is the task of the slot.
        let own = unsafe { &mut *self.slot.buffers.get() };
        let whole = (bytes / SCRATCH_BYTES).min(VECTOR - 1);
        let rest = if whole == VECTOR - 1 { 0 } else { bytes % SCRATCH_BYTES };
        own.vector[0].iov_len = rest;
        (own.vector.as_ptr(), whole + 1)
    }

    /// Sleeps for a drawn length and accounts for the wakeup. The end that was due begins the next
    /// request.
    fn sleep(&mut self, span: Span) {
        let ns = self.draw(span);
        let due_ns = self.world.now_ns() + ns;
        self.request_start_ns = due_ns;
        self.set_phase(Phase::Asleep, 0);
        if sys::sleep_for(ns) < 0 {
            self.sleep_on(due_ns);
        }
        self.account_wakeup(due_ns);
    }

    /// Counts one more activation and sleeps until that many periods after the task's start; not at
    /// all if that has passed. The due time begins the next request; the wakeup is accounted for.
    fn sleep_to_next_period(&mut self, period_ns: u64) {
        self.activations += 1;
        let due_ns = self.started_ns.saturating_add(period_ns.saturating_mul(self.activations));
        self.request_start_ns = due_ns;
        if due_ns > self.world.now_ns() {
            self.set_phase(Phase::Asleep, 0);
            self.sleep_on(due_ns);
            self.account_wakeup(due_ns);
        }
    }

    /// Sleeps until `due_ns` since the start of the run, also when signals interrupt.
    fn sleep_on(&self, due_ns: u64) {
        let at_ns = self.world.start_ns.load(Relaxed).saturating_add(due_ns);
        while sys::sleep_until(at_ns) == -(libc::EINTR as isize) {}
    }

    /// Accounts for the end of a sleep that was due at `due_ns` since the start of the run: its CPU
    /// time counts against the next work, its lateness goes into the histogram, and the time since
    /// then is a wait for a CPU.
    pub fn account_wakeup(&mut self, due_ns: u64) {
        self.overrun_ns += self.world.speed.sleep_ns as i64;
        let due = self.world.start_stamp.load(Relaxed) + self.world.speed.stamps(due_ns);
        if !self.world.is_exact {
            self.world.lateness.count(self.world.speed.ns(read_tsc().saturating_sub(due)));
        }
        self.last_stamp = self.last_stamp.max(due);
        self.account_time(0);
    }

    /// Takes a lock from user mode, waiting for it as long as needed, notes it as held, and
    /// accounts for the wait. Mutexes and spin locks are always taken for writing, whatever `mode`
    /// says.
    fn lock(&mut self, lock: u32, mode: LockMode) {
        let mode = self.lock_mode(lock, mode);
        self.set_phase(Phase::Blocked, 0);
        self.world.locks[lock as usize].take(mode);
        self.note_held(lock, mode);
        self.account_time(0);
    }

    /// Releases a lock in the mode in which this task holds it, and notes that; does nothing if it
    /// does not.
    fn unlock(&mut self, lock: u32) {
        if let Some(mode) = self.note_released(lock) {
            self.world.locks[lock as usize].release(mode);
        }
    }

    /// Adds a lock to those that this task holds; drops it beyond the most that it may hold.
    pub fn note_held(&mut self, lock: u32, mode: LockMode) {
        if let Some(held) = self.held.get_mut(self.holds) {
            *held = (lock, mode);
            self.holds += 1;
        }
    }

    /// Removes a lock from those that this task holds, and returns its mode; `None` if it does not
    /// hold it.
    pub fn note_released(&mut self, lock: u32) -> Option<LockMode> {
        let held = &mut self.held[..self.holds];
        let at = held.iter().rposition(|(taken, _)| *taken == lock)?;
        let (_, mode) = held[at];
        held.copy_within(at + 1.., at);
        self.holds -= 1;
        Some(mode)
    }

    /// The mode in which a lock is taken: always `Write` for mutexes and spin locks, which have no
    /// readers.
    pub fn lock_mode(&self, lock: u32, mode: LockMode) -> LockMode {
        use cpumax_workload::LockKind::{Mutex, Spin};
        match self.world.workload.locks[lock as usize].kind {
            Mutex | Spin => LockMode::Write,
            _ => mode,
        }
    }

    /// Sends `n` tokens stamped now; in a bounded channel it waits for credits first. Accounts for
    /// the time.
    fn send(&mut self, channel: u32, n: u64) {
        let channel = &self.world.channels[channel as usize];
        if channel.credits[0] < 0 {
            self.set_phase(Phase::Ready, 0);
            channel.send(n, self.world.now_ns());
            self.account_work(0);
        } else {
            // It may have waited for credits.
            self.set_phase(Phase::Asleep, 0);
            channel.send(n, self.world.now_ns());
            self.restart_accounting();
        }
    }

    /// Receives `n` tokens, waiting for them, and accounts for that. The arrival of the last one
    /// begins the next request.
    fn receive(&mut self, channel: u32, n: u64) {
        let world = self.world;
        let from_ns = world.now_ns();
        self.set_phase(Phase::Asleep, 0);
        let token = world.channels[channel as usize].receive(n);
        self.account_received(token, from_ns);
    }

    /// Accounts for tokens received by a call that began at `from_ns` (since the start of the run).
    /// `token`, the last one, tells when it was sent: that begins the next request, and if it was
    /// after `from_ns`, the wait for a CPU counts from then.
    pub fn account_received(&mut self, token: u64, from_ns: u64) {
        let world = self.world;
        let came_ns = token_ns(token, &world.clock, world.start_ns.load(Relaxed));
        self.request_start_ns = came_ns;
        let since_ns = came_ns.max(from_ns);
        let waited = came_ns > from_ns;
        let since = world.start_stamp.load(Relaxed) + world.speed.stamps(since_ns);
        self.last_stamp = self.last_stamp.max(since);
        if waited {
            self.overrun_ns += world.speed.sleep_ns as i64;
            self.account_time(0);
        } else {
            self.account_work(0);
        }
    }

    /// Starts a task of this kind in the caller's group; it inherits attributes, then gets its
    /// kind's. Notes a fault if there is no free slot, or the kernel refuses.
    fn fork(&mut self, kind: u32) {
        let world = self.world;
        let Some(slot) = world.take_slot(kind, self.slot.group.load(Relaxed)) else {
            world.note_fault(Fault::TooManyTasks, 0);
            return;
        };
        slot.start_at_ns.store(world.now_ns(), Relaxed);
        slot.cue.store(Cue::Begin as u32, Relaxed);
        let mine = self.slot.attributes.load(Relaxed);
        slot.attributes.store(mine, Relaxed);
        let pid = start_process(world, slot, None);
        if pid < 0 {
            world.note_fault(Fault::Start, pid);
            return;
        }
        let spec = &world.workload.tasks[kind as usize];
        if mine != initial_attributes(spec) {
            apply_attributes(world, slot, spec);
        }
        self.account_work(0);
    }

    /// Waits until all children have exited, adds their counts to their kinds and frees their
    /// slots.
    fn wait_children(&mut self) {
        self.set_phase(Phase::Asleep, 0);
        loop {
            // SAFETY: all zeroes is a value of it.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            let pid = sys::wait_child(0, &raw mut usage);
            if pid > 0 {
                self.world.account_reaped(pid as i32, &usage);
                self.overrun_ns += self.world.speed.reap_ns as i64;
            } else if pid != -(libc::EINTR as isize) {
                break;
            }
        }
        self.restart_accounting();
    }

    /// Calls `act` for this task, or for each living task of a kind.
    fn for_each_target(&self, who: Target, act: impl Fn(&World, &Slot)) {
        match who {
            Target::Myself => act(self.world, self.slot),
            Target::Kind(kind) => self.world.each_living(kind, |slot| act(self.world, slot)),
        }
    }

    /// Completes the request under way at `now_ns`, logs its latency with the task's kind and
    /// group, and begins the next one.
    pub fn complete_request(&mut self, now_ns: u64) {
        let start_ns = self.begun_ns.take().unwrap_or(self.request_start_ns);
        let latency_ns = now_ns.saturating_sub(start_ns);
        self.request_start_ns = now_ns;
        let (kind, group) = (self.slot.kind.load(Relaxed), self.slot.group.load(Relaxed));
        self.world.log.push(kind, group, latency_ns);
    }

    /// Draws the length of the next work, ns, and shortens it by CPU time used in excess before.
    pub fn draw_work(&mut self, span: Span) -> u64 {
        let ns = self.draw(span);
        self.asked_ns += ns;
        let left_ns = ns.saturating_add_signed(-self.overrun_ns);
        self.overrun_ns += left_ns as i64 - ns as i64;
        left_ns
    }

    /// Draws the length of the next work under a lock, ns, shortened as by `draw_work()`; not in an
    /// exact run, where the calibrated work takes just as long as asked for.
    pub fn draw_locked_work(&mut self, span: Span) -> u64 {
        if self.world.is_exact { self.draw(span) } else { self.draw_work(span) }
    }

    /// Accounts for work since the last look at the counter that needed `needed_ns`, and for a wait
    /// beyond it; the next work makes up for a smaller difference.
    pub fn account_work(&mut self, needed_ns: u64) {
        let took_ns = self.account_time(needed_ns);
        self.overrun_ns += took_ns as i64 - needed_ns as i64;
    }

    /// Draws a length of time, ns, from this task's random stream.
    pub fn draw(&mut self, span: Span) -> u64 {
        span.draw(&self.world.workload.distributions, &mut self.random)
    }

    /// Enters a loop of `times` rounds, or sets `pc` behind its `end` if it has none. `u64::MAX`
    /// rounds never end.
    pub fn loop_start(&mut self, times: u64, end: u32) {
        if times == 0 {
            self.pc = end as usize + 1;
        } else if let Some(rounds) = self.loops.get_mut(self.depth) {
            *rounds = times;
            self.depth += 1;
        }
    }

    /// Sets `pc` to the first instruction of the loop at `start`, or leaves the loop after its last
    /// round.
    pub fn loop_end(&mut self, start: u32) {
        let Some(rounds) = self.depth.checked_sub(1).and_then(|top| self.loops.get_mut(top)) else {
            return;
        };
        if *rounds == u64::MAX {
            self.pc = start as usize + 1;
        } else if *rounds > 1 {
            *rounds -= 1;
            self.pc = start as usize + 1;
        } else {
            self.depth -= 1;
        }
    }

    /// Publishes in the slot what the task is about to do, and the CPU time that takes at least,
    /// ns.
    pub fn set_phase(&self, phase: Phase, needs_ns: u64) {
        self.slot.phase.store(phase as u32, Relaxed);
        self.slot.needs_ns.store(needs_ns, Relaxed);
    }

    /// Accounts for the time since the last look at the counter, of which `needed_ns` were work.
    /// More than [`SLACK_NS`] beyond that was a wait for a CPU or lock: it goes into the slot's
    /// wait and stall times. Returns the time worked, ns. The next phase is ready.
    #[inline(never)]
    pub fn account_time(&mut self, needed_ns: u64) -> u64 {
        let now = read_tsc();
        let took_ns = self.world.speed.ns(now.saturating_sub(self.last_stamp));
        self.last_stamp = now.max(self.last_stamp);
        self.slot.last_stamp.store(self.last_stamp, Relaxed);
        let phase = self.slot.phase.swap(Phase::Ready as u32, Relaxed);
        let waited_ns = took_ns.saturating_sub(needed_ns);
        if waited_ns <= SLACK_NS {
            return took_ns;
        }
        if self.world.sees_stall(phase, needed_ns) {
            self.slot.stall_ns.fetch_max(waited_ns, Relaxed);
        }
        if phase != Phase::Blocked as u32 {
            self.slot.wait_ns.fetch_add(waited_ns, Relaxed);
        }
        needed_ns
    }

    /// Restarts the accounting now, after a wait for others whose end is unknown: the time before
    /// counts neither as work nor as a wait.
    pub fn restart_accounting(&mut self) {
        self.last_stamp = read_tsc();
        self.slot.last_stamp.store(self.last_stamp, Relaxed);
        self.slot.phase.store(Phase::Ready as u32, Relaxed);
    }

    /// Counts the exit, marks the slot as ended, and exits the process.
    fn end(self) -> ! {
        let kind = self.slot.kind.load(Relaxed) as usize;
        let counts = &self.world.kind_counts[kind];
        counts.note_exit(self.world.now_ns());
        self.slot.state.store(ENDED, Release);
        sys::exit(0)
    }
}

/// CPU time of the calling task, ns (`CLOCK_THREAD_CPUTIME_ID`).
pub fn cpu_time_ns() -> i64 {
    sys::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) as i64
}
