//! What takes some microseconds on a real kernel, and how many: the least and the most of each.
//!
//! The ranges are read from emulated kernels (`bench/microseconds.py`), and none depends on what a
//! workload is. What a run draws from them is told by `noise.rs`.

/// What takes some microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From a tick's time to what it charges.
    Tick,
    /// From the end of a slice, by its timer, to what is charged then.
    Slice,
    /// From a sleep's end until the woken is chosen.
    Wake,
    /// The same of another one that ends in the same interrupt, or in the timer thread's same
    /// visit.
    WakeToo,
    /// The same of a period's end.
    Period,
    /// From when whoever starts tasks and intervenes is to come to when it does; from when it has
    /// told that it is done to its sleep. The same of the timer thread of real-time kernels.
    Come,
    Go,
    /// To a task: from none, from one that goes to sleep, from one that has to go.
    SwitchFromIdle,
    SwitchFromSleeper,
    SwitchFromReady,
    /// In the kernel, where that is preempted only where it says so: to the next such point, if
    /// that is not known.
    Point,
    /// The same in a write under a lock, where there is one after each page.
    WritePoint,
    /// There is one after each page that is read: what a page takes, in a call for one buffer and
    /// for several, and what comes before the first one.
    Page,
    LaterPage,
    Read,
    /// On the way back to user mode, off the queue because the group is throttled (6.18+), beside
    /// what its levels add; and from there to the switch.
    Park,
    Parked,
    /// Back to the queue, in an interrupt.
    Unpark,
    /// The call that goes to sleep.
    Sleep,
    /// A call that sends something, and one that yields the CPU.
    Send,
    Yield,
    /// A call that moves who makes it to another group: up to its lock, to the move, from there
    /// until the CPU is to choose anew beside what its levels add, and to its end.
    MoveEnter,
    Move,
    Moved,
    MoveOver,
    /// A call that changes how important who makes it is, up to the change, and from there until
    /// the CPU is to choose anew.
    Change,
    Changed,
    /// Beyond, or short of, the length that work should have.
    Work,
    /// The end of a task: until it leaves its autogroup, and from there on.
    ExitMove,
    Exit,
    /// From user mode to where a call does what it is for, and asks for its locks. As long as that
    /// it takes to have one and let go of it where work under it is one request of a list.
    Enter,
    /// From the end of a call, where somebody else is to have the CPU, to the switch.
    Return,
    /// From the charge of a tick, or at the end of a slice by its timer, to the switch, where the
    /// task is in no group.
    TickOver,
    SliceOver,
    /// So much more for each level of groups, and so to park.
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
    /// The least and the most that are seen in emulated kernels, ns: in no group they switch 13 to
    /// 15 us after a tick is due.
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

/// The longest that a page takes that is read, and one that is written under a lock, where
/// instructions are counted, ns.
pub(super) const READ_PAGE_NS: u64 = 205_000;
pub(super) const WRITE_PAGE_NS: u64 = 12_000;
/// By how much work is longer or shorter than it should be, ns.
pub(super) const MOST_WRONG_NS: u64 = 5_000;
