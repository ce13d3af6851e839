//! How much of this machine's CPU time others used while a scenario ran on it: they take it from
//! the scenario's tasks.

use std::fs;
use std::ops::Range;

/// Less than so many hundredths are no news: something runs on any machine.
const WORTH_TELLING: u64 = 3;

/// CPU time since the machine was started, in the ticks of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineUse {
    /// Of all CPUs, idle or not.
    all: u64,
    /// Of it, what was used, and what a hypervisor gave to other machines.
    used: u64,
    /// Of what was used, what this process did and those did that it has waited for.
    ours: u64,
}

impl MachineUse {
    /// Until now; `None` where `/proc` does not tell.
    pub fn now() -> Option<MachineUse> {
        let machine = fs::read_to_string("/proc/stat").ok()?;
        parse(&machine, &fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// What is to be noted about a run from `before` until now, if anything is.
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

/// Fields as proc(5) counts them: of `/proc/stat` behind `cpu` user, nice, system, idle, iowait,
/// irq, softirq, steal; of `/proc/PID/stat` utime, stime, cutime and cstime at 14 to 17.
fn parse(machine: &str, process: &str) -> Option<MachineUse> {
    let cpus = machine.lines().next()?.strip_prefix("cpu ")?;
    // A name may have spaces in it; the third field is the first behind it.
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
    fn what_others_use_is_told() {
        let before = parse("cpu  10 1 5 900 20 1 1 2 0 0\ncpu0 1 1\n", PROCESS).unwrap();
        assert_eq!(before, MachineUse { all: 940, used: 20, ours: 134 });
        // Of 200 ticks 60 are used, 40 of them by us.
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
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(parse("", PROCESS), None);
        assert_eq!(parse("cpu  1 2 x 4 5 6 7 8\n", PROCESS), None);
        assert_eq!(parse("cpu  1 2 3 4 5 6 7 8\n", "7 (a"), None);
    }
}
