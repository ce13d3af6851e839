//! Steps of a kernel that take microseconds and that no workload describes: the places where the
//! machine asks how long they take. Plain runs ask nothing.

use cpumax_outcome::Conditions;
use std::fmt;

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A step that takes microseconds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "a comment may hold for several steps")]
        pub enum Step {
            $($(#[$doc])* $name,)*
        }

        impl Step {
            /// All steps.
            pub const ALL: &[Step] = &[$(Step::$name),*];
        }
    };
}

steps! {
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
    /// A task moving itself to another group: up to its lock, up to the move, and from the
    /// reschedule that follows to its end.
    MoveEnter,
    Move,
    MoveOver,
    /// A task changing its own priority: up to the change, and from there to the reschedule.
    Change,
    Changed,
    /// Deviation of work from its length, from 0 to twice the largest.
    Work,
    /// Exit of a task: until it leaves its autogroup, and from there on.
    ExitMove,
    Exit,
    /// From user mode to the point where a call asks for its locks. Also to take and release a
    /// lock for one request of a list.
    Enter,
    /// From such a move to the reschedule, without the part of levels.
    Moved,
    /// From the end of a call with a pending reschedule to the switch.
    Return,
    /// From the charge of a tick, or of a slice timer, to the switch, for a task in no group.
    TickOver,
    SliceOver,
    /// Additional part of that per level of groups.
    Level,
}

/// A recipe for the delays of a run, such as their seed.
pub trait Delaying: fmt::Debug + Sync {
    /// The delays of a run from its start, on the machine that was observed, if one was.
    fn begin(&self, observed: Option<&Conditions>) -> Box<dyn Delays>;
}

/// The delays of one run.
pub trait Delays: fmt::Debug {
    /// Advances to `now_ns`, from where on other lengths may apply.
    fn advance(&mut self, now_ns: u64);
    /// Draws the length of a step, ns.
    fn draw_ns(&mut self, step: Step) -> u64;
    /// The length of a step that is typical of the run, ns.
    fn typical_ns(&self, step: Step) -> u64;
    /// The longest that a step takes, ns.
    fn most_ns(&self, step: Step) -> u64;
    /// A random number below `n`.
    fn below(&mut self, n: u64) -> u64;
    /// Converts a length of work on pages, ns, to that on the observed machine; at least 1 there.
    fn page_ns(&self, step: Step, ns: u64) -> u64;
}
