//! One run to be done.

use cpumax_limit::{Limit, Rules};
use cpumax_machine::Watch;
use cpumax_machine::kernel::Kernel;
use cpumax_noise::Microseconds;
use cpumax_outcome::Conditions;
use cpumax_workload::{Error, GroupIx, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A kernel with the name by which it was asked for.
///
/// ```
/// let kernels = cpumax_study::kernels::modelled("6.12..6.14,pull")?;
/// let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
/// assert_eq!(names, ["6.12", "6.13", "6.14", "pull"]);
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct NamedKernel {
    /// Its name in tables, e.g. `6.12-rt`.
    pub name: String,
    /// The modelled kernel that stands for it.
    pub kernel: Kernel,
}

impl From<Kernel> for NamedKernel {
    fn from(kernel: Kernel) -> NamedKernel {
        NamedKernel { name: kernel.version.to_string(), kernel }
    }
}

/// One run to be done.
///
/// ```
/// use cpumax_study::{Model, Study, scenario, world};
///
/// let jobs = Study::new(scenario::load("nested")?).with_seeds(1..=2).jobs();
/// assert!(jobs[1].name().ends_with("with seed 2"));
/// let reports = world::all(&Model::default(), &jobs, &())?;
/// assert_eq!(reports[1].outcome.seed, 2);
/// assert!(reports[1].not_measured.is_empty(), "the model measures everything");
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    /// The workload.
    pub workload: Arc<Workload>,
    /// Limits and length of this run only, in place of the workload's.
    pub what_if: Option<WhatIf>,
    /// A further change of the workload.
    pub variant: Option<Variant>,
    /// The kernel.
    pub kernel: NamedKernel,
    /// Seed of every random stream.
    pub seed: u64,
    /// Number of the repetition, from 0: runs of a real kernel differ by microseconds.
    pub run: u16,
    /// Its random microseconds, in place of the world's ([`crate::Running`]); in the model only.
    pub noise: Option<Microseconds>,
    /// Conditions of a run on a real kernel, under which the model repeats it.
    pub observed: Option<Arc<Conditions>>,
    /// A group to watch; in the model only.
    pub watch: Option<Watch>,
}

/// Limits and length of one run.
///
/// ```
/// use cpumax_study::limit::Limit;
/// use cpumax_study::{Share, WhatIf, scenario};
///
/// let burst = scenario::load("burst")?;
/// let own = Share { limit: Limit::new(Some(30_000_000), 100_000_000, 0)?, weight: None };
/// let shares = vec![(1, own)];
/// let what_if = WhatIf { shares, duration_ns: 1_000_000_000, phase_ns: None, apart_ns: 0 };
/// let changed = what_if.apply(burst)?;
/// assert_eq!(changed.groups[1].limit.millicpus(), Some(300));
/// assert_eq!(changed.duration_ns, 1_000_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct WhatIf {
    /// Limits of groups: of the one whose results are shown, then of the one above it, or of
    /// others.
    pub shares: Vec<(GroupIx, Share)>,
    /// Length of the run, ns.
    pub duration_ns: u64,
    /// Phase of the first limited group's period timer at the start, ns; `None`: that of the
    /// workload, or a random one.
    pub phase_ns: Option<u64>,
    /// How much later than that of the limited group before it each further timer fires, ns; in the
    /// model only, from 6.4 on. Before, all fire together.
    pub apart_ns: u64,
}

/// Limit and weight of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Its limit.
    #[serde(flatten)]
    pub limit: Limit,
    /// Its weight; `None`: unchanged.
    pub weight: Option<u32>,
}

/// The workload with these limits and weights in place of its own; without a weight the group keeps
/// its own. All parts of a limit are kept, as on the newest kernel; older kernels leave out at the
/// start of a run the parts that they do not have.
///
/// # Errors
/// There is no such group, or it is the root; a limit or weight is refused.
pub fn with_shares(workload: Workload, shares: &[(GroupIx, Share)]) -> Result<Workload, Error> {
    shares.iter().try_fold(workload, |workload, (group, share)| {
        let limited = workload.with_limit(*group, share.limit, &Rules::NEWEST)?;
        match share.weight {
            Some(weight) => limited.with_weight(*group, weight),
            None => Ok(limited),
        }
    })
}

impl WhatIf {
    /// The workload with these limits, weights and length. The phase stays where none is given.
    ///
    /// # Errors
    /// A limit is refused, or there is no such group.
    pub fn apply(&self, workload: Workload) -> Result<Workload, Error> {
        let workload = with_shares(workload, &self.shares)?.with_duration(self.duration_ns)?;
        match self.phase_ns {
            Some(phase_ns) => workload.with_timer_phase(phase_ns),
            None => Ok(workload),
        }
    }
}

/// A change of a workload that is made only while it runs, for properties that are unknown.
///
/// ```
/// use cpumax_study::{Job, Variant, kernel::Kernel, scenario, workload::{Tasks, Workload}};
/// use std::sync::Arc;
///
/// let slower = |workload: Workload| workload.scale_work(Tasks::All, 1.1);
/// let variant = Some(Variant::new("a tenth slower", slower));
/// let nested = Arc::new(scenario::load("nested")?);
/// let job = Job { variant, ..Job::new(nested, Kernel::newest().into(), 1) };
/// assert!(*job.workload()? != *job.workload);
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Clone)]
pub struct Variant {
    name: String,
    change: Change,
}

type Change = Arc<dyn Fn(Workload) -> Result<Workload, Error> + Send + Sync>;

impl Variant {
    /// A change of workloads by a function, which must be deterministic and may fail; `name` is for
    /// people.
    pub fn new(
        name: impl Into<String>,
        change: impl Fn(Workload) -> Result<Workload, Error> + Send + Sync + 'static,
    ) -> Variant {
        Variant { name: name.into(), change: Arc::new(change) }
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Variant").field(&self.name).finish()
    }
}

impl Job {
    /// A run of the workload as it is.
    pub fn new(workload: Arc<Workload>, kernel: NamedKernel, seed: u64) -> Job {
        Job {
            workload,
            what_if: None,
            variant: None,
            kernel,
            seed,
            run: 0,
            noise: None,
            observed: None,
            watch: None,
        }
    }

    /// Scenario, kernel and seed, for messages.
    pub fn name(&self) -> String {
        format!("{} on {} with seed {}", self.workload.name, self.kernel.name, self.seed)
    }

    /// Length of the run, ns: that of `what_if`, or else of the workload.
    pub fn duration_ns(&self) -> u64 {
        self.what_if.as_ref().map_or(self.workload.duration_ns, |what_if| what_if.duration_ns)
    }

    /// The workload with first `variant`, then `what_if` applied. It is copied only where there is
    /// one of them, as recordings are large.
    ///
    /// # Errors
    /// The changes make no valid workload.
    pub fn workload(&self) -> Result<Cow<'_, Workload>, Error> {
        if self.what_if.is_none() && self.variant.is_none() {
            return Ok(Cow::Borrowed(&self.workload));
        }
        let mut workload = Workload::clone(&self.workload);
        if let Some(variant) = &self.variant {
            workload = (variant.change)(workload)?;
        }
        if let Some(what_if) = &self.what_if {
            workload = what_if.apply(workload)?;
        }
        Ok(Cow::Owned(workload))
    }
}
