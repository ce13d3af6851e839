//! Real kernels in virtual machines as a world: one machine for each job, several side by side.

use super::{Each, World};
use crate::error::Error;
use crate::job::{Job, NamedKernel};
use crate::report::Report;
use crate::watch::{Step, Trace, Watch};
use cpumax_lab::{Lab, Mode};
use cpumax_protocol::hypervisor::FORKS_MEET_MOVES;
use cpumax_workload::{Workload, print};
use std::collections::BTreeSet;
use std::path::Path;

/// Virtual machines of this host, on kernels that have been fetched.
///
/// ```no_run
/// use cpumax_study::{Machines, Study, kernels, scenario, world};
///
/// let kernels = kernels::fetched("6.12..")?.kernels;
/// let jobs = Study::new(scenario::load("nested")?).on(kernels).jobs();
/// for report in world::all(&Machines::open(None, None)?, &jobs, &())? {
///     println!("{}: {:?}", report.outcome.kernel, report.not_measured);
/// }
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug)]
pub struct Machines {
    lab: Lab,
    exact: Option<bool>,
    side_by_side: Option<usize>,
    releases: bool,
}

impl Machines {
    /// Finds the emulator, the guest program and the user's cache of kernels; boots nothing, and a
    /// kernel that has not been fetched is an error only when it is used. `exact`: whether time
    /// passes by instructions, on one CPU; by default it does for workloads of one CPU. By default
    /// as many machines run side by side as there are CPUs for; `side_by_side` sets the number.
    ///
    /// # Errors
    /// The emulator or the guest program is missing.
    pub fn open(exact: Option<bool>, side_by_side: Option<usize>) -> Result<Machines, Error> {
        Ok(Machines { lab: Lab::open()?, exact, side_by_side, releases: false })
    }

    /// Sets whether these machines time each call of a release. Each group walked and each task put
    /// back then takes longer, which a note says.
    #[must_use]
    pub fn timing_releases(self, releases: bool) -> Machines {
        Machines { releases, ..self }
    }

    /// Keeps the result of each run in a folder, and takes results that are in it.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn keeping(self, folder: &Path) -> Result<Machines, Error> {
        Ok(Machines { lab: self.lab.keeping(folder)?, ..self })
    }

    /// Boots these kernels for these workloads, side by side, unless booted states are kept.
    ///
    /// # Errors
    /// A kernel has not been fetched, or does not boot.
    pub fn boot(
        &self,
        kernels: &[&NamedKernel],
        workloads: &[Workload],
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let modes = workloads.iter().filter_map(|workload| mode(self.exact, workload).ok());
        let modes: BTreeSet<Mode> = modes.collect();
        let mut booted = Vec::new();
        for kernel in kernels {
            // Reports a missing kernel before the first machine boots.
            self.lab.kernel(&kernel.name)?;
            booted.extend(modes.iter().map(|&mode| (kernel.name.clone(), mode)));
        }
        let side_by_side = self.side_by_side(modes.iter().copied());
        Ok(self.lab.boot_all(&booted, side_by_side, &From { watch, first: 0 })?)
    }

    /// Number of machines that run side by side: as asked for, or as many as there are CPUs for.
    fn side_by_side(&self, modes: impl Iterator<Item = Mode>) -> usize {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = modes.map(|mode| self.lab.host_cpus(mode)).max().unwrap_or(1);
        self.side_by_side.unwrap_or(here / usize::from(cpus.max(1))).max(1)
    }

    /// The job in the lab's form, traced if `trace`, with releases timed where these machines do
    /// that; an error where the job's changes make no valid workload, or several CPUs are asked to
    /// be exact.
    fn job(&self, job: &Job, trace: bool) -> Result<cpumax_lab::Job, Error> {
        let asked = of_lab(job, mode(self.exact, &job.workload)?, trace)?;
        Ok(cpumax_lab::Job { releases: self.releases, ..asked })
    }
}

/// By instructions where `exact` is true, or unset for one CPU; else on as many CPUs as the
/// workload has. An error for several CPUs with `exact`.
fn mode(exact: Option<bool>, workload: &Workload) -> Result<Mode, Error> {
    let cpus = workload.machine.cpus;
    match exact {
        Some(true) if cpus > 1 => Err(Error::NotExact { workload: workload.name.clone(), cpus }),
        Some(true) => Ok(Mode::Exact),
        None if cpus == 1 => Ok(Mode::Exact),
        Some(false) | None => Ok(Mode::Parallel { cpus }),
    }
}

/// The job in the lab's form, its changed workload printed as text; an error where the changes make
/// no valid workload.
pub(super) fn of_lab(job: &Job, mode: Mode, trace: bool) -> Result<cpumax_lab::Job, Error> {
    let workload = job.workload()?;
    let new = cpumax_lab::Job::new(
        &job.kernel.name,
        mode,
        print(&workload),
        job.seed,
        workload.duration_ns,
    );
    let (run, kernel_arguments) = (job.run, kernel_arguments(&workload));
    Ok(cpumax_lab::Job { trace, run, kernel_arguments, ..new })
}

/// The guest's report in the form of all worlds, with the kernel's name, release and whether time
/// was exact. Feeds a recorded trace into `trace` and ends it; an error where it cannot be written.
pub(super) fn report(
    job: &Job,
    told: cpumax_protocol::Report,
    (release, exact): (String, bool),
    trace: Option<Box<dyn Trace>>,
) -> Result<Report, Error> {
    let cpumax_protocol::Report { mut outcome, conditions, not_measured, notes, .. } = told;
    outcome.kernel.clone_from(&job.kernel.name);
    outcome.generation = job.kernel.kernel.generation.to_string();
    if let (Some(recorded), Some(mut trace)) = (told.trace, trace) {
        recorded.replay(&mut *trace);
        trace.done().map_err(Error::Trace)?;
    }
    let (kernel_release, conditions) = (Some(release), Some(conditions));
    Ok(Report { outcome, watched: None, kernel_release, conditions, not_measured, notes, exact })
}

impl World for Machines {
    fn label(&self, kernel: &NamedKernel) -> Result<String, Error> {
        Ok(format!("vm {}", self.lab.kernel(&kernel.name)?.origin.release))
    }

    /// Boots one machine for each job, in chunks. A missing kernel, or a trace that cannot be
    /// opened, is an error before the first.
    fn run(&self, jobs: &[Job], watch: &dyn Watch, each: Each<'_>) -> Result<(), Error> {
        // A missing kernel is reported before the first machine boots.
        let release = |job: &Job| Ok(self.lab.kernel(&job.kernel.name)?.origin.release);
        let releases = jobs.iter().map(release).collect::<Result<Vec<String>, Error>>()?;
        let mut traces = traces(jobs, watch)?;
        let modes = jobs.iter().filter_map(|job| mode(self.exact, &job.workload).ok());
        let side_by_side = self.side_by_side(modes);
        watch.planned(jobs);
        // Long chunks wait less for their last machine; short ones hand over their first result
        // sooner.
        let chunk_len = if side_by_side == 1 { 1 } else { 4 * side_by_side };
        for first in (0..jobs.len()).step_by(chunk_len) {
            let chunk = first..jobs.len().min(first + chunk_len);
            let asked: Vec<_> =
                chunk.map(|index| self.job(&jobs[index], traces[index].is_some())).collect();
            let fit: Vec<cpumax_lab::Job> = asked.iter().flatten().cloned().collect();
            let told = self.lab.run_all(&fit, side_by_side, &From { watch, first });
            let mut told = told.into_iter();
            for (index, asked) in (first..).zip(asked) {
                let report = asked.and_then(|asked| {
                    let told = told.next().unwrap_or(Err(cpumax_lab::Error::Interrupted))?;
                    let found = (releases[index].clone(), asked.mode == Mode::Exact);
                    report(&jobs[index], told, found, traces[index].take())
                });
                if each(index, report).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Opens the sink that `watch` has for the events of each job, if any, so that errors come before
/// any run.
pub(super) fn traces(
    jobs: &[Job],
    watch: &dyn Watch,
) -> Result<Vec<Option<Box<dyn Trace>>>, Error> {
    (0..jobs.len()).map(|job| watch.trace(job).map_err(Error::Trace)).collect()
}

/// Forwards a chunk of jobs to `watch`, whose first job has the number `first`.
pub(super) struct From<'a> {
    pub(super) watch: &'a dyn Watch,
    pub(super) first: usize,
}

impl cpumax_lab::Watch for From<'_> {
    fn stopped(&self) -> bool {
        self.watch.stopped()
    }

    fn step(&self, job: usize, step: Step) {
        self.watch.step(self.first + job, step);
    }
}

/// Boot parameters of a workload with spaces between: CPUs without a tick for the kernel, and forks
/// that meet moves for the guest. Often empty.
fn kernel_arguments(workload: &Workload) -> String {
    let mut arguments = Vec::new();
    if let Some(set) = workload.machine.nohz_full {
        let cpus = workload.cpu_sets[set as usize].0.iter().map(u16::to_string);
        arguments.push(format!("nohz_full={}", cpus.collect::<Vec<_>>().join(",")));
    }
    if workload.forks_meet_moves() {
        arguments.push(format!("{FORKS_MEET_MOVES}=1"));
    }
    arguments.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn boot_parameters_name_cpus_without_a_tick() {
        let of = |machine: &str| {
            let text = format!(
                "duration = \"1s\"\n[machine]\ncpus = 4\n{machine}\n[[task]]\nname = \"t\"\n\
                 program = [{{ fork = \"child\" }}]\n[[task]]\nname = \"child\"\ncount = 0\n\
                 program = [{{ user = \"1ms\" }}]\n"
            );
            kernel_arguments(&cpumax_workload::parse(&text, "s.toml").unwrap())
        };
        assert_eq!(of("nohz_full = \"1,3\""), "nohz_full=1,3");
        assert_eq!(of(""), "");
        let moved = "[[at]]\ntime = \"1ms\"\ntask = \"t\"\nmove = \"/\"\n";
        assert_eq!(of(moved), "CPUMAX_FORKS_MEET_MOVES=1");
    }

    #[test]
    fn one_cpu_is_exact_and_more_are_parallel_unless_asked_otherwise() {
        let with = |cpus| {
            let text = builtin::find("nested").unwrap().text;
            let text = text.replace("[machine]\n", &format!("[machine]\ncpus = {cpus}\n"));
            cpumax_workload::parse(&text, "a").unwrap()
        };
        assert_eq!(mode(None, &with(1)).unwrap(), Mode::Exact);
        assert_eq!(mode(None, &with(4)).unwrap(), Mode::Parallel { cpus: 4 });
        assert_eq!(mode(Some(false), &with(1)).unwrap(), Mode::Parallel { cpus: 1 });
        let told = mode(Some(true), &with(4)).unwrap_err().to_string();
        assert!(told.starts_with("a has 4 CPUs"), "{told}");
    }
}
