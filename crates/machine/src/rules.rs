//! Differences between generations of CPU bandwidth control, as data.
//!
//! One [`Rules`] literal for each generation, and for each release inside one that changed
//! something the model shows: the difference between two kernels is the difference between two
//! literals. A comment names the file that reads a field, where it is one. Sources:
//! kernel/sched/fair.c of the versions named.

use cpumax_workload::Preempt;

/// How a refill treats what is left of the last period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refill {
    /// The pool is set to the quota (before 5.14).
    Set,
    /// The quota is added, capped at quota + burst (5.14+).
    AddCapped,
}

/// Fate of a `cfs_rq`'s runtime when its period is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Runtime stays: the deadline is put off where the pool has a newer one, although the reverse
    /// was meant. Runtime is lost where an idle group's timer was armed again, which leaves both
    /// deadlines as they were (3.16 to 4.17).
    PutOff,
    /// Runtime is lost where the pool has a newer deadline (4.18 to 5.3).
    Lost,
    /// Runtime stays, without a deadline (5.4+).
    Never,
}

/// Effect of running out of runtime on the running task.
#[derive(Debug, Clone, Copy)]
pub enum Exhaustion {
    /// A reschedule is requested; the throttle happens at the next pick or put (to 7.1).
    Resched,
    /// Throttle on the spot (7.2+).
    Throttle,
}

impl Exhaustion {
    /// Whether the accounting throttles by itself.
    pub(crate) fn throttles(self) -> bool {
        match self {
            Exhaustion::Throttle => true,
            Exhaustion::Resched => false,
        }
    }
}

/// Runtime that a `cfs_rq` may still take when it is about to be throttled. Read in
/// `bandwidth/throttle.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecondChance {
    /// Nothing (before 5.8).
    None,
    /// 1 ns: closes the race with a refill.
    OneNs,
    /// A slice if it is running, else 1 ns (7.2+).
    SliceIfRunning,
}

/// The unit that a throttle stops.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// The group's entity leaves its parent's queue with all its tasks (to 6.17).
    Entity,
    /// Each task parks itself on its way to user mode (6.18+).
    Task,
}

impl Unit {
    /// Whether whole groups leave the queue.
    pub(crate) fn is_entity(self) -> bool {
        match self {
            Unit::Entity => true,
            Unit::Task => false,
        }
    }
}

/// Where tasks are stopped: which levels are checked for throttling when a task is picked. Read in
/// `schedule.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkTest {
    /// At every pick, all levels (to 7.1).
    EveryPick,
    /// At a switch, the levels up to the deepest one that both tasks share (7.2; ancestors above
    /// can leak quota).
    UpToCommon,
    /// At a switch, all levels (7.3).
    AllLevels,
}

/// Where a throttled `cfs_rq` goes in its group's list. Read in `bandwidth/throttle.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottledInsert {
    /// At the head while a distribution is in progress, else at the tail (4.19 to 5.7).
    HeadWhileDistributing,
    /// Always at the head (to 4.18): tiny quotas starve the tail.
    Head,
    /// At the tail.
    Tail,
}

/// How unthrottling reaches a CPU. Read in `bandwidth/distribute.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnthrottleBy {
    /// Each one at once, inside the timer interrupt (to 6.2).
    Sync,
    /// By an interrupt to its CPU; the timer's own CPU last, directly (6.3 to 7.1).
    Csd,
    /// Like `Csd`, and the timer's own CPU through the same list (7.2+).
    CsdAll,
}

/// Condition for unthrottling a `cfs_rq` that got a grant. Read in `bandwidth/unthrottle.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precheck {
    /// Nothing.
    None,
    /// Runtime is positive (6.18 to 7.1).
    Positive,
    /// Runtime is positive after the running task has been charged (7.2+). A `cfs_rq` whose task
    /// runs across the end of a period may then stay throttled for another period.
    ChargedPositive,
}

/// When throttled time starts to count: that of a `cfs_rq`'s own limit, and that of any limit,
/// which `cpu.stat.local` shows from 6.6 on. Read in `bandwidth/stat.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleClock {
    /// At the throttle (to 6.5).
    Always,
    /// At the throttle if something is queued, else at the first enqueue (6.6 to 6.17).
    Queued,
    /// When the first task parks (6.18+).
    FirstPark,
}

/// When a `cfs_rq`'s load stops decaying. Read in `fair/load.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeltFreeze {
    /// While its hierarchy is throttled (to 6.17).
    Throttled,
    /// While its hierarchy is throttled and nothing is queued (6.18+).
    ThrottledAndEmpty,
}

/// Which run queues a load balancer checks before it moves a task. Read in
/// `fair/balance/detach.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalanceTest {
    /// Neither source nor destination may be in a throttled hierarchy (to 6.17).
    SourceOrDestination,
    /// Only the destination may not (6.18+).
    Destination,
}

/// Reaction to a period that is too short for its own timer. Read in `bandwidth/period.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodScaling {
    /// Nothing (before 5.1).
    None,
    /// Times 147/128 (5.1 to 5.3).
    P147In128,
    /// Doubled (5.4+).
    Double,
}

/// Limits that a CPU going offline opens. Read in `signal.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offline {
    /// Those of every CPU (to 6.13): limits leak during hotplug.
    EveryCpu,
    /// Those of the CPU that goes offline (6.14+).
    DyingCpu,
}

/// The run queue of the fair class.
#[derive(Debug, Clone, Copy)]
pub enum Queue {
    /// One tree per group, smallest vruntime first (to 6.5).
    Cfs,
    /// One tree per group, earliest eligible virtual deadline first (6.6 to 7.2).
    Eevdf,
    /// One tree per CPU, tasks only (7.3).
    EevdfFlat,
}

impl Queue {
    /// Whether vruntime alone decides.
    pub(crate) fn is_cfs(self) -> bool {
        match self {
            Queue::Cfs => true,
            Queue::Eevdf | Queue::EevdfFlat => false,
        }
    }

    /// Whether all tasks of a CPU compete on one queue.
    pub(crate) fn is_flat(self) -> bool {
        match self {
            Queue::EevdfFlat => true,
            Queue::Cfs | Queue::Eevdf => false,
        }
    }
}

/// How a group's weight is distributed over CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupShare {
    /// By load: all shares together make up the group's weight.
    Smp,
    /// In proportion to load, out of the weight times the number of CPUs the group can use, by the
    /// average of its runnable tasks (7.3).
    Concur,
    /// Like `Concur`, by the current number of its tasks, parked ones included (pull).
    Queued,
}

/// Limit of an entity's lag when it leaves its queue. Read in `fair/eevdf.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagLimit {
    /// Two of its slices, or a tick if that is more (to 6.18).
    TwoSlicesOrTick,
    /// The longest slice queued there, plus a tick (6.19+).
    LongestSliceAndTick,
}

/// Treatment of a running entity whose protected time is over, when it is charged beside
/// competitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unprotected {
    /// The entity runs to its deadline (to 6.11).
    Stays,
    /// The entity is rescheduled if it is ahead of V (6.12 to 6.16).
    GoesIfAhead,
    /// The entity is rescheduled (6.17+).
    Goes,
}

/// Effect of a new weight on the deadline and the protected time of a queued or running entity
/// (kernel: `reweight_entity()`, `reweight_eevdf()`). Read in `fair/eevdf.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reweight {
    /// The time left to the deadline is scaled, and protection ends (to 6.19; from 6.17 on because
    /// the lag is stored in the field that held the end of the protected time).
    Unprotects,
    /// Both are scaled, from the entity's vruntime (7.0).
    FromEntity,
    /// Both are scaled, from V (7.1+).
    FromAverage,
}

/// Which entity the wakeup-preemption test would pick. Read in `fair/eevdf.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeupPick {
    /// The earliest eligible deadline (to 6.18).
    Deadline,
    /// First the one that the next pick is to keep (6.19).
    Next,
    /// The entity of a full pick: a delayed one is dequeued, and the pick is repeated (7.0+).
    Full,
}

/// The timer that ends slices when several tasks compete (kernel: `hrtick`).
#[derive(Debug, Clone, Copy)]
pub enum Hrtick {
    /// By what is left of the slice since the task was picked; off unless asked for (to 7.0).
    Slice,
    /// By the task's deadline; on (7.1+).
    Deadline,
}

impl Hrtick {
    /// Whether the slice counts from the pick.
    pub(crate) fn is_by_slice(self) -> bool {
        match self {
            Hrtick::Slice => true,
            Hrtick::Deadline => false,
        }
    }
}

/// Everything in which two generations differ; the enums above describe their fields.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub expiry: Expiry,
    pub refill: Refill,
    /// The first enqueue on a `cfs_rq` takes a slice (true) or 1 ns (false, 7.2+).
    /// `bandwidth/account.rs`.
    pub enqueue_takes_slice: bool,
    /// A throttled `cfs_rq` that is charged may still take runtime (before 5.4).
    /// `bandwidth/account.rs`, `tick.rs`.
    pub throttled_may_take: bool,
    pub exhaustion: Exhaustion,
    pub second_chance: SecondChance,
    pub unit: Unit,
    pub work_test: WorkTest,
    pub throttled_insert: ThrottledInsert,
    /// A distribution spends a private copy of the pool (before 5.8). `bandwidth/distribute.rs`.
    pub lump_distribution: bool,
    pub release: UnthrottleBy,
    pub precheck: Precheck,
    /// Unthrottling stops putting tasks back once the hierarchy is throttled again (7.2+).
    /// `bandwidth/limbo.rs`.
    pub limbo_abortable: bool,
    pub throttle_clock: ThrottleClock,
    pub pelt_freeze: PeltFreeze,
    pub balance_test: BalanceTest,
    /// A CPU that runs only `SCHED_IDLE` tasks counts as idle for a task that wakes up (5.4+).
    /// `fair/placement.rs`, `fair/balance.rs`.
    pub idle_class_is_free: bool,
    /// The load of the cache domain limits the search for an idle CPU (6.0+; kernel: `SIS_UTIL`).
    /// `fair/placement.rs`, `fair/balance.rs`.
    pub idle_search_by_load: bool,
    /// A CPU about to go idle looks for tasks only as often as it found any before (6.19+, and
    /// maintained releases of 6.1, 6.6, 6.12 and 6.18; kernel: `NI_RANDOM`). `fair/balance.rs`.
    pub newidle_by_success: bool,
    /// A balancer takes delayed tasks where it moves load, and not where it counts tasks (6.14+).
    /// `fair/balance/detach.rs`.
    pub delayed_is_load_only: bool,
    pub period_scaling: PeriodScaling,
    /// Period timers start at a random phase (6.4+) or at one common to all. `bandwidth/period.rs`.
    pub random_phase: bool,
    /// Giving runtime back again does not push the slack timer out (5.3+). `bandwidth/slack.rs`.
    pub slack_armed_once: bool,
    /// Runtime that a limit write leaves on each CPU, ns. `bandwidth/pool.rs`, `fair.rs`.
    pub limit_write_leaves_ns: i64,
    pub offline: Offline,
    pub queue: Queue,
    /// A task that sleeps with negative lag stays queued until its lag is served (6.12+).
    /// `fair/eevdf.rs`.
    pub delayed_dequeue: bool,
    /// EEVDF base slice for one CPU, ns. `build.rs`.
    pub base_slice_ns: u64,
    pub lag_limit: LagLimit,
    pub unprotected: Unprotected,
    pub reweight: Reweight,
    /// A running entity that gets another weight is placed as if it did not yet count in V, so
    /// that its lag grows each time (6.13 to 7.0; kernel: `place_entity()` as called by
    /// `reweight_entity()`). `fair/eevdf.rs`.
    pub reweight_counts_twice: bool,
    pub wakeup_pick: WakeupPick,
    /// A `SCHED_IDLE` sleeper gets an eighth of the bonus of other sleepers (5.15+).
    /// `fair/cfs.rs`.
    pub idle_sleeper_gains_less: bool,
    /// A new task may preempt (to 6.18). `fair/placement.rs`.
    pub fork_preempts: bool,
    /// Changing a running task protects it anew (to 6.18). `moves.rs`.
    pub change_protects: bool,
    /// A delayed task that wakes up is placed by the current V (7.2+), else by V at the last
    /// charge of the running task. `fair/eevdf.rs`.
    pub requeue_charges: bool,
    /// The lag of a delayed entity never falls below its value when it was delayed, nor above zero
    /// (7.1+). `fair/eevdf.rs`.
    pub delayed_keeps_lag: bool,
    /// A task with a shorter slice is tested without preference for the entity that the next pick
    /// is to keep (7.1+). `fair/eevdf.rs`.
    pub short_slice_ignores_next: bool,
    /// V is computed from unscaled weights, and virtual time by division instead of a reciprocal
    /// (7.1+). `fair/eevdf.rs`.
    pub full_weights: bool,
    /// A relative deadline is rescaled with the weight (6.13+). `fair/eevdf.rs`.
    pub rescales_deadline: bool,
    pub hrtick: Hrtick,
    /// The slice timer is set again for the rest of the slice when a task is picked again (to
    /// 6.11). `schedule.rs`.
    pub hrtick_each_pick: bool,
    /// A group that runs empty keeps its weight (6.12+); before, its weight falls to almost
    /// nothing once its load has decayed. `fair/weight.rs`.
    pub empty_keeps_weight: bool,
    pub group_share: GroupShare,
    /// The tick continues on a `nohz_full` CPU while its task is limited (6.6+). `tick.rs`.
    pub limit_keeps_tick: bool,
    /// Moving a queued task to another group tests for preemption (7.0+); before, the task waits
    /// for something else to come to its CPU, even if that is idle. `moves.rs`.
    pub move_tests_preemption: bool,
    /// Default preemption model. `build.rs`.
    pub preempt: Preempt,
    /// CPUs pull: grants come by mail, tasks come back with the runtime that feeds them, groups
    /// owe and run queues do not. No kernel does this. `bandwidth/pull.rs`, docs/lab/proposal.md.
    pub pull: bool,
}

impl Rules {
    /// Whether runtime has a deadline (to 5.3).
    pub fn has_deadlines(&self) -> bool {
        self.expiry != Expiry::Never
    }
}

/// G0, slices that should expire but do not: 3.16, the oldest that is modelled.
pub const G0: Rules = Rules {
    expiry: Expiry::PutOff,
    refill: Refill::Set,
    enqueue_takes_slice: true,
    throttled_may_take: true,
    exhaustion: Exhaustion::Resched,
    second_chance: SecondChance::None,
    unit: Unit::Entity,
    work_test: WorkTest::EveryPick,
    throttled_insert: ThrottledInsert::Head,
    lump_distribution: true,
    release: UnthrottleBy::Sync,
    precheck: Precheck::None,
    limbo_abortable: false,
    throttle_clock: ThrottleClock::Always,
    pelt_freeze: PeltFreeze::Throttled,
    balance_test: BalanceTest::SourceOrDestination,
    idle_class_is_free: false,
    idle_search_by_load: false,
    newidle_by_success: false,
    delayed_is_load_only: false,
    period_scaling: PeriodScaling::None,
    random_phase: false,
    slack_armed_once: false,
    limit_write_leaves_ns: 0,
    offline: Offline::EveryCpu,
    queue: Queue::Cfs,
    delayed_dequeue: false,
    base_slice_ns: 750_000,
    lag_limit: LagLimit::TwoSlicesOrTick,
    unprotected: Unprotected::Stays,
    reweight: Reweight::Unprotects,
    reweight_counts_twice: false,
    wakeup_pick: WakeupPick::Deadline,
    idle_sleeper_gains_less: false,
    fork_preempts: true,
    change_protects: true,
    requeue_charges: false,
    delayed_keeps_lag: false,
    short_slice_ignores_next: false,
    full_weights: false,
    rescales_deadline: false,
    hrtick: Hrtick::Slice,
    hrtick_each_pick: true,
    empty_keeps_weight: false,
    group_share: GroupShare::Smp,
    limit_keeps_tick: false,
    move_tests_preemption: false,
    preempt: Preempt::Voluntary,
    pull: false,
};

/// G1, expiring slices: 4.18, which corrects the test for clock drift.
pub const G1_4_18: Rules = Rules { expiry: Expiry::Lost, ..G0 };
/// 4.19: throttled CPUs are served in order.
pub const G1: Rules = Rules { throttled_insert: ThrottledInsert::HeadWhileDistributing, ..G1_4_18 };
/// 5.1: a period that its timer cannot keep up with grows.
pub const G1_5_1: Rules = Rules { period_scaling: PeriodScaling::P147In128, ..G1 };
/// 5.3: the slack timer is armed once.
pub const G1_5_3: Rules = Rules { slack_armed_once: true, ..G1_5_1 };
/// G2, no expiry: 5.4.
pub const G2: Rules = Rules {
    expiry: Expiry::Never,
    throttled_may_take: false,
    idle_class_is_free: true,
    period_scaling: PeriodScaling::Double,
    ..G1_5_3
};
/// 5.8: a throttle first tries the pool once more; distribution spends the pool itself.
pub const G2_5_8: Rules = Rules {
    second_chance: SecondChance::OneNs,
    throttled_insert: ThrottledInsert::Tail,
    lump_distribution: false,
    ..G2
};
/// 5.14: burst.
pub const G2_5_14: Rules = Rules { refill: Refill::AddCapped, ..G2_5_8 };
/// 5.15: tasks of class idle gain less by sleeping.
pub const G2_5_15: Rules = Rules { idle_sleeper_gains_less: true, ..G2_5_14 };
/// 6.0: the load limits the search for an idle CPU. Maintained releases of 6.1, 6.6, 6.12 and 6.18
/// have `NI_RANDOM`; releases in between ended before.
pub const G2_6_0: Rules = Rules { idle_search_by_load: true, newidle_by_success: true, ..G2_5_15 };
/// G2a, asynchronous unthrottle: 6.3.
pub const G2A: Rules = Rules { release: UnthrottleBy::Csd, newidle_by_success: false, ..G2_6_0 };
/// 6.4: period timers are spread.
pub const G2A_6_4: Rules = Rules { random_phase: true, ..G2A };
/// 6.6: EEVDF, `cpu.stat.local`, the tick of limited `nohz_full` tasks.
pub const G2A_6_6: Rules = Rules {
    queue: Queue::Eevdf,
    newidle_by_success: true,
    throttle_clock: ThrottleClock::Queued,
    limit_keeps_tick: true,
    ..G2A_6_4
};
/// 6.12: delayed dequeue; a task that is picked again is not set up anew.
pub const G2A_6_12: Rules = Rules {
    delayed_dequeue: true,
    base_slice_ns: 700_000,
    unprotected: Unprotected::GoesIfAhead,
    hrtick_each_pick: false,
    empty_keeps_weight: true,
    ..G2A_6_6
};
/// 6.13: a new weight rescales the time left to a deadline.
pub const G2A_6_13: Rules = Rules {
    newidle_by_success: false,
    rescales_deadline: true,
    reweight_counts_twice: true,
    ..G2A_6_12
};
/// 6.14: a CPU going offline opens only its own limits; balancing that counts tasks skips delayed
/// ones.
pub const G2A_6_14: Rules =
    Rules { offline: Offline::DyingCpu, delayed_is_load_only: true, ..G2A_6_13 };
/// 6.16: lazy preemption where distributions take the default.
pub const G2A_6_16: Rules = Rules { preempt: Preempt::Lazy, ..G2A_6_14 };
/// 6.17: a task that is no longer protected is rescheduled.
pub const G2A_6_17: Rules = Rules { unprotected: Unprotected::Goes, ..G2A_6_16 };
/// G3, task-based throttle: 6.18.
pub const G3: Rules = Rules {
    unit: Unit::Task,
    newidle_by_success: true,
    precheck: Precheck::Positive,
    throttle_clock: ThrottleClock::FirstPark,
    pelt_freeze: PeltFreeze::ThrottledAndEmpty,
    balance_test: BalanceTest::Destination,
    limit_write_leaves_ns: 1,
    ..G2A_6_17
};
/// 6.19: lag reaches as far as the longest slice and a tick; new tasks do not preempt.
pub const G3_6_19: Rules = Rules {
    lag_limit: LagLimit::LongestSliceAndTick,
    wakeup_pick: WakeupPick::Next,
    fork_preempts: false,
    change_protects: false,
    ..G3
};
/// 7.0: a task moved between groups is tested for preemption.
pub const G3_7_0: Rules = Rules {
    wakeup_pick: WakeupPick::Full,
    move_tests_preemption: true,
    reweight: Reweight::FromEntity,
    ..G3_6_19
};
/// 7.1: the high-resolution tick is on; V is computed from whole weights.
pub const G3_7_1: Rules = Rules {
    hrtick: Hrtick::Deadline,
    full_weights: true,
    reweight: Reweight::FromAverage,
    reweight_counts_twice: false,
    delayed_keeps_lag: true,
    short_slice_ignores_next: true,
    ..G3_7_0
};
/// G4, throttling inside the accounting: 7.2.
pub const G4: Rules = Rules {
    requeue_charges: true,
    enqueue_takes_slice: false,
    exhaustion: Exhaustion::Throttle,
    second_chance: SecondChance::SliceIfRunning,
    work_test: WorkTest::UpToCommon,
    release: UnthrottleBy::CsdAll,
    precheck: Precheck::ChargedPositive,
    limbo_abortable: true,
    ..G3_7_1
};
/// G4F, on a flat run queue: 7.3.
pub const G4F: Rules = Rules {
    work_test: WorkTest::AllLevels,
    queue: Queue::EevdfFlat,
    group_share: GroupShare::Concur,
    ..G4
};
/// Task-based throttle with the synchronous release of 6.2, like the back-port to 5.15 whose
/// release was measured (docs/lab/calibration.md).
pub const TASKS_SYNC: Rules = Rules { release: UnthrottleBy::Sync, ..G3 };
/// Rules of our own, on the flat run queue of 7.3: `bandwidth/pull.rs`, docs/lab/proposal.md.
pub const PULL: Rules =
    Rules { pull: true, hrtick_each_pick: true, group_share: GroupShare::Queued, ..G4F };
