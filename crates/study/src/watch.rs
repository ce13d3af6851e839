//! Interfaces of a caller that watches runs, stops them, and takes their events.

use crate::error::OtherError;
use crate::job::Job;
use cpumax_outcome::trace::{Numbered, TraceEvent, TraceSink};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use cpumax_lab::Step;

/// Receives progress of runs, and may stop them. Every method has a default.
///
/// ```
/// use cpumax_study::{Error, Model, Study, Watch, scenario, world};
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// #[derive(Default)]
/// struct UntilAsked(AtomicBool);
/// impl Watch for UntilAsked {
///     fn stopped(&self) -> bool {
///         self.0.load(Ordering::Relaxed)
///     }
/// }
///
/// let jobs = Study::new(scenario::load("nested")?).jobs();
/// let watch = UntilAsked::default();
/// watch.0.store(true, Ordering::Relaxed);
/// let ended = world::all(&Model::default(), &jobs, &watch);
/// assert!(matches!(ended, Err(Error::Interrupted)));
/// # Ok::<(), Error>(())
/// ```
pub trait Watch: Sync {
    /// Whether to stop; asked now and then, from any thread.
    fn stopped(&self) -> bool {
        false
    }

    /// These jobs will be run.
    fn planned(&self, _jobs: &[Job]) {}

    /// All runs of the model together have advanced by so much simulated time, ns.
    fn advanced(&self, _by_ns: u64) {}

    /// On a real kernel, the job at this place takes a step.
    fn step(&self, _job: usize, _step: Step) {}

    /// The sink for the events of the job at this place, if any. Models ask before the job begins,
    /// real worlds before the first one.
    ///
    /// # Errors
    /// The sink cannot be opened.
    fn trace(&self, _job: usize) -> Traced {
        Ok(None)
    }
}

/// A sink for events, if any, or the error of opening it.
pub type Traced = Result<Option<Box<dyn Trace>>, OtherError>;

impl Watch for () {}

/// A sink for the events of one run.
///
/// ```
/// use cpumax_study::outcome::trace::{Numbered, TraceEvent, TraceSink};
/// use cpumax_study::{Error, Model, OtherError, Study, Trace, Traced, Watch, scenario, world};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts events.
/// struct Count(Arc<AtomicU64>);
///
/// impl TraceSink for Count {
///     fn event(&mut self, _: TraceEvent) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
///     fn name(&mut self, _: Numbered, _: String) {}
/// }
///
/// impl Trace for Count {
///     fn done(self: Box<Self>) -> Result<(), OtherError> {
///         Ok(())
///     }
/// }
///
/// struct Counting(Arc<AtomicU64>);
///
/// impl Watch for Counting {
///     fn trace(&self, _job: usize) -> Traced {
///         Ok(Some(Box::new(Count(Arc::clone(&self.0)))))
///     }
/// }
///
/// let events = Arc::new(AtomicU64::new(0));
/// let jobs = Study::new(scenario::load("nested")?).jobs();
/// world::all(&Model::default(), &jobs, &Counting(Arc::clone(&events)))?;
/// assert!(events.load(Ordering::Relaxed) > 0);
/// # Ok::<(), Error>(())
/// ```
pub trait Trace: TraceSink {
    /// The run has ended. The sink of a run that fails is dropped instead.
    ///
    /// # Errors
    /// The events cannot be written.
    fn done(self: Box<Self>) -> Result<(), OtherError>;
}

/// Sinks of jobs whose runs have ended, until they are taken.
#[derive(Debug)]
pub struct Kept<T>(Arc<Mutex<BTreeMap<usize, T>>>);

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept(Arc::default())
    }
}

impl<T: TraceSink + 'static> Kept<T> {
    /// A trace that fills `sink`, which is kept when the run of the job has ended.
    pub fn filled(&self, job: usize, sink: T) -> Box<dyn Trace> {
        Box::new(Keep { job, sink, to: Kept(Arc::clone(&self.0)) })
    }

    /// The sink of this job, once; `None` before its run has ended.
    pub fn take(&self, job: usize) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&job)
    }
}

struct Keep<T> {
    job: usize,
    sink: T,
    to: Kept<T>,
}

impl<T: TraceSink> TraceSink for Keep<T> {
    fn event(&mut self, event: TraceEvent) {
        self.sink.event(event);
    }

    fn name(&mut self, of: Numbered, name: String) {
        self.sink.name(of, name);
    }

    fn wants_messages(&self) -> bool {
        self.sink.wants_messages()
    }
}

impl<T: TraceSink> Trace for Keep<T> {
    fn done(self: Box<Self>) -> Result<(), OtherError> {
        let Keep { job, sink, to } = *self;
        to.0.lock().unwrap_or_else(PoisonError::into_inner).insert(job, sink);
        Ok(())
    }
}
