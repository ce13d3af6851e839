//! SIGINT, SIGTERM and SIGHUP. Watched work stops at its next report of progress, other work at
//! once. Work that does not stop in time is ended; a second signal ends everything at once.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

static RUNNING: AtomicBool = AtomicBool::new(false);
/// The signal that came, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);

/// Time for watched work to stop. Machines and guests then end without this process.
const STOPS_WITHIN: Duration = Duration::from_millis(800);

/// Exit status after the signal: 128 plus its number.
pub fn status() -> u8 {
    status_of(REQUESTED.load(Ordering::Relaxed))
}

fn status_of(signal: i32) -> u8 {
    u8::try_from(128 + if signal == 0 { SIGINT } else { signal }).unwrap_or(u8::MAX)
}

/// Catches the signals from now on, except those that were ignored at the start, as by `nohup`.
pub fn catch() {
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let caught = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(*signal));
    // Without handlers the signals end the program at once.
    let Ok(mut signals) = Signals::new(caught) else { return };
    thread::spawn(move || signals.forever().for_each(requested_by));
}

fn requested_by(signal: i32) {
    let before = REQUESTED.swap(signal, Ordering::Relaxed);
    if before != 0 || !RUNNING.load(Ordering::Relaxed) {
        process::exit(i32::from(status_of(signal)));
    }
    thread::spawn(move || {
        thread::sleep(STOPS_WITHIN);
        // Nobody may read it.
        let _ = writeln!(io::stderr(), "interrupted");
        process::exit(i32::from(status_of(signal)));
    });
}

/// Ignored signals, from the text of `/proc/PID/status`.
fn ignored(text: &str) -> impl Fn(i32) -> bool + use<> {
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    move |signal| mask >> (signal - 1) & 1 == 1
}

/// Whether a signal has come, so that watched work must stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) != 0
}

/// While it lives, the running work checks [`requested`] itself.
pub struct Watched(());

impl Watched {
    pub fn begin() -> Watched {
        RUNNING.store(true, Ordering::Relaxed);
        Watched(())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        RUNNING.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let nohup = ignored("Name:\tcpumax\nSigIgn:\t0000000000000001\nSigCgt:\t3\n");
        assert!(nohup(SIGHUP) && !nohup(SIGINT) && !nohup(SIGTERM));
        let nothing = ignored("");
        assert!(!nothing(SIGHUP));
    }
}
