// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's socket, without a scheduler, under 64 hostile clients beside an honest one.
//!
//! In a process of its own, whose memory is what is measured. `CPUMAX_SIEGE_S` says for how many
//! seconds, a few if it does not.

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

/// Of a CPU, for all that is done between two looks; working out an answer is not in it.
const ROUND_MAX: Duration = Duration::from_millis(10);
const MEMORY_MAX_KB: u64 = 20 << 10;
/// What an honest client waits at most, rounds of the server, which come each millisecond or later.
const HONEST_WAIT_MAX: u64 = 500;
/// How many rounds there were.
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

/// Says that it is over, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves round by round; what the longest took. At its end the server is gone, and nobody waits
/// for it any more.
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

/// As long an answer as the name of the group says, in kB.
fn work_out(request: &Request) -> Vec<u8> {
    let name = request.group.as_deref().unwrap_or_default();
    let kb: usize = name.split('-').next().and_then(|kb| kb.parse().ok()).unwrap_or(1);
    let mut line = Vec::with_capacity((kb << 10) + 16);
    line.extend_from_slice(b"{\"error\":\"");
    line.resize(line.len() + (kb << 10), b'x');
    line.extend_from_slice(b"\"}\n");
    line
}

/// Asks again and again; how many rounds each answer took, and how long.
fn honest(path: &Path, time: Duration) -> Vec<(u64, Duration)> {
    let (begin, mut waits) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let (asked, round) = (Instant::now(), ROUNDS.load(Ordering::Relaxed));
        let mut line = String::new();
        // Without a CPU for half a second it is late with its question, and has to come again.
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

/// What a hostile client does until it is over, of eight kinds.
fn hostile(path: &Path, kind: usize, over: &AtomicBool) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = UnixStream::connect(path) else { continue };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let ask = |mut stream: &UnixStream, group: &str| {
            let _ = writeln!(stream, "{{\"group\":\"{group}\"}}");
        };
        match kind {
            // Says nothing; or goes at once.
            0 => thread::sleep(Duration::from_millis(100)),
            1 => thread::sleep(Duration::from_millis(2)),
            // Asks and reads nothing: for what others ask for too, for what nobody else does.
            2 => {
                ask(&stream, "4000");
                thread::sleep(Duration::from_millis(100));
            }
            3 => {
                ask(&stream, &format!("1000-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
                thread::sleep(Duration::from_millis(100));
            }
            // Reads byte after byte; sends byte after byte.
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
            // Sends more than it may; and nonsense.
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

/// The most memory of this process that was ever there, kB: its clients' too.
fn peak_kb() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Of the calling thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in a record of two numbers.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
