//! A `syscall` of several steps as one system call: a list of requests that `io_submit(2)` executes
//! in order, each to its end, without leaving the kernel.
//!
//! A read of random bytes stands for kernel time, a byte taken from a pipe for a lock, a read of a
//! timer for a sleep. A read of `/proc/timer_list`, whose first line has the time, measures a
//! moment. The task accounts for these moments after the call has returned.

use super::{Task, VECTOR};
use crate::channel::{TOKEN_BYTES, token_of_text};
use crate::owner::{self, call_end};
use crate::plan::{RealLock, end_of_kernel_hold};
use crate::sys::{self, AIO_PREAD, AIO_PREADV, AIO_PWRITE, AIO_PWRITEV, Iocb};
use crate::work::SCRATCH_BYTES;
use crate::world::{Fault, Phase};
use cpumax_workload::{LockMode, Op, Target};
use std::sync::atomic::Ordering::Relaxed;

/// Most requests in a list.
const MAX_REQUESTS: usize = 512;
/// Size of the AIO context; the kernel makes room for twice as many events.
const EVENTS: u32 = 256;
/// Most marks, and most tokens, of one call.
const MARKS: usize = 256;
/// Room for the first line of `/proc/timer_list`.
const TEXT_BYTES: usize = 128;

/// State of one task for its lists of requests.
pub struct Call {
    /// AIO context: the address of its ring of results. 0: not made yet.
    pub context: u64,
    /// A timerfd to sleep on, or -1.
    pub timer: i32,
    requests: Box<[Iocb]>,
    pointers: Box<[*const Iocb]>,
    texts: Box<[[u8; TEXT_BYTES]]>,
    tokens: [u64; MARKS],
    marks: [Mark; MARKS],
    n: usize,
    n_texts: usize,
    n_tokens: usize,
    n_marks: usize,
    /// Kernel time in the list, ns.
    work_ns: u64,
    /// Whether it waits for anything.
    waits: bool,
    /// Whether it takes locks made of pipes.
    locks: bool,
    /// Whether it sends or receives tokens.
    talks: bool,
}

/// An event of the call, to be accounted for after the call.
#[derive(Debug, Clone, Copy)]
enum Mark {
    None,
    Begin { text: usize },
    Done { text: usize },
    Due { at_ns: u64 },
    Received { token: usize },
    Moved { group: u32 },
}

/// Head of the ring of a context, as the kernel maps it (kernel: `struct aio_ring`).
#[repr(C)]
struct Ring {
    id: u32,
    events: u32,
    head: u32,
    tail: u32,
    magic: u32,
    compat: u32,
    incompat: u32,
    header_bytes: u32,
}

#[repr(C)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

impl Call {
    /// An empty list of `io_submit(2)` requests, with its buffers allocated but without AIO context
    /// or timer.
    pub fn new() -> Call {
        Call {
            context: 0,
            timer: -1,
            requests: vec![Iocb::default(); MAX_REQUESTS].into(),
            pointers: vec![std::ptr::null(); MAX_REQUESTS].into(),
            texts: vec![[0; TEXT_BYTES]; MARKS].into(),
            tokens: [0; MARKS],
            marks: [Mark::None; MARKS],
            n: 0,
            n_texts: 0,
            n_tokens: 0,
            n_marks: 0,
            work_ns: 0,
            waits: false,
            locks: false,
            talks: false,
        }
    }

    /// Makes the AIO context and the timerfd, unless they exist. Returns 0, or the kernel's error
    /// for the context as a negative number; a timer that fails becomes a negative descriptor.
    pub fn prepare(&mut self) -> isize {
        if self.context != 0 {
            return 0;
        }
        let result = sys::aio_setup(EVENTS, &mut self.context);
        if result >= 0 {
            self.timer = sys::timer_create() as i32;
        }
        result
    }

    /// Empties the list for the next call. Context and timer stay; texts with times are used in
    /// turns, because tokens of the last call may point to them.
    fn reset(&mut self) {
        (self.n, self.n_tokens, self.n_marks) = (0, 0, 0);
        // Used in turns: a token of the last call may still point to one of them.
        if self.n_texts > MARKS / 2 {
            self.n_texts = 0;
        }
        (self.work_ns, self.waits, self.locks, self.talks) = (0, false, false, false);
    }

    /// Appends a request for `bytes` bytes, or elements of a vector, at `buf`; drops it where the
    /// list is full (512).
    fn add_request(&mut self, opcode: u16, fd: i32, buf: u64, bytes: usize) {
        if let Some(request) = self.requests.get_mut(self.n) {
            *request = Iocb::new(opcode, fd, buf, bytes);
            self.n += 1;
        }
    }

    /// Appends a request that reads one byte out of a pipe, and so waits for it.
    fn add_take(&mut self, fd: i32, scratch: *mut u8) {
        self.add_request(AIO_PREAD, fd, scratch as u64, 1);
    }

    /// Appends a request that writes `n` bytes, at most 64, to a pipe.
    fn add_put(&mut self, fd: i32, n: usize) {
        static BYTES: [u8; 64] = [0; 64];
        self.add_request(AIO_PWRITE, fd, BYTES.as_ptr() as u64, n.min(BYTES.len()));
    }

    /// Notes an event of the call to account for after it; drops it beyond 256.
    fn add_mark(&mut self, mark: Mark) {
        if let Some(slot) = self.marks.get_mut(self.n_marks) {
            *slot = mark;
            self.n_marks += 1;
        }
    }

    /// Appends a read of the current time (`/proc/timer_list`) into a text buffer; returns the
    /// buffer's index.
    fn add_time_read(&mut self, clock_fd: i32, bytes: usize) -> usize {
        let at = self.n_texts.min(MARKS - 1);
        self.n_texts += 1;
        let buf = self.texts[at].as_ptr() as u64;
        self.add_request(AIO_PREAD, clock_fd, buf, bytes.min(TEXT_BYTES));
        at
    }
}

impl Task {
    /// Executes the steps up to the next `ExitKernel` as one system call and accounts for its time
    /// and events. `pc` is behind the `EnterKernel`, and ends at the `ExitKernel`. A single step of
    /// kernel time, or a single lock around it, is a plain call; all else is a list for
    /// `io_submit(2)`. A failure is noted as the run's fault.
    pub fn execute_call(&mut self) {
        let begin = self.pc - 1;
        let end = call_end(self.program, begin);
        if let Some(clock) = &self.world.clock_device
            && let Some((_, mode, ns)) = owner::single_lock_call(&self.program[begin + 1..end])
        {
            self.pc = end;
            self.hold_owner_lock(clock, mode, ns);
            return;
        }
        // One step of kernel time, or one write under a lock, needs no list.
        match self.program[begin + 1..end] {
            [] => {
                self.pc = end;
                return;
            }
            [op @ Op::Kernel(_)] => {
                self.pc = end;
                if let Op::Kernel(span) = op {
                    self.kernel_alone(span);
                }
                return;
            }
            [Op::Lock { lock, mode }, Op::Kernel(span), Op::Unlock { .. }] => {
                let made = self.world.locks[lock as usize].made;
                if matches!(made, RealLock::Inode | RealLock::MemoryMap) {
                    let ns = self.draw_locked_work(span);
                    match made {
                        RealLock::Inode => self.write_alone(lock, ns),
                        _ => self.hold_memory_map(mode, ns),
                    }
                    self.pc = end;
                    return;
                }
            }
            _ => {}
        }
        // SAFETY: this is the task of the slot.
        let call = unsafe { &mut (*self.slot.buffers.get()).call };
        let prepared = call.prepare();
        if prepared < 0 {
            self.world.note_fault(Fault::List, prepared);
        }
        call.reset();
        let from_ns = self.world.now_ns();
        while self.pc < end {
            let at = self.pc;
            self.pc += 1;
            self.add_step(call, at, from_ns);
        }
        self.pc = end;
        self.submit(call);
        self.account_marks(call, from_ns);
    }

    /// Appends requests and marks for the step at `at` to the list; may move `pc` (loops, locks).
    /// `from_ns`: start of the call since the start of the run. Arms the timer for sleeps, draws
    /// lengths from the random stream; steps that no list has are skipped.
    fn add_step(&mut self, call: &mut Call, at: usize, from_ns: u64) {
        let world = self.world;
        match self.program[at] {
            Op::Kernel(span) => self.add_work(call, span),
            Op::Sleep(span) => {
                let ns = self.draw(span);
                sys::timer_arm(call.timer, false, ns);
                call.add_mark(Mark::Due { at_ns: from_ns + ns });
                self.add_timer(call);
            }
            Op::Every { period_ns } => {
                self.activations += 1;
                let due_ns =
                    self.started_ns.saturating_add(period_ns.saturating_mul(self.activations));
                call.add_mark(Mark::Due { at_ns: due_ns });
                if due_ns > from_ns + call.work_ns {
                    sys::timer_arm(call.timer, true, world.start_ns.load(Relaxed) + due_ns);
                    self.add_timer(call);
                }
            }
            Op::Lock { lock, mode } => self.add_lock(call, at, lock, mode),
            Op::Unlock { lock } => self.add_unlock(call, lock),
            Op::Send { channel, n } => {
                let channel = &world.channels[channel as usize];
                if channel.credits[0] >= 0 {
                    (call.waits, call.talks) = (true, true);
                    (0..n).for_each(|_| call.add_take(channel.credits[0], world.scratch));
                }
                let text = call.add_time_read(world.clock_fd, world.clock.bytes);
                let token = token_of_text(call.texts[text].as_ptr());
                for _ in 0..n {
                    let at = call.n_tokens.min(MARKS - 1);
                    call.tokens[at] = token;
                    call.n_tokens += 1;
                    let buf = &raw const call.tokens[at] as u64;
                    call.add_request(AIO_PWRITE, channel.tokens[1], buf, TOKEN_BYTES);
                }
            }
            Op::Recv { channel, n } => self.add_receive(call, channel, n),
            Op::Begin => {
                let text = call.add_time_read(world.clock_fd, world.clock.bytes);
                call.add_mark(Mark::Begin { text });
            }
            Op::Done => {
                let text = call.add_time_read(world.clock_fd, world.clock.bytes);
                call.add_mark(Mark::Done { text });
            }
            Op::Move { who: Target::Myself, group } => {
                // 0 stands for the writer itself.
                static ME: [u8; 1] = *b"0";
                for fd in world.procs_fds[group as usize] {
                    if fd >= 0 {
                        call.add_request(AIO_PWRITE, fd, ME.as_ptr() as u64, 1);
                    }
                }
                call.add_mark(Mark::Moved { group });
            }
            Op::LoopStart { times, end } => self.loop_start(times, end),
            Op::LoopEnd { start } => self.loop_end(start),
            _ => {}
        }
    }

    /// Appends kernel time of a drawn length: reads of random bytes, as many as take that long by
    /// calibration. The length is shortened by CPU time used in excess before.
    fn add_work(&mut self, call: &mut Call, span: cpumax_workload::Span) {
        let world = self.world;
        let ns = self.draw_work(span);
        call.work_ns += ns;
        let (mut rest, whole) = world.speed.read_parts(ns);
        while rest > 0 {
            let some = rest.min(SCRATCH_BYTES);
            call.add_request(AIO_PREAD, world.files.random, world.scratch as u64, some);
            rest -= some;
        }
        // SAFETY: this is the task of the slot, and only the first element ever changes.
        let whole_buffers = unsafe { &raw const (*self.slot.buffers.get()).vector[1] } as u64;
        let mut left = whole;
        while left > 0 {
            let some = left.min(VECTOR - 1);
            call.add_request(AIO_PREADV, world.files.random, whole_buffers, some);
            left -= some;
        }
    }

    /// Appends a read of the call's timer, which waits until it fires.
    fn add_timer(&self, call: &mut Call) {
        call.waits = true;
        call.add_request(AIO_PREAD, call.timer, self.world.scratch as u64, 8);
    }

    /// Appends the taking of a lock. For an inode that is one write, which lasts as long as the
    /// lock is held; `pc` moves behind the unlock. For a pipe the bytes are taken as `Lock::take`
    /// does, and the lock is noted as held. Other locks are not taken in lists.
    fn add_lock(&mut self, call: &mut Call, at: usize, lock: u32, mode: LockMode) {
        let mode = self.lock_mode(lock, mode);
        let scratch = self.world.scratch;
        let made = &self.world.locks[lock as usize];
        call.waits = true;
        match made.made {
            RealLock::Inode => {
                let Some(unlock) = end_of_kernel_hold(self.program, at) else { return };
                let mut ns = 0;
                for ix in at + 1..unlock {
                    if let Op::Kernel(span) = self.program[ix] {
                        ns += self.draw_locked_work(span);
                    }
                }
                self.pc = unlock + 1;
                call.work_ns += ns;
                let bytes = self.world.speed.write_bytes(ns, false);
                if bytes <= SCRATCH_BYTES {
                    call.add_request(AIO_PWRITE, made.file, scratch as u64, bytes.max(1));
                } else {
                    // A list has one such write at a time, so the first element is free.
                    let (vector, n) = self.vector(bytes);
                    call.add_request(AIO_PWRITEV, made.file, vector as u64, n);
                }
            }
            RealLock::Pipe { readers } => {
                call.locks = true;
                call.add_take(made.gate[0], scratch);
                if mode == LockMode::Write {
                    (0..readers).for_each(|_| call.add_take(made.room[0], scratch));
                } else {
                    call.add_take(made.room[0], scratch);
                    call.add_put(made.gate[1], 1);
                }
                self.note_held(lock, mode);
            }
            RealLock::Futex | RealLock::MemoryMap | RealLock::Owner => {}
        }
    }

    /// Appends the release of a lock made of a pipe and removes it from the held ones; does nothing
    /// for other locks.
    fn add_unlock(&mut self, call: &mut Call, lock: u32) {
        let made = &self.world.locks[lock as usize];
        let (RealLock::Pipe { readers }, Some(mode)) = (made.made, self.note_released(lock)) else {
            return;
        };
        if mode == LockMode::Write {
            call.add_put(made.room[1], readers as usize);
            call.add_put(made.gate[1], 1);
        } else {
            call.add_put(made.room[1], 1);
        }
    }

    /// Appends reads of `n` tokens, one receiver at a time where the channel asks for that, and the
    /// return of their credits. A mark keeps the last token.
    fn add_receive(&mut self, call: &mut Call, channel: u32, n: u64) {
        (call.waits, call.talks) = (true, true);
        let channel = &self.world.channels[channel as usize];
        let gate = channel.receivers;
        if gate[0] >= 0 {
            call.add_take(gate[0], self.world.scratch);
        }
        for i in 0..n {
            let at = call.n_tokens.min(MARKS - 1);
            call.n_tokens += 1;
            let buf = &raw mut call.tokens[at] as u64;
            call.add_request(AIO_PREAD, channel.tokens[0], buf, TOKEN_BYTES);
            if i + 1 == n {
                call.add_mark(Mark::Received { token: at });
            }
        }
        if gate[1] >= 0 {
            call.add_put(gate[1], 1);
        }
        if channel.credits[1] >= 0 {
            call.add_put(channel.credits[1], n as usize);
        }
    }

    /// Publishes the phase, makes the system call (`io_submit(2)`), and takes the results from the
    /// ring. Failed requests are noted as the run's fault. Calls that take pipe locks are logged as
    /// such.
    fn submit(&mut self, call: &mut Call) {
        for ix in 0..call.n {
            call.pointers[ix] = &raw const call.requests[ix];
        }
        let phase = if call.waits { Phase::Asleep } else { Phase::Ready };
        self.set_phase(phase, call.work_ns);
        // A list that waits for locks and for tokens does not show which wait is for a lock.
        let locks = call.locks && !call.talks;
        if locks {
            self.log_locking(true);
        }
        let mut done = 0;
        while done < call.n {
            let result = sys::aio_submit(call.context, &call.pointers[done..call.n]);
            if result <= 0 {
                self.world.note_fault(Fault::List, result);
                break;
            }
            done += result as usize;
        }
        if locks {
            self.log_locking(false);
        }
        // SAFETY: the context's number is the address of its ring, which the kernel has mapped for
        // us; the indices in it stay within its events.
        unsafe {
            let ring = call.context as *mut Ring;
            let events = (call.context + u64::from((*ring).header_bytes)) as *mut Event;
            let (mut head, tail) = ((*ring).head, (&raw const (*ring).tail).read_volatile());
            while head != tail && (*ring).events > 0 {
                let result = (*events.add(head as usize)).result;
                // A signal may shorten a read; any other error is a failure.
                if result < 0 && result != -i64::from(libc::EINTR) {
                    self.world.note_fault(Fault::List, result as isize);
                }
                head = (head + 1) % (*ring).events;
            }
            (&raw mut (*ring).head).write_volatile(head);
        }
    }

    /// Logs for the trace's stalls that the task now enters (`true`) or leaves a call that takes
    /// locks.
    fn log_locking(&self, is: bool) {
        let pid = self.slot.pid.load(Relaxed).cast_unsigned();
        self.world.locking.push(pid, is.into(), self.world.now_ns());
    }

    /// Accounts after the call for its marks: begins and completes requests, counts sleeps, stores
    /// moves. Then accounts for its work; a wait for a CPU counts from the last event waited for.
    fn account_marks(&mut self, call: &Call, from_ns: u64) {
        let world = self.world;
        let start_ns = world.start_ns.load(Relaxed);
        let time = |text: usize| {
            let read = &call.texts[text][..world.clock.bytes.min(TEXT_BYTES)];
            world.clock.time_ns(read).saturating_sub(start_ns)
        };
        let mut waited_until_ns = from_ns;
        for mark in &call.marks[..call.n_marks] {
            match *mark {
                Mark::Begin { text } => self.begun_ns = Some(time(text)),
                Mark::Done { text } => self.complete_request(time(text)),
                Mark::Due { at_ns } => {
                    self.overrun_ns += world.speed.sleep_ns as i64;
                    self.request_start_ns = at_ns;
                    waited_until_ns = waited_until_ns.max(at_ns);
                }
                Mark::Received { token } => {
                    let token = call.tokens[token];
                    let came_ns = crate::channel::token_ns(token, &world.clock, start_ns);
                    self.request_start_ns = came_ns;
                    waited_until_ns = waited_until_ns.max(came_ns);
                }
                Mark::Moved { group } => self.slot.group.store(group, Relaxed),
                Mark::None => {}
            }
        }
        let since = world.start_stamp.load(Relaxed) + world.speed.stamps(waited_until_ns);
        self.last_stamp = self.last_stamp.max(since);
        self.account_work(call.work_ns);
    }
}
