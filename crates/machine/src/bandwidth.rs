//! CPU bandwidth control: pools, silos, throttling, and what differs between kernels.
//!
//! A group's *silo* is its bandwidth state on one CPU (kernel: the bandwidth fields of `cfs_rq`).
//! Time is charged to silos, silos take from the group's pool, the pool is refilled each period.

pub(crate) mod account;
pub(crate) mod distribute;
pub(crate) mod limbo;
pub(crate) mod period;
pub(crate) mod pool;
pub(crate) mod pull;
pub mod rules;
pub(crate) mod slack;
pub(crate) mod stat;
pub(crate) mod throttle;
pub(crate) mod unthrottle;
pub(crate) mod walk;
