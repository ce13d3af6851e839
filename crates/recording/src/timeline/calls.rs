//! System calls: when a thread enters and leaves the kernel, and its transfers there.

use super::Timeline;
use crate::event::Event;
use crate::steps::push_one;
use crate::syscalls::{Hint, IoKind};
use crate::thread::{FdOrSocket, Io, Step};

/// Result of a `connect()` that goes on after the call.
const EINPROGRESS: i32 = -115;

impl Timeline {
    /// A thread enters a system call: notes whether it may wait and what it transfers. Only a write
    /// is stored at once; other transfers are when the call returns.
    pub(super) fn enter_call(&mut self, event: &Event<'_>, number: i64, args: &[u64; 6]) {
        if event.tid <= 0 {
            return;
        }
        let (hint, transfer) = (self.abi.hint(number, args), self.abi.transfer(number, args));
        if !self.cross_kernel(event, Some(hint)) {
            return;
        }
        let Some((kind, fd)) = transfer else { return };
        let live = self.live(event.tid);
        let (thread, at) = (live.thread, FdOrSocket::descriptor(fd));
        let io = Io { thread, kind, at, result: 0, entered_ns: event.time_ns, left_ns: 0 };
        if kind == IoKind::Write {
            // Data may arrive before the call returns, so a write begins at its entry.
            let at = self.ios.len() as u32;
            push_one(&mut self.ios, io);
            self.live(event.tid).sending = Some(at);
            self.add_step(event.tid, event.time_ns, Step::Io(at));
        } else {
            self.live(event.tid).transfer = Some(io);
        }
    }

    /// A thread returns from a system call: completes its write, or stores its transfer if it
    /// succeeded. An exit without an entry is ignored.
    pub(super) fn leave_call(&mut self, event: &Event<'_>, result: i64) {
        if event.tid <= 0 || !self.cross_kernel(event, None) {
            return;
        }
        // Sizes and descriptors fit 32 bits.
        let result = result.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        let live = self.live(event.tid);
        let (sending, transfer) = (live.sending.take(), live.transfer.take());
        if let Some(at) = sending {
            let io = &mut self.ios[at as usize];
            (io.result, io.left_ns) = (result, event.time_ns);
        }
        let done = |io: &Io| match io.kind {
            IoKind::Close => true,
            // The connection may be established after the call.
            IoKind::Connect => result >= 0 || result == EINPROGRESS,
            _ => result >= 0,
        };
        if let Some(io) = transfer.filter(done) {
            let at = self.ios.len() as u32;
            push_one(&mut self.ios, Io { result, left_ns: event.time_ns, ..io });
            if io.kind == IoKind::Accept {
                self.add_accept(at);
            }
            self.add_step(event.tid, event.time_ns, Step::Io(at));
        }
    }

    /// Notes entry into a system call (`Some`) or exit (`None`) as a step. Returns false for an
    /// exit without an entry; a second entry ends the call before. Both are counted as defects.
    fn cross_kernel(&mut self, event: &Event<'_>, call: Option<Hint>) -> bool {
        self.has_syscalls = true;
        let live = self.live(event.tid);
        let was_inside = live.call.is_some();
        live.call = call;
        let inside_now = call.is_some();
        let thread = self.thread_of(event.tid);
        if thread.starts_in_kernel.is_none() {
            thread.starts_in_kernel = Some(!inside_now);
        } else if was_inside == inside_now {
            self.defects.unpaired_syscalls += 1;
            if !inside_now {
                return false;
            }
            self.live(event.tid).transfer = None;
            self.live(event.tid).sending = None;
            self.add_step(event.tid, event.time_ns, Step::SysExit);
        }
        let step = if inside_now { Step::SysEnter } else { Step::SysExit };
        self.add_step(event.tid, event.time_ns, step);
        true
    }
}
