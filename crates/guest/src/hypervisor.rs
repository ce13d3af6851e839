//! Communication between the guest and QEMU beside the serial port.
//!
//! Jobs come through the firmware configuration device (`fw_cfg`, ports 0x510 and 0x511). A read
//! from it completes within the instruction, so it takes the same time in every run; a message on
//! the serial port does not. The `ib700` watchdog (ports 0x441 and 0x443) stops the machine while
//! it idles; the lab then saves the machine's state, and every later run begins there.
//!
//! Stopping the machine in the middle of work, as `pvpanic` does, races with QEMU: its CPU counts
//! as idle for a moment, and sometimes the clock skips to the next timer. An idle machine does that
//! anyway.

use crate::sys;
use cpumax_protocol::hypervisor::{JOBS, PAUSE, SETTLE};
use std::io;
use std::time::Duration;

const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
/// Writing this port starts the watchdog.
const WATCHDOG: u16 = 0x443;
/// The watchdog fires after 30 s minus two for each unit.
const IN_TWO_SECONDS: u8 = 14;
/// Away from ticks, which come at whole milliseconds.
const BETWEEN_TICKS: Duration = Duration::from_micros(500);
const SECOND_NS: u64 = 1_000_000_000;
const FILE_DIRECTORY: u16 = 0x19;
const MAX_FILES: u32 = 1024;
const MAX_FILE_BYTES: u32 = 64 << 20;

/// Sleeps while the kernel finishes its start, for the seconds in the environment variable
/// `SETTLE`.
pub fn sleep_after_boot() {
    let seconds = std::env::var(SETTLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    std::thread::sleep(Duration::from_secs(seconds));
}

/// Reads the jobs that QEMU was given in its firmware device, one a line; `None` if there are none
/// and they come by the serial port. If the lab asks for a pause to save the machine, it arms
/// QEMU's watchdog, which stops the machine, and sleeps; it returns the jobs of the restored
/// machine, at a whole second of the monotonic clock.
///
/// # Errors
/// The caller may not use ports: it is not root.
pub fn read_jobs() -> io::Result<Option<String>> {
    let Some(text) = read_file(JOBS)? else { return Ok(None) };
    if text != PAUSE.as_bytes() {
        return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
    }
    let now = sys::monotonic_ns() / SECOND_NS * SECOND_NS;
    sys::sleep_until(now + SECOND_NS + BETWEEN_TICKS.as_nanos() as u64);
    out8(WATCHDOG, IN_TWO_SECONDS);
    sys::sleep_until(now + 5 * SECOND_NS);
    let text = read_file(JOBS)?.unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Reads the file with this name in QEMU's firmware configuration device (`fw_cfg`), by its ports;
/// `None` if there is no such device or file.
///
/// # Errors
/// The caller may not use ports.
fn read_file(name: &str) -> io::Result<Option<Vec<u8>>> {
    // SAFETY: the call asks for the right to use ports; where it fails no port is touched.
    if unsafe { libc::iopl(3) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Key 0 selects the signature, which shows whether the device exists.
    out16(SELECTOR, 0);
    if &read_bytes::<4>() != b"QEMU" {
        return Ok(None);
    }
    out16(SELECTOR, FILE_DIRECTORY);
    let files = u32::from_be_bytes(read_bytes()).min(MAX_FILES);
    for _ in 0..files {
        let size = u32::from_be_bytes(read_bytes());
        let key = u16::from_be_bytes(read_bytes());
        let _reserved = read_bytes::<2>();
        let found = read_bytes::<56>();
        let end = found.iter().position(|&byte| byte == 0).unwrap_or(found.len());
        if &found[..end] == name.as_bytes() {
            out16(SELECTOR, key);
            return Ok(Some((0..size.min(MAX_FILE_BYTES)).map(|_| in8(DATA)).collect()));
        }
    }
    Ok(None)
}

/// The next `N` bytes from the data port of the firmware device.
fn read_bytes<const N: usize>() -> [u8; N] {
    std::array::from_fn(|_| in8(DATA))
}

/// Reads a byte from an I/O port; the process must have the right to (iopl).
fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: reads a port of the devices above, after `read_file` got the right to.
    unsafe {
        std::arch::asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack));
    }
    value
}

/// Writes a byte to an I/O port; the process must have the right to (iopl).
fn out8(port: u16, value: u8) {
    // SAFETY: as in `in8`; the effect of the device on the machine is wanted.
    unsafe {
        std::arch::asm!("out dx, al", in("dx") port, in("al") value, options(nostack));
    }
}

/// Writes two bytes to an I/O port; the process must have the right to (iopl).
fn out16(port: u16, value: u16) {
    // SAFETY: as in `out8`.
    unsafe {
        std::arch::asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack));
    }
}
