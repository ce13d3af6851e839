//! Lengths of what takes microseconds on a real kernel: the least and the most of each kind. The
//! ranges are read from emulated kernels (`bench/microseconds.py`), and do not depend on the
//! workload. `noise.rs` draws from them.

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $range:expr,)*) => {
        /// Steps that take microseconds, in the order in which a run draws their typical lengths.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($(#[$doc])* $name,)*
        }

        pub(super) const KINDS: &[Kind] = &[$(Kind::$name),*];

        impl Kind {
            /// Least and most length of this kind, ns, as seen in emulated kernels. In no group
            /// they switch 13 to 15 us after a tick is due.
            pub(crate) const fn range_ns(self) -> (u64, u64) {
                match self {
                    $(Kind::$name => $range,)*
                }
            }
        }
    };
}

kinds! {
    /// From a tick's due time to its charge.
    Tick: (6_000, 11_000),
    /// From the end of a slice, by its timer, to the charge.
    Slice: (6_000, 12_000),
    /// From a sleep's end to the pick of the woken task.
    Wake: (1_500, 12_500),
    /// A further wakeup in the same interrupt, or in the same visit of the timer thread.
    WakeToo: (4_500, 8_000),
    /// From a period's end to the pick.
    Period: (1_500, 12_500),
    /// The outside task: from its due time to its arrival, and from its report to its sleep. Also
    /// the timer thread of real-time kernels.
    Come: (8_000, 14_500),
    Go: (6_000, 11_500),
    /// Switch to a task: from idle, from a task that goes to sleep, from one that is preempted.
    SwitchFromIdle: (750, 5_750),
    SwitchFromSleeper: (750, 5_750),
    SwitchFromReady: (0, 5_000),
    /// From a request to reschedule in a system call to the next preemption point (voluntary
    /// preemption), where that is not known.
    Point: (0, READ_PAGE_NS),
    /// To the next preemption point in a write under a lock, which has one after each page.
    WritePoint: (0, WRITE_PAGE_NS),
    /// Reading a page, after which there is such a point: in a call for one buffer, in one for
    /// several, and the time before the first page.
    Page: (202_300, 203_000),
    LaterPage: (205_500, 206_800),
    Read: (1_500, 14_000),
    /// Parking: from the return to user mode until off the queue (6.18+), without the part of
    /// levels; and from there to the switch.
    Park: (4_500, 7_500),
    Parked: (2_000, 3_200),
    /// Putting a parked task back, in an interrupt.
    Unpark: (1_500, 3_500),
    /// A call that sleeps.
    Sleep: (2_000, 12_000),
    /// A call that sends, and one that yields.
    Send: (1_500, 7_500),
    Yield: (4_000, 7_000),
    /// A task moving itself to another group: up to its lock, up to the move, and from the
    /// reschedule that follows to its end.
    MoveEnter: (2_000, 5_000),
    Move: (4_500, 9_000),
    MoveOver: (2_000, 6_000),
    /// A task changing its own priority: up to the change, and from there to the reschedule.
    Change: (700, 1_500),
    Changed: (3_000, 8_000),
    /// Deviation of work from its length, offset by `MOST_WRONG_NS`.
    Work: (0, 2 * MOST_WRONG_NS),
    /// Exit of a task: until it leaves its autogroup, and from there on.
    ExitMove: (10_000, 16_000),
    Exit: (20_000, 84_000),
    /// From user mode to the point where a call asks for its locks. Also to take and release a
    /// lock for one request of a list.
    Enter: (4_000, 14_000),
    /// From such a move to the reschedule, without the part of levels.
    Moved: (6_000, 11_000),
    /// From the end of a call with a pending reschedule to the switch.
    Return: (9_500, 15_500),
    /// From the charge of a tick, or of a slice timer, to the switch, for a task in no group.
    TickOver: (2_900, 4_300),
    SliceOver: (2_200, 3_000),
    /// Additional part of that per level of groups.
    Level: (950, 1_350),
}

/// Longest time for a page that is read, and for one that is written under a lock, where
/// instructions are counted, ns.
pub(crate) const READ_PAGE_NS: u64 = 205_000;
pub(crate) const WRITE_PAGE_NS: u64 = 12_000;
/// Largest deviation of work from its length, ns.
pub(crate) const MOST_WRONG_NS: u64 = 5_000;
