//! Steps of a kernel that take microseconds and that no workload describes: the places where the
//! machine asks how long they take, and gives news of tasks. Plain runs ask nothing.

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
    /// Draws the time to the next preemption point of a call at an unknown place, ns; of one that
    /// `writes` under its lock.
    fn point_ns(&mut self, now_ns: u64, writes: bool) -> u64;
    /// Time to the next preemption point of a task's call of which `left_ns` remain, ns; `None`
    /// where that is unknown.
    fn known_point_ns(&self, task: u32, left_ns: u64) -> Option<u64>;
    /// How long a task takes for work of `ns`, ns; of a `call`, if it is in the kernel.
    fn work_ns(&mut self, now_ns: u64, task: u32, ns: u64, call: Option<Call>) -> u64;
    /// Whether a task takes short absences from its current work for work.
    fn counts_by_clock(&self, task: u32) -> bool;
    /// How much less than `left_ns` a task works if it continues after another absence of
    /// `away_ns`, ns.
    fn mistaken_ns(&self, task: u32, in_user: bool, left_ns: u64, away_ns: u64) -> u64;
    /// Takes note of an absence and of progress after it, ns, before which `left_ns` remained;
    /// returns how much of the absence passes for work, ns.
    fn resume(&mut self, task: u32, in_user: bool, left_ns: u64, spent_ns: (u64, u64)) -> u64;
    /// Takes note of news of a task.
    fn tell(&mut self, now_ns: u64, task: u32, told: Told);
}

/// A call in which a task works.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// It takes a lock and writes under it.
    pub writes: bool,
    /// Groups above the task, without the root.
    pub levels: u32,
    /// Time between two ticks, ns.
    pub tick_ns: u64,
}

/// News of a task.
#[derive(Debug, Clone, Copy)]
pub enum Told {
    /// It is new, maybe at the place of one that has exited.
    New,
    /// It begins work of its program.
    Works,
    /// That work is in the kernel, for so long, ns, and has preemption points.
    Pages {
        /// Its length, ns.
        left_ns: u64,
        /// It is one of a list of requests.
        in_syscall: bool,
        /// It writes under a lock.
        writes: bool,
    },
    /// It begins a step of a call that takes so long, ns.
    Step(Step, u64),
    /// It begins work that is not its program's.
    Overhead,
    /// A reschedule that it asked for takes so long, ns.
    Reschedules(u64),
    /// It has spun for so long, ns.
    Spun(u64),
    /// It leaves a call.
    LeavesCall,
    /// It goes to sleep, not for a lock.
    Sleeps,
    /// It is preempted at work that counts by the clock.
    Preempted,
    /// It gets a CPU.
    Resumed,
    /// An interrupt took so long, ns.
    Interrupted(u64),
    /// It has read its CPU time.
    ReadCpuTime {
        /// Its CPU time, ns.
        usage_ns: u64,
        /// It did so before its first instruction.
        begins: bool,
    },
}
