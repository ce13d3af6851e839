//! Lengths of what takes microseconds on a real kernel: the least and the most of each kind. The
//! ranges are read from emulated kernels (`bench/microseconds.py`), and do not depend on the
//! workload. `noise.rs` draws from them.

/// Steps that take microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From a tick's due time to its charge.
    Tick,
    /// From the end of a slice, by its timer, to the charge.
    Slice,
    /// From a sleep's end to the pick of the woken task.
    Wake,
    /// A further wakeup in the same interrupt, or in the same visit of the timer thread.
    WakeToo,
    /// From a period's end to the pick.
    Period,
    /// The outside task: from its due time to its arrival, and from its report to its sleep. Also
    /// the timer thread of real-time kernels.
    Come,
    Go,
    /// Switch to a task: from idle, from a task that goes to sleep, from one that is preempted.
    SwitchFromIdle,
    SwitchFromSleeper,
    SwitchFromReady,
    /// From a request to reschedule in a system call to the next preemption point (voluntary
    /// preemption), where that is not known.
    Point,
    /// To the next preemption point in a write under a lock, which has one after each page.
    WritePoint,
    /// Reading a page, after which there is such a point: in a call for one buffer, in one for
    /// several, and the time before the first page.
    Page,
    LaterPage,
    Read,
    /// Parking: from the return to user mode until off the queue (6.18+), without the part of
    /// levels; and from there to the switch.
    Park,
    Parked,
    /// Putting a parked task back, in an interrupt.
    Unpark,
    /// A call that sleeps.
    Sleep,
    /// A call that sends, and one that yields.
    Send,
    Yield,
    /// A task moving itself to another group: up to its lock, up to the move, from there to the
    /// reschedule (without the part of levels), and up to its end.
    MoveEnter,
    Move,
    Moved,
    MoveOver,
    /// A task changing its own priority: up to the change, and from there to the reschedule.
    Change,
    Changed,
    /// Deviation of work from its length, offset by `MOST_WRONG_NS`.
    Work,
    /// Exit of a task: until it leaves its autogroup, and from there on.
    ExitMove,
    Exit,
    /// From user mode to the point where a call asks for its locks. Also to take and release a
    /// lock for one request of a list.
    Enter,
    /// From the end of a call with a pending reschedule to the switch.
    Return,
    /// From the charge of a tick, or of a slice timer, to the switch, for a task in no group.
    TickOver,
    SliceOver,
    /// Additional part of that per level of groups.
    Level,
}

pub(super) const KINDS: [Kind; 35] = [
    Kind::Tick,
    Kind::Slice,
    Kind::Wake,
    Kind::WakeToo,
    Kind::Period,
    Kind::Come,
    Kind::Go,
    Kind::SwitchFromIdle,
    Kind::SwitchFromSleeper,
    Kind::SwitchFromReady,
    Kind::Point,
    Kind::WritePoint,
    Kind::Page,
    Kind::LaterPage,
    Kind::Read,
    Kind::Park,
    Kind::Parked,
    Kind::Unpark,
    Kind::Sleep,
    Kind::Send,
    Kind::Yield,
    Kind::MoveEnter,
    Kind::Move,
    Kind::MoveOver,
    Kind::Change,
    Kind::Changed,
    Kind::Work,
    Kind::ExitMove,
    Kind::Exit,
    Kind::Enter,
    Kind::Moved,
    Kind::Return,
    Kind::TickOver,
    Kind::SliceOver,
    Kind::Level,
];

impl Kind {
    /// Least and most length of this kind, ns, as seen in emulated kernels. In no group they switch
    /// 13 to 15 us after a tick is due.
    pub(crate) const fn range_ns(self) -> (u64, u64) {
        match self {
            Kind::Tick | Kind::Moved => (6_000, 11_000),
            Kind::TickOver => (2_900, 4_300),
            Kind::SliceOver => (2_200, 3_000),
            Kind::Level => (950, 1_350),
            Kind::WakeToo => (4_500, 8_000),
            Kind::Wake | Kind::Period => (1_500, 12_500),
            Kind::Come => (8_000, 14_500),
            Kind::Go => (6_000, 11_500),
            Kind::Slice => (6_000, 12_000),
            Kind::SwitchFromIdle | Kind::SwitchFromSleeper => (750, 5_750),
            Kind::SwitchFromReady => (0, 5_000),
            Kind::Point => (0, READ_PAGE_NS),
            Kind::WritePoint => (0, WRITE_PAGE_NS),
            Kind::Page => (202_300, 203_000),
            Kind::LaterPage => (205_500, 206_800),
            Kind::Read => (1_500, 14_000),
            Kind::Park => (4_500, 7_500),
            Kind::Parked => (2_000, 3_200),
            Kind::Unpark => (1_500, 3_500),
            Kind::Sleep => (2_000, 12_000),
            Kind::Send => (1_500, 7_500),
            Kind::Yield => (4_000, 7_000),
            Kind::MoveEnter => (2_000, 5_000),
            Kind::Move => (4_500, 9_000),
            Kind::MoveOver => (2_000, 6_000),
            Kind::Change => (700, 1_500),
            Kind::Changed => (3_000, 8_000),
            Kind::Work => (0, 2 * MOST_WRONG_NS),
            Kind::ExitMove => (10_000, 16_000),
            Kind::Exit => (20_000, 84_000),
            Kind::Enter => (4_000, 14_000),
            Kind::Return => (9_500, 15_500),
        }
    }
}

/// Longest time for a page that is read, and for one that is written under a lock, where
/// instructions are counted, ns.
pub(crate) const READ_PAGE_NS: u64 = 205_000;
pub(crate) const WRITE_PAGE_NS: u64 = 12_000;
/// Largest deviation of work from its length, ns.
pub(crate) const MOST_WRONG_NS: u64 = 5_000;
