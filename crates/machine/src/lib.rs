//! The model: a deterministic, executable model of the Linux fair class with every generation of
//! CPU bandwidth control. A pure function of a workload, a kernel and a seed.

mod bandwidth;
mod births;
mod build;
mod calls;
mod cfs_rq;
mod channel;
mod check;
mod choice;
mod cost;
mod cpu;
mod delays;
mod events;
mod explain;
mod fair;
mod faults;
mod gather;
mod group;
mod hung;
mod ids;
pub mod interleave;
mod interval;
mod job;
pub mod kernel;
mod lab;
mod latency;
mod lock;
mod locking;
mod machine;
mod measure;
mod moves;
mod outside;
mod pelt;
mod program;
mod realtime;
mod rules;
mod schedule;
mod se;
mod settings;
mod settle;
mod signal;
mod simulation;
mod spin;
mod state;
mod step;
mod task;
mod threadgroup;
mod tick;
mod timeline;
mod wakees;
mod watch;
mod windows;

#[cfg(feature = "faults")]
pub use faults::Fault;

pub use choice::{Choice, Other, Question};
pub use kernel::named;
pub use simulation::Simulation;
pub use state::{CpuState, Doing, GroupState, TaskState};
pub use step::{Call, Delaying, Delays, Step, Told};
pub use watch::{COST_AS_IT_SAYS, Watch, Watched};

use cpumax_outcome::{Conditions, Outcome, trace::TraceSink};
use cpumax_workload::Workload;
use std::ops::ControlFlow;

/// Options of a run.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The kernel whose rules apply.
    pub kernel: kernel::Kernel,
    /// Seed of every random stream.
    pub seed: u64,
    /// Verify every invariant after every event. Slow.
    pub check: bool,
    /// Process every tick, also those that change nothing. Slow; the result is the same.
    pub step_every_tick: bool,
    /// Conditions observed in a run on a real kernel, with which this run is to be compared. They
    /// take precedence over the workload, the kernel's rules and random draws.
    pub observed: Option<&'a Conditions>,
    /// Late interrupts, switches that take time, and work that takes slightly more or less than
    /// written. `None`: none of these.
    pub delays: Option<&'a dyn Delaying>,
    /// Where the workload has a `timer_phase`, from 6.4 on: each limited group's period timer fires
    /// so much later than that of the limited group before it, ns.
    pub timers_apart_ns: u64,
}

impl Options<'_> {
    /// Options without checks, observed conditions or delays.
    #[must_use]
    pub const fn new(kernel: kernel::Kernel, seed: u64) -> Self {
        Options {
            kernel,
            seed,
            check: false,
            step_every_tick: false,
            observed: None,
            delays: None,
            timers_apart_ns: 0,
        }
    }
}

/// Why a run could not be completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's progress function asked to stop.
    #[error("interrupted at {0} ns of simulated time")]
    Interrupted(u64),
    /// A program loops without using any time.
    #[error("task '{task}' loops at {at_ns} ns without using any time")]
    Livelock {
        /// Name of the task's kind.
        task: String,
        /// When, ns.
        at_ns: u64,
    },
    /// Too many tokens are scheduled for later (`after`).
    #[error(
        "more than {MAX_TOKENS_DUE} tokens are scheduled for later at {at_ns} ns: `after` is \
         executed faster than its tokens arrive"
    )]
    TooManyDue {
        /// When, ns.
        at_ns: u64,
    },
    /// Too many tokens wait in channels.
    #[error(
        "more than {MAX_TOKENS_WAITING} tokens wait in channels at {at_ns} ns; give the channel a \
         `capacity`, or make the source `lossy`"
    )]
    TooManyWaiting {
        /// When, ns.
        at_ns: u64,
    },
    /// Too many forked tasks live at once.
    #[error(
        "more than {MAX_LIVING} tasks are alive at {at_ns} ns: '{task}' is forked faster than its \
         tasks exit"
    )]
    TooManyLive {
        /// Name of the kind that is forked.
        task: String,
        /// When, ns.
        at_ns: u64,
    },
    /// An invariant of the model is violated (`check` only). This is a bug of the model: please
    /// report it.
    #[error("invariant broken at {at_ns} ns: {what}")]
    Invariant {
        /// When, ns.
        at_ns: u64,
        /// The invariant, and where it is violated.
        what: String,
    },
}

/// Most tokens that may be scheduled for later at once ([`cpumax_workload::Op::After`]).
pub const MAX_TOKENS_DUE: usize = 1_000_000;

/// Most tokens that may wait in all channels at once. Equal tokens that arrive together count as
/// one.
pub const MAX_TOKENS_WAITING: usize = 1 << 23;

/// Most tasks that may live at once in a workload that forks.
pub const MAX_LIVING: usize = 1_000_000;

/// Called every few hundred events with the simulated time reached, ns; may stop the run.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// Runs a workload to its end in the model and returns the outcome. Events go to `trace`;
/// `progress` is called every few hundred events.
///
/// # Errors
/// See [`Error`].
pub fn run<'a>(
    workload: &'a Workload,
    options: &Options<'a>,
    trace: Option<&'a mut dyn TraceSink>,
    progress: Option<Progress<'_>>,
) -> Result<Outcome, Error> {
    let mut simulation = Simulation::new(workload, options, trace);
    simulation.run(progress)?;
    Ok(simulation.outcome())
}

/// Runs a workload and measures one group ([`Watch`]); returns the outcome and these measurements.
/// With [`Watch::until_done`] the run may end before the workload does.
///
/// # Errors
/// See [`Error`].
pub fn watch<'a>(
    workload: &'a Workload,
    options: &Options<'a>,
    watch: Watch,
    trace: Option<&'a mut dyn TraceSink>,
    progress: Option<Progress<'_>>,
) -> Result<(Outcome, Watched), Error> {
    let mut simulation = Simulation::new(workload, options, trace).watching(watch);
    simulation.run(progress)?;
    Ok(simulation.finish())
}

/// Runs a workload up to the scheduling decision that `question` names, and returns why the CPU
/// chose that task; `None` if the decision never comes.
///
/// # Errors
/// See [`Error`].
pub fn explain<'a>(
    workload: &'a Workload,
    options: &Options<'a>,
    question: Question,
    progress: Option<Progress<'_>>,
) -> Result<Option<Choice>, Error> {
    let mut simulation = Simulation::new(workload, options, None);
    simulation.machine.probes.question = Some((question, None));
    simulation.run(progress)?;
    Ok(simulation.machine.probes.question.and_then(|(_, answer)| answer))
}
