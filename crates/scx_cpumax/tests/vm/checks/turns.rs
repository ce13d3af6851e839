// SPDX-License-Identifier: GPL-2.0-only
//! The order of turns among groups without limits.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{COUNT, Checked, Group, Load, beside_fair, counted, hold};

/// How long the first task has the CPU to itself.
const ALONE: Duration = Duration::from_secs(5);

/// CPUs used by each of two tasks of two groups in the second after the second one resumes.
fn share_of_both() -> [f64; 2] {
    let (first, second) = (Group::new("first", "max"), Group::new("second", "max"));
    let (old, new) = (first.load(&["hog"]), second.load(&["hog"]));
    sleep(Duration::from_millis(500));
    new.signal(libc::SIGSTOP);
    sleep(ALONE);
    let (start, before) = (Instant::now(), cpu_us(&old, &new));
    new.signal(libc::SIGCONT);
    sleep(Duration::from_secs(1));
    let (time, after) = (start.elapsed().as_micros() as f64, cpu_us(&old, &new));
    [0, 1].map(|n| (after[n] - before[n]) as f64 / time)
}

fn cpu_us(old: &Load, new: &Load) -> [u64; 2] {
    [old.cpu_us(), new.cpu_us()]
}

/// A task that ran while no other wanted to run owes nothing for that time.
pub fn newcomer() -> Checked {
    let (fair, ours) = beside_fair(|_| Ok(share_of_both()))?;
    let said = format!(
        "{ours:.3?} CPUs used by one who ran alone before and one who came back; under the fair \
         class {fair:.3?}"
    );
    if ours.iter().all(|share| (0.4..=0.6).contains(share)) { Ok(said) } else { Err(said) }
}

/// CPUs used by each of four tasks that all start on one CPU and may then run on any; and by eight
/// tasks under a limit.
fn spread() -> (Vec<f64>, f64) {
    let free = Group::new("free", "max");
    let loads: Vec<Load> = (0..4).map(|_| free.load_on(0, &["hog"])).collect();
    sleep(Duration::from_secs(1));
    for load in &loads {
        load.set_cpus(&[0, 1, 2, 3]);
    }
    sleep(Duration::from_secs(1));
    let (start, before) = (Instant::now(), loads.iter().map(Load::cpu_us).collect::<Vec<_>>());
    sleep(Duration::from_secs(4));
    let time = start.elapsed().as_micros() as f64;
    let used = loads.iter().zip(before).map(|(load, before)| (load.cpu_us() - before) as f64);
    let shares = used.map(|used| used / time).collect();
    drop(loads);
    let limited = Group::new("limited", "250000 100000");
    let _loads = limited.hogs(8);
    sleep(Duration::from_secs(2));
    (shares, limited.rate(Duration::from_secs(5)))
}

/// Two caches of two CPUs each have their own queues. Tasks that start on one CPU spread over both
/// caches as under the fair class, and a limit holds for all of them together.
pub fn two_caches() -> Checked {
    let cache = |cpu: usize| {
        fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list"))
            .unwrap_or_default()
    };
    if cache(0) == cache(2) {
        return Ok(format!("skipped: the machine has one cache, of {}", cache(0).trim()));
    }
    let (fair, ours) = beside_fair(|_| Ok(spread()))?;
    let said = format!(
        "{:.3?} CPUs used by four, and {:.4} of 2.5 by a limited group; under the fair class \
         {:.3?} and {:.4}",
        ours.0, ours.1, fair.0, fair.1
    );
    hold(&said, ours.1, 2.5, 1.0)?;
    // The CPUs of this machine take turns, so the four tasks use less than four CPUs.
    let least = fair.0.iter().sum::<f64>() / 4.0 * 0.9;
    if ours.0.iter().all(|&share| share > least) { Ok(said) } else { Err(said) }
}

/// Children that two processes of a group fork in five seconds beside a busy sibling.
fn children_beside_busy(limit: &str) -> u64 {
    let group = Group::new("family", limit);
    let _busy = group.load(&["hog"]);
    let _forks: Vec<Load> = (0..2).map(|_| group.load(&["forks", COUNT])).collect();
    sleep(Duration::from_secs(2));
    let before = counted(COUNT);
    sleep(Duration::from_secs(5));
    let made = counted(COUNT) - before;
    group.set("cgroup.kill", "1");
    let _ = fs::remove_file(COUNT);
    made
}

/// Tasks of a group take turns in the order in which they arrive. A busy task's turns delay
/// short-lived siblings by no more than that.
pub fn siblings() -> Checked {
    let measure = |_| Ok(["max", "10000 100000"].map(children_beside_busy));
    let (fair, ours) = beside_fair(measure)?;
    let said = format!(
        "{} children in 5 s, under a limit of 0.1 {}; under the fair class {} and {}",
        ours[0], ours[1], fair[0], fair[1]
    );
    if (0..2).any(|n| ours[n] * 4 < fair[n]) { Err(said) } else { Ok(said) }
}
