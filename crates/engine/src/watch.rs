//! Who watches while runs go on, can stop them, and takes their events.

use crate::error::OtherError;
use crate::job::Job;
use cpumax_outcome::trace::TraceSink;

pub use cpumax_lab::Step;

/// What is told while runs go on, and asked. All of it may be left out.
pub trait Watch: Sync {
    /// Asked now and then: whether to stop.
    fn stopped(&self) -> bool {
        false
    }

    /// These will be run.
    fn planned(&self, _jobs: &[Job]) {}

    /// All runs of the model together have come so much further, ns of simulated time.
    fn advanced(&self, _by_ns: u64) {}

    /// On a real kernel, the job at this place takes a step.
    fn step(&self, _job: usize, _step: Step) {}

    /// Where the events of the job at this place go, if anywhere; asked before it begins.
    ///
    /// # Errors
    /// They cannot go there.
    fn trace(&self, _job: usize) -> Traced {
        Ok(None)
    }
}

/// Where events go, if anywhere, or why they cannot go there.
pub type Traced = Result<Option<Box<dyn Trace>>, OtherError>;

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
