// SPDX-License-Identifier: GPL-2.0-only
//! Parked tasks that are traced, execute another program, or change their identity or their class,
//! compared with the fair class.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::ptr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{
    COUNT, Checked, Group, Load, Scheduler, beside_fair, counted, hold, wait_until,
};

const LIMIT: &str = "10000 100000";
/// Value of `enum cure`.
const WITHOUT_LATE_CHARGE: &str = "--without=256";
/// Time until the release and some more: under the fair class of 7.3, too, a task is stopped only
/// when it is released.
const STOP_TIME_MAX: Duration = Duration::from_millis(400);

fn ptrace(request: libc::c_uint, load: &Load) -> Result<(), String> {
    // SAFETY: requests without addresses to read or write.
    let done = unsafe {
        libc::ptrace(
            request,
            load.pid(),
            ptr::null_mut::<libc::c_void>(),
            ptr::null_mut::<libc::c_void>(),
        )
    };
    if done < 0 { Err(format!("ptrace {request}: {}", io::Error::last_os_error())) } else { Ok(()) }
}

/// Stops a traced task; returns how long that took.
fn interrupt(load: &Load) -> Result<Duration, String> {
    let start = Instant::now();
    ptrace(libc::PTRACE_INTERRUPT, load)?;
    let mut status = 0;
    // SAFETY: waits for a child to stop.
    let stopped =
        || unsafe { libc::waitpid(load.pid(), &raw mut status, libc::WNOHANG | libc::__WALL) } > 0;
    wait_until(5, stopped).map_err(|()| "a traced task never stopped".to_owned())?;
    Ok(start.elapsed())
}

/// A task that is attached, stopped, continued and detached while parked is then in the right
/// place, and its limit holds.
pub fn ptraced() -> Checked {
    let (fair, ours) = beside_fair(|ours| {
        let group = Group::new("traced", LIMIT);
        let load = group.load(&["hog"]);
        sleep(Duration::from_millis(500));
        let parked = || wait_until(5, || !ours || group.number("parked") > 0);
        let mut slowest = Duration::ZERO;
        for _ in 0..6 {
            parked().map_err(|()| "nothing was ever parked".to_owned())?;
            ptrace(libc::PTRACE_SEIZE, &load)?;
            for _ in 0..2 {
                slowest = slowest.max(interrupt(&load)?);
                if ours {
                    wait_until(1, || group.number("parked") == 0)
                        .map_err(|()| format!("stopped and parked: {}", group.stat()))?;
                }
                let before = load.cpu_us();
                sleep(Duration::from_millis(150));
                if load.cpu_us() != before {
                    return Err("a stopped task ran".to_owned());
                }
                ptrace(libc::PTRACE_CONT, &load)?;
                parked().map_err(|()| "it was not parked after PTRACE_CONT".to_owned())?;
            }
            interrupt(&load)?;
            ptrace(libc::PTRACE_DETACH, &load)?;
        }
        sleep(Duration::from_secs(1));
        Ok((slowest, group.rate(Duration::from_secs(4))))
    })?;
    let said = format!(
        "stopped within {:.0?}, then {:.4} CPUs of 0.1; under the fair class {:.0?} and {:.4}",
        ours.0, ours.1, fair.0, fair.1
    );
    hold(&said, ours.1, 0.1, 2.0)?;
    if ours.0 > STOP_TIME_MAX { Err(said) } else { Ok(said) }
}

/// Results of a load in five seconds.
struct Five {
    /// Its count.
    count: u64,
    /// CPUs that it used.
    rate: f64,
    /// Time in the kernel's account that this scheduler did not charge, us.
    uncharged: i64,
}

fn five(kind: &[&str], ours: bool) -> Five {
    let group = Group::new("exec", LIMIT);
    let load = group.load(kind);
    sleep(Duration::from_secs(2));
    let uncharged = || {
        let stat = if ours { group.stat() } else { return 0 };
        let number = |name: &str| stat[name].as_i64().unwrap_or(i64::MAX);
        number("usage_usec") - number("charged_usec")
    };
    let (before, uncharged_before) = (counted(COUNT), uncharged());
    let rate = group.rate(Duration::from_secs(5));
    let (count, uncharged) = (counted(COUNT) - before, uncharged() - uncharged_before);
    drop(load);
    Five { count, rate, uncharged }
}

/// A program that executes itself again and again, alone and with threads that are parked meanwhile
/// and must die first.
pub fn execs() -> Checked {
    let mut said = String::new();
    for threads in ["0", "3"] {
        let (fair, ours) = beside_fair(|ours| Ok(five(&["execs", COUNT, threads], ours)))?;
        let _ = write!(
            said,
            "beside {threads} threads {} times, {:.4} CPUs of 0.1; under the fair class {} and \
             {:.4}; ",
            ours.count, ours.rate, fair.count, fair.rate
        );
        // Threads that must die first do so at their release. That takes up to a period each time,
        // depending on the order of turns.
        let least = if threads == "0" { fair.count * 9 / 10 } else { 33 };
        hold(&said, ours.rate, 0.1, 3.0)?;
        if ours.count < least {
            return Err(said);
        }
    }
    Ok(said)
}

/// A thread that changes the identity of its process waits until each parked thread has changed it
/// too.
pub fn setxid() -> Checked {
    let run = |ours: bool| {
        let five = five(&["setuids", COUNT], ours);
        let worst = fs::read_to_string(format!("{COUNT}.wait_us")).unwrap_or_default();
        let _ = fs::remove_file(format!("{COUNT}.wait_us"));
        Ok((five, worst.trim().parse::<u64>().unwrap_or(0)))
    };
    let (fair, ours) = beside_fair(run)?;
    let scheduler = Scheduler::start(&[WITHOUT_LATE_CHARGE])?;
    let (without, _) = run(true)?;
    scheduler.stop()?;
    let said = format!(
        "{} changes, the longest took {} us, {:.4} CPUs of 0.1, {} us not charged, without what is \
         counted late {} us; under the fair class {}, {} us and {:.4}",
        ours.0.count,
        ours.1,
        ours.0.rate,
        ours.0.uncharged,
        without.uncharged,
        fair.0.count,
        fair.1,
        fair.0.rate
    );
    // Fifty or fifty-one refills fall into the time, and they pay the debt at its start first.
    hold(&said, ours.0.rate, 0.1, 3.0)?;
    if ours.0.uncharged.abs() > 10 || without.uncharged <= ours.0.uncharged {
        return Err(said);
    }
    // Some twenty, depending on the order of turns. The caller and the two other threads each wait
    // for a period, and for another one if they have had their turn in it. Under the fair class it
    // was two to seventeen.
    let too_few = ours.0.count * 3 < fair.0.count * 2;
    if too_few || ours.1 > (fair.1 + 100_000).max(410_000) { Err(said) } else { Ok(said) }
}

/// A parked task that becomes a real-time one runs at once, without a limit; back in the normal
/// class it is limited again.
pub fn class_change() -> Checked {
    let (fair, ours) = beside_fair(|ours| {
        let group = Group::new("class", "10000 200000");
        let load = group.load(&["hog"]);
        let mut ran = (u64::MAX, 0);
        for _ in 0..4 {
            sleep(Duration::from_millis(500));
            if ours {
                wait_until(5, || group.number("parked") > 0)
                    .map_err(|()| "nothing was ever parked".to_owned())?;
            }
            set_class(&load, libc::SCHED_FIFO, 1)?;
            let before = load.cpu_us();
            sleep(Duration::from_millis(300));
            ran.0 = ran.0.min(load.cpu_us() - before);
            set_class(&load, libc::SCHED_OTHER, 0)?;
            // The rest of the period, and then a second.
            sleep(Duration::from_millis(400));
            let before = load.cpu_us();
            sleep(Duration::from_secs(1));
            ran.1 = ran.1.max(load.cpu_us() - before);
        }
        Ok(ran)
    })?;
    let said = format!(
        "ran {} us of 300 ms as a real-time task, and {} us in a second after it; under the fair \
         class {} and {}",
        ours.0, ours.1, fair.0, fair.1
    );
    // Five or six periods of 10 ms begin within a second.
    if ours.0 < 250_000 || ours.1 > 62_000 { Err(said) } else { Ok(said) }
}

fn set_class(load: &Load, class: libc::c_int, priority: libc::c_int) -> Result<(), String> {
    // SAFETY: the structure is plain numbers, and lives through the call.
    let done = unsafe {
        let mut param: libc::sched_param = std::mem::zeroed();
        param.sched_priority = priority;
        libc::sched_setscheduler(load.pid(), class, &raw const param)
    };
    if done < 0 { Err(format!("class {class}: {}", io::Error::last_os_error())) } else { Ok(()) }
}
