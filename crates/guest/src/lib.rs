//! Runs a workload with real processes in real cgroups, and returns the same outcome as the model.
//!
//! The program `cpumax-guest` is `/init` of a virtual machine, or a subprocess on the host. It speaks
//! the [`protocol`]: one line of JSON for each message.

pub mod hypervisor;
pub mod protocol;
