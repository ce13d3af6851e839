//! How a task of the guest counts its work. It measures work by its clock: where a piece of work
//! takes slightly longer than needed, all of that counts. An interrupt or a short preemption
//! therefore leaves less to do in user mode. Work of a system call stays as long as it is, and the
//! work after it becomes shorter. Where time is the host's, tasks read their CPU time instead.

use cpumax_machine::{Call, Step, Told};
use std::num::NonZeroU64;

/// Largest deviation of work from its length, ns.
pub(crate) const MOST_WRONG_NS: u64 = 5_000;
/// The longest absence that is counted as work, ns (guest: `SLACK_NS`).
const UNSEEN_NS: u64 = 50_000;
/// Work in user mode between two looks at the clock, ns (guest: `CHUNK_NS`); on average half of it
/// is left.
const CHUNK_NS: u64 = 20_000;
/// Cost of a sleep beyond the call that the guest assumes, ns: the switch to the next task.
const WAKES_NS: u64 = 3_000;
/// By how much work under a lock, with its entry, is too long, ns.
const LOCKED_NS: u64 = 1_500;

/// The counters of a task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    /// Its segment is work of the workload, not overhead of a call.
    pub is_program_work: bool,
    /// Rest of its work in the kernel at the start of its first page, ns, if it reads pages.
    pub first_page_ns: Option<NonZeroU64>,
    /// Part of its next work in the kernel that was done on the way to a lock, ns.
    entered_ns: u64,
    /// Time that calls took beyond the workload's programs, ns, by which its next work is shorter;
    /// negative if it worked less than it should.
    owes_ns: i64,
    /// CPU time of the work that its program has asked for so far, ns.
    requested_ns: u64,
    /// Start of calls after which it has not read the clock again, ns.
    calls_since_ns: Option<u64>,
    /// Time that it did not run since it last made progress (in the kernel: during the whole
    /// call), ns. Before its first progress: since it last looked at the clock.
    absent_ns: u64,
    /// Start of the preemption under way, ns.
    preempted_ns: Option<u64>,
}

impl Clock {
    /// The rest of a piece of work of `ns` that its program asks for, ns: less by the task's debt,
    /// which is reduced by that. Only a write under a lock is never shortened.
    pub fn ask(&mut self, ns: u64, call: Option<Call>, reads_cpu_time: bool) -> u64 {
        self.requested_ns = self.requested_ns.saturating_add(ns);
        let is_whole = !reads_cpu_time && call.is_some_and(|call| call.writes);
        let owes_ns = if is_whole { 0 } else { self.owes_ns };
        let entered_ns = if call.is_some() { std::mem::take(&mut self.entered_ns) } else { 0 };
        let ns = ns.saturating_sub(entered_ns);
        let left_ns = ns.saturating_add_signed(-owes_ns);
        self.owes_ns += left_ns as i64 - ns as i64;
        left_ns
    }

    /// The part of its absence, with another one of `away_ns`, that it mistakes for work done, ns;
    /// 0 in the kernel, if the absence is so long that it is noticed, or if little work is left.
    pub fn mistaken_ns(&self, in_user: bool, left_ns: u64, away_ns: u64) -> u64 {
        let absent_ns = self.absent_ns + away_ns;
        let unseen = in_user && absent_ns <= UNSEEN_NS && left_ns > CHUNK_NS;
        if unseen { absent_ns.min(left_ns - CHUNK_NS / 2) } else { 0 }
    }

    /// Adds `away_ns` to the absence. Progress ends it: a part passes for work and is returned, ns;
    /// the rest makes later work shorter.
    pub fn resume(
        &mut self,
        in_user: bool,
        left_ns: u64,
        (away_ns, progress_ns): (u64, u64),
    ) -> u64 {
        self.absent_ns += away_ns;
        if progress_ns == 0 {
            return 0;
        }
        let mistaken_ns = self.mistaken_ns(in_user, left_ns, 0);
        let is_over = in_user || left_ns <= progress_ns;
        let little_left = !in_user || left_ns <= CHUNK_NS;
        if is_over && little_left && mistaken_ns == 0 && self.absent_ns <= UNSEEN_NS {
            self.owes_ns += self.absent_ns as i64;
        }
        if is_over {
            (self.absent_ns, self.preempted_ns) = (0, None);
        }
        mistaken_ns
    }

    /// Takes note of news of the task.
    pub fn tell(&mut self, now_ns: u64, told: Told, reads_cpu_time: bool) {
        match told {
            Told::Works => {
                let since_ns = self.calls_since_ns.take().unwrap_or(now_ns);
                (self.is_program_work, self.preempted_ns) = (true, None);
                self.absent_ns = now_ns.saturating_sub(since_ns);
            }
            Told::Step(step, ns) => {
                (self.is_program_work, self.first_page_ns) = (false, None);
                match step {
                    _ if reads_cpu_time => self.owes_ns += ns as i64,
                    Step::Sleep => self.owes_ns += (ns + WAKES_NS) as i64,
                    Step::Enter => self.entered_ns = ns.saturating_sub(LOCKED_NS),
                    _ => drop(self.calls_since_ns.get_or_insert(now_ns)),
                }
            }
            Told::Overhead => self.is_program_work = false,
            Told::Reschedules(ns) if reads_cpu_time => self.owes_ns += ns as i64,
            Told::Reschedules(_) | Told::New | Told::Pages { .. } => {}
            Told::Spun(ns) => self.owes_ns += ns as i64,
            Told::LeavesCall => self.entered_ns = 0,
            Told::Sleeps => self.calls_since_ns = None,
            Told::Preempted => self.preempted_ns = Some(now_ns),
            Told::Resumed => {
                let since_ns = self.preempted_ns.take().unwrap_or(now_ns);
                self.absent_ns += now_ns.saturating_sub(since_ns);
            }
            Told::Interrupted(ns) => self.absent_ns += ns,
            Told::ReadCpuTime { usage_ns, begins } => {
                if begins {
                    self.requested_ns = usage_ns;
                }
                self.owes_ns = usage_ns as i64 - self.requested_ns as i64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The debt of a task that worked in the kernel for 1 ms and was told this before, ns.
    fn owes_ns(told: &[Told], reads_cpu_time: bool) -> i64 {
        let mut clock = Clock::default();
        for &told in told {
            clock.tell(0, told, reads_cpu_time);
        }
        clock.tell(7_000, Told::Works, reads_cpu_time);
        clock.resume(false, 1_000_000, (2_000, 1_000_000));
        clock.owes_ns
    }

    #[test]
    fn a_call_makes_later_work_shorter_as_the_clock_shows() {
        let call = |step| owes_ns(&[Told::Step(step, 5_000)], false);
        assert_eq!(call(Step::Send), 9_000, "7 us since the call, 2 of another absence");
        assert_eq!(call(Step::Sleep), 8_000 + 2_000, "the guest knows its cost");
        assert_eq!(owes_ns(&[Told::Step(Step::Send, 5_000), Told::Sleeps], false), 2_000);
        assert_eq!(owes_ns(&[Told::Step(Step::Send, 5_000)], true), 5_000 + 2_000);
    }

    #[test]
    fn an_absence_of_more_than_50_us_is_noticed() {
        let left_ns = |away_ns| {
            let mut clock = Clock::default();
            1_000_000 - clock.resume(true, 1_000_000, (away_ns, 10))
        };
        assert_eq!([left_ns(50_000), left_ns(50_001)], [950_000, 1_000_000]);
    }

    #[test]
    fn a_debt_shortens_work_but_no_write_under_a_lock() {
        let asked_ns = |writes| {
            let mut clock = Clock { owes_ns: 3_000, ..Clock::default() };
            clock.ask(10_000, Some(Call { writes, levels: 0, tick_ns: 1_000_000 }), false)
        };
        assert_eq!([asked_ns(false), asked_ns(true)], [7_000, 10_000]);
    }
}
