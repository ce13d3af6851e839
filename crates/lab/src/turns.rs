//! Emulated machines with several CPUs whose time is the number of instructions that they execute,
//! in turns of two microseconds. Results do not depend on the host and are equal to the byte in
//! every run; there may be more CPUs than on the host; idle time takes no time of the host.
//!
//! QEMU's own `-icount` is for one CPU: several share one count there, so each is slower the more
//! of them work. Here every CPU has its own count, and time advances by rounds in which each CPU
//! has one turn. A small library does that (`preload/turns.c`); QEMU loads it before its own
//! libraries and as a plugin.

use crate::Error;
use crate::qemu;
use std::env;
use std::os::fd::OwnedFd;

/// The library, compiled by `build.rs`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/turns.so"));
/// Its source. Kept states depend on it, not on the compiler.
pub(crate) const SOURCE: &str = include_str!("../preload/turns.c");
/// Environment variable with libraries to load before a program's own.
const PRELOADED: &str = "LD_PRELOAD";

/// The library and the environment variable that make QEMU load it.
pub struct Turns {
    /// The library's file, to be passed under its own number.
    pub library: OwnedFd,
    /// An environment variable: name and value.
    pub environment: (&'static str, String),
    /// Arguments.
    pub arguments: [String; 2],
}

impl Turns {
    /// Puts the library into memory, for one machine.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn new() -> Result<Turns, Error> {
        let library = qemu::memory_file("cpumax-turns", LIBRARY)?;
        let path = qemu::path_of(&library);
        let preloaded = match env::var(PRELOADED) {
            Ok(others) => format!("{path}:{others}"),
            Err(_) => path.clone(),
        };
        let arguments = ["-plugin".to_owned(), format!("file={path}")];
        Ok(Turns { library, environment: (PRELOADED, preloaded), arguments })
    }
}
