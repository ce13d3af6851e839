//! A traced run: states of its threads over two stretches of it, and waits for each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A traced run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunTrace {
    /// The stretch around the slowest request, then the one around a typical request.
    pub stretches: Vec<Stretch>,
    /// Waits of threads for each other over the whole run, longest first; at most 20.
    pub waits: Vec<Wait>,
    /// Number of waits beyond those.
    pub waits_left_out: usize,
}

/// A few periods of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// Why it is shown.
    pub of: Why,
    /// The thread that completed the request for which it is shown.
    pub by: String,
    /// Latency of that request, ns.
    pub took_ns: u64,
    /// When it was completed, ns since the start of the run.
    pub done_ns: u64,
    /// When the stretch begins, ns since the start of the run.
    pub from_ns: u64,
    /// When it ends.
    pub until_ns: u64,
    /// When the group's period timer fired, ns since `from_ns`.
    pub periods_ns: Vec<u64>,
    /// `[when, how much]`: runtime left in the group's pool from then on; ns since `from_ns`, and
    /// us.
    pub runtime: Vec<[u64; 2]>,
    /// Limited threads, the busiest first.
    pub threads: Vec<Thread>,
    /// Number of further threads that did anything.
    pub threads_left_out: usize,
}

/// Why a stretch is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// The slowest request.
    Worst,
    /// The median request.
    Typical,
}

/// The states of a thread over a stretch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// `[when, what]`: its state from then on; ns since the start of the stretch, and 0 asleep, 1
    /// running, 2 ready, 3 stopped by the limit, 4 waiting for a lock.
    pub does: Vec<[u64; 2]>,
}

impl Thread {
    /// Intervals in which the thread does not sleep: from, until (ns since the start of a stretch
    /// of `length_ns`), and the state. They end with the stretch.
    pub fn pieces(&self, length_ns: u64) -> impl Iterator<Item = (u64, u64, Does)> + '_ {
        let ends = self.does.iter().skip(1).map(|[at_ns, _]| *at_ns).chain([length_ns]);
        self.does.iter().zip(ends).filter_map(move |(&[from_ns, does], until_ns)| {
            let does = Does::of(does).filter(|does| *does != Does::Sleeps)?;
            let until_ns = until_ns.min(length_ns);
            (from_ns < until_ns).then_some((from_ns, until_ns, does))
        })
    }
}

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Does {
    /// It sleeps.
    Sleeps = 0,
    /// It runs on a CPU.
    Runs = 1,
    /// It waits for a CPU.
    Ready = 2,
    /// The limit has stopped it: it is parked, or its run queue is throttled.
    Stopped = 3,
    /// It waits for a lock.
    WaitsForLock = 4,
}

impl Does {
    /// All states, by number.
    pub const ALL: [Does; 5] =
        [Does::Sleeps, Does::Runs, Does::Ready, Does::Stopped, Does::WaitsForLock];

    /// The state of this number; `None` above 4.
    pub fn of(number: u64) -> Option<Does> {
        Does::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// Waits of one thread for another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// The waiting thread.
    pub waiter: String,
    /// The lock that it waited for; null: it waited for a wakeup.
    pub lock: Option<String>,
    /// The thread that held the lock, or woke it.
    pub holder: String,
    /// Number of waits.
    pub times: u64,
    /// Their total time, ns.
    pub total_ns: u64,
    /// Part of that in which the limit had stopped the holder, ns.
    pub stopped_ns: u64,
    /// The longest of these waits, ns.
    pub longest_ns: u64,
}
