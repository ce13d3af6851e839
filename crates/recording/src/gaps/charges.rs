//! Faults of the CPU time that the kernel charged (`sched_stat_runtime`).

use super::{GapKind, Gaps, exceeds, percent};
use crate::recording::Recording;
use crate::summary::sum;
use crate::thread::Thread;

/// Percentage and least amount, ns, of CPU time charged beyond the time on a CPU.
const MORE_PERCENT: u64 = 3;
const LEAST_NS: u64 = 5_000_000;
/// Percentage of the time on CPUs from which the part without a later charge is doubtful.
const UNCHARGED_PERCENT: u64 = 15;
/// A common percentage of the time in a stay that is doubtful if it is below this.
const COMMON_PERCENT: u64 = 92;
/// Percentages of the time on CPUs taken by interrupts and the host from which a note is given, and
/// from which it is doubtful.
const STOLEN_PERCENT: u64 = 10;
const STOLEN_MUCH_PERCENT: u64 = 20;

impl Recording {
    /// Adds, as doubtful, charges that cannot be; else that charges were not recorded, or that
    /// interrupts or the host took more than 10 % of the time on CPUs, doubtful above 20 %.
    pub(super) fn add_wrong_charges(&self, gaps: &mut Gaps) {
        if !self.has_runtime {
            let told = "The CPU time that the kernel charged (sched_stat_runtime) was not \
                        recorded: interrupts and time taken by the host count as the threads' own.";
            return gaps.add(GapKind::Charges, false, told.to_owned());
        }
        let wall_ns = sum(self.threads.iter().map(|thread| thread.wall_ns));
        if let Some(told) = self.impossible_charges(wall_ns) {
            gaps.add(GapKind::ImpossibleCharges, true, told);
        }
        let spent = |thread: &Thread| thread.runtime_ns.saturating_add(thread.cost_ns);
        let charged_ns = sum(self.threads.iter().map(spent));
        let taken_ns = wall_ns.saturating_sub(charged_ns);
        if exceeds(taken_ns, STOLEN_PERCENT, wall_ns) {
            let told = format!(
                "{} % of the time that threads were on a CPU was not theirs: interrupts or the \
                 host took it. CPU times leave it out, latencies do not.",
                percent(taken_ns, wall_ns)
            );
            let much = exceeds(taken_ns, STOLEN_MUCH_PERCENT, wall_ns);
            gaps.add(GapKind::Stolen, much, told);
        }
    }

    /// A sentence if charges exceed the time on a CPU by more than 3 %; if they are the same part
    /// of it, below 92 %, in most stays, which nothing that takes time does; or if threads were not
    /// charged when they left, for more than 15 % of the time.
    fn impossible_charges(&self, wall_ns: u64) -> Option<String> {
        let more = |thread: &Thread| thread.charged_ns.saturating_sub(thread.wall_ns);
        let more_ns = sum(self.threads.iter().map(more));
        if more_ns > LEAST_NS && exceeds(more_ns, MORE_PERCENT, wall_ns) {
            return Some(format!(
                "Threads were charged {} % more CPU time than they were on a CPU: events were \
                 recorded twice, or their numbers mean something else.",
                percent(more_ns, wall_ns)
            ));
        }
        // `cpumax record` does not charge threads outside of the group that it records.
        let is_of_all = self.machine.about.as_ref().is_none_or(|about| about.chosen == "all");
        let stays = is_of_all.then_some(&self.signs.stays)?;
        if let Some(common) = stays.common_percent().filter(|percent| *percent < COMMON_PERCENT) {
            return Some(format!(
                "Threads were charged {common} % of their time on a CPU, in most stays alike: \
                 neither interrupts nor the host take time so evenly, so the numbers mean \
                 something else."
            ));
        }
        let missing_ns = stays.uncharged_ns;
        (missing_ns > LEAST_NS && exceeds(missing_ns, UNCHARGED_PERCENT, stays.wall_ns)).then(
            || {
                format!(
                    "Threads were not charged when they left a CPU, for {} % of their time there: \
                 charges are missing.",
                    percent(missing_ns, stays.wall_ns)
                )
            },
        )
    }
}
