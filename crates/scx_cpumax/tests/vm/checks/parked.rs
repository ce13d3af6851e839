// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that wait at the boundary to user mode: tasks that must not wait there, operations on
//! those that do, and their release.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{
    Checked, Group, Load, Scheduler, beside_fair, hold, kernel_version, wait_until,
};

/// Values of `enum cure`.
const WITHOUT_SECOND_SLOT: &str = "--without=2";
const WITHOUT_WATCHDOG_PASS: &str = "--without=4";
const WITHOUT_SECOND_HOP: &str = "--without=16";
const WITHOUT_KILLED: &str = "--without=128";
const WITHOUT_RESCUE: &str = "--without=512";
const WITHOUT_READER: &str = "--without=2048";

/// Longest wait of an unlimited writer for a limited one, and the longest time that such a write
/// takes in the kernel: (wait, kernel), us.
fn lock_wait(args: &[&str]) -> Result<(u64, u64), String> {
    let scheduler = Scheduler::start(args)?;
    let (limited, free) = (Group::new("limited", "20000 100000"), Group::new("free", "max"));
    let _loads = (
        limited.load(&["writer", "/tmp/locked", "24"]),
        free.load(&["peer", "/tmp/locked", "1000"]),
    );
    sleep(Duration::from_secs(7));
    scheduler.stop()?;
    let read = |name: &str| {
        fs::read_to_string(name).unwrap_or_default().trim().parse::<u64>().unwrap_or(0)
    };
    let result = (read("/tmp/locked.wait_us"), read("/tmp/locked.kernel_us"));
    for name in ["/tmp/locked.wait_us", "/tmp/locked.kernel_us"] {
        let _ = fs::remove_file(name);
    }
    Ok(result)
}

pub fn lock_holder() -> Checked {
    let (wait, kernel) = lock_wait(&[])?;
    let (wait_parked, kernel_parked) = lock_wait(&["--park-at-enqueue"])?;
    let said = format!(
        "waited {wait} us for a holder that needed {kernel} us; parked at enqueue {wait_parked} us \
         for {kernel_parked} us"
    );
    if kernel == 0 || wait > kernel * 12 / 10 + 20_000 {
        return Err(said);
    }
    // The two runs have different holders, so each wait is compared with its own.
    if wait_parked < kernel_parked * 2 {
        return Err(format!(
            "parking at enqueue makes no difference, so this shows nothing: {said}"
        ));
    }
    Ok(said)
}

/// Each operation on a parked task takes effect at the end of a period at the latest.
pub fn obey() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("p", "10000 200000");
    let limit = Duration::from_millis(1500);
    let in_time = |what: &str, took: Duration| {
        if took > limit { Err(format!("{what} took {took:?}")) } else { Ok(()) }
    };
    for round in 0..4 {
        let load = group.load(&["hog"]);
        wait_until(10, || group.number("parked") > 0)
            .map_err(|()| "nothing was ever parked".to_owned())?;
        match round {
            0 => in_time("affinity", load.set_cpus(&[1]))?,
            1 => {
                // SAFETY: plain numbers.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, load.pid() as u32, 10) };
                load.signal(libc::SIGSTOP);
                let start = Instant::now();
                wait_until(5, || load.stopped())
                    .map_err(|()| "SIGSTOP was never obeyed".to_owned())?;
                in_time("SIGSTOP", start.elapsed())?;
                load.signal(libc::SIGCONT);
            }
            2 => {
                // Moved to a group without a limit, the task runs at once.
                let free = Group::new("free", "max");
                let before = load.cpu_us();
                free.set("cgroup.procs", &load.pid().to_string());
                sleep(Duration::from_millis(600));
                let ran = load.cpu_us() - before;
                if ran < 400_000 {
                    return Err(format!(
                        "moved to a group without a limit it ran {ran} us in 600 ms"
                    ));
                }
                // Moved back, it is stopped again.
                group.set("cgroup.procs", &load.pid().to_string());
                sleep(Duration::from_millis(400));
                let before = load.cpu_us();
                sleep(Duration::from_secs(1));
                let ran = load.cpu_us() - before;
                if ran > 80_000 {
                    return Err(format!("moved back it ran {ran} us in a second"));
                }
            }
            _ => {}
        }
        in_time("SIGKILL", load.kill())?;
    }
    wait_until(3, || group.number("parked") == 0)
        .map_err(|()| format!("counted as parked for ever: {}", group.stat()))?;
    scheduler.stop()?;
    Ok(String::new())
}

/// The task that has waited longest is released first: none has a second turn before all have had
/// one.
pub fn in_turn() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("turns", "10000 100000");
    let loads = group.hogs(25);
    sleep(Duration::from_secs(3));
    let before: Vec<u64> = loads.iter().map(Load::cpu_us).collect();
    sleep(Duration::from_secs(10));
    let used: Vec<u64> = loads.iter().zip(before).map(|(load, us)| load.cpu_us() - us).collect();
    drop(loads);
    scheduler.stop()?;
    let (least, most) = (used.iter().min().unwrap_or(&0), used.iter().max().unwrap_or(&0));
    let said = format!("of 25 in ten seconds each used {least} to {most} us of 40000");
    // Turns differ in length.
    if least * 3 < most * 2 { Err(said) } else { Ok(said) }
}

/// A group of parked tasks is frozen at their release, uses nothing while frozen, and goes on under
/// its limit.
pub fn freezer() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("ice", "10000 200000");
    let _loads = group.hogs(3);
    wait_until(10, || group.number("parked") == 3)
        .map_err(|()| "three were never parked together".to_owned())?;
    let start = Instant::now();
    group.set("cgroup.freeze", "1");
    let frozen =
        || fs::read_to_string(group.file("cgroup.events")).is_ok_and(|s| s.contains("frozen 1"));
    wait_until(5, frozen).map_err(|()| "it was never frozen".to_owned())?;
    let took = start.elapsed();
    let before = group.usage_us();
    sleep(Duration::from_secs(2));
    let used = group.usage_us() - before;
    let parked = group.number("parked");
    group.set("cgroup.freeze", "0");
    sleep(Duration::from_secs(1));
    let rate = group.rate(Duration::from_secs(4));
    scheduler.stop()?;
    let said =
        format!("frozen in {took:.0?}, {used} us used meanwhile, {rate:.4} CPUs of 0.05 after");
    hold(&said, rate, 0.05, 2.0)?;
    if took > Duration::from_millis(1500) || used > 1000 || parked > 0 {
        Err(said)
    } else {
        Ok(said)
    }
}

/// The longest of some changes of affinity of a parked task, and how often it took two hops to
/// park.
fn slowest_affinity(args: &[&str]) -> Result<(Duration, u64), String> {
    let scheduler = Scheduler::start(args)?;
    let group = Group::new("hop", "5000 1000000");
    let load = group.load(&["hog"]);
    let mut slowest = Duration::ZERO;
    for round in 0..4 {
        wait_until(10, || group.number("parked") > 0)
            .map_err(|()| "nothing was ever parked".to_owned())?;
        slowest = slowest.max(load.set_cpus(&[round % 2]));
        sleep(Duration::from_millis(300));
    }
    let hops = group.stat()["tasks"][0]["hops"].as_u64().unwrap_or(0);
    load.kill();
    scheduler.stop()?;
    Ok((slowest, hops))
}

/// A task is parked with migration enabled: its affinity changes at once.
pub fn second_hop() -> Checked {
    let (with, without) = (slowest_affinity(&[])?, slowest_affinity(&[WITHOUT_SECOND_HOP])?);
    let said = format!(
        "affinity of a parked task: {:?} after {} hops; without: {:?}",
        with.0, with.1, without.0
    );
    let slow = Duration::from_millis(300);
    if with.0 > slow || with.1 == 0 || without.0 < slow || without.1 > 0 {
        Err(said)
    } else {
        Ok(said)
    }
}

/// Number of visits to the boundary that the kernel refused, and of parks, in four seconds.
fn refused_visits(args: &[&str]) -> Result<(u64, u64), String> {
    let scheduler = Scheduler::start(args)?;
    let group = Group::new("slot", "2000 10000");
    let _loads = group.hogs(3);
    sleep(Duration::from_secs(4));
    let result = (group.number("refused"), group.number("parks"));
    scheduler.stop()?;
    Ok(result)
}

/// With one slot the kernel refuses a visit while the callback of the last one has not returned.
pub fn second_slot() -> Checked {
    let ((with, parks), (without, _)) =
        (refused_visits(&[])?, refused_visits(&[WITHOUT_SECOND_SLOT])?);
    let said = format!("{with} refused in {parks} parks, with one slot {without}");
    if with > 0 || without == 0 { Err(said) } else { Ok(said) }
}

/// Sixty-four busy tasks share a thousandth of a CPU, while the kernel's watchdog allows a task a
/// wait of thirty seconds.
pub fn watchdog() -> Checked {
    let (said, _) = under_the_dog(&["hogs", "64"], &[], Duration::from_secs(120))?;
    Ok(said)
}

/// Long writes in the kernel under the smallest limit, each with a debt of more than a minute.
const OWES: &[&str] = &["writer", "/tmp/owed", "24"];

/// The limit may cut the first write short, so that its debt is small. After two minutes the kernel
/// reports threads as blocked that wait until tasks have been in user mode.
const LONG: Duration = Duration::from_secs(100);

/// With 1500 tasks turns are minutes apart. The scheduler lets all of them pass now and then, and
/// does not charge the group for the passes.
pub fn crowd() -> Checked {
    let group = Group::new("crowd", "max");
    let mut scheduler = Scheduler::start(&[])?;
    let _load = group.load(&["hogs", "1500"]);
    sleep(Duration::from_secs(3));
    group.set("cpu.max", "1000 1000000");
    wait_until(60, || group.number("parked") > 1450)
        .map_err(|()| format!("they were never parked together: {}", group.stat()))?;
    // Parking so many for the first time costs eighty quotas, which are paid first.
    sleep(Duration::from_secs(90));
    let read = || ["usage_usec", "pass_usec", "watchdog_passes"].map(|name| group.number(name));
    let before = read();
    sleep(Duration::from_secs(60));
    scheduler.still_in_charge()?;
    let (after, debt) = (read(), group.number("debt_usec"));
    // The group is killed before the scheduler ends, because killed tasks would wait for their
    // turns under the fair class: see `killed`.
    let gone = kill_and_wait(&group, 30);
    scheduler.stop()?;
    if gone.1 > 0 {
        return Err(format!("{} of the killed were still there after {:.0?}", gone.1, gone.0));
    }
    let [used, passing, passes] = [0, 1, 2].map(|n| after[n] - before[n]);
    let said = format!(
        "{} us in a minute, and {passing} us on {passes} passes; {debt} us owed",
        used - passing
    );
    // The group is charged its quota. A charge for the passes would exceed that alone.
    let charged = 50_000..=75_000;
    if passes < 1500 || !charged.contains(&(used - passing)) || debt > 5000 {
        Err(said)
    } else {
        Ok(said)
    }
}

/// Kills a group; returns how long that took, at most so many seconds, and how many are left.
fn kill_and_wait(group: &Group, seconds: u64) -> (Duration, usize) {
    let left = || {
        let procs = fs::read_to_string(group.file("cgroup.procs")).unwrap_or_default();
        let alive = |pid: &&str| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        procs.lines().filter(alive).count()
    };
    let start = Instant::now();
    group.set("cgroup.kill", "1");
    let _ = wait_until(seconds, || left() == 0);
    (start.elapsed(), left())
}

/// Kills a hundred tasks whose turns are a second apart; returns the time until they are gone, and
/// how many are left.
fn killed_under_small_limit() -> (Duration, usize) {
    let group = Group::new("killed", "max");
    let load = group.load(&["hogs", "100"]);
    sleep(Duration::from_secs(1));
    group.set("cpu.max", "1000 1000000");
    sleep(Duration::from_secs(5));
    let gone = kill_and_wait(&group, 20);
    group.set("cpu.max", "max");
    drop(load);
    gone
}

/// A task that is killed while parked dies before its turn, unlike under the fair class.
pub fn killed() -> Checked {
    let (fair, ours) = beside_fair(|_| Ok(killed_under_small_limit()))?;
    let scheduler = Scheduler::start(&[WITHOUT_KILLED])?;
    let without = killed_under_small_limit();
    scheduler.stop()?;
    let said = format!(
        "100 killed: {} left after {:.1?}; without: {} after {:.1?}; under the fair class {} after \
         {:.1?}",
        ours.1, ours.0, without.1, without.0, fair.1, fair.0
    );
    if ours.1 > 0 || ours.0 > Duration::from_secs(5) || without.1 == 0 {
        Err(said)
    } else {
        Ok(said)
    }
}

/// A task whose group has so much debt passes now and then.
pub fn watchdog_passes() -> Checked {
    let (said, passes) = under_the_dog(OWES, &[], LONG)?;
    if passes == 0 {
        Err(format!("it ran anyway, so this shows nothing: {said}"))
    } else {
        Ok(said)
    }
}

/// Without the cure the kernel removes the scheduler, as its watchdog runs out.
pub fn watchdog_barks() -> Checked {
    match under_the_dog(OWES, &[WITHOUT_WATCHDOG_PASS], LONG) {
        Ok((said, _)) => Err(format!("it was not thrown out: {said}")),
        Err(said) if said.contains("failed to run for") => Ok(said),
        Err(said) => Err(said),
    }
}

/// Runs a load under the smallest limit; also returns how often a task passed.
fn under_the_dog(load: &[&str], args: &[&str], time: Duration) -> Result<(String, u64), String> {
    let group = Group::new("dog", "max");
    let mut scheduler = Scheduler::start(args)?;
    let _load = group.load(load);
    sleep(Duration::from_secs(3));
    group.set("cpu.max", "1000 1000000");
    sleep(time);
    scheduler.still_in_charge()?;
    let stat = group.stat();
    // The kernel frees the scheduler's objects only when each task that it preempted has been in
    // user mode once.
    let end = Instant::now();
    scheduler.stop()?;
    let end = end.elapsed();
    // Under the fair class too the tasks would die one by one, and the kernel would report a task
    // that waits for the last of them.
    group.set("cpu.max", "max");
    if end > Duration::from_secs(5) {
        return Err(format!("the end took {end:?}"));
    }
    if stat["parks"].as_u64() == Some(0) {
        return Err(format!("nothing was parked for long: {stat}"));
    }
    let said = format!(
        "{} parks, {} passes, {} us used, end in {end:.1?}",
        stat["parks"], stat["watchdog_passes"], stat["usage_usec"]
    );
    Ok((said, stat["watchdog_passes"].as_u64().unwrap_or(0)))
}

/// Slowest change of a CPU to offline and back, while busy tasks, limited and not, may use no other
/// CPU.
fn slowest_leave(rounds: usize, load: &str, args: &[&str]) -> Result<Duration, String> {
    let mut scheduler = Scheduler::start(args)?;
    let (limited, other) = (Group::new("limited", "5000 50000"), Group::new("other", "max"));
    let (mut loads, mut slowest) = (limited.hogs(2), Duration::ZERO);
    loads.extend((0..3).map(|_| other.load(&[load])));
    for round in 0..rounds {
        let cpu = 1 + round % 3;
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        for load in &loads {
            load.set_cpus(&[cpu]);
        }
        sleep(Duration::from_millis(300));
        let start = Instant::now();
        for value in ["0", "1"] {
            fs::write(&file, value).map_err(|error| format!("{file}: {error}"))?;
            slowest = slowest.max(start.elapsed());
        }
        scheduler.still_in_charge()?;
    }
    drop(loads);
    scheduler.stop()?;
    Ok(slowest)
}

/// A CPU that goes offline keeps the tasks that may use no other CPU, so that the core can push
/// them away. Without the cure they wait in the shared queue, and the CPU waits for them, until the
/// kernel removes the scheduler.
pub fn pinned() -> Checked {
    let with = slowest_leave(12, "hog", &[])?;
    let without = slowest_leave(3, "hog", &[WITHOUT_RESCUE]);
    let said = format!("slowest leave {with:.1?}, without the cure {without:.1?}");
    let stood_still = match without {
        // These kernels do it themselves.
        Ok(_) if kernel_version() >= (7, 2) => true,
        Ok(time) => time > Duration::from_secs(10),
        Err(said) => said.contains("failed to run for"),
    };
    if with > Duration::from_secs(3) || !stood_still { Err(said) } else { Ok(said) }
}

/// As `pinned`, for tasks that were preempted as readers of RCU. The CPU waits for them before the
/// scheduler learns that it goes offline.
pub fn pinned_readers() -> Checked {
    let with = slowest_leave(12, "lookups", &[])?;
    let without = slowest_leave(6, "lookups", &[WITHOUT_READER]);
    let said = format!("slowest leave {with:.1?}, without the cure {without:.1?}");
    let stood_still = match &without {
        // These kernels requeue all tasks of the CPU.
        Ok(_) if kernel_version() >= (7, 2) => true,
        Ok(time) => *time > Duration::from_secs(10),
        Err(said) => said.contains("RCU CPU stall") || said.contains("failed to run for"),
    };
    if with > Duration::from_secs(3) || !stood_still { Err(said) } else { Ok(said) }
}

/// CPUs go offline and come back while tasks are parked and all CPUs are busy.
pub fn hotplug() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let (group, other) = (Group::new("plug", "40000 100000"), Group::new("other", "max"));
    let _loads = group.hogs(6);
    let busy = other.hogs(4);
    let mut slowest = Duration::ZERO;
    for round in 0..12 {
        let file = format!("/sys/devices/system/cpu/cpu{}/online", 1 + round % 3);
        for value in ["0", "1"] {
            sleep(Duration::from_millis(150));
            let start = Instant::now();
            fs::write(&file, value).map_err(|error| format!("{file}: {error}"))?;
            slowest = slowest.max(start.elapsed());
        }
    }
    drop(busy);
    let (rate, paid) = group.rate_paid(Duration::from_secs(8))?;
    scheduler.stop()?;
    let said = format!(
        "slowest change {slowest:?}, afterwards {rate:.3} CPUs used of 0.4, {paid:.4} paid"
    );
    hold(&said, paid, 0.4, 1.0)?;
    if slowest > Duration::from_secs(3) { Err(said) } else { Ok(said) }
}
