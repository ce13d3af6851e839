//! This machine as a world: real processes in groups of their own, one job after the other.

use super::machines::{From, of_lab, report, traces};
use super::{Each, World};
use crate::error::Error;
use crate::job::{Job, NamedKernel};
use crate::watch::{Step, Watch};
use cpumax_lab::{Host, Mode};
use cpumax_machine::kernel::{Kernel, Version};
use std::fs;

/// This machine.
///
/// ```no_run
/// use cpumax_engine::{Study, ThisHost, scenario, world};
///
/// let jobs = Study::new(scenario::load("nested")?).on([ThisHost::kernel()?]).jobs();
/// let reports = world::all(&ThisHost::open()?, &jobs, &())?;
/// println!("{}", reports[0].outcome.groups["/parent"].nr_throttled);
/// # Ok::<(), cpumax_engine::Error>(())
/// ```
#[derive(Debug)]
pub struct ThisHost {
    host: Host,
    release: String,
}

impl ThisHost {
    /// This machine.
    ///
    /// # Errors
    /// It has no groups to run in, or no program to run there.
    pub fn open() -> Result<ThisHost, Error> {
        Ok(ThisHost { host: Host::open()?, release: release()? })
    }

    /// The kernel that runs here.
    ///
    /// # Errors
    /// It is older or newer than all that are modelled.
    pub fn kernel() -> Result<NamedKernel, Error> {
        let version: Version = release()?.parse()?;
        Ok(NamedKernel::from(Kernel::of(version)?))
    }
}

/// The kernel that runs here, as it calls itself.
pub(crate) fn release() -> Result<String, Error> {
    let path = "/proc/sys/kernel/osrelease";
    let text = fs::read_to_string(path);
    let text = text.map_err(|source| Error::File { path: path.to_owned(), source })?;
    Ok(text.trim().to_owned())
}

impl World for ThisHost {
    fn name(&self) -> &'static str {
        "host"
    }

    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), Error> {
        let mut traces = traces(jobs, watch)?;
        watch.planned(jobs);
        for (index, job) in jobs.iter().enumerate() {
            let mode = Mode::Parallel { cpus: job.workload.machine.cpus };
            let trace = traces[index].take();
            let asked = of_lab(job, mode, trace.is_some())?;
            let told = self.host.run(&asked, index, &From { watch, first: 0 });
            watch.step(index, Step::Done);
            let found = (self.release.clone(), false);
            let told = told.map_err(Error::from);
            if each(index, told.and_then(|told| report(job, told, found, trace))).is_break() {
                break;
            }
        }
        Ok(())
    }
}
