//! The meaning of the numbers and arguments of system calls, for waits and transfers.

/// The table of system call numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Abi {
    #[default]
    X86_64,
    /// The table shared by the newer architectures (arm64, RISC-V, and others).
    Generic,
    /// No call can be understood.
    Unknown,
}

/// How long a call means to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    Relative,
    Absolute,
    /// For an event, or at most so many ms.
    TimeoutMs(i32),
    /// For an event, or until a time that is not known.
    TimeoutUnknown,
    /// For an event, without a timeout.
    Event,
    Other,
}

/// The operation of a call on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoKind {
    Read,
    Write,
    /// Returns the new descriptor.
    Accept,
    Connect,
    Close,
    /// Asks which descriptors are ready, or waits for one.
    Poll,
}

/// `TIMER_ABSTIME` of `clock_nanosleep()`.
const TIMER_ABSTIME: u64 = 1;

#[derive(Clone, Copy)]
enum Call {
    Nanosleep,
    ClockNanosleep,
    /// Index of the argument with the timeout in ms.
    Millis(usize),
    /// Index of the argument that points to the timeout.
    Pointer(usize),
    Read,
}

impl Abi {
    /// The table of an architecture by its name in `uname -m`; x86-64 if the file does not tell.
    pub fn of(arch: Option<&str>) -> Self {
        match arch {
            None | Some("x86_64") => Abi::X86_64,
            Some("aarch64" | "riscv64" | "loongarch64" | "arm64") => Abi::Generic,
            Some(_) => Abi::Unknown,
        }
    }

    /// How long a call means to wait, by its number and arguments; [`Hint::Other`] for calls that
    /// are not known.
    pub fn hint(self, number: i64, args: &[u64; 6]) -> Hint {
        let call = match self {
            Abi::X86_64 => x86_64(number),
            Abi::Generic => generic(number),
            Abi::Unknown => None,
        };
        match call {
            None => Hint::Other,
            Some(Call::Read) => Hint::Event,
            Some(Call::ClockNanosleep) if args[1] & TIMER_ABSTIME != 0 => Hint::Absolute,
            Some(Call::Nanosleep | Call::ClockNanosleep) => Hint::Relative,
            Some(Call::Millis(at)) => match args[at] as i32 {
                ..0 => Hint::Event,
                ms => Hint::TimeoutMs(ms),
            },
            Some(Call::Pointer(at)) if args[at] == 0 => Hint::Event,
            Some(Call::Pointer(_)) => Hint::TimeoutUnknown,
        }
    }
}

impl Abi {
    /// The operation and the descriptor of a call, which means nothing for polls; `None` for other
    /// calls.
    pub fn transfer(self, number: i64, args: &[u64; 6]) -> Option<(IoKind, i32)> {
        let (kind, at) = match self {
            Abi::X86_64 => x86_64_transfer(number),
            Abi::Generic => generic_transfer(number),
            Abi::Unknown => None,
        }?;
        Some((kind, args[at] as i32))
    }
}

/// The operation of an x86-64 call on a descriptor, by the call's number, and the index of the
/// argument with that descriptor; `None` for other calls.
fn x86_64_transfer(number: i64) -> Option<(IoKind, usize)> {
    Some(match number {
        0 | 19 | 45 | 47 | 299 => (IoKind::Read, 0), // read, readv, recvfrom, recvmsg, recvmmsg
        // write, writev, sendfile, sendto, sendmsg, sendmmsg
        1 | 20 | 40 | 44 | 46 | 307 => (IoKind::Write, 0),
        3 => (IoKind::Close, 0),
        42 => (IoKind::Connect, 0),
        43 | 288 => (IoKind::Accept, 0), // accept, accept4
        // poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, epoll_pwait2
        7 | 23 | 232 | 270 | 271 | 281 | 441 => (IoKind::Poll, 0),
        _ => return None,
    })
}

/// The operation of a call on a descriptor, by the call's number in the table of newer
/// architectures such as arm64, and the index of the argument with that descriptor; `None` for
/// other calls.
fn generic_transfer(number: i64) -> Option<(IoKind, usize)> {
    Some(match number {
        // read, readv, recvfrom, recvmsg, recvmmsg
        63 | 65 | 207 | 212 | 243 => (IoKind::Read, 0),
        // write, writev, sendfile, sendto, sendmsg, sendmmsg
        64 | 66 | 71 | 206 | 211 | 269 => (IoKind::Write, 0),
        57 => (IoKind::Close, 0),
        203 => (IoKind::Connect, 0),
        202 | 242 => (IoKind::Accept, 0),
        22 | 72 | 73 | 441 => (IoKind::Poll, 0), // epoll_pwait, pselect6, ppoll, epoll_pwait2
        _ => return None,
    })
}

/// The waiting call of this number on x86-64; `None` if it is not known to wait.
fn x86_64(number: i64) -> Option<Call> {
    Some(match number {
        0 | 17 | 19 | 45 | 47 => Call::Read, // read, pread64, readv, recvfrom, recvmsg
        7 => Call::Millis(2),                // poll
        23 | 270 => Call::Pointer(4),        // select, pselect6
        35 => Call::Nanosleep,
        202 | 441 => Call::Pointer(3), // futex, epoll_pwait2
        230 => Call::ClockNanosleep,
        232 | 281 => Call::Millis(3), // epoll_wait, epoll_pwait
        271 => Call::Pointer(2),      // ppoll
        _ => return None,
    })
}

/// The waiting call of this number in the table of newer architectures; `None` if it is not known
/// to wait.
fn generic(number: i64) -> Option<Call> {
    Some(match number {
        63 | 65 | 67 | 207 | 212 => Call::Read, // read, readv, pread64, recvfrom, recvmsg
        22 => Call::Millis(3),                  // epoll_pwait
        72 => Call::Pointer(4),                 // pselect6
        73 => Call::Pointer(2),                 // ppoll
        98 | 441 => Call::Pointer(3),           // futex, epoll_pwait2
        101 => Call::Nanosleep,
        115 => Call::ClockNanosleep,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Abi, Hint};

    #[test]
    fn tells_lengths_from_points_of_time() {
        let x86 = Abi::of(Some("x86_64"));
        assert_eq!(x86.hint(35, &[0; 6]), Hint::Relative);
        assert_eq!(x86.hint(230, &[1, 0, 9, 0, 0, 0]), Hint::Relative);
        assert_eq!(x86.hint(230, &[1, 1, 9, 0, 0, 0]), Hint::Absolute);
        assert_eq!(Abi::of(Some("aarch64")).hint(115, &[1, 1, 9, 0, 0, 0]), Hint::Absolute);
        assert_eq!(Abi::of(Some("s390x")).hint(35, &[0; 6]), Hint::Other);
    }

    #[test]
    fn reads_timeouts() {
        let x86 = Abi::of(None);
        assert_eq!(x86.hint(232, &[5, 9, 1, 20, 0, 0]), Hint::TimeoutMs(20));
        assert_eq!(x86.hint(232, &[5, 9, 1, u32::MAX.into(), 0, 0]), Hint::Event);
        assert_eq!(x86.hint(202, &[5, 0, 1, 0, 0, 0]), Hint::Event);
        assert_eq!(x86.hint(202, &[5, 0, 1, 77, 0, 0]), Hint::TimeoutUnknown);
        assert_eq!(x86.hint(0, &[0; 6]), Hint::Event);
    }
}
