//! Locks and channels on which tasks wait.
//!
//! A kernel mutex or rwsem is free once it is released: the first waiter is woken, and any task
//! that arrives before that one runs may take the lock first. A waiter that came too late is
//! handed the lock at the next release (kernel: `__mutex_trylock_or_handoff()`); an rwsem's, after
//! it has waited 4 ms (`rwsem_try_write_lock()`, 5.11). Readers of an rwsem are admitted together.
//! Other locks are handed over in order of arrival: those of user space, percpu rwsems, and all on
//! `PREEMPT_RT`.
//!
//! A channel carries tokens with their arrival times, like a pipe (kernel: `pipe_read()`,
//! `pipe_write()`): a waiting receiver is woken to take one, and may find that another task took
//! it. Where a receiver wants several at once, receivers are served in order instead.

mod used;

pub(crate) use used::{is_barging, is_in_kernel, is_written};

use crate::cpu::Resched;
use crate::ids::{ChannelId, CpuId, Id, LockId, TaskId};
use crate::job::{NO_JOB, Token};
use crate::machine::Machine;
use crate::noise::Kind;
use crate::task::{Mode, Segment, State, Wait};
use crate::{Error, MAX_TOKENS_WAITING};
use cpumax_outcome::trace::What;
use cpumax_workload::{ChannelSpec, Class, LockKind, LockMode, Op};
use std::collections::VecDeque;

/// How long the first waiter of an rwsem lets others overtake, ns; rounded to whole ticks, and up
/// to the following tick (kernel: `RWSEM_WAIT_TIMEOUT`, `time_after()`): 4 to 8 ms at 250 Hz.
const PATIENCE_NS: u64 = 4_000_000;

#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub kind: LockKind,
    /// A free lock goes to any task that arrives, even if others wait.
    pub barging: bool,
    /// Taken in system calls; waiters sleep uninterruptibly.
    pub in_kernel: bool,
    /// The guest implements work under it as a write to a file.
    pub written: bool,
    /// The next owner is the first waiter.
    pub handoff: bool,
    pub held_for_writing: bool,
    pub holders: Vec<TaskId>,
    pub waiters: VecDeque<Waiter>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    /// None: a move from outside.
    pub task: TaskId,
    pub mode: LockMode,
    pub since_ns: u64,
}

impl Lock {
    /// A free lock. `barging`: running tasks may take it before woken waiters. `written`: a write
    /// takes it and works under it in one call.
    pub fn new(kind: LockKind, barging: bool, written: bool) -> Lock {
        Lock {
            kind,
            barging,
            in_kernel: true,
            written,
            handoff: false,
            held_for_writing: false,
            holders: Vec::new(),
            waiters: VecDeque::new(),
        }
    }

    /// Whether the current holders allow another in this mode.
    fn admits(&self, mode: LockMode) -> bool {
        match mode {
            LockMode::Write => self.holders.is_empty(),
            LockMode::Read => !self.held_for_writing,
        }
    }

    /// Whether a task may take the lock now: one that arrives (`place` is none), or a woken waiter
    /// at this `place` of the list. With others waiting only barging locks allow it, within rules
    /// of fairness.
    pub fn is_free_for(&self, mode: LockMode, place: Option<usize>) -> bool {
        if !self.admits(mode) || self.waiters.is_empty() {
            return self.admits(mode);
        }
        // Others wait. Readers may overtake only where no reader is inside, or writers would
        // starve.
        let comes_past = match mode {
            LockMode::Write => !self.handoff || place == Some(0),
            LockMode::Read => !self.handoff && self.holders.is_empty(),
        };
        self.barging && comes_past
    }

    /// The mode in which this kind of lock is taken: `asked`, or writing if it has no readers.
    fn mode(&self, asked: LockMode) -> LockMode {
        match self.kind {
            LockKind::Mutex | LockKind::Spin => LockMode::Write,
            LockKind::Rwsem | LockKind::PercpuRwsem | LockKind::Rwlock => asked,
        }
    }
}

/// Consecutive tokens that are equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived {
    pub token: Token,
    pub n: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub capacity: u64,
    pub tokens: u64,
    /// Waiting tokens, in the order in which they are taken.
    pub arrivals: VecDeque<Arrived>,
    /// Ordered by the time of their requests, not by arrival.
    pub oldest_first: bool,
    pub receivers: VecDeque<TaskId>,
    /// Any receiver may take a token for which another one was woken.
    pub barging: bool,
    /// A token wakes a receiver even if others wait already, as with senders that poll for room
    /// (kernel: `poll_usage`).
    pub polled: bool,
    pub senders: VecDeque<TaskId>,
}

impl Channel {
    /// An empty channel.
    fn new(spec: &ChannelSpec) -> Channel {
        Channel {
            capacity: spec.capacity,
            tokens: 0,
            arrivals: VecDeque::new(),
            oldest_first: spec.oldest_first,
            receivers: VecDeque::new(),
            barging: true,
            polled: false,
            senders: VecDeque::new(),
        }
    }

    /// Adds `n` tokens at the end, or among older requests where the channel asks for that; equal
    /// neighbours are merged. Ignores the capacity.
    #[inline]
    fn put(&mut self, token: Token, n: u64) {
        self.tokens = self.tokens.saturating_add(n);
        match self.arrivals.back_mut() {
            Some(last) if last.token == token => last.n = last.n.saturating_add(n),
            Some(last) if self.oldest_first && token.since_ns < last.token.since_ns => {
                self.put_before(token, n);
            }
            _ => self.arrivals.push_back(Arrived { token, n }),
        }
    }

    /// Inserts tokens before those of later requests.
    #[inline(never)]
    fn put_before(&mut self, token: Token, n: u64) {
        let until_ns = token.since_ns;
        let at = self.arrivals.partition_point(|other| other.token.since_ns <= until_ns);
        self.arrivals.insert(at, Arrived { token, n });
    }

    /// Takes the first token; the channel must not be empty.
    #[inline]
    fn take_one(&mut self) -> Token {
        self.tokens -= 1;
        let Some(first) = self.arrivals.front_mut() else { return Token::plain(0) };
        let token = first.token;
        first.n -= 1;
        if first.n == 0 {
            self.arrivals.pop_front();
        }
        token
    }

    /// Takes `n` tokens, which must be there. Returns the last one, and how many of those before it
    /// carry a job.
    #[inline(never)]
    fn take(&mut self, mut n: u64) -> (Token, u64) {
        self.tokens -= n;
        let mut last = Token::plain(0);
        let mut jobs = 0;
        while let Some(first) = self.arrivals.front_mut() {
            last = first.token;
            let taken = first.n.min(n);
            jobs += if last.job == NO_JOB { 0 } else { taken };
            n -= taken;
            first.n -= taken;
            if first.n > 0 {
                break;
            }
            self.arrivals.pop_front();
            if n == 0 {
                break;
            }
        }
        (last, jobs.saturating_sub(u64::from(last.job != NO_JOB)))
    }

    /// Whether `n` tokens fit. More than the capacity fit only into an empty channel.
    fn has_room(&self, n: u64) -> bool {
        self.tokens == 0 || self.tokens.saturating_add(n) <= self.capacity
    }
}

impl Machine<'_> {
    /// Creates the workload's channels, and decides for each whether receivers that run may take
    /// tokens before woken ones, and whether every token wakes a receiver or only the first.
    pub(crate) fn build_channels(&mut self) {
        for channel in &self.workload.channels {
            self.channels.push(Channel::new(channel));
        }
        for op in self.workload.programs().flatten() {
            match *op {
                Op::Recv { channel, n: 2.. } => {
                    self.channels[ChannelId(channel)].barging = false;
                }
                // Each token wakes one idle server.
                Op::Serve { channel } => self.channels[ChannelId(channel)].polled = true,
                _ => {}
            }
        }
        for source in &self.workload.sources {
            self.channels[ChannelId(source.channel)].polled = true;
        }
    }

    /// Has the running task take a lock, or spin or sleep until it gets it; a woken waiter tries
    /// again. Emits trace events; on `PREEMPT_RT` a real-time waiter boosts the holder.
    pub(crate) fn lock(&mut self, task: TaskId, lock: LockId, asked: LockMode) {
        let (now, cpu) = (self.now, self.tasks[task].cpu);
        self.tasks[task].retries = false;
        let l = &mut self.locks[lock];
        let mode = l.mode(asked);
        let place = l.waiters.iter().position(|waiter| waiter.task == task);
        if l.is_free_for(mode, place) {
            if let Some(place) = place {
                l.waiters.remove(place);
                l.handoff = false;
            }
            self.take_lock(task, lock, mode);
            if mode == LockMode::Read {
                self.admit_readers(lock);
            }
            return;
        }
        let spins = l.kind == LockKind::Spin && !self.preempt.is_rt();
        if place == Some(0) {
            let since_ns = l.waiters[0].since_ns;
            let impatient = l.kind != LockKind::Rwsem || self.is_impatient(since_ns);
            self.locks[lock].handoff |= impatient;
        }
        let spins_on_owner = self.should_spin(task, lock, mode, place);
        let l = &mut self.locks[lock];
        if let Some(place) = place {
            let since_ns = l.waiters[place].since_ns;
            // A woken waiter that fails has waited since it first came.
            self.tasks[task].stalled_since_ns = since_ns;
        } else if !spins_on_owner {
            l.waiters.push_back(Waiter { task, mode, since_ns: now });
            self.emit(cpu, What::LockWait { task: task.0, lock: lock.0 });
        }
        self.begin_stall(task);
        if spins {
            self.tasks[task].segment = Segment::Spin;
            self.tasks[task].mode = Mode::Kernel;
            return;
        }
        if spins_on_owner {
            self.begin_spin(task, lock);
            return;
        }
        self.boost_holders(task, lock);
        self.block(task, Wait::Lock(lock, mode));
    }

    /// Whether a waiter of an rwsem that came at `since_ns` has waited so long, in jiffies, that
    /// others may no longer overtake (kernel: `RWSEM_WAIT_TIMEOUT`).
    fn is_impatient(&self, since_ns: u64) -> bool {
        let first_ns = self.cpus[CpuId(0)].tick_phase_ns;
        let jiffies = |at_ns: u64| u64::from(at_ns >= first_ns) + self.tick_number(CpuId(0), at_ns);
        jiffies(self.now) > jiffies(since_ns) + PATIENCE_NS.div_ceil(self.tick_ns)
    }

    /// Gives the lock to all waiting readers and wakes them, if the first waiter is one (kernel:
    /// `rwsem_mark_wake()`).
    fn admit_readers(&mut self, lock: LockId) {
        let l = &self.locks[lock];
        let reads = |waiter: &Waiter| waiter.mode == LockMode::Read;
        if !l.barging || !l.admits(LockMode::Read) || !l.waiters.front().is_some_and(reads) {
            return;
        }
        let (mut at, mut is_first) = (0, true);
        while let Some(&waiter) = self.locks[lock].waiters.get(at) {
            if reads(&waiter) {
                self.locks[lock].waiters.remove(at);
                self.take_lock(waiter.task, lock, waiter.mode);
                if std::mem::take(&mut is_first) || !self.delay_reader_wakeup(waiter.task) {
                    self.wake(waiter.task);
                }
            } else {
                at += 1;
            }
        }
    }

    /// Handles the event of a reader's turn to be woken that was admitted together with others.
    pub(crate) fn wake_reader(&mut self, task: TaskId) {
        let State::Asleep(Wait::Lock(lock, _)) = self.tasks[task].state else { return };
        if self.locks[lock].holders.contains(&task) {
            self.touch(self.tasks[task].cpu, true);
            self.wake(task);
        }
    }

    /// Makes a task a holder of a lock that admits it, and emits that. A spin lock keeps it from
    /// being preempted.
    pub(crate) fn take_lock(&mut self, task: TaskId, lock: LockId, mode: LockMode) {
        let l = &mut self.locks[lock];
        debug_assert!(l.admits(mode));
        l.holders.push(task);
        l.held_for_writing = mode == LockMode::Write;
        if l.kind == LockKind::Spin && !self.preempt.is_rt() {
            self.tasks[task].spinning += 1;
        }
        let cpu = self.tasks[task].cpu;
        self.emit(cpu, What::LockTaken { task: task.0, lock: lock.0 });
    }

    /// Has the running task release a lock; the next waiters get it, or are woken to take it.
    /// Nothing if it does not hold it.
    pub(crate) fn unlock(&mut self, task: TaskId, lock: LockId) {
        if self.tells_messages {
            self.sends = task;
        }
        self.release_lock(task, lock);
        self.sends = TaskId::NONE;
    }

    /// Removes a holder, ends its boost, and hands the lock to the next waiters or wakes the first.
    fn release_lock(&mut self, task: TaskId, lock: LockId) {
        let l = &mut self.locks[lock];
        let Some(at) = l.holders.iter().position(|&holder| holder == task) else { return };
        l.holders.remove(at);
        if l.holders.is_empty() {
            l.held_for_writing = false;
        }
        if l.kind == LockKind::Spin && !self.preempt.is_rt() {
            self.tasks[task].spinning -= 1;
        }
        if let Some(class) = self.tasks[task].boosted_from.take() {
            self.set_class(task, class);
        }
        if self.locks[lock].barging {
            self.wake_next_waiter(lock);
            return self.update_spinners(lock);
        }
        while let Some(&Waiter { task: next, mode, .. }) = self.locks[lock].waiters.front() {
            if !self.locks[lock].admits(mode) {
                break;
            }
            self.locks[lock].waiters.pop_front();
            if next.is_none() {
                self.execute_next_move();
                continue;
            }
            self.take_lock(next, lock, mode);
            if self.tasks[next].segment == Segment::Spin {
                self.tasks[next].segment = Segment::None;
                let cpu = self.tasks[next].cpu;
                self.touch(cpu, true);
            } else {
                self.wake(next);
            }
        }
    }

    /// Wakes the first waiter of a free lock so that it tries again, or hands it a mutex if it was
    /// overtaken too often. Waiting readers are admitted.
    fn wake_next_waiter(&mut self, lock: LockId) {
        self.admit_readers(lock);
        let l = &mut self.locks[lock];
        let Some(&Waiter { task, mode, .. }) = l.waiters.front() else { return };
        if !l.admits(mode) {
            return;
        }
        if l.handoff && l.kind == LockKind::Mutex {
            l.handoff = false;
            l.waiters.pop_front();
            self.take_lock(task, lock, mode);
            if self.end_spin_if_handed(task) {
                return;
            }
            let t = &mut self.tasks[task];
            if t.state == State::Runnable && std::mem::take(&mut t.retries) {
                // The waiter was about to try again, and need not.
                t.pc += 1;
            }
        } else if self.tasks[task].state != State::Runnable {
            self.tasks[task].pc -= 1;
            self.tasks[task].retries = true;
        } else {
            self.retry_lock(task);
        }
        self.wake(task);
    }

    /// Releases all locks of a dying task, each to its next waiters, like the kernel.
    pub(crate) fn unlock_all(&mut self, task: TaskId) {
        for lock in self.locks.ids() {
            debug_assert!(self.locks[lock].waiters.iter().all(|waiter| waiter.task != task));
            if self.locks[lock].holders.contains(&task) {
                self.unlock(task, lock);
            }
        }
    }

    /// Raises the writer that holds a lock to the real-time class of a waiter, on `PREEMPT_RT`;
    /// readers and holders of percpu rwsems are not boosted.
    fn boost_holders(&mut self, waiter: TaskId, lock: LockId) {
        let l = &self.locks[lock];
        let inherits = l.held_for_writing && l.kind != LockKind::PercpuRwsem;
        if !self.preempt.is_rt() || self.tasks[waiter].class != Class::Rt || !inherits {
            return;
        }
        let holder = l.holders[0];
        let class = self.tasks[holder].class;
        if class != Class::Rt {
            self.set_class(holder, Class::Rt);
            self.tasks[holder].boosted_from = Some(class);
        }
    }

    /// Has the running task put `n` tokens into a channel, which may wake receivers, or sleep until
    /// there is room.
    pub(crate) fn send(&mut self, task: TaskId, channel: ChannelId, n: u64, token: Token) {
        self.emit_message(What::SendBegins, task, (channel, token.job));
        let c = &mut self.channels[channel];
        if c.senders.is_empty() && c.has_room(n) {
            self.sends = task;
            self.put_tokens(channel, n, token);
            self.sends = TaskId::NONE;
            self.emit_message(What::Sent, task, (channel, token.job));
        } else if !self.tasks[task].kill_pending {
            c.senders.push_back(task);
            self.tasks[task].tokens = n;
            self.block(task, Wait::Send(channel));
        }
    }

    /// Adds tokens to a channel, whatever its capacity, and wakes or serves receivers. The run
    /// fails if too many tokens wait.
    pub(crate) fn put_tokens(&mut self, channel: ChannelId, n: u64, token: Token) {
        if token.job != NO_JOB {
            self.job_counts.put += n;
        }
        let c = &mut self.channels[channel];
        let news = c.tokens == 0 || c.polled;
        let room = c.arrivals.capacity();
        c.put(token, n);
        let more = c.arrivals.capacity() - room;
        if more > 0 {
            self.grow_channels(more);
        }
        let c = &mut self.channels[channel];
        if !c.barging {
            self.serve_receivers(channel);
        } else if news {
            self.wake_receiver(channel);
        }
    }

    /// Counts growth of the token buffers by `more`; the run fails if too many tokens wait.
    #[cold]
    fn grow_channels(&mut self, more: usize) {
        self.room_for_tokens += more;
        if self.room_for_tokens > MAX_TOKENS_WAITING {
            self.failed.get_or_insert(Error::TooManyWaiting { at_ns: self.now });
        }
    }

    /// Wakes the first receiver of a channel, so that it tries to receive again.
    fn wake_receiver(&mut self, channel: ChannelId) {
        let Some(receiver) = self.channels[channel].receivers.pop_front() else { return };
        self.tasks[receiver].pc -= 1;
        self.tasks[receiver].retries = true;
        self.wake_in_sync(receiver);
    }

    /// Gives receivers their tokens, in order, while each finds as many as it wants; wakes them.
    fn serve_receivers(&mut self, channel: ChannelId) {
        while let Some(&receiver) = self.channels[channel].receivers.front() {
            let wanted = self.tasks[receiver].tokens;
            if self.channels[channel].tokens < wanted {
                break;
            }
            self.channels[channel].receivers.pop_front();
            self.take_tokens(receiver, channel, wanted);
            self.wake_in_sync(receiver);
            self.serve_senders(channel);
        }
    }

    /// Completes the sends that wait for room, in order, while it lasts, and wakes the senders.
    fn serve_senders(&mut self, channel: ChannelId) {
        while let Some(&sender) = self.channels[channel].senders.front() {
            let n = self.tasks[sender].tokens;
            if !self.channels[channel].has_room(n) {
                break;
            }
            self.channels[channel].senders.pop_front();
            let token = self.token_of(sender);
            if self.channels[channel].barging {
                self.put_tokens(channel, n, token);
            } else {
                // The caller serves receivers next.
                self.job_counts.put += if token.job == NO_JOB { 0 } else { n };
                self.channels[channel].put(token, n);
            }
            self.wake_in_sync(sender);
        }
    }

    /// Has the running task take `n` tokens or sleep until they are there; a woken receiver tries
    /// again. Room that this makes completes sends.
    pub(crate) fn receive(&mut self, task: TaskId, channel: ChannelId, n: u64) {
        let has_waited = std::mem::take(&mut self.tasks[task].retries);
        let c = &mut self.channels[channel];
        if c.tokens >= n && (c.barging || c.receivers.is_empty()) {
            self.tasks[task].call_delayed = false;
            let leaves_some = c.tokens > n;
            self.take_tokens(task, channel, n);
            self.serve_senders(channel);
            if !self.channels[channel].barging {
                self.serve_receivers(channel);
            } else if has_waited && leaves_some {
                self.wake_receiver(channel);
            }
            return;
        }
        // A task that is to die does not wait.
        if self.tasks[task].kill_pending {
            self.tasks[task].call_delayed = false;
            return;
        }
        if !has_waited && self.delay_call(task, Kind::Sleep) {
            return;
        }
        self.channels[channel].receivers.push_back(task);
        self.tasks[task].tokens = n;
        self.block(task, Wait::Receive(channel));
    }

    /// Takes `n` tokens out of a channel for a task; the last one determines its request and job,
    /// other jobs are ignored.
    #[inline]
    fn take_tokens(&mut self, task: TaskId, channel: ChannelId, n: u64) {
        if n == 1 {
            let token = self.channels[channel].take_one();
            self.emit_message(What::Received, task, (channel, token.job));
            return self.take_token(task, token);
        }
        let (token, ignored) = self.channels[channel].take(n);
        self.emit_message(What::Received, task, (channel, token.job));
        self.job_counts.ignored += ignored;
        self.take_token(task, token);
    }

    /// Ends a task's wait because of a signal: takes it off the channel's list or invalidates its
    /// timer. False, without effect, if it does not sleep or the wait cannot be interrupted. Does
    /// not wake it.
    pub(crate) fn cancel_wait(&mut self, task: TaskId) -> bool {
        let State::Asleep(wait) = self.tasks[task].state else { return false };
        match wait {
            Wait::Lock(..) | Wait::Softirq => return false,
            Wait::Timer => self.tasks[task].sleeps += 1,
            Wait::Receive(channel) => self.channels[channel].receivers.retain(|&t| t != task),
            Wait::Send(channel) => self.channels[channel].senders.retain(|&t| t != task),
            Wait::Children => {}
        }
        true
    }

    /// Requests a reschedule of the CPU that the task is current on, as it cannot go on.
    pub(crate) fn leave_cpu(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        if self.cpus[cpu].curr == task {
            self.cpus[cpu].resched = Resched::Now;
            self.touch(cpu, true);
        }
        debug_assert!(cpu.ix() < self.cpus.len());
    }
}
