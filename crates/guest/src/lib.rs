//! Runs a workload with real processes in real cgroups, and returns an outcome of the same form as
//! the model's.
//!
//! The program `cpumax-guest` is `/init` of a virtual machine, or a subprocess on a host. It speaks
//! the [protocol](cpumax_protocol), one line of JSON for each message. Only for Linux on x86-64.

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", target_arch = "x86_64"))] {
        mod cgroup;
        mod channel;
        mod claim;
        mod command;
        mod guest;
        mod hung;
        mod hypervisor;
        mod init;
        mod keepers;
        mod kernel;
        mod lateness;
        mod lending;
        mod line;
        mod lock;
        mod memory_map;
        mod outside;
        mod owner;
        mod phases;
        mod pool;
        mod plan;
        mod releases;
        mod requests;
        mod run;
        mod stalls;
        mod sys;
        mod timers;
        mod trace;
        mod tracefs;
        mod work;
        mod world;

        pub use guest::guest;
    } else {
        /// Prints that this build is for another system; returns exit status 2.
        pub fn guest() -> i32 {
            eprintln!("cpumax-guest: runs on Linux on x86-64 only");
            2
        }
    }
}
