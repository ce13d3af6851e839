//! Faults injected into the model on purpose, one at a time, to see that tests notice them:
//! `bandwidth/pull/tests.rs` does that for the pull rules, `make mutants` for those of Linux (it
//! also gives each rule each other value). Otherwise no machine has a fault, and asking costs
//! nothing.

macro_rules! faults {
    ($($(#[$doc:meta])+ $name:ident,)*) => {
        /// A step that is left out or reversed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])+ $name,)*
        }

        #[cfg(any(test, feature = "faults"))]
        impl Fault {
            /// All faults, in the order of the functions that they change.
            pub const ALL: &[Fault] = &[$(Fault::$name),*];
        }
    };
}

faults! {
    // bandwidth/account.rs
    /// A task without runtime is not asked to reschedule (to 7.1).
    ExhaustedRunsOn,
    /// The first enqueue on a run queue takes no runtime.
    FirstEnqueueUnasked,
    /// A run queue that runs empty keeps all of its runtime.
    NothingGivenBack,
    /// Putting a task back does not throttle its queue (to 7.1).
    PutUnasked,
    /// The load of a throttled run queue that runs empty keeps decaying (6.18+).
    EmptyNotFrozen,
    /// The load of a throttled run queue stays frozen at its first enqueue (6.18+).
    FilledStaysFrozen,
    // bandwidth/distribute.rs
    /// A grant covers the debt as of the last charge (7.2+).
    GrantUncharged,
    /// The distributing CPU is unthrottled at the time of the grant (7.2+).
    FlushedAtOnce,
    /// A distribution that leaves something over is not followed by another.
    DistributesOnce,
    // bandwidth/limbo.rs
    /// The task parked first comes back first.
    FirstParkedFirst,
    /// A task in user mode on another CPU is not made to enter the kernel.
    NotKicked,
    // bandwidth/period.rs
    /// The timer of an idle group keeps running.
    TimerNeverRests,
    /// A timer that stops does not refill the pool for a burst (5.14+).
    RestsUnfilled,
    /// A timer that is late puts all later periods off.
    PhaseLost,
    /// Periods that a late timer passes count as one.
    LatePeriodsUncounted,
    // bandwidth/pool.rs
    /// A run queue that runs empty gives back the last millisecond, too.
    KeepsNothing,
    /// Expired runtime is given back (to 5.3).
    ExpiredGivenBack,
    /// Returned runtime is not distributed before the next period.
    SlackNotArmed,
    /// Returned runtime is distributed even if it is less than a slice.
    LittleHandedOut,
    /// A burst is not bounded (5.14+).
    BurstUnbounded,
    /// Taking runtime from an idle pool does not start its timer.
    TimerNotStarted,
    /// Time run before a limit write is charged under the new limit.
    WriteUncharged,
    /// A limit write does not refill the pool.
    WriteFillsNothing,
    /// A limit write unthrottles nothing.
    WriteReleasesNobody,
    // bandwidth/slack.rs
    /// Returned runtime is distributed also just before the period ends.
    SlackAtTheEnd,
    // bandwidth/stat.rs
    /// Throttled time starts only at the level of the task that parks (6.18+).
    ClockOfLeafOnly,
    // bandwidth/throttle.rs
    /// The load of a throttled run queue keeps decaying.
    NotFrozen,
    /// The running task of a throttled run queue is not told to park (7.2+).
    RunningNotTold,
    // bandwidth/unthrottle.rs
    /// The load of an unthrottled run queue stays frozen.
    ReleasedStaysFrozen,
    /// An idle CPU is not told of unthrottled tasks.
    IdleNotTold,
    // bandwidth/walk.rs
    /// Walks visit the oldest child first.
    OldestChildFirst,
    // moves.rs
    /// A parked task that becomes real-time stays parked.
    RealTimeStaysParked,
    /// A running real-time task that becomes fair does not reschedule.
    FairRunsOn,
    /// A parked task that moves to a throttled group runs until it returns to user mode there.
    MovesByTheQueue,
    /// Uncharged time of a task that moves counts as usage of the group that it leaves.
    LateUseStays,
    // signal.rs
    /// The limits of a CPU that goes offline are not opened.
    OfflineStaysLimited,
    // bandwidth/pull.rs and below it
    /// A refill does not raise the epoch: denied run queues do not ask again.
    RefillUnseen,
    /// Returned runtime does not raise the epoch.
    GiveBackUnseen,
    /// The task parked last comes back first.
    LastParkedFirst,
    /// A task that parks joins the end, even if it came back and has not run.
    TurnLost,
    /// A share leaves the pool and is not mailed.
    ShareLost,
    /// Mail is written and no interrupt sent.
    MailNotSent,
    /// The first that are told do not tell others.
    NobodyTellsOn,
    /// A denied run queue does not join the waiting ones.
    WaiterForgotten,
    /// Time run without runtime becomes no debt.
    DebtForgiven,
    /// A task without runtime keeps running.
    RunsOn,
    /// Only the level of the task itself is asked for runtime.
    AncestorsNotAsked,
    /// Parked tasks that may come back do not make their CPU reschedule.
    CpuNotAsked,
    /// A parked task is not linked into the tree.
    NotHung,
    /// A group's weight on a CPU leaves out parked tasks.
    ParkedWeightless,
}

#[cfg(any(test, feature = "faults"))]
impl Fault {
    /// Whether it is a fault of the pull rules.
    pub fn is_of_pull(self) -> bool {
        self as usize >= Fault::RefillUnseen as usize
    }
}
