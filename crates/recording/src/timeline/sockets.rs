//! Sockets: what a thread sends and receives through which, and when data came in there.

use super::Timeline;
use crate::event::Event;
use crate::steps::push_one;
use crate::syscalls::Transfer;
use crate::thread::{Io, NOBODY, Place, Ready, Step};

/// States of a TCP socket, as the kernel numbers them.
const ESTABLISHED: u32 = 1;
const SYN_SENT: u32 = 2;
const SYN_RECV: u32 = 3;
const CLOSE: u32 = 7;

impl Timeline {
    /// The number of the socket at this address.
    fn socket(&mut self, address: u64) -> u32 {
        let next = self.sockets.len() as u32;
        *self.sockets.entry(address).or_insert(next)
    }

    /// A message has been sent or received. Where the system call that does it was recorded, it is
    /// that call's transfer, of which it is known now which socket it is at.
    pub(super) fn moves(&mut self, event: &Event<'_>, kind: Transfer, address: u64, result: i64) {
        if event.tid <= 0 {
            return;
        }
        let at = Place::socket(self.socket(address));
        let live = self.live(event.tid);
        if kind == Transfer::Write
            && let Some(sending) = live.sending
        {
            self.ios[sending as usize].at = at;
        } else if kind == Transfer::Read
            && let Some(io) = live.transfer.as_mut().filter(|io| io.kind == kind)
        {
            io.at = at;
        } else if result >= 0 {
            // None is larger.
            let result = result.min(i32::MAX.into()) as i32;
            let (thread, now_ns) = (live.thread, event.time_ns);
            let io = Io { thread, kind, at, result, entered_ns: now_ns, left_ns: now_ns };
            self.point(event.tid, now_ns, Step::Io(self.ios.len() as u32));
            push_one(&mut self.ios, io);
        }
    }

    /// Data has come in, whoever was running then.
    pub(super) fn data_ready(&mut self, event: &Event<'_>, address: u64) {
        let socket = self.socket(address);
        push_one(&mut self.ready, Ready { socket, at_ns: event.time_ns });
    }

    /// A TCP socket goes from one state to another, whoever was running then.
    pub(super) fn socket_state(&mut self, event: &Event<'_>, address: u64, from: u32, to: u32) {
        let kind = match (from, to) {
            (SYN_RECV, ESTABLISHED) => Transfer::Accept,
            (SYN_SENT, ESTABLISHED) => Transfer::Connect,
            (_, CLOSE) => Transfer::Close,
            _ => return,
        };
        let at = Place::socket(self.socket(address));
        let now_ns = event.time_ns;
        let thread = NOBODY;
        let io = Io { thread, kind, at, result: 0, entered_ns: now_ns, left_ns: now_ns };
        push_one(&mut self.ios, io);
    }
}
