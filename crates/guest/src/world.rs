//! The memory that the controller and all tasks of a run share.
//!
//! It is made before the first task starts and lives as long as the process. Values that change are
//! atomic, or belong to one task.

pub mod attributes;
pub mod task;

use crate::lateness::Lateness;
use crate::memory_map::MemoryMap;
use crate::plan::{Plan, RealLock};
use crate::timers::TimePosition;
use crate::work::{Speed, WorkFiles, read_tsc};
use cpumax_workload::Workload;
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use task::{Task, TaskBuffers};

/// Bytes of the stack of a task.
pub const STACK_BYTES: usize = 64 << 10;

/// A step that ends later than this after it could have was a stall, ns.
pub const SLACK_NS: u64 = 50_000;

/// The run of this process; a process has at most one.
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

/// Everything that controller and tasks share.
pub struct World {
    /// The workload of the run.
    pub workload: Workload,
    /// How real system calls execute it.
    pub plan: Plan,
    /// Seed of every random stream.
    pub seed: u64,
    /// Time is counted in instructions, so calibrated lengths are exact. Otherwise tasks ask the
    /// kernel for the CPU time they have used.
    pub is_exact: bool,
    /// Measured speed of this machine.
    pub speed: Speed,
    /// How late sleeps end; empty in an exact run.
    pub lateness: Lateness,
    /// Files that stand for kernel work.
    pub files: WorkFiles,
    /// Buffer for kernel work.
    pub scratch: *mut u8,
    /// Pid of the controller.
    pub pid: usize,
    /// The clock whose owner's lock is taken by tasks and by the timer thread, if the scenario has
    /// one.
    pub clock_device: Option<crate::owner::Clock>,
    /// By lock.
    pub locks: Vec<crate::lock::Lock>,
    /// The memory map whose lock tasks take, if any do.
    pub memory_map: OnceLock<MemoryMap>,
    /// By channel.
    pub channels: Vec<crate::channel::Channel>,
    /// By group: descriptors of `cgroup.procs`, to which a pid is written to move a task; -1: none.
    pub procs_fds: Vec<[i32; 2]>,
    /// Pids of sleeping processes that keep groups populated. When an empty group gets its first
    /// task, the kernel wakes a worker that would compete with the task.
    pub keepers: Vec<i32>,
    /// Places of tasks that run now or later.
    pub slots: Vec<Slot>,
    /// By kind.
    pub kind_counts: Vec<KindCounts>,
    /// Completed requests.
    pub log: Log,
    /// Started tasks: pid, kind, number.
    pub births: Log,
    /// Begin (1) and end (0) of calls that wait for locks made of pipes: pid, 1 or 0, ns.
    pub locking: Log,
    /// A trace of switches is recorded, so tasks need not measure their stalls themselves.
    pub traced: AtomicBool,
    /// Number of the next task.
    pub next_number: AtomicU64,
    /// `/proc/timer_list`, open for reading.
    pub clock_fd: i32,
    /// Where the time stands in what `clock_fd` reads.
    pub clock: TimePosition,
    /// Start of the run by `CLOCK_MONOTONIC`, ns.
    pub start_ns: AtomicU64,
    /// Start of the run by the time-stamp counter; `u64::MAX` before it is known.
    pub start_stamp: AtomicU64,
    /// The first fault of a task (a [`Fault`]), and the kernel's error number.
    pub failure: [AtomicU64; 2],
    /// Whether tasks die with the controller (on the host).
    pub die_with_parent: bool,
}

// SAFETY: shared values are atomic. `TaskBuffers` is touched by the task in its slot, and before
// that task starts by the process that starts it.
unsafe impl Sync for World {}

/// A failure in a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Fault {
    /// No free slot for a forked task.
    TooManyTasks = 1,
    /// A system call failed that should not fail.
    Call,
    /// A list of requests was refused.
    List,
    /// A process could not be started.
    Start,
}

impl World {
    /// Makes this the run of the process, which tasks find by [`World::installed`]; it is never
    /// freed.
    pub fn install(self) -> &'static World {
        let world: &'static World = Box::leak(Box::new(self));
        WORLD.store(std::ptr::from_ref(world).cast_mut(), Release);
        world
    }

    /// The run of this process, for a task that begins. [`World::install`] must come first.
    pub fn installed() -> &'static World {
        // SAFETY: a task starts after `install`, which leaks what it stores.
        unsafe { &*WORLD.load(Acquire) }
    }

    /// Makes and measures the memory map, if the plan has a lock of it. The process must have
    /// locked its memory before.
    ///
    /// # Errors
    /// The mapping fails, the kernel is older than 5.14, or a hold needs too many pages.
    pub fn make_memory_map(&self) -> Result<(), String> {
        if let Some(lock) = self.plan.locks.iter().position(|made| *made == RealLock::MemoryMap) {
            let map = MemoryMap::new(&self.workload, lock as u32, &self.speed)?;
            let _ = self.memory_map.set(map);
        }
        Ok(())
    }

    /// Time since the start of the run, ns; 0 before it.
    pub fn now_ns(&self) -> u64 {
        self.since_start_ns(read_tsc())
    }

    /// Time from the start of the run to a value of the counter, ns; 0 before the start.
    pub fn since_start_ns(&self, at: u64) -> u64 {
        self.speed.ns(at.saturating_sub(self.start_stamp.load(Relaxed)))
    }

    /// Whether a task's own accounting counts its stall in a phase with `needs_ns` of work: always
    /// for pure waits for a lock, otherwise only where no trace shows the stall better.
    pub fn sees_stall(&self, phase: u32, needs_ns: u64) -> bool {
        !self.traced.load(Relaxed) || phase == Phase::Blocked as u32 && needs_ns == 0
    }

    /// Notes a fault of a task with the kernel's result, if it is the run's first; the controller
    /// then refuses the run.
    pub fn note_fault(&self, fault: Fault, result: isize) {
        let none = self.failure[0].compare_exchange(0, fault as u64, Relaxed, Relaxed);
        if none.is_ok() {
            self.failure[1].store(result.unsigned_abs() as u64, Relaxed);
        }
    }

    /// Takes a free slot for a new task of this kind, resets it, and numbers the task within kind
    /// and run. `None`: all are taken.
    pub fn take_slot(&self, kind: u32, group: u32) -> Option<&Slot> {
        let is_free = |slot: &&Slot| {
            let taken = slot.state.compare_exchange(FREE, LIVE, Acquire, Relaxed);
            taken.is_ok()
        };
        let slot = self.slots.iter().find(is_free)?;
        let number = self.next_number.fetch_add(1, Relaxed);
        let instance = self.kind_counts[kind as usize].count.fetch_add(1, Relaxed);
        slot.kind.store(kind, Relaxed);
        slot.group.store(group, Relaxed);
        slot.number.store(number, Relaxed);
        slot.instance.store(instance as u32, Relaxed);
        slot.stall_ns.store(0, Relaxed);
        slot.wait_ns.store(0, Relaxed);
        slot.used_before_us.store(0, Relaxed);
        slot.pid.store(0, Relaxed);
        slot.task.store(std::ptr::null_mut(), Relaxed);
        Some(slot)
    }

    /// The slot of the task with this pid that has not been reaped; `None` if there is none.
    pub fn slot_of(&self, pid: i32) -> Option<&Slot> {
        let is_it =
            |slot: &&Slot| slot.state.load(Relaxed) != FREE && slot.pid.load(Relaxed) == pid;
        self.slots.iter().find(is_it)
    }

    /// Adds the CPU time and waits of a reaped task to its kind and frees its slot. For a killed
    /// task it also notes the exit and the wait in which it died. A pid of no task is ignored.
    pub fn account_reaped(&self, pid: i32, usage: &libc::rusage) {
        let Some(slot) = self.slot_of(pid) else { return };
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let counts = &self.kind_counts[slot.kind.load(Relaxed) as usize];
        let used_us = slot.used_us(us(usage.ru_utime) + us(usage.ru_stime));
        counts.usage_us.fetch_add(used_us, Relaxed);
        if slot.state.load(Relaxed) == LIVE {
            // It was killed, so it has not noted its end itself.
            let now_ns = self.now_ns();
            self.add_unfinished(slot, now_ns);
            counts.note_exit(now_ns);
        }
        slot.add_waits_to(counts);
        slot.state.store(FREE, Release);
    }

    /// Adds the wait or stall in which a task is when the run or its life ends (`ended_ns`, since
    /// the start of the run) to its slot's times. Up to [`SLACK_NS`] is none.
    pub fn add_unfinished(&self, slot: &Slot, ended_ns: u64) {
        let phase = slot.phase.load(Relaxed);
        let since_ns = self.since_start_ns(slot.last_stamp.load(Relaxed));
        let waited_ns = ended_ns.saturating_sub(since_ns + slot.needs_ns.load(Relaxed));
        let counts = phase == Phase::Ready as u32 || phase == Phase::Blocked as u32;
        if counts && waited_ns > SLACK_NS {
            if self.sees_stall(phase, slot.needs_ns.load(Relaxed)) {
                slot.stall_ns.fetch_max(waited_ns, Relaxed);
            }
            if phase == Phase::Ready as u32 {
                slot.wait_ns.fetch_add(waited_ns, Relaxed);
            }
        }
    }
}

/// A slot in which no task is.
pub const FREE: u32 = 0;
/// A task is there, or about to start.
pub const LIVE: u32 = 1;
/// The task has ended and has not been waited for.
pub const ENDED: u32 = 2;

/// Current activity of a task, shown to the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// It wants to run.
    Ready = 1,
    /// It waits for a time, for tokens or for children.
    Asleep,
    /// It waits for a lock.
    Blocked,
}

/// Order to a waiting task. A task created during the run begins at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Cue {
    /// Keep waiting.
    Wait,
    /// Begin the program.
    Begin,
    /// Rehearse, then wait.
    Rehearse,
}

/// The place of one task, with what it shows to the controller.
#[repr(align(128))]
pub struct Slot {
    /// Index in [`World::slots`].
    pub ix: usize,
    /// [`FREE`], [`LIVE`] or [`ENDED`].
    pub state: AtomicU32,
    /// Pid of the task; 0: not started.
    pub pid: AtomicI32,
    /// Kind of task.
    pub kind: AtomicU32,
    /// Number of the task within its kind.
    pub instance: AtomicU32,
    /// Number of the task within the run.
    pub number: AtomicU64,
    /// Group it is in.
    pub group: AtomicU32,
    /// When it is to start, ns since the start of the run.
    pub start_at_ns: AtomicU64,
    /// A [`Cue`]: what the task is to do.
    pub cue: AtomicU32,
    /// CPU time used before the run, in the rehearsal, us.
    pub used_before_us: AtomicU64,
    /// Nice value, class and affinity, packed by [`attributes::pack_attributes`].
    pub attributes: AtomicU32,
    /// A [`Phase`]: what the task is doing.
    pub phase: AtomicU32,
    /// When the phase began, by the time-stamp counter.
    pub last_stamp: AtomicU64,
    /// CPU time that the phase takes at least, ns.
    pub needs_ns: AtomicU64,
    /// Longest stall, ns.
    pub stall_ns: AtomicU64,
    /// Sum of all waits, ns.
    pub wait_ns: AtomicU64,
    /// The interpreter, on the task's stack, once the task has begun.
    pub task: AtomicPtr<Task>,
    /// Upper end of the task's stack.
    pub stack: *mut u8,
    /// Buffers that only the task touches.
    pub buffers: UnsafeCell<TaskBuffers>,
}

impl Slot {
    /// Sets the task's cue and wakes the task (futex) if it waits for one.
    pub fn set_cue(&self, go: Cue) {
        self.cue.store(go as u32, Release);
        crate::sys::futex_wake(self.cue.as_ptr(), 1, u32::MAX);
    }

    /// CPU time used in the run, us: `all_us`, which the process has used, less that of the
    /// rehearsal.
    pub fn used_us(&self, all_us: u64) -> u64 {
        all_us.saturating_sub(self.used_before_us.load(Relaxed))
    }

    /// Adds this task's waits to its kind's sum and its longest stall to the kind's maximum, and
    /// resets them.
    pub fn add_waits_to(&self, counts: &KindCounts) {
        counts.wait_ns.fetch_add(self.wait_ns.swap(0, Relaxed), Relaxed);
        counts.stall_ns.fetch_max(self.stall_ns.swap(0, Relaxed), Relaxed);
    }
}

/// Counts of all tasks of one kind.
#[derive(Debug, Default)]
pub struct KindCounts {
    /// Tasks so far.
    pub count: AtomicU64,
    /// CPU time of ended tasks, us.
    pub usage_us: AtomicU64,
    /// Sum of the waits of ended tasks, ns.
    pub wait_ns: AtomicU64,
    /// Longest stall of ended tasks, ns.
    pub stall_ns: AtomicU64,
    /// Exited tasks.
    pub exited: AtomicU64,
    /// When the last one exited, ns since the start of the run.
    pub last_exit_ns: AtomicU64,
    /// By instance: 1 + the CPU that the task began on; 0: not begun. Empty in an exact run and for
    /// forked tasks.
    pub first_cpus: Box<[AtomicU32]>,
}

impl KindCounts {
    /// Zero counts for a kind of which the workload starts `count` tasks; room for their first CPUs
    /// unless the run is exact.
    pub fn new(count: u32, is_exact: bool) -> KindCounts {
        let noted = if is_exact { 0 } else { count };
        let first_cpus = (0..noted).map(|_| AtomicU32::new(0)).collect();
        KindCounts { first_cpus, ..KindCounts::default() }
    }

    /// Stores the caller's CPU as that on which an instance begins.
    pub fn note_first_cpu(&self, instance: u32) {
        if let Some(first) = self.first_cpus.get(instance as usize) {
            first.store(crate::sys::cpu() + 1, Relaxed);
        }
    }

    /// Counts one more exit of the kind, at `ns` since the start of the run, and keeps the latest.
    pub fn note_exit(&self, ns: u64) {
        self.exited.fetch_add(1, Relaxed);
        self.last_exit_ns.fetch_max(ns, Relaxed);
    }
}

/// A list of fixed size to which tasks append without a lock. For requests an entry is kind, group
/// and latency (ns), in order of completion; other lists put other numbers in the same fields.
pub struct Log {
    entries: *mut [u64; 2],
    room: u64,
    next: AtomicU64,
}

impl Log {
    /// Most requests in a run.
    pub const MAX_REQUESTS: u64 = 4 << 20;
    /// Most births, or most calls that take locks.
    pub const MAX_OTHERS: u64 = 1 << 18;
    /// Entries whose memory is filled before the run, so that appending causes no page fault. A
    /// page holds 256 entries. Filling all of it would take most of a run's time in an emulated
    /// machine.
    const AT_HAND: u64 = 1 << 15;

    /// An empty list of `room` entries, more than [`Log::AT_HAND`]. Call [`Log::open`] before use.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn new(room: u64) -> std::io::Result<Log> {
        let entries = crate::work::map_memory(room as usize * size_of::<[u64; 2]>())?;
        let log = Log { entries: entries.cast(), room, next: AtomicU64::new(0) };
        log.protect_rest(libc::PROT_NONE)?;
        Ok(log)
    }

    /// Makes the entries beyond [`Log::AT_HAND`] accessible; to be called after mlockall(2), which
    /// must not fill them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open(&self) -> std::io::Result<()> {
        let (rest, bytes) = self.rest();
        // SAFETY: the memory is ours; where it is not locked nothing happens.
        unsafe { libc::munlock(rest, bytes) };
        self.protect_rest(libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Address and bytes of the entries beyond [`Log::AT_HAND`].
    fn rest(&self) -> (*mut libc::c_void, usize) {
        let bytes = (self.room - Log::AT_HAND) as usize * size_of::<[u64; 2]>();
        // SAFETY: there is room for more than what is at hand.
        (unsafe { self.entries.add(Log::AT_HAND as usize) }.cast(), bytes)
    }

    /// Sets the memory protection of the entries beyond [`Log::AT_HAND`].
    ///
    /// # Errors
    /// The kernel refuses.
    fn protect_rest(&self, protection: i32) -> std::io::Result<()> {
        let (rest, bytes) = self.rest();
        // SAFETY: the memory is ours, and no task uses it yet.
        let result = unsafe { libc::mprotect(rest, bytes, protection) };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Appends an entry of three numbers (the parameters are named after requests); drops it where
    /// the list is full.
    pub fn push(&self, kind: u32, group: u32, latency_ns: u64) {
        let at = self.next.fetch_add(1, Relaxed);
        if at < self.room {
            // SAFETY: the index is within the memory, and each is given out once.
            unsafe {
                let entry = self.entries.add(at as usize);
                entry.write([u64::from(kind) << 32 | u64::from(group), latency_ns + 1]);
            }
        }
    }

    /// All entries in order, without any still being written; `None` if some were dropped.
    pub fn entries(&self) -> Option<impl Iterator<Item = (u32, u32, u64)>> {
        let n = self.next.load(Acquire);
        let entry = move |at: u64| {
            // SAFETY: the index is within the memory; an entry not yet written is zero.
            let [who, latency] = unsafe { self.entries.add(at as usize).read() };
            (latency > 0).then(|| ((who >> 32) as u32, who as u32, latency - 1))
        };
        (n <= self.room).then(|| (0..n).filter_map(entry))
    }
}
