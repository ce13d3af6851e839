//! Interfaces of a caller that watches runs, stops them, and takes their events.

use crate::error::OtherError;
use crate::job::Job;
use cpumax_outcome::trace::TraceSink;

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
