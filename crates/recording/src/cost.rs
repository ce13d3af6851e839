//! The CPU time that recording an event took the recorded threads, estimated from the recording
//! itself.
//!
//! Some events follow each other with almost nothing between them: the return from a system call
//! and the entry into the next, or a charge and the switch after it. The time between them is the
//! cost of recording the first, plus the little that the kernel or the program did. The shortest
//! times of each pair of kinds therefore bound the cost, and the least of them is taken. A
//! recording that has measured values keeps those.

use crate::defects::Defect;
use crate::event::{CPUS_MAX, Event, Kind, Machine, Note, Sink, Stop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// CPU time that recording an event takes a traced thread, ns. Subtracted from the CPU time that
/// follows the event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventCost {
    /// For entry into and for exit from a system call, each.
    pub syscall_ns: u32,
    /// For every other event.
    pub other_ns: u32,
}

const EVENTS_EXAMINED: u64 = 200_000;
/// Least number of pairs of a kind for an estimate.
const LEAST: usize = 100;
/// Percentage of the shortest times left out as outliers.
const LEFT_OUT_PERCENT: usize = 2;
/// Least time between two system calls, or within one, ns.
const BETWEEN_CALLS_NS: u64 = 100;
/// Least time that the scheduler takes between two of its events, ns.
const IN_SCHEDULER_NS: u64 = 400;
/// Estimates above this are discarded, ns.
const MOST_NS: u64 = 3_000;
/// Bound on measured values, which may be large on slow virtual machines, ns.
const MEASURED_MOST_NS: u64 = 100_000;

/// Kind of an event, as far as its cost differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventKind {
    Enter,
    Exit,
    Other,
}

/// A sink that examines the first events of a recording.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    events: u64,
    /// Thread, time and kind of the last event, by CPU.
    last: Vec<Option<(i32, u64, EventKind)>>,
    /// Times from an event to the next of the same thread on the same CPU, by kinds of both, ns.
    gaps_ns: [[Vec<u64>; 3]; 3],
    /// Whether all times so far are whole microseconds.
    coarse: bool,
    /// Values in the recording: `measured` before it began, or noted by the recorder at its end
    /// (`told`).
    measured: Option<EventCost>,
    told: Option<EventCost>,
}

impl Probe {
    /// A probe that has seen nothing.
    pub fn new() -> Probe {
        Probe { coarse: true, ..Probe::default() }
    }

    /// The measured cost if there is one. Else the shortest times between events of one thread,
    /// less what the kernel needs anyway, and at least what the recorder noted; only the latter
    /// where times are whole us. 0 where nothing is known.
    pub fn cost(self) -> EventCost {
        if let Some(measured) = self.measured {
            return measured;
        }
        // A recorder that times itself misses the time that the kernel takes to call it.
        let told = self.told.unwrap_or_default();
        if self.coarse {
            return told;
        }
        let [after_enter, after_exit, after_other] = self.gaps_ns;
        let [_, enter_exit, enter_other] = after_enter;
        let [exit_enter, _, exit_other] = after_exit;
        let call = [enter_exit, exit_enter].into_iter().filter_map(shortest_ns);
        let around = [enter_other, exit_other].into_iter().filter_map(shortest_ns);
        let call_ns = cost_of_least(call, BETWEEN_CALLS_NS)
            .or_else(|| cost_of_least(around, IN_SCHEDULER_NS));
        let other = after_other.into_iter().filter_map(shortest_ns);
        EventCost {
            syscall_ns: call_ns.unwrap_or(0).max(told.syscall_ns),
            other_ns: cost_of_least(other, IN_SCHEDULER_NS).unwrap_or(0).max(told.other_ns),
        }
    }
}

/// The cost after the shortest gap: without `native_ns`, the time that passes there anyway. `None`
/// if there is no gap, or the cost is above 3 us.
fn cost_of_least(gaps_ns: impl Iterator<Item = u64>, native_ns: u64) -> Option<u32> {
    let cost_ns = gaps_ns.min()?.saturating_sub(native_ns);
    (cost_ns <= MOST_NS).then_some(cost_ns as u32)
}

/// The shortest time, ns, without the 2 % below it as outliers; `None` for fewer than 100 times.
fn shortest_ns(mut gaps_ns: Vec<u64>) -> Option<u64> {
    if gaps_ns.len() < LEAST {
        return None;
    }
    let at = gaps_ns.len() * LEFT_OUT_PERCENT / 100;
    Some(*gaps_ns.select_nth_unstable(at).1)
}

impl Sink for Probe {
    /// Takes the cost that the recorder measured before it began, or noted at its end.
    fn machine(&mut self, machine: Machine) {
        let ns = |ns: u64| ns.min(MEASURED_MOST_NS) as u32;
        self.measured = machine.about.filter(|about| about.is_cost_measured()).map(|about| {
            EventCost { syscall_ns: ns(about.call_cost_ns), other_ns: ns(about.event_cost_ns) }
        });
        let told = machine.ended.filter(|ended| ended.event_ns > 0);
        let ns = told.and_then(|ended| u32::try_from(ended.event_ns).ok());
        self.told = ns.map(|ns| EventCost { syscall_ns: ns, other_ns: ns });
    }

    /// Takes the time since the CPU's last event of an equal thread. Refuses events after the first
    /// 200 000, and all if the cost was measured.
    fn event(&mut self, event: &Event<'_>) -> Result<(), Stop> {
        self.events += 1;
        if self.events > EVENTS_EXAMINED || self.measured.is_some() {
            return Err(Stop::SeenEnough);
        }
        self.coarse &= event.time_ns.is_multiple_of(1000);
        let kind_of = match event.kind {
            Kind::SysEnter { .. } => EventKind::Enter,
            Kind::SysExit { .. } => EventKind::Exit,
            _ => EventKind::Other,
        };
        if event.cpu >= CPUS_MAX {
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
            self.gaps_ns[before as usize][kind_of as usize].push(event.time_ns - then_ns);
        }
        self.last[cpu] = Some((event.tid, event.time_ns, kind_of));
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
                let at_ns = now_ns / unit_ns * unit_ns;
                let event = Event { tid: 7, kind, ..Event::without_thread(at_ns, 1) };
                probe.event(&event).unwrap();
                // Some take longer.
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
    fn measured_costs_are_kept() {
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
