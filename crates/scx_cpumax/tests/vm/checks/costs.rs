// SPDX-License-Identifier: GPL-2.0-only
//! Measures the cost of a context switch in instructions, beside the fair class and the kernel's
//! own `scx_simple`.
//!
//! In these machines an instruction takes two nanoseconds, so the CPU time of a group counts
//! instructions exactly. It includes interrupts that arrive while the group runs, and excludes the
//! work of timers while the CPU is idle.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::guest::{
    CGROUPS, Checked, Foreign, Group, Load, Scheduler, ask, beside_fair, counted, wait_until,
};
use crate::loads::{CROWD_GO, CROWD_READY};

const INSTRUCTION_NS: u64 = 2;
/// `scx_simple` of the kernel's own tree, if `make scx-sources` has built it.
const SIMPLE: &str = "/scx_simple.bpf.o";
/// How much more a switch of a task without a limit may cost than under `scx_simple`.
const OVER_SIMPLE_PERCENT: u64 = 15;

/// A load, and the file in which it counts messages.
type Messages = (&'static str, &'static [&'static str]);
const LOADS: [Messages; 2] =
    [("pipe", &["pipe", "/tmp/messages"]), ("hackbench", &["hackbench", "/tmp/messages", "8"])];

/// Names of the measured states, and the limit of each of three nested groups in them.
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

fn cost(load: &[&str], copies: usize, limit: &str) -> Cost {
    let group = Group::new("x/y/z", limit);
    for path in ["x", "x/y"] {
        Group(path.to_owned()).set("cpu.max", limit);
    }
    let loads: Vec<Load> = (0..copies).map(|_| group.load(load)).collect();
    for load in &loads {
        let _ = wait_until(5, || load.stopped());
        load.signal(libc::SIGCONT);
    }
    sleep(Duration::from_millis(500));
    let before = Counters::read();
    sleep(Duration::from_secs(if limit.starts_with("20000 ") { 4 } else { 1 }));
    let after = Counters::read();
    end(loads);
    let instructions = (after.used_ns - before.used_ns) / INSTRUCTION_NS;
    Cost {
        per_switch: instructions / (after.switches - before.switches).max(1),
        per_message: instructions / (after.messages - before.messages).max(1),
    }
}

/// A load is several processes, all of them in one group.
fn end(loads: Vec<Load>) {
    let _ = fs::write(format!("{CGROUPS}/x/y/z/cgroup.kill"), "1");
    drop(loads);
    while !fs::read_to_string(format!("{CGROUPS}/x/y/z/cgroup.procs"))
        .unwrap_or_default()
        .is_empty()
    {
        sleep(Duration::from_millis(10));
    }
}

struct Counters {
    used_ns: u64,
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
        Self {
            used_ns: Group("x".to_owned()).usage_us() * 1000,
            switches: number("ctxt", 1),
            messages: counted("/tmp/messages"),
        }
    }
}

pub fn switch_costs() -> Checked {
    let mut said = String::new();
    let mut measure = |world: &str, states: &[(&str, &str)]| -> Vec<Cost> {
        let mut costs = Vec::new();
        for (name, load) in LOADS {
            for (state, limit) in states {
                let cost = cost(load, 1, limit);
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

/// Ten groups of 20 senders and 20 receivers each, as in `hackbench -g 10`, in a cgroup three
/// levels deep.
pub fn hackbench_of_400() -> Checked {
    let load = ["hackbench", "/tmp/messages", "20"];
    let (fair, ours) = beside_fair(|_| {
        Ok(STATES.map(|(state, limit)| {
            let cost = cost(&load, 10, limit).per_message;
            eprintln!("{state}: {cost} instructions a message");
            cost
        }))
    })?;
    let said = format!(
        "instructions a message, without limits, with limits that are never reached, throttled: \
         {ours:?}, fair class {fair:?}"
    );
    let over = |n: usize| ours[n] * 100 > fair[n] * (100 + OVER_FAIR_PERCENT);
    if (0..2).any(over) { Err(said) } else { Ok(said) }
}

/// How much more a message may cost than under the fair class while no task is throttled.
const OVER_FAIR_PERCENT: u64 = 10;

/// Instructions per released task, with so many hogs in a group and so many other groups with
/// limits.
fn release_cost(parked: usize, groups: usize) -> Result<u64, String> {
    let others: Vec<Group> =
        (1..groups).map(|n| Group::new(&format!("g{n}"), "50000 100000")).collect();
    let group = Group::new("r", "max");
    // All hogs run on one CPU: emulated CPUs take turns, and the work of another would count.
    let load = group.load_on(0, &["hogs", &parked.to_string()]);
    sleep(Duration::from_secs(1));
    group.set("cpu.max", "20000 100000");
    sleep(Duration::from_secs(1));
    wait_until(30, || group.number("parked") + 60 > parked as u64)
        .map_err(|()| format!("they were never parked together: {}", group.stat()))?;
    let read = || (group.number("release_cost_nsec"), group.number("released"));
    let before = read();
    sleep(Duration::from_secs(3));
    let after = read();
    group.set("cgroup.kill", "1");
    drop(load);
    for other in others {
        let _ = fs::remove_dir(other.file(""));
    }
    Ok((after.0 - before.0) / INSTRUCTION_NS / (after.1 - before.1).max(1))
}

/// Checks that a release costs equally much with few and with many other groups.
pub fn release_costs() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let mut said = String::new();
    let mut costs = Vec::new();
    for (parked, groups) in [(10, 10), (100, 10), (1000, 10), (10, 1000), (100, 1000), (1000, 1000)]
    {
        let cost = release_cost(parked, groups)?;
        let _ = write!(said, "{parked} parked, {groups} groups: {cost}; ");
        eprintln!("{parked} parked, {groups} groups: {cost}");
        costs.push(cost);
    }
    scheduler.stop()?;
    // Compares each number of tasks beside few and many groups. Only a rise with the number of
    // groups is an error.
    let same = (0..3).all(|n| costs[n + 3] * 100 <= costs[n] * 115);
    if same && costs.iter().all(|&cost| cost > 0) { Ok(said) } else { Err(said) }
}

/// Half as much again as on one CPU, instructions.
const RELEASE_COST_MAX: u64 = 3000;

/// The cost of a release in a machine of four CPUs.
pub fn release_costs_of_four() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let mut said = String::new();
    let mut costs = Vec::new();
    for parked in [10, 100, 1000] {
        let cost = release_cost(parked, 10)?;
        let _ = write!(said, "{parked} parked: {cost}; ");
        costs.push(cost);
    }
    scheduler.stop()?;
    if costs.iter().all(|cost| (1..=RELEASE_COST_MAX).contains(cost)) {
        Ok(said)
    } else {
        Err(said)
    }
}

/// Time from the refill until the last of so many parked tasks was released, us, and the cost of
/// each release in instructions of all CPUs.
fn release_of(parked: u64) -> Result<(u64, u64), String> {
    let group = Group::new("r", "max");
    let stat = || ask("{\"group\":\"/r\"}")["groups"][0].clone();
    let number = |stat: &serde_json::Value, name: &str| stat[name].as_u64().unwrap_or(u64::MAX);
    let _ = (fs::remove_file(CROWD_GO), fs::remove_file(CROWD_READY));
    let load = group.load(&["crowd", &parked.to_string()]);
    let there = || Path::new(CROWD_READY).exists();
    wait_until(120, there).map_err(|()| "the crowd does not come".to_owned())?;
    // The crowd owes the cost of reaching the boundary. The next limit pays for it.
    group.set("cpu.max", "400000 1000000");
    let _ = fs::write(CROWD_GO, "");
    wait_until(60, || number(&stat(), "parked") + 4 >= parked)
        .map_err(|()| format!("they were never parked together: {}", stat()))?;
    let before = stat();
    group.set("cpu.max", "40000000 1000000");
    wait_until(10, || number(&stat(), "parked") == 0)
        .map_err(|()| format!("they were never released together: {}", stat()))?;
    let after = stat();
    group.set("cgroup.kill", "1");
    drop(load);
    let more = |name: &str| number(&after, name) - number(&before, name);
    let cost = more("release_cost_nsec") / INSTRUCTION_NS / more("released").max(1);
    if more("released") < parked - 4 {
        return Err(format!("not at one edge: {before} / {after}"));
    }
    Ok((number(&after, "release_took_usec"), cost))
}

/// Releases as many tasks as the kernel's own patches were measured with, by one CPU and by all
/// idle CPUs.
pub fn release_of_many() -> Checked {
    let mut said = String::new();
    let mut took = Vec::new();
    for (name, without) in [("by one CPU", 1_u32 << 13), ("by all", 0)] {
        let scheduler = Scheduler::start(&["--without", &without.to_string()])?;
        for parked in [1000, 10_000] {
            let (us, cost) = release_of(parked)?;
            eprintln!("{name}: {parked} in {us} us, {cost} instructions each");
            let _ = write!(said, "{name}: {parked} in {us} us, {cost} instructions each; ");
            took.push(us);
        }
        scheduler.stop()?;
    }
    if took[3] * 2 < took[1] { Ok(said) } else { Err(said) }
}

/// How late an unlimited task that sleeps a millisecond at a time wakes up beside a throttled
/// group: median, 99th percentile and worst, us.
fn lateness() -> [u64; 3] {
    let (limited, free) = (Group::new("busy", "20000 100000"), Group::new("free", "max"));
    let _hogs = limited.hogs(3);
    sleep(Duration::from_secs(1));
    let load = free.load(&["wakes", "1000", "/tmp/late"]);
    sleep(Duration::from_secs(5));
    drop(load);
    let text = fs::read_to_string("/tmp/late").unwrap_or_default();
    let _ = fs::remove_file("/tmp/late");
    let mut late: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    late.sort_unstable();
    let at = |permille: usize| late.get(late.len() * permille / 1000).copied().unwrap_or(u64::MAX);
    [at(500), at(990), late.last().copied().unwrap_or(u64::MAX)]
}

/// Half a turn.
const WAKEUP_WORST_US: u64 = 2500;

pub fn wakeups() -> Checked {
    let (fair, ours) = beside_fair(|_| Ok(lateness()))?;
    let said = format!("median, p99 and worst: {ours:?} us, fair class {fair:?} us");
    // A tenth more, and the slack of a timer; and never a turn of a task of the group.
    if ours[1] > fair[1] * 11 / 10 + 10 || ours[2] > WAKEUP_WORST_US { Err(said) } else { Ok(said) }
}
