//! Messages of sockets: sizes sent and received, and when data came in.

use super::Timeline;
use crate::event::Event;
use crate::steps::push_one;
use crate::syscalls::IoKind;
use crate::thread::{Birth, FdOrSocket, Io, NO_THREAD, Ready, Step};

/// States of a TCP socket, as the kernel numbers them.
const ESTABLISHED: u32 = 1;
const SYN_SENT: u32 = 2;
const SYN_RECV: u32 = 3;
const CLOSE: u32 = 7;
/// Accepts remembered of one descriptor of a process.
const ACCEPTS_MOST: usize = 8;

impl Timeline {
    /// The number of the socket at this address, which is new for the first use.
    fn socket_number(&mut self, address: u64) -> u32 {
        let next = self.sockets.len() as u32;
        *self.sockets.entry(address).or_insert(next)
    }

    /// Adds a message that was sent or received, unless it failed. If its system call was recorded,
    /// the transfer of that call gets the socket instead of its descriptor, as does an accept of
    /// that descriptor.
    pub(super) fn add_message(
        &mut self,
        event: &Event<'_>,
        kind: IoKind,
        address: u64,
        result: i64,
    ) {
        if event.tid <= 0 {
            return;
        }
        let at = FdOrSocket::socket(self.socket_number(address));
        let live = self.live(event.tid);
        if kind == IoKind::Write
            && let Some(sending) = live.sending
        {
            let thread = live.thread;
            let descriptor = std::mem::replace(&mut self.ios[sending as usize].at, at);
            self.resolve_accept(thread, descriptor, at);
        } else if kind == IoKind::Read
            && let Some(io) = live.transfer.as_mut().filter(|io| io.kind == kind)
        {
            let descriptor = std::mem::replace(&mut io.at, at);
            let thread = live.thread;
            self.resolve_accept(thread, descriptor, at);
        } else if result >= 0 {
            // Messages are smaller than that.
            let result = result.min(i32::MAX.into()) as i32;
            let (thread, now_ns) = (live.thread, event.time_ns);
            let io = Io { thread, kind, at, result, entered_ns: now_ns, left_ns: now_ns };
            self.add_step(event.tid, now_ns, Step::Io(self.ios.len() as u32));
            push_one(&mut self.ios, io);
        }
    }

    /// Remembers an accept whose socket is not known yet; at most eight of a descriptor.
    pub(super) fn add_accept(&mut self, io: u32) {
        let of = &self.ios[io as usize];
        let key = (self.process(of.thread), FdOrSocket::descriptor(of.result));
        let accepts = self.accepts.entry(key).or_default();
        if accepts.len() == ACCEPTS_MOST {
            accepts.remove(0);
        }
        accepts.push(io);
    }

    /// Gives an accept its socket: a descriptor of the thread's process proves to be this socket.
    /// The process itself, or the one that forked it since, accepted it.
    fn resolve_accept(&mut self, thread: u32, descriptor: FdOrSocket, socket: FdOrSocket) {
        let of_parent = || match self.threads[thread as usize].birth {
            Birth::Forked { parent, at_ns } => {
                let key = (self.process(parent), descriptor);
                let born_ns = self.first_ns.saturating_add(at_ns);
                let before = |io: &&u32| self.ios[**io as usize].left_ns <= born_ns;
                Some((key, *self.accepts.get(&key)?.iter().rfind(before)?))
            }
            Birth::Present { .. } => None,
        };
        let own = (self.process(thread), descriptor);
        let last = || Some((own, *self.accepts.get(&own)?.last()?));
        let Some((key, accept)) = last().or_else(of_parent) else { return };
        self.ios[accept as usize].at = socket;
        if let Some(accepts) = self.accepts.get_mut(&key) {
            accepts.retain(|io| *io != accept);
            if accepts.is_empty() {
                self.accepts.remove(&key);
            }
        }
    }

    /// The process of a thread (index).
    fn process(&self, thread: u32) -> i32 {
        self.threads[thread as usize].process()
    }

    /// Adds that data came in at a socket, in the context of any thread.
    pub(super) fn add_data_ready(&mut self, event: &Event<'_>, address: u64) {
        let socket = self.socket_number(address);
        push_one(&mut self.ready, Ready { socket, at_ns: event.time_ns });
    }

    /// Adds a transfer where a TCP socket is accepted, connected or closed; other changes of state
    /// mean nothing. The event may be in the context of any thread, so the transfer has none.
    pub(super) fn apply_socket_state(
        &mut self,
        event: &Event<'_>,
        address: u64,
        from: u32,
        to: u32,
    ) {
        let kind = match (from, to) {
            (SYN_RECV, ESTABLISHED) => IoKind::Accept,
            (SYN_SENT, ESTABLISHED) => IoKind::Connect,
            (_, CLOSE) => IoKind::Close,
            _ => return,
        };
        let at = FdOrSocket::socket(self.socket_number(address));
        let now_ns = event.time_ns;
        let thread = NO_THREAD;
        let io = Io { thread, kind, at, result: 0, entered_ns: now_ns, left_ns: now_ns };
        push_one(&mut self.ios, io);
    }
}
