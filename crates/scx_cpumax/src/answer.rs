// SPDX-License-Identifier: GPL-2.0-only
//! What is asked of the socket and what it answers, each a line of JSON; and how to ask.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::escape::{one_line, shown};

/// A longer answer is none: some 8000 groups.
pub const ANSWER_BYTES_MAX: usize = 6 << 20;
/// How long a scheduler may say nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take for all of its answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// One group. Times in microseconds unless the name says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStat {
    /// Path below the root of the hierarchy; the root is `/`. `others` is no path: the sum of those
    /// that the asker is not told of one by one.
    pub group: String,
    /// None if the group has no limit of its own.
    pub quota_usec: Option<u64>,
    pub period_usec: u64,
    pub burst_limit_usec: u64,
    /// From the kernel's own `cpu.stat`, which is right about these.
    pub usage_usec: u64,
    pub user_usec: u64,
    pub system_usec: u64,
    pub nr_periods: u64,
    pub nr_throttled: u64,
    /// Summed over CPUs, as the kernel does.
    pub throttled_usec: u64,
    pub nr_bursts: u64,
    pub burst_usec: u64,
    /// Tasks waiting at the boundary for this group's runtime right now.
    pub parked: u64,
    /// Runtime owed: used beyond the quota, mostly in kernel mode.
    pub debt_usec: u64,
    /// Runtime left of this period.
    pub pool_usec: u64,
    /// How often tasks were parked, and for how long, summed over tasks.
    pub parks: u64,
    pub parked_usec: u64,
    /// Run in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Tasks released and what that cost in all, in nanoseconds.
    pub released: u64,
    pub release_cost_nsec: u64,
    /// From when runtime last came until the last task that was released since.
    pub release_took_usec: u64,
    /// Tasks let through so that the kernel's watchdog sees them run.
    pub watchdog_passes: u64,
    /// What they ran then, which is charged to nobody.
    pub pass_usec: u64,
    /// Released tasks that went on to wait for another level's runtime.
    pub moved_on: u64,
    /// Visits to the boundary that could not be arranged at once.
    pub refused: u64,
    /// Of `parks`, those of tasks for which there was no room for a visit (`--max-tasks`, or no
    /// memory): wherever they were queued, in the kernel too.
    pub parks_queued: u64,
    /// Charged to the group while it had a limit.
    pub charged_usec: u64,
    /// What came into the pool or paid debt, less what was charged, is held by CPUs, in the pool,
    /// and plus what is owed: 0 where none of its tasks runs, or the scheduler has lost or made
    /// runtime.
    pub unaccounted_nsec: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStat>,
}

/// One thread. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStat {
    pub tid: u32,
    pub comm: String,
    pub parked: bool,
    /// How often it came by the boundary, how often that took two hops, and how often it stayed.
    pub boundary_visits: u64,
    pub hops: u64,
    pub parks: u64,
    pub parked_usec: u64,
    /// From arriving at the boundary to being parked.
    pub boundary_usec: u64,
    pub kernel_overrun_usec: u64,
}

/// What is asked of the socket: one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Path of one group; none for all that have a limit or ever had.
    #[serde(default)]
    pub group: Option<String>,
    /// With the group's threads.
    #[serde(default)]
    pub tasks: bool,
}

/// What the socket answers: one line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Groups(Vec<GroupStat>),
    Error(String),
}

impl Answer {
    /// It as a line.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Asks a running scheduler.
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

/// Connects, or gives up where too many others wait for that already.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (tell, told) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let _ = tell.send(UnixStream::connect(path));
    });
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A stream that waits for each part so long, and for all of them so long.
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
