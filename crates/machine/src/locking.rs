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

use crate::channel::{NO_JOB, Token};
use crate::cpu::Resched;
use crate::ids::{ChannelId, CpuId, Id, LockId, TaskId};
use crate::lock::Waiter;
use crate::machine::Machine;
use crate::step::Step;
use crate::task::{Mode, Segment, State, Wait};
use crate::{Error, MAX_TOKENS_WAITING};
use cpumax_outcome::trace::What;
use cpumax_workload::{Class, LockKind, LockMode};

/// How long the first waiter of an rwsem lets others overtake, ns; rounded to whole ticks, and up
/// to the following tick (kernel: `RWSEM_WAIT_TIMEOUT`, `time_after()`): 4 to 8 ms at 250 Hz.
const PATIENCE_NS: u64 = 4_000_000;

impl Machine<'_> {
    /// Has the running task take a lock, or spin or sleep until it gets it; a woken waiter tries
    /// again. Emits trace events; on `PREEMPT_RT` a real-time waiter boosts the holder.
    pub(crate) fn lock(&mut self, task: TaskId, lock: LockId, asked: LockMode) {
        let (now, cpu) = (self.now, self.tasks[task].cpu);
        self.tasks[task].retries = false;
        let l = &mut self.locks.all[lock];
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
        let spins = l.kind == LockKind::Spin && !self.settings.preempt.is_rt();
        if place == Some(0) {
            let since_ns = l.waiters[0].since_ns;
            let impatient = l.kind != LockKind::Rwsem || self.is_impatient(since_ns);
            self.locks.all[lock].handoff |= impatient;
        }
        let spins_on_owner = self.should_spin(task, lock, mode, place);
        let l = &mut self.locks.all[lock];
        if let Some(place) = place {
            let since_ns = l.waiters[place].since_ns;
            // A woken waiter that fails has waited since it first came.
            self.tasks[task].times.stalled_since_ns = since_ns;
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
        jiffies(self.now) > jiffies(since_ns) + PATIENCE_NS.div_ceil(self.settings.tick_ns)
    }

    /// Gives the lock to all waiting readers and wakes them, if the first waiter is one (kernel:
    /// `rwsem_mark_wake()`).
    fn admit_readers(&mut self, lock: LockId) {
        let l = &self.locks.all[lock];
        let reads = |waiter: &Waiter| waiter.mode == LockMode::Read;
        if !l.barging || !l.admits(LockMode::Read) || !l.waiters.front().is_some_and(reads) {
            return;
        }
        let (mut at, mut is_first) = (0, true);
        while let Some(&waiter) = self.locks.all[lock].waiters.get(at) {
            if reads(&waiter) {
                self.locks.all[lock].waiters.remove(at);
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
        if self.locks.all[lock].holders.contains(&task) {
            self.touch(self.tasks[task].cpu, true);
            self.wake(task);
        }
    }

    /// Makes a task a holder of a lock that admits it, and emits that. A spin lock keeps it from
    /// being preempted.
    pub(crate) fn take_lock(&mut self, task: TaskId, lock: LockId, mode: LockMode) {
        let l = &mut self.locks.all[lock];
        debug_assert!(l.admits(mode));
        l.holders.push(task);
        l.held_for_writing = mode == LockMode::Write;
        if l.kind == LockKind::Spin && !self.settings.preempt.is_rt() {
            self.tasks[task].locking.spinning += 1;
        }
        let cpu = self.tasks[task].cpu;
        self.emit(cpu, What::LockTaken { task: task.0, lock: lock.0 });
    }

    /// Has the running task release a lock; the next waiters get it, or are woken to take it.
    /// Nothing if it does not hold it.
    pub(crate) fn unlock(&mut self, task: TaskId, lock: LockId) {
        if self.probes.tells_messages {
            self.channels.sender = task;
        }
        self.release_lock(task, lock);
        self.channels.sender = TaskId::NONE;
    }

    /// Removes a holder, ends its boost, and hands the lock to the next waiters or wakes the first.
    fn release_lock(&mut self, task: TaskId, lock: LockId) {
        let l = &mut self.locks.all[lock];
        let Some(at) = l.holders.iter().position(|&holder| holder == task) else { return };
        l.holders.remove(at);
        if l.holders.is_empty() {
            l.held_for_writing = false;
        }
        if l.kind == LockKind::Spin && !self.settings.preempt.is_rt() {
            self.tasks[task].locking.spinning -= 1;
        }
        if let Some(class) = self.tasks[task].attrs.boosted_from.take() {
            self.set_class(task, class);
        }
        if self.locks.all[lock].barging {
            self.wake_next_waiter(lock);
            return self.update_spinners(lock);
        }
        while let Some(&Waiter { task: next, mode, .. }) = self.locks.all[lock].waiters.front() {
            if !self.locks.all[lock].admits(mode) {
                break;
            }
            self.locks.all[lock].waiters.pop_front();
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
        let l = &mut self.locks.all[lock];
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
                t.at.pc += 1;
            }
        } else if self.tasks[task].state != State::Runnable {
            self.tasks[task].at.pc -= 1;
            self.tasks[task].retries = true;
        } else {
            self.retry_lock(task);
        }
        self.wake(task);
    }

    /// Releases all locks of a dying task, each to its next waiters, like the kernel.
    pub(crate) fn unlock_all(&mut self, task: TaskId) {
        for lock in self.locks.all.ids() {
            debug_assert!(self.locks.all[lock].waiters.iter().all(|waiter| waiter.task != task));
            if self.locks.all[lock].holders.contains(&task) {
                self.unlock(task, lock);
            }
        }
    }

    /// Raises the writer that holds a lock to the real-time class of a waiter, on `PREEMPT_RT`;
    /// readers and holders of percpu rwsems are not boosted.
    fn boost_holders(&mut self, waiter: TaskId, lock: LockId) {
        let l = &self.locks.all[lock];
        let inherits = l.held_for_writing && l.kind != LockKind::PercpuRwsem;
        if !self.settings.preempt.is_rt()
            || self.tasks[waiter].attrs.class != Class::Rt
            || !inherits
        {
            return;
        }
        let holder = l.holders[0];
        let class = self.tasks[holder].attrs.class;
        if class != Class::Rt {
            self.set_class(holder, Class::Rt);
            self.tasks[holder].attrs.boosted_from = Some(class);
        }
    }

    /// Has the running task put `n` tokens into a channel, which may wake receivers, or sleep until
    /// there is room.
    pub(crate) fn send(&mut self, task: TaskId, channel: ChannelId, n: u64, token: Token) {
        self.emit_message(What::SendBegins, task, (channel, token.job));
        let c = &mut self.channels.all[channel];
        if c.senders.is_empty() && c.has_room(n) {
            self.channels.sender = task;
            self.put_tokens(channel, n, token);
            self.channels.sender = TaskId::NONE;
            self.emit_message(What::Sent, task, (channel, token.job));
        } else if !self.tasks[task].signals.kill {
            c.senders.push_back(task);
            self.tasks[task].at.tokens = n;
            self.block(task, Wait::Send(channel));
        }
    }

    /// Adds tokens to a channel, whatever its capacity, and wakes or serves receivers. The run
    /// fails if too many tokens wait.
    pub(crate) fn put_tokens(&mut self, channel: ChannelId, n: u64, token: Token) {
        if token.job != NO_JOB {
            self.channels.counts.put += n;
        }
        let c = &mut self.channels.all[channel];
        let news = c.tokens == 0 || c.polled;
        let room = c.arrivals.capacity();
        c.put(token, n);
        let more = c.arrivals.capacity() - room;
        if more > 0 {
            self.grow_channels(more);
        }
        let c = &mut self.channels.all[channel];
        if !c.barging {
            self.serve_receivers(channel);
        } else if news {
            self.wake_receiver(channel);
        }
    }

    /// Counts growth of the token buffers by `more`; the run fails if too many tokens wait.
    #[cold]
    fn grow_channels(&mut self, more: usize) {
        self.channels.room += more;
        if self.channels.room > MAX_TOKENS_WAITING {
            self.events.failed.get_or_insert(Error::TooManyWaiting { at_ns: self.now });
        }
    }

    /// Wakes the first receiver of a channel, so that it tries to receive again.
    fn wake_receiver(&mut self, channel: ChannelId) {
        let Some(receiver) = self.channels.all[channel].receivers.pop_front() else { return };
        self.tasks[receiver].at.pc -= 1;
        self.tasks[receiver].retries = true;
        self.wake_in_sync(receiver);
    }

    /// Gives receivers their tokens, in order, while each finds as many as it wants; wakes them.
    fn serve_receivers(&mut self, channel: ChannelId) {
        while let Some(&receiver) = self.channels.all[channel].receivers.front() {
            let wanted = self.tasks[receiver].at.tokens;
            if self.channels.all[channel].tokens < wanted {
                break;
            }
            self.channels.all[channel].receivers.pop_front();
            self.take_tokens(receiver, channel, wanted);
            self.wake_in_sync(receiver);
            self.serve_senders(channel);
        }
    }

    /// Completes the sends that wait for room, in order, while it lasts, and wakes the senders.
    fn serve_senders(&mut self, channel: ChannelId) {
        while let Some(&sender) = self.channels.all[channel].senders.front() {
            let n = self.tasks[sender].at.tokens;
            if !self.channels.all[channel].has_room(n) {
                break;
            }
            self.channels.all[channel].senders.pop_front();
            let token = self.token_of(sender);
            if self.channels.all[channel].barging {
                self.put_tokens(channel, n, token);
            } else {
                // The caller serves receivers next.
                self.channels.counts.put += if token.job == NO_JOB { 0 } else { n };
                self.channels.all[channel].put(token, n);
            }
            self.wake_in_sync(sender);
        }
    }

    /// Has the running task take `n` tokens or sleep until they are there; a woken receiver tries
    /// again. Room that this makes completes sends.
    pub(crate) fn receive(&mut self, task: TaskId, channel: ChannelId, n: u64) {
        let has_waited = std::mem::take(&mut self.tasks[task].retries);
        let c = &mut self.channels.all[channel];
        if c.tokens >= n && (c.barging || c.receivers.is_empty()) {
            self.tasks[task].lab.call_delayed = false;
            let leaves_some = c.tokens > n;
            self.take_tokens(task, channel, n);
            self.serve_senders(channel);
            if !self.channels.all[channel].barging {
                self.serve_receivers(channel);
            } else if has_waited && leaves_some {
                self.wake_receiver(channel);
            }
            return;
        }
        // A task that is to die does not wait.
        if self.tasks[task].signals.kill {
            self.tasks[task].lab.call_delayed = false;
            return;
        }
        if !has_waited && self.delay_call(task, Step::Sleep) {
            return;
        }
        self.channels.all[channel].receivers.push_back(task);
        self.tasks[task].at.tokens = n;
        self.block(task, Wait::Receive(channel));
    }

    /// Takes `n` tokens out of a channel for a task; the last one determines its request and job,
    /// other jobs are ignored.
    #[inline]
    fn take_tokens(&mut self, task: TaskId, channel: ChannelId, n: u64) {
        if n == 1 {
            let token = self.channels.all[channel].take_one();
            self.emit_message(What::Received, task, (channel, token.job));
            return self.take_token(task, token);
        }
        let (token, ignored) = self.channels.all[channel].take(n);
        self.emit_message(What::Received, task, (channel, token.job));
        self.channels.counts.ignored += ignored;
        self.take_token(task, token);
    }

    /// Ends a task's wait because of a signal: takes it off the channel's list or invalidates its
    /// timer. False, without effect, if it does not sleep or the wait cannot be interrupted. Does
    /// not wake it.
    pub(crate) fn cancel_wait(&mut self, task: TaskId) -> bool {
        let State::Asleep(wait) = self.tasks[task].state else { return false };
        match wait {
            Wait::Lock(..) | Wait::Softirq => return false,
            Wait::Timer => self.tasks[task].at.sleeps += 1,
            Wait::Receive(channel) => self.channels.all[channel].receivers.retain(|&t| t != task),
            Wait::Send(channel) => self.channels.all[channel].senders.retain(|&t| t != task),
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
