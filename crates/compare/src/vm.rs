//! Real kernels in virtual machines, as a world.

use crate::cell::Mode;
use crate::world::{Answer, Each, Error, Job, Run, World};
use crate::worlds::How;
use cpumax_engine::NamedKernel;
use cpumax_engine::world::{kernel_arguments, side_by_side};
use cpumax_lab::{Lab, Watch};
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
    pub fn new(asked: &NamedKernel, how: How<'a>) -> Result<Machine<'a>, cpumax_lab::Error> {
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
        let (trace, run, releases) = (job.trace, job.run, self.how.releases);
        cpumax_lab::Job { trace, run, releases, kernel_arguments, ..new }
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
            let reports = self.lab.run_all(&asked, side_by_side, &Until(self.how.stop));
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

fn mode(how: How<'_>, workload: &Workload) -> cpumax_lab::Mode {
    match how.mode {
        Mode::Exact => cpumax_lab::Mode::Exact,
        Mode::Parallel => cpumax_lab::Mode::Parallel { cpus: workload.machine.cpus },
    }
}

/// Boots these kernels, for these workloads, side by side, where that has not been done yet.
pub fn boot(
    asked: &[&NamedKernel],
    how: How<'_>,
    workloads: &[Workload],
) -> Result<(), cpumax_lab::Error> {
    let modes: BTreeSet<_> = workloads.iter().map(|workload| mode(how, workload)).collect();
    let lab = Lab::open()?;
    let mut kernels = Vec::new();
    for kernel in asked {
        // Told before the first machine boots.
        lab.kernel(&kernel.name)?;
        kernels.extend(modes.iter().map(|&mode| (kernel.name.clone(), mode)));
    }
    let cpus = modes.iter().map(|&mode| lab.host_cpus(mode)).max().unwrap_or(1);
    lab.boot_all(&kernels, side_by_side(how.side_by_side, cpus), &Until(how.stop))
}

/// Stops the machines when the caller says so.
struct Until(fn() -> bool);

impl Watch for Until {
    fn stopped(&self) -> bool {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_several_cpus_is_told_how_to_get_them() {
        let reason = "needs 8 CPUs, there are 1";
        assert_eq!(refusal(Mode::Exact, 8, reason), "needs 8 CPUs: add --parallel");
        assert_eq!(refusal(Mode::Parallel, 8, reason), reason);
        assert_eq!(refusal(Mode::Exact, 8, "no such class"), "no such class");
    }
}
