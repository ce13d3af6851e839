//! A question about a scheduling decision, and its answer.

/// The decision to explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The first switch on CPU 0 from then on, ns.
    pub from_ns: u64,
    /// The other task, as a trace names it.
    pub instead: String,
}

/// The explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The task that was picked.
    pub next: String,
    /// Why the other one was not.
    pub other: Other,
}

/// State of a task that was not picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// No such task exists at that time.
    Absent,
    /// The task sleeps or waits.
    Asleep,
    /// The task or its group is throttled.
    Throttled,
    /// The task runs or waits on another CPU.
    Elsewhere,
    /// The task waits on the CPU. It would have been picked if it had used so much less CPU time,
    /// or the picked task so much more, whichever is less, ns.
    Queued(u64),
}
