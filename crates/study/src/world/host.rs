//! This machine as a world: real processes in cgroups of their own, one job after the other.

use super::machines::{From, of_lab, report, traces};
use super::{Each, World};
use crate::error::Error;
use crate::job::{Job, NamedKernel};
use crate::watch::{Step, Watch};
use cpumax_lab::{Host, Mode};
use cpumax_machine::named::{Functions, Taken, taken};
use cpumax_recording::about::functions;
use std::fs;

/// This machine, its kernel, and the guest program on it.
///
/// ```no_run
/// use cpumax_study::{Study, ThisHost, scenario, world};
///
/// let jobs = Study::new(scenario::load("nested")?).on([ThisHost::kernel()?]).jobs();
/// let reports = world::all(&ThisHost::open()?, &jobs, &())?;
/// println!("{}", reports[0].outcome.groups["/parent"].nr_throttled);
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug)]
pub struct ThisHost {
    host: Host,
    kernel: OwnKernel,
}

impl ThisHost {
    /// Opens this machine.
    ///
    /// # Errors
    /// No cgroup can be used here, or the guest program is missing.
    pub fn open() -> Result<ThisHost, Error> {
        Ok(ThisHost { host: Host::open()?, kernel: OwnKernel::here()? })
    }

    /// The modelled kernel that stands for the one that runs here; nothing else of the machine is
    /// opened.
    ///
    /// # Errors
    /// Its release cannot be read.
    pub fn kernel() -> Result<NamedKernel, Error> {
        Ok(NamedKernel::from(OwnKernel::here()?.taken().kernel))
    }
}

/// A running kernel, identified by its release and functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnKernel {
    /// Its release (`uname -r`).
    pub release: String,
    /// Functions that tell generations apart; empty where unknown.
    pub functions: Functions,
}

impl OwnKernel {
    /// Release and functions of the kernel of this machine.
    ///
    /// # Errors
    /// The release cannot be read.
    pub fn here() -> Result<OwnKernel, Error> {
        let path = "/proc/sys/kernel/osrelease";
        let text = fs::read_to_string(path);
        let text = text.map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(OwnKernel { release: text.trim().to_owned(), functions: functions::here() })
    }

    /// The modelled kernel that stands for it, and why where that is not just its version.
    pub fn taken(&self) -> Taken {
        taken(Some(&self.release), &self.functions)
    }
}

impl World for ThisHost {
    fn label(&self, _kernel: &NamedKernel) -> Result<String, Error> {
        Ok(format!("host {}", self.kernel.release))
    }

    /// Runs one job after the other with real processes; the first result that `each` refuses ends
    /// that.
    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), Error> {
        let mut traces = traces(jobs, watch)?;
        let why = self.kernel.taken().why.map(|why| format!("{why}."));
        watch.planned(jobs);
        for (index, job) in jobs.iter().enumerate() {
            let mode = Mode::Parallel { cpus: job.workload.machine.cpus };
            let trace = traces[index].take();
            let asked = of_lab(job, mode, trace.is_some())?;
            let told = self.host.run(&asked, index, &From { watch, first: 0 });
            let told = told.map(|mut told| {
                told.notes.extend(why.clone());
                told
            });
            watch.step(index, Step::Done);
            let found = (self.kernel.release.clone(), false);
            let told = told.map_err(Error::from);
            if each(index, told.and_then(|told| report(job, told, found, trace))).is_break() {
                break;
            }
        }
        Ok(())
    }
}
