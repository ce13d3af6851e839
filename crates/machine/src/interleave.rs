//! All orders of nearly simultaneous events, tried on small workloads.
//!
//! A run of the model processes events in order of time. Real CPUs are sometimes late: an
//! interrupt waits for an irq-off section, a thread for cache misses. [`explore`] runs a workload
//! once for every way in which events due within a window can overtake each other, up to a number
//! of overtakings, and verifies every invariant after every event. Within these bounds the search
//! is complete.

use crate::events::NEVER;
use crate::machine::Machine;
use crate::{Error, Options};
use cpumax_outcome::Outcome;
use cpumax_workload::Workload;

/// Bounds of the search.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Events due within this time of the first one may come before it, ns.
    pub window_ns: u64,
    /// Most overtakings in one run.
    pub overtakings: u32,
    /// Most runs.
    pub runs: u64,
}

/// Extent of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explored {
    /// Orders tried.
    pub runs: u64,
    /// Events in all runs.
    pub events: u64,
    /// Whether these were all orders within the bounds.
    pub complete: bool,
}

/// An order that violates an invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("run {run}, which took choices {choices:?}: {error}")]
pub struct Found {
    /// Number of the run, from 0.
    pub run: u64,
    /// Index of the event taken at each choice; trailing zeros are omitted.
    pub choices: Vec<u32>,
    /// The violation.
    pub error: Error,
}

/// Runs a workload once for each order of events within the bounds, checking all invariants, until
/// all are done or `bounds.runs` is reached. `verify` checks each outcome.
///
/// # Errors
/// The first order that violates an invariant or fails `verify`.
pub fn explore(
    workload: &Workload,
    options: &Options<'_>,
    bounds: Bounds,
    mut verify: impl FnMut(&Outcome) -> Result<(), String>,
) -> Result<Explored, Found> {
    let options = Options { check: true, ..*options };
    let mut explored = Explored::default();
    let mut order = Order { choices: Vec::new(), choice: 0, bounds };
    loop {
        order.choice = 0;
        let mut machine = Machine::new(workload, &options, None);
        let result = machine.run_in_order(&mut order).and_then(|()| {
            explored.events += machine.events.count;
            let outcome = machine.outcome(&options.kernel);
            verify(&outcome).map_err(|what| Error::Invariant { at_ns: machine.now, what })
        });
        if let Err(error) = result {
            let choices = order.choices.iter().map(|choice| choice.taken).collect::<Vec<_>>();
            let len = choices.iter().rposition(|&taken| taken > 0).map_or(0, |at| at + 1);
            return Err(Found { run: explored.runs, choices: choices[..len].to_vec(), error });
        }
        explored.runs += 1;
        if !order.advance() {
            explored.complete = true;
            return Ok(explored);
        }
        if explored.runs >= bounds.runs {
            return Ok(explored);
        }
    }
}

/// The choices of a run, and the position of the next.
struct Order {
    choices: Vec<Choice>,
    choice: usize,
    bounds: Bounds,
}

struct Choice {
    taken: u32,
    of: u32,
}

impl Order {
    /// Index of the next event, out of `of`: as recorded, or beyond the record 0, which is
    /// recorded.
    fn choose(&mut self, of: u32) -> u32 {
        let at = self.choice;
        self.choice += 1;
        if at == self.choices.len() {
            self.choices.push(Choice { taken: 0, of });
        }
        self.choices[at].taken
    }

    /// Changes the record to the next order, like an odometer, within the bound of overtakings;
    /// false after the last.
    fn advance(&mut self) -> bool {
        while let Some(mut last) = self.choices.pop() {
            let others = self.choices.iter().filter(|choice| choice.taken > 0).count() as u32;
            if last.taken + 1 < last.of && others < self.bounds.overtakings {
                last.taken += 1;
                self.choices.push(last);
                return true;
            }
        }
        false
    }
}

impl Machine<'_> {
    /// Runs the machine to its end like [`crate::Simulation::run`], checking invariants, but
    /// `order` chooses among the events due next.
    ///
    /// # Errors
    /// The first violated invariant or other failure.
    fn run_in_order(&mut self, order: &mut Order) -> Result<(), Error> {
        let end_ns = self.workload.duration_ns;
        let heap = usize::MAX;
        let mut due: Vec<usize> = Vec::new();
        loop {
            let (timer_ns, first) = self.events.timers.next();
            let heap_ns = self.events.heap.next_ns();
            let first_ns = timer_ns.min(heap_ns);
            if first_ns == NEVER || first_ns.max(self.now) > end_ns {
                break;
            }
            due.clear();
            let next = if heap_ns < timer_ns { heap } else { first };
            due.push(next);
            let until_ns = (first_ns + order.bounds.window_ns).min(end_ns);
            let slots = 2 * self.groups.len() + self.cpus.len();
            let others = (0..slots).filter(|&slot| self.events.timers.at(slot) <= until_ns);
            due.extend(others.filter(|&slot| slot != next));
            if heap_ns <= until_ns && next != heap {
                due.push(heap);
            }
            let of = due.len() as u32;
            let chosen = due[if of > 1 { order.choose(of) as usize } else { 0 }];
            let at_ns = if chosen == heap { heap_ns } else { self.events.timers.at(chosen) };
            self.now = self.now.max(at_ns);
            self.process(chosen);
            self.check_invariants();
            if let Some(error) = self.events.failed.take() {
                return Err(error);
            }
        }
        self.now = end_ns;
        self.close();
        Ok(())
    }
}
