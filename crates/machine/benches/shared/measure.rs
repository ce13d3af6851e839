//! Measurements of a process: its instructions, by callgrind, and its memory.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// Output of this program with these arguments, and its instructions; `None` without valgrind.
pub fn callgrind(args: &[&OsStr]) -> Option<(String, u64)> {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().ok()?)
        .args(args)
        .output()
        .ok()?;
    let profile = std::fs::read_to_string(out).ok()?;
    let summary = profile.lines().find_map(|line| line.strip_prefix("summary: "))?;
    Some((String::from_utf8(output.stdout).ok()?, summary.trim().parse().ok()?))
}

/// Largest resident size so far, KiB; 0 where the system does not report it.
#[allow(dead_code, reason = "one of the benchmarks asks only for instructions")]
pub fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
