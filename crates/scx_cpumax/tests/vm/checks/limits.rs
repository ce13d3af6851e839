// SPDX-License-Identifier: GPL-2.0-only
//! Groups get exactly the CPU time of their limits.

use std::fmt::Write as _;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{Checked, Group, Scheduler, beside_fair, hold, wait_until};

/// A limit, the number of hogs under it, and the CPUs that they should use.
type Row = (&'static str, usize, f64);
const FEW: [Row; 3] = [("20000 100000", 1, 0.2), ("50000 100000", 2, 0.5), ("2000 20000", 1, 0.1)];
const MANY: [Row; 5] = [
    ("100000 100000", 4, 1.0),
    ("250000 100000", 8, 2.5),
    ("20000 20000", 2, 1.0),
    ("1000 100000", 1, 0.01),
    ("1000 100000", 8, 0.01),
];

/// CPUs used by hogs under a limit, over so many seconds.
fn measure((max, hogs, _): Row, seconds: u64, ours: bool) -> f64 {
    let group = Group::new("r", max);
    let loads = group.hogs(hogs);
    sleep(Duration::from_secs(2));
    if ours {
        // Eight programs that start under a millisecond of quota have debt, which is paid first.
        let quota_us = max.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let _ = wait_until(20, || group.number("debt_usec") < 200.max(quota_us / 10));
    }
    let rate = group.rate(Duration::from_secs(seconds));
    drop(loads);
    rate
}

/// A parent of 30/100 has children of 50 and 10. Returns CPUs used by both children together, and
/// by the one of 10.
fn measure_nested(seconds: u64) -> [f64; 2] {
    let parent = Group::new("n", "30000 100000");
    let (wide, narrow) =
        (Group::new("n/wide", "50000 100000"), Group::new("n/narrow", "10000 100000"));
    let _loads = (wide.hogs(1), narrow.hogs(1));
    sleep(Duration::from_secs(2));
    let (start, before) = (Instant::now(), narrow.usage_us());
    let rate = parent.rate(Duration::from_secs(seconds));
    [rate, (narrow.usage_us() - before) as f64 / start.elapsed().as_micros() as f64]
}

/// CPUs used in the second after a pause of 600 ms, on average: ten refills and the saved burst. A
/// refill that the end of the second cuts off counts as a whole.
fn measure_burst(rounds: u64) -> f64 {
    let group = Group::new("b", "20000 100000");
    group.set("cpu.max.burst", "20000");
    let load = group.load(&["hog"]);
    sleep(Duration::from_secs(1));
    let mut used = 0.0;
    for _ in 0..rounds {
        load.signal(libc::SIGSTOP);
        sleep(Duration::from_millis(600));
        let (start, before) = (Instant::now(), group.usage_us());
        load.signal(libc::SIGCONT);
        sleep(Duration::from_secs(1));
        let second_us = start.elapsed().as_micros() as f64;
        let mut at_end = group.usage_us();
        for _ in 0..20 {
            sleep(Duration::from_millis(10));
            let last = std::mem::replace(&mut at_end, group.usage_us());
            if last == at_end {
                break;
            }
        }
        used += (at_end - before) as f64 / second_us;
    }
    used / rounds as f64
}

fn within(
    what: &str,
    rate: f64,
    nominal: f64,
    percent: f64,
    said: &mut String,
) -> Result<(), String> {
    let _ = write!(said, "{what}: {rate:.4} of {nominal}; ");
    hold(what, rate, nominal, percent)
}

/// Measures rates under the fair class, then under the scheduler, in one machine. The rates of the
/// scheduler are compared with the limits.
fn rates_beside_fair(rows: &[Row], nested: bool, seconds: u64) -> Checked {
    let ((fair, fair_nested), (ours, ours_nested)) = beside_fair(|ours| {
        let rates: Vec<f64> = rows.iter().map(|row| measure(*row, seconds, ours)).collect();
        Ok((rates, nested.then(|| (measure_nested(seconds), measure_burst(seconds)))))
    })?;
    let mut said = String::new();
    for (((max, hogs, nominal), ours), fair) in rows.iter().zip(ours).zip(fair) {
        within(&format!("{max} x{hogs}"), ours, *nominal, 1.0, &mut said)?;
        let _ = write!(said, "fair {fair:.4}; ");
    }
    if let (Some(([both, narrow], burst)), Some(([fair_both, fair_narrow], fair_burst))) =
        (ours_nested, fair_nested)
    {
        within("nested", both, 0.3, 1.0, &mut said)?;
        let _ = write!(said, "fair {fair_both:.4}; ");
        // The children draw the parent's runtime in the order in which they ask. The wide child
        // takes some that the narrow one could use, 1.0 % at most so far. That also shifts the
        // narrow child's 10 ms within the period, so that the measured time may have up to one
        // quota more or less.
        within("narrow child", narrow, 0.1, 1.0 + 10.0 / seconds as f64, &mut said)?;
        let _ = write!(said, "fair {fair_narrow:.4}; ");
        within("after pauses, with burst", burst, 0.24, 2.0, &mut said)?;
        let _ = write!(said, "fair {fair_burst:.4}; ");
    }
    Ok(said)
}

pub fn rates() -> Checked {
    rates_beside_fair(&FEW, true, 3)
}

/// The rates over ten seconds, which are the numbers in docs/guide/scx.md.
pub fn rates_of_few() -> Checked {
    rates_beside_fair(&FEW, true, 10)
}

pub fn rates_of_many() -> Checked {
    rates_beside_fair(&MANY, false, 10)
}

/// Throttled periods and time are counted, although the kernel's own counters stay at zero.
pub fn counted() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("c", "30000 100000");
    let _load = group.hogs(1);
    sleep(Duration::from_secs(5));
    let stat = group.stat();
    scheduler.stop()?;
    let number = |name: &str| stat[name].as_u64().unwrap_or(0);
    // Seven tenths of each period but the first.
    if !(45..=51).contains(&number("nr_throttled"))
        || !(3_200_000..=3_600_000).contains(&number("throttled_usec"))
    {
        return Err(format!("throttled without being counted: {stat}"));
    }
    Ok(format!("{} periods, {} us", number("nr_throttled"), number("throttled_usec")))
}

/// A limit written before the scheduler starts holds from the start.
pub fn set_before() -> Checked {
    let group = Group::new("early", "10000 100000");
    let _load = group.hogs(1);
    let scheduler = Scheduler::start(&[])?;
    // Run time during the start of the scheduler is debt, which is paid first.
    sleep(Duration::from_secs(3));
    let rate = group.rate(Duration::from_secs(3));
    scheduler.stop()?;
    let mut said = String::new();
    within("10000 100000", rate, 0.1, 3.0, &mut said)?;
    Ok(said)
}

/// A saved burst is used once beyond the quota, and no more than the burst.
pub fn burst() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("b", "20000 100000");
    group.set("cpu.max.burst", "20000");
    let load = group.load(&["hog"]);
    sleep(Duration::from_secs(1));
    // The loads are stopped for some periods; the timer refills two of them and then stops.
    load.signal(libc::SIGSTOP);
    sleep(Duration::from_millis(600));
    let before = group.usage_us();
    load.signal(libc::SIGCONT);
    sleep(Duration::from_secs(1));
    let used = group.usage_us() - before;
    let stat = group.stat();
    scheduler.stop()?;
    // Ten or eleven refills fall into a second, and 20 ms are saved.
    if !(215_000..=250_000).contains(&used) {
        return Err(format!("{used} us used in the second after the pause: {stat}"));
    }
    if stat["nr_bursts"].as_u64() == Some(0) || stat["burst_usec"].as_u64() > Some(21_000) {
        return Err(format!("bursts are not counted: {stat}"));
    }
    Ok(format!("{used} us in the second after the pause"))
}

/// Limits that are rewritten all the time give neither too much nor too little runtime.
pub fn rewriting() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("w", "20000 100000");
    let _loads = group.hogs(2);
    sleep(Duration::from_secs(1));
    let mut said = String::new();
    for (what, limits, nominal, percent) in [
        ("the same", ["20000 100000", "20000 100000"], 0.2, 25.0),
        // Any value between the two, depending on the limit in force when there is runtime.
        ("more and less", ["30000 100000", "10000 100000"], 0.2, 50.0),
        ("other periods", ["2000 10000", "100000 500000"], 0.2, 25.0),
    ] {
        let (before, start) = (group.usage_us(), Instant::now());
        while start.elapsed() < Duration::from_secs(6) {
            for limit in limits {
                group.set("cpu.max", limit);
                sleep(Duration::from_millis(10));
            }
        }
        let rate = (group.usage_us() - before) as f64 / start.elapsed().as_micros() as f64;
        within(what, rate, nominal, percent, &mut said)?;
    }
    group.set("cpu.max", "max");
    let free = group.rate(Duration::from_secs(2));
    within("no limit", free, 1.0, 5.0, &mut said)?;
    group.set("cpu.max", "20000 100000");
    sleep(Duration::from_secs(1));
    within("again", group.rate(Duration::from_secs(4)), 0.2, 3.0, &mut said)?;
    scheduler.stop()?;
    Ok(said)
}

/// Each of 32 levels is enforced, including the highest and the lowest.
pub fn deepest() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let levels: Vec<Group> =
        (1..=32).map(|level| Group::new(&vec!["deep"; level].join("/"), "50000 100000")).collect();
    let loads = levels[31].hogs(2);
    let mut said = String::new();
    for level in [1, 16, 32] {
        let narrow = &levels[level - 1];
        narrow.set("cpu.max", "20000 100000");
        sleep(Duration::from_secs(2));
        let rate = levels[31].rate(Duration::from_secs(5));
        hold(&format!("narrowed at level {level}"), rate, 0.2, 1.0)?;
        let _ = write!(said, "{rate:.4} of 0.2 narrowed at level {level}; ");
        narrow.set("cpu.max", "50000 100000");
    }
    drop(loads);
    scheduler.stop()?;
    levels.iter().rev().for_each(|group| drop(fs::remove_dir(group.file(""))));
    Ok(said)
}
