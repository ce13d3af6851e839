// SPDX-License-Identifier: GPL-2.0-only
//! Races that the scheduler makes happen each time (`--stretched`). Each check runs with the cure
//! and without it, and fails when that makes no difference.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::guest::{Checked, Group, Scheduler, kernel_version, pin_myself};

/// Values of `enum cure`.
const WITHOUT_REFILL_RACE: &str = "--without=1";
const WITHOUT_UNPARK_FIRST: &str = "--without=32";
const WITHOUT_LEAVING_CPU: &str = "--without=64";
/// Values of `enum race`.
const STRETCHED_PARK_AND_REFILL: &str = "--stretched=1";
const STRETCHED_RELEASE_AND_PARK: &str = "--stretched=2";
const STRETCHED_KICK_AND_LEAVE: &str = "--stretched=4";

/// Average time a task is parked, us, when the refill comes between its last look at the pool and
/// its entry into the queue.
fn parked_after_refill_us(args: &[&str]) -> Result<u64, String> {
    let scheduler = Scheduler::start(args)?;
    let group = Group::new("race", "2000 20000");
    let _load = group.load(&["hog"]);
    sleep(Duration::from_secs(1));
    let read = || (group.number("parked_usec"), group.number("parks"));
    let before = read();
    sleep(Duration::from_secs(3));
    let after = read();
    scheduler.stop()?;
    if after.1 - before.1 < 50 {
        return Err(format!("parked {} times only", after.1 - before.1));
    }
    Ok((after.0 - before.0) / (after.1 - before.1))
}

/// A task that finds the pool empty just before the refill, and enters the queue just after it.
/// Without the cure it waits for the next refill.
pub fn refill_race() -> Checked {
    let with = parked_after_refill_us(&[STRETCHED_PARK_AND_REFILL])?;
    let without = parked_after_refill_us(&[STRETCHED_PARK_AND_REFILL, WITHOUT_REFILL_RACE])?;
    let said = format!("parked for {with} us after a refill, without the cure for {without} us");
    if with > 1000 || without < 15_000 { Err(said) } else { Ok(said) }
}

/// Share of its quota that a task uses which runs and parks again on one CPU before the group's
/// timer on another CPU goes on.
fn used(args: &[&str]) -> Result<f64, String> {
    let scheduler = Scheduler::start(args)?;
    let group = Group::new("race", "2000 100000");
    // The CPU that puts a task into a group starts the group's timer, which stays on that CPU.
    pin_myself(&[1]);
    let _load = group.load_on(0, &["hog"]);
    pin_myself(&[0, 1]);
    sleep(Duration::from_secs(2));
    let rate = group.rate(Duration::from_secs(4));
    scheduler.stop()?;
    Ok(rate / 0.02)
}

/// A released task that runs and parks again before its release is recorded. Without the cure it
/// waits for ever.
pub fn lost_park() -> Checked {
    let with = used(&[STRETCHED_RELEASE_AND_PARK])?;
    let without = used(&[STRETCHED_RELEASE_AND_PARK, WITHOUT_UNPARK_FIRST])?;
    let said = format!(
        "{:.1} % of the quota used, without the cure {:.1} %",
        with * 100.0,
        without * 100.0
    );
    if with < 0.5 || without > 0.1 { Err(said) } else { Ok(said) }
}

/// In about every third round the leaving CPU is the last one to report that it has stopped.
const ROUNDS: u32 = 16;

/// Takes three of four CPUs offline again and again, and ends the scheduler while they are; the
/// error names the round.
fn ends_without_cpus(rounds: u32, args: &[&str]) -> Result<(), String> {
    for round in 1..=rounds {
        let scheduler = Scheduler::start(args)?;
        for value in ["0", "1", "0"] {
            for cpu in 1..4 {
                let online = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                fs::write(&online, value).map_err(|error| format!("{online}: {error}"))?;
            }
        }
        scheduler.stop().map_err(|error| format!("round {round}: {error}"))?;
        for cpu in 1..4 {
            let _ = fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), "1");
        }
    }
    Ok(())
}

/// A CPU that goes offline wakes a task after its interrupts are off. Without the cure it requests
/// a kick that is never carried out, and the end of the scheduler waits for the kick for ever.
pub fn leaving_cpu() -> Checked {
    ends_without_cpus(ROUNDS / 4, &[STRETCHED_KICK_AND_LEAVE])?;
    match ends_without_cpus(ROUNDS, &[STRETCHED_KICK_AND_LEAVE, WITHOUT_LEAVING_CPU]) {
        // The race has been seen on newer kernels only.
        Ok(()) if kernel_version() < (7, 3) => Ok("this kernel does without the cure".to_owned()),
        Ok(()) => Err(format!("the cure makes no difference in {ROUNDS} rounds")),
        Err(said) => Ok(format!("without the cure: {said}")),
    }
}
