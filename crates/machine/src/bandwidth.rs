//! CPU bandwidth control: pools, runtime of run queues, throttling, and what differs between
//! kernels.
//!
//! Running time is charged to a group's `cfs_rq` on the CPU. It takes runtime from the group's
//! pool, which is refilled each period.

pub(crate) mod account;
pub(crate) mod distribute;
pub(crate) mod limbo;
pub(crate) mod period;
pub(crate) mod pool;
pub(crate) mod pull;
pub(crate) mod slack;
pub(crate) mod stat;
pub(crate) mod throttle;
pub(crate) mod unthrottle;
pub(crate) mod walk;
