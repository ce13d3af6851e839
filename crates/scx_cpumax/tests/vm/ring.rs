// SPDX-License-Identifier: GPL-2.0-only
//! Loads whose work is done by threads that the kernel creates in their process: `io_uring`, with
//! the layout of its header.
//!
//! Requests read /dev/zero, which is work without waiting. A flag makes worker threads carry them
//! out.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::loads::{add_one, shared_count, until_in_group};

const ENTRIES: u32 = 8;
const SETUP_SQPOLL: u32 = 1 << 1;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const OFF_SQES: i64 = 0x1000_0000;
const OP_READ: u8 = 22;
const SQE_ASYNC: u8 = 1 << 4;

#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    /// Flags of the submission queue, or the overflow count of the completion queue.
    fifth: u32,
    /// Number of dropped submissions, or the offset of the completions.
    sixth: u32,
    /// Offset of the submission indices, or flags.
    seventh: u32,
    reserved: u32,
    user_address: u64,
}

#[repr(C)]
#[derive(Default)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle_ms: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: Offsets,
    cq: Offsets,
}

#[repr(C)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    rw_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

struct Ring {
    fd: i32,
    rings: *mut u8,
    submissions: *mut Submission,
    parameters: Parameters,
}

impl Ring {
    fn new(flags: u32, idle_ms: u32) -> Self {
        let mut parameters =
            Parameters { flags, sq_thread_idle_ms: idle_ms, ..Parameters::default() };
        // SAFETY: a structure of the length that the kernel expects, which it fills in.
        let fd =
            unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut parameters) } as i32;
        assert!(fd >= 0, "a ring: {}", std::io::Error::last_os_error());
        let map = |offset: i64| {
            // SAFETY: maps memory of the ring at the fixed offsets; accesses beyond the mapping
            // fault and cannot touch other memory.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    fd,
                    offset,
                )
            };
            assert_ne!(at, libc::MAP_FAILED, "the ring's memory");
            at.cast::<u8>()
        };
        Self { fd, rings: map(0), submissions: map(OFF_SQES).cast(), parameters }
    }

    fn number(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: an aligned number in the memory that the kernel and this process share, at the
        // offset that the kernel gave.
        unsafe { AtomicU32::from_ptr(self.rings.add(offset as usize).cast()) }
    }

    fn submit_read(&mut self, file: &File, buffer: &mut [u8], flags: u8, enter: u32) {
        let tail = self.number(self.parameters.sq.tail).load(Ordering::Relaxed);
        let slot = tail % ENTRIES;
        let request = Submission {
            opcode: OP_READ,
            flags,
            ioprio: 0,
            fd: file.as_raw_fd(),
            offset: 0,
            address: buffer.as_mut_ptr() as u64,
            length: buffer.len() as u32,
            rw_flags: 0,
            user_data: 0,
            rest: [0; 3],
        };
        // SAFETY: one of the submissions of the ring; the kernel has consumed it before the index
        // comes round again.
        unsafe { self.submissions.add(slot as usize).write(request) };
        self.number(self.parameters.sq.seventh + slot * 4).store(slot, Ordering::Relaxed);
        self.number(self.parameters.sq.tail).store(tail.wrapping_add(1), Ordering::Release);
        // SAFETY: the arguments are numbers.
        unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.fd, 1, 0, enter, std::ptr::null::<u8>(), 0)
        };
    }

    /// Takes a completion off the queue; false if there is none.
    fn done(&self) -> bool {
        let head = self.number(self.parameters.cq.head);
        let any = head.load(Ordering::Relaxed)
            != self.number(self.parameters.cq.tail).load(Ordering::Acquire);
        if any {
            head.fetch_add(1, Ordering::Release);
        }
        any
    }
}

/// Lets workers read so many KB per request, a few requests at a time, counts the completed ones,
/// and is busy itself meanwhile.
pub fn reads(path: &str, kilobytes: u64) -> ! {
    until_in_group();
    let count = shared_count(path);
    let mut ring = Ring::new(0, 0);
    let zero = File::open("/dev/zero").expect("/dev/zero");
    let mut buffer = vec![0_u8; (kilobytes as usize) << 10];
    for _ in 0..ENTRIES {
        ring.submit_read(&zero, &mut buffer, SQE_ASYNC, 0);
    }
    loop {
        if ring.done() {
            add_one(count);
            ring.submit_read(&zero, &mut buffer, SQE_ASYNC, 0);
        }
    }
}

/// Sleeps, while a thread that the kernel created for it polls for requests without a pause.
pub fn polled() -> ! {
    until_in_group();
    let mut ring = Ring::new(SETUP_SQPOLL, 3_600_000);
    let zero = File::open("/dev/zero").expect("/dev/zero");
    let mut buffer = [0; 16];
    ring.submit_read(&zero, &mut buffer, 0, ENTER_SQ_WAKEUP);
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
