// SPDX-License-Identifier: GPL-2.0-only
//! The loads, which this program runs as `/init load KIND ARGS...`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process;
use std::time::{Duration, Instant};

use crate::guest::ask;
use crate::ring;

/// Never returns.
pub fn main(args: &[String]) -> ! {
    let number = |at: usize| args.get(at).and_then(|arg| arg.parse::<u64>().ok()).unwrap_or(0);
    match args.first().map(String::as_str) {
        Some("hog") => hog(),
        Some("hogs") => hogs(number(1)),
        Some("reads") => reads(),
        Some("lookups") => lookups(),
        Some("mkdirs") => mkdirs(&args[1], number(2)),
        Some("asks") => asks(&args[1], &args[2]),
        Some("sleeper") => sleeper(number(1)),
        Some("crowd") => crowd(number(1)),
        Some("threads") => threads(number(1)),
        Some("forks") => forks(args.get(1).map(String::as_str)),
        Some("births") => births(&args[1]),
        Some("moves") => moves(&args[1], &args[2], [&args[3], &args[4]]),
        Some("ends") => ends(&args[1]),
        Some("execs") => execs(&args[1], number(2)),
        Some("setuids") => setuids(&args[1]),
        Some("writer") => writer(&args[1], number(2) as usize),
        Some("peer") => peer(&args[1], number(2)),
        Some("wakes") => wakes(number(1), &args[2]),
        Some("counts") => counts(&args[1]),
        Some("pipe") => pipe(&args[1]),
        Some("hackbench") => hackbench(&args[1], number(2)),
        Some("ring") => ring::reads(&args[1], number(2)),
        Some("polled") => ring::polled(),
        Some("sentinel") => sentinel(&args[1]),
        Some("scheduler") => scheduler(&args[1]),
        other => {
            eprintln!("no load {other:?}");
            process::exit(2);
        }
    }
}

/// Uses a CPU in user mode. The loop has no pause instruction, because an emulated CPU gives its
/// turn away at one.
fn hog() -> ! {
    let mut count = 0_u64;
    loop {
        count = std::hint::black_box(count.wrapping_add(1));
    }
}

/// Several hogs; the first is this process. It forks them after it has moved into its group, so
/// that they are born there. All start together, because a process that forks beside a hundred busy
/// children hardly gets the CPU.
fn hogs(count: u64) -> ! {
    until_in_group();
    let (wait, go) = two_ends(false);
    for _ in 1..count {
        // SAFETY: the child uses only the pipe, of which it has its own ends.
        unsafe {
            if libc::fork() == 0 {
                libc::close(go);
                let mut byte = 0_u8;
                libc::read(wait, (&raw mut byte).cast(), 1);
                hog()
            }
        }
    }
    // SAFETY: closes the last end for writing, so that all readers go on.
    unsafe { libc::close(go) };
    hog()
}

/// Waits until this process is in a group, so that its children are born there.
pub fn until_in_group() {
    let in_root =
        || fs::read_to_string("/proc/self/cgroup").is_ok_and(|path| path.trim() == "0::/");
    while in_root() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Uses a CPU half of the time in short system calls.
fn reads() -> ! {
    let zero = fs::File::open("/dev/zero").expect("/dev/zero");
    let mut buffer = [0; 4096];
    loop {
        let _ = zero.read_at(&mut buffer, 0);
    }
}

/// Looks up a file by a path with as many components as possible. A lookup is one critical section
/// of an RCU reader.
fn lookups() -> ! {
    let path = format!("/{}init", "./".repeat(2040));
    loop {
        let _ = fs::metadata(&path);
    }
}

/// Makes so many groups; the exit status says how many succeeded.
fn mkdirs(path: &str, count: u64) -> ! {
    let made = (0..count).filter(|n| fs::create_dir(format!("{path}/made{n}")).is_ok());
    process::exit(made.count() as i32);
}

/// Sends the scheduler a request and prints the answer.
fn asks(uid: &str, request: &str) -> ! {
    // SAFETY: a number.
    unsafe { libc::setuid(uid.parse().expect("a user's number")) };
    println!("{}", ask(request));
    process::exit(0);
}

/// Sleeps most of the time.
fn sleeper(us: u64) -> ! {
    loop {
        std::thread::sleep(Duration::from_micros(us));
    }
}

/// A process with so many busy threads.
fn threads(count: u64) -> ! {
    start_hogs(count - 1);
    hog()
}

/// The pipe at which the threads of a crowd wait for the start, and the file that tells when all
/// are there.
pub const CROWD_GO: &str = "/tmp/go";
pub const CROWD_READY: &str = "/tmp/ready";

/// So many busy threads, which start together.
fn crowd(count: u64) -> ! {
    until_in_group();
    let (wait, go) = two_ends(false);
    for _ in 1..count {
        let busy = move || {
            let mut byte = 0_u8;
            // SAFETY: reads into a byte of its own, until the other end is closed.
            unsafe { libc::read(wait, (&raw mut byte).cast(), 1) };
            hog()
        };
        std::thread::Builder::new().stack_size(32 << 10).spawn(busy).expect("room for threads");
    }
    let _ = fs::write(CROWD_READY, "");
    while fs::metadata(CROWD_GO).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: closes the only end for writing, so that all readers go on.
    unsafe { libc::close(go) };
    hog()
}

/// Forks children that do little and exit, and counts them.
fn forks(path: Option<&str>) -> ! {
    let count = path.map(shared_count);
    loop {
        // SAFETY: the child only leaves.
        match unsafe { libc::fork() } {
            0 => {
                // The child uses some milliseconds of CPU time, however long it waits.
                for n in 0..200_000_u64 {
                    std::hint::black_box(n);
                }
                // SAFETY: no destructor of the parent's is run in the child.
                unsafe { libc::_exit(0) }
            }
            child if child > 0 => {
                let mut status = 0;
                // SAFETY: waits for the child just made.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                if let Some(count) = count {
                    add_one(count);
                }
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Forks a child that exits at once every 2 ms; counts them, and keeps the longest time of a fork.
fn births(path: &str) -> ! {
    longest(path, Duration::from_millis(2), || {
        let before = Instant::now();
        // SAFETY: the child only leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no destructor of the parent's is run in the child.
            unsafe { libc::_exit(0) }
        }
        let took = before.elapsed();
        let mut status = 0;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        took
    })
}

/// Moves a process back and forth every 0.3 ms; counts the moves, and keeps the longest time of
/// one.
fn moves(path: &str, pid: &str, files: [&str; 2]) -> ! {
    let mut turn = 0;
    longest(path, Duration::from_micros(300), || {
        let before = Instant::now();
        let _ = fs::write(files[turn % 2], pid);
        turn += 1;
        before.elapsed()
    })
}

/// Repeats an action; counts the repetitions, and keeps the longest time in a file.
fn longest(path: &str, pause: Duration, mut once: impl FnMut() -> Duration) -> ! {
    let count = shared_count(path);
    let mut worst = Duration::ZERO;
    loop {
        let took = once();
        add_one(count);
        if took > worst {
            worst = took;
            let _ = fs::write(format!("{path}.wait_us"), worst.as_micros().to_string());
        }
        std::thread::sleep(pause);
    }
}

fn start_hogs(count: u64) {
    for _ in 0..count {
        std::thread::spawn(|| hog());
    }
}

/// Forks processes that end while their other threads are busy or wait for runtime.
fn ends(path: &str) -> ! {
    let count = shared_count(path);
    loop {
        // SAFETY: this process has one thread, so the child may call any function.
        match unsafe { libc::fork() } {
            0 => {
                start_hogs(3);
                std::thread::sleep(Duration::from_millis(20));
                add_one(count);
                // SAFETY: no destructor of the parent's is run in the child.
                unsafe { libc::_exit(0) }
            }
            child if child > 0 => {
                let mut status = 0;
                // SAFETY: waits for the child just made.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Executes itself anew, with so many other busy threads.
fn execs(path: &str, threads: u64) -> ! {
    add_one(shared_count(path));
    start_hogs(threads);
    spin(Duration::from_millis(1));
    let error =
        process::Command::new("/init").args(["load", "execs", path, &threads.to_string()]).exec();
    eprintln!("exec: {error}");
    process::exit(2);
}

/// Sets the identity of its process repeatedly, in which all threads of the process take part;
/// keeps the longest time in a file.
fn setuids(path: &str) -> ! {
    let count = shared_count(path);
    start_hogs(2);
    let mut worst_us = 0;
    loop {
        let before = Instant::now();
        // SAFETY: a number.
        unsafe { libc::setuid(0) };
        let took = before.elapsed().as_micros();
        add_one(count);
        if took > worst_us {
            worst_us = took;
            let _ = fs::write(format!("{path}.wait_us"), worst_us.to_string());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Holds the lock of a file for as long as a write of so many megabytes takes; prints the longest
/// time.
fn writer(path: &str, megabytes: usize) -> ! {
    let file =
        OpenOptions::new().create(true).write(true).truncate(false).open(path).expect("a file");
    let data = vec![0x5a_u8; megabytes << 20];
    let mut worst_us = 0;
    loop {
        let kernel = own_kernel_us();
        let _ = file.write_at(&data, 0);
        let took = own_kernel_us() - kernel;
        if took > worst_us {
            worst_us = took;
            let _ = fs::write(format!("{path}.kernel_us"), worst_us.to_string());
        }
        spin(Duration::from_millis(1));
    }
}

/// Writes one byte to one file repeatedly; keeps the longest wait in a file.
fn peer(path: &str, pause_us: u64) -> ! {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .custom_flags(0)
        .open(path)
        .expect("a file");
    let mut worst_us = 0;
    loop {
        let before = Instant::now();
        let _ = file.write_at(b"x", 0);
        let waited = before.elapsed().as_micros();
        if waited > worst_us {
            worst_us = waited;
            let _ = fs::write(format!("{path}.wait_us"), worst_us.to_string());
        }
        std::thread::sleep(Duration::from_micros(pause_us));
    }
}

/// Sleeps repeatedly and writes how late it woke, one line per sleep.
fn wakes(us: u64, path: &str) -> ! {
    let mut out = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    loop {
        let before = Instant::now();
        std::thread::sleep(Duration::from_micros(us));
        let late = before.elapsed().as_micros() as u64 - us;
        let _ = writeln!(out, "{late}");
    }
}

/// Counts in user mode, and keeps the count in a file that is mapped as shared memory.
fn counts(path: &str) -> ! {
    let count = shared_count(path);
    loop {
        add_one(count);
    }
}

/// A number at the beginning of a file, in memory that children share.
pub fn shared_count(path: &str) -> *mut u64 {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("a file");
    file.set_len(4096).expect("room");
    // SAFETY: maps a page of the file that was just made that long.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    page.cast()
}

pub fn add_one(count: *mut u64) {
    // SAFETY: a number in a page that stays mapped; others may add to it too, hence the atomic.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(count) }
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

/// Two processes that wake each other through pipes; a round trip counts as two messages.
fn pipe(path: &str) -> ! {
    stop_first();
    let count = shared_count(path);
    let (there, back) = (two_ends(false), two_ends(false));
    // SAFETY: the child goes on with descriptors and memory that both have.
    let (from, to) = if unsafe { libc::fork() } == 0 {
        (there.0, back.1)
    } else {
        pass(there.1);
        (back.0, there.1)
    };
    loop {
        take(from);
        add_one(count);
        pass(to);
    }
}

/// Equally many senders and receivers; each sender writes to each receiver in turn, through
/// sockets.
fn hackbench(path: &str, pairs: u64) -> ! {
    stop_first();
    let count = shared_count(path);
    let sockets: Vec<(i32, i32)> = (0..pairs).map(|_| two_ends(true)).collect();
    for &(from, _) in &sockets {
        // SAFETY: as above.
        if unsafe { libc::fork() } == 0 {
            loop {
                take(from);
                add_one(count);
            }
        }
    }
    for _ in 1..pairs {
        // SAFETY: as above.
        if unsafe { libc::fork() } == 0 {
            break;
        }
    }
    loop {
        for &(_, to) in &sockets {
            pass(to);
        }
    }
}

/// Stops itself until it is in its group, so that its children are born there.
fn stop_first() {
    // SAFETY: stops this process until SIGCONT.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// The read and write ends of a pipe or of a socket pair.
fn two_ends(sockets: bool) -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: both fill in two descriptors.
    let failed = unsafe {
        if sockets {
            libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr())
        } else {
            libc::pipe(ends.as_mut_ptr())
        }
    };
    assert_eq!(failed, 0, "two ends");
    (ends[0], ends[1])
}

fn take(from: i32) {
    let mut message = [0_u8; 100];
    // SAFETY: reads into an array of the length given.
    if unsafe { libc::read(from, message.as_mut_ptr().cast(), message.len()) } <= 0 {
        process::exit(0);
    }
}

fn pass(to: i32) {
    let message = [0_u8; 100];
    // SAFETY: writes from an array of the length given.
    if unsafe { libc::write(to, message.as_ptr().cast(), message.len()) } <= 0 {
        process::exit(0);
    }
}

/// Prints to the console where in the kernel the first process is, and which tasks are blocked,
/// when the first process has made no step for a minute. The first line of a file counts its steps.
fn sentinel(path: &str) -> ! {
    let mut last = String::new();
    loop {
        std::thread::sleep(Duration::from_secs(60));
        let now = fs::read_to_string(path).unwrap_or_default();
        if now == last {
            let read =
                |name: &str| fs::read_to_string(format!("/proc/1/{name}")).unwrap_or_default();
            eprintln!(
                "no step since {now}: {} / {}",
                read("stat").trim(),
                read("stack").replace('\n', " ")
            );
            let state = fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default();
            eprintln!("sched_ext {}", state.trim());
            // SysRq: blocked tasks, and what each CPU runs; then all tasks.
            for what in ["w", "l", "t"] {
                let _ = fs::write("/proc/sysrq-trigger", what);
            }
        }
        last = now;
    }
}

/// Attaches the scheduler of an object file until it is killed.
fn scheduler(path: &str) -> ! {
    let attached = libbpf_rs::ObjectBuilder::default()
        .open_file(path)
        .and_then(libbpf_rs::OpenObject::load)
        .and_then(|mut object| {
            let mut links = Vec::new();
            for mut map in object.maps_mut() {
                if libbpf_rs::MapCore::map_type(&map) == libbpf_rs::MapType::StructOps {
                    links.push(map.attach_struct_ops()?);
                }
            }
            std::mem::forget(object);
            Ok(links)
        });
    match attached {
        Ok(_links) => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        Err(error) => {
            eprintln!("{path}: {error}");
            process::exit(2);
        }
    }
}

fn spin(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {}
}

/// Time this thread has spent in the kernel.
fn own_kernel_us() -> u64 {
    // SAFETY: the structure is plain numbers and is filled in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_stime.tv_sec as u64 * 1_000_000 + usage.ru_stime.tv_usec as u64
}
