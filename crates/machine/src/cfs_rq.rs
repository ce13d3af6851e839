//! A group's run queue on one CPU (kernel: `cfs_rq`), made when first needed.

use crate::events::NEVER;
use crate::ids::{Arena, CfsRqId, CpuId, GroupId, SeId, TaskId};
use crate::se::Turn;
use crate::timeline::Timeline;
use smallvec::SmallVec;
use std::rc::Rc;

/// Large machines have tens of thousands of these, and memory bounds their speed. Fields used by
/// queueing come first, and fields used together share cache lines. On a flat queue a group needs
/// the first two lines.
#[derive(Debug, Clone, Default)]
#[repr(C, align(64))]
pub(crate) struct CfsRq {
    pub group: GroupId,
    pub cpu: CpuId,
    /// The queue its entity competes on; none for a root queue.
    pub parent: CfsRqId,
    /// Its entity; none for a root queue.
    pub se: SeId,

    /// The running child: an entity queued here, taken out of the timeline.
    pub curr: SeId,
    /// Entities queued directly (running included).
    pub nr: u32,
    /// Tasks queued in the subtree (running and delayed ones included).
    pub h_nr: u32,
    /// How many of these are not delayed.
    pub h_runnable: u32,
    /// Time of the last charge of `curr`, ns.
    pub exec_start_ns: u64,
    /// Sum of the weights of the entities queued directly, running included.
    pub load: u64,
    /// Pull rules: sum of the weights of parked tasks, and of unqueued groups that hold some.
    pub load_parked: u64,
    pub pelt: Pelt,

    /// Fields up to here that all groups use fill two cache lines.
    pub bandwidth: CfsRqBandwidth,

    /// The child that ran until the reschedule under way; it may be picked again out of turn.
    pub prev: SeId,
    /// The child that the next pick takes or keeps; queued here (to 7.2).
    pub next: SeId,
    /// EEVDF: zero of the sums. CFS: minimum vruntime.
    pub base_vruntime: i64,
    /// Over the timeline: sum of scaled weights, and of scaled weight times (vruntime - base).
    pub sum_weight: i64,
    pub sum_weighted_vruntime: i128,
    pub timeline: Timeline,
    pub links: Links,
}

/// Places of a run queue among those of its CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Links {
    pub first_child: CfsRqId,
    pub next_sibling: CfsRqId,
}

/// Bandwidth state of a group on one CPU (kernel: the bandwidth fields of `cfs_rq`).
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub(crate) struct CfsRqBandwidth {
    /// The group has a finite quota and the CPU is on line.
    pub enabled: bool,
    /// Throttled by its own limit.
    pub throttled: bool,
    /// An unthrottle is on its way to this CPU.
    pub csd_pending: bool,
    /// Its load does not decay (kernel: `pelt_clock_throttled`).
    pub pelt_frozen: bool,
    /// Pull rules: its entity is not queued, and counts in its parent's `load_parked`.
    pub counts_as_parked: bool,
    /// Its entity's weight was not updated while it was throttled (to 6.17).
    pub weight_is_late: bool,
    /// How many of itself and its ancestors are throttled.
    pub throttle_count: u16,
    /// Parked tasks, in order of parking.
    pub limbo: Limbo,
    /// Since when it counts as throttled by any limit, ns, or [`NEVER`].
    pub throttled_clock_self_ns: u64,
    /// Runtime left, ns; negative is debt.
    pub runtime_remaining_ns: i64,
    /// Since when its own throttled time counts, ns, or [`NEVER`].
    pub throttled_clock_ns: u64,
    /// When the runtime expires, ns, and the number of its refill (to 5.3).
    pub expires_ns: u64,
    pub expires_seq: u32,
    /// Index of its cached subtree; `u32::MAX` before the first walk.
    pub subtree: u32,
}

/// Parked tasks; a few fit inline.
pub(crate) type Limbo = SmallVec<[TaskId; 4]>;

/// Load tracking of a group on one CPU. See `fair/load.rs`.
#[derive(Debug, Clone, Default)]
#[repr(C)]
pub(crate) struct Pelt {
    /// Average number of runnable tasks in the subtree; 2^16 for each.
    pub runnable_avg: u32,
    /// The part of the group's total that it contributes, 2^10 for each task.
    pub runnable_published: u32,
    /// The part of the group's total load that this CPU contributes, in whole weights.
    pub published: u32,
    /// Periods passed by its clock, which stands still while frozen.
    pub periods: u32,
    pub load_avg: u64,
    /// Time up to which `load_avg` is valid, ns.
    pub updated_ns: u64,
}

const _: () = {
    let bw = std::mem::offset_of!(CfsRq, bandwidth);
    assert!(bw + std::mem::offset_of!(CfsRqBandwidth, runtime_remaining_ns) == 128);
    assert!(size_of::<CfsRq>() == 256);
};

impl CfsRq {
    /// An empty run queue without limit, throttle or clocks running; `parent` and `se` are none for
    /// a root queue.
    pub fn new(group: GroupId, cpu: CpuId, parent: CfsRqId, se: SeId) -> CfsRq {
        CfsRq {
            group,
            cpu,
            parent,
            se,
            bandwidth: CfsRqBandwidth {
                subtree: u32::MAX,
                throttled_clock_ns: NEVER,
                throttled_clock_self_ns: NEVER,
                ..CfsRqBandwidth::default()
            },
            ..CfsRq::default()
        }
    }
}

/// State beside run queues and their entities, which stay small without it.
#[derive(Debug)]
pub(crate) struct Extras {
    /// Per CPU: run queues that are allocated but not used yet.
    pub vacant: Vec<Vacant>,
    /// Per entity: running time since its last pick. Empty unless `Settings::counts_turns`.
    pub turns: Arena<SeId, Turn>,
    /// Cached lists of a run queue and all below it.
    pub subtrees: Vec<Subtree>,
    /// Reused buffer for a list that changes while it is iterated.
    pub scratch: Vec<CfsRqId>,
    /// Per run queue, on CFS; else empty.
    pub buddies: Vec<Buddies>,
}

impl Extras {
    /// Nothing, for so many CPUs.
    pub fn new(cpus: usize) -> Extras {
        Extras {
            vacant: vec![Vacant::NONE; cpus],
            turns: Arena::new(),
            subtrees: Vec::new(),
            scratch: Vec::new(),
            buddies: Vec::new(),
        }
    }
}

/// Buddies that only CFS has (to 6.5); the one shared with EEVDF is the queue's `next`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buddies {
    /// Preempted by a wakeup on a crowded queue: to be picked again.
    pub last: SeId,
    /// Has yielded: another is to run if that is not too unfair.
    pub skip: SeId,
}

/// Extra state of a run queue under the pull rules: one cache line.
#[derive(Debug, Clone, Default)]
#[repr(align(64))]
pub(crate) struct Parked {
    /// Run queues of child groups with parked tasks that this level does not hold back, the next
    /// one first.
    pub children: SmallVec<[CfsRqId; 4]>,
    /// Whether it is one of its parent's `children`.
    pub linked: bool,
    /// Whether it is in its group's list of waiting run queues.
    pub waiting: bool,
    /// Where a level has both parked tasks and such children, they alternate.
    pub own_turn: bool,
    /// Time of its last turn among its parent's `children`, ns; they are sorted by it.
    pub turn_ns: u64,
    /// The pool's epoch when it was denied.
    pub epoch: u64,
    /// Runtime it got that has not yet brought back a task, ns.
    pub feed_ns: i64,
    /// Runtime mailed to it and not opened yet, ns.
    pub mail_ns: u64,
}

const _: () = assert!(size_of::<Parked>() == 64);

/// Memory for a CPU's next run queues and their entities.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vacant {
    pub rq: CfsRqId,
    pub se: SeId,
    pub left: u32,
    /// Group run queues of this CPU in use.
    pub made: u32,
}

impl Vacant {
    /// Nothing allocated yet.
    pub const NONE: Vacant = Vacant { rq: CfsRqId::NONE, se: SeId::NONE, left: 0, made: 0 };
}

/// A run queue and all below it, children before parents.
#[derive(Debug)]
pub(crate) struct Subtree {
    pub cfs_rqs: Rc<[CfsRqId]>,
    /// Run queues that the CPU had when this was computed.
    pub of_made: u32,
}
