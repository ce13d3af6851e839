//! CPU time that other processes of the host used during a run, which the run's tasks may have
//! missed.

use std::fs;
use std::ops::Range;

/// Smaller shares, in percent, get no note: something runs on any machine.
const WORTH_TELLING: u64 = 3;

/// CPU time since the boot, in clock ticks of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineUse {
    /// Of all CPUs, idle time included.
    all: u64,
    /// Used by any process, or given to other machines by a hypervisor (steal).
    used: u64,
    /// Used by this process and by children that it has waited for.
    ours: u64,
}

impl MachineUse {
    /// The CPU time until now; `None` where `/proc` cannot be read.
    pub fn now() -> Option<MachineUse> {
        let machine = fs::read_to_string("/proc/stat").ok()?;
        parse(&machine, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// A note for the report, if others used much CPU time between `before` and `self`.
    pub fn note_since(self, before: MachineUse) -> Option<String> {
        let used = self.used.saturating_sub(before.used);
        let others = used.saturating_sub(self.ours.saturating_sub(before.ours));
        let percent = others * 100 / self.all.saturating_sub(before.all).max(1);
        (percent >= WORTH_TELLING).then(|| {
            format!(
                "Others used {percent} % of this machine's CPU time meanwhile, and may have \
                     taken it from the tasks."
            )
        })
    }
}

/// Parses proc(5) files. In `/proc/stat`, behind `cpu`: user, nice, system, idle, iowait, irq,
/// softirq, steal. In `/proc/PID/stat`: utime, stime, cutime and cstime are fields 14 to 17.
fn parse(machine: &str, process: &str) -> Option<MachineUse> {
    let cpus = machine.lines().next()?.strip_prefix("cpu ")?;
    // A name may contain blanks; the field behind it is the third.
    let (_, process) = process.rsplit_once(") ")?;
    let all = sum(cpus, 0..8)?;
    Some(MachineUse { all, used: all - sum(cpus, 3..5)?, ours: sum(process, 11..15)? })
}

fn sum(fields: &str, range: Range<usize>) -> Option<u64> {
    let numbers = fields.split_ascii_whitespace().skip(range.start).take(range.len());
    numbers.map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 50 6 70 8 20 0 1 0 99";

    #[test]
    fn cpu_time_of_others_is_told() {
        let before = parse("cpu  10 1 5 900 20 1 1 2 0 0\ncpu0 1 1\n", PROCESS).unwrap();
        assert_eq!(before, MachineUse { all: 940, used: 20, ours: 134 });
        // 60 of 200 ticks are used, 40 of them by this process.
        let after = MachineUse { all: 1140, used: 80, ours: 174 };
        assert!(after.note_since(before).unwrap().contains(" 10 % "));
        let alone = MachineUse { ours: 190, ..after };
        assert_eq!(alone.note_since(before), None);
        assert_eq!(before.note_since(before), None);
    }

    #[test]
    fn this_machine_tells() {
        let now = MachineUse::now().unwrap();
        assert!(now.used <= now.all, "{now:?}");
    }

    #[test]
    fn unreadable_text_gives_none() {
        assert_eq!(parse("", PROCESS), None);
        assert_eq!(parse("cpu  1 2 x 4 5 6 7 8\n", PROCESS), None);
        assert_eq!(parse("cpu  1 2 3 4 5 6 7 8\n", "7 (a"), None);
    }
}
