//! How a workload uses a lock, and its properties that follow.

use cpumax_workload::{Class, LockIx, LockKind, LockMode, Op, Preempt, TaskSpec, Workload};

/// Whether the lock belongs to the kernel: some program takes it in a system call, or a kernel
/// thread takes it.
pub(crate) fn is_in_kernel(workload: &Workload, lock: LockIx) -> bool {
    (workload.tasks.iter())
        .map(|kind| (&kind.program, kind.class == Class::Kthread))
        .chain(workload.jobs.iter().map(|job| (&job.program, false)))
        .any(|(program, is_kthread)| takes_in_kernel(program, is_kthread, lock))
}

/// Whether a running task may take a kernel lock of this kind before a task that was woken for it.
pub(crate) fn is_barging(kind: LockKind, preempt: Preempt) -> bool {
    matches!(kind, LockKind::Mutex | LockKind::Rwsem) && !preempt.is_rt()
}

/// Whether the guest performs the work under this lock together with taking it: a write to a file
/// with at most one reader, or a call that goes through the memory map.
pub(crate) fn is_written(workload: &Workload, lock: LockIx) -> bool {
    if workload.is_memory_map(lock) {
        return true;
    }
    let asks = |op: &Op| matches!(*op, Op::Lock { lock: l, mode: LockMode::Read } if l == lock);
    let reads = |kind: &&TaskSpec| kind.program.iter().any(asks);
    // A forked kind may have several instances, and several tasks may do one job.
    let count = |kind: &TaskSpec| if kind.count == 0 { 2 } else { u64::from(kind.count) };
    workload.tasks.iter().filter(reads).map(count).sum::<u64>() <= 1
        && !workload.jobs.iter().any(|job| job.program.iter().any(asks))
}

/// Whether a program takes the lock inside a system call, or anywhere in a kernel thread.
fn takes_in_kernel(program: &[Op], is_kthread: bool, lock: LockIx) -> bool {
    let mut inside = is_kthread;
    for op in program {
        match *op {
            Op::EnterKernel => inside = true,
            Op::ExitKernel => inside = is_kthread,
            Op::Lock { lock: taken, .. } if inside && taken == lock => return true,
            _ => {}
        }
    }
    false
}
