//! The world of real kernels in virtual machines.

use crate::cell::Mode;
use crate::world::{Answer, Each, Error, Job, Run, World};
use crate::worlds::How;
use cpumax_lab::{Lab, Watch};
use cpumax_study::{
    NamedKernel,
    world::{kernel_arguments, side_by_side},
};
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
    /// The world of this kernel, which must have been fetched.
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

    /// The lab's job for this job.
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
        // Long chunks wait less often for their last job; short ones report their first job sooner.
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
    /// The result of an error: an answer if it concerns one job, else an error for all.
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

/// Why a scenario with so many CPUs is refused, and the option that allows it.
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

/// Boots these kernels in parallel for these workloads, unless booted states are kept already.
pub fn boot(
    asked: &[&NamedKernel],
    how: How<'_>,
    workloads: &[Workload],
) -> Result<(), cpumax_lab::Error> {
    let modes: BTreeSet<_> = workloads.iter().map(|workload| mode(how, workload)).collect();
    let lab = Lab::open()?;
    let mut kernels = Vec::new();
    for kernel in asked {
        // Reports a missing kernel before the first machine boots.
        lab.kernel(&kernel.name)?;
        kernels.extend(modes.iter().map(|&mode| (kernel.name.clone(), mode)));
    }
    let cpus = modes.iter().map(|&mode| lab.host_cpus(mode)).max().unwrap_or(1);
    lab.boot_all(&kernels, side_by_side(how.side_by_side, cpus), &Until(how.stop))
}

/// Stops the machines when the caller asks for it.
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
