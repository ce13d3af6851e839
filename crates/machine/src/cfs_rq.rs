//! A group's run queue on one CPU (kernel: `cfs_rq`), made when first needed.

use crate::events::NEVER;
use crate::fair::timeline::Timeline;
use crate::ids::{CfsRqId, CpuId, GroupId, SeId, TaskId};
use smallvec::SmallVec;

/// Large machines have tens of thousands of these and are as fast as their memory: what queueing
/// touches comes first, and what is touched together shares cache lines. On a flat queue a group
/// needs the first two.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(crate) struct CfsRq {
    pub group: GroupId,
    pub cpu: CpuId,
    /// The queue its entity competes on; none for a root queue.
    pub parent: CfsRqId,
    /// Its entity; none for a root queue.
    pub se: SeId,

    /// The child that runs: an entity queued here, taken out of the timeline.
    pub curr: SeId,
    /// Entities queued directly (running included).
    pub nr: u32,
    /// Tasks queued in the subtree (running and delayed ones included).
    pub h_nr: u32,
    /// Of these, those that are not delayed.
    pub h_runnable: u32,
    /// From when on `curr` has not been charged, ns.
    pub exec_start_ns: u64,
    /// Sum of the weights of the entities queued directly, running included.
    pub load: u64,
    /// The same of what is parked, and of the groups that hold some and are not queued (pull
    /// rules).
    pub load_parked: u64,
    pub pelt: Pelt,

    /// The second line ends with what all groups need of this.
    pub bandwidth: Silo,

    /// The child that ran until the reschedule under way; may be picked again out of turn.
    pub prev: SeId,
    /// The child that the next pick is to take or stay with; queued here (to 7.2).
    pub next: SeId,
    /// EEVDF: zero of the sums. CFS: minimum vruntime.
    pub base_vruntime: i64,
    /// Of those in the timeline: sum of scaled weight, and of scaled weight times (vruntime -
    /// base).
    pub sum_weight: i64,
    pub sum_weighted_vruntime: i128,
    pub timeline: Timeline,
    pub first_child: CfsRqId,
    pub next_sibling: CfsRqId,
}

/// Bandwidth state of a group on one CPU.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct Silo {
    /// The group has a finite quota and the CPU is on line.
    pub enabled: bool,
    /// Throttled by its own limit.
    pub throttled: bool,
    /// A release is on its way.
    pub csd_pending: bool,
    /// Its load does not decay (kernel: `pelt_clock_throttled`).
    pub pelt_frozen: bool,
    /// Its entity is not queued and is among what is parked at its parent's (pull rules).
    pub weighs_parked: bool,
    /// What its entity weighs was not brought up to date while it was throttled (to 6.17).
    pub weight_is_late: bool,
    /// How many of itself and its ancestors are throttled.
    pub throttle_count: u16,
    /// Parked tasks, the one parked last at the end.
    pub limbo: Limbo,
    /// Since when it counts as throttled by any limit, ns, or [`NEVER`].
    pub throttled_clock_self_ns: u64,
    /// Runtime left, ns; negative is debt.
    pub runtime_remaining_ns: i64,
    /// Since when its own throttled time counts, ns, or [`NEVER`].
    pub throttled_clock_ns: u64,
    /// When the runtime expires, ns, and which refill that was (to 5.3).
    pub expires_ns: u64,
    pub expires_seq: u32,
    /// Its number among the machine's subtrees, once it has been walked.
    pub walk: u32,
}

/// Parked tasks; a few of them fit where a vector's pointer would be.
pub(crate) type Limbo = SmallVec<[TaskId; 4]>;

/// Load tracking of a group on one CPU. See `fair/pelt.rs`.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub(crate) struct Pelt {
    /// How many tasks of the subtree could run, on average; 2^16 for each.
    pub runnable_avg: u32,
    /// What the group's total holds of that, 2^10 for each.
    pub runnable_published: u32,
    /// What the group's total holds of this CPU's load, in whole weights.
    pub published: u32,
    /// How many periods have passed by its clock, which stands still while it is frozen.
    pub periods: u32,
    pub load_avg: u64,
    /// Up to when `load_avg` is true, ns.
    pub updated_ns: u64,
}

const _: () = {
    let silo = std::mem::offset_of!(CfsRq, bandwidth);
    assert!(silo + std::mem::offset_of!(Silo, runtime_remaining_ns) == 128);
    assert!(size_of::<CfsRq>() == 256);
};

impl CfsRq {
    pub fn new(group: GroupId, cpu: CpuId, parent: CfsRqId, se: SeId) -> CfsRq {
        CfsRq {
            group,
            cpu,
            parent,
            se,
            first_child: CfsRqId::NONE,
            next_sibling: CfsRqId::NONE,
            curr: SeId::NONE,
            prev: SeId::NONE,
            next: SeId::NONE,
            exec_start_ns: 0,
            nr: 0,
            h_nr: 0,
            h_runnable: 0,
            timeline: Timeline::default(),
            load: 0,
            load_parked: 0,
            sum_weight: 0,
            sum_weighted_vruntime: 0,
            base_vruntime: 0,
            bandwidth: Silo {
                enabled: false,
                throttled: false,
                csd_pending: false,
                pelt_frozen: false,
                weighs_parked: false,
                weight_is_late: false,
                throttle_count: 0,
                runtime_remaining_ns: 0,
                expires_ns: 0,
                expires_seq: 0,
                walk: u32::MAX,
                throttled_clock_ns: NEVER,
                throttled_clock_self_ns: NEVER,
                limbo: Limbo::new(),
            },
            pelt: Pelt::default(),
        }
    }
}
