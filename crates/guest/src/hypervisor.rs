//! What the guest and QEMU do with each other beside the serial line.
//!
//! Jobs come through the firmware configuration device (`fw_cfg`, ports 0x510 and 0x511), because a
//! read from it is over before the next instruction: it takes the same time in every run, which a
//! message on a serial line does not. The `ib700` watchdog (ports 0x441 and 0x443) stops the
//! machine while it idles; the lab then saves its state, and every later run begins there.
//!
//! A machine that stops itself in the middle of its work, as with `pvpanic`, races with QEMU: its
//! processor counts as idle for a moment, and sometimes the clock skips to the next timer. In a
//! machine that is idle it does that anyway.

use crate::sys;
use cpumax_protocol::hypervisor::{JOBS, PAUSE, SETTLE};
use std::io;
use std::time::Duration;

const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
/// Starts the watchdog.
const WATCHDOG: u16 = 0x443;
/// It bites after 30 s less two for each.
const IN_TWO_SECONDS: u8 = 14;
/// Away from ticks, which come at whole milliseconds if they come at all.
const BETWEEN_TICKS: Duration = Duration::from_micros(500);
const SECOND_NS: u64 = 1_000_000_000;
const FILE_DIRECTORY: u16 = 0x19;
const MAX_FILES: u32 = 1024;
const MAX_FILE_BYTES: u32 = 64 << 20;

/// Lets the kernel finish starting.
pub fn settle() {
    let seconds = std::env::var(SETTLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    std::thread::sleep(Duration::from_secs(seconds));
}

/// The lines of the jobs; `None` when QEMU was given none, and they come by the serial line. When
/// the lab wants the machine's state first, this idles while the machine is stopped and saved (and
/// restored, perhaps days later), and returns at a whole second of the monotonic clock.
///
/// # Errors
/// Without root, or when the device does not answer as it should.
pub fn jobs() -> io::Result<Option<String>> {
    let Some(text) = read(JOBS)? else { return Ok(None) };
    if text != PAUSE.as_bytes() {
        return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
    }
    let now = sys::monotonic_ns() / SECOND_NS * SECOND_NS;
    sys::sleep_until(now + SECOND_NS + BETWEEN_TICKS.as_nanos() as u64);
    out8(WATCHDOG, IN_TWO_SECONDS);
    sys::sleep_until(now + 5 * SECOND_NS);
    let text = read(JOBS)?.unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// The file of that name in the firmware configuration device.
fn read(name: &str) -> io::Result<Option<Vec<u8>>> {
    // SAFETY: asks for a right; without it the call fails and no port is touched.
    if unsafe { libc::iopl(3) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Selects the signature, which tells whether the device is there.
    out16(SELECTOR, 0);
    if &bytes::<4>() != b"QEMU" {
        return Ok(None);
    }
    out16(SELECTOR, FILE_DIRECTORY);
    let files = u32::from_be_bytes(bytes()).min(MAX_FILES);
    for _ in 0..files {
        let size = u32::from_be_bytes(bytes());
        let key = u16::from_be_bytes(bytes());
        let _reserved = bytes::<2>();
        let found = bytes::<56>();
        let end = found.iter().position(|&byte| byte == 0).unwrap_or(found.len());
        if &found[..end] == name.as_bytes() {
            out16(SELECTOR, key);
            return Ok(Some((0..size.min(MAX_FILE_BYTES)).map(|_| in8(DATA)).collect()));
        }
    }
    Ok(None)
}

fn bytes<const N: usize>() -> [u8; N] {
    std::array::from_fn(|_| in8(DATA))
}

fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: reads a port of the device this file is about, after `read` got the right to.
    unsafe {
        std::arch::asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack));
    }
    value
}

fn out8(port: u16, value: u8) {
    // SAFETY: as `in8`; what the device does to the machine is what is wanted.
    unsafe {
        std::arch::asm!("out dx, al", in("dx") port, in("al") value, options(nostack));
    }
}

fn out16(port: u16, value: u16) {
    // SAFETY: as `out8`.
    unsafe {
        std::arch::asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack));
    }
}
