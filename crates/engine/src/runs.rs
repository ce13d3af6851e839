//! Many runs of the model on many threads: results in the order of the jobs, whatever the number of
//! threads.

use crate::error::{Error, OtherError};
use cpumax_limit::{Limit, Rules};
use cpumax_machine::kernel::Kernel;
use cpumax_machine::{Error as MachineError, Options};
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::TraceSink;
use cpumax_workload::{GroupIx, Workload};
use rayon::prelude::*;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// One run to be done.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// What runs.
    pub workload: &'a Workload,
    /// A limit that a group of the workload has in this run only, and how long it takes.
    pub what_if: Option<WhatIf>,
    /// On which kernel.
    pub kernel: Kernel,
    /// Seed of every random stream.
    pub seed: u64,
}

/// What is different in one run.
#[derive(Debug, Clone, Copy)]
pub struct WhatIf {
    /// The group that is limited.
    pub group: GroupIx,
    /// Its limit.
    pub limit: Limit,
    /// Length of the run, ns.
    pub duration_ns: u64,
}

/// How to run, whatever is run. Results do not depend on `threads` and `every_tick`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Running {
    /// Verify every invariant of the model after every event. Slow.
    pub check: bool,
    /// Step through ticks that change nothing. Slow.
    pub every_tick: bool,
    /// Let interrupts, switches, sleeps and work take microseconds more or fewer, drawn by this
    /// seed.
    pub noise: Option<u64>,
    /// Threads to use; `None` is one for each CPU.
    pub threads: Option<usize>,
}

/// What is told while runs go on, and asked. All of it may be left out.
pub trait Watch: Sync {
    /// Asked now and then: whether to stop.
    fn stopped(&self) -> bool {
        false
    }

    /// So many runs will be done, which take so long together, ns of simulated time.
    fn planned(&self, _runs: usize, _total_ns: u64) {}

    /// All runs together have come so much further, ns of simulated time.
    fn advanced(&self, _by_ns: u64) {}

    /// A run begins, the one at this place among the jobs: where its events go, if anywhere.
    ///
    /// # Errors
    /// They cannot go there.
    fn trace(&self, _job: usize) -> Result<Option<Box<dyn Trace>>, OtherError> {
        Ok(None)
    }
}

/// Nobody watches.
impl Watch for () {}

/// Takes the events of one run.
pub trait Trace: TraceSink {
    /// The run has come to its end. One that has not is dropped.
    ///
    /// # Errors
    /// The events cannot be written.
    fn done(self: Box<Self>) -> Result<(), OtherError>;
}

impl WhatIf {
    /// The workload as it is in that run.
    ///
    /// # Errors
    /// There is no such group, or in a v1 hierarchy it may not have that limit.
    pub fn apply(self, workload: Workload) -> Result<Workload, Error> {
        // Limits are read by the newest kernel's rules, whichever kernel runs.
        let limited = workload.with_limit(self.group, self.limit, &Rules::NEWEST)?;
        Ok(limited.with_duration(self.duration_ns)?)
    }
}

impl Job<'_> {
    /// Scenario, kernel and seed.
    pub fn name(&self) -> String {
        format!("{} on {} with seed {}", self.workload.name, self.kernel.version, self.seed)
    }

    /// Length of the run, ns.
    pub fn duration_ns(&self) -> u64 {
        self.what_if.map_or(self.workload.duration_ns, |what_if| what_if.duration_ns)
    }

    /// Copied only while it runs: recordings are large.
    fn workload(&self) -> Result<Cow<'_, Workload>, Error> {
        let Some(what_if) = self.what_if else { return Ok(Cow::Borrowed(self.workload)) };
        Ok(Cow::Owned(what_if.apply(self.workload.clone())?))
    }
}

/// Of so many steps of a run is told, at the most.
const STEPS: u64 = 1024;

/// Does all jobs; the results are in their order.
///
/// # Errors
/// Of several the first job's is told.
pub fn all(jobs: &[Job<'_>], running: &Running, watch: &dyn Watch) -> Result<Vec<Outcome>, Error> {
    let threads = running.threads.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Error::Threads { threads, reason: error.to_string() })?;
    let total_ns = jobs.iter().map(Job::duration_ns).fold(0, u64::saturating_add);
    watch.planned(jobs.len(), total_ns);
    let run = |(index, job)| one(index, job, running, watch);
    let results: Vec<Result<Outcome, Error>> =
        pool.install(|| jobs.par_iter().enumerate().map(run).collect());
    results.into_iter().collect()
}

fn one(
    index: usize,
    job: &Job<'_>,
    running: &Running,
    watch: &dyn Watch,
) -> Result<Outcome, Error> {
    let options = Options {
        check: running.check,
        step_every_tick: running.every_tick,
        noise: running.noise,
        ..Options::new(job.kernel, job.seed)
    };
    let mut trace = watch.trace(index).map_err(Error::Trace)?;
    let mut done_ns = 0;
    let step_ns = job.duration_ns() / STEPS;
    let mut report = |now_ns: u64| {
        let by_ns = now_ns.saturating_sub(done_ns);
        if by_ns > step_ns {
            watch.advanced(by_ns);
            done_ns = now_ns;
        }
        if watch.stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let sink = trace.as_deref_mut().map(|trace| trace as &mut dyn TraceSink);
    let workload = job.workload()?;
    let outcome = guarded(|| cpumax_machine::run(&workload, &options, sink, Some(&mut report)));
    let outcome = outcome.map_err(|what| Error::ModelFault { run: job.name(), what })?;
    watch.advanced(job.duration_ns().saturating_sub(done_ns));
    let outcome = outcome.map_err(|error| failure(job, error))?;
    if let Some(trace) = trace {
        trace.done().map_err(Error::Trace)?;
    }
    Ok(outcome)
}

fn failure(job: &Job<'_>, error: MachineError) -> Error {
    match error {
        MachineError::Interrupted(_) => Error::Interrupted,
        error @ MachineError::Invariant { .. } => {
            Error::ModelFault { run: job.name(), what: error.to_string() }
        }
        source => Error::Run { run: job.name(), source },
    }
}

thread_local! {
    /// What the panic on this thread says; `None` while a panic is none of our business.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Turns a panic of the model, whose assertions are always on, into a text with its place.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let kept = PANIC.with_borrow_mut(|slot| {
                slot.as_mut().map(|text| *text = info.to_string().replace('\n', " ")).is_some()
            });
            if !kept {
                before(info);
            }
        }));
    });
    PANIC.set(Some(String::new()));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    let text = PANIC.take().unwrap_or_default();
    result.map_err(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_model_becomes_a_text_with_its_place() {
        assert_eq!(guarded(|| 3), Ok(3));
        let text =
            guarded(|| assert!(std::hint::black_box(false), "the pool is negative")).unwrap_err();
        assert!(text.contains("the pool is negative") && text.contains("runs.rs"), "{text}");
        assert_eq!(guarded(|| 3), Ok(3));
    }
}
