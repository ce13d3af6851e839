//! What it cost the recorded threads that their events were recorded, from the recording itself.
//!
//! Some events follow each other with next to nothing between them: the return from one system call
//! and the entry into the next, a charge of CPU time and the switch that it is made for. The time
//! from the first to the second is what recording the first took, and the little that the kernel or
//! the program did between. So of each kind of neighbours the shortest times tell, the least of
//! them best. A recording that tells what was measured is taken at its word.

use crate::defects::Defect;
use crate::event::{Enough, Event, Kind, Machine, Note, Sink};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What it costs a traced thread that an event is recorded, ns. Taken off the CPU time that follows
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventCost {
    /// For entry into and for exit from a system call, each.
    pub syscall_ns: u32,
    /// For every other event.
    pub other_ns: u32,
}

/// So many events are looked at.
const EVENTS: u64 = 200_000;
/// Fewer neighbours of a kind say nothing.
const LEAST: usize = 100;
/// The shortest may be odd ones: this many of a hundred are left out.
const LEFT_OUT_PERCENT: usize = 2;
/// What happens between two system calls at least, or in one, ns.
const BETWEEN_CALLS_NS: u64 = 100;
/// What the scheduler does between two of its events at least, ns.
const IN_SCHEDULER_NS: u64 = 400;
/// Recording an event takes less than that, ns; what is found to be more is something else.
const MOST_NS: u64 = 3_000;
/// The same of what was measured, where virtual machines are slow, ns.
const MEASURED_MOST_NS: u64 = 100_000;

/// What kind of event it is, as far as that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Enter,
    Exit,
    Other,
}

/// Looks at the first events of a recording.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    events: u64,
    /// By CPU: thread, time and sort of its last event.
    last: Vec<Option<(i32, u64, Sort)>>,
    /// Times from an event to the next of the same thread on the same CPU, by sorts of both, ns.
    gaps_ns: [[Vec<u64>; 3]; 3],
    /// All times are whole microseconds so far.
    coarse: bool,
    /// What the recording itself says: what was measured before it began, or what the recorder saw
    /// of it.
    measured: Option<EventCost>,
    told: Option<EventCost>,
}

impl Probe {
    pub fn new() -> Probe {
        Probe { coarse: true, ..Probe::default() }
    }

    /// What was found; nothing where times are too coarse to tell.
    pub fn cost(self) -> EventCost {
        if let Some(measured) = self.measured {
            return measured;
        }
        // A recorder that times itself does not see what the kernel takes to call it.
        let told = self.told.unwrap_or_default();
        if self.coarse {
            return told;
        }
        let [after_enter, after_exit, after_other] = self.gaps_ns;
        let [_, enter_exit, enter_other] = after_enter;
        let [exit_enter, _, exit_other] = after_exit;
        let call = [enter_exit, exit_enter].into_iter().filter_map(shortest_ns);
        let around = [enter_other, exit_other].into_iter().filter_map(shortest_ns);
        let call_ns = least(call, BETWEEN_CALLS_NS).or_else(|| least(around, IN_SCHEDULER_NS));
        let other = after_other.into_iter().filter_map(shortest_ns);
        EventCost {
            syscall_ns: call_ns.unwrap_or(0).max(told.syscall_ns),
            other_ns: least(other, IN_SCHEDULER_NS).unwrap_or(0).max(told.other_ns),
        }
    }
}

fn least(gaps_ns: impl Iterator<Item = u64>, native_ns: u64) -> Option<u32> {
    let cost_ns = gaps_ns.min()?.saturating_sub(native_ns);
    (cost_ns <= MOST_NS).then_some(cost_ns as u32)
}

/// The shortest of many, odd ones left out.
fn shortest_ns(mut gaps_ns: Vec<u64>) -> Option<u64> {
    if gaps_ns.len() < LEAST {
        return None;
    }
    let at = gaps_ns.len() * LEFT_OUT_PERCENT / 100;
    Some(*gaps_ns.select_nth_unstable(at).1)
}

impl Sink for Probe {
    fn machine(&mut self, machine: Machine) {
        let ns = |ns: u64| ns.min(MEASURED_MOST_NS) as u32;
        self.measured = machine.about.filter(|about| about.is_cost_measured()).map(|about| {
            EventCost { syscall_ns: ns(about.call_cost_ns), other_ns: ns(about.event_cost_ns) }
        });
        let told = machine.ended.filter(|ended| ended.event_ns > 0);
        let ns = told.and_then(|ended| u32::try_from(ended.event_ns).ok());
        self.told = ns.map(|ns| EventCost { syscall_ns: ns, other_ns: ns });
    }

    /// Refuses what comes after enough of them.
    fn event(&mut self, event: &Event<'_>) -> Result<(), Enough> {
        self.events += 1;
        if self.events > EVENTS || self.measured.is_some() {
            return Err(Enough::Seen);
        }
        self.coarse &= event.time_ns.is_multiple_of(1000);
        let sort = match event.kind {
            Kind::SysEnter { .. } => Sort::Enter,
            Kind::SysExit { .. } => Sort::Exit,
            _ => Sort::Other,
        };
        if event.cpu >= crate::timeline::CPUS_MAX {
            return Ok(());
        }
        let cpu = event.cpu as usize;
        if cpu >= self.last.len() {
            self.last.resize(cpu + 1, None);
        }
        if let Some((tid, then_ns, before)) = self.last[cpu]
            && tid == event.tid
            && tid > 0
            && event.time_ns > then_ns
        {
            self.gaps_ns[before as usize][sort as usize].push(event.time_ns - then_ns);
        }
        self.last[cpu] = Some((event.tid, event.time_ns, sort));
        Ok(())
    }

    fn note(&mut self, _note: &Note<'_>) {}

    fn defect(&mut self, _defect: Defect) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of one thread: `inside_ns` in each, `between_ns` from one to the next, counted from
    /// event to event.
    fn calls(inside_ns: u64, between_ns: u64, unit_ns: u64) -> EventCost {
        let mut probe = Probe::new();
        let mut now_ns = 5_001;
        for round in 0..400u64 {
            for (kind, ns) in [
                (Kind::SysEnter { number: 1, args: [0; 6] }, inside_ns),
                (Kind::SysExit { result: 0 }, between_ns),
            ] {
                let event = Event {
                    time_ns: now_ns / unit_ns * unit_ns,
                    cpu: 1,
                    tid: 7,
                    pid: None,
                    comm: None,
                    cgroup: None,
                    context: None,
                    kind,
                };
                probe.event(&event).unwrap();
                // Some take longer, for reasons of their own.
                now_ns += ns + round % 7 * 13;
            }
        }
        probe.cost()
    }

    #[test]
    fn the_shortest_time_between_events_tells_what_one_takes() {
        assert_eq!(calls(1_400, 900, 1).syscall_ns, 800);
        assert_eq!(calls(700, 9_000, 1).syscall_ns, 600);
        assert_eq!(calls(80, 90, 1).syscall_ns, 0);
    }

    #[test]
    fn what_was_measured_is_taken_at_its_word() {
        let mut probe = Probe::new();
        let mut about = crate::about::About::default();
        (about.call_cost_ns, about.event_cost_ns) = (150, u64::MAX);
        probe.machine(Machine { about: Some(Box::new(about)), ..Machine::default() });
        assert_eq!(probe.cost(), EventCost { syscall_ns: 150, other_ns: 100_000 });
    }

    #[test]
    fn nothing_is_claimed_where_nothing_can_be_known() {
        assert_eq!(calls(1_400, 900, 1000), EventCost::default(), "whole microseconds");
        assert_eq!(calls(50_000, 40_000, 1).syscall_ns, 0, "nothing is close to each other");
        assert_eq!(Probe::new().cost(), EventCost::default());
    }
}
