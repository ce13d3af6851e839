// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's lock around forks and moves, `cgroup_threadgroup_rwsem`. A fork holds it for
//! reading, a write to `cgroup.procs` for writing. If a task were stopped while it forks, every
//! move and fork on the machine would wait.

use std::fmt::Write as _;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::guest::{Checked, Group, Scheduler, counted};

/// Files in which the mover and the bystander count, and keep their longest times.
const MOVES: &str = "/tmp/moves";
const BIRTHS: &str = "/tmp/births";
const FORKERS: usize = 12;

/// Results of the mover and the bystander: how often each succeeded, and the longest time, us.
struct Seen {
    moves: (u64, u64),
    births: (u64, u64),
}

/// Twelve processes fork and wait beside a busy one in a group of 5/100. Outside the group one
/// process moves another back and forth, and a third forks.
fn beside_forkers() -> Seen {
    for path in [MOVES, BIRTHS] {
        let _ = (fs::remove_file(path), fs::remove_file(format!("{path}.wait_us")));
    }
    let (tight, one, two) =
        (Group::new("tight", "5000 100000"), Group::new("one", "max"), Group::new("two", "max"));
    let moved = one.load(&["sleeper", "1000000"]);
    let mut loads = tight.hogs(1);
    loads.extend((0..FORKERS).map(|_| tight.load(&["forks"])));
    let free = Group::new("free", "max");
    loads.push(free.load(&["births", BIRTHS]));
    let (pid, files) = (moved.pid().to_string(), [&one, &two].map(|g| g.file("cgroup.procs")));
    let files = files.map(|file| file.display().to_string());
    loads.push(free.load(&["moves", MOVES, &pid, &files[0], &files[1]]));
    sleep(Duration::from_secs(6));
    let of = |path: &str| {
        let worst = fs::read_to_string(format!("{path}.wait_us")).unwrap_or_default();
        (counted(path), worst.parse().unwrap_or(u64::MAX))
    };
    let seen = Seen { moves: of(MOVES), births: of(BIRTHS) };
    tight.set("cgroup.kill", "1");
    seen
}

/// Longest time allowed, us; met as long as no task is stopped with the lock.
const WAIT_MAX_US: u64 = 20_000;

pub fn forkers() -> Checked {
    let mut said = String::new();
    let mut told = |name: &str, seen: Seen| {
        let ((moves, move_us), (births, birth_us)) = (seen.moves, seen.births);
        let _ = write!(
            said,
            "{name}: {moves} moves, the longest {move_us} us, {births} births, the longest \
             {birth_us} us; "
        );
        (moves.min(births), move_us.max(birth_us))
    };
    told("fair class", beside_forkers());
    let scheduler = Scheduler::start(&[])?;
    let (least, worst) = told("scx_cpumax", beside_forkers());
    scheduler.stop()?;
    let scheduler = Scheduler::start(&["--park-at-enqueue"])?;
    told("parked at enqueue", beside_forkers());
    scheduler.stop()?;
    if worst > WAIT_MAX_US || least < 100 { Err(said) } else { Ok(said) }
}
