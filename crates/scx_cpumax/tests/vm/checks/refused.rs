// SPDX-License-Identifier: GPL-2.0-only
//! Impossible requests are refused with one message, and the machine goes on under the fair class.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::guest::{CGROUPS, Checked, Group, Scheduler, hold, mount, state, wait_until};

/// When the loader is killed the kernel goes back to the fair class, which enforces the limit.
pub fn loader_dies() -> Checked {
    let scheduler = Scheduler::start(&[])?;
    let group = Group::new("orphan", "20000 100000");
    let _loads = group.hogs(2);
    sleep(Duration::from_secs(1));
    scheduler.signal(libc::SIGKILL);
    drop(scheduler.wait());
    wait_until(10, || state().starts_with("disabled"))
        .map_err(|()| format!("sched_ext is {}", state()))?;
    sleep(Duration::from_secs(1));
    let rate = group.rate(Duration::from_secs(3));
    hold("under the fair class", rate, 0.2, 10.0)?;
    Ok(String::new())
}

/// Takes a CPU offline and back.
fn unplug() {
    for value in ["0", "1"] {
        let file = "/sys/devices/system/cpu/cpu1/online";
        fs::write(file, value).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// If a CPU goes offline after the CPUs have been counted and before the scheduler is in charge,
/// the kernel asks for a restart.
pub fn starts_again() -> Checked {
    // A kernel on which no CPU has come or gone has no sequence number to compare.
    unplug();
    let loading = || {
        sleep(Duration::from_millis(500));
        unplug();
    };
    let scheduler = Scheduler::start_beside(&[], loading)?;
    let said = Scheduler::log();
    let group = Group::new("again", "20000 100000");
    let loads = group.hogs(2);
    sleep(Duration::from_secs(1));
    let rate = group.rate(Duration::from_secs(4));
    drop(loads);
    scheduler.stop()?;
    hold(&said, rate, 0.2, 1.0)?;
    let order = ["loading again", "in charge"].map(|words| said.find(words));
    if order[0].is_none() || order[0] > order[1] { Err(said) } else { Ok(said) }
}

/// A kernel that lacks a function is refused with one message, and goes on under the fair class.
pub fn missing_function() -> Checked {
    let said = match Scheduler::start(&[]) {
        Ok(scheduler) => {
            scheduler.stop()?;
            return Ok("none".to_owned());
        }
        Err(said) => said,
    };
    eprintln!("{said}");
    let message = said.split_once("scx_cpumax: ").map_or("", |(_, message)| message);
    let clear = message.starts_with("this kernel (")
        && message.contains("does not offer scx_bpf_")
        && message.contains("type information")
        && !message.contains(" / ");
    if !clear || !state().starts_with("disabled") {
        return Err(format!("not the message that it should be, or {}", state()));
    }
    Ok(message.to_owned())
}

/// Number of instructions that the verifier examines before it accepts the scheduler. That is most
/// of the time of a start.
pub fn load_cost() -> Checked {
    let start = Instant::now();
    let scheduler = Scheduler::start(&["-v"])?;
    let took = start.elapsed();
    let log = fs::read_to_string("/tmp/scx.log").unwrap_or_default();
    scheduler.stop()?;
    let mut programs: Vec<(u64, &str)> = Vec::new();
    let mut name = "";
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("prog '") {
            name = rest.split('\'').next().unwrap_or("");
        }
        if let Some((_, rest)) = line.split_once("processed ") {
            let count = rest.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            programs.push((count, name));
        }
    }
    programs.sort_unstable();
    let sum: u64 = programs.iter().map(|(count, _)| count).sum();
    let most: Vec<_> = programs.iter().rev().take(6).collect();
    let said = format!("{sum} instructions in {took:.1?}; {most:?}");
    if sum == 0 || sum > LOAD_COST_MAX { Err(said) } else { Ok(said) }
}

/// 144 000 on 7.3 and 282 000 on 7.0, whose verifier recognizes fewer states as equal. It gives up
/// at a million.
const LOAD_COST_MAX: u64 = 400_000;

/// Starts without privileges, and on a kernel without a required feature.
pub fn missing() -> Checked {
    let start = |user: u32| -> Result<String, String> {
        let output = Command::new("/scx_cpumax").uid(user).output().map_err(|e| e.to_string())?;
        Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    };
    let hidden = |path: &str| {
        mount("tmpfs", path);
        let said = start(0);
        // SAFETY: a C string that lives through the call.
        unsafe { libc::umount2(std::ffi::CString::new(path).expect("no zero").as_ptr(), 0) };
        said
    };
    for (said, wanted) in [
        (start(65534)?, "loading a scheduler needs root"),
        (hidden("/sys/kernel")?, "has no sched_ext: it needs 6.18 or newer"),
        (hidden("/sys/kernel/btf")?, "has no BTF: it needs CONFIG_DEBUG_INFO_BTF=y"),
    ] {
        if !said.contains(wanted) || said.lines().count() != 1 {
            return Err(format!("not {wanted:?}: {said}"));
        }
    }
    Ok(String::new())
}

/// A locked-down kernel lets no program read its memory, so the verifier refuses. The lockdown
/// lasts until the next boot.
pub fn locked_down() -> Checked {
    mount("securityfs", "/sys/kernel/security");
    let lockdown = "/sys/kernel/security/lockdown";
    if fs::write(lockdown, "confidentiality").is_err() {
        return Ok(format!("skipped: there is no {lockdown}"));
    }
    let said = Scheduler::start_alone(&[]);
    let one = said.matches("scx_cpumax: ").count() == 1;
    if !one || !said.contains("refused the program") || !state().starts_with("disabled") {
        return Err(said);
    }
    Ok(said.lines().next().unwrap_or_default().to_owned())
}

/// Groups that a user makes in a directory of its own.
fn made_by(uid: u32, home: &str, count: u64) -> Result<i32, String> {
    let mut maker = Command::new("/init");
    maker.args(["load", "mkdirs", &format!("{CGROUPS}/{home}"), &count.to_string()]);
    let status = maker.uid(uid).status().map_err(|error| error.to_string())?;
    status.code().ok_or_else(|| status.to_string())
}

/// A directory that is delegated to a user, with the controller.
fn delegated(home: &str, uid: u32) -> Result<(), String> {
    let path = format!("{CGROUPS}/{home}");
    let wrong = |error: std::io::Error| format!("{path}: {error}");
    fs::create_dir(&path).map_err(wrong)?;
    fs::write(format!("{path}/cgroup.subtree_control"), "+cpu").map_err(wrong)?;
    std::os::unix::fs::chown(&path, Some(uid), Some(uid)).map_err(wrong)
}

/// With room for 64 groups, a user has 8 below its own directory, all users have 48, and root has
/// the rest.
pub fn shares() -> Checked {
    let scheduler = Scheduler::start(&["--max-groups", "64"])?;
    let mut made = Vec::new();
    for uid in 1000..1007 {
        let home = format!("u{uid}");
        delegated(&home, uid)?;
        made.push(made_by(uid, &home, 20)?);
    }
    if made != [8, 8, 8, 8, 8, 8, 0] {
        return Err(format!("users made {made:?} groups"));
    }
    let said = Scheduler::log();
    if said.matches("the share of the user").count() != 1 {
        return Err(format!("not told once: {said}"));
    }
    // The room of a removed group is free again, groups further below count as well, and root may
    // make more.
    fs::remove_dir(format!("{CGROUPS}/u1000/made0")).map_err(|error| error.to_string())?;
    fs::remove_dir(format!("{CGROUPS}/u1000/made1")).map_err(|error| error.to_string())?;
    fs::write(format!("{CGROUPS}/u1000/made2/cgroup.subtree_control"), "+cpu")
        .map_err(|error| error.to_string())?;
    let below = format!("{CGROUPS}/u1000/made2");
    std::os::unix::fs::chown(&below, Some(1000), Some(1000)).map_err(|error| error.to_string())?;
    // The kernel reports the end of a group some time after it.
    sleep(Duration::from_secs(1));
    let again = (made_by(1000, "u1000/made2", 1)?, made_by(1000, "u1000", 20)?);
    let by_root = made_by(0, "u1006", 4)?;
    scheduler.stop()?;
    // Groups that exist when the scheduler loads do not stop it.
    let scheduler = Scheduler::start(&["--max-groups", "64"])?;
    let full = made_by(1000, "u1001", 1);
    scheduler.stop()?;
    if again != (1, 1) || by_root != 4 || full != Ok(0) {
        return Err(format!("again {again:?}, root {by_root}, after a start {full:?}"));
    }
    Ok(format!("users made {made:?}, root {by_root} more"))
}

/// A task for whose visit there is no room does not exceed its quota.
pub fn no_room() -> Checked {
    let mut said = String::new();
    for (without, cured) in [(0_u32, true), (1 << 12, false)] {
        let without = without.to_string();
        let scheduler = Scheduler::start(&["--max-tasks", "1", "--without", &without])?;
        let group = Group::new("many", "20000 100000");
        let loads = [group.hogs(3), vec![group.load(&["reads"])]];
        sleep(Duration::from_secs(1));
        let rate = group.rate(Duration::from_secs(5));
        let (parks, queued) = (group.number("parks"), group.number("parks_queued"));
        drop(loads);
        scheduler.stop()?;
        let _ = write!(said, "{rate:.4} CPUs used, {parks} parks, {queued} of them queued; ");
        if cured {
            hold(&said, rate, 0.2, 2.0)?;
        }
        if cured == (rate > 0.5) || cured != (queued > 0) {
            return Err(said);
        }
    }
    Ok(said)
}

pub fn refusals() -> Checked {
    // Another scheduler is in charge; here it is a second instance.
    let first = Scheduler::start(&[])?;
    let second = Scheduler::start_alone(&["--socket", "/run/second.sock"]);
    if !second.contains("is loaded (enabled): stop it first") {
        return Err(format!("a second scheduler: {second}"));
    }
    // No more groups than there is room for can be made while it runs.
    let deep = (1..=33).map(|level| format!("d{level}")).collect::<Vec<_>>();
    let mut path = CGROUPS.to_owned();
    let mut refused_at = 0;
    for (level, name) in deep.iter().enumerate() {
        let _ = fs::write(format!("{path}/cgroup.subtree_control"), "+cpu");
        path = format!("{path}/{name}");
        if fs::create_dir(&path).is_err() {
            refused_at = level + 1;
            break;
        }
    }
    // For groups made without the controller, enabling it is refused.
    let last = format!(
        "{}/cgroup.subtree_control",
        path.rsplit_once('/').map_or("", |(parent, _)| parent)
    );
    if refused_at == 0 && fs::read_to_string(&last).unwrap_or_default().contains("cpu") {
        return Err("a group 33 levels deep was taken".to_owned());
    }
    first.stop()?;
    // If the groups exist already, the scheduler does not load.
    let _ = fs::create_dir(&path);
    let _ = fs::write(&last, "+cpu");
    let late = Scheduler::start_alone(&[]);
    if !late.contains("33 levels below the root") {
        return Err(format!("depth 33: {late}"));
    }
    let few = Scheduler::start_alone(&["--max-groups", "16"]);
    if !few.contains("--max-groups") && !few.contains("levels") {
        return Err(format!("more groups than room: {few}"));
    }
    Ok(String::new())
}
