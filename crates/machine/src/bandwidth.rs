//! CPU bandwidth control: pools, silos, throttling, and what differs between kernels.

pub mod rules;
