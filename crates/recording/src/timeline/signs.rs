//! Signs that something is missing from a recording, gathered while it is read, because no
//! record says so. `gaps` interprets them.

use super::charges::Stays;
use super::waker::Cpu;
use super::{Asleep, State, Timeline};
use crate::event::{CPUS_MAX, Event, Kind, Named, PrevState, ThreadRef};
use crate::thread::{Birth, Thread};
use std::collections::BTreeMap;

/// An equal event within this time is the same event, recorded twice, ns.
pub(super) const TWICE_NS: u64 = 100_000;
/// The bound of a switch to the idle task, from which some kernels do not record the return. The
/// events of one switch lie within it, too, ns.
const AT_ONCE_NS: u64 = 2_000;
/// A silence: at least so long, ns, room for so many events at the usual rate, and after so many
/// events that establish the rate.
const SILENCE_LEAST_NS: u64 = 1_000_000_000;
const SILENCE_EVENTS: u64 = 200;
const SILENCE_AFTER: u64 = 50;
/// A shorter silence counts where a thread was on a CPU, which is then interrupted by ticks: from
/// this length on, ns, and so many times as long as the longest such interval before, of this
/// number at least.
const STOPPED_LEAST_NS: u64 = 100_000_000;
const STOPPED_TIMES: u64 = 10;
const TICKS_LEAST: u64 = 20;
/// A CPU's begin or end is missing: it has no event for at least so long, ns, and for so many times
/// as long as it and another CPU have otherwise, with so many switches at least on both.
const PART_LEAST_NS: u64 = 100_000_000;
const PART_TIMES: u64 = 20;
const PART_SWITCHES: u64 = 50;
/// A thread that was woken so long before the end and did not run ran elsewhere, ns.
const NEVER_RAN_NS: u64 = 500_000_000;
/// Signs of all CPUs together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signs {
    /// Wakeups of threads that had been woken before and were not seen to run since.
    pub unseen_runs: u64,
    /// Wakeups that name the CPU that the thread left before, and such that name another one.
    pub stayed: u64,
    pub moved: u64,
    /// Threads that were woken and not seen to run until the end.
    pub never_ran: u64,
    /// Recorded wakeups, without the first one of each new thread.
    pub wakeups: u64,
    pub switches: u64,
    /// Time of CPUs between two events of which the second has another thread than the first left
    /// there, ns.
    pub hidden_ns: u64,
    /// The shortest step in time from one event to the next, ns; 0 if there is none.
    pub least_step_ns: u64,
    /// How the kernel charged the stays on CPUs.
    pub stays: Stays,
    /// Number and sum, ns, of intervals in which no CPU has an event.
    pub silences: u64,
    pub silence_ns: u64,
    /// The part of `silence_ns` that was cut out of the recording, ns.
    pub cut_ns: u64,
    /// Time for which events of CPUs were lost, summed over CPUs, ns.
    pub lost_ns: u64,
    /// CPUs that wakeups and migrations name, and whether a thread must have run there since the
    /// recording began.
    pub named: BTreeMap<u32, bool>,
    /// CPUs whose begin or end is missing, and how much of it, ns.
    pub parts: Vec<(usize, u64)>,
    /// A thread (index) that is part of each switch of its CPU.
    pub only: Option<u32>,
}

impl Timeline {
    /// Whether this switch or charge equals the last one of the CPU within 0.1 ms (2 us for idle),
    /// and must be dropped. Counts it as a defect, and remembers the event for the next call.
    pub(super) fn drop_repeated(&mut self, cpu: usize, kind: &Kind<'_>, now_ns: u64) -> bool {
        let watched = &mut self.cpus[cpu].watched;
        let soon = |then_ns: u64| now_ns - then_ns <= TWICE_NS;
        let again = match *kind {
            Kind::Switch {
                prev: ThreadRef { tid: from, .. },
                next: ThreadRef { tid: to, .. },
                ..
            } => {
                let last = watched.last.replace((now_ns, from, to));
                let most_ns = if to == 0 { AT_ONCE_NS } else { TWICE_NS };
                let is_same = |(at, a, b)| (a, b) == (from, to) && now_ns - at <= most_ns;
                from != to && last.is_some_and(is_same)
            }
            Kind::Runtime { tid, ns } => {
                let last = watched.charge.replace((now_ns, tid, ns));
                last.is_some_and(|(at, of, more)| {
                    (of, more) == (tid, ns) && soon(at) && ns > now_ns - at
                })
            }
            _ => false,
        };
        self.defects.doubled_events += u64::from(again);
        again
    }

    /// Whether this is another event of the last switch, such as a probe's, which happens in the
    /// context of the thread that leaves.
    pub(super) fn is_part_of_switch(&self, event: &Event<'_>) -> bool {
        let last = self.cpus[event.cpu as usize].watched.last;
        matches!(event.kind, Kind::Other)
            && last.is_some_and(|(at, from, to)| {
                from == event.tid && to != from && event.time_ns - at <= AT_ONCE_NS
            })
    }

    /// Counts a switch of a CPU, for signs of what is missing.
    pub(super) fn add_switch_sign(&mut self, cpu: usize, prev: i32, left: PrevState, next: i32) {
        self.signs.switches += 1;
        self.cpus[cpu].watched.add_switch(prev, left, next);
    }

    /// Notes the CPU that the wakeup of a thread names, and whether that is another one than it
    /// left. A thread that is not known yet may have been there before the recording.
    pub(super) fn name_cpu_of(&mut self, tid: i32, named: Option<Named>) {
        let state = &self.live(tid).state;
        let was_here = !matches!(state, State::Unknown);
        let left = match state {
            State::Asleep(Asleep { cpu, wake: None, .. }) => Some(*cpu),
            _ => None,
        };
        if let (Some(left), Some(Named::Last(last))) = (left, named) {
            let moved = if left == last { &mut self.signs.stayed } else { &mut self.signs.moved };
            *moved += 1;
        }
        self.name_cpu(named.map(|(Named::Last(cpu) | Named::Next(cpu))| cpu), was_here);
    }

    /// Notes a CPU that an event names, and whether a thread must have run there.
    pub(super) fn name_cpu(&mut self, cpu: Option<u32>, has_run: bool) {
        let possible = self.machine.cpus_possible.unwrap_or(CPUS_MAX).min(CPUS_MAX);
        if let Some(cpu) = cpu.filter(|cpu| *cpu < possible) {
            *self.signs.named.entry(cpu).or_default() |= has_run;
        }
    }

    /// Counts a wakeup of a thread that could run since `ready_ns` and was not seen to, although it
    /// must have.
    pub(super) fn count_unseen_run(&mut self, ready_ns: u64, now_ns: u64) {
        self.signs.unseen_runs += u64::from(now_ns.saturating_sub(ready_ns) > TWICE_NS);
    }

    /// Notes that another thread is on this CPU than the last one that was seen there. A CPU that
    /// was idle is left out, as some kernels record nothing in the idle task's context.
    pub(super) fn note_broken_chain(&mut self, cpu: usize, now_ns: u64) {
        let Cpu { current, last_ns, has_lost, .. } = self.cpus[cpu];
        self.defects.mismatched_switches += u64::from(current.is_some_and(|tid| tid > 0));
        if let Some(last_ns) = last_ns.filter(|_| current != Some(0) && !has_lost) {
            self.signs.hidden_ns = self.signs.hidden_ns.saturating_add(now_ns - last_ns);
        }
    }

    /// The time of an event after silences were cut out. A silence that ends here is counted, and
    /// cut unless not all threads were recorded, or one may run silently because CPU time is not
    /// charged.
    pub(super) fn cut_silence(&mut self, time_ns: u64) -> u64 {
        let now_ns = time_ns.saturating_sub(self.signs.cut_ns);
        let silence_ns = now_ns.saturating_sub(self.last_ns);
        let least_ns = &mut self.signs.least_step_ns;
        if silence_ns > 0 && (*least_ns == 0 || silence_ns < *least_ns) {
            *least_ns = silence_ns;
        }
        let usual_ns = (self.last_ns - self.first_ns) / self.events.max(1);
        let is_long = silence_ns >= SILENCE_LEAST_NS
            && self.events >= SILENCE_AFTER
            && silence_ns / SILENCE_EVENTS >= usual_ns;
        if !is_long && !self.lacks_ticks(silence_ns) {
            return now_ns;
        }
        let is_of_all = self.machine.about.as_ref().is_none_or(|about| about.chosen == "all");
        let runs = self.cpus.iter().any(|cpu| cpu.current.is_some_and(|tid| tid > 0));
        self.signs.silences += 1;
        self.signs.silence_ns = self.signs.silence_ns.saturating_add(silence_ns);
        if !is_of_all || runs && !self.has_runtime {
            return now_ns;
        }
        // Where events are rare otherwise, an interval without ticks may be a usual one.
        let cut_ns = silence_ns.saturating_sub(usual_ns);
        self.signs.cut_ns = self.signs.cut_ns.saturating_add(cut_ns);
        now_ns - cut_ns
    }

    /// Whether a thread is on a CPU that would have had a tick within so long a silence.
    fn lacks_ticks(&self, silence_ns: u64) -> bool {
        self.cpus.iter().any(|cpu| self.would_tick(cpu, silence_ns))
    }

    /// Whether a thread is on this CPU that would have had a tick within so many ns.
    fn would_tick(&self, cpu: &Cpu, ns: u64) -> bool {
        ns >= STOPPED_LEAST_NS
            && self.has_runtime
            && cpu.current.is_some_and(|tid| tid > 0)
            && cpu.ticks >= TICKS_LEAST
            && ns / STOPPED_TIMES >= cpu.longest_busy_ns
    }

    /// Until when the last thread of a CPU was seen to be on it.
    pub(super) fn end_of(&self, cpu: usize) -> u64 {
        let cpu = &self.cpus[cpu];
        let last_ns = cpu.last_ns.unwrap_or(self.last_ns);
        if self.would_tick(cpu, self.last_ns - last_ns) { last_ns } else { self.last_ns }
    }

    /// CPUs without events at their begin or end that have them regularly otherwise, as another CPU
    /// has then, although a thread that was there all the time runs on that CPU alone. Each
    /// with the length of what is missing, ns.
    fn missing_parts(&self) -> Vec<(usize, u64)> {
        let last_ns = |cpu: &Cpu| cpu.last_ns.unwrap_or(self.first_ns);
        let ends = |cpu: &Cpu| {
            let begin = (self.first_ns, cpu.first_ns.max(self.first_ns));
            [begin, (last_ns(cpu), self.last_ns)]
        };
        let often = |cpu: &Cpu| cpu.watched.count >= PART_SWITCHES;
        let is_steady = |cpu: &Cpu, (from_ns, to_ns): (u64, u64)| {
            let (late_ns, early_ns) =
                (cpu.first_ns.saturating_sub(from_ns), to_ns.saturating_sub(last_ns(cpu)));
            let longest_ns = late_ns.max(early_ns).max(cpu.longest_within(from_ns, to_ns));
            often(cpu) && longest_ns <= (to_ns - from_ns) / PART_TIMES
        };
        let is_bound = |thread: &Thread, cpu: usize| {
            let was_there = matches!(thread.birth, Birth::Present { .. }) && !thread.exited;
            was_there
                && thread.cpus.checked_shr(cpu as u32) == Some(1)
                && thread.cpus.is_power_of_two()
        };
        let is_missing = |at: usize, cpu: &Cpu, part: (u64, u64)| {
            let part_ns = part.1 - part.0;
            part_ns >= PART_LEAST_NS
                && cpu.longest_ns() <= part_ns / PART_TIMES
                && self.cpus.iter().any(|other| is_steady(other, part))
                && self.threads.iter().any(|thread| is_bound(thread, at))
        };
        let seen = self.cpus.iter().enumerate().filter(|(_, cpu)| often(cpu));
        seen.flat_map(|(at, cpu)| {
            let missing = ends(cpu).into_iter().filter(|part| is_missing(at, cpu, *part));
            missing.map(|(from_ns, to_ns)| (at, to_ns - from_ns)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// Gathers the signs that show only at the end, before the states of the threads are dropped:
    /// threads that never ran, and a thread by which events were filtered.
    pub(super) fn gather_final_signs(&mut self) {
        let end_ns = self.last_ns;
        self.signs.parts = self.missing_parts();
        let early = |state: &State| match state {
            State::Asleep(asleep) => asleep.wake.map(|wake| wake.at_ns),
            _ => None,
        };
        let woken = self.live.values().filter_map(|live| early(&live.state));
        let never = woken.filter(|ns| end_ns.saturating_sub(*ns) > NEVER_RAN_NS);
        self.signs.never_ran = never.count() as u64;
        let only = self.cpus.iter().find_map(|cpu| {
            let (tid, others) = cpu.watched.filtered_thread()?;
            // A thread that is seen to be woken has events of its own.
            let unseen = |other: &i32| {
                let thread = self.live.get(other).map(|live| &self.threads[live.thread as usize]);
                let unknown = |t: &Thread| t.guessed_waits + t.placed_waits;
                let doubtful = |t: &Thread| t.doubtful_waits.len() as u64;
                thread.is_none_or(|t| t.waits.len() as u64 <= unknown(t) + doubtful(t))
            };
            others.iter().all(unseen).then(|| self.live.get(&tid).map(|live| live.thread))?
        });
        self.signs.only = only;
    }
}
