//! Work of known length, and the clock that measures it.
//!
//! User time is a loop of NOPs, which an emulator with an instruction counter translates to almost
//! nothing. The clock is the time-stamp counter: reading it is no system call, so a task reads it
//! without a return to user mode at which it may be throttled.

mod writes;

use crate::sys;
use cpumax_protocol::Calibration;
use std::ptr;
use writes::{SIZES, Writes};

/// Bytes of the buffer that kernel work reads into and writes from.
pub const SCRATCH_BYTES: usize = 256 << 10;
/// Most bytes that one call reads or writes.
pub const MAX_CALL_BYTES: usize = SCRATCH_BYTES * 1023;
/// Time between two looks at the counter in user mode, ns.
const CHUNK_NS: u64 = 20_000;

/// Reads the time-stamp counter.
#[inline]
pub fn read_tsc() -> u64 {
    // SAFETY: reading the counter has no effects; no kernel that the guest runs on forbids it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Executes the calibrated loop that stands for user time this many times.
#[inline(never)]
pub fn spin(turns: u64) {
    if turns == 0 {
        return;
    }
    // SAFETY: the block counts a register down and touches nothing else.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept 126",
            "nop",
            ".endr",
            "dec {0}",
            "jnz 2b",
            inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
}

/// Measured speed of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Speed {
    stamp: Rate,
    turn: Rate,
    /// A byte of kernel time in a call with one buffer; one in a call with several, which takes a
    /// little longer; the fixed cost of a call, ns.
    read_byte: Rate,
    readv_byte: Rate,
    read_call_ns: u64,
    /// A write to a file in memory by length, and the fixed cost of a call, ns.
    writes: Writes,
    write_call_ns: u64,
    /// Turns between two looks at the counter.
    pub chunk_turns: u64,
    /// Time of that many turns, ns.
    pub chunk_ns: u64,
    /// CPU time of a sleep: to go to sleep, be woken and return, ns.
    pub sleep_ns: u64,
    /// CPU time of a task that does nothing but exit, ns.
    pub child_ns: u64,
    /// CPU time of reaping that task, ns.
    pub reap_ns: u64,
}

const FS_PER_NS: u64 = 1_000_000;

/// Time of one of many equal units, converted both ways without a division, which would cost tasks
/// too much.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    fs: u64,
    /// ns of one unit, and units in a ns, both times 2^32.
    ns: u64,
    per_ns: u64,
}

impl Rate {
    /// The rate of a unit that takes `fs` femtoseconds, at least 1.
    fn new(fs: u64) -> Rate {
        let fs = fs.max(1);
        let fixed = |up: u64, down: u64| ((u128::from(up) << 32) / u128::from(down)) as u64;
        Rate { fs, ns: fixed(fs, FS_PER_NS), per_ns: fixed(FS_PER_NS, fs) }
    }

    /// The rate of units of which `n` take `ns`.
    pub fn of(ns: u64, n: u64) -> Rate {
        Rate::new((u128::from(ns) * u128::from(FS_PER_NS) / u128::from(n.max(1))) as u64)
    }

    /// Time of one unit, femtoseconds.
    pub fn fs(self) -> u64 {
        self.fs
    }

    /// Time of `n` units, ns, rounded down.
    pub fn ns(self, n: u64) -> u64 {
        ((u128::from(n) * u128::from(self.ns)) >> 32) as u64
    }

    /// Number of units that take `ns`, rounded down.
    pub fn count(self, ns: u64) -> u64 {
        ((u128::from(ns) * u128::from(self.per_ns)) >> 32) as u64
    }
}

impl Speed {
    /// Length of a number of counter ticks, ns.
    pub fn ns(&self, stamps: u64) -> u64 {
        self.stamp.ns(stamps)
    }

    /// Counter ticks in a length of time.
    pub fn stamps(&self, ns: u64) -> u64 {
        self.stamp.count(ns)
    }

    /// Value of the counter when the monotonic clock shows `at_ns`, which may be past. `now` is a
    /// [`monotonic_and_tsc`].
    pub fn stamp_at(&self, at_ns: u64, (now_ns, now): (u64, u64)) -> u64 {
        let distance = self.stamps(at_ns.abs_diff(now_ns));
        if at_ns >= now_ns { now + distance } else { now.saturating_sub(distance) }
    }

    /// Turns of the loop for user time ([`spin`]) that take `ns`.
    pub fn turns(&self, ns: u64) -> u64 {
        self.turn.count(ns)
    }

    /// Bytes of one read call for `ns` of kernel time including the fixed cost, and whether it uses
    /// several buffers. Lengths around a whole buffer are approximate: a byte costs more there.
    pub fn read_bytes(&self, ns: u64) -> (usize, bool) {
        let ns = ns.saturating_sub(self.read_call_ns);
        let bytes = self.read_byte.count(ns) as usize;
        if bytes <= SCRATCH_BYTES {
            (bytes, false)
        } else {
            (self.readv_byte.count(ns) as usize, true)
        }
    }

    /// Bytes to read for `ns` of kernel time as requests of a list: bytes by single reads, and
    /// number of whole buffers by vectored reads.
    pub fn read_parts(&self, ns: u64) -> (usize, usize) {
        let bytes = self.read_byte.count(ns) as usize;
        let whole = self.readv_byte.count(ns) as usize / SCRATCH_BYTES;
        if whole <= 1 {
            let alone = (bytes / SCRATCH_BYTES).min(1);
            return (bytes - alone * SCRATCH_BYTES, alone);
        }
        let rest_ns = ns.saturating_sub(self.readv_byte.ns((whole * SCRATCH_BYTES) as u64));
        (self.read_byte.count(rest_ns) as usize, whole)
    }

    /// Bytes of a write that holds an inode's lock for `ns`; with `whole_call`, `ns` includes the
    /// fixed cost of a call.
    pub fn write_bytes(&self, ns: u64, whole_call: bool) -> usize {
        let own_ns = if whole_call { self.write_call_ns } else { 0 };
        self.writes.bytes(ns.saturating_sub(own_ns))
    }

    /// Times of a page (4 KiB) read and of one written by kernel work, ns.
    pub fn page_ns(&self) -> [u64; 2] {
        [self.read_byte.fs, self.writes.byte_fs()].map(|fs| (fs << 12) / FS_PER_NS)
    }

    /// The measured speed in the protocol's form and units.
    pub fn calibration(&self) -> Calibration {
        Calibration {
            user_turn_ps: self.turn.fs / 1000,
            syscall_ns: self.read_call_ns,
            sleep_ns: self.sleep_ns,
            kernel_kib_ps: (self.read_byte.fs << 10) / 1000,
            write_kib_ps: (self.writes.byte_fs() << 10) / 1000,
            stamp_fs: self.stamp.fs,
        }
    }
}

/// Files that kernel work is done on.
#[derive(Debug, Clone, Copy)]
pub struct WorkFiles {
    /// The random number generator.
    pub random: i32,
    /// A file in memory, to calibrate writes with.
    pub memory: i32,
}

impl WorkFiles {
    /// Opens `/dev/urandom` and a new file in memory.
    ///
    /// # Errors
    /// There is no `/dev/urandom`, or no memory.
    pub fn open() -> std::io::Result<WorkFiles> {
        use std::os::fd::IntoRawFd;
        let random = std::fs::File::open("/dev/urandom")?.into_raw_fd();
        Ok(WorkFiles { random, memory: memory_file()? })
    }
}

/// Makes an empty file in memory (memfd) and returns its descriptor.
///
/// # Errors
/// The kernel refuses.
pub fn memory_file() -> std::io::Result<i32> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"cpumax".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 { Err(std::io::Error::last_os_error()) } else { Ok(fd) }
}

/// Measures this machine: counter, loop, reads into `scratch` ([`SCRATCH_BYTES`]), writes to the
/// file in memory, sleeps, children; takes a fraction of a second. The caller should have a
/// real-time class, so that no task preempts it.
pub fn calibrate(files: WorkFiles, scratch: *mut u8) -> Speed {
    let mut speed = Speed { stamp: Rate::new(measure_stamp_fs()), ..Speed::default() };
    let turns = |n: u64| shortest(&speed, || spin(n));
    let many = 20_000;
    // The first estimate finds how many turns take two milliseconds. The fixed cost comes from a
    // try of one turn: the difference of two long tries can be 0 on a machine with slow moments.
    let beside_ns = turns(1);
    let n = (many * 2_000_000 / turns(many).max(1)).max(2);
    speed.turn = Rate::new(turns(n).saturating_sub(beside_ns) * FS_PER_NS / (n - 1));
    speed.chunk_turns = speed.turns(CHUNK_NS).max(1);
    speed.chunk_ns = speed.turn.ns(speed.chunk_turns);

    let buffer = libc::iovec { iov_base: scratch.cast(), iov_len: SCRATCH_BYTES };
    let vector = [buffer; LONG_BUFFERS];
    let read = |n: usize| {
        for _ in 0..n {
            sys::read(files.random, scratch, SCRATCH_BYTES);
        }
    };
    speed.read_byte = Rate::new(byte_fs(&speed, 1, read));
    let readv = |n: usize| {
        sys::readv(files.random, vector.as_ptr(), n);
    };
    speed.readv_byte = Rate::new(byte_fs(&speed, 2, readv));
    let read_ns = shortest(&speed, || sys::read(files.random, scratch, SMALL_BYTES));
    speed.read_call_ns = read_ns.saturating_sub(speed.read_byte.ns(SMALL_BYTES as u64));
    let writes_ns = SIZES.map(|bytes| write_ns(&speed, files.memory, scratch, bytes));
    // A quarter of the shortest write costs a quarter of its bytes plus the fixed cost.
    let small_ns = write_ns(&speed, files.memory, scratch, SIZES[0] / 4);
    speed.write_call_ns = (4 * small_ns).saturating_sub(writes_ns[0]) / 3;
    speed.writes = Writes::new(writes_ns.map(|ns| ns.saturating_sub(speed.write_call_ns)));
    speed.sleep_ns = sleep_cpu_ns();
    [speed.child_ns, speed.reap_ns] = child_cpu_ns(&speed).unwrap_or_default();
    speed
}

/// A call so short that its fixed cost shows.
const SMALL_BYTES: usize = 4096;
/// Enough buffers that ticks fall into the call as often as on average.
const LONG_BUFFERS: usize = 6;

/// Cost of reading a byte, fs, timer ticks included: median of five differences between `take(few)`
/// and `take(LONG_BUFFERS)`, where `take` reads this many buffers of `SCRATCH_BYTES`. `few` must be
/// below `LONG_BUFFERS`.
fn byte_fs(speed: &Speed, few: usize, take: impl Fn(usize)) -> u64 {
    const TRIES: usize = 5;
    let mut times = [0; TRIES];
    for time in &mut times {
        let begin = read_tsc();
        take(few);
        let middle = read_tsc();
        take(LONG_BUFFERS);
        let end = read_tsc();
        *time = speed.ns(end - middle).saturating_sub(speed.ns(middle - begin));
    }
    times.sort_unstable();
    let bytes = ((LONG_BUFFERS - few) * SCRATCH_BYTES) as u64;
    times[TRIES / 2] * FS_PER_NS / bytes
}

/// Median time of a write of `bytes` bytes to existing pages of a file, ns, ticks included.
fn write_ns(speed: &Speed, file: i32, scratch: *mut u8, bytes: usize) -> u64 {
    const TRIES: usize = 3;
    let whole = bytes.saturating_sub(1) / SCRATCH_BYTES;
    let buffer = libc::iovec { iov_base: scratch.cast(), iov_len: SCRATCH_BYTES };
    let mut vector = vec![buffer; whole + 1];
    vector[0].iov_len = bytes - whole * SCRATCH_BYTES;
    let write = || sys::pwritev(file, vector.as_ptr(), vector.len());
    write();
    let mut times = [0; TRIES];
    for time in &mut times {
        let begin = read_tsc();
        write();
        *time = speed.ns(read_tsc() - begin);
    }
    times.sort_unstable();
    times[TRIES / 2]
}

/// Measures the CPU time that a sleep takes this process, ns: the mean of 64 short sleeps.
fn sleep_cpu_ns() -> u64 {
    const SLEEPS: u64 = 64;
    // Not in step with the tick.
    const EACH_NS: u64 = 1_370_000;
    let begin_ns = sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    for _ in 0..SLEEPS {
        sys::sleep_for(EACH_NS);
    }
    (sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin_ns) / SLEEPS
}

/// Measures the CPU time of a task that only exits, and of reaping it, ns: the mean of 16. `None`
/// if the kernel starts none.
fn child_cpu_ns(speed: &Speed) -> Option<[u64; 2]> {
    /// Body of a task that does nothing but exit.
    extern "C" fn exit_at_once(_: usize) -> ! {
        sys::exit(0)
    }
    const CHILDREN: u64 = 16;
    const STACK_BYTES: usize = 16 << 10;
    let low = map_memory(STACK_BYTES).ok()?;
    // SAFETY: the end of the memory is one beyond it.
    let stack = unsafe { low.add(STACK_BYTES) };
    let (mut used_us, mut start_stamps) = (0, 0);
    let begin_ns = sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
    for _ in 0..CHILDREN {
        let mut tid = 0;
        let begin = read_tsc();
        // SAFETY: the stack is used by one child at a time, as each is waited for.
        if unsafe { sys::start(stack, None, &raw mut tid, exit_at_once, 0) } < 0 {
            return None;
        }
        start_stamps += read_tsc() - begin;
        // SAFETY: all zeroes is a value of it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        sys::wait_child(0, &raw mut usage);
        used_us += usage.ru_utime.tv_usec as u64 + usage.ru_stime.tv_usec as u64;
    }
    let own_ns = sys::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
    // SAFETY: all users of this memory have ended.
    unsafe { libc::munmap(low.cast(), STACK_BYTES) };
    let waiting_ns = own_ns.saturating_sub(speed.ns(start_stamps));
    Some([used_us * 1000 / CHILDREN, waiting_ns / CHILDREN])
}

/// Shortest time of seven calls of `act`, ns: of one that nothing interrupted.
fn shortest<T>(speed: &Speed, mut act: impl FnMut() -> T) -> u64 {
    const TRIES: u32 = 7;
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        let begin = read_tsc();
        act();
        least = least.min(read_tsc() - begin);
    }
    speed.ns(least)
}

/// Measures the length of a tick of the time-stamp counter, fs, against the monotonic clock; sleeps
/// 100 ms.
fn measure_stamp_fs() -> u64 {
    const SPAN_NS: u64 = 100_000_000;
    let (begin_ns, begin) = monotonic_and_tsc();
    sys::sleep_until(begin_ns + SPAN_NS);
    let (end_ns, end) = monotonic_and_tsc();
    ((u128::from(end_ns - begin_ns) * u128::from(FS_PER_NS)) / u128::from((end - begin).max(1)))
        .max(1) as u64
}

/// The monotonic clock, ns, and the time-stamp counter at the same moment: the closest of five
/// reads.
pub fn monotonic_and_tsc() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before = read_tsc();
        let ns = sys::monotonic_ns();
        let after = read_tsc();
        if after - before < best.0 {
            best = (after - before, ns, before + (after - before) / 2);
        }
    }
    (best.1, best.2)
}

/// Maps zeroed memory, which takes pages only where it is touched. The mapping stays.
///
/// # Errors
/// The kernel refuses the mapping.
pub fn map_memory(bytes: usize) -> std::io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping touches nothing that exists.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(at.cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_is_over_lies_before_now() {
        let speed = Speed { stamp: Rate::new(FS_PER_NS / 2), ..Speed::default() };
        let now = (5_000, 1_000_000);
        assert_eq!(speed.stamp_at(5_100, now), 1_000_200);
        assert_eq!(speed.stamp_at(5_000, now), 1_000_000);
        assert_eq!(speed.stamp_at(4_000, now), 998_000);
    }

    /// A byte of several buffers takes 1.4 % longer than one of a single buffer, as on emulated
    /// kernels.
    #[test]
    fn work_in_the_kernel_is_as_long_as_it_says_where_it_needs_another_buffer() {
        let (one, several) = (Rate::new(45_800_000), Rate::new(46_440_000));
        let speed = Speed { read_byte: one, readv_byte: several, ..Speed::default() };
        let buffer_ns = several.ns(SCRATCH_BYTES as u64);
        for ns in (0..6 * buffer_ns).step_by(20_011) {
            let (rest, whole) = speed.read_parts(ns);
            let rate = if whole > 1 { several } else { one };
            let as_parts_ns = one.ns(rest as u64) + rate.ns((whole * SCRATCH_BYTES) as u64);
            let (bytes, in_several) = speed.read_bytes(ns);
            assert!(in_several || bytes <= SCRATCH_BYTES);
            let rate = if in_several { several } else { one };
            let at_once_ns = rate.ns(bytes as u64);
            for took_ns in [as_parts_ns, at_once_ns] {
                assert!(took_ns.abs_diff(ns) <= 200, "{took_ns} for {ns}");
            }
        }
    }
}
