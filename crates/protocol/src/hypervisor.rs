//! Names that the guest and the lab agree on for QEMU's firmware configuration device and for the
//! kernel command line.

/// File of the firmware configuration device with the jobs, one a line.
pub const JOBS: &str = "opt/cpumax/jobs";

/// Content of that file while the lab wants to save the machine's state.
pub const PAUSE: &str = "pause";

/// Environment variable (set on the kernel command line) for scenarios in which tasks fork while
/// others are moved: cgroups are mounted by default, so both meet at the kernel's global lock.
pub const FORKS_MEET_MOVES: &str = "CPUMAX_FORKS_MEET_MOVES";

/// Environment variable (set on the kernel command line): seconds to sleep before anything is
/// measured. A kernel works on long after it has started its first process.
pub const SETTLE: &str = "CPUMAX_SETTLE_S";
