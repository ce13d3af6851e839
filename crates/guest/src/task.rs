//! A task: executes the program of its kind with real work and real system calls.
//!
//! It runs in a process of its own that shares memory with all others (see `sys`), looks at the
//! counter where the workload measures, and makes no system call that the workload does not ask
//! for.

use crate::attributes::{
    apply_attributes, attributes_of, move_task, set_affinity, set_class, set_nice,
};
use crate::call::Call;
use crate::channel::token_ns;
use crate::owner::Clock;
use crate::rehearsal::rehearse;
use crate::sys;
use crate::work::{SCRATCH_BYTES, stamp, turn};
use crate::world::{Cue, ENDED, Fault, Phase, Slot, World};
use cpumax_workload::{Domain, LockMode, Op, Span, Stream, Target};
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Deepest nesting of loops.
const LOOPS: usize = 40;
/// Most locks held at once.
const HELD: usize = 33;
/// What ends later than this after it could have is a stall, ns.
pub const SLACK_NS: u64 = 50_000;
/// Elements of a vector for one read or write.
pub const VECTOR: usize = 1024;

/// What belongs to one task alone.
pub struct Own {
    /// First the rest, then whole buffers.
    pub vector: [libc::iovec; VECTOR],
    /// What it needs for lists of requests.
    pub call: Call,
}

// SAFETY: the pointers in it are to memory that lives as long as the process.
unsafe impl Send for Own {}

pub(crate) struct Task {
    pub world: &'static World,
    pub slot: &'static Slot,
    pub program: &'static [Op],
    pub pc: usize,
    pub random: Stream,
    /// ns since the start of the run.
    pub request_start_ns: u64,
    /// When its program said that the request under way starts, ns.
    pub begun_ns: Option<u64>,
    pub started_ns: u64,
    pub activations: u64,
    pub last_stamp: u64,
    /// CPU time that was taken beyond what the program says, which the next work is shorter by, ns.
    pub owes_ns: i64,
    /// Work that its program asked for so far, and CPU time it had used before that, ns.
    asked_ns: u64,
    used_before_ns: i64,
    loops: [u64; LOOPS],
    depth: usize,
    held: [(u32, LockMode); HELD],
    holds: usize,
    whole_calls: bool,
}

/// First instruction of a new process.
pub(crate) extern "C" fn body(ix: usize) -> ! {
    let world = World::installed();
    let slot = &world.slots[ix];
    if world.die_with_parent {
        sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as usize);
    }
    loop {
        match slot.go.load(Relaxed) {
            go if go == Cue::Begin as u32 => break,
            go if go == Cue::Rehearse as u32 => rehearse(world, slot),
            wait => drop(sys::futex_wait(slot.go.as_ptr(), wait, u32::MAX)),
        }
    }
    let started_ns = slot.start_at_ns.load(Relaxed);
    world.tallies[slot.kind.load(Relaxed) as usize].begins(slot.instance.load(Relaxed));
    let mut task = Task::new(world, slot, started_ns);
    slot.task.store(&raw mut task, Relaxed);
    task.go();
    task.end()
}

impl Task {
    /// The task of a slot, which begins so long after the start of the run. It is not inlined, nor
    /// are those below, so that the code of the run is that of the rehearsal.
    #[inline(never)]
    pub fn new(world: &'static World, slot: &'static Slot, started_ns: u64) -> Task {
        let kind = slot.kind.load(Relaxed) as usize;
        let spec = &world.workload.tasks[kind];
        let is_forked = spec.count == 0;
        // What it takes to be forked and to exit.
        let owes_ns = if is_forked { world.speed.child_ns as i64 } else { 0 };
        let used_ns = if world.is_exact { 0 } else { used_ns() };
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
            owes_ns,
            asked_ns: 0,
            used_before_ns: used_ns - owes_ns,
            loops: [0; LOOPS],
            depth: 0,
            held: [(0, LockMode::Read); HELD],
            holds: 0,
            whole_calls: world.plan.whole_calls[kind],
        }
    }

    /// Executes its program.
    #[inline(never)]
    pub fn go(&mut self) {
        self.settle(0);
        while let Some(&op) = self.program.get(self.pc) {
            self.pc += 1;
            if op == Op::Exit {
                break;
            }
            self.execute(op);
        }
    }

    #[inline(never)]
    pub fn execute(&mut self, op: Op) {
        match op {
            Op::User(span) => self.user(span),
            Op::Kernel(span) => self.kernel_alone(span),
            Op::EnterKernel if self.whole_calls => self.call(),
            Op::Sleep(span) => self.sleep(span),
            Op::Every { period_ns } => self.every(period_ns),
            Op::Lock { lock, mode } => self.lock(lock, mode),
            Op::Unlock { lock } => self.unlock(lock),
            Op::Send { channel, n } => self.send(channel, n),
            Op::Recv { channel, n } => self.receive(channel, n),
            Op::Fork { kind } => self.fork(kind),
            Op::WaitChildren => self.wait_children(),
            Op::Yield => sys::yield_now(),
            Op::Move { who, group } => self.each(who, |w, slot| move_task(w, slot, group)),
            Op::SetAffinity { who, cpus } => {
                self.each(who, |w, slot| set_affinity(w, slot, cpus as u16 + 1));
            }
            Op::SetNice { who, nice } => self.each(who, |_, slot| set_nice(slot, nice)),
            Op::SetClass { who, class } => self.each(who, |_, slot| set_class(slot, class)),
            Op::Begin => self.begun_ns = Some(self.world.now_ns()),
            Op::Done => self.done(self.world.now_ns()),
            Op::LoopStart { times, end } => self.loop_start(times, end),
            Op::LoopEnd { start } => self.loop_end(start),
            // The plan refuses what is not done here.
            Op::EnterKernel
            | Op::ExitKernel
            | Op::IrqOff(_)
            | Op::Exit
            | Op::Serve { .. }
            | Op::Post { .. }
            | Op::After { .. } => {}
        }
        // To look is a call, so only behind one.
        if op.is_call() && !self.world.is_exact {
            self.owes_ns = used_ns() - self.used_before_ns - self.asked_ns as i64;
        }
    }

    fn user(&mut self, span: Span) {
        let speed = &self.world.speed;
        let mut left_ns = self.work(span);
        self.set(Phase::Ready, left_ns.min(speed.chunk_ns));
        while left_ns > 0 {
            let turns = speed.turns(left_ns);
            if turns <= speed.chunk_turns {
                turn(turns);
                self.settle_work(left_ns);
                return;
            }
            turn(speed.chunk_turns);
            let done_ns = self.settle(speed.chunk_ns);
            left_ns = left_ns.saturating_sub(done_ns);
            self.slot.needs_ns.store(left_ns.min(speed.chunk_ns), Relaxed);
        }
    }

    /// Kernel time in a system call of its own.
    pub fn kernel_alone(&mut self, span: Span) {
        let ns = self.work(span);
        self.set(Phase::Ready, ns);
        let world = self.world;
        let (mut left, in_several) = world.speed.read_bytes(ns);
        while left > 0 {
            let got = if !in_several {
                sys::read(world.files.random, world.scratch, left)
            } else if left <= SCRATCH_BYTES {
                // With an empty one these are several, too.
                let of = |iov_len| libc::iovec { iov_base: world.scratch.cast(), iov_len };
                let two = [of(left), of(0)];
                sys::readv(world.files.random, two.as_ptr(), two.len())
            } else {
                let (vector, n) = self.vector(left);
                sys::readv(world.files.random, vector, n)
            };
            // Shorter than asked for when a signal stopped it.
            left = match got {
                1.. => left.saturating_sub(got as usize),
                _ if got == -(libc::EINTR as isize) => left,
                _ => return world.fail(Fault::Call, got),
            };
        }
        self.settle_work(ns);
    }

    /// Kernel time under the lock of an inode, in a system call of its own.
    pub fn write_alone(&mut self, lock: u32, ns: u64) {
        let world = self.world;
        let file = world.locks[lock as usize].file;
        let bytes = world.speed.write_bytes(ns, true).max(1);
        self.set(Phase::Blocked, ns);
        let written = if bytes <= SCRATCH_BYTES {
            sys::pwrite(file, world.scratch, bytes, 0)
        } else {
            let (vector, n) = self.vector(bytes);
            sys::pwritev(file, vector, n)
        };
        if written < 0 {
            world.fail(Fault::Call, written);
        }
        self.settle_work(ns);
    }

    /// Kernel time under the lock of the memory map, in a system call of its own.
    pub fn hold_memory_map(&mut self, mode: LockMode, ns: u64) {
        let world = self.world;
        let Some(map) = world.memory_map.get() else { return };
        self.set(Phase::Blocked, ns);
        let held = map.hold(mode, ns);
        if held < 0 {
            world.fail(Fault::Call, held);
        }
        self.settle_work(ns);
    }

    /// Reads or sets the owner of the clock, under the lock of that.
    pub fn ask_owner(&mut self, clock: &Clock, mode: LockMode, ns: u64) {
        self.asked_ns += ns;
        self.set(Phase::Blocked, ns);
        let asked = clock.ask(mode, self.world.pid);
        if asked < 0 {
            self.world.fail(Fault::Call, asked);
        }
        self.settle_work(ns);
    }

    /// A vector of that many bytes, as many as one call takes.
    pub fn vector(&mut self, bytes: usize) -> (*const libc::iovec, usize) {
        // SAFETY: this is the task of the slot.
        let own = unsafe { &mut *self.slot.own.get() };
        let whole = (bytes / SCRATCH_BYTES).min(VECTOR - 1);
        let rest = if whole == VECTOR - 1 { 0 } else { bytes % SCRATCH_BYTES };
        own.vector[0].iov_len = rest;
        (own.vector.as_ptr(), whole + 1)
    }

    fn sleep(&mut self, span: Span) {
        let ns = self.draw(span);
        let due_ns = self.world.now_ns() + ns;
        self.request_start_ns = due_ns;
        self.set(Phase::Asleep, 0);
        if sys::sleep_for(ns) < 0 {
            self.sleep_on(due_ns);
        }
        self.woken(due_ns);
    }

    fn every(&mut self, period_ns: u64) {
        self.activations += 1;
        let due_ns = self.started_ns.saturating_add(period_ns.saturating_mul(self.activations));
        self.request_start_ns = due_ns;
        if due_ns > self.world.now_ns() {
            self.set(Phase::Asleep, 0);
            self.sleep_on(due_ns);
            self.woken(due_ns);
        }
    }

    fn sleep_on(&self, due_ns: u64) {
        let at_ns = self.world.start_ns.load(Relaxed).saturating_add(due_ns);
        while sys::sleep_until(at_ns) == -(libc::EINTR as isize) {}
    }

    /// Back from a sleep that was to end then.
    pub fn woken(&mut self, due_ns: u64) {
        self.owes_ns += self.world.speed.sleep_ns as i64;
        let due = self.world.start_stamp.load(Relaxed) + self.world.speed.stamps(due_ns);
        if !self.world.is_exact {
            self.world.lateness.note(self.world.speed.ns(stamp().saturating_sub(due)));
        }
        self.last_stamp = self.last_stamp.max(due);
        self.settle(0);
    }

    fn lock(&mut self, lock: u32, mode: LockMode) {
        let mode = self.mode(lock, mode);
        self.set(Phase::Blocked, 0);
        self.world.locks[lock as usize].take(mode);
        self.hold(lock, mode);
        self.settle(0);
    }

    fn unlock(&mut self, lock: u32) {
        if let Some(mode) = self.let_go(lock) {
            self.world.locks[lock as usize].release(mode);
        }
    }

    /// Notes a lock as held.
    pub fn hold(&mut self, lock: u32, mode: LockMode) {
        if let Some(held) = self.held.get_mut(self.holds) {
            *held = (lock, mode);
            self.holds += 1;
        }
    }

    /// Notes a lock as no longer held: in which mode it was.
    pub fn let_go(&mut self, lock: u32) -> Option<LockMode> {
        let held = &mut self.held[..self.holds];
        let at = held.iter().rposition(|(taken, _)| *taken == lock)?;
        let (_, mode) = held[at];
        held.copy_within(at + 1.., at);
        self.holds -= 1;
        Some(mode)
    }

    /// Mutexes know no readers.
    pub fn mode(&self, lock: u32, mode: LockMode) -> LockMode {
        use cpumax_workload::LockKind::{Mutex, Spin};
        match self.world.workload.locks[lock as usize].kind {
            Mutex | Spin => LockMode::Write,
            _ => mode,
        }
    }

    fn send(&mut self, channel: u32, n: u64) {
        let channel = &self.world.channels[channel as usize];
        if channel.credits[0] < 0 {
            self.set(Phase::Ready, 0);
            channel.send(n, self.world.now_ns());
            self.settle_work(0);
        } else {
            // It may have waited for room.
            self.set(Phase::Asleep, 0);
            channel.send(n, self.world.now_ns());
            self.settle_waited();
        }
    }

    fn receive(&mut self, channel: u32, n: u64) {
        let world = self.world;
        let from_ns = world.now_ns();
        self.set(Phase::Asleep, 0);
        let token = world.channels[channel as usize].receive(n);
        self.received(token, from_ns);
    }

    /// Tokens have come; the wait for the processor begins when the last one came.
    pub fn received(&mut self, token: u64, from_ns: u64) {
        let world = self.world;
        let came_ns = token_ns(token, &world.clock, world.start_ns.load(Relaxed));
        self.request_start_ns = came_ns;
        let since_ns = came_ns.max(from_ns);
        let waited = came_ns > from_ns;
        let since = world.start_stamp.load(Relaxed) + world.speed.stamps(since_ns);
        self.last_stamp = self.last_stamp.max(since);
        if waited {
            self.owes_ns += world.speed.sleep_ns as i64;
            self.settle(0);
        } else {
            self.settle_work(0);
        }
    }

    fn fork(&mut self, kind: u32) {
        let world = self.world;
        let Some(slot) = world.take_slot(kind, self.slot.group.load(Relaxed)) else {
            world.fail(Fault::TooManyTasks, 0);
            return;
        };
        slot.start_at_ns.store(world.now_ns(), Relaxed);
        slot.go.store(Cue::Begin as u32, Relaxed);
        let mine = self.slot.attributes.load(Relaxed);
        slot.attributes.store(mine, Relaxed);
        let pid = world.start(slot, None);
        if pid < 0 {
            world.fail(Fault::Start, pid);
            return;
        }
        let spec = &world.workload.tasks[kind as usize];
        if mine != attributes_of(spec) {
            apply_attributes(world, slot, spec);
        }
        self.settle_work(0);
    }

    fn wait_children(&mut self) {
        self.set(Phase::Asleep, 0);
        loop {
            // SAFETY: all zeroes is a value of it.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            let pid = sys::wait_child(0, &raw mut usage);
            if pid > 0 {
                self.world.reaped(pid as i32, &usage);
                self.owes_ns += self.world.speed.reap_ns as i64;
            } else if pid != -(libc::EINTR as isize) {
                break;
            }
        }
        self.settle_waited();
    }

    fn each(&self, who: Target, act: impl Fn(&World, &Slot)) {
        match who {
            Target::Myself => act(self.world, self.slot),
            Target::Kind(kind) => self.world.each_living(kind, |slot| act(self.world, slot)),
        }
    }

    /// A request is complete.
    pub fn done(&mut self, now_ns: u64) {
        let start_ns = self.begun_ns.take().unwrap_or(self.request_start_ns);
        let latency_ns = now_ns.saturating_sub(start_ns);
        self.request_start_ns = now_ns;
        let (kind, group) = (self.slot.kind.load(Relaxed), self.slot.group.load(Relaxed));
        self.world.log.push(kind, group, latency_ns);
    }

    /// The length of work, less what the calls before it have taken.
    pub fn work(&mut self, span: Span) -> u64 {
        let ns = self.draw(span);
        self.asked_ns += ns;
        let left_ns = ns.saturating_add_signed(-self.owes_ns);
        self.owes_ns += left_ns as i64 - ns as i64;
        left_ns
    }

    /// The length of work under a lock. Where nobody else works it takes what it says, and is as
    /// long as that.
    pub fn locked_work(&mut self, span: Span) -> u64 {
        if self.world.is_exact { self.draw(span) } else { self.work(span) }
    }

    /// After work that needed `needed_ns`: what it took more, or less, is made up for by the next.
    pub fn settle_work(&mut self, needed_ns: u64) {
        let took_ns = self.settle(needed_ns);
        self.owes_ns += took_ns as i64 - needed_ns as i64;
    }

    pub fn draw(&mut self, span: Span) -> u64 {
        span.draw(&self.world.workload.distributions, &mut self.random)
    }

    pub fn loop_start(&mut self, times: u64, end: u32) {
        if times == 0 {
            self.pc = end as usize + 1;
        } else if let Some(rounds) = self.loops.get_mut(self.depth) {
            *rounds = times;
            self.depth += 1;
        }
    }

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

    /// Tells what it is about to do, and how long it needs for that.
    pub fn set(&self, phase: Phase, needs_ns: u64) {
        self.slot.phase.store(phase as u32, Relaxed);
        self.slot.needs_ns.store(needs_ns, Relaxed);
    }

    /// Looks at the clock after something that needed `needed_ns`: time far beyond that was a wait
    /// for the processor. Returns the time that was worked.
    #[inline(never)]
    pub fn settle(&mut self, needed_ns: u64) -> u64 {
        let now = stamp();
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

    /// Looks at the clock after a wait for others whose end is not known.
    pub fn settle_waited(&mut self) {
        self.last_stamp = stamp();
        self.slot.last_stamp.store(self.last_stamp, Relaxed);
        self.slot.phase.store(Phase::Ready as u32, Relaxed);
    }

    fn end(self) -> ! {
        let kind = self.slot.kind.load(Relaxed) as usize;
        let tally = &self.world.tallies[kind];
        tally.exit_at(self.world.now_ns());
        self.slot.state.store(ENDED, Release);
        sys::exit(0)
    }
}

/// CPU time of the caller by the kernel's account, ns.
pub fn used_ns() -> i64 {
    sys::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) as i64
}
