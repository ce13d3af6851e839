//! The least and the most that each step takes on a real kernel. The ranges are read from emulated
//! kernels (`bench/microseconds.py`), and do not depend on the workload.

use crate::clock::MOST_WRONG_NS;
use cpumax_machine::Step;

/// Longest time for a page that is read, and for one that is written under a lock, where
/// instructions are counted, ns.
pub(crate) const READ_PAGE_NS: u64 = 205_000;
pub(crate) const WRITE_PAGE_NS: u64 = 12_000;

/// Least and most length of a step, ns, as seen in emulated kernels. In no group they switch 13 to
/// 15 us after a tick is due.
#[expect(clippy::match_same_arms, reason = "each was measured by itself")]
pub(crate) const fn range_ns(step: Step) -> (u64, u64) {
    match step {
        Step::Tick => (6_000, 11_000),
        Step::Slice => (6_000, 12_000),
        Step::Wake => (1_500, 12_500),
        Step::WakeToo => (4_500, 8_000),
        Step::Period => (1_500, 12_500),
        Step::Come => (8_000, 14_500),
        Step::Go => (6_000, 11_500),
        Step::SwitchFromIdle => (750, 5_750),
        Step::SwitchFromSleeper => (750, 5_750),
        Step::SwitchFromReady => (0, 5_000),
        Step::Point => (0, READ_PAGE_NS),
        Step::WritePoint => (0, WRITE_PAGE_NS),
        Step::Page => (202_300, 203_000),
        Step::LaterPage => (205_500, 206_800),
        Step::Read => (1_500, 14_000),
        Step::Park => (4_500, 7_500),
        Step::Parked => (2_000, 3_200),
        Step::Unpark => (1_500, 3_500),
        Step::Sleep => (2_000, 12_000),
        Step::Send => (1_500, 7_500),
        Step::Yield => (4_000, 7_000),
        Step::MoveEnter => (2_000, 5_000),
        Step::Move => (4_500, 9_000),
        Step::MoveOver => (2_000, 6_000),
        Step::Change => (700, 1_500),
        Step::Changed => (3_000, 8_000),
        Step::Work => (0, 2 * MOST_WRONG_NS),
        Step::ExitMove => (10_000, 16_000),
        Step::Exit => (20_000, 84_000),
        Step::Enter => (4_000, 14_000),
        Step::Moved => (6_000, 11_000),
        Step::Return => (9_500, 15_500),
        Step::TickOver => (2_900, 4_300),
        Step::SliceOver => (2_200, 3_000),
        Step::Level => (950, 1_350),
    }
}
