// SPDX-License-Identifier: GPL-2.0-only
//! Runs the kernel tree's own self-tests of the cpu controller, built by `make scx-sources`, under
//! this scheduler and under the fair class of the same machine.
//!
//! Two of the tests ask a shell for the length of a tick, and run longer with longer ticks. The
//! machine has no shell: this program takes its place and prints the kernel's value.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{Checked, Scheduler};

const PROGRAM: &str = "/test_cpu";
const TICKS: &str = "/tmp/ticks_per_second";
/// Tests of limits and weights. The others are about files that no scheduler takes part in.
const HELD_TO: [&str; 6] = [
    "test_cpucg_weight_overprovisioned",
    "test_cpucg_weight_underprovisioned",
    "test_cpucg_nested_weight_overprovisioned",
    "test_cpucg_nested_weight_underprovisioned",
    "test_cpucg_max",
    "test_cpucg_max_nested",
];

/// Output of a test, and one letter for each relevant result: passed, failed or skipped.
struct Run {
    said: String,
    verdicts: Vec<char>,
}

impl Run {
    fn new() -> Result<Self, String> {
        let output = Command::new(PROGRAM).output().map_err(|error| error.to_string())?;
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers = String::from_utf8_lossy(&output.stderr).into_owned();
        let verdict = |name: &str| {
            let line = lines.lines().find(|line| line.ends_with(&format!(" {name}")));
            match line {
                Some(line) if line.contains("# SKIP") => 's',
                Some(line) if line.starts_with("ok ") => 'p',
                _ => 'f',
            }
        };
        let verdicts = HELD_TO.into_iter().map(verdict).collect();
        let numbers = numbers.lines().filter(|line| line.contains("actual="));
        Ok(Self { said: numbers.collect::<Vec<_>>().join(" / "), verdicts })
    }

    fn with(&self, verdict: char) -> String {
        let names = HELD_TO.iter().zip(&self.verdicts).filter(|(_, v)| **v == verdict);
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

pub fn kernel_selftests() -> Checked {
    if !Path::new(PROGRAM).exists() {
        return Ok("skipped: they are not built, see `make scx-sources`".to_owned());
    }
    let ticks = ticks_per_second();
    fs::write(TICKS, ticks.to_string()).map_err(|error| error.to_string())?;
    let _ = fs::create_dir("/bin");
    let _ = symlink("/init", "/bin/sh");
    let fair = Run::new()?;
    let scheduler = Scheduler::start(&[])?;
    let ours = Run::new()?;
    scheduler.stop()?;
    let said = format!(
        "{ticks} ticks a second; passed: {}; skipped themselves: {}; failed: {} ({}); failed under \
         the fair class: {} ({})",
        ours.with('p'),
        ours.with('s'),
        ours.with('f'),
        ours.said,
        fair.with('f'),
        fair.said
    );
    let passed = ours.verdicts.iter().filter(|verdict| **verdict == 'p').count();
    if ours.verdicts.contains(&'f') || passed < 4 { Err(said) } else { Ok(said) }
}

/// Prints the line of the kernel's configuration that the tests look for, whatever command
/// `sh -c COMMAND` has.
pub fn shell() -> ! {
    println!("CONFIG_HZ={}", fs::read_to_string(TICKS).unwrap_or_default().trim());
    std::process::exit(0)
}

/// Counts ticks, because Debian's kernels do not show their configuration.
fn ticks_per_second() -> u64 {
    let count = || {
        let text = fs::read_to_string("/proc/schedstat").unwrap_or_default();
        let stamp = text.lines().find_map(|line| line.strip_prefix("timestamp "));
        stamp.and_then(|ticks| ticks.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let (start, before) = (Instant::now(), count());
    sleep(Duration::from_secs(2));
    let rate = count().wrapping_sub(before) as f64 / start.elapsed().as_secs_f64();
    let known = [100, 250, 300, 1000];
    known.into_iter().min_by_key(|hz| (rate as u64).abs_diff(*hz)).unwrap_or(1000)
}
