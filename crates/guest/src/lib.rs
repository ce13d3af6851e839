//! Runs a workload with real processes in real cgroups, and returns the same outcome as the model.
//!
//! The program `cpumax-guest` is `/init` of a virtual machine, or a subprocess on the host. It speaks
//! the [`protocol`]: one line of JSON for each message. Everything but that is for Linux on x86-64 only.

pub mod hypervisor;
pub mod protocol;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod call;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod cgroup;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod channel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod collect;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod command;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod guest;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod init;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod kernel;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lock;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod phases;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod plan;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod run;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod script;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sys;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod task;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod timers;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod work;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod world;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use guest::guest;

/// There is nothing that could run here.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn guest() -> i32 {
    eprintln!("cpumax-guest: runs on Linux on x86-64 only");
    2
}
