// SPDX-License-Identifier: GPL-2.0-only
//! Checks what the scheduler leaves in the kernel when it ends, and its report before that.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{Checked, Group, Scheduler, wait_until};

const TRACING: &str = "/sys/kernel/tracing";

/// BPF programs of the scheduler that the kernel still has.
fn programs() -> usize {
    let ours = |name: &str| name.starts_with("cpumax_") || name.starts_with("cbw_");
    libbpf_rs::query::ProgInfoIter::default()
        .filter(|program| program.name.to_str().is_some_and(ours))
        .count()
}

/// With hundreds of parked tasks the end takes seconds. The kernel keeps some objects until each
/// task that was runnable then has run once, under the fair class and its limit. They must be gone
/// as soon as all have run.
pub fn nothing_left() -> Checked {
    let group = Group::new("many", "max");
    let scheduler = Scheduler::start(&[])?;
    let load = group.load(&["hogs", "400"]);
    sleep(Duration::from_secs(2));
    group.set("cpu.max", "1000 1000000");
    wait_until(60, || group.number("parked") > 390)
        .map_err(|()| format!("they were never parked together: {}", group.stat()))?;
    let there = programs();
    let start = Instant::now();
    scheduler.stop()?;
    let (ended, left) = (start.elapsed(), programs());
    group.set("cpu.max", "max");
    let start = Instant::now();
    let gone = wait_until(20, || programs() == 0);
    let said = format!(
        "400 parked: it ended in {ended:.1?}, {left} of {there} programs were left, and gone \
         {:.1?} after the limit was",
        start.elapsed()
    );
    group.set("cgroup.kill", "1");
    drop(load);
    if there == 0 || gone.is_err() || ended > Duration::from_secs(10) {
        Err(said)
    } else {
        Ok(said)
    }
}

/// The kernel's dump of a scheduler, which it writes when it removes the scheduler or on request,
/// shows limits and where each task is parked.
pub fn dumped() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let (group, idle) = (Group::new("shown", "5000 500000"), Group::new("idle", "7000 100000"));
    let _loads = group.hogs(3);
    wait_until(10, || group.number("parked") == 3)
        .map_err(|()| "three were never parked together".to_owned())?;
    let event = format!("{TRACING}/events/sched_ext/sched_ext_dump/enable");
    fs::write(&event, "1").map_err(|error| format!("{event}: {error}"))?;
    fs::write("/proc/sysrq-trigger", "D").map_err(|error| format!("sysrq D: {error}"))?;
    let text = || fs::read_to_string(format!("{TRACING}/trace")).unwrap_or_default();
    let _ = wait_until(5, || text().contains("more with limits"));
    sleep(Duration::from_secs(1));
    let text = text();
    let _ = fs::write(&event, "0");
    scheduler.stop()?;
    let waiting = text.matches("waits for group").count();
    let line = text.lines().find_map(|line| Some(&line[line.find("group=")?..]));
    let said = format!("{line:?} and {waiting} tasks that wait");
    let shown = text.contains("quota=5000000 period=500000000")
        && text.contains(&format!("parked={waiting}\n"))
        && !text.contains("quota=7000000");
    drop(idle);
    // One of the three tasks may be running.
    if shown && waiting >= 2 { Ok(said) } else { Err(format!("{said}: {text}")) }
}
