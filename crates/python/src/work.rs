//! Work on a thread of its own, without the GIL. The caller's thread tells progress and sees
//! ctrl-C.

use crate::errors::{self, ModelFault};
use cpumax_outcome::trace::{Numbered, Recorded, TraceEvent, TraceSink};
use cpumax_study::{Job, OtherError, Trace, Traced, Watch};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two looks at signals.
const EVERY: Duration = Duration::from_millis(50);
/// Time for work to stop; then it is left to itself.
const STOPS_WITHIN: Duration = Duration::from_millis(800);

/// Progress of work, shared with its thread.
#[derive(Default)]
pub struct Progress {
    stopped: AtomicBool,
    /// Simulated time of all planned runs and of what is done, ns.
    planned_ns: AtomicU64,
    done_ns: AtomicU64,
    /// Events by job, where they are kept.
    events: Option<Events>,
}

/// Events of runs, by the place of the job.
pub type Events = Arc<Mutex<BTreeMap<usize, Recorded>>>;

impl Watch for Progress {
    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn planned(&self, jobs: &[Job]) {
        let all_ns = jobs.iter().map(Job::duration_ns).fold(0, u64::saturating_add);
        self.done_ns.store(0, Ordering::Relaxed);
        self.planned_ns.store(all_ns, Ordering::Relaxed);
    }

    fn advanced(&self, by_ns: u64) {
        self.done_ns.fetch_add(by_ns, Ordering::Relaxed);
    }

    fn trace(&self, job: usize) -> Traced {
        let keep = |into: &Events| -> Box<dyn Trace> {
            Box::new(Keep { job, recorded: Recorded::default(), into: Arc::clone(into) })
        };
        Ok(self.events.as_ref().map(keep))
    }
}

impl Progress {
    /// Progress of runs whose events are kept, if there is a place for them.
    pub fn keeping(events: Option<Events>) -> Progress {
        Progress { events, ..Progress::default() }
    }

    /// The share that is done, 0 to 1.
    fn share(&self) -> f64 {
        let [done, all] = [&self.done_ns, &self.planned_ns].map(|n| n.load(Ordering::Relaxed));
        (done as f64 / all.max(1) as f64).min(1.0)
    }
}

/// Keeps the events of one run.
struct Keep {
    job: usize,
    recorded: Recorded,
    into: Events,
}

impl TraceSink for Keep {
    fn event(&mut self, event: TraceEvent) {
        self.recorded.event(event);
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.recorded.name(of, name);
    }
}

impl Trace for Keep {
    fn done(self: Box<Self>) -> Result<(), OtherError> {
        let mut all = self.into.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(self.job, self.recorded);
        Ok(())
    }
}

/// A result that another thread will send.
pub struct Awaited<T>(Mutex<Receiver<anyhow::Result<T>>>);

impl<T: Send> Awaited<T> {
    pub fn new(result: Receiver<anyhow::Result<T>>) -> Awaited<T> {
        Awaited(Mutex::new(result))
    }

    fn within(&self, time: Duration) -> Result<anyhow::Result<T>, RecvTimeoutError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(time)
    }

    /// Waits for the result, calls `told` with the share that is done, and stops the work on a
    /// signal or an exception of `told`.
    pub fn wait(self, py: Python<'_>, of: &Progress, told: Option<&Py<PyAny>>) -> PyResult<T> {
        loop {
            match py.detach(|| self.within(EVERY)) {
                Ok(result) => return result.map_err(errors::of),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ModelFault::new_err("its thread failed, as standard error tells"));
                }
            }
            let tell = |told: &Py<PyAny>| told.call1(py, (of.share(),)).map(drop);
            let goes_on = py.check_signals().and_then(|()| told.map_or(Ok(()), tell));
            if let Err(error) = goes_on {
                of.stopped.store(true, Ordering::Relaxed);
                // The result of stopped work is of no use.
                drop(py.detach(|| self.within(STOPS_WITHIN)));
                return Err(error);
            }
        }
    }
}

/// Does the work on a thread of its own, and waits for it.
pub fn watched<T: Send + 'static>(
    py: Python<'_>,
    progress: Progress,
    told: Option<&Py<PyAny>>,
    work: impl FnOnce(&Progress) -> anyhow::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (done, result) = mpsc::channel();
    let progress = Arc::new(progress);
    let of_thread = Arc::clone(&progress);
    // A result that nobody waits for any more is dropped.
    let work = move || drop(done.send(work(&of_thread)));
    thread::Builder::new().name("cpumax".to_owned()).spawn(work)?;
    Awaited::new(result).wait(py, &progress, told)
}
