//! Refuses recordings whose contents no machine can produce: nothing that follows from them can be
//! believed.

use super::Timeline;
use crate::thread::Thread;
use crate::tracepoint::RECORD_WITH;

/// Up to this number faults are accepted.
const FEW: u64 = 20;
/// One in so many switches may be missing; one in so many records may be unreadable.
const SWITCHES_PER_MISSING: u64 = 4;
const RECORDS_PER_UNREADABLE: u64 = 20;
/// CPU time is charged by another clock than that of the recording. It may exceed the elapsed time
/// by one part in so many, and so many ns.
const CLOCKS_DIFFER_ONE_IN: u64 = 100;
const CLOCKS_DIFFER_NS: u64 = 10_000_000;

impl Timeline {
    /// The first contradiction found, as a text for an error; `None` if there is none. Called when
    /// all events are read.
    pub(super) fn refusal(&mut self) -> Option<String> {
        if let Some(refused) = self.refused.take() {
            return Some(refused);
        }
        if self.events == 0 {
            return Some(format!("it holds no events; {RECORD_WITH}"));
        }
        self.other_ids()
            .or_else(|| self.no_sleep())
            .or_else(|| self.missing_records())
            .or_else(|| self.too_much())
    }

    /// The reason to refuse a recording in which more than 20 switches, and half of all, name
    /// another thread than the one in whose context they happened; else `None`.
    fn other_ids(&self) -> Option<String> {
        let (other, all) = (self.other_ids, self.signs.switches);
        (other > FEW && other > all / 2).then(|| {
            format!(
                "in {other} of {all} thread switches perf and the event name different threads: it \
                 was recorded in a container, which has ids of its own (record on the host), or \
                 printed with processes for threads (print it with `perf script -F \
                 comm,pid,tid,cpu,time,event,trace`)"
            )
        })
    }

    /// The reason to refuse a recording without reasons of switches: of more than 20 none puts a
    /// thread to sleep, but more than 20 wakeups are recorded. Else `None`.
    fn no_sleep(&self) -> Option<String> {
        let (sleeps, wakeups) = (self.sleeps, self.signs.wakeups);
        (sleeps == 0 && wakeups > FEW && self.signs.switches > FEW).then(|| {
            format!(
                "threads are woken {wakeups} times, but none of {} switches puts one to sleep: it \
                 lacks the reasons of switches (as traces of systing do); {RECORD_WITH}",
                self.signs.switches
            )
        })
    }

    /// The reason to refuse a recording: more than 20 switches are missing, which is a quarter of
    /// those recorded, or more than 20 records are unreadable, which is a twentieth. Else `None`.
    fn missing_records(&self) -> Option<String> {
        let missing = self.defects.mismatched_switches;
        if missing > FEW && missing > self.signs.switches / SWITCHES_PER_MISSING {
            return Some(format!(
                "{missing} thread switches are missing beside {} recorded ones: it holds one \
                 process only, or a sample; {RECORD_WITH}",
                self.signs.switches
            ));
        }
        let unreadable = self.defects.unreadable_records;
        if unreadable > FEW && unreadable > (self.events + unreadable) / RECORDS_PER_UNREADABLE {
            return Some(format!(
                "{unreadable} of {} records cannot be read; {RECORD_WITH}",
                self.events + unreadable
            ));
        }
        None
    }

    /// The reason to refuse a recording: a thread, or all together, used more CPU time than the
    /// elapsed time and the CPUs allow, with 1 % and 10 ms for clocks that differ. Else `None`.
    fn too_much(&self) -> Option<String> {
        let span_ns = self.last_ns - self.first_ns;
        let slack_ns = CLOCKS_DIFFER_NS + span_ns / CLOCKS_DIFFER_ONE_IN;
        let most_ns = span_ns.saturating_add(slack_ns);
        let most = self.threads.iter().max_by_key(|thread| thread.runtime_ns)?;
        if most.runtime_ns > most_ns {
            return Some(format!(
                "the thread {}/{} used {} ns of CPU time in {span_ns} ns; no thread can",
                shown(most),
                most.tid,
                most.runtime_ns
            ));
        }
        let used_ns = self.threads.iter().fold(0_u64, |sum, t| sum.saturating_add(t.runtime_ns));
        let cpus = self.cpus_seen().len() as u64;
        (used_ns > most_ns.saturating_mul(cpus)).then(|| {
            format!(
                "its threads used {used_ns} ns of CPU time on {cpus} CPUs in {span_ns} ns, more \
                 than there is"
            )
        })
    }
}

/// The name of a thread without control characters.
fn shown(thread: &Thread) -> String {
    thread.comm.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
