//! Lesser faults of a recording. Each is repaired in a stated way, and counted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How often each kind of fault occurred, and how it was repaired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Defects {
    /// Events that the kernel could not hand over in time, as far as perf noticed: missing.
    pub lost_events: u64,
    /// Events of the beginning that were overwritten by later ones, as far as the file tells.
    pub overwritten_events: u64,
    /// How much was left out at the beginning because not every CPU has events there, ns.
    pub left_out_ns: u64,
    /// Events earlier than the one before them: taken to be at the same time as that.
    pub backwards_events: u64,
    /// The longest such step, ns.
    pub backwards_most_ns: u64,
    /// A CPU went on with another thread than the one that had got on it: the change is taken to be
    /// at its event before.
    pub mismatched_switches: u64,
    /// An idle CPU went on with a thread without a switch to it: the first charge of CPU time tells
    /// when the thread got on. (Some kernels record nothing in the idle task's context.)
    pub missing_idle_switches: u64,
    /// A thread that slept ran again without a wakeup: woken when its CPU ended its idle time, if
    /// that switch was not recorded either, else when it ran.
    pub unseen_wakeups: u64,
    /// A thread about to sleep ran again without a wakeup, though no CPU was idle in between: taken
    /// to have run on, as with a pending signal.
    pub merged_waits: u64,
    /// Two entries into or two exits from a system call in a row: the missing one is put in or the
    /// second left out.
    pub unpaired_syscalls: u64,
    /// Events that were recorded twice: the second is passed over.
    pub doubled_events: u64,
    /// CPU time charged to a thread that was not running: left out.
    pub stray_runtimes: u64,
    /// Events on CPUs with numbers no machine has: left out.
    pub impossible_cpus: u64,
    /// Records whose content does not fit the description of their event: left out.
    pub unreadable_records: u64,
    /// Lines of text that are no event: left out.
    pub unreadable_lines: u64,
    /// The file ends in the middle of a record or line: that one is left out.
    pub cut_at_the_end: u64,
    /// Sums of the two ways to count lost events; the larger one is `lost_events`.
    #[serde(skip)]
    lost: [u64; 2],
}

/// A fault that a reader finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    UnreadableRecord,
    UnreadableLine,
    CutAtTheEnd,
}

impl Defects {
    /// Whether no fault of any kind was counted, nor time left out.
    pub fn is_empty(&self) -> bool {
        *self == Defects::default()
    }

    /// Adds events that were lost. Both counts of them (`by_the_kernel` or in the stream) are
    /// summed apart, and the larger sum is `lost_events`.
    pub(crate) fn add_lost(&mut self, events: u64, by_the_kernel: bool) {
        let sum = &mut self.lost[usize::from(by_the_kernel)];
        *sum = sum.saturating_add(events);
        self.lost_events = self.lost[0].max(self.lost[1]);
    }

    /// Counts one fault that a reader found.
    pub(crate) fn count(&mut self, defect: Defect) {
        match defect {
            Defect::UnreadableRecord => self.unreadable_records += 1,
            Defect::UnreadableLine => self.unreadable_lines += 1,
            Defect::CutAtTheEnd => self.cut_at_the_end += 1,
        }
    }
}

/// One line for each kind of fault that occurred; empty when there was none.
impl fmt::Display for Defects {
    /// Writes number, fault and repair, one line for each kind; time left out has no line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            (self.lost_events, "events lost while recording"),
            (
                self.overwritten_events,
                "events of the beginning overwritten by later ones; the time before every CPU has \
                 events is left out",
            ),
            (
                self.backwards_events,
                "events earlier than the one before; taken as simultaneous with it",
            ),
            (self.mismatched_switches, "thread switches missing; taken to be at the event before"),
            (
                self.missing_idle_switches,
                "switches from idle missing; taken from the CPU time charged next",
            ),
            (
                self.unseen_wakeups,
                "wakeups missing; taken to be at the end of the CPU's idle time, or when the \
                 thread ran again",
            ),
            (
                self.merged_waits,
                "threads about to sleep that ran again without a wakeup; taken to have run on",
            ),
            (
                self.unpaired_syscalls,
                "system calls without an entry or exit; completed or left out",
            ),
            (self.doubled_events, "events recorded twice; passed over"),
            (self.stray_runtimes, "charges of CPU time to a thread that was not running; left out"),
            (self.impossible_cpus, "events on impossible CPUs; left out"),
            (self.unreadable_records, "unreadable records; left out"),
            (self.unreadable_lines, "unreadable lines; left out"),
            (self.cut_at_the_end, "record or line cut at the end of the file; left out"),
        ];
        let mut first = true;
        for (count, what) in lines {
            if count > 0 {
                let newline = if first { "" } else { "\n" };
                first = false;
                write!(f, "{newline}{count} {what}")?;
            }
        }
        Ok(())
    }
}
