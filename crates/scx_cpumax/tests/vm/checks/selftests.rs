// SPDX-License-Identifier: GPL-2.0-only
//! The self-tests of the kernel's own tree for the cpu controller, built by `make scx-sources`, under this scheduler.

use std::path::Path;
use std::process::Command;

use crate::guest::{Checked, Scheduler};

const PROGRAM: &str = "/test_cpu";
/// Those of limits and weights; the others are about files that no scheduler has a part in.
const HELD_TO: [&str; 6] = [
    "test_cpucg_weight_overprovisioned",
    "test_cpucg_weight_underprovisioned",
    "test_cpucg_nested_weight_overprovisioned",
    "test_cpucg_nested_weight_underprovisioned",
    "test_cpucg_max",
    "test_cpucg_max_nested",
];

pub fn kernel_selftests() -> Checked {
    if !Path::new(PROGRAM).exists() {
        return Ok("skipped: they are not built, see `make scx-sources`".to_owned());
    }
    let scheduler = Scheduler::start(&[])?;
    let output = Command::new(PROGRAM).output().map_err(|error| error.to_string())?;
    scheduler.stop()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = |name: &str| {
        said.lines().any(|line| line.starts_with("ok ") && line.ends_with(&format!(" {name}")))
    };
    let failed: Vec<&str> = HELD_TO.into_iter().filter(|name| !passed(name)).collect();
    if failed.is_empty() {
        Ok(format!("{} passed", HELD_TO.len()))
    } else {
        Err(format!("{} did not pass: {}", failed.join(", "), said.trim().replace('\n', " / ")))
    }
}
