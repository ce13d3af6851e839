//! What differs between generations of CPU bandwidth control, as data.
//!
//! One [`Rules`] literal for each generation and for each release inside one that changed something
//! the model shows; the difference between two kernels is the difference between two literals. Each
//! field is read at exactly one place, named in its comment. Sources: kernel/sched/fair.c of the
//! versions named.

use cpumax_workload::Preempt;

/// How a refill treats what is left of the last period. Read in `bandwidth/pool.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refill {
    /// The pool is set to the quota (before 5.14).
    Set,
    /// The quota is added, capped at quota + burst (5.14+).
    AddCapped,
}

/// What becomes of a silo's runtime once the period that it was taken in is over. Read in
/// `bandwidth/slack.rs`, and in `bandwidth/period.rs` for when the deadline is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It stays, as the deadline is put off where the pool has a newer one, which is the wrong way
    /// round; it is lost where an idle group's timer has begun anew, as that leaves both deadlines
    /// as they were (3.16 to 4.17).
    PutOff,
    /// It is lost where the pool has a newer deadline (4.18 to 5.3).
    Lost,
    /// It stays: there is no deadline (5.4+).
    Never,
}

/// What running out does to a task that is running. Read in `bandwidth/account.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhaustion {
    /// Ask for a reschedule; the throttle happens at pick or put (to 7.1).
    Resched,
    /// Throttle on the spot (7.2+).
    Throttle,
}

/// What a silo may still take when it is about to be throttled. Read in `bandwidth/throttle.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecondChance {
    /// Nothing (before 5.8).
    None,
    /// 1 ns: closes the race with a refill.
    OneNs,
    /// A slice if it is running, else 1 ns (7.2+).
    SliceIfRunning,
}

/// What is stopped. Read wherever a throttled hierarchy is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The group's entity leaves its parent's queue, tasks and all (to 6.17).
    Entity,
    /// Each task parks itself on its way to user mode (6.18+).
    Task,
}

/// When a task that is switched to is looked at for throttling, where tasks are stopped. Read in
/// `schedule.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkTest {
    /// At every pick, all levels (to 7.1).
    EveryPick,
    /// At a switch, the levels up to the deepest one that both tasks share (7.2: the leak).
    UpToCommon,
    /// At a switch, all levels (7.3).
    AllLevels,
}

/// Where a throttled silo goes in its group's list. Read in `bandwidth/throttle.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottledInsert {
    /// At the head while a distribution is in progress, else at the tail (4.19 to 5.7).
    HeadWhileDistributing,
    /// Always at the head (to 4.18): tiny quotas starve the tail.
    Head,
    /// At the tail.
    Tail,
}

/// How released silos reach their CPUs. Read in `bandwidth/distribute.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Each one right there, inside the timer interrupt (to 6.2).
    Sync,
    /// By an interrupt to their CPU; the timer's own CPU last, directly (6.3 to 7.1).
    Csd,
    /// As `Csd`, its own CPU through the same list (7.2+).
    CsdAll,
}

/// What must hold for a granted silo to be released. Read in `bandwidth/unthrottle.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precheck {
    /// Nothing.
    None,
    /// Runtime is positive (6.18 to 7.1).
    Positive,
    /// Runtime is positive after what is running has been charged (7.2+: the boundary skip).
    ChargedPositive,
}

/// When a silo's own throttled time starts to count, and that of any limit, which `cpu.stat.local`
/// has from 6.6 on. Read in `bandwidth/stat.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleClock {
    /// At the throttle (to 6.5).
    Always,
    /// At the throttle if something is queued, else at the first enqueue (6.6 to 6.17).
    Queued,
    /// When the first task parks (6.18+).
    FirstPark,
}

/// When a silo's load stops to decay. Read in `fair/pelt.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeltFreeze {
    /// While its hierarchy is throttled (to 6.17).
    Throttled,
    /// While its hierarchy is throttled and nothing is queued (6.18+).
    ThrottledAndEmpty,
}

/// Which silos a load balancer looks at before it moves a task. Read in `fair/balance.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BalanceTest {
    /// Neither may be in a throttled hierarchy (to 6.17).
    SourceOrDestination,
    /// The destination may not (6.18+).
    Destination,
}

/// What happens when a period is too short for its own timer. Read in `bandwidth/period.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeriodScaling {
    /// Nothing (before 5.1).
    None,
    /// Times 147/128 (5.1 to 5.3).
    P147In128,
    /// Doubled (5.4+).
    Double,
}

/// Which silos a CPU going offline opens. Read in `hotplug.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offline {
    /// Those of every CPU (to 6.13): a limit leaks during hotplug.
    EveryCpu,
    /// Those of the CPU that goes (6.14+).
    DyingCpu,
}

/// The fair class's run queue. Read in `fair/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// One tree per group, smallest vruntime first (to 6.5).
    Cfs,
    /// One tree per group, earliest eligible virtual deadline first (6.6 to 7.2).
    Eevdf,
    /// One tree per CPU, tasks only (7.3).
    EevdfFlat,
}

/// How a group's weight is shared out over CPUs. Read in `fair/weight.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupShare {
    /// By load: all shares together make up the group's weight.
    Smp,
    /// The same fraction of weight times the CPUs the group can use, by the average of its runnable
    /// tasks (7.3).
    Concur,
    /// As that, by the count of its tasks right now, parked ones too (pull).
    Queued,
}

/// How far from V an entity may be when it leaves its queue. Read in `fair/eevdf.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagLimit {
    /// Two of its slices, or a tick if that is more (to 6.18).
    TwoSlicesOrTick,
    /// The longest slice queued there, and a tick (6.19+).
    LongestSliceAndTick,
}

/// What becomes of a running entity whose protected time is over, when it is charged beside others.
/// Read in `fair/eevdf.rs` and `tick.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unprotected {
    /// It runs to its deadline (to 6.11).
    Stays,
    /// It is rescheduled if it is ahead of V (6.12 to 6.16).
    GoesIfAhead,
    /// It is rescheduled (6.17+).
    Goes,
}

/// What a new weight does to the deadline and the protected time of who has it while queued or
/// running (kernel: `reweight_entity()`, `reweight_eevdf()`). Read in `fair/eevdf.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reweight {
    /// What is left to the deadline is scaled, and nothing protects any more (to 6.19; from 6.17 on
    /// as the lag is stored where the end of the protected time was).
    Unprotects,
    /// Both are scaled, from where the entity stands (7.0).
    FromEntity,
    /// Both are scaled, from V (7.1+).
    FromAverage,
}

/// Whom the test for preemption at a wake-up would pick. Read in `fair/eevdf.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeupPick {
    /// The earliest eligible deadline (to 6.18).
    Deadline,
    /// First the one that the next pick is to stay with (6.19).
    Next,
    /// As a pick does: who is only delayed leaves for good, and it is tried again (7.0+).
    Full,
}

/// The timer that ends slices when several tasks compete (kernel: `hrtick`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hrtick {
    /// By what is left of the slice since the task was picked; off unless asked for (to 7.0).
    Slice,
    /// By the task's deadline; on (7.1+).
    Deadline,
}

/// Every knob in which two generations differ. See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// What becomes of a silo's runtime after the period.
    pub expiry: Expiry,
    /// How a refill treats what is left.
    pub refill: Refill,
    /// A silo's first enqueue takes a slice (true) or 1 ns (false, 7.2+). `bandwidth/account.rs`.
    pub enqueue_takes_slice: bool,
    /// A throttled silo that is charged may still take runtime (before 5.4).
    /// `bandwidth/account.rs`.
    pub throttled_may_take: bool,
    /// What running out does.
    pub exhaustion: Exhaustion,
    /// What may still be taken at a throttle.
    pub second_chance: SecondChance,
    /// What is stopped.
    pub unit: Unit,
    /// When a task is looked at for parking.
    pub work_test: WorkTest,
    /// Order of the throttled list.
    pub throttled_insert: ThrottledInsert,
    /// The walker spends a private copy of the pool (before 5.8). `bandwidth/distribute.rs`.
    pub lump_distribution: bool,
    /// How releases reach their CPUs.
    pub release: Release,
    /// What a release requires.
    pub precheck: Precheck,
    /// A release stops putting tasks back once the hierarchy is throttled again (7.2+).
    /// `bandwidth/limbo.rs`.
    pub limbo_abortable: bool,
    /// When throttled time starts.
    pub throttle_clock: ThrottleClock,
    /// When load stops to decay.
    pub pelt_freeze: PeltFreeze,
    /// What a load balancer looks at.
    pub balance_test: BalanceTest,
    /// A CPU that runs only tasks of class idle is as good as an idle one for whoever wakes up
    /// (5.4+). `fair/placement.rs`.
    pub idle_class_is_free: bool,
    /// Who wakes up looks for an idle CPU only as far as the load of the cache leaves hope (6.0+;
    /// kernel: `SIS_UTIL`). `fair/placement.rs`.
    pub idle_search_by_load: bool,
    /// A CPU about to go idle looks for something to run only as often as it found any before
    /// (6.19+; what is maintained of 6.1, 6.6, 6.12 and 6.18 has it too; kernel: `NI_RANDOM`).
    /// `fair/balance.rs`.
    pub newidle_by_success: bool,
    /// A balancer takes a task that is only delayed where it moves load, and not where it counts
    /// tasks (6.14+). `fair/balance.rs`.
    pub delayed_is_load_only: bool,
    /// What becomes of a period that is too short.
    pub period_scaling: PeriodScaling,
    /// Period timers start at a random phase (6.4+) or at one common to all. `bandwidth/period.rs`.
    pub random_phase: bool,
    /// A further give-back does not push the slack timer out again (5.3+). `bandwidth/slack.rs`.
    pub slack_armed_once: bool,
    /// Runtime a limit write leaves on each CPU, ns. `bandwidth/pool.rs`.
    pub limit_write_leaves_ns: i64,
    /// What a CPU going offline opens.
    pub offline: Offline,
    /// The run queue.
    pub queue: Queue,
    /// A task that sleeps with negative lag stays queued until its lag is served (6.12+).
    /// `fair/eevdf.rs`.
    pub delayed_dequeue: bool,
    /// EEVDF base slice for one CPU, ns. `fair/eevdf.rs`.
    pub base_slice_ns: u64,
    /// How far from V an entity may be when it leaves. `fair/eevdf.rs`.
    pub lag_limit: LagLimit,
    /// What becomes of a running entity that is no longer protected. `fair/eevdf.rs`, `tick.rs`.
    pub unprotected: Unprotected,
    /// See there.
    pub reweight: Reweight,
    /// A running entity that gets another weight is placed as if it were not in V yet, so that its
    /// lag grows each time (6.13 to 7.0; kernel: `place_entity()` as called by
    /// `reweight_entity()`). `fair/eevdf.rs`.
    pub reweight_counts_twice: bool,
    /// Whom a test for preemption would pick. `fair/eevdf.rs`.
    pub wakeup_pick: WakeupPick,
    /// A sleeper of class idle is put before the others by an eighth of what other sleepers are
    /// (5.15+). `fair/cfs.rs`.
    pub idle_sleeper_gains_less: bool,
    /// A new task may preempt (to 6.18). `fair/placement.rs`.
    pub fork_preempts: bool,
    /// A running task that is changed is protected anew (to 6.18). `moves.rs`.
    pub change_protects: bool,
    /// A delayed task that wakes up is placed by V of now (7.2+), or of the last time the running
    /// one was charged. `fair/eevdf.rs`.
    pub requeue_charges: bool,
    /// A delayed entity owes no more than when it was delayed, and is never owed anything (7.1+).
    /// `fair/eevdf.rs`.
    pub delayed_keeps_lag: bool,
    /// A shorter slice is tested without the one that the next pick is to stay with (7.1+).
    /// `fair/eevdf.rs`.
    pub short_slice_ignores_next: bool,
    /// V is computed from weights to the last bit, and virtual time by dividing by them (7.1+).
    /// `fair/eevdf.rs`.
    pub full_weights: bool,
    /// A deadline that waits to be placed is rescaled with the weight (6.13+). `fair/eevdf.rs`.
    pub rescales_deadline: bool,
    /// What the timer that ends slices is set by. `tick.rs`.
    pub hrtick: Hrtick,
    /// The same timer is set for what is left of the slice of a task that is picked again (to
    /// 6.11). `schedule.rs`.
    pub hrtick_each_pick: bool,
    /// A group that runs empty keeps its weight (6.12+); before, it weighs next to nothing once its
    /// load has decayed. `fair/weight.rs`.
    pub empty_keeps_weight: bool,
    /// How a group's weight is shared out.
    pub group_share: GroupShare,
    /// The tick goes on on a `nohz_full` CPU while its task is limited (6.6+). `tick.rs`.
    pub limit_keeps_tick: bool,
    /// Moving a queued task to another group tests for preemption (7.0+); before, the task waits
    /// for something else to come to its CPU, even if that is idle. `moves.rs`.
    pub move_tests_preemption: bool,
    /// How the kernel is preempted unless told otherwise. `cpu.rs`.
    pub preempt: Preempt,
    /// CPUs pull: grants come by mail, tasks come back with the runtime that feeds them, groups
    /// owe, silos do not. `bandwidth/pull.rs`, docs/lab/proposal.md; no kernel does this.
    pub pull: bool,
}

impl Rules {
    /// Whether runtime has a deadline (to 5.3).
    pub fn has_deadlines(&self) -> bool {
        self.expiry != Expiry::Never
    }
}

/// G0, slices that were to expire and do not: 3.16, the earliest that is modelled.
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
    release: Release::Sync,
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

/// G1, expiring slices: 4.18, which corrects the test for clocks that drift apart.
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
/// 6.0: a search for an idle CPU goes by the load. (And 6.1 has `NI_RANDOM` by now, as 6.6, 6.12
/// and 6.18 do; releases in between, which ended before, do not.)
pub const G2_6_0: Rules = Rules { idle_search_by_load: true, newidle_by_success: true, ..G2_5_15 };
/// G2a, asynchronous unthrottle: 6.3.
pub const G2A: Rules = Rules { release: Release::Csd, newidle_by_success: false, ..G2_6_0 };
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
/// 6.12: delayed dequeue; who is picked again is not set up anew.
pub const G2A_6_12: Rules = Rules {
    delayed_dequeue: true,
    base_slice_ns: 700_000,
    unprotected: Unprotected::GoesIfAhead,
    hrtick_each_pick: false,
    empty_keeps_weight: true,
    ..G2A_6_6
};
/// 6.13: a new weight rescales what is left to a deadline.
pub const G2A_6_13: Rules = Rules {
    newidle_by_success: false,
    rescales_deadline: true,
    reweight_counts_twice: true,
    ..G2A_6_12
};
/// 6.14: a CPU going offline opens only its own silos; a delayed task is nobody to an idle CPU.
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
    release: Release::CsdAll,
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
/// Task-based throttle with the synchronous release of 6.2, as the back-port to 5.15 whose release
/// was measured (docs/lab/calibration.md).
pub const TASKS_SYNC: Rules = Rules { release: Release::Sync, ..G3 };
/// Rules of our own, on the flat run queue of 7.3: see `bandwidth/pull.rs` and docs/lab/proposal.md.
pub const PULL: Rules =
    Rules { pull: true, hrtick_each_pick: true, group_share: GroupShare::Queued, ..G4F };
