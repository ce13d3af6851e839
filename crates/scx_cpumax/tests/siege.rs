// SPDX-License-Identifier: GPL-2.0-only
//! Tests the scheduler's socket, without a scheduler, under 64 hostile clients beside an honest
//! one.
//!
//! The test has a process of its own because it measures the memory of the process.
//! `CPUMAX_SIEGE_S` sets how many seconds it takes; 5 by default.

#[allow(dead_code, missing_docs, reason = "used by the program")]
#[path = "../src/answer.rs"]
mod answer;
#[allow(dead_code, missing_docs, reason = "used by the program")]
#[path = "../src/escape.rs"]
mod escape;
#[allow(dead_code, missing_docs, reason = "used by the program")]
#[path = "../src/socket.rs"]
mod socket;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use answer::Request;
use socket::{CLIENTS_MAX, Server};

/// CPU time that one round of the server may take, without the time to compute answers.
const ROUND_MAX: Duration = Duration::from_millis(10);
const MEMORY_MAX_KB: u64 = 20 << 10;
/// Longest wait of an honest client, in rounds of the server. A round comes each millisecond or
/// later.
const HONEST_WAIT_MAX: u64 = 500;
/// Rounds of the server so far.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

#[test]
fn hostile_clients_delay_nobody_and_take_no_memory() {
    let seconds = env::var("CPUMAX_SIEGE_S").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let server = Server::listen(&path).unwrap();
    let over = AtomicBool::new(false);
    let (longest, waits) = thread::scope(|scope| {
        let over = Over(&over);
        let (path, stop) = (&path, over.0);
        let serving = scope.spawn(|| serve(server, stop));
        for kind in 0..CLIENTS_MAX {
            thread::Builder::new()
                .stack_size(64 << 10)
                .spawn_scoped(scope, move || hostile(path, kind % 8, stop))
                .unwrap();
        }
        let waits = honest(path, Duration::from_secs(seconds));
        drop(over);
        (serving.join().unwrap(), waits)
    });
    let (worst, peak) = (*waits.iter().max().unwrap(), peak_kb());
    println!(
        "{seconds} s: {} rounds, the longest {longest:?} of a CPU; {} honest questions, answered \
         after {} rounds at most, {:?}; {peak} kB",
        ROUNDS.load(Ordering::Relaxed),
        waits.len(),
        worst.0,
        worst.1
    );
    assert!(longest < ROUND_MAX, "{longest:?}");
    assert!(worst.0 < HONEST_WAIT_MAX, "{worst:?}");
    assert!(peak < MEMORY_MAX_KB, "{peak} kB");
}

/// Sets the flag that ends the test when it is dropped, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves round by round and returns the longest CPU time of a round. The server is dropped at the
/// end, so that no client waits for it.
fn serve(mut server: Server, over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let (begin, mut working) = (cpu_time(), Duration::ZERO);
        server.round(&mut |_, request| {
            let begin = cpu_time();
            let bytes = work_out(request);
            working += cpu_time().saturating_sub(begin);
            bytes
        });
        longest = longest.max(cpu_time().saturating_sub(begin + working));
        ROUNDS.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
    longest
}

/// An answer as long as the name of the group says, in kB.
fn work_out(request: &Request) -> Vec<u8> {
    let name = request.group.as_deref().unwrap_or_default();
    let kb: usize = name.split('-').next().and_then(|kb| kb.parse().ok()).unwrap_or(1);
    let mut line = Vec::with_capacity((kb << 10) + 16);
    line.extend_from_slice(b"{\"error\":\"");
    line.resize(line.len() + (kb << 10), b'x');
    line.extend_from_slice(b"\"}\n");
    line
}

/// Asks repeatedly and returns for each answer the number of rounds and the time it took.
fn honest(path: &Path, time: Duration) -> Vec<(u64, Duration)> {
    let (begin, mut waits) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let (asked, round) = (Instant::now(), ROUNDS.load(Ordering::Relaxed));
        let mut line = String::new();
        // A client that gets no CPU for half a second sends its request too late and has to
        // connect again.
        while line.is_empty() {
            let mut stream = UnixStream::connect(path).unwrap();
            let _ = stream.write_all(b"{}\n");
            let _ = BufReader::new(stream).read_line(&mut line);
        }
        assert_eq!(line.len(), 1024 + 13, "{line:.100}");
        waits.push((ROUNDS.load(Ordering::Relaxed) - round, asked.elapsed()));
        thread::sleep(Duration::from_millis(30));
    }
    waits
}

/// Behaves like a hostile client of one of eight kinds until the test is over.
fn hostile(path: &Path, kind: usize, over: &AtomicBool) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = UnixStream::connect(path) else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let ask = |mut stream: &UnixStream, group: &str| {
            let _ = writeln!(stream, "{{\"group\":\"{group}\"}}");
        };
        match kind {
            // These send nothing, and keep the connection or close it at once.
            0 => thread::sleep(Duration::from_millis(100)),
            1 => thread::sleep(Duration::from_millis(2)),
            // These ask and read nothing; the request is one that others share, or a unique one.
            2 => {
                ask(&stream, "4000");
                thread::sleep(Duration::from_millis(100));
            }
            3 => {
                ask(&stream, &format!("1000-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
                thread::sleep(Duration::from_millis(100));
            }
            // These read, or send, one byte at a time.
            4 => {
                ask(&stream, "300");
                while stream.read(&mut [0]).is_ok_and(|read| read > 0)
                    && !over.load(Ordering::Relaxed)
                {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            5 => {
                while stream.write_all(b" ").is_ok() && !over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            // These send more than the limit, or bytes that are no request.
            6 => {
                while stream.write_all(&[b'x'; 4096]).is_ok() && !over.load(Ordering::Relaxed) {}
                thread::sleep(Duration::from_millis(2));
            }
            _ => {
                let _ = stream.write_all(b"\xff{\"group\":\x1b}\n");
                let _ = stream.read(&mut [0; 64]);
                thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Peak memory of this process in kB, including its client threads.
fn peak_kb() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in a record of two numbers.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
