//! Real kernels in virtual machines, as a world.

use super::{Asked, How};
use crate::failure::Failure;
use crate::{interrupt, output};
use anyhow::bail;
use cpumax_compare::cell::Mode;
use cpumax_compare::world::Each;
use cpumax_compare::{Answer, Error, Job, Run, World};
use cpumax_lab::cache::Cache;
use cpumax_lab::{Lab, Watch, catalog};
use cpumax_machine::kernel::Kernel;
use cpumax_workload::{Workload, print};
use std::collections::BTreeSet;

/// A kernel in virtual machines, one for each job.
pub struct Machine<'a> {
    lab: Lab,
    name: String,
    release: String,
    how: How<'a>,
}

impl<'a> Machine<'a> {
    /// That kernel; it must have been fetched.
    pub fn new(asked: &Asked, how: How<'a>) -> anyhow::Result<Machine<'a>> {
        let mut lab = Lab::open()?;
        if let Some(folder) = how.kept {
            lab = lab.keeping(folder)?;
        }
        let release = lab.kernel(&asked.name)?.origin.release;
        Ok(Machine { lab, name: asked.name.clone(), release, how })
    }

    fn mode(&self, job: &Job<'_>) -> cpumax_lab::Mode {
        mode(self.how, job.workload)
    }

    /// Job of the lab's own kind.
    fn job(&self, job: &Job<'_>) -> cpumax_lab::Job {
        let duration_ns = job.workload.duration_ns;
        let mode = self.mode(job);
        let new =
            cpumax_lab::Job::new(&self.name, mode, print(job.workload), job.seed, duration_ns);
        let kernel_arguments = kernel_arguments(job.workload);
        cpumax_lab::Job { trace: job.trace, run: job.run, kernel_arguments, ..new }
    }

    fn error(&self, error: &cpumax_lab::Error) -> Error {
        Error::World { world: self.label(), reason: error.to_string() }
    }
}

impl World for Machine<'_> {
    fn label(&self) -> String {
        format!("vm {}", self.release)
    }

    fn run(&mut self, jobs: &[Job<'_>], each: Each<'_>) -> Result<(), Error> {
        let cpus = jobs.iter().map(|job| self.lab.host_cpus(self.mode(job))).max().unwrap_or(1);
        let side_by_side = side_by_side(self.how.side_by_side, cpus);
        // The longer a chunk, the less is waited for its last; the shorter, the sooner its first is
        // told.
        let chunk_len = if side_by_side == 1 { 1 } else { 4 * side_by_side };
        for (chunk, jobs) in jobs.chunks(chunk_len).enumerate() {
            let asked: Vec<cpumax_lab::Job> = jobs.iter().map(|job| self.job(job)).collect();
            let reports = self.lab.run_all(&asked, side_by_side, &Keyboard);
            for (index, report) in reports.into_iter().enumerate() {
                let answer = match report {
                    Ok(report) => Answer::Done(Box::new(Run {
                        outcome: report.outcome,
                        conditions: report.conditions,
                        not_measured: report.not_measured,
                        notes: report.notes,
                        trace: report.trace,
                        noisy: Vec::new(),
                        parted: None,
                    })),
                    Err(error) => self.answer(jobs[index].workload, &error)?,
                };
                if each(chunk * chunk_len + index, answer).is_break() {
                    return Err(Error::Interrupted);
                }
            }
        }
        Ok(())
    }
}

impl Machine<'_> {
    /// What an error means: for this job only, or for all.
    fn answer(&self, workload: &Workload, error: &cpumax_lab::Error) -> Result<Answer, Error> {
        use cpumax_lab::Error as Lab;
        match error {
            Lab::Interrupted => Err(Error::Interrupted),
            Lab::Refused { reason } => {
                Ok(Answer::Refused(refusal(self.how.mode, workload.machine.cpus, reason)))
            }
            Lab::Kept { .. }
            | Lab::Panic { .. }
            | Lab::Hung { .. }
            | Lab::Vm { .. }
            | Lab::Guest { .. } => {
                let text = error.to_string();
                Ok(Answer::Failed(text.lines().next().unwrap_or_default().to_owned()))
            }
            other => Err(self.error(other)),
        }
    }
}

/// Why a scenario of so many CPUs is refused, and what to ask for instead.
fn refusal(mode: Mode, cpus: u16, reason: &str) -> String {
    let needs = format!("needs {cpus} CPUs");
    if mode == Mode::Exact && reason.starts_with(&needs) {
        return format!("{needs}: add --parallel");
    }
    reason.to_owned()
}

/// What a kernel must be told when it boots: of CPUs that are to be without a tick.
pub fn kernel_arguments(workload: &Workload) -> String {
    let Some(set) = workload.machine.nohz_full else { return String::new() };
    let cpus: Vec<String> = workload.cpu_sets[set as usize].0.iter().map(u16::to_string).collect();
    format!("nohz_full={}", cpus.join(","))
}

fn mode(how: How<'_>, workload: &Workload) -> cpumax_lab::Mode {
    match how.mode {
        Mode::Exact => cpumax_lab::Mode::Exact,
        Mode::Parallel => cpumax_lab::Mode::Parallel { cpus: workload.machine.cpus },
    }
}

/// Boots these kernels, for these workloads, side by side, where that has not been done yet.
pub fn boot(asked: &[&Asked], how: How<'_>, workloads: &[Workload]) -> Result<(), Failure> {
    let modes: BTreeSet<_> = workloads.iter().map(|workload| mode(how, workload)).collect();
    let lab = Lab::open()?;
    let mut kernels = Vec::new();
    for kernel in asked {
        // Told before the first machine boots.
        lab.kernel(&kernel.name)?;
        kernels.extend(modes.iter().map(|&mode| (kernel.name.clone(), mode)));
    }
    let cpus = modes.iter().map(|&mode| lab.host_cpus(mode)).max().unwrap_or(1);
    let booted = lab.boot_all(&kernels, side_by_side(how.side_by_side, cpus), &Keyboard);
    booted.map_err(|error| match error {
        cpumax_lab::Error::Interrupted => Failure::Interrupted,
        other => other.into(),
    })
}

/// As many machines that keep so many CPUs busy as asked for, or as there are CPUs for.
pub fn side_by_side(asked: Option<u16>, cpus: u16) -> usize {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    asked.map_or(here / usize::from(cpus.max(1)), usize::from).max(1)
}

/// Ctrl-C stops the machines.
struct Keyboard;

impl Watch for Keyboard {
    fn stopped(&self) -> bool {
        interrupt::requested()
    }
}

/// The kernels of `kernels.toml` that a list names. A range is of those without a flavour of their
/// own that have been fetched; the others of it are told.
pub fn kernels(list: &str) -> anyhow::Result<Vec<Asked>> {
    kernels_of(list, is_here)
}

fn kernels_of(list: &str, is_here: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Asked>> {
    let mut names: Vec<&str> = Vec::new();
    for part in list.split(',').map(str::trim) {
        let Some((low, high)) = part.split_once("..") else {
            names.push(&catalog::find(part)?.name);
            continue;
        };
        let (mut here, absent): (Vec<&str>, Vec<&str>) =
            range(part, (low, high))?.into_iter().partition(|name| is_here(name));
        let fetched = format!("`cpumax lab fetch {}` gets them", absent.join(" "));
        if here.is_empty() {
            bail!("no kernel of {part} is here: {fetched}");
        }
        if !absent.is_empty() {
            output::say(format_args!("{} of {part} left out: {fetched}", absent.join(", ")));
        }
        names.append(&mut here);
    }
    let mut kernels: Vec<Asked> = Vec::new();
    for name in names {
        if kernels.iter().all(|kernel| kernel.name != name) {
            let version = catalog::find(name)?.version().parse()?;
            kernels.push(Asked { name: name.to_owned(), kernel: Kernel::of(version)? });
        }
    }
    Ok(kernels)
}

/// The kernels from one to another, without those of a flavour of their own.
fn range(part: &str, (low, high): (&str, &str)) -> anyhow::Result<Vec<&'static str>> {
    let all = catalog::all();
    let place = |name: &str, otherwise: usize| -> anyhow::Result<usize> {
        if name.is_empty() {
            return Ok(otherwise);
        }
        let found = catalog::find(name)?;
        Ok(all.iter().position(|entry| entry.name == found.name).unwrap_or(otherwise))
    };
    let (low, high) = (place(low, 0)?, place(high, all.len().saturating_sub(1))?);
    let Some(range) = all.get(low..=high).filter(|range| !range.is_empty()) else {
        bail!("kernel range '{part}' is empty: its end is before its start");
    };
    let names = range.iter().map(|entry| entry.name.as_str());
    Ok(names.filter(|name| !name.contains('-')).collect())
}

/// Whether it has been fetched. What is wrong with one that has been is told by who runs it.
fn is_here(name: &str) -> bool {
    let kernel = Cache::of_user().and_then(|cache| cache.kernel(name));
    !matches!(kernel, Err(cpumax_lab::Error::NotFetched { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if 7.2 had not been fetched.
    fn names(list: &str) -> Vec<String> {
        let kernels = kernels_of(list, |name| name != "7.2").unwrap();
        kernels.into_iter().map(|kernel| kernel.name).collect()
    }

    #[test]
    fn who_needs_several_cpus_is_told_how_to_get_them() {
        let reason = "needs 8 CPUs, there are 1";
        assert_eq!(refusal(Mode::Exact, 8, reason), "needs 8 CPUs: add --parallel");
        assert_eq!(refusal(Mode::Parallel, 8, reason), reason);
        assert_eq!(refusal(Mode::Exact, 8, "no such class"), "no such class");
    }

    #[test]
    fn a_kernel_is_told_of_cpus_without_a_tick() {
        let of = |machine: &str| {
            let text = format!(
                "duration = \"1s\"\n[machine]\ncpus = 4\n{machine}\n[[task]]\nname = \"t\"\nprogram = [{{ user = \"1ms\" }}]\n"
            );
            kernel_arguments(&cpumax_workload::parse(&text, "s.toml").unwrap())
        };
        assert_eq!(of("nohz_full = \"1,3\""), "nohz_full=1,3");
        assert_eq!(of(""), "");
    }

    #[test]
    fn lists_and_ranges_are_of_kernels_that_there_are() {
        assert_eq!(names("6.12,6.12-rt, 6.12"), ["6.12", "6.12-rt"]);
        assert_eq!(names("7.1..7.3"), ["7.1", "7.3"]);
        assert_eq!(names("7.2"), ["7.2"], "who runs it tells that it is not here");
        assert!(names("..").len() > 5);
        let told = kernels_of("7.2..7.2", |name| name != "7.2").unwrap_err().to_string();
        assert!(told.contains("lab fetch 7.2"), "{told}");
        for list in ["", "5.4", "7.3..7.1", "6.1,"] {
            assert!(kernels(list).is_err(), "{list}");
        }
        assert_eq!(kernels("6.12-rt").unwrap()[0].kernel.version.to_string(), "6.12");
    }
}
