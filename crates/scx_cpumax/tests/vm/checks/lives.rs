// SPDX-License-Identifier: GPL-2.0-only
//! Moves parked tasks, forks beside them and ends them, and compares with the fair class.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{COUNT, Checked, Group, Load, beside_fair, counted, hold, wait_until};

/// The period is so long that no operation here takes as long by chance.
const LIMIT: &str = "10000 500000";

/// Waits until a group of busy tasks has used nothing for a while, with most of a period to go.
fn throttled(group: &Group) -> Result<(), String> {
    let mut last = u64::MAX;
    wait_until(10, || {
        let used = group.usage_us();
        let throttled = used == last;
        last = used;
        throttled
    })
    .map_err(|()| format!("{} is never throttled", group.0))
}

/// Moves a process whose three threads are parked. Returns the slowest move, and the slowest start
/// where there is no limit; the time it used in the second after it was moved back, and the time
/// that another throttled group with the process in it used.
fn moved(ours: bool) -> Result<(Duration, Duration, u64, u64), String> {
    let (from, other) = (Group::new("from", LIMIT), Group::new("other", LIMIT));
    let free = Group::new("free", "max");
    let (load, _busy) = (from.load(&["threads", "3"]), other.hogs(1));
    let mut slowest = (Duration::ZERO, Duration::ZERO, 0, 0);
    let mut to = |group: &Group| {
        let start = Instant::now();
        group.set("cgroup.procs", &load.pid().to_string());
        slowest.0 = slowest.0.max(start.elapsed());
    };
    for _ in 0..4 {
        throttled(&from)?;
        if ours {
            wait_until(2, || from.number("parked") == 3)
                .map_err(|()| format!("not all three are parked: {}", from.stat()))?;
        }
        let (start, before) = (Instant::now(), free.usage_us());
        to(&free);
        wait_until(2, || free.usage_us() > before + 1000)
            .map_err(|()| "it did not run where there is no limit".to_owned())?;
        slowest.1 = slowest.1.max(start.elapsed());
        to(&from);
        let before = from.usage_us();
        sleep(Duration::from_secs(1));
        slowest.2 = slowest.2.max(from.usage_us() - before);
        throttled(&from)?;
        throttled(&other)?;
        to(&other);
        let before = other.usage_us();
        sleep(Duration::from_secs(1));
        slowest.3 = slowest.3.max(other.usage_us() - before);
        to(&from);
    }
    drop(load);
    if ours {
        wait_until(3, || from.number("parked") == 0)
            .map_err(|()| format!("counted as parked for ever: {}", from.stat()))?;
    }
    Ok(slowest)
}

/// A process with parked threads is moved at once, to a group where it may run or to one where it
/// waits as well.
pub fn parked_moves() -> Checked {
    let (fair, ours) = beside_fair(moved)?;
    let said = format!(
        "moved within {:.1?}, running within {:.1?}; back it used {} us in a second, in another \
         throttled group {} us; under the fair class {:.1?}, {:.1?}, {} us and {} us",
        ours.0, ours.1, ours.2, ours.3, fair.0, fair.1, fair.2, fair.3
    );
    let slack = Duration::from_millis(50);
    // Two or three refills fall into a second, and ticks are 4 ms.
    let too_much = ours.2.max(ours.3) > fair.2.max(fair.3).max(35_000);
    if ours.0 > fair.0 + slack || ours.1 > fair.1 + slack || too_much {
        Err(said)
    } else {
        Ok(said)
    }
}

/// Forks a child into a group; returns the time until the child was in user mode.
fn born_into(group: &Group) -> Result<Duration, String> {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let directory = File::open(group.file("")).map_err(|error| error.to_string())?;
    // flags, ..., exit_signal, ..., cgroup: `struct clone_args`.
    let mut arguments = [0_u64; 11];
    arguments[0] = CLONE_INTO_CGROUP;
    arguments[4] = libc::SIGCHLD as u64;
    arguments[10] = directory.as_raw_fd() as u64;
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: a fork of a process with one thread; the child only leaves.
    unsafe {
        let child = libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments));
        match child {
            0 => libc::_exit(7),
            1.. => libc::waitpid(child as i32, &raw mut status, 0),
            _ => return Err(format!("clone3: {}", io::Error::last_os_error())),
        };
    }
    if libc::WEXITSTATUS(status) != 7 {
        return Err(format!("the child ended with {status}"));
    }
    Ok(start.elapsed())
}

/// The slowest fork into a throttled group, and the fastest; the number of children that processes
/// of a group made in five seconds beside parked siblings, and the CPUs that the group used.
fn forked(ours: bool) -> Result<(Duration, Duration, u64, f64), String> {
    let group = Group::new("cradle", LIMIT);
    let load = group.load(&["hog"]);
    let (mut slowest, mut fastest) = (Duration::ZERO, Duration::MAX);
    for _ in 0..4 {
        throttled(&group)?;
        let took = born_into(&group)?;
        slowest = slowest.max(took);
        fastest = fastest.min(took);
    }
    drop(load);
    let group = Group::new("forks", "10000 100000");
    let loads: Vec<Load> = (0..3).map(|_| group.load(&["forks", COUNT])).collect();
    sleep(Duration::from_secs(2));
    let before = counted(COUNT);
    let rate = group.rate(Duration::from_secs(5));
    let made = counted(COUNT) - before;
    group.set("cgroup.kill", "1");
    drop(loads);
    let _ = fs::remove_file(COUNT);
    if ours {
        wait_until(3, || group.number("parked") == 0)
            .map_err(|()| format!("counted as parked for ever: {}", group.stat()))?;
    }
    Ok((slowest, fastest, made, rate))
}

/// A child that is forked into a throttled group waits with the others. Forks under the limit go on
/// beside parked siblings.
pub fn parked_forks() -> Checked {
    let (fair, ours) = beside_fair(forked)?;
    let said = format!(
        "born into a throttled group within {:.0?} to {:.0?}, {} forks in 5 s, {:.4} CPUs of 0.1; \
         under the fair class {:.0?} to {:.0?}, {} and {:.4}",
        ours.1, ours.0, ours.2, ours.3, fair.1, fair.0, fair.2, fair.3
    );
    hold(&said, ours.3, 0.1, 3.0)?;
    let early = ours.1 < Duration::from_millis(50);
    if early || ours.0 > fair.0 + Duration::from_millis(500) || ours.2 * 4 < fair.2 * 3 {
        Err(said)
    } else {
        Ok(said)
    }
}

/// Time until all four processes of a group, of eight parked threads, have ended: killed one by
/// one, terminated with SIGTERM, and killed as a group.
fn ended(ours: bool) -> Result<[Duration; 3], String> {
    let mut took = [Duration::ZERO; 3];
    for (way, took) in took.iter_mut().enumerate() {
        let group = Group::new("grave", "max");
        let loads: Vec<Load> = (0..4).map(|_| group.load(&["threads", "8"])).collect();
        sleep(Duration::from_millis(500));
        // Long enough for a few of them to die.
        group.set("cpu.max", "1000 500000");
        // Two and a half periods.
        sleep(Duration::from_millis(1250));
        throttled(&group)?;
        let start = Instant::now();
        match way {
            0 => loads.iter().for_each(|load| load.signal(libc::SIGKILL)),
            1 => loads.iter().for_each(|load| load.signal(libc::SIGTERM)),
            _ => group.set("cgroup.kill", "1"),
        }
        // Dropping the loads would kill them.
        let empty = || fs::read_to_string(group.file("cgroup.procs")).is_ok_and(|s| s.is_empty());
        wait_until(20, empty).map_err(|()| "they do not end".to_owned())?;
        *took = start.elapsed();
        drop(loads);
        wait_until(3, || !ours || group.number("parked") == 0)
            .map_err(|()| format!("counted as parked for ever: {}", group.stat()))?;
        wait_until(3, || fs::remove_dir(group.file("")).is_ok())
            .map_err(|()| "its group cannot be removed".to_owned())?;
    }
    Ok(took)
}

/// Parked processes of several threads end on a signal.
pub fn parked_exits() -> Checked {
    let (fair, ours) = beside_fair(ended)?;
    let said = format!(
        "gone {:.1?} after SIGKILL, {:.1?} after SIGTERM, {:.1?} after cgroup.kill; under the fair \
         class {:.1?}, {:.1?}, {:.1?}",
        ours[0], ours[1], ours[2], fair[0], fair[1], fair[2]
    );
    // They end at the next run of the group's timer, which comes once a period.
    let late = |took: &Duration| *took > Duration::from_millis(550);
    if ours.iter().any(late) { Err(said) } else { Ok(said) }
}
