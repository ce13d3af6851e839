//! A world turns a workload, a kernel and a seed into an outcome: the model, virtual machines, this
//! host.

mod host;
mod machines;
mod model;

pub use host::{OwnKernel, ThisHost};
pub use machines::Machines;
pub use model::{Model, Running, guarded};

use crate::Error;
use crate::job::{Job, NamedKernel};
use crate::report::Report;
use crate::watch::Watch;
use std::ops::ControlFlow;

/// Takes the place of a job and its result; may stop the rest.
pub type Each<'a> = &'a mut dyn FnMut(usize, Result<Report, Error>) -> ControlFlow<()>;

/// A place where jobs run.
///
/// ```
/// use cpumax_study::{Error, Job, Model, NamedKernel, Study, Watch, World, scenario, world};
///
/// /// Another world, in which only every second job is run.
/// struct Half(Model);
///
/// impl World for Half {
///     fn label(&self, kernel: &NamedKernel) -> Result<String, Error> {
///         self.0.label(kernel)
///     }
///
///     fn is_real(&self) -> bool {
///         self.0.is_real()
///     }
///
///     fn run(&self, jobs: &[Job], watch: &dyn Watch, each: world::Each<'_>) -> Result<(), Error> {
///         let half: Vec<Job> = jobs.iter().step_by(2).cloned().collect();
///         self.0.run(&half, watch, each)
///     }
/// }
///
/// let jobs = Study::new(scenario::load("nested")?).with_seeds(1..=4).jobs();
/// let seeds = world::all(&Half(Model::default()), &jobs, &())?;
/// assert_eq!(seeds.iter().map(|report| report.outcome.seed).collect::<Vec<_>>(), [1, 3]);
/// # Ok::<(), Error>(())
/// ```
pub trait World {
    /// A name for this kernel in this world: `model 6.18`, `vm 6.18.15+deb13-cloud-amd64`.
    ///
    /// # Errors
    /// The kernel has not been fetched.
    fn label(&self, kernel: &NamedKernel) -> Result<String, Error>;

    /// Whether it runs real kernels, not a model of them.
    fn is_real(&self) -> bool {
        true
    }

    /// Runs jobs, side by side where possible, and hands over their results in order. `each` may
    /// stop the rest, which is no error.
    ///
    /// # Errors
    /// No job can be run.
    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), Error>;
}

/// Runs all jobs and returns their reports in order; the first failed job stops the rest.
///
/// # Errors
/// The error of the first failed job; it stops the rest.
pub fn all(world: &dyn World, jobs: &[Job], watch: &dyn Watch) -> Result<Vec<Report>, Error> {
    let mut done = Vec::new();
    each(world, jobs, watch, |_, report| done.push(report))?;
    Ok(done)
}

/// Runs all jobs and hands each report to `take`, with the place of its job, in order. For results
/// that are too large to keep together.
///
/// # Errors
/// The error of the first failed job; it stops the rest. Reports of the jobs before have been
/// taken.
pub fn each(
    world: &dyn World,
    jobs: &[Job],
    watch: &dyn Watch,
    mut take: impl FnMut(usize, Report),
) -> Result<(), Error> {
    let mut failed = None;
    world.run(jobs, watch, &mut |place, report| match report {
        Ok(report) => {
            take(place, report);
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)
}
