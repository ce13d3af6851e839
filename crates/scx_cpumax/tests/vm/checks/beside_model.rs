// SPDX-License-Identifier: GPL-2.0-only
//! Runs scenarios of the model on a real kernel, under the fair class and under this scheduler, and
//! holds them against the model. Results stand in docs/guide/scx.md.
//!
//! The lab's guest runs them as a subprocess in the machine of this check.

use std::fmt::Write as _;
use std::fs;

use cpumax_lab::{Host, Job, Mode, Quiet};

use crate::guest::{Checked, beside_fair};

/// Path of the guest in the machine; `make guest` builds it.
pub const GUEST: &str = "/cpumax-guest";

/// A scenario and the model's results for `pull`: the most the group used in a period, and the
/// longest wait of one of its tasks, in us.
struct Row {
    name: &'static str,
    text: &'static str,
    seconds: u64,
    task: &'static str,
    period_us: u64,
    stall_us: u64,
}

macro_rules! row {
    ($name:literal, $seconds:literal, $task:literal, $period_us:literal, $stall_us:literal) => {
        Row {
            name: $name,
            text: include_str!(concat!("../../../../../scenarios/", $name, ".toml")),
            seconds: $seconds,
            task: $task,
            period_us: $period_us,
            stall_us: $stall_us,
        }
    };
}

const ROWS: [Row; 5] = [
    row!("small-quota", 8, "hog", 1_000, 99_000),
    row!("park-64", 5, "hog", 20_000, 376_200),
    row!("starved-siblings", 10, "hog", 10_000, 198_000),
    row!("long-syscalls", 5, "caller", 50_000, 450_000),
    row!("partial-throttle", 10, "hog", 73_350, 390_900),
];

/// Total and largest use of a group in a period, and the longest wait of its tasks, in us.
struct Found {
    used: u64,
    period: u64,
    stall: u64,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} us used, {} in a period, {} waited", self.used, self.period, self.stall)
    }
}

fn run(row: &Row) -> Result<Found, String> {
    set_preemption(row.text);
    let host = Host::open().map_err(|error| error.to_string())?;
    let mut job =
        Job::new("host", Mode::Exact, row.text.to_owned(), 1, row.seconds * 1_000_000_000);
    job.sample_periods = true;
    let outcome =
        host.run(&job, 0, &Quiet).map_err(|error| format!("{}: {error}", row.name))?.outcome;
    // Instances of a kind of task may have their own names.
    let tasks = outcome.tasks.iter().filter(|(name, _)| name.starts_with(row.task));
    let group = outcome.groups.get("/limited").ok_or("it has no such group")?;
    Ok(Found {
        used: group.usage_usec,
        period: group.max_period_usage_usec,
        stall: tasks.map(|(_, task)| task.longest_stall_ns / 1000).max().unwrap_or(0),
    })
}

/// Sets the preemption model that the scenario asks for. The guest sets it only where it is the
/// machine's first process.
fn set_preemption(text: &str) {
    let wanted = if text.contains("preempt = \"full\"") { "full" } else { "lazy" };
    let _ = fs::write("/sys/kernel/debug/sched/preempt", wanted);
}

/// Longest wait allowed for one of the tasks. Sixty-four tasks that start together each run once
/// before they park, and the competitor may have a turn of two ticks in between. That wait is added
/// to the model's longest wait.
fn stall_us_max(row: &Row) -> u64 {
    if row.name == "park-64" {
        row.stall_us + 64 * 8_000 + 5_000
    } else {
        row.stall_us * 7 / 4 + 5_000
    }
}

pub fn beside_model() -> Checked {
    if fs::metadata(GUEST).is_err() {
        return Ok("skipped: there is no guest, see `make guest`".to_owned());
    }
    let (fair, ours) = beside_fair(|_| ROWS.iter().map(run).collect::<Result<Vec<_>, _>>())?;
    let (mut said, mut wrong) = (String::new(), false);
    for ((row, fair), ours) in ROWS.iter().zip(fair).zip(ours) {
        let _ = write!(said, "{}: {ours}; under the fair class {fair}; ", row.name);
        // The guest's windows are not aligned with the group's periods, so two periods can fall
        // into one window. The processes of the guest cost some time as well.
        wrong |= ours.period > row.period_us * 2 + 2_000;
        wrong |= ours.stall > stall_us_max(row);
    }
    if wrong { Err(said) } else { Ok(said) }
}
