//! The process of a task: memory for its system calls, and its start.

use super::call::Call;
use super::task_main;
use crate::sys;
use crate::work::SCRATCH_BYTES;
use crate::world::{Phase, Slot, World};
use std::sync::atomic::Ordering::Relaxed;

/// Elements of the vector of one readv(2) or pwritev(2).
pub(super) const VECTOR: usize = 1024;

/// Buffers of one task; only that task touches them once it runs.
pub struct TaskBuffers {
    /// The first element has the length of the remainder, all others are whole buffers.
    pub vector: [libc::iovec; VECTOR],
    /// State for lists of requests.
    pub call: Call,
}

// SAFETY: the pointers in it are to memory that lives as long as the process.
unsafe impl Send for TaskBuffers {}

impl TaskBuffers {
    /// Whole buffers at `scratch`, which has [`SCRATCH_BYTES`], and no requests.
    pub fn new(scratch: *mut u8) -> TaskBuffers {
        let buffer = libc::iovec { iov_base: scratch.cast(), iov_len: SCRATCH_BYTES };
        TaskBuffers { vector: [buffer; VECTOR], call: Call::new() }
    }
}

/// Starts the process of the task in this slot, in a cgroup (descriptor of its directory) or in the
/// caller's, and logs it in `births`. The task counts as ready from the slot's `start_at_ns` on.
/// Returns its pid, or the kernel's error as a negative number.
pub fn start_process(world: &World, slot: &Slot, cgroup: Option<i32>) -> isize {
    let from = world.speed.stamps(slot.start_at_ns.load(Relaxed));
    let start_stamp = world.start_stamp.load(Relaxed);
    slot.last_stamp.store(start_stamp.saturating_add(from), Relaxed);
    slot.phase.store(Phase::Ready as u32, Relaxed);
    slot.needs_ns.store(0, Relaxed);
    let ix = slot.ix;
    // SAFETY: the stack is the slot's own, and unused as the slot was free. The body obeys the head
    // of `sys`.
    let pid = unsafe { sys::start(slot.stack, cgroup, slot.pid.as_ptr().cast(), task_main, ix) };
    if pid > 0 {
        world.births.push(pid as u32, slot.kind.load(Relaxed), slot.number.load(Relaxed));
    }
    pid
}
