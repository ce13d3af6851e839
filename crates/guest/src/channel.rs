//! Channels of a workload: pipes in which a token is eight bytes that tell when it was sent.
//!
//! A bounded channel has a second pipe of credits: a sender takes them, a receiver gives them back.
//! A task that takes several passes a gate first, so that two tasks never hold a part each.

use crate::lock::open_pipe;
use crate::sys;
use crate::timers::TimePosition;
use cpumax_workload::{ChannelSpec, Op, Workload};

/// Size of a token, bytes.
pub const TOKEN_BYTES: usize = 8;
/// Set in a token that was sent inside a system call: the other bits are the address of a text with
/// the time.
const IS_TEXT: u64 = 1 << 63;
/// Tokens that fit in a pipe, if the kernel allows its size.
const CAPACITY: usize = 1 << 17;

/// One channel.
pub struct Channel {
    /// Read end and write end of the tokens.
    pub tokens: [i32; 2],
    /// Read end and write end of the credits, one byte each; -1: the channel is not bounded.
    pub credits: [i32; 2],
    /// Gate of receivers that take several tokens at once; -1: none do.
    pub receivers: [i32; 2],
    /// Gate of senders that send several tokens at once; -1: none do.
    pub senders: [i32; 2],
}

impl Channel {
    /// Makes the pipes of the workload's channel with index `ix`: one for tokens; one for credits,
    /// filled with its capacity, if it is bounded; and gates where one call sends or receives
    /// several.
    ///
    /// # Errors
    /// The kernel gives no pipe, or the capacity does not fit in one.
    pub fn new(workload: &Workload, ix: u32) -> Result<Channel, String> {
        let ChannelSpec { name, capacity, .. } = &workload.channels[ix as usize];
        let tokens = open_pipe()?;
        grow(tokens[1], CAPACITY * TOKEN_BYTES);
        let none = [-1; 2];
        let mut channel = Channel { tokens, credits: none, receivers: none, senders: none };
        let (mut sent, mut received) = (1, 1);
        for op in workload.tasks.iter().flat_map(|task| &task.program) {
            match *op {
                Op::Send { channel, n } if channel == ix => sent = sent.max(n),
                Op::Recv { channel, n } if channel == ix => received = received.max(n),
                _ => {}
            }
        }
        if *capacity != u64::MAX {
            if *capacity > CAPACITY as u64 {
                return Err(format!("channel {name:?}: a bound of more than {CAPACITY} tokens"));
            }
            channel.credits = open_pipe()?;
            grow(channel.credits[1], CAPACITY);
            write_bytes(channel.credits[1], *capacity as usize);
            if sent > 1 {
                channel.senders = new_gate()?;
            }
        }
        if received > 1 {
            channel.receivers = new_gate()?;
        }
        Ok(channel)
    }

    /// Sends `n` tokens stamped `now_ns` (since the start of the run). In a bounded channel it
    /// first waits for `n` credits.
    pub fn send(&self, n: u64, now_ns: u64) {
        if self.credits[0] >= 0 {
            hold_gate_while(self.senders, || read_bytes(self.credits[0], n as usize));
        }
        self.put(n, now_ns);
    }

    /// Writes `n` tokens stamped `now_ns` (since the start of the run), without taking credits;
    /// waits while the pipe is full.
    pub fn put(&self, n: u64, now_ns: u64) {
        let tokens = [now_ns & !IS_TEXT; 64];
        let mut left = n as usize;
        while left > 0 {
            let some = left.min(tokens.len());
            sys::write(self.tokens[1], tokens.as_ptr().cast(), some * TOKEN_BYTES);
            left -= some;
        }
    }

    /// Receives `n` tokens, waiting for them, and returns their credits to the senders. Returns the
    /// last token; 0 if an error of the pipe came before any.
    pub fn receive(&self, n: u64) -> u64 {
        let mut last = 0;
        hold_gate_while(self.receivers, || {
            let mut tokens = [0u64; 64];
            let mut left = n as usize * TOKEN_BYTES;
            while left > 0 {
                let most = left.min(tokens.len() * TOKEN_BYTES);
                let got = sys::read(self.tokens[0], tokens.as_mut_ptr().cast(), most);
                if got > 0 {
                    left -= got as usize;
                    last = tokens[(got as usize / TOKEN_BYTES).max(1) - 1];
                } else if got != -(libc::EINTR as isize) {
                    return;
                }
            }
        });
        if self.credits[1] >= 0 {
            write_bytes(self.credits[1], n as usize);
        }
        last
    }

    /// Takes the oldest unread token out; returns it, and how many were unread with it. `None` if
    /// there are none. For use when the run is over.
    pub fn take_oldest_waiting(&self) -> Option<(u64, u64)> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: there is room for a number.
        unsafe { libc::ioctl(self.tokens[0], libc::FIONREAD, &raw mut bytes) };
        let n = bytes.unsigned_abs() as usize / TOKEN_BYTES;
        let mut oldest = 0u64;
        if n == 0 || sys::read(self.tokens[0], (&raw mut oldest).cast(), TOKEN_BYTES) <= 0 {
            return None;
        }
        Some((oldest, n as u64))
    }

    /// Whether the pipe has room for one more token now.
    pub fn has_room(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.tokens[1], events: libc::POLLOUT, revents: 0 };
        // SAFETY: there is one element.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }
}

/// The token of a sender inside a system call: the address of `text`, to which the call writes the
/// time before it sends.
pub fn token_of_text(text: *const u8) -> u64 {
    text as u64 | IS_TEXT
}

/// When a token was sent, ns since the start of the run (`start_ns`); a token that points to a text
/// is read there.
pub fn token_ns(token: u64, clock: &TimePosition, start_ns: u64) -> u64 {
    if token & IS_TEXT == 0 {
        return token;
    }
    let text = (token & !IS_TEXT) as *const u8;
    // SAFETY: tokens with this bit come from `token_of_text`, whose texts are in slots that live as
    // long as the run and have room for a whole header.
    let text = unsafe { std::slice::from_raw_parts(text, clock.bytes) };
    clock.time_ns(text).saturating_sub(start_ns)
}

/// Calls `act` while holding the gate (its one byte is taken before and put back after); at once if
/// there is none.
fn hold_gate_while(gate: [i32; 2], act: impl FnOnce()) {
    if gate[0] < 0 {
        act();
        return;
    }
    read_bytes(gate[0], 1);
    act();
    write_bytes(gate[1], 1);
}

/// Makes a gate: a pipe with one byte, which only one task at a time can take.
///
/// # Errors
/// The kernel gives no pipe.
fn new_gate() -> Result<[i32; 2], String> {
    let ends = open_pipe()?;
    write_bytes(ends[1], 1);
    Ok(ends)
}

/// Writes `n` bytes to a pipe; waits while it is full.
fn write_bytes(fd: i32, mut n: usize) {
    let bytes = [0u8; 256];
    while n > 0 {
        let some = n.min(bytes.len());
        sys::write(fd, bytes.as_ptr(), some);
        n -= some;
    }
}

/// Reads `n` bytes from a pipe, waiting for them; returns early on an error.
fn read_bytes(fd: i32, mut n: usize) {
    let mut bytes = [0u8; 256];
    while n > 0 {
        let got = sys::read(fd, bytes.as_mut_ptr(), n.min(bytes.len()));
        if got > 0 {
            n -= got as usize;
        } else if got != -(libc::EINTR as isize) {
            return;
        }
    }
}

/// Asks the kernel for a pipe of this size; it keeps its size where that is refused.
fn grow(fd: i32, bytes: usize) {
    // SAFETY: the call takes a number.
    unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, bytes as libc::c_int) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_workload::parse;

    fn channel(capacity: &str) -> Channel {
        let text = format!(
            "duration = \"1s\"\n[[channel]]\nname = \"c\"\n{capacity}\n[[task]]\nname = \"t\"\n\
             program = [{{ forever = [{{ recv = \"c\", n = 3 }}, {{ user = \"1ms\" }}] }}]\n"
        );
        Channel::new(&parse(&text, "c.toml").unwrap(), 0).unwrap()
    }

    #[test]
    fn the_last_token_tells_when_the_request_was_complete() {
        let channel = channel("");
        channel.send(2, 5);
        channel.send(2, 9);
        assert_eq!(channel.receive(3), 9);
        channel.send(200, 11);
        assert_eq!(channel.receive(200), 11);
    }

    #[test]
    fn a_sender_waits_for_room() {
        let channel = channel("capacity = 3");
        channel.send(3, 1);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| channel.send(3, 2));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!sender.is_finished());
            assert_eq!(channel.receive(3), 1);
            assert_eq!(channel.receive(3), 2);
        });
    }

    #[test]
    fn a_token_from_inside_a_call_points_to_the_time() {
        let text = b"now at 1000123 nsecs";
        let clock = TimePosition::find("now at 1000123 nsecs\n\n").unwrap();
        let mut padded = [b' '; 64];
        padded[..text.len()].copy_from_slice(text);
        let token = token_of_text(padded.as_ptr());
        assert_eq!(token_ns(token, &clock, 1_000_000), 123);
        assert_eq!(token_ns(77, &clock, 1_000_000), 77);
    }
}
