//! Writes system calls: those in which a thread waits, and those with which it reads and writes.

use super::threads::{ACCEPTED, EVENTFD, Role};
use super::{Depth, LastAct, Recorder};
use crate::plan::{Client, Server};
use cpumax_outcome::trace::Message;

/// System call numbers of x86-64.
const READ: u32 = 0;
const WRITE: u32 = 1;
const CLOSE: u32 = 3;
const PREAD: u32 = 17;
const CONNECT: u32 = 42;
const FUTEX: u32 = 202;
const CLOCK_NANOSLEEP: u32 = 230;
const EPOLL_WAIT: u32 = 232;
const ACCEPT4: u32 = 288;

/// Addresses of futexes, and descriptors.
pub const LOCK: u64 = 0x7100;
const POOL: u64 = 0x7000;

const LISTENER: u64 = 3;
const EPOLL: u64 = 4;
const DISK: u64 = 9;
const MESSAGE_BYTES: u64 = 64;
const EVENTFD_BYTES: u64 = 8;
const ABSOLUTE: u64 = 1;
/// Stands for a missing timeout, and has the length of a timeout in the text.
const NO_TIMEOUT: u64 = 0xffff_ffff;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    number: u32,
    args: [u64; 4],
    /// Position of its timeout in the text, and start of the wait, ns.
    timeout: Option<(usize, u64)>,
}

impl Call {
    fn new(number: u32, args: [u64; 4]) -> Call {
        Call { number, args, timeout: None }
    }

    pub fn close(descriptor: u64) -> Call {
        Call::new(CLOSE, [descriptor, 0, 0, 0])
    }

    pub fn wake_futex(at: u64) -> Call {
        Call::new(FUTEX, [at, 0x81, 1, 0])
    }

    fn wait_futex(at: u64) -> Call {
        Call::new(FUTEX, [at, 0x80, 0, 0])
    }

    fn read(descriptor: u64) -> Call {
        Call::new(READ, [descriptor, 0x7fff, 1024, 0])
    }

    fn write(descriptor: u64) -> Call {
        Call::new(WRITE, [descriptor, 0x7fff, bytes(descriptor), 0])
    }

    fn poll() -> Call {
        Call::new(EPOLL_WAIT, [EPOLL, 0x7fff, 16, NO_TIMEOUT])
    }

    fn accept() -> Call {
        Call::new(ACCEPT4, [LISTENER, 0, 0, 0])
    }

    /// Whether the call returns when data are read, not when the thread is woken.
    fn is_of_data(&self) -> bool {
        matches!(self.number, READ | ACCEPT4)
    }
}

fn bytes(descriptor: u64) -> u64 {
    if descriptor == EVENTFD { EVENTFD_BYTES } else { MESSAGE_BYTES }
}

impl Recorder<'_> {
    /// Writes the start of a call; returns the position of its timeout.
    fn write_enter_at(&mut self, ns: u64, cpu: u16, task: u32, call: Call) -> usize {
        let Call { number, args: [a, b, c, d], .. } = call;
        let what =
            format!("raw_syscalls:sys_enter: NR {number} ({a:x}, {b:x}, {c:x}, {d:08x}, 0, 0)");
        self.write_line(ns, cpu, Some(task), &what);
        self.out.len() - "ffffffff, 0, 0)\n".len()
    }

    pub(super) fn write_enter(&mut self, ns: u64, cpu: u16, task: u32, call: Call) {
        let at = self.write_enter_at(ns, cpu, task, call);
        let timeout = (call.number == EPOLL_WAIT).then_some((at, ns));
        self.state_mut(task).call = Some(Call { timeout, ..call });
    }

    pub(super) fn write_exit(&mut self, ns: u64, cpu: u16, task: u32, result: u64) {
        if let Some(call) = self.state_mut(task).call.take() {
            let what = format!("raw_syscalls:sys_exit: NR {} = {result}", call.number);
            self.write_line(ns, cpu, Some(task), &what);
        }
    }

    /// Writes a call that does not wait.
    pub(super) fn write_call(&mut self, ns: u64, cpu: u16, task: u32, (call, result): (Call, u64)) {
        if self.depth == Depth::Calls {
            self.write_enter(ns, cpu, task, call);
            self.write_exit(ns, cpu, task, result);
        }
    }

    pub(super) fn write_sleep(&mut self, ns: u64, cpu: u16, task: u32) {
        if self.depth == Depth::Calls && self.states[task as usize].call.is_none() {
            let call = self.waits_in(task);
            self.write_enter(ns, cpu, task, call);
            let state = self.state_mut(task);
            (state.knows_ready, state.is_timed) = (false, false);
        }
    }

    /// The call in which a thread waits now.
    fn waits_in(&self, task: u32) -> Call {
        let (thread, state) = (&self.threads[task as usize], &self.states[task as usize]);
        let sleep = |flags| Call::new(CLOCK_NANOSLEEP, [1, flags, 0x7fff, 0]);
        if state.waits_for_lock {
            return Call::wait_futex(LOCK);
        }
        if self.waits_for_disk(task) {
            return Call::new(PREAD, [DISK, 0x7fff, 4096, 0]);
        }
        let answer = || match state.last {
            LastAct::Sent(message) => thread.descriptor(self.jobs[message.job? as usize]),
            _ => None,
        };
        match thread.role {
            Role::Pool => Call::wait_futex(POOL),
            Role::Clock => sleep(ABSOLUTE),
            Role::Client if self.plan.client_threads => match answer() {
                Some(descriptor) => Call::read(descriptor),
                None => sleep(u64::from(self.plan.client.is_open()) * ABSOLUTE),
            },
            Role::Serves if self.plan.server == Server::Fork => Call::accept(),
            Role::Serves if self.plan.server == Server::FanOut && thread.is_served() => {
                let next = self.next_answer(task).and_then(|job| thread.descriptor(&job));
                Call::read(next.unwrap_or(ACCEPTED + thread.number.unwrap_or(0)))
            }
            Role::Serves if self.asks_and_waits(task) => answer().map_or(Call::poll(), Call::read),
            _ if thread.blocks(self.plan.server) => {
                Call::read(thread.number.map_or(ACCEPTED, |number| ACCEPTED + number))
            }
            _ => Call::poll(),
        }
    }

    /// The job that asked for the answer which a thread reads next, after it asked three back ends
    /// and in that order; `None` where it has all.
    fn next_answer(&self, task: u32) -> Option<String> {
        let (LastAct::Sent(last) | LastAct::Received(last)) = self.states[task as usize].last
        else {
            return None;
        };
        let (kind, at) = self.jobs[last.job? as usize].rsplit_once('-')?;
        let next = match kind {
            "db2" => 0,
            "dbans0" => 1,
            "dbans1" => 2,
            _ => return None,
        };
        Some(format!("db{next}-{at}"))
    }

    /// Whether the thread asked a back end, and waits for its answer only.
    fn asks_and_waits(&self, task: u32) -> bool {
        let thread = &self.threads[task as usize];
        let LastAct::Sent(Message { job: Some(job), .. }) = self.states[task as usize].last else {
            return false;
        };
        let asks = self.jobs[job as usize].starts_with("db") && !thread.comm.ends_with("db");
        asks && !self.jobs[job as usize].starts_with("dbans")
            && self.plan.server != Server::AsyncTier
            && thread.comm != "srvproxy"
    }

    /// The thread runs again, and takes what arrived while it slept.
    pub(super) fn write_resume(&mut self, ns: u64, cpu: u16, task: u32) {
        if self.depth != Depth::Calls {
            return;
        }
        if let Some(call) = self.states[task as usize].call
            && !call.is_of_data()
        {
            let is_timed = std::mem::take(&mut self.state_mut(task).is_timed);
            let mut result = u64::from(matches!(call.number, EPOLL_WAIT));
            if let Some((at, since_ns)) = call.timeout.filter(|_| is_timed) {
                let ms = ((ns - since_ns) / 1_000_000).max(1);
                self.out.replace_range(at..at + 8, &format!("{ms:08x}"));
                result = 0;
            }
            if call.number == PREAD {
                result = 4096;
            }
            self.write_exit(ns, cpu, task, result);
            self.state_mut(task).knows_ready = call.number == EPOLL_WAIT;
        }
        for descriptor in std::mem::take(&mut self.state_mut(task).given) {
            self.write_read(ns, cpu, task, descriptor);
        }
    }

    pub(super) fn begin_send(&mut self, ns: u64, cpu: u16, message: Message) {
        let task = message.task;
        self.state_mut(task).is_sending = true;
        let channel = self.channels[message.channel as usize];
        if self.depth != Depth::Calls || channel == "tick" {
            return;
        }
        let job = message.job.map(|job| self.jobs[job as usize]);
        let descriptor = job.and_then(|job| self.threads[task as usize].descriptor(job));
        let call = match descriptor {
            Some(descriptor) if channel == "l" => Call::new(CONNECT, [descriptor, 0x7fff, 16, 0]),
            Some(descriptor) => Call::write(descriptor),
            None => Call::wake_futex(POOL),
        };
        self.write_enter(ns, cpu, task, call);
    }

    pub(super) fn end_send(&mut self, ns: u64, cpu: u16, message: Message) {
        let state = self.state_mut(message.task);
        state.is_sending = false;
        state.last = LastAct::Sent(message);
        if let Some(call) = state.call {
            let result = match call.number {
                CONNECT => 0,
                FUTEX => 1,
                _ => call.args[2],
            };
            self.write_exit(ns, cpu, message.task, result);
        }
    }

    pub(super) fn write_received(&mut self, ns: u64, message: Message) {
        let task = message.task;
        self.state_mut(task).last = LastAct::Received(message);
        let channel = self.channels[message.channel as usize];
        let job = message.job.map(|job| self.jobs[job as usize]);
        let own = job.and_then(|job| self.threads[task as usize].descriptor(job));
        let descriptor = if channel == "l" { Some(LISTENER) } else { own };
        let Some(descriptor) = descriptor.filter(|_| self.depth == Depth::Calls) else { return };
        match self.cpu_of(task).filter(|_| self.states[task as usize].left.is_none()) {
            Some(cpu) => self.write_read(ns, cpu, task, descriptor),
            None => self.state_mut(task).given.push(descriptor),
        }
    }

    /// Writes a read or an accept; an event loop polls first.
    fn write_read(&mut self, ns: u64, cpu: u16, task: u32, descriptor: u64) {
        if self.states[task as usize].call.is_none() {
            let polls = self.waits_in(task).number == EPOLL_WAIT;
            if polls && !self.states[task as usize].knows_ready {
                self.write_call(ns, cpu, task, (Call::poll(), 1));
            }
            let accepts = descriptor == LISTENER;
            let call = if accepts { Call::accept() } else { Call::read(descriptor) };
            self.write_enter(ns, cpu, task, call);
        }
        self.state_mut(task).knows_ready = false;
        let result = if descriptor == LISTENER { ACCEPTED } else { bytes(descriptor) };
        self.write_exit(ns, cpu, task, result);
        let client = &self.threads[task as usize];
        let closes = self.plan.server == Server::Fork && client.role == Role::Client;
        if closes && self.plan.client != Client::ClosedRemote {
            self.write_call(ns, cpu, task, (Call::close(descriptor), 0));
        }
    }
}
