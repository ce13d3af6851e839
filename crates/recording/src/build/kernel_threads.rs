//! Recognizes kernel threads by their names, for files that do not mark them.

const NAMES: [&str; 29] = [
    "kthreadd",
    "rcu_",
    "rcub/",
    "rcuc/",
    "rcuo",
    "rcu",
    "migration/",
    "cpuhp/",
    "ksoftirqd/",
    "kworker/",
    "kdevtmpfs",
    "kauditd",
    "khungtaskd",
    "oom_reaper",
    "kcompactd",
    "ksmd",
    "khugepaged",
    "kswapd",
    "jbd2/",
    "irq/",
    "watchdogd",
    "kblockd",
    "ktimers/",
    "idle_inject/",
    "scsi_eh_",
    "ext4-rsv-conver",
    "napi/",
    "pool_workqueue_",
    "writeback",
];

/// Threads of one CPU, whose number follows.
const PER_CPU: [&str; 7] =
    ["migration/", "cpuhp/", "ksoftirqd/", "ktimers/", "rcuc/", "idle_inject/", "watchdog/"];

/// Whether a name begins as those of the kernel's threads do.
pub(super) fn is_kernel_name(comm: &str) -> bool {
    NAMES.iter().any(|name| comm.starts_with(name))
}

/// The CPU in the name of a kernel thread that is bound to one; `None` if it is not. Bound workers
/// have its number (`kworker/2:1`); `kworker/u…` are not bound.
pub(super) fn bound_cpu(comm: &str) -> Option<u16> {
    if let Some(worker) = comm.strip_prefix("kworker/") {
        return worker.split_once(':')?.0.parse().ok();
    }
    let number = PER_CPU.iter().find_map(|name| comm.strip_prefix(name))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{bound_cpu, is_kernel_name};

    #[test]
    fn knows_the_kernels_own() {
        for (comm, kernel, on) in [
            ("kworker/1:2-events", true, Some(1)),
            ("kworker/u8:2-events", true, None),
            ("ksoftirqd/3", true, Some(3)),
            ("migration/0", true, Some(0)),
            ("rcu_preempt", true, None),
            ("nginx", false, None),
        ] {
            assert_eq!((is_kernel_name(comm), bound_cpu(comm)), (kernel, on), "{comm}");
        }
    }
}
