//! A study: one workload on kernels, with seeds, as a list of runs.

use crate::job::{Job, NamedKernel};
use cpumax_machine::kernel::Kernel;
use cpumax_noise::Microseconds;
use cpumax_workload::Workload;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One workload on kernels, with seeds.
///
/// ```
/// use cpumax_study::{Model, Study, kernel, scenario, world};
///
/// let study = Study::new(scenario::load("burst")?)
///     .on(kernel::parse_kernels("6.12,7.3")?)
///     .with_seeds(1..=3);
/// let reports = world::all(&Model::default(), &study.jobs(), &())?;
/// assert_eq!(reports.len(), 2 * 3);
/// assert!(reports.iter().all(|report| report.outcome.groups["/limited"].nr_periods > 0));
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Study {
    workload: Arc<Workload>,
    kernels: Vec<NamedKernel>,
    seeds: RangeInclusive<u64>,
    noise: Option<u64>,
}

impl Study {
    /// The workload on the newest modelled kernel, with seed 1 and without noise.
    pub fn new(workload: impl Into<Arc<Workload>>) -> Study {
        let kernels = vec![Kernel::newest().into()];
        Study { workload: workload.into(), kernels, seeds: 1..=1, noise: None }
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Sets the kernels.
    #[must_use]
    pub fn on<K: Into<NamedKernel>>(mut self, kernels: impl IntoIterator<Item = K>) -> Study {
        self.kernels = kernels.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the seeds.
    #[must_use]
    pub fn with_seeds(mut self, seeds: RangeInclusive<u64>) -> Study {
        self.seeds = seeds;
        self
    }

    /// Sets the seed of random microseconds in the model; `None` leaves that to the world.
    #[must_use]
    pub fn with_noise(mut self, noise: Option<u64>) -> Study {
        self.noise = noise;
        self
    }

    /// The runs, by kernel and seed.
    pub fn jobs(&self) -> Vec<Job> {
        let of_kernel = |kernel: &NamedKernel| {
            let job = |seed| Job {
                noise: self.noise.map(Microseconds::of),
                ..Job::new(Arc::clone(&self.workload), kernel.clone(), seed)
            };
            self.seeds.clone().map(job).collect::<Vec<Job>>()
        };
        self.kernels.iter().flat_map(of_kernel).collect()
    }
}
