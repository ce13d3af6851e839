//! Every order in which nearly simultaneous events can come, tried on small workloads.
//!
//! A run of the model takes events in order of time. Real CPUs are late now and then: an interrupt
//! waits for a section that has interrupts off, a thread for its own cache misses. [`explore`] runs
//! a workload once for every way in which events due within a window of each other can overtake
//! each other, up to a number of overtakings, and verifies every invariant after every event. What
//! it does not find within these bounds does not exist within them.

use crate::events::NEVER;
use crate::machine::Machine;
use crate::{Error, Options};
use cpumax_outcome::Outcome;
use cpumax_workload::Workload;

/// How far to look.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Events due within that time of the first one may come before it, ns.
    pub window_ns: u64,
    /// Most overtakings in one run.
    pub overtakings: u32,
    /// Most runs.
    pub runs: u64,
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Explored {
    /// Orders tried.
    pub runs: u64,
    /// Events in all of them.
    pub events: u64,
    /// Whether these were all orders within the bounds.
    pub complete: bool,
}

/// An order that broke something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("run {run}, which took choices {choices:?}: {error}")]
pub struct Found {
    /// Number of the run, from 0.
    pub run: u64,
    /// Which of the events that could come did, at each event that had a choice; trailing zeros
    /// left out.
    pub choices: Vec<u32>,
    /// What broke.
    pub error: Error,
}

/// Runs a workload in every order within the bounds. `verify` looks at each outcome and says what
/// is wrong with it, if anything.
///
/// # Errors
/// The first order that breaks an invariant or displeases `verify`.
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
            explored.events += machine.events;
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

/// A run's choices so far, and which comes next.
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
    /// Which of `of` events comes: what the script says, beyond its end the first.
    fn choose(&mut self, of: u32) -> u32 {
        let at = self.choice;
        self.choice += 1;
        if at == self.choices.len() {
            self.choices.push(Choice { taken: 0, of });
        }
        self.choices[at].taken
    }

    /// The next script, in the order of an odometer; false after the last.
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
    /// As [`crate::Simulation::run`], but of the events due next one is chosen.
    fn run_in_order(&mut self, order: &mut Order) -> Result<(), Error> {
        let end_ns = self.workload.duration_ns;
        let heap = usize::MAX;
        let mut due: Vec<usize> = Vec::new();
        loop {
            let (timer_ns, first) = self.timers.next();
            let heap_ns = self.heap.next_ns();
            let first_ns = timer_ns.min(heap_ns);
            if first_ns == NEVER || first_ns.max(self.now) > end_ns {
                break;
            }
            due.clear();
            let next = if heap_ns < timer_ns { heap } else { first };
            due.push(next);
            let until_ns = (first_ns + order.bounds.window_ns).min(end_ns);
            let slots = 2 * self.groups.len() + self.cpus.len();
            let others = (0..slots).filter(|&slot| self.timers.at(slot) <= until_ns);
            due.extend(others.filter(|&slot| slot != next));
            if heap_ns <= until_ns && next != heap {
                due.push(heap);
            }
            let of = due.len() as u32;
            let chosen = due[if of > 1 { order.choose(of) as usize } else { 0 }];
            let at_ns = if chosen == heap { heap_ns } else { self.timers.at(chosen) };
            self.now = self.now.max(at_ns);
            self.process(chosen);
            self.check_invariants();
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
        }
        self.now = end_ns;
        self.close();
        Ok(())
    }
}
