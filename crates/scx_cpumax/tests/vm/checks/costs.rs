// SPDX-License-Identifier: GPL-2.0-only
//! What a context switch costs, in instructions, beside the fair class and the kernel's own `scx_simple`.
//!
//! In these machines an instruction takes two nanoseconds, so the time that the one CPU is not idle counts them exactly.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{CGROUPS, Checked, Foreign, Group, Load, Scheduler, counted};

const INSTRUCTION_NS: u64 = 2;
/// `scx_simple` of the kernel's own tree, where it was built (`make scx-sources`).
const SIMPLE: &str = "/scx_simple.bpf.o";
/// How much more than under `scx_simple` a switch of a task without a limit may cost.
const OVER_SIMPLE_PERCENT: u64 = 15;

/// A load, and the file in which it counts messages.
type Messages = (&'static str, &'static [&'static str]);
const LOADS: [Messages; 2] =
    [("pipe", &["pipe", "/tmp/messages"]), ("hackbench", &["hackbench", "/tmp/messages", "8"])];

/// Limits of three levels, one below the other.
const STATES: [(&str, &str); 3] =
    [("unlimited", "max"), ("limited", "200000 100000"), ("throttled", "20000 100000")];

struct Cost {
    per_switch: u64,
    per_message: u64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} a switch, {} a message", self.per_switch, self.per_message)
    }
}

fn cost(load: &[&str], limit: &str) -> Cost {
    let group = Group::new("x/y/z", limit);
    for path in ["x", "x/y"] {
        Group(path.to_owned()).set("cpu.max", limit);
    }
    let load = group.load(load);
    sleep(Duration::from_millis(500));
    let before = Counters::read();
    sleep(Duration::from_secs(1));
    let after = Counters::read();
    end(load);
    let instructions = (after.busy_ns - before.busy_ns) / INSTRUCTION_NS;
    Cost {
        per_switch: instructions / (after.switches - before.switches).max(1),
        per_message: instructions / (after.messages - before.messages).max(1),
    }
}

/// The load is several processes, all of them in one group.
fn end(load: Load) {
    let _ = fs::write(format!("{CGROUPS}/x/y/z/cgroup.kill"), "1");
    drop(load);
    while !fs::read_to_string(format!("{CGROUPS}/x/y/z/cgroup.procs")).unwrap_or_default().is_empty() {
        sleep(Duration::from_millis(10));
    }
}

struct Counters {
    busy_ns: u64,
    switches: u64,
    messages: u64,
}

impl Counters {
    fn read() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let number = |line: &str, at: usize| {
            let line = text.lines().find(|l| l.starts_with(line)).unwrap_or_default();
            line.split_whitespace().nth(at).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
        };
        // Idle and waiting, in hundredths of a second.
        let idle_ns = (number("cpu ", 4) + number("cpu ", 5)) * 10_000_000;
        Self {
            busy_ns: uptime_ns() - idle_ns,
            switches: number("ctxt", 1),
            messages: counted("/tmp/messages"),
        }
    }
}

fn uptime_ns() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // Later than any idle time there can have been before it.
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64 + 3_600_000_000_000
}

pub fn switch_costs() -> Checked {
    let mut said = String::new();
    let mut measure = |world: &str, states: &[(&str, &str)]| -> Vec<Cost> {
        let mut costs = Vec::new();
        for (name, load) in LOADS {
            for (state, limit) in states {
                let cost = cost(load, limit);
                eprintln!("{world}, {name}, {state}: {cost}");
                let _ = write!(said, "{world}, {name}, {state}: {cost}; ");
                costs.push(cost);
            }
        }
        costs
    };
    let scheduler = Scheduler::start(&[])?;
    let ours = measure("cpumax", &STATES);
    scheduler.stop()?;
    measure("fair", &STATES);
    let simple = if Path::new(SIMPLE).exists() {
        let scheduler = Foreign::start(SIMPLE)?;
        let costs = measure("scx_simple", &STATES[..1]);
        scheduler.stop()?;
        Some(costs)
    } else {
        None
    };
    for (ours, simple) in [&ours[0], &ours[STATES.len()]].into_iter().zip(simple.iter().flatten()) {
        if ours.per_message * 100 > simple.per_message * (100 + OVER_SIMPLE_PERCENT) {
            return Err(format!(
                "without a limit more than {OVER_SIMPLE_PERCENT} % over scx_simple: {said}"
            ));
        }
    }
    Ok(said)
}
