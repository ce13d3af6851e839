//! The model as a world: many runs on many threads.

use super::{Each, World};
use crate::error::Error;
use crate::job::{Job, NamedKernel};
use crate::report::Report;
use crate::watch::Watch;
use cpumax_machine::{Delaying, Error as MachineError, Options};
use cpumax_noise::Microseconds;
use cpumax_outcome::trace::TraceSink;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, Once, PoisonError, mpsc};
use std::thread;

/// For each thread, so many results may wait for an earlier one.
const AHEAD: usize = 8;
/// Most progress reports of a run.
const STEPS: u64 = 1024;

/// Options of runs. Results do not depend on `threads` and `every_tick`.
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

impl Running {
    /// Lowers the number of threads to at most `threads`; at least one remains.
    #[must_use]
    pub fn at_most(self, threads: usize) -> Running {
        Running { threads: Some(self.threads().min(threads.max(1))), ..self }
    }

    /// Number of threads to use: as asked, or one for each CPU.
    pub fn threads(self) -> usize {
        let here = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(here)
    }
}

/// The model of every kernel. A broken invariant, where they are checked, is an error.
///
/// ```
/// use cpumax_study::{Model, Running, Study, scenario, world};
///
/// let running = Running { check: true, threads: Some(2), ..Running::default() };
/// let jobs = Study::new(scenario::load("nested")?).with_seeds(1..=4).jobs();
/// let reports = world::all(&Model { running }, &jobs, &())?;
/// assert_eq!(reports.len(), 4);
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Model {
    /// Options of its runs.
    pub running: Running,
}

impl World for Model {
    fn label(&self, kernel: &NamedKernel) -> Result<String, Error> {
        Ok(format!("model {}", kernel.kernel.version))
    }

    fn is_real(&self) -> bool {
        false
    }

    /// Runs the jobs on several threads, and hands each result to `each` in order; results do not
    /// depend on the number of threads. An error only if a thread cannot be started.
    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), Error> {
        watch.planned(jobs);
        let threads = self.running.threads().min(jobs.len()).max(1);
        let turns = Turns::new(jobs.len(), AHEAD * threads);
        let (done, results) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let (done, turns) = (done.clone(), &turns);
                let work = move || {
                    while let Some(index) = turns.next() {
                        let report = self.run_job(index, &jobs[index], turns, watch);
                        if done.send((index, report)).is_err() {
                            break;
                        }
                    }
                };
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                    turns.stop();
                    return Err(Error::Threads { threads, reason: error.to_string() });
                }
            }
            drop(done);
            hand_over(&results, &turns, each);
            Ok(())
        })
    }
}

/// Hands results to `each` in the order of the jobs, until it breaks or all are done; then no
/// further job begins.
fn hand_over(
    results: &mpsc::Receiver<(usize, Result<Report, Error>)>,
    turns: &Turns,
    each: Each<'_>,
) {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    for (index, report) in results {
        waiting.insert(index, report);
        while let Some(report) = waiting.remove(&next) {
            if each(next, report).is_break() {
                turns.stop();
                return;
            }
            next += 1;
            turns.hand_over();
        }
    }
}

impl Model {
    /// Runs one job on this thread; reports progress and feeds its trace. [`Error::Interrupted`]
    /// early when `turns` or `watch` is stopped; other errors are of the workload, the run and the
    /// trace.
    fn run_job(
        &self,
        index: usize,
        job: &Job,
        turns: &Turns,
        watch: &dyn Watch,
    ) -> Result<Report, Error> {
        let noise = job.noise.clone().or(self.running.noise.map(Microseconds::of));
        let options = self.options(job, noise.as_ref());
        // Short runs may end without asking the caller again.
        if watch.stopped() {
            return Err(Error::Interrupted);
        }
        let workload = job.workload()?;
        let mut trace = watch.trace(index).map_err(Error::Trace)?;
        let mut done_ns = 0;
        let step_ns = job.duration_ns() / STEPS;
        let mut report = |now_ns: u64| {
            let by_ns = now_ns.saturating_sub(done_ns);
            if by_ns > step_ns {
                watch.advanced(by_ns);
                done_ns = now_ns;
            }
            let stop = watch.stopped() || turns.is_stopped();
            if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let sink = trace.as_deref_mut().map(|trace| trace as &mut dyn TraceSink);
        let run = || match job.watch {
            None => cpumax_machine::run(&workload, &options, sink, Some(&mut report))
                .map(|outcome| (outcome, None)),
            Some(of) => cpumax_machine::watch(&workload, &options, of, sink, Some(&mut report))
                .map(|(outcome, watched)| (outcome, Some(watched))),
        };
        let outcome = guarded(run).and_then(|outcome| outcome.map_err(Stopped::of));
        watch.advanced(job.duration_ns().saturating_sub(done_ns));
        let (outcome, watched) = outcome.map_err(|stopped| stopped.of_job(job))?;
        if let Some(trace) = trace {
            trace.done().map_err(Error::Trace)?;
        }
        let lacks = crate::lacks(&workload, job.kernel.kernel);
        Ok(Report::of_model(outcome, watched, (job.observed.as_deref().cloned(), lacks)))
    }

    /// Options of the model for a job with this noise.
    pub fn options<'a>(&self, job: &'a Job, noise: Option<&'a Microseconds>) -> Options<'a> {
        Options {
            check: self.running.check,
            step_every_tick: self.running.every_tick,
            observed: job.observed.as_deref(),
            delays: noise.map(|noise| noise as &dyn Delaying),
            timers_apart_ns: job.what_if.as_ref().map_or(0, |what_if| what_if.apart_ns),
            ..Options::new(job.kernel.kernel, job.seed)
        }
    }
}

/// Distributes jobs to threads, and limits how far results run ahead of the caller.
struct Turns {
    jobs: usize,
    ahead: usize,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Default)]
struct State {
    next: usize,
    handed_over: usize,
    stopped: bool,
}

impl Turns {
    fn new(jobs: usize, ahead: usize) -> Turns {
        Turns { jobs, ahead, state: Mutex::default(), moved: Condvar::new() }
    }

    /// The place of the next job for a thread; blocks while too many results wait to be taken.
    /// `None` when all jobs are taken or `stop` was called.
    fn next(&self) -> Option<usize> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ahead = |state: &mut State| {
            !state.stopped && state.next < self.jobs && state.next >= state.handed_over + self.ahead
        };
        let waited = self.moved.wait_while(state, is_ahead);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stopped || state.next == self.jobs {
            return None;
        }
        state.next += 1;
        Some(state.next - 1)
    }

    /// Counts a result that the caller has taken, and lets a waiting thread go on.
    fn hand_over(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).handed_over += 1;
        self.moved.notify_all();
    }

    /// Lets no further job begin; running jobs see it by `is_stopped`.
    fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.moved.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stopped
    }
}

/// Why a run of the model has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// An error of the model.
    #[error(transparent)]
    Error(MachineError),
    /// The model contradicts itself: the failed assertion and its place.
    #[error("{0}")]
    Fault(String),
}

impl Stopped {
    /// Classifies an error of the model: a broken invariant is a fault, anything else an error.
    pub fn of(error: MachineError) -> Stopped {
        match error {
            MachineError::Invariant { .. } => Stopped::Fault(error.to_string()),
            error => Stopped::Error(error),
        }
    }

    /// The error for this job; an interrupted run is [`Error::Interrupted`].
    fn of_job(self, job: &Job) -> Error {
        match self {
            Stopped::Error(MachineError::Interrupted(_)) => Error::Interrupted,
            Stopped::Error(source) => Error::Run { run: job.name(), source },
            Stopped::Fault(what) => Error::ModelFault { run: job.name(), what },
        }
    }
}

thread_local! {
    /// Text of the panic on this thread; `None` outside of [`guarded`].
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a closure and turns a panic of the model, whose assertions are always on, into a text with
/// its place. Installs a panic hook once; panics of other threads are printed as before.
///
/// # Errors
/// The closure panicked.
pub fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, Stopped> {
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
    result.map_err(|_| Stopped::Fault(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Study, world};
    use cpumax_machine::kernel::parse_kernels;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_panic_of_the_model_becomes_a_text_with_its_place() {
        assert_eq!(guarded(|| 3), Ok(3));
        let text = guarded(|| assert!(std::hint::black_box(false), "the pool is negative"));
        let text = text.unwrap_err().to_string();
        assert!(text.contains("the pool is negative") && text.contains("model.rs"), "{text}");
        assert_eq!(guarded(|| 3), Ok(3));
    }

    fn jobs() -> Vec<Job> {
        let workload = crate::scenario::load("nested").unwrap();
        let kernels = parse_kernels("6.12..7.3").unwrap();
        Study::new(workload).on(kernels).with_seeds(1..=8).jobs()
    }

    #[test]
    fn results_come_in_order_whatever_the_number_of_threads() {
        let jobs = jobs();
        let of = |threads| {
            let running = Running { threads: Some(threads), ..Running::default() };
            world::all(&Model { running }, &jobs, &()).unwrap()
        };
        let alone = of(1);
        assert_eq!(alone.len(), jobs.len());
        assert!(alone.iter().zip(&jobs).all(|(report, job)| report.outcome.seed == job.seed));
        assert_eq!(of(5), alone);
    }

    #[test]
    fn a_caller_that_breaks_ends_the_runs() {
        struct Counted(AtomicUsize);
        impl Watch for Counted {
            fn trace(&self, _job: usize) -> crate::watch::Traced {
                self.0.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
        let begun = Counted(AtomicUsize::new(0));
        let mut told = 0;
        let jobs = jobs();
        let running = Running { threads: Some(2), ..Running::default() };
        let ended = Model { running }.run(&jobs, &begun, &mut |index, report| {
            report.unwrap();
            told += 1;
            if index == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        ended.unwrap();
        assert_eq!(told, 2);
        assert!(begun.0.into_inner() <= 2 + 2 * AHEAD, "no more is begun than may wait");
    }

    #[test]
    fn a_watch_that_says_stop_interrupts() {
        struct Impatient;
        impl Watch for Impatient {
            fn stopped(&self) -> bool {
                true
            }
        }
        let ended = world::all(&Model::default(), &jobs(), &Impatient);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    }
}
