// SPDX-License-Identifier: GPL-2.0-only
//! The loads: what this program does as `/init load KIND ARGS...`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process;
use std::time::{Duration, Instant};

/// Never returns.
pub fn main(args: &[String]) -> ! {
    let number = |at: usize| args.get(at).and_then(|arg| arg.parse::<u64>().ok()).unwrap_or(0);
    match args.first().map(String::as_str) {
        Some("hog") => hog(),
        Some("hogs") => hogs(number(1)),
        Some("reads") => reads(),
        Some("sleeper") => sleeper(number(1)),
        Some("forks") => forks(),
        Some("writer") => writer(&args[1], number(2) as usize),
        Some("peer") => peer(&args[1], number(2)),
        Some("wakes") => wakes(number(1), &args[2]),
        Some("counts") => counts(&args[1]),
        other => {
            eprintln!("no load {other:?}");
            process::exit(2);
        }
    }
}

/// Uses a CPU in user mode. Without the instruction that is meant for such loops: an emulated CPU gives its turn away at it.
fn hog() -> ! {
    let mut count = 0_u64;
    loop {
        count = std::hint::black_box(count.wrapping_add(1));
    }
}

/// Several hogs; the first is this process.
fn hogs(count: u64) -> ! {
    for _ in 1..count {
        // SAFETY: the child goes on in a loop that uses nothing of the parent's.
        if unsafe { libc::fork() } == 0 {
            break;
        }
    }
    hog()
}

/// Uses a CPU half in short system calls.
fn reads() -> ! {
    let zero = fs::File::open("/dev/zero").expect("/dev/zero");
    let mut buffer = [0; 4096];
    loop {
        let _ = zero.read_at(&mut buffer, 0);
    }
}

/// Sleeps most of the time.
fn sleeper(us: u64) -> ! {
    loop {
        std::thread::sleep(Duration::from_micros(us));
    }
}

/// Makes children that do little and exit.
fn forks() -> ! {
    loop {
        // SAFETY: the child only leaves.
        match unsafe { libc::fork() } {
            0 => {
                let until = Instant::now() + Duration::from_millis(2);
                while Instant::now() < until {}
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

/// Holds a file's lock for as long as a write of so many megabytes takes; says how long the longest took.
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

/// Writes one byte to the same file again and again; keeps the longest wait in a file.
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

/// Sleeps so long again and again and keeps how late it woke, a line each.
fn wakes(us: u64, path: &str) -> ! {
    let mut out = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    loop {
        let before = Instant::now();
        std::thread::sleep(Duration::from_micros(us));
        let late = before.elapsed().as_micros() as u64 - us;
        let _ = writeln!(out, "{late}");
    }
}

/// Counts in user mode, and keeps the count in a file that is shared memory.
fn counts(path: &str) -> ! {
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
    let count = page.cast::<u64>();
    loop {
        // SAFETY: the page stays mapped.
        unsafe { count.write_volatile(count.read_volatile() + 1) };
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
