// SPDX-License-Identifier: GPL-2.0-only
//! Errors of earlier schedulers that honor `cpu.max`, one check each.

use std::fmt::Write as _;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{
    COUNT, Checked, Group, Load, Scheduler, beside_fair, counted, hold, wait_until,
};

/// A child without a limit, and one with a wider limit, wait for their parent's runtime. The limit
/// of a grandparent holds, wherever and whenever it is written.
pub fn inherited() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let (top, parent) = (Group::new("g", "max"), Group::new("g/p", "20000 100000"));
    let (free, wide) = (Group::new("g/p/free", "max"), Group::new("g/p/q/wide", "50000 100000"));
    let _loads = (free.hogs(1), wide.hogs(1));
    let mut said = String::new();
    for (limit, nominal) in [("max", 0.2), ("10000 100000", 0.1), ("5000 10000", 0.2), ("max", 0.2)]
    {
        top.set("cpu.max", limit);
        sleep(Duration::from_secs(1));
        let before = (free.usage_us(), wide.usage_us());
        let rate = parent.rate(Duration::from_secs(4));
        hold(&format!("below {limit}"), rate, nominal, 2.0)?;
        let ran = (free.usage_us() - before.0, wide.usage_us() - before.1);
        if ran.0.min(ran.1) * 4 < ran.0.max(ran.1) {
            return Err(format!(
                "below {limit} one child ran {} us, the other {} us",
                ran.0, ran.1
            ));
        }
        let _ = write!(said, "{rate:.4} of {nominal} below {limit}; ");
    }
    scheduler.stop()?;
    Ok(said)
}

/// A task that is moved while it is parked, and moved back before the scheduler looks, is parked
/// once, in the group that it belongs to.
pub fn moves() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let (a, b) = (Group::new("a", "10000 200000"), Group::new("b", "15000 100000"));
    let load = a.load(&["hog"]);
    for round in 0..60 {
        if round % 2 == 0 {
            let _ = wait_until(1, || a.number("parked") == 1);
        }
        for to in [&b, &a] {
            to.set("cgroup.procs", &load.pid().to_string());
            sleep(Duration::from_millis(round % 7));
        }
        let parked = (a.number("parked"), b.number("parked"));
        if parked.0 + parked.1 > 1 {
            return Err(format!("one task, parked {parked:?} times"));
        }
    }
    sleep(Duration::from_secs(1));
    hold("back in the first", a.rate(Duration::from_secs(4)), 0.05, 3.0)?;
    b.set("cgroup.procs", &load.pid().to_string());
    sleep(Duration::from_secs(1));
    hold("in the second", b.rate(Duration::from_secs(4)), 0.15, 3.0)?;
    drop(load);
    wait_until(3, || a.number("parked") + b.number("parked") == 0)
        .map_err(|()| format!("counted as parked for ever: {} {}", a.stat(), b.stat()))?;
    scheduler.stop()?;
    Ok("120 moves".to_owned())
}

/// A group can be removed at once when its parked task has been moved away or has died. That task
/// and the others go on.
pub fn freed_queues() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let home = Group::new("home", "max");
    let load = home.load(&["hog"]);
    let mut slowest = Duration::ZERO;
    for round in 0..40_u64 {
        let group = Group::new(&format!("f{round}"), "1000 100000");
        let child = (round % 4 == 3).then(|| group.load(&["hog"]));
        group.set("cgroup.procs", &load.pid().to_string());
        // The task is on its way to the boundary, has just arrived, or has been parked for long.
        sleep(Duration::from_micros([100, 900, 1100, 30_000][round as usize % 4]));
        drop(child);
        home.set("cgroup.procs", &load.pid().to_string());
        let start = Instant::now();
        wait_until(5, || fs::remove_dir(group.file("")).is_ok())
            .map_err(|()| format!("round {round}: the group cannot be removed"))?;
        slowest = slowest.max(start.elapsed());
        let before = load.cpu_us();
        wait_until(5, || load.cpu_us() > before + 2000)
            .map_err(|()| format!("round {round}: the task never ran again"))?;
    }
    scheduler.stop()?;
    Ok(format!("40 groups, the slowest was gone after {slowest:.1?}"))
}

/// Processes end while their other threads are parked. None is left, and the next process starts.
pub fn exits() -> Checked {
    let (fair, ours) = beside_fair(|ours| {
        let group = Group::new("end", "10000 50000");
        let loads: Vec<Load> = (0..3).map(|_| group.load(&["ends", COUNT])).collect();
        sleep(Duration::from_secs(1));
        let before = counted(COUNT);
        sleep(Duration::from_secs(5));
        let ended = counted(COUNT) - before;
        // Killing a parent does not kill its children.
        group.set("cgroup.kill", "1");
        drop(loads);
        let procs = || fs::read_to_string(group.file("cgroup.procs")).unwrap_or_default();
        let start = Instant::now();
        wait_until(5, || procs().is_empty())
            .map_err(|()| format!("there is still {:?}", procs().trim().replace('\n', " ")))?;
        let took = start.elapsed();
        wait_until(3, || !ours || group.number("parked") == 0)
            .map_err(|()| format!("counted as parked for ever: {}", group.stat()))?;
        Ok((ended, took))
    })?;
    let said = format!(
        "{} processes in 5 s, the killed gone after {:.0?}; under the fair class {} and {:.0?}",
        ours.0, ours.1, fair.0, fair.1
    );
    // The number of processes depends on the order of turns.
    if ours.0 < (fair.0 * 3 / 4).max(20) || ours.1 > fair.1 + Duration::from_millis(500) {
        Err(said)
    } else {
        Ok(said)
    }
}

/// Tasks that wake each other are placed on idle CPUs without passing through a queue. Their limit
/// holds for them too.
pub fn direct_dispatch() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("direct", "10000 100000");
    let load = group.load(&["pipe", COUNT]);
    wait_until(5, || load.stopped()).map_err(|()| "the load did not start".to_owned())?;
    load.signal(libc::SIGCONT);
    sleep(Duration::from_secs(1));
    let rate = group.rate(Duration::from_secs(5));
    group.set("cgroup.kill", "1");
    drop(load);
    scheduler.stop()?;
    hold("woken directly", rate, 0.1, 1.0)?;
    Ok(format!("{rate:.4} CPUs of 0.1"))
}

/// A task that is moved between CPUs all the time is charged exactly its run time. A higher charge
/// would lower its share.
pub fn migrations() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("wander", "30000 100000");
    let load = group.load(&["hog"]);
    sleep(Duration::from_secs(1));
    let (start, before) = (Instant::now(), group.usage_us());
    let mut moves = 0;
    while start.elapsed() < Duration::from_secs(5) {
        load.set_cpus(&[moves % 2]);
        moves += 1;
        sleep(Duration::from_millis(3));
    }
    let rate = (group.usage_us() - before) as f64 / start.elapsed().as_micros() as f64;
    drop(load);
    scheduler.stop()?;
    hold("moved about", rate, 0.3, 1.5)?;
    Ok(format!("{rate:.4} CPUs of 0.3 in {moves} moves"))
}

/// A group that is throttled nearly all the time takes no more than its quota from other groups.
pub fn bystander() -> Checked {
    let (fair, ours) = beside_fair(|_| {
        let (small, free) = (Group::new("small", "1000 100000"), Group::new("by", "max"));
        let (_loads, free_load) = (small.hogs(16), free.hogs(1));
        sleep(Duration::from_secs(3));
        let before = small.usage_us();
        let rate = free.rate(Duration::from_secs(5));
        let used = (small.usage_us() - before) as f64 / 5e6;
        // The busy load is killed first, and the others together: each dies at its own release.
        drop(free_load);
        small.set("cgroup.kill", "1");
        Ok((rate, used))
    })?;
    let said = format!(
        "beside 16 tasks that used {:.4} CPUs of 0.01 an unlimited one used {:.4}; under the fair \
         class {:.4} and {:.4}",
        ours.1, ours.0, fair.1, fair.0
    );
    hold("the small one", ours.1, 0.01, 10.0)?;
    if ours.0 < fair.0.min(0.98) - 0.005 { Err(said) } else { Ok(said) }
}

/// Average debt of a parked group, which is the time its task ran beyond the end of the runtime.
fn debt_us(args: &[&str]) -> Result<u64, String> {
    let scheduler = Scheduler::start(args)?;
    let group = Group::new("owes", "5300 50000");
    let load = group.load(&["hog"]);
    let (mut sum, mut count) = (0, 0);
    for _ in 0..80 {
        sleep(Duration::from_millis(50));
        let stat = group.stat();
        if stat["parked"].as_u64() == Some(1) {
            sum += stat["debt_usec"].as_u64().unwrap_or(0);
            count += 1;
        }
    }
    drop(load);
    scheduler.stop()?;
    if count < 40 { Err(format!("parked at {count} looks of 80")) } else { Ok(sum / count) }
}

/// Checks the timer at the predicted end of the runtime. Without it a task runs until the next
/// tick.
pub fn exhaustion() -> Checked {
    let (with, without) = (debt_us(&[])?, debt_us(&["--without=8"])?);
    let said = format!("{with} us owed on the average, with ticks alone {without} us");
    if with > 300 || without < with * 3 { Err(said) } else { Ok(said) }
}
