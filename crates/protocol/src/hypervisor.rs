//! What the guest and QEMU agree on beside the serial line.

/// Name under which the lab leaves the lines of the jobs in the firmware configuration device.
pub const JOBS: &str = "opt/cpumax/jobs";

/// What stands there instead while the lab wants to save the state of the machine.
pub const PAUSE: &str = "pause";

/// Environment variable (set on the kernel's command line) where tasks fork while others are moved:
/// groups are mounted as by default, so that both meet at the lock of the whole machine.
pub const FORKS_MEET_MOVES: &str = "CPUMAX_FORKS_MEET_MOVES";

/// Environment variable (set on the kernel's command line) with the seconds to sleep before
/// anything is measured: a kernel works on long after it has started its first process.
pub const SETTLE: &str = "CPUMAX_SETTLE_S";
