//! A run under way: the loop that advances time, which can stop anywhere and be inspected.

use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::state::{CpuState, GroupState, TaskState};
use crate::watch::{Watch, Watched};
use crate::{Error, Options, Progress};
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::TraceSink;
use cpumax_workload::Workload;
use std::fmt;

/// On large machines one event may take milliseconds.
const EVENTS_BETWEEN_REPORTS: u64 = 256;

/// A run of a workload on a kernel, under way. It can be stopped at any event or time, inspected,
/// and continued; this does not change the outcome.
///
/// ```
/// use cpumax_machine::{Doing, Options, Simulation, kernel};
///
/// let text = r#"
///     duration = "1s"
///     [[group]]
///     path = "/limited"
///     max = "20000 100000"
///     [[task]]
///     name = "hog"
///     group = "/limited"
///     program = [{ forever = [{ user = "1ms" }] }]
/// "#;
/// let workload = cpumax_workload::parse(text, "hog.toml")?;
/// let kernel = kernel::parse_kernels("6.18")?[0];
/// let mut simulation = Simulation::new(&workload, &Options::new(kernel, 1), None);
///
/// // The hog runs until its group has used up 20 ms.
/// simulation.step_until(10_000_000)?;
/// assert_eq!(simulation.cpu(0).unwrap().running.as_deref(), Some("hog"));
/// assert_eq!(simulation.group("/limited").unwrap().usage_ns, 10_000_000);
///
/// while simulation.task("hog").unwrap().doing != Doing::Throttled {
///     assert!(simulation.step()?, "it is throttled before the run is over");
/// }
/// let used_up_ns = simulation.now();
/// assert!((20_000_000..25_000_000).contains(&used_up_ns), "{used_up_ns}");
/// assert_eq!(simulation.group("/limited").unwrap().throttled_cpus, [0]);
///
/// simulation.run(None)?;
/// assert_eq!(simulation.now(), 1_000_000_000);
/// assert!(simulation.outcome().groups["/limited"].nr_throttled >= 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Simulation<'a> {
    pub(crate) machine: Machine<'a>,
    kernel: Kernel,
    end_ns: u64,
    /// No more events will be processed.
    is_over: bool,
}

impl fmt::Debug for Simulation<'_> {
    /// Shows workload, kernel and time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("workload", &self.machine.workload.name)
            .field("kernel", &self.kernel.version.to_string())
            .field("now_ns", &self.machine.now)
            .finish_non_exhaustive()
    }
}

impl<'a> Simulation<'a> {
    /// The machine at time 0, before any event. `trace` receives every event of interest, and from
    /// [`Simulation::outcome`] the names behind its numbers.
    pub fn new(
        workload: &'a Workload,
        options: &Options<'a>,
        trace: Option<&'a mut dyn TraceSink>,
    ) -> Simulation<'a> {
        let mut machine = Machine::new(workload, options, trace);
        let end_ns = machine.lab.end_ns(workload.duration_ns);
        Simulation { machine, kernel: options.kernel, end_ns, is_over: false }
    }

    /// The simulation, which from now on also measures one group. The run may then end before the
    /// workload does, see [`Watch::until_done`].
    pub(crate) fn watching(mut self, watch: Watch) -> Simulation<'a> {
        self.machine.start_watching(watch);
        self
    }

    /// Time since the start of the run, ns.
    pub fn now(&self) -> u64 {
        self.machine.now
    }

    /// Processes the next event and all that follows from it at the same time. False if nothing is
    /// left to do: the run is over, and time stands at its end.
    ///
    /// # Errors
    /// See [`Error`]; a run that failed stays where it is.
    pub fn step(&mut self) -> Result<bool, Error> {
        self.check_failed()?;
        let goes_on = !self.is_over && self.next(self.end_ns);
        self.check_failed()?;
        if !goes_on {
            self.machine.now = self.end_ns;
        }
        Ok(goes_on)
    }

    /// Processes everything due up to `at_ns` (since the start, inclusive). Time is then `at_ns`,
    /// or the end of the run if that is earlier. A time in the past changes nothing. False when
    /// the run is over.
    ///
    /// # Errors
    /// See [`Simulation::step`].
    pub fn step_until(&mut self, at_ns: u64) -> Result<bool, Error> {
        self.check_failed()?;
        while !self.is_over && self.next(at_ns.min(self.end_ns)) {}
        self.check_failed()?;
        self.machine.now = self.machine.now.max(at_ns.min(self.end_ns));
        Ok(!self.is_over && self.machine.now < self.end_ns)
    }

    /// Runs to the end. `progress` is called every few hundred events with the time reached; a run
    /// that it interrupts can be continued.
    ///
    /// # Errors
    /// See [`Simulation::step`], and [`Error::Interrupted`].
    pub fn run(&mut self, mut progress: Option<Progress<'_>>) -> Result<(), Error> {
        self.check_failed()?;
        let end_ns = self.end_ns;
        let mut tell_at = self.machine.events.count + EVENTS_BETWEEN_REPORTS;
        while !self.is_over && self.next(end_ns) {
            // Several events may have happened at once.
            if self.machine.events.count >= tell_at {
                tell_at = self.machine.events.count + EVENTS_BETWEEN_REPORTS;
                if let Some(progress) = progress.as_mut()
                    && progress(self.machine.now).is_break()
                {
                    return Err(Error::Interrupted(self.machine.now));
                }
            }
        }
        self.check_failed()?;
        self.machine.now = self.end_ns;
        Ok(())
    }

    /// Processes the next event if it is due by `until_ns`, and checks invariants if asked for;
    /// notes when the run is over or has failed. False if no event is due.
    #[expect(clippy::inline_always, reason = "it is the body of the loop that a run is")]
    #[inline(always)]
    fn next(&mut self, until_ns: u64) -> bool {
        let machine = &mut self.machine;
        let (timer_ns, slot) = machine.events.timers.next();
        let heap_ns = machine.events.heap.next_ns();
        let next_ns = timer_ns.min(heap_ns);
        if next_ns > until_ns {
            return false;
        }
        debug_assert!(next_ns >= machine.now, "time runs backwards to {next_ns}, slot {slot}");
        machine.now = next_ns;
        machine.process(if heap_ns < timer_ns { usize::MAX } else { slot });
        if machine.settings.check && machine.events.failed.is_none() {
            machine.check_invariants();
        }
        let is_watched =
            || machine.probes.watching.as_ref().is_some_and(|watching| watching.is_over());
        if machine.events.failed.is_some() || is_watched() {
            (self.is_over, self.end_ns) = (true, machine.now);
        }
        true
    }

    /// Fails with the error of a run that has failed; changes nothing.
    fn check_failed(&self) -> Result<(), Error> {
        self.machine.events.failed.clone().map_or(Ok(()), Err)
    }

    /// State of the group with this path, such as `/a/b`; `None` if there is none.
    pub fn group(&self, path: &str) -> Option<GroupState> {
        self.machine.group_state(path)
    }

    /// State of a CPU, counted from 0; `None` if the machine has fewer.
    pub fn cpu(&self, cpu: u16) -> Option<CpuState> {
        self.machine.cpu_state(cpu)
    }

    /// State of the task with this name; `None` if it has not been started. The name is that of its
    /// kind or, for a kind with several tasks, with their number from 0: `worker/3`. Of forked
    /// tasks that share a name it is the first alive. Exited tasks are forgotten after a while.
    pub fn task(&self, name: &str) -> Option<TaskState> {
        self.machine.task_state(name)
    }

    /// The outcome of the run so far; the run ends here.
    pub fn outcome(self) -> Outcome {
        self.finish().0
    }

    /// The outcome of the run so far, and the measurements of the watched group; the run ends here.
    pub(crate) fn finish(mut self) -> (Outcome, Watched) {
        self.machine.close();
        let watched = self.machine.watched().unwrap_or_default();
        (self.machine.outcome(&self.kernel), watched)
    }

    /// The machine at the end of the run.
    #[cfg(test)]
    pub(crate) fn ended(workload: &'a Workload, options: &Options<'a>) -> Machine<'a> {
        let mut simulation = Simulation::new(workload, options, None);
        simulation.run(None).unwrap_or_else(|error| panic!("{}: {error}", workload.name));
        simulation.machine.close();
        simulation.machine
    }
}
