//! The kernel's reports of hung tasks, which wait uninterruptibly for minutes (kernel:
//! `check_hung_task()`).

use crate::world::World;

/// Text before and after the name and pid of the task.
const BEFORE: &str = "INFO: task ";
const AFTER: &str = " blocked for more than ";

/// Kinds of the run's tasks that khungtaskd has reported as hung in the kernel log, one entry for
/// each report.
pub(crate) fn reported_kinds(world: &World) -> Vec<u32> {
    let births: Vec<(u32, u32, u64)> = world.births.entries().into_iter().flatten().collect();
    let kind_of =
        |pid: u32| births.iter().rfind(|(born, ..)| *born == pid).map(|&(_, kind, _)| kind);
    hung_pids(&kernel_log()).filter_map(kind_of).collect()
}

/// Pids that the lines of khungtaskd in the log name, one for each report.
fn hung_pids(log: &str) -> impl Iterator<Item = u32> + '_ {
    log.lines().filter_map(|line| {
        let (_, told) = line.split_once(BEFORE)?;
        let (task, _) = told.split_once(AFTER)?;
        task.rsplit_once(':')?.1.parse().ok()
    })
}

/// The whole kernel log, by syslog(2); empty where it may not be read.
fn kernel_log() -> String {
    const READ_ALL: libc::c_int = 3;
    const SIZE: libc::c_int = 10;
    // SAFETY: the first call writes nothing, the second one at most `size` bytes.
    let log = unsafe {
        let size = libc::klogctl(SIZE, std::ptr::null_mut(), 0).max(0);
        let mut log = vec![0u8; size as usize];
        let read = libc::klogctl(READ_ALL, log.as_mut_ptr().cast(), size).max(0);
        log.truncate(read as usize);
        log
    };
    String::from_utf8_lossy(&log).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_read_from_what_the_kernel_says() {
        let log = "<6>[    1.0] random: crng init done\n\
                   <3>[  362.5] INFO: task init:1:93 blocked for more than 120 seconds.\n\
                   <3>[  362.5]       Not tainted 6.12\n\
                   <3>[  483.3] INFO: task init:93 blocked for more than 241 seconds.\n";
        assert_eq!(hung_pids(log).collect::<Vec<_>>(), [93, 93]);
    }
}
