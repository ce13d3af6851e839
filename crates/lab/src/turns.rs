//! Emulated machines with several CPUs whose time is the number of instructions that they execute,
//! in turns of two microseconds: what is measured in them does not depend on the host, and is the
//! same to the byte in every run; they may have more CPUs than the host; and idle time costs
//! nothing.
//!
//! QEMU itself can do that for one CPU only (`-icount`), as all CPUs share one number of
//! instructions there: each is slower the more of them work. Here every CPU has its own, and time
//! goes by the round, in which each has one turn. A small library does that (`preload/turns.c`),
//! which QEMU loads before its own and as a plugin.

use crate::Error;
use crate::qemu;
use std::env;
use std::os::fd::OwnedFd;

/// Made by `build.rs`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/turns.so"));
/// What it is made of: states that are kept depend on it, and not on who compiled it.
pub(crate) const SOURCE: &str = include_str!("../preload/turns.c");
/// Where libraries stand that are loaded before a program's own.
const PRELOADED: &str = "LD_PRELOAD";

/// What a machine needs to have that time.
pub struct Turns {
    /// A file to pass to it, under its own number.
    pub library: OwnedFd,
    /// Name and value of a variable of its environment.
    pub environment: (&'static str, String),
    /// More arguments.
    pub arguments: [String; 2],
}

impl Turns {
    /// For one machine.
    ///
    /// # Errors
    /// When there is no memory for it.
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
