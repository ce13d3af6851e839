//! Real locks that stand for those of a workload: the inode of a file in memory, bytes in a pipe,
//! or a queue in user space.
//!
//! The queue serves in order of arrival, like the model's locks of user space: a reader lets the
//! next waiter go on, a writer waits until the readers inside have left. Kernel locks have an order
//! of their own.

use crate::plan::RealLock;
use crate::sys;
use crate::work;
use cpumax_workload::LockMode;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// A lock of the workload, with the files that it is made of.
pub struct Lock {
    /// Kind of the real lock.
    pub made: RealLock,
    /// The file whose inode is the lock, or -1.
    pub file: i32,
    /// Pipe with one byte, read end and write end: a task takes the byte to pass the gate.
    pub gate: [i32; 2],
    /// Pipe with a byte for each reader there may be.
    pub room: [i32; 2],
    queue: Queue,
}

/// A first-come-first-served lock in user space, by tickets.
#[derive(Default)]
struct Queue {
    next: AtomicU32,
    serving: AtomicU32,
    readers: AtomicU32,
}

/// Writes of a whole file before the cost of its pages is stable: until then the kernel notes that
/// a page is in use (kernel: `folio_mark_accessed()`).
const WRITES_TO_SETTLE: usize = 3;

impl Lock {
    /// Makes a lock of this kind. The file of an inode is written several times over `write_bytes`,
    /// from `scratch`, so that later writes find its pages.
    ///
    /// # Errors
    /// The kernel has no more pipes or memory.
    pub fn new(made: RealLock, write_bytes: usize, scratch: *mut u8) -> Result<Lock, String> {
        let none = [-1; 2];
        let mut lock = Lock { made, file: -1, gate: none, room: none, queue: Queue::default() };
        match made {
            RealLock::Inode => {
                lock.file = work::memory_file().map_err(|error| error.to_string())?;
                for _ in 0..WRITES_TO_SETTLE {
                    let mut at = 0;
                    while at < write_bytes {
                        let n = work::SCRATCH_BYTES.min(write_bytes - at);
                        let written = sys::pwrite(lock.file, scratch, n, at);
                        if written <= 0 {
                            return Err(format!("no memory for a write of {write_bytes} bytes"));
                        }
                        at += written as usize;
                    }
                }
            }
            RealLock::Pipe { readers } => {
                lock.gate = pipe(1)?;
                lock.room = pipe(readers as usize)?;
            }
            RealLock::Futex | RealLock::MemoryMap | RealLock::Owner => {}
        }
        Ok(lock)
    }

    /// Takes the lock from user mode, waiting for it: by pipe reads or, for all other kinds, a
    /// futex.
    pub fn take(&self, mode: LockMode) {
        match self.made {
            RealLock::Pipe { readers } => self.take_pipe(mode, readers),
            _ => self.queue.take(mode),
        }
    }

    /// Releases the lock from user mode and lets the next tasks take it; `mode` is that in which it
    /// was taken.
    pub fn release(&self, mode: LockMode) {
        match self.made {
            RealLock::Pipe { readers } => {
                let n = if mode == LockMode::Write { readers } else { 1 };
                put(self.room[1], n as usize);
                if mode == LockMode::Write {
                    put(self.gate[1], 1);
                }
            }
            _ => self.queue.release(mode),
        }
    }

    /// Takes the byte of the gate, then one byte of the room as a reader or all as a writer; waits
    /// for each. A reader opens the gate again; a writer keeps it shut until it releases the lock.
    fn take_pipe(&self, mode: LockMode, readers: u32) {
        take(self.gate[0], 1);
        if mode == LockMode::Write {
            take(self.room[0], readers as usize);
        } else {
            take(self.room[0], 1);
            put(self.gate[1], 1);
        }
    }
}

impl Queue {
    /// Takes a ticket and waits for its turn by futex(2). A reader then lets the next ticket go on;
    /// a writer waits until no reader is inside.
    fn take(&self, mode: LockMode) {
        let ticket = self.next.fetch_add(1, SeqCst);
        loop {
            let serving = self.serving.load(Acquire);
            if serving == ticket {
                break;
            }
            sys::futex_wait(self.serving.as_ptr(), serving, 1 << (ticket % 32));
        }
        if mode == LockMode::Read {
            self.readers.fetch_add(1, SeqCst);
            self.serve_next();
            return;
        }
        loop {
            let readers = self.readers.load(Acquire);
            if readers == 0 {
                return;
            }
            sys::futex_wait(self.readers.as_ptr(), readers, u32::MAX);
        }
    }

    /// Releases the lock: a writer lets the next ticket go on; the last reader wakes a writer that
    /// waits.
    fn release(&self, mode: LockMode) {
        if mode == LockMode::Write {
            self.serve_next();
        } else if self.readers.fetch_sub(1, Release) == 1 && self.is_waited_for() {
            sys::futex_wake(self.readers.as_ptr(), 1, u32::MAX);
        }
    }

    /// Increments the ticket that is served, and wakes its task if it waits.
    fn serve_next(&self) {
        let serving = self.serving.fetch_add(1, SeqCst).wrapping_add(1);
        if self.next.load(SeqCst) != serving {
            sys::futex_wake(self.serving.as_ptr(), u32::MAX >> 1, 1 << (serving % 32));
        }
    }

    /// Whether a task holds a ticket whose turn is now or later.
    fn is_waited_for(&self) -> bool {
        self.next.load(SeqCst) != self.serving.load(Relaxed)
    }
}

/// A new pipe with this many bytes in it, at most 64.
///
/// # Errors
/// The kernel gives no pipe.
fn pipe(bytes: usize) -> Result<[i32; 2], String> {
    let ends = open_pipe()?;
    put(ends[1], bytes);
    Ok(ends)
}

/// An empty pipe: read end and write end.
///
/// # Errors
/// The kernel refuses.
pub fn open_pipe() -> Result<[i32; 2], String> {
    let mut ends = [-1; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(format!("no pipe: {}", std::io::Error::last_os_error()));
    }
    Ok(ends)
}

/// Writes `n` bytes, at most 64, to a pipe.
fn put(fd: i32, n: usize) {
    let bytes = [0u8; 64];
    sys::write(fd, bytes.as_ptr(), n.min(bytes.len()));
}

/// Reads `n` bytes, at most 64, from a pipe, waiting for them; returns early on an error.
fn take(fd: i32, n: usize) {
    let mut bytes = [0u8; 64];
    let mut left = n.min(bytes.len());
    while left > 0 {
        let got = sys::read(fd, bytes.as_mut_ptr(), left);
        if got > 0 {
            left -= got as usize;
        } else if got != -(libc::EINTR as isize) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    fn hammer(made: RealLock) -> u64 {
        let lock = Lock::new(made, 0, std::ptr::null_mut()).unwrap();
        let (inside, broken) = (AtomicU32::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for reader in [false, false, true, true] {
                let (lock, inside, broken) = (&lock, &inside, &broken);
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let mode = if reader { LockMode::Read } else { LockMode::Write };
                        lock.take(mode);
                        let add = if reader { 1 } else { 1000 };
                        let seen = inside.fetch_add(add, SeqCst);
                        let alone = if reader { seen < 1000 } else { seen == 0 };
                        broken.fetch_add(u64::from(!alone), SeqCst);
                        inside.fetch_sub(add, SeqCst);
                        lock.release(mode);
                    }
                });
            }
        });
        broken.into_inner()
    }

    #[test]
    fn a_writer_is_alone_and_readers_are_among_themselves() {
        assert_eq!(hammer(RealLock::Futex), 0);
        assert_eq!(hammer(RealLock::Pipe { readers: 2 }), 0);
    }
}
