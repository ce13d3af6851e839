//! Faults to put into the model on purpose, one at a time, to see that something notices: for the
//! rules of the project's own `bandwidth/pull/faults.rs` does that, for those of Linux
//! `make mutants`, which also gives each rule each other value. Elsewhere no machine has a fault,
//! and asking costs nothing.

use crate::machine::Machine;

macro_rules! faults {
    ($($(#[doc = $what:literal])+ $name:ident,)*) => {
        /// A step left out or turned round.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $($(#[doc = $what])+ $name,)*
        }

        #[cfg(any(test, feature = "faults"))]
        impl Fault {
            /// All there are, in the order of the functions that they are in.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];

            /// What it does.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Fault::$name => concat!($($what),+),)*
                }
            }
        }
    };
}

faults! {
    // bandwidth/account.rs
    /// What runs out of runtime is not asked to go (to 7.1).
    ExhaustedRunsOn,
    /// The first entity to come to a silo does not ask for runtime.
    FirstEnqueueUnasked,
    /// A silo that runs empty keeps all of its runtime.
    NothingGivenBack,
    /// What is put back is not asked whether its silo is in debt (to 7.1).
    PutUnasked,
    /// The load of a throttled silo that runs empty goes on to decay (6.18+).
    EmptyNotFrozen,
    /// The load of a throttled silo that somebody comes to does not go on (6.18+).
    FilledStaysFrozen,
    // bandwidth/distribute.rs
    /// A silo is granted what it owed when it was charged last (7.2+).
    GrantUncharged,
    /// The walker's own CPU is released in the instant of the grant (7.2+).
    FlushedAtOnce,
    // bandwidth/limbo.rs
    /// The task parked first comes back first.
    FirstParkedFirst,
    /// Who runs in user mode on another CPU is not made to enter the kernel.
    NotKicked,
    // bandwidth/period.rs
    /// The timer of a group that nobody runs in goes on.
    TimerNeverRests,
    /// A timer that stops does not refill the pool for a burst (5.14+).
    RestsUnfilled,
    /// A timer that is late puts all later periods off.
    PhaseLost,
    /// Periods that a late timer passes count as one.
    LatePeriodsUncounted,
    /// A distribution that leaves something over is not followed by another.
    DistributesOnce,
    // bandwidth/pool.rs
    /// A silo that runs empty gives back the millisecond, too.
    KeepsNothing,
    /// What has expired is given back (to 5.3).
    ExpiredGivenBack,
    /// What is given back is not handed to others before the next period.
    SlackNotArmed,
    /// What is given back is handed out, be it less than a slice.
    LittleHandedOut,
    /// A burst is not bounded (5.14+).
    BurstUnbounded,
    /// A pool that is taken from again does not start its timer.
    TimerNotStarted,
    /// What ran under a limit is charged to the one that is written.
    WriteUncharged,
    /// A limit that is written does not fill the pool.
    WriteFillsNothing,
    /// A limit that is written releases nobody.
    WriteReleasesNobody,
    // bandwidth/slack.rs
    /// What is given back is handed out just before the period ends, too.
    SlackAtTheEnd,
    // bandwidth/stat.rs
    /// Throttled time starts at the level of the task that parks only (6.18+).
    ClockOfLeafOnly,
    // bandwidth/throttle.rs
    /// The load of a silo that is throttled goes on to decay.
    NotFrozen,
    /// The task that runs where a silo is throttled is not told to park (7.2+).
    RunningNotTold,
    // bandwidth/unthrottle.rs
    /// The load of a silo that is released does not go on.
    ReleasedStaysFrozen,
    /// An idle CPU is not told of what is released there.
    IdleNotTold,
    // bandwidth/walk.rs
    /// Walks meet the oldest child first.
    OldestChildFirst,
    // moves.rs
    /// A parked task that becomes real-time stays parked.
    RealTimeStaysParked,
    /// A real-time task that runs and becomes fair is not looked at.
    FairRunsOn,
    /// A parked task that moves to a throttled group runs until it returns to user mode there.
    MovesByTheQueue,
    /// What a task that moves was not charged for counts as use of the group that it leaves.
    LateUseStays,
    // signal.rs
    /// The limits of a CPU that goes off line are not opened.
    OfflineStaysLimited,
    // bandwidth/pull.rs and below it
    /// A refill does not raise the epoch: who was turned down does not ask again.
    RefillUnseen,
    /// What is given back does not raise it.
    GiveBackUnseen,
    /// The task parked last comes back first.
    LastParkedFirst,
    /// What parks joins the end, also if it came back and has not run.
    TurnLost,
    /// A share leaves the pool and is not mailed.
    ShareLost,
    /// Mail is written and no interrupt sent.
    MailNotSent,
    /// The first that are told do not tell others.
    NobodyTellsOn,
    /// A silo that is turned down does not join those that wait.
    WaiterForgotten,
    /// What ran without runtime is nobody's debt.
    DebtForgiven,
    /// What runs out of runtime runs on.
    RunsOn,
    /// Only the level of the task itself is asked.
    AncestorsNotAsked,
    /// Parked tasks that may come back do not make their CPU choose again.
    CpuNotAsked,
    /// What parks is not hung into the tree.
    NotHung,
    /// A group weighs on a CPU what is queued there, not what is parked.
    ParkedWeightless,
}

#[cfg(any(test, feature = "faults"))]
impl Fault {
    /// Whether it is one of the rules of the project's own.
    pub fn is_of_pull(self) -> bool {
        self as usize >= Fault::RefillUnseen as usize
    }
}

impl Machine<'_> {
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    #[cfg(not(any(test, feature = "faults")))]
    #[expect(clippy::unused_self, reason = "tests ask the machine")]
    #[inline]
    pub(crate) fn has(&self, _: Fault) -> bool {
        false
    }
}
