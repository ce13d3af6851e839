//! Ctrl-C: runs stop at their next report of progress, anything else at once.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

static RUNNING: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit status of a program ended by the keyboard: 128 and the number of SIGINT.
pub const STATUS: u8 = 130;

/// Catches Ctrl-C from now on.
pub fn catch() {
    let handler = || {
        let again = REQUESTED.swap(true, Ordering::Relaxed);
        if again || !RUNNING.load(Ordering::Relaxed) {
            process::exit(i32::from(STATUS));
        }
    };
    // Without a handler Ctrl-C ends the program as well, only less tidily.
    drop(ctrlc::set_handler(handler));
}

/// Whether whoever watches for it should stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// While it lives, someone watches [`requested`].
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
