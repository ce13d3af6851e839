// SPDX-License-Identifier: GPL-2.0-only
//! Random groups, moves, limits, affinities, kills, stops, forks and hotplug. Afterwards no task is
//! lost and the sums agree.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{COUNT, Checked, Group, Load, Scheduler, argument, wait_until};

/// A small generator with repeatable numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const STORM_S: u64 = 60;
const STEPS: &str = "/tmp/steps";
const LIMITS: &[&str] = &[
    "max",
    "1000 100000",
    "5000 20000",
    "20000 100000",
    "150000 100000",
    "1000 1000",
    "50000 1000000",
];
const KINDS: &[&[&str]] =
    &[&["hog"], &["reads"], &["sleeper", "500"], &["forks"], &["ring", COUNT, "512"], &["polled"]];

/// A minute, or as many seconds as `CPUMAX_SCX_STORM_S` says.
pub fn storm() -> Checked {
    let mut scheduler = Scheduler::start(&[])?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut groups: Vec<Group> = Vec::new();
    let mut loads: Vec<Load> = Vec::new();
    let start = Instant::now();
    let sentinel = Group::new("sentinel", "max");
    let _sentinel = sentinel.load(&["sentinel", STEPS]);
    let (mut steps, mut removed) = (0, 0);
    let length = argument("cpumax.storm_s").and_then(|s| s.parse().ok()).unwrap_or(STORM_S);
    let mut minutes = 0;
    while start.elapsed() < Duration::from_secs(length) {
        if start.elapsed().as_secs() / 60 > minutes {
            minutes += 1;
            eprintln!("storm: {steps} steps, {} groups, {} loads", groups.len(), loads.len());
        }
        steps += 1;
        let _ = fs::write(STEPS, steps.to_string());
        step(&mut random, &mut groups, &mut loads, steps);
        if random.below(20) == 0 && remove_one(&mut random, &mut groups) {
            removed += 1;
        }
        scheduler.still_in_charge()?;
        sleep(Duration::from_millis(random.below(30)));
    }
    for cpu in 1..4 {
        let _ = fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
    }
    // No task is lost: without limits each one makes progress.
    for group in &groups {
        group.set("cpu.max", "max");
    }
    for load in &loads {
        load.signal(libc::SIGCONT);
    }
    for group in &groups {
        wait_until(5, || group.number("parked") == 0)
            .map_err(|()| format!("parked for ever: {}", group.stat()))?;
    }
    let slow = loads.into_iter().map(Load::kill).max().unwrap_or_default();
    if slow > Duration::from_secs(5) {
        return Err(format!("a task took {slow:?} to die"));
    }
    let charged = add_up(&groups)?;
    // A group that is made afterwards gets its quota.
    let rates = (0..3).map(|_| rate_of_new_group()).collect::<Result<Vec<_>, _>>()?;
    scheduler.stop()?;
    let said = format!(
        "{steps} steps in {length} s, {removed} groups removed, the books of {} balance over \
         {charged} us; afterwards {rates:.4?} CPUs of 0.2, used and paid",
        groups.len()
    );
    // The rate is lower where the host kept the only task from running for most of a period:
    // unused runtime is not saved.
    if rates.iter().all(|(_, paid)| (0.18..0.202).contains(paid)) { Ok(said) } else { Err(said) }
}

/// Checks to the nanosecond that refills equal the charges plus the rest in the pools. Returns the
/// charges in us.
fn add_up(groups: &[Group]) -> Result<u64, String> {
    for group in groups {
        // Children of the processes that fork may still exist.
        group.set("cgroup.kill", "1");
    }
    let mut charged = 0;
    for group in groups {
        let empty = || fs::read_to_string(group.file("cgroup.procs")).is_ok_and(|s| s.is_empty());
        wait_until(10, empty).map_err(|()| format!("{} cannot be emptied", group.0))?;
        let balanced = || group.stat()["unaccounted_nsec"].as_i64() == Some(0);
        wait_until(2, balanced).map_err(|()| format!("it does not add up: {}", group.stat()))?;
        charged += group.number("charged_usec");
    }
    Ok(charged)
}

fn rate_of_new_group() -> Result<(f64, f64), String> {
    let group = Group::new("after", "20000 100000");
    let _load = group.hogs(1);
    sleep(Duration::from_secs(1));
    group.rate_paid(Duration::from_secs(5))
}

/// Moves all processes of a group elsewhere and tries to remove it at once; returns whether that
/// succeeded, as it may have child groups.
fn remove_one(random: &mut Random, groups: &mut Vec<Group>) -> bool {
    if groups.len() < 4 {
        return false;
    }
    let at = random.below(groups.len() as u64) as usize;
    let group = groups.swap_remove(at);
    let to = groups[random.below(groups.len() as u64) as usize].file("cgroup.procs");
    let procs = fs::read_to_string(group.file("cgroup.procs")).unwrap_or_default();
    for pid in procs.lines() {
        let _ = fs::write(&to, pid);
    }
    let gone = fs::remove_dir(group.file("")).is_ok();
    if !gone {
        groups.push(group);
    }
    gone
}

fn step(random: &mut Random, groups: &mut Vec<Group>, loads: &mut Vec<Load>, steps: u64) {
    let limit = LIMITS[random.below(LIMITS.len() as u64) as usize];
    let pick = |random: &mut Random, n: usize| random.below(n.max(1) as u64) as usize;
    match random.below(10) {
        0 if groups.len() < 12 => {
            let path = match groups.len() {
                n if n > 2 && random.below(2) == 0 => {
                    let parent = groups[pick(random, n)].0.clone();
                    // A group with processes cannot enable the controller for its children.
                    if parent.contains('/') {
                        format!("s{steps}")
                    } else {
                        format!("p{}/c{steps}", pick(random, 3))
                    }
                }
                _ => format!("s{steps}"),
            };
            groups.push(Group::new(&path, limit));
        }
        1 | 2 if loads.len() < 24 && !groups.is_empty() => {
            let at = pick(random, groups.len());
            loads.push(groups[at].load(KINDS[pick(random, KINDS.len())]));
        }
        3 | 4 if !groups.is_empty() => {
            let at = pick(random, groups.len());
            groups[at].set("cpu.max", limit);
        }
        5 if !loads.is_empty() && !groups.is_empty() => {
            let (from, to) = (pick(random, loads.len()), pick(random, groups.len()));
            let _ = fs::write(groups[to].file("cgroup.procs"), loads[from].pid().to_string());
        }
        6 if !loads.is_empty() => {
            let at = pick(random, loads.len());
            let cpus = match random.below(3) {
                0 => vec![0, 1, 2, 3],
                1 => vec![pick(random, 4), 0],
                // If that CPU is offline, the affinity stays unchanged.
                _ => vec![pick(random, 4)],
            };
            loads[at].try_cpus(&cpus);
        }
        7 if !loads.is_empty() => {
            let at = pick(random, loads.len());
            loads[at].signal(if random.below(2) == 0 { libc::SIGSTOP } else { libc::SIGCONT });
        }
        8 if !loads.is_empty() => {
            let at = pick(random, loads.len());
            let load = loads.swap_remove(at);
            load.signal(libc::SIGCONT);
            load.kill();
        }
        9 if random.below(4) == 0 => {
            let value = if random.below(2) == 0 { "0" } else { "1" };
            let _ = fs::write(
                format!("/sys/devices/system/cpu/cpu{}/online", 1 + pick(random, 3)),
                value,
            );
        }
        _ => {}
    }
}
