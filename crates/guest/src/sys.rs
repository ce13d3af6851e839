//! System calls of tasks, made directly, without the C library.
//!
//! A task shares the memory of the program that started it, thread-local storage included. It must
//! not touch `errno`, the heap or a lock of the C library. Results are the kernel's: a negative one
//! is `-errno`.

use libc::{c_int, timespec};
use syscalls::{Sysno, raw};

/// Arguments of clone3(2) (`struct clone_args`, version 2 with its cgroup).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Arguments of `sched_setattr(2)` (`struct sched_attr`).
#[repr(C)]
#[derive(Default, Clone, Copy)]
pub struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

impl SchedAttr {
    /// Attributes of `SCHED_OTHER` or `SCHED_IDLE` (`policy`) with a nice value and a slice, ns; 0:
    /// the kernel's default slice.
    pub fn fair(policy: c_int, nice: i32, slice_ns: u64) -> SchedAttr {
        SchedAttr { policy: policy as u32, nice, runtime: slice_ns, ..SchedAttr::sized() }
    }

    /// Attributes of `SCHED_FIFO` with a priority of 1 to 99. If `alone`, the task's children are
    /// fair again.
    pub fn real_time(priority: u32, alone: bool) -> SchedAttr {
        let flags = if alone { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 };
        SchedAttr { policy: libc::SCHED_FIFO as u32, flags, priority, ..SchedAttr::sized() }
    }

    /// Attributes with their size set and all else zero.
    fn sized() -> SchedAttr {
        SchedAttr { size: size_of::<SchedAttr>() as u32, ..SchedAttr::default() }
    }
}

/// A request of Linux AIO for `io_submit(2)` (`struct iocb`).
#[repr(C)]
#[derive(Default, Clone, Copy)]
pub struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

impl Iocb {
    /// An asynchronous operation on a descriptor at offset 0. `length` counts bytes of a buffer, or
    /// elements of a vector.
    pub fn new(opcode: u16, fd: c_int, buf: u64, length: usize) -> Iocb {
        let fd = fd.cast_unsigned();
        Iocb { opcode, fd, buf, bytes: length as u64, ..Iocb::default() }
    }
}

/// Reads into one buffer.
pub const AIO_PREAD: u16 = 0;
/// Writes from one buffer.
pub const AIO_PWRITE: u16 = 1;
/// Reads into a vector.
pub const AIO_PREADV: u16 = 7;
/// Writes from a vector.
pub const AIO_PWRITEV: u16 = 8;

/// Makes a system call; returns its result, or the kernel's error as a negative number.
fn call(nr: Sysno, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the functions below pass what each call documents. Pointers come from references, or
    // point to memory that lives as long as the program.
    unsafe { raw::syscall6(nr as usize, a, b, c, d, e, f).cast_signed() }
}

/// read(2); returns the bytes read, or a negative error.
pub fn read(fd: c_int, buf: *mut u8, len: usize) -> isize {
    call(Sysno::read, [fd as usize, buf as usize, len, 0, 0, 0])
}

/// write(2); returns the bytes written, or a negative error.
pub fn write(fd: c_int, buf: *const u8, len: usize) -> isize {
    call(Sysno::write, [fd as usize, buf as usize, len, 0, 0, 0])
}

/// pwrite(2); returns the bytes written, or a negative error.
pub fn pwrite(fd: c_int, buf: *const u8, len: usize, offset: usize) -> isize {
    call(Sysno::pwrite64, [fd as usize, buf as usize, len, offset, 0, 0])
}

/// fcntl(2); returns its result, or a negative error.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> isize {
    call(Sysno::fcntl, [fd as usize, command as usize, argument, 0, 0, 0])
}

/// ioctl(2) with a number, or a pointer to memory that lives as long as the program. Returns its
/// result, or a negative error.
pub fn ioctl(fd: c_int, request: u64, argument: usize) -> isize {
    call(Sysno::ioctl, [fd as usize, request as usize, argument, 0, 0, 0])
}

/// readv(2) into `n` buffers; returns the bytes read, or a negative error.
pub fn readv(fd: c_int, vector: *const libc::iovec, n: usize) -> isize {
    call(Sysno::readv, [fd as usize, vector as usize, n, 0, 0, 0])
}

/// pwritev(2) of `n` buffers at offset 0; returns the bytes written, or a negative error.
pub fn pwritev(fd: c_int, vector: *const libc::iovec, n: usize) -> isize {
    call(Sysno::pwritev, [fd as usize, vector as usize, n, 0, 0, 0])
}

/// mprotect(2) of memory that nothing reads or writes meanwhile. Returns 0 or a negative error.
pub fn mprotect(at: *mut u8, bytes: usize, protection: c_int) -> isize {
    call(Sysno::mprotect, [at as usize, bytes, protection as usize, 0, 0, 0])
}

/// madvise(2) with an advice that keeps the memory's content. Returns 0 or a negative error.
pub fn madvise(at: *mut u8, bytes: usize, advice: c_int) -> isize {
    call(Sysno::madvise, [at as usize, bytes, advice as usize, 0, 0, 0])
}

/// Sleeps until `CLOCK_MONOTONIC` shows `at_ns`; returns 0, or `-EINTR` when a signal came first.
pub fn sleep_until(at_ns: u64) -> isize {
    let at = timespec_of(at_ns);
    let flags = libc::TIMER_ABSTIME as usize;
    let clock = libc::CLOCK_MONOTONIC as usize;
    call(Sysno::clock_nanosleep, [clock, flags, (&raw const at) as usize, 0, 0, 0])
}

/// Sleeps for `ns`; returns 0, or `-EINTR` when a signal came first.
pub fn sleep_for(ns: u64) -> isize {
    let time = timespec_of(ns);
    let clock = libc::CLOCK_MONOTONIC as usize;
    call(Sysno::clock_nanosleep, [clock, 0, (&raw const time) as usize, 0, 0, 0])
}

/// Makes a timerfd of `CLOCK_MONOTONIC`; returns its descriptor, or a negative error.
pub fn timer_create() -> isize {
    let clock = libc::CLOCK_MONOTONIC as usize;
    call(Sysno::timerfd_create, [clock, libc::TFD_CLOEXEC as usize, 0, 0, 0, 0])
}

/// Arms a timerfd for one expiry, at a time of `CLOCK_MONOTONIC` or after a span of `ns`. Returns 0
/// or a negative error.
pub fn timer_arm(fd: c_int, absolute: bool, ns: u64) -> isize {
    let it = [timespec_of(0), timespec_of(ns.max(1))];
    let flags = if absolute { libc::TFD_TIMER_ABSTIME as usize } else { 0 };
    call(Sysno::timerfd_settime, [fd as usize, flags, (&raw const it) as usize, 0, 0, 0])
}

/// `CLOCK_MONOTONIC`, ns.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Value of a clock (`CLOCK_...`), ns.
pub fn clock_ns(clock: c_int) -> u64 {
    let mut time = timespec_of(0);
    call(Sysno::clock_gettime, [clock as usize, (&raw mut time) as usize, 0, 0, 0, 0]);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// futex(2): sleeps if `word` is `value`, until a wake with one of `bits`. Returns at once if it is
/// not, and early on a signal.
pub fn futex_wait(word: *const u32, value: u32, bits: u32) -> isize {
    let op = (libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG) as usize;
    call(Sysno::futex, [word as usize, op, value as usize, 0, 0, bits as usize])
}

/// futex(2): wakes up to `n` waiters on `word` that have one of `bits`; returns how many.
pub fn futex_wake(word: *const u32, n: u32, bits: u32) -> isize {
    let op = (libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG) as usize;
    call(Sysno::futex, [word as usize, op, n as usize, 0, 0, bits as usize])
}

/// Number of the CPU that the caller is on (`getcpu(2)`).
pub fn cpu() -> u32 {
    let mut cpu = 0u32;
    call(Sysno::getcpu, [(&raw mut cpu) as usize, 0, 0, 0, 0, 0]);
    cpu
}

/// Gives up the CPU once, by `sched_yield(2)`.
pub fn yield_now() {
    call(Sysno::sched_yield, [0; 6]);
}

/// `sched_setattr(2)`: class, nice value, priority and slice; pid 0 is the caller. Returns 0 or a
/// negative error.
pub fn set_sched(pid: i32, attr: SchedAttr) -> isize {
    call(Sysno::sched_setattr, [pid as usize, (&raw const attr) as usize, 0, 0, 0, 0])
}

/// `setpriority(2)` of one task; unlike `sched_setattr(2)` it does nothing when the value is the
/// same. Returns 0 or a negative error.
pub fn set_nice(pid: i32, nice: i8) -> isize {
    const PROCESS: usize = libc::PRIO_PROCESS as usize;
    call(Sysno::setpriority, [PROCESS, pid as usize, nice as isize as usize, 0, 0, 0])
}

/// A set of CPUs, one bit each; 8192 is the most that Linux supports.
pub struct Cpus(pub [u64; 128]);

impl Default for Cpus {
    /// An empty set.
    fn default() -> Cpus {
        Cpus([0; 128])
    }
}

/// The caller's CPUs, by `sched_getaffinity(2)`.
pub fn affinity() -> Cpus {
    let mut cpus = Cpus::default();
    let bytes = size_of::<Cpus>();
    call(Sysno::sched_getaffinity, [0, bytes, cpus.0.as_mut_ptr() as usize, 0, 0, 0]);
    cpus
}

/// `sched_setaffinity(2)` with a mask of CPUs, one bit each; pid 0 is the caller. Returns 0 or a
/// negative error.
pub fn set_affinity(pid: i32, mask: &[u64]) -> isize {
    let bytes = size_of_val(mask);
    call(Sysno::sched_setaffinity, [pid as usize, bytes, mask.as_ptr() as usize, 0, 0, 0])
}

/// Raises this process's limit of open files as far as it may, up to 2^20: a group has up to three,
/// a pipe two.
pub fn allow_many_files() {
    /// The kernel's default of `fs.nr_open`.
    const MAX_FILES: u64 = 1 << 20;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid `rlimit`.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) < 0 {
            return;
        }
        let most = libc::rlimit { rlim_cur: MAX_FILES, rlim_max: MAX_FILES.max(limit.rlim_max) };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most) < 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// kill(2); a negative pid stands for a process group. Returns 0 or a negative error.
pub fn kill(pid: i32, signal: c_int) -> isize {
    call(Sysno::kill, [pid as usize, signal as usize, 0, 0, 0, 0])
}

/// wait4(2) for any child to exit; fills `usage` with its resource usage. Returns its pid; 0 if
/// none has exited (`WNOHANG`), or `-ECHILD` if there is none.
pub fn wait_child(flags: c_int, usage: *mut libc::rusage) -> isize {
    call(Sysno::wait4, [usize::MAX, 0, (flags | libc::__WALL) as usize, usage as usize, 0, 0])
}

/// prctl(2) with one argument; returns its result, or a negative error.
pub fn prctl(option: c_int, value: usize) -> isize {
    call(Sysno::prctl, [option as usize, value, 0, 0, 0, 0])
}

/// Ends the calling process with all its threads, by `exit_group(2)`.
pub fn exit(status: c_int) -> ! {
    loop {
        call(Sysno::exit_group, [status as usize, 0, 0, 0, 0, 0]);
    }
}

/// `io_setup(2)`: makes an AIO context, whose number, stored in `context`, is the address of its
/// ring of results. Returns 0 or a negative error.
pub fn aio_setup(events: u32, context: &mut u64) -> isize {
    call(Sysno::io_setup, [events as usize, std::ptr::from_mut(context) as usize, 0, 0, 0, 0])
}

/// `io_submit(2)`: submits requests. Files without asynchronous I/O execute them in order before
/// the call returns. Returns how many were taken, or a negative error.
pub fn aio_submit(context: u64, requests: &[*const Iocb]) -> isize {
    let args = [context as usize, requests.len(), requests.as_ptr() as usize, 0, 0, 0];
    call(Sysno::io_submit, args)
}

/// Starts a process, by clone3(2), that shares memory and open files with the caller and runs
/// `body(argument)` on a stack that ends at `stack`. The process starts in the cgroup whose
/// directory is open as `cgroup`, or in the caller's. Returns its pid, which `tid` has before the
/// process runs, or a negative error.
///
/// # Safety
/// `stack` is the end of memory that nothing else uses until the process has been waited for, and
/// `body` never returns and obeys the rules at the head of this module.
pub unsafe fn start(
    stack: *mut u8,
    cgroup: Option<c_int>,
    tid: *mut u32,
    body: extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    const STACK_BYTES: u64 = 4096;
    let shared = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_PARENT_SETTID;
    let args = CloneArgs {
        flags: shared as u64 | if cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 },
        parent_tid: tid as u64,
        exit_signal: libc::SIGCHLD as u64,
        // The kernel adds size and base, so any size works.
        stack: stack as u64 - STACK_BYTES,
        stack_size: STACK_BYTES,
        cgroup: cgroup.map_or(0, |fd| fd as u64),
        ..CloneArgs::default()
    };
    let result: isize;
    // SAFETY: clone3 returns twice. The parent goes on behind the block. The child has a new stack
    // and leaves by a call that never returns.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") &raw const args,
            in("rsi") size_of::<CloneArgs>(),
            in("r12") argument,
            in("r13") body as usize,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// A length of time, ns, in the form of system calls.
fn timespec_of(ns: u64) -> timespec {
    timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}
