//! When a wait ended whose wakeup was not recorded.
//!
//! Some kernels record nothing in the idle task's context: neither the wakeups that end the idle
//! time of a CPU nor the switch to the next thread. Other wakeups are recorded. A thread that
//! sleeps and runs again without a wakeup was therefore woken when a CPU ended its idle time. A CPU
//! that goes idle has nothing to run, so a thread that left it before did sleep. If that thread
//! runs there again, it was woken when the CPU went on.
//!
//! If no CPU was idle since the thread left, it only tried to sleep, because a signal was pending.
//! In a recording without any wakeups it may have slept.

use super::{Asleep, Entry, State, Timeline, Wake};
use crate::event::PrevState;
use crate::steps::push_one;
use crate::thread::{Cause, Interrupt, Step, Thread, Wait};

/// A wakeup may precede its sleep by this much, while the thread is on its way into the scheduler.
const EARLY_WAKE_MAX_NS: u64 = 1_000_000;

/// How well the time of an unrecorded wakeup is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The time at which a CPU ended its idle time.
    Placed,
    /// Some time before the thread ran.
    Guessed,
    /// There may have been no sleep.
    Doubtful,
}

/// A wait that has been added to its thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settled {
    pub wait: usize,
    /// How well its end is known if the wakeup was not recorded.
    pub missing: Option<Missing>,
}

impl Timeline {
    /// Adds the wait of a sleeping thread that runs again on a CPU, or that was woken before the
    /// recording ended (`on` is `None`), and makes it ready. `None` if it did not sleep, or nothing
    /// ended its sleep.
    pub(super) fn settle_wait(
        &mut self,
        tid: i32,
        now_ns: u64,
        on: Option<(usize, Entry)>,
    ) -> Option<Settled> {
        let first_ns = self.first_ns;
        let live = self.live(tid);
        let early = live.early_wake.take();
        let hint = live.call;
        let ix = live.thread as usize;
        let asleep = match live.state {
            State::Asleep(asleep) => asleep,
            State::Unknown if now_ns > first_ns => {
                let (cpu, _) = on?;
                Asleep {
                    since_ns: first_ns,
                    left: PrevState::Sleeping,
                    cpu: cpu as u32,
                    wake: None,
                }
            }
            _ => return None,
        };
        let was_early =
            |wake: &Wake| asleep.since_ns.saturating_sub(wake.at_ns) <= EARLY_WAKE_MAX_NS;
        let seen = asleep.wake.or(early.filter(was_early));
        let (wake, missing) = if let Some(wake) = seen {
            (wake, None)
        } else {
            let (wake, missing) = self.missing_wakeup(&asleep, now_ns, on?);
            (wake, Some(missing))
        };
        let end_ns = wake.at_ns.max(asleep.since_ns);
        self.live(tid).state = State::Ready { since_ns: end_ns };
        if let Cause::Thread { edge } = wake.cause {
            self.edges[edge as usize].set_used(true);
        }
        let thread = &mut self.threads[ix];
        let wait = thread.waits.len();
        match missing {
            None => {}
            Some(Missing::Placed) => thread.placed_waits += 1,
            Some(Missing::Guessed) => thread.guessed_waits += 1,
            Some(Missing::Doubtful) => thread.doubtful_waits.push(wait as u32),
        }
        thread.steps.push(Step::Wait(wait as u32));
        let settled =
            Wait { start_ns: asleep.since_ns, end_ns, left: asleep.left, cause: wake.cause, hint };
        push_one(&mut thread.waits, settled);
        Some(Settled { wait, missing })
    }

    /// When and by what a thread was woken that runs again without a recorded wakeup, and how well
    /// that is known: at the end of a CPU's idle time; else now, guessed if its CPU was idle or
    /// records are missing; else there may have been no sleep.
    fn missing_wakeup(
        &self,
        asleep: &Asleep,
        now_ns: u64,
        (cpu, entry): (usize, Entry),
    ) -> (Wake, Missing) {
        let slept_on = asleep.cpu as usize;
        let unrecorded =
            |at: usize| self.cpus[at].left_idle_ns.filter(|ended_ns| *ended_ns > asleep.since_ns);
        // If both CPUs were idle, it may have been woken on either, a moment ago.
        let both_idle =
            self.cpus[slept_on].current == Some(0) && entry == Entry::Seen { from_idle: true };
        let elsewhere = || unrecorded(slept_on).filter(|_| !both_idle);
        let interrupt = Cause::Interrupt(Interrupt::Unknown);
        if let Some(at_ns) = unrecorded(cpu).or_else(elsewhere) {
            return (Wake { at_ns: at_ns.min(now_ns), cause: interrupt }, Missing::Placed);
        }
        let was_idle = self.cpus[slept_on].idle_ns.is_some_and(|ns| ns >= asleep.since_ns);
        if was_idle || !entry.is_seen() {
            return (Wake { at_ns: now_ns, cause: interrupt }, Missing::Guessed);
        }
        let unseen = Wake { at_ns: now_ns, cause: Cause::Unseen };
        let lost = self.defects.lost_events > 0;
        (unseen, if lost { Missing::Guessed } else { Missing::Doubtful })
    }

    /// Decides, once all events are read, whether doubtful waits were sleeps: in a recording with
    /// wakeups they were not, and are dropped. Counts the wakeups that are missing.
    pub(super) fn settle_doubtful(&mut self) {
        for thread in &mut self.threads {
            let doubtful = std::mem::take(&mut thread.doubtful_waits);
            if doubtful.is_empty() {
                continue;
            }
            if self.signs.wakeups > 0 {
                // A thread that was not seen before slept since the recording began.
                let after_first =
                    |wait: &&u32| thread.waits[**wait as usize].start_ns > self.first_ns;
                let merged = doubtful.iter().filter(after_first).count() as u64;
                self.defects.merged_waits += merged;
                thread.merged_waits = merged;
                drop_waits(thread, &doubtful);
            } else {
                thread.guessed_waits += doubtful.len() as u64;
            }
        }
        let missing = self.threads.iter().map(|t| t.placed_waits + t.guessed_waits);
        self.defects.unseen_wakeups = missing.sum();
    }
}

/// Removes waits (ascending indices) from a thread, whose steps then run on, and renumbers the
/// others.
fn drop_waits(thread: &mut Thread, dropped: &[u32]) {
    let steps = std::mem::take(&mut thread.steps);
    let mut gone = 0;
    for step in steps.iter() {
        match step {
            Step::Wait(wait) if dropped.get(gone) == Some(&wait) => gone += 1,
            Step::Wait(wait) => thread.steps.push(Step::Wait(wait - gone as u32)),
            Step::Run(ns) => thread.steps.push_run(ns),
            other => thread.steps.push(other),
        }
    }
    let mut ix = 0;
    thread.waits.retain(|_| {
        ix += 1;
        dropped.binary_search(&(ix - 1)).is_err()
    });
}

#[cfg(test)]
mod tests {
    use crate::Defect;
    use crate::event::{Event, Machine, Note, Sink, Stop};
    use crate::perf_data;
    use crate::thread::{Thread, Wait};
    use crate::timeline::{EventCost, Timeline};
    use std::fs::File;
    use std::path::Path;

    /// How far a wakeup may be placed from its recorded time, ns.
    const NEAR_NS: u64 = 100_000;

    /// Drops the events in the idle task's context on CPU 0.
    struct Silent {
        timeline: Timeline,
        silent: bool,
    }

    impl Sink for Silent {
        fn machine(&mut self, machine: Machine) {
            self.timeline.machine(machine);
        }

        fn event(&mut self, event: &Event<'_>) -> Result<(), Stop> {
            if self.silent && event.tid == 0 && event.cpu == 0 {
                return Ok(());
            }
            self.timeline.event(event)
        }

        fn note(&mut self, note: &Note<'_>) {
            self.timeline.note(note);
        }

        fn defect(&mut self, defect: Defect) {
            self.timeline.defect(defect);
        }
    }

    fn read(name: &str, silent: bool) -> Timeline {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(name);
        let timeline = Timeline::new(EventCost::default());
        let mut sink = Silent { timeline, silent };
        perf_data::read(name, File::open(path).unwrap(), &mut sink).unwrap();
        sink.timeline.finish().unwrap();
        sink.timeline
    }

    /// Number of waits, and of those that end elsewhere. Threads whose own events perf does not see
    /// are left out.
    fn moved(name: &str, whole: &Timeline, silent: &Timeline) -> (usize, usize) {
        let (mut waits, mut moved) = (0, 0);
        for thread in whole.threads.iter().filter(|thread| !thread.comm.starts_with("xxx")) {
            let same = |other: &&Thread| (other.tid, &other.comm) == (thread.tid, &thread.comm);
            let found = &silent.threads.iter().find(same).unwrap().waits;
            assert_eq!(thread.waits.len(), found.len(), "{name}: waits of {}", thread.tid);
            waits += found.len();
            let far = |(a, b): &(&Wait, &Wait)| a.end_ns.abs_diff(b.end_ns) > NEAR_NS;
            moved += thread.waits.iter().zip(found).filter(far).count();
        }
        (waits, moved)
    }

    #[test]
    fn wakeups_that_a_silent_cpu_did_not_record_are_found() {
        let placed = |timeline: &Timeline| -> u64 {
            timeline.threads.iter().map(|thread| thread.placed_waits).sum()
        };
        for (name, may_be_off) in
            [("bursts", 0), ("pipeline", 0), ("web-rate", 0), ("web-closed", 3)]
        {
            let name = format!("{name}.perf.data");
            let (whole, silent) = (read(&name, false), read(&name, true));
            let more = placed(&silent) - placed(&whole);
            assert!(more > 80, "{name}: only {more} wakeups are missing");
            let (waits, moved) = moved(&name, &whole, &silent);
            assert!(moved <= may_be_off, "{name}: {moved} of {waits} waits end elsewhere");
        }
    }
}
