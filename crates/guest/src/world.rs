//! What the tasks of a run and their controller share: all of it is in the memory that they share.
//!
//! It is made before the first task starts and lives as long as the process. What changes is
//! atomic, or belongs to one task alone.

use crate::lateness::Lateness;
use crate::memory_map::MemoryMap;
use crate::plan::Plan;
use crate::sys;
use crate::task::{Own, Task};
use crate::timers::Header;
use crate::work::{Speed, WorkFiles, stamp};
use cpumax_workload::Workload;
use std::cell::UnsafeCell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};

/// Bytes of the stack of a task.
pub const STACK_BYTES: usize = 64 << 10;

/// The one run of this process.
static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

/// A run.
pub struct World {
    /// What is run.
    pub workload: Workload,
    /// And how.
    pub plan: Plan,
    /// Seed of every stream.
    pub seed: u64,
    /// Time is counted in instructions: what is measured once stays so. Otherwise tasks ask the
    /// kernel what they have used.
    pub is_exact: bool,
    /// How fast this machine works.
    pub speed: Speed,
    /// How late sleeps are over, if not exact.
    pub lateness: Lateness,
    /// Files that work is done on.
    pub files: WorkFiles,
    /// Buffer that work is done with.
    pub scratch: *mut u8,
    /// The process that starts tasks.
    pub pid: usize,
    /// The clock whose owner's lock tasks take and the timer thread, if any do.
    pub clock_device: Option<crate::owner::Clock>,
    /// By lock.
    pub locks: Vec<crate::lock::Lock>,
    /// The memory map whose lock tasks take, if any do.
    pub memory_map: OnceLock<MemoryMap>,
    /// By channel.
    pub channels: Vec<crate::channel::Channel>,
    /// By group: descriptors that a pid is written to, to move it; -1: none.
    pub procs_fds: Vec<[i32; 2]>,
    /// Processes that sleep in groups so that these are never empty: the first to come into one
    /// would have the kernel tell that to a worker, who would then compete with it.
    pub keepers: Vec<i32>,
    /// Tasks, there or to come.
    pub slots: Vec<Slot>,
    /// By kind.
    pub tallies: Vec<Tally>,
    /// Requests that were completed.
    pub log: Log,
    /// Tasks that were started: pid, kind, number.
    pub births: Log,
    /// When tasks went into calls in which they wait for locks that are pipes, and out of them:
    /// pid, 1 or 0, ns.
    pub locking: Log,
    /// The kernel records who runs when, so that tasks need not find out how long they were kept
    /// from it.
    pub traced: AtomicBool,
    /// Number of the next task.
    pub next_number: AtomicU64,
    /// `/proc/timer_list`, and how the time is read from it.
    pub clock_fd: i32,
    /// See there.
    pub clock: Header,
    /// Start of the run by `CLOCK_MONOTONIC`, ns.
    pub start_ns: AtomicU64,
    /// Start of the run by the counter.
    pub start_stamp: AtomicU64,
    /// The first thing that went wrong in a task: what, and the kernel's error.
    pub failure: [AtomicU64; 2],
    /// Whether tasks are to die with the controller.
    pub die_with_parent: bool,
}

// SAFETY: what is shared is atomic; `Own` is touched by the task in its slot, and before that task
// starts by whoever starts it.
unsafe impl Sync for World {}

/// What can go wrong in a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Fault {
    /// No free slot for a forked task.
    TooManyTasks = 1,
    /// A system call failed that has no reason to.
    Call,
    /// A list of requests was refused.
    List,
    /// A process could not be started.
    Start,
}

impl World {
    /// Makes this the run of the process. It stays until the process ends.
    pub fn install(self) -> &'static World {
        let world: &'static World = Box::leak(Box::new(self));
        WORLD.store(std::ptr::from_ref(world).cast_mut(), Release);
        world
    }

    /// The run of this process, for a task that begins.
    pub fn installed() -> &'static World {
        // SAFETY: a task starts after `install`, which leaks what it stores.
        unsafe { &*WORLD.load(Acquire) }
    }

    /// Time since the start of the run, ns; 0 before it.
    pub fn now_ns(&self) -> u64 {
        self.since_start_ns(stamp())
    }

    /// The same of a moment.
    pub fn since_start_ns(&self, at: u64) -> u64 {
        self.speed.ns(at.saturating_sub(self.start_stamp.load(Relaxed)))
    }

    /// Whether a task can tell itself how long it was kept from going on, in that phase of so much
    /// work: always for waits that are nothing else, otherwise only where the kernel's records do
    /// not tell it better.
    pub fn sees_stall(&self, phase: u32, needs_ns: u64) -> bool {
        !self.traced.load(Relaxed) || phase == Phase::Blocked as u32 && needs_ns == 0
    }

    /// Notes the first thing that went wrong.
    pub fn fail(&self, fault: Fault, result: isize) {
        let none = self.failure[0].compare_exchange(0, fault as u64, Relaxed, Relaxed);
        if none.is_ok() {
            self.failure[1].store(result.unsigned_abs() as u64, Relaxed);
        }
    }

    /// A slot for a new task of this kind.
    pub fn take_slot(&self, kind: u32, group: u32) -> Option<&Slot> {
        let is_free = |slot: &&Slot| {
            let taken = slot.state.compare_exchange(FREE, LIVE, Acquire, Relaxed);
            taken.is_ok()
        };
        let slot = self.slots.iter().find(is_free)?;
        let number = self.next_number.fetch_add(1, Relaxed);
        let instance = self.tallies[kind as usize].count.fetch_add(1, Relaxed);
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

    /// Starts the task in this slot, in a cgroup or in the caller's: its pid or an error.
    pub fn start(&self, slot: &Slot, cgroup: Option<i32>) -> isize {
        // It wants to run from the moment it is there.
        let from = self.speed.stamps(slot.start_at_ns.load(Relaxed));
        let start_stamp = self.start_stamp.load(Relaxed);
        slot.last_stamp.store(start_stamp.saturating_add(from), Relaxed);
        slot.phase.store(Phase::Ready as u32, Relaxed);
        slot.needs_ns.store(0, Relaxed);
        let ix = slot.ix;
        // SAFETY: the stack is the slot's own; nobody is on it, as the slot was free. The body
        // obeys the head of `sys`.
        let pid = unsafe {
            sys::start(slot.stack, cgroup, slot.pid.as_ptr().cast(), crate::task::body, ix)
        };
        if pid > 0 {
            self.births.push(pid as u32, slot.kind.load(Relaxed), slot.number.load(Relaxed));
        }
        pid
    }

    /// The slot of a living or dead task.
    pub fn slot_of(&self, pid: i32) -> Option<&Slot> {
        let is_it =
            |slot: &&Slot| slot.state.load(Relaxed) != FREE && slot.pid.load(Relaxed) == pid;
        self.slots.iter().find(is_it)
    }

    /// Puts the books of a reaped task away and frees its slot.
    pub fn reaped(&self, pid: i32, usage: &libc::rusage) {
        let Some(slot) = self.slot_of(pid) else { return };
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let tally = &self.tallies[slot.kind.load(Relaxed) as usize];
        let used_us = slot.used_us(us(usage.ru_utime) + us(usage.ru_stime));
        tally.usage_us.fetch_add(used_us, Relaxed);
        if slot.state.load(Relaxed) == LIVE {
            // It was killed: nobody else has noted its end.
            let now_ns = self.now_ns();
            crate::collect::add_unfinished(self, slot, now_ns);
            tally.exit_at(now_ns);
        }
        slot.fold(tally);
        slot.state.store(FREE, Release);
    }
}

/// A slot in which no task is.
pub const FREE: u32 = 0;
/// A task is there, or about to start.
pub const LIVE: u32 = 1;
/// The task has ended and has not been waited for.
pub const ENDED: u32 = 2;

/// What a task does as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Phase {
    /// It wants to run.
    Ready = 1,
    /// It waits for what is to come: time, tokens, children.
    Asleep,
    /// It waits for a lock.
    Blocked,
}

/// What a task that is made before the run is to do. One that is made in the run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Cue {
    /// Wait.
    Wait,
    /// Begin.
    Begin,
    /// Rehearse, then wait.
    Rehearse,
}

/// The place of one task.
#[repr(align(128))]
pub struct Slot {
    /// Which one it is.
    pub ix: usize,
    /// [`FREE`], [`LIVE`] or [`ENDED`].
    pub state: AtomicU32,
    /// The process in it.
    pub pid: AtomicI32,
    /// Kind of task.
    pub kind: AtomicU32,
    /// Which of its kind.
    pub instance: AtomicU32,
    /// Which of all.
    pub number: AtomicU64,
    /// Group it is in.
    pub group: AtomicU32,
    /// When it is to start, ns since the start of the run.
    pub start_at_ns: AtomicU64,
    /// What it is to do, a [`Cue`].
    pub go: AtomicU32,
    /// CPU time that it had used when it had rehearsed, us.
    pub used_before_us: AtomicU64,
    /// Nice value and class it has, as [`crate::attributes::attributes`] packs them.
    pub attributes: AtomicU32,
    /// What it is doing.
    pub phase: AtomicU32,
    /// Since when, by the counter, and until when it needs at least, ns.
    pub last_stamp: AtomicU64,
    /// See there.
    pub needs_ns: AtomicU64,
    /// Longest stall, ns.
    pub stall_ns: AtomicU64,
    /// Sum of all waits, ns.
    pub wait_ns: AtomicU64,
    /// The task, on its stack, once it has begun.
    pub task: AtomicPtr<Task>,
    /// Upper end of its stack.
    pub stack: *mut u8,
    /// What is the task's alone.
    pub own: UnsafeCell<Own>,
}

impl Slot {
    /// Tells the task what to do, if it waits for that.
    pub fn set_go(&self, go: Cue) {
        self.go.store(go as u32, Release);
        crate::sys::futex_wake(self.go.as_ptr(), 1, u32::MAX);
    }

    /// What it has used in the run, of all that it has.
    pub fn used_us(&self, all_us: u64) -> u64 {
        all_us.saturating_sub(self.used_before_us.load(Relaxed))
    }

    /// Adds what this task has waited to the books of its kind.
    pub fn fold(&self, tally: &Tally) {
        tally.wait_ns.fetch_add(self.wait_ns.swap(0, Relaxed), Relaxed);
        tally.stall_ns.fetch_max(self.stall_ns.swap(0, Relaxed), Relaxed);
    }
}

/// What the tasks of one kind did.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many there were.
    pub count: AtomicU64,
    /// CPU time of those that are gone, us.
    pub usage_us: AtomicU64,
    /// Sum of waits of those that are gone, ns.
    pub wait_ns: AtomicU64,
    /// Longest stall of those that are gone, ns.
    pub stall_ns: AtomicU64,
    /// How many have exited.
    pub exited: AtomicU64,
    /// When the last one did, ns since the start of the run.
    pub last_exit_ns: AtomicU64,
    /// The CPU that each of those began on that were started from outside, and one, if the run is
    /// not exact; 0: none yet.
    pub first_cpus: Box<[AtomicU32]>,
}

impl Tally {
    /// Nothing yet, of so many that will be started from outside.
    pub fn new(count: u32, is_exact: bool) -> Tally {
        let noted = if is_exact { 0 } else { count };
        let first_cpus = (0..noted).map(|_| AtomicU32::new(0)).collect();
        Tally { first_cpus, ..Tally::default() }
    }

    /// One begins.
    pub fn begins(&self, instance: u32) {
        if let Some(first) = self.first_cpus.get(instance as usize) {
            first.store(crate::sys::cpu() + 1, Relaxed);
        }
    }

    /// One more has exited.
    pub fn exit_at(&self, ns: u64) {
        self.exited.fetch_add(1, Relaxed);
        self.last_exit_ns.fetch_max(ns, Relaxed);
    }
}

/// Requests that were completed, in order of completion.
pub struct Log {
    entries: *mut [u64; 2],
    room: u64,
    next: AtomicU64,
}

impl Log {
    /// Room for all requests there may be in a run.
    pub const REQUESTS: u64 = 4 << 20;
    /// Room for all births, or for all calls that take locks.
    pub const OTHERS: u64 = 1 << 18;
    /// Entries whose memory is there in earnest before a run, which may not wait for it; a page of
    /// others is asked for once in 256 of them. To clear it all would be most of what a run takes
    /// in an emulated machine.
    const AT_HAND: u64 = 1 << 15;

    /// An empty one, with room for so many entries, at least as many as are at hand. [`Log::open`]
    /// opens the rest.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(room: u64) -> std::io::Result<Log> {
        let entries = crate::work::memory(room as usize * size_of::<[u64; 2]>())?;
        let log = Log { entries: entries.cast(), room, next: AtomicU64::new(0) };
        log.protect_rest(libc::PROT_NONE)?;
        Ok(log)
    }

    /// Opens what `mlockall()` was not to fill.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open(&self) -> std::io::Result<()> {
        let (rest, bytes) = self.rest();
        // SAFETY: the memory is ours; where it is not locked nothing happens.
        unsafe { libc::munlock(rest, bytes) };
        self.protect_rest(libc::PROT_READ | libc::PROT_WRITE)
    }

    fn rest(&self) -> (*mut libc::c_void, usize) {
        let bytes = (self.room - Log::AT_HAND) as usize * size_of::<[u64; 2]>();
        // SAFETY: there is room for more than what is at hand.
        (unsafe { self.entries.add(Log::AT_HAND as usize) }.cast(), bytes)
    }

    fn protect_rest(&self, protection: i32) -> std::io::Result<()> {
        let (rest, bytes) = self.rest();
        // SAFETY: the memory is ours, and nobody is there yet.
        let result = unsafe { libc::mprotect(rest, bytes, protection) };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Adds a request of a task of this kind in this group.
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

    /// All of them: kind, group, latency in ns. `None` when there were too many.
    pub fn entries(&self) -> Option<impl Iterator<Item = (u32, u32, u64)>> {
        let n = self.next.load(Acquire);
        let entry = move |at: u64| {
            // SAFETY: as above; what was not written is zero.
            let [who, latency] = unsafe { self.entries.add(at as usize).read() };
            (latency > 0).then(|| ((who >> 32) as u32, who as u32, latency - 1))
        };
        (n <= self.room).then(|| (0..n).filter_map(entry))
    }
}
