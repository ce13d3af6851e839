//! Measurements of one group over part of a run.

use crate::choice::{Choice, Question};
use crate::ids::GroupId;
use cpumax_outcome::trace::TraceSink;
use cpumax_workload::GroupIx;

/// Work takes its written CPU time; in millionths.
pub const COST_AS_IT_SAYS: u32 = 1_000_000;

/// Which group to measure, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// The group; its descendants count as well.
    pub group: GroupIx,
    /// Earlier events do not count, ns.
    pub from_ns: u64,
    /// End the run when all tasks of kinds that start in the group have exited.
    pub until_done: bool,
    /// CPU time of its tasks' work, in millionths of what is written.
    pub cost_ppm: u32,
}

/// Measurements of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// When measuring ended, ns since the start of the run.
    pub until_ns: u64,
    /// Whether all of its tasks had exited by then.
    pub done: bool,
    /// CPU time used, ns.
    pub usage_ns: u64,
    /// Periods that passed while its period timer was armed.
    pub nr_periods: u64,
    /// How many of these ended with the group throttled on some CPU.
    pub nr_throttled: u64,
    /// Latencies of its completed requests, ns.
    pub latencies_ns: Vec<u64>,
    /// Ages of its requests under way at the end, ns.
    pub under_way_ns: Vec<u64>,
}

/// All that observes a run and does not change it.
pub(crate) struct Probes<'a> {
    pub trace: Option<&'a mut dyn TraceSink>,
    /// The trace records messages.
    pub tells_messages: bool,
    /// A scheduling decision to explain, and the explanation once it is made.
    pub question: Option<(Question, Option<Choice>)>,
    pub watching: Option<Box<Watching>>,
}

impl<'a> Probes<'a> {
    /// A trace, if any, and nothing else.
    pub fn new(trace: Option<&'a mut dyn TraceSink>) -> Probes<'a> {
        let tells_messages = trace.as_ref().is_some_and(|trace| trace.wants_messages());
        Probes { trace, tells_messages, question: None, watching: None }
    }
}

/// Measuring, under way.
#[derive(Debug)]
pub(crate) struct Watching {
    pub watch: Watch,
    pub seen: Watched,
    /// By kind of task: whether it starts in the group.
    pub inside: Vec<bool>,
    /// Tasks that have not exited yet.
    pub left: u64,
}

impl Watching {
    /// Whether the run may end because all tasks of the watched group have exited.
    pub fn is_over(&self) -> bool {
        self.watch.until_done && self.left == 0
    }
}

/// Requests under way: kind of task, group, start in ns, and number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnderWay {
    pub kind: u32,
    pub group: GroupId,
    pub since_ns: u64,
    pub n: u64,
}
