// SPDX-License-Identifier: GPL-2.0-only
//! Requests to the socket and its answers, each a line of JSON; and a client.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::escape::{one_line, shown};

/// Longest answer, bytes: some 8000 groups.
pub const ANSWER_BYTES_MAX: usize = 6 << 20;
/// Longest time without a byte from the scheduler.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time until a whole answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Statistics of one group. Times are in microseconds unless the name says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStat {
    /// Path below the root of the hierarchy, `/` for the root. `others` is the sum of all groups
    /// that the user may not see.
    pub group: String,
    /// `None`: the group has no limit of its own.
    pub quota_usec: Option<u64>,
    pub period_usec: u64,
    pub burst_limit_usec: u64,
    /// From the kernel's `cpu.stat`, which counts these correctly.
    pub usage_usec: u64,
    pub user_usec: u64,
    pub system_usec: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    /// Summed over CPUs, as in the kernel.
    pub throttled_usec: u64,
    pub nr_bursts: u64,
    pub burst_usec: u64,
    /// Tasks that wait at the boundary to user mode for this group's runtime now.
    pub parked: u64,
    /// Debt: runtime used beyond the quota, mostly in kernel mode.
    pub debt_usec: u64,
    /// Runtime left in the pool.
    pub pool_usec: u64,
    /// Number of parks, and the time parked, summed over tasks.
    pub parks: u64,
    pub parked_usec: u64,
    /// Time run in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Released tasks, and the whole cost of releases, ns.
    pub released: u64,
    pub release_cost_nsec: u64,
    /// Time from the last refill until the last release after it.
    pub release_took_usec: u64,
    /// Tasks let through for the kernel's watchdog.
    pub watchdog_passes: u64,
    /// Time that these ran, which is charged to no group.
    pub pass_usec: u64,
    /// Released tasks that went on to wait at another level.
    pub moved_on: u64,
    /// Visits to the boundary that could not be scheduled at once.
    pub refused: u64,
    /// Parks of tasks without room for a visit (`--max-tasks`, or memory): parked wherever they
    /// were queued, in the kernel too. Part of `parks`.
    pub parks_queued: u64,
    /// Time charged to the group while it had a limit.
    pub charged_usec: u64,
    /// Runtime refilled or paid for debt, minus charged, minus held by CPUs and in the pool, plus
    /// debt. 0 while no task of the group runs, unless the scheduler has lost or invented runtime.
    pub unaccounted_nsec: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStat>,
}

/// Statistics of one thread. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStat {
    pub tid: u32,
    pub comm: String,
    pub parked: bool,
    /// Visits to the boundary, those that took two hops, and those that ended in a park.
    pub boundary_visits: u64,
    pub hops: u64,
    pub parks: u64,
    pub parked_usec: u64,
    /// Time from the visit to the park.
    pub boundary_usec: u64,
    pub kernel_overrun_usec: u64,
}

/// A request to the socket: one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Path of one group; `None`: all that have or had a limit.
    #[serde(default)]
    pub group: Option<String>,
    /// Include the group's threads.
    #[serde(default)]
    pub tasks: bool,
}

/// An answer of the socket: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Groups(Vec<GroupStat>),
    Error(String),
}

impl Answer {
    /// The answer as a line of JSON.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Sends a request to a running scheduler and returns the answer.
pub fn ask(path: &Path, request: &Request) -> Result<Vec<GroupStat>> {
    let at = shown(path);
    let mut stream =
        connect(path).with_context(|| format!("{at}: no scx_cpumax answers; is it running?"))?;
    let silent = || format!("{at}: no answer for {} s", PATIENCE.as_secs());
    stream.set_write_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", serde_json::to_string(request)?).with_context(silent)?;
    let mut line = Vec::new();
    let patient = Patient { stream, until: Instant::now() + ANSWER_TIME };
    let limited = patient.take(2 * ANSWER_BYTES_MAX as u64);
    BufReader::new(limited).read_until(b'\n', &mut line).with_context(silent)?;
    match serde_json::from_slice(&line).with_context(|| format!("{at}: not an answer"))? {
        Answer::Groups(groups) => Ok(groups),
        Answer::Error(error) => bail!("{}", one_line(&error)),
    }
}

/// Connects, or gives up after [`PATIENCE`] if too many others wait for the same.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let _ = tell.send(UnixStream::connect(path));
    });
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A stream with a time limit for each read and one for all of them.
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now()).min(PATIENCE);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_lines_of_json() {
        let request: Request = serde_json::from_str(r#"{"group":"/a"}"#).unwrap();
        assert_eq!(request, Request { group: Some("/a".to_owned()), tasks: false });
        assert!(serde_json::from_str::<Request>(r#"{"grop":"/a"}"#).is_err());
    }
}
