// SPDX-License-Identifier: GPL-2.0-only
//! Groups get what their limits say: no more, and no less.

use std::fmt::Write as _;
use std::thread::sleep;
use std::time::Duration;

use crate::guest::{Checked, Group, Scheduler};

/// CPUs used by hogs under a limit, over so many seconds.
fn measure(path: &str, max: &str, hogs: usize, seconds: u64) -> f64 {
    let group = Group::new(path, max);
    let loads = group.hogs(hogs);
    sleep(Duration::from_secs(2));
    let rate = group.rate(Duration::from_secs(seconds));
    drop(loads);
    rate
}

fn within(
    what: &str,
    rate: f64,
    nominal: f64,
    percent: f64,
    said: &mut String,
) -> Result<(), String> {
    let _ = write!(said, "{what}: {rate:.4} of {nominal}; ");
    if (rate / nominal - 1.0).abs() * 100.0 > percent {
        return Err(format!("{what}: used {rate:.4} CPUs, {nominal} is the limit"));
    }
    Ok(())
}

pub fn rates() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let mut said = String::new();
    for (max, hogs, nominal) in
        [("20000 100000", 1, 0.2), ("50000 100000", 2, 0.5), ("2000 20000", 1, 0.1)]
    {
        within(max, measure("r", max, hogs, 3), nominal, 1.5, &mut said)?;
    }
    // Nested: 30 over 50 and 10.
    let parent = Group::new("n", "30000 100000");
    let (wide, narrow) =
        (Group::new("n/wide", "50000 100000"), Group::new("n/narrow", "10000 100000"));
    let _loads = (wide.hogs(1), narrow.hogs(1));
    sleep(Duration::from_secs(2));
    let before = narrow.usage_us();
    let rate = parent.rate(Duration::from_secs(3));
    within("nested", rate, 0.3, 1.5, &mut said)?;
    // Runtime of the parent goes to whoever asks first: the wide child may take some of what the narrow one could use.
    let narrow_rate = (narrow.usage_us() - before) as f64 / 3e6;
    within("narrow child", narrow_rate, 0.1, 15.0, &mut said)?;
    let stat = parent.stat();
    if stat["nr_throttled"].as_u64() < Some(40) || stat["throttled_usec"].as_u64() < Some(1_000_000)
    {
        return Err(format!("throttled without being counted: {stat}"));
    }
    scheduler.stop()?;
    Ok(said)
}

pub fn rates_of_many() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let mut said = String::new();
    for (max, hogs, nominal) in [
        ("100000 100000", 4, 1.0),
        ("250000 100000", 8, 2.5),
        ("20000 20000", 2, 1.0),
        ("1000 100000", 1, 0.01),
        ("1000 100000", 8, 0.01),
    ] {
        within(&format!("{max} x{hogs}"), measure("m", max, hogs, 10), nominal, 1.0, &mut said)?;
    }
    scheduler.stop()?;
    Ok(said)
}

/// A limit written before the scheduler came holds from the start.
pub fn set_before() -> Checked {
    let group = Group::new("early", "10000 100000");
    let _load = group.hogs(1);
    let scheduler = Scheduler::start(&[])?;
    // What ran while the scheduler was being put in charge is owed first.
    sleep(Duration::from_secs(3));
    let rate = group.rate(Duration::from_secs(3));
    scheduler.stop()?;
    let mut said = String::new();
    within("10000 100000", rate, 0.1, 3.0, &mut said)?;
    Ok(said)
}

/// What was saved up is used once, beyond the quota; not more than the burst.
pub fn burst() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("b", "20000 100000");
    group.set("cpu.max.burst", "20000");
    let load = group.load(&["hog"]);
    sleep(Duration::from_secs(1));
    // Stopped for some periods, of which two are refilled before the timer rests.
    load.signal(libc::SIGSTOP);
    sleep(Duration::from_millis(600));
    let before = group.usage_us();
    load.signal(libc::SIGCONT);
    sleep(Duration::from_secs(1));
    let used = group.usage_us() - before;
    let stat = group.stat();
    scheduler.stop()?;
    // Ten or eleven refills fall into a second, and 20 ms were saved.
    if !(215_000..=250_000).contains(&used) {
        return Err(format!("{used} us used in the second after the pause: {stat}"));
    }
    if stat["nr_bursts"].as_u64() == Some(0) || stat["burst_usec"].as_u64() > Some(21_000) {
        return Err(format!("bursts are not counted: {stat}"));
    }
    Ok(format!("{used} us in the second after the pause"))
}

/// Limits rewritten again and again give neither a windfall nor a stall.
pub fn rewriting() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("w", "20000 100000");
    let _loads = group.hogs(2);
    sleep(Duration::from_secs(1));
    let mut said = String::new();
    for (what, limits, nominal) in [
        ("the same", ["20000 100000", "20000 100000"], 0.2),
        ("more and less", ["30000 100000", "10000 100000"], 0.2),
        ("other periods", ["2000 10000", "100000 500000"], 0.2),
    ] {
        let (before, start) = (group.usage_us(), std::time::Instant::now());
        while start.elapsed() < Duration::from_secs(6) {
            for limit in limits {
                group.set("cpu.max", limit);
                sleep(Duration::from_millis(10));
            }
        }
        let rate = (group.usage_us() - before) as f64 / start.elapsed().as_micros() as f64;
        within(what, rate, nominal, 25.0, &mut said)?;
    }
    group.set("cpu.max", "max");
    let free = group.rate(Duration::from_secs(2));
    within("no limit", free, 2.0, 20.0, &mut said)?;
    group.set("cpu.max", "20000 100000");
    sleep(Duration::from_secs(1));
    within("again", group.rate(Duration::from_secs(4)), 0.2, 3.0, &mut said)?;
    scheduler.stop()?;
    Ok(said)
}
