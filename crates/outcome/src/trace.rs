//! The stream of events of a run, for those who ask for it.

/// Something that happened on a CPU at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// ns since the start of the run.
    pub time_ns: u64,
    /// CPU on which it happened.
    pub cpu: u16,
    /// What happened.
    pub what: What,
}

/// What happened. Tasks are numbered as created; names come from [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `next` runs from now on; `None`: idle.
    Switch {
        /// The task that now runs.
        next: Option<u32>,
    },
    /// The running task went to sleep: it waits for time, a token or a child, not for a CPU.
    Sleep {
        /// The task.
        task: u32,
    },
    /// A sleeping task became ready on this CPU.
    Wake {
        /// The task.
        task: u32,
    },
    /// A group ran out of runtime on this CPU.
    Throttle {
        /// The group.
        group: u32,
    },
    /// A group was released on this CPU.
    Unthrottle {
        /// The group.
        group: u32,
    },
    /// A task took itself off the queue on its way to user mode.
    Park {
        /// The task.
        task: u32,
    },
    /// A parked task was put back.
    Unpark {
        /// The task.
        task: u32,
    },
    /// A group's period timer fired.
    Period {
        /// The group.
        group: u32,
    },
    /// A task began to wait for a lock.
    LockWait {
        /// The task.
        task: u32,
        /// The lock.
        lock: u32,
    },
    /// A task got a lock.
    LockTaken {
        /// The task.
        task: u32,
        /// The lock.
        lock: u32,
    },
    /// A task exited.
    Exit {
        /// The task.
        task: u32,
    },
}

/// Names of what trace events number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// By task number.
    pub tasks: Vec<String>,
    /// By group number.
    pub groups: Vec<String>,
    /// By lock number.
    pub locks: Vec<String>,
}

/// Whoever wants the events of a run.
pub trait TraceSink {
    /// Called in order of time.
    fn event(&mut self, event: TraceEvent);
    /// Called once, at the end, with the names of everything that was numbered.
    fn names(&mut self, names: Names);
}
