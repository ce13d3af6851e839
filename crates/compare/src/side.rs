//! A side of a comparison: a kernel in a world, and its runs.

use crate::error::Error;
use crate::follow::{GuidedRun, guide};
use crate::pair::{Mode, Pair};
use crate::parting::{find_divergence, rivals};
use crate::verdict::Verdict;
use cpumax_lab::Error as LabError;
use cpumax_machine::{Other, Question, explain};
use cpumax_outcome::trace::Recorded;
use cpumax_outcome::{Conditions, Outcome};
use cpumax_study::{
    Error as EngineError, Job, Kept, Machines, Microseconds, Model, NamedKernel, Report, Running,
    Traced, Watch, World,
};
use cpumax_workload::{Class, Domain, Stream, TaskSpec, Workload};
use std::iter;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// How the sides of a comparison run.
#[derive(Debug, Clone, Copy)]
pub struct How<'a> {
    /// Whether to run real kernels in virtual machines instead of models.
    pub real: bool,
    /// One CPU, or several in parallel.
    pub mode: Mode,
    /// Number of virtual machines, or threads of the model, at a time; `None`: as the host's CPUs
    /// allow.
    pub side_by_side: Option<usize>,
    /// Directory that keeps runs of real kernels for reuse.
    pub kept: Option<&'a Path>,
    /// Whether real kernels time calls that release tasks, and count their work.
    pub releases: bool,
    /// Polled; stops the run by returning true.
    pub stop: fn() -> bool,
}

impl How<'_> {
    /// Boots all virtual machines that the workloads need; nothing for models.
    ///
    /// # Errors
    /// A kernel has not been fetched, or does not boot.
    pub fn prepare(
        self,
        kernels: &[&NamedKernel],
        workloads: &[Workload],
    ) -> Result<(), EngineError> {
        if !self.real {
            return Ok(());
        }
        let watch = Watching { stop: self.stop, traced: &|_| false, kept: Kept::default() };
        self.machines()?.boot(kernels, workloads, &watch)
    }

    fn machines(self) -> Result<Machines, EngineError> {
        let machines = Machines::open(Some(self.mode == Mode::Exact), self.side_by_side)?;
        let machines = machines.timing_releases(self.releases);
        match self.kept {
            Some(folder) => machines.keeping(folder),
            None => Ok(machines),
        }
    }
}

/// A finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its report.
    pub report: Report,
    /// Events, if requested.
    pub trace: Option<Recorded>,
    /// Outcomes of the runs under noise.
    pub noisy: Vec<Outcome>,
    /// Description of where the recorded run diverges from the one to follow.
    pub parted: Option<String>,
}

/// A run, or why it was refused or failed.
pub type Answer = Result<Run, Verdict>;

/// Receives the index of a job, from 0, and its answer; may stop the rest.
type Each<'a> = &'a mut dyn FnMut(usize, Answer) -> ControlFlow<()>;

/// A kernel in a world.
pub struct Side {
    /// The world.
    pub world: Box<dyn World>,
    /// The kernel.
    pub kernel: NamedKernel,
    /// Name, e.g. `model 6.18`.
    pub label: String,
    /// Polled; stops a run by returning true.
    pub stop: fn() -> bool,
}

impl Side {
    /// The kernel itself, or its model.
    ///
    /// # Errors
    /// The kernel has not been fetched.
    pub fn of(kernel: &NamedKernel, how: How<'_>) -> Result<Side, EngineError> {
        if how.real {
            return Side::new(Box::new(how.machines()?), kernel, how.stop);
        }
        let running = Running { threads: how.side_by_side, ..Running::default() };
        Side::new(Box::new(Model { running }), kernel, how.stop)
    }

    /// A kernel in this world.
    ///
    /// # Errors
    /// The kernel has not been fetched.
    pub fn new(
        world: Box<dyn World>,
        kernel: &NamedKernel,
        stop: fn() -> bool,
    ) -> Result<Side, EngineError> {
        Ok(Side { label: world.label(kernel)?, world, kernel: kernel.clone(), stop })
    }

    /// The job of a reference. A model gets random phases of the period timers, equal on every
    /// kernel, so that two models can be compared.
    pub(crate) fn job(&self, pair: &Pair, run: u16) -> Job {
        let phases = || Arc::new(phases(&pair.workload, pair.seed));
        Job {
            run,
            observed: (!self.world.is_real()).then(phases),
            ..Job::new(Arc::clone(&pair.workload), self.kernel.clone(), pair.seed)
        }
    }

    /// Runs jobs in order and passes each answer on as it comes. `traced`: whether to record the
    /// events of the job at this index.
    ///
    /// # Errors
    /// The run was interrupted, or the world fails.
    pub(crate) fn run(
        &self,
        jobs: &[Job],
        traced: &(dyn Fn(usize) -> bool + Sync),
        each: Each<'_>,
    ) -> Result<(), Error> {
        let watch = Watching { stop: self.stop, traced, kept: Kept::default() };
        let mut failed = Ok(());
        let ran = self.world.run(jobs, &watch, &mut |index, report| {
            let trace = watch.kept.take(index);
            let run = |report| Run { report, trace, noisy: Vec::new(), parted: None };
            let answer = match report {
                Ok(report) => Ok(Ok(run(report))),
                Err(error) => self.not_run(error).map(Err),
            };
            match answer {
                Ok(answer) => each(index, answer),
                Err(error) => {
                    failed = Err(error);
                    ControlFlow::Break(())
                }
            }
        });
        failed.and(ran.map_err(Error::Study))
    }

    /// The result of an error: a verdict if it concerns one job, else an error for all.
    fn not_run(&self, error: EngineError) -> Result<Verdict, Error> {
        Ok(match error {
            EngineError::Interrupted => return Err(Error::Interrupted),
            EngineError::Run { source, .. } => Verdict::Failed(source.to_string()),
            // The model's assertions are always on; one that fails is a finding, and does not end a
            // search.
            EngineError::ModelFault { .. } => {
                Verdict::Failed("the model contradicts itself".to_owned())
            }
            EngineError::NotExact { cpus, .. } => {
                Verdict::Refused(format!("needs {cpus} CPUs: add --parallel"))
            }
            EngineError::Refused(reason) => Verdict::Refused(reason),
            EngineError::Lab(
                error @ (LabError::Kept { .. }
                | LabError::Panic { .. }
                | LabError::Hung { .. }
                | LabError::Vm { .. }
                | LabError::Guest { .. }),
            ) => Verdict::Failed(error.to_string().lines().next().unwrap_or_default().to_owned()),
            other => {
                return Err(Error::World { world: self.label.clone(), reason: other.to_string() });
            }
        })
    }

    /// Runs the job of a reference on this side, a model under the conditions that the reference
    /// reports. A model runs it `noisy` more times under microsecond noise, which shows how much
    /// each number varies. Of recorded runs, the one is kept that diverges last from the
    /// reference's.
    ///
    /// # Errors
    /// The run was interrupted, or the world fails.
    pub(crate) fn answer(
        &self,
        job: &Job,
        (traced, noisy): (bool, u32),
        reference: &Run,
    ) -> Result<Answer, Error> {
        let job = self.under(job, reference);
        let noisy = if self.world.is_real() { 0 } else { noisy };
        let noise = |seed: u32| Some(Microseconds::of(seed.into()));
        let under_noise = (1..=noisy).map(|seed| Job { noise: noise(seed), ..job.clone() });
        let jobs: Vec<Job> = iter::once(job.clone()).chain(under_noise).collect();
        let follow = reference.trace.as_ref();
        let together_ns = |run: &Recorded| {
            let parting = follow.and_then(|followed| find_divergence(followed, run));
            parting.map_or(u64::MAX, |parting| parting.time_ns)
        };
        let (mut longest_ns, mut longest) = (0, 0);
        let mut made: Option<Answer> = None;
        let traced = |index| traced && (index == 0 || follow.is_some());
        self.run(&jobs, &traced, &mut |index, answer| {
            let ns = answer.as_ref().ok().and_then(|run| run.trace.as_ref()).map(together_ns);
            match (&mut made, answer) {
                (Some(Ok(run)), Ok(next)) => {
                    run.noisy.push(next.report.outcome);
                    if ns.is_some_and(|ns| ns > longest_ns) {
                        (longest, run.trace) = (index, next.trace);
                    }
                }
                (made, answer) => *made = Some(answer),
            }
            longest_ns = longest_ns.max(ns.unwrap_or(0));
            match &made {
                Some(Ok(_)) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        let mut made = made.unwrap_or_else(|| Err(Verdict::Failed("it did not answer".to_owned())));
        if let (Ok(run), Some(followed)) = (&mut made, follow) {
            let trace = run.trace.as_ref().filter(|_| !self.world.is_real());
            run.parted = trace.and_then(|trace| self.parted(&jobs[longest], followed, trace));
        }
        Ok(made)
    }

    /// The job of a reference on this side, under the conditions of the reference's run.
    fn under(&self, job: &Job, reference: &Run) -> Job {
        let mut workload = Arc::clone(&job.workload);
        if !self.world.is_real() && reference.report.outcome.world != "model" {
            workload = in_user_space(workload);
        }
        let observed = reference.report.conditions.clone().map(Arc::new);
        Job { workload, kernel: self.kernel.clone(), observed, ..job.clone() }
    }

    /// Guides a run of the model along the reference's recorded one, until `ratio` of its outcome
    /// (that of its worst number) is at most 1, or as far as possible; `None` if this side cannot
    /// choose microseconds.
    ///
    /// # Errors
    /// The run was interrupted.
    pub(crate) fn guide(
        &self,
        job: &Job,
        reference: &Run,
        ratio: &dyn Fn(&Outcome) -> f64,
    ) -> Result<Option<GuidedRun>, Error> {
        let Some(followed) = reference.trace.as_ref().filter(|_| !self.world.is_real()) else {
            return Ok(None);
        };
        let job = self.under(job, reference);
        let with = |noise: &Microseconds| Job { noise: Some(noise.clone()), ..job.clone() };
        let mut run = |microseconds: &Microseconds| {
            let mut made = None;
            self.run(&[with(microseconds)], &|_| true, &mut |_, answer| {
                made = answer.ok().and_then(|run| Some((run.report.outcome, run.trace?)));
                ControlFlow::Continue(())
            })?;
            Ok(made)
        };
        let Some(mut led) = guide(followed, ratio, &mut run)? else { return Ok(None) };
        led.parted = self.parted(&with(&led.microseconds), followed, &led.trace);
        Ok(Some(led))
    }

    /// Describes where this run of the model diverges from `followed`, and how close the order of
    /// the two tasks there was.
    fn parted(&self, job: &Job, followed: &Recorded, trace: &Recorded) -> Option<String> {
        let parting = find_divergence(followed, trace)?;
        let rivals = rivals(followed, trace, &parting)?;
        let name = |task: &Option<String>| task.clone().unwrap_or_else(|| "nobody".to_owned());
        let (there, here) = (name(&rivals.reference), name(&rivals.other));
        let text = format!(
            "parts at {:.2} ms, where {there} runs, not {here}",
            rivals.other_since_ns as f64 / 1e6
        );
        let (Some(instead), Some(_)) = (rivals.reference, rivals.other) else { return Some(text) };
        let question = Question { from_ns: rivals.other_since_ns, instead };
        let stop = self.stop;
        let mut progress =
            |_| if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let options = Model::default().options(job, job.noise.as_ref());
        let choice =
            explain(&job.workload, &options, question, Some(&mut progress)).ok().flatten()?;
        Some(match choice.other {
            Other::Queued(ns) => format!("{text}, {:.1} us apart", ns as f64 / 1e3),
            Other::Asleep => format!("{text}: {there} sleeps here"),
            Other::Throttled => format!("{text}: {there} is throttled here"),
            Other::Elsewhere => format!("{text}: {there} is on another CPU here"),
            Other::Absent => text,
        })
    }
}

/// The workload that a real run executed: a process, which returns from system calls, stands for
/// each kernel thread.
fn in_user_space(workload: Arc<Workload>) -> Arc<Workload> {
    let is_kthread = |kind: &TaskSpec| kind.class == Class::Kthread;
    if !workload.tasks.iter().any(is_kthread) {
        return workload;
    }
    let mut parts = Workload::clone(&workload).into_parts();
    for kind in parts.tasks.iter_mut().filter(|kind| is_kthread(kind)) {
        kind.class = Class::Fair;
    }
    // A real kernel cannot have run instructions that only kernel threads may execute.
    Workload::try_from(parts).map_or(workload, Arc::new)
}

fn phases(workload: &Workload, seed: u64) -> Conditions {
    let mut conditions = Conditions::default();
    for (index, group) in workload.groups.iter().enumerate().skip(1) {
        let period_ns = group.limit.period_ns();
        let phase_ns = match workload.machine.timer_phase_ns {
            Some(phase_ns) => phase_ns % period_ns,
            None => Stream::new(seed, Domain::Group, index as u64).below(period_ns),
        };
        conditions.first_edge_ns.insert(group.path.clone(), phase_ns);
    }
    conditions
}

/// Stops runs where the caller asks for it, and keeps their events until they are taken.
struct Watching<'a> {
    stop: fn() -> bool,
    traced: &'a (dyn Fn(usize) -> bool + Sync),
    kept: Kept<Recorded>,
}

impl Watch for Watching<'_> {
    fn stopped(&self) -> bool {
        (self.stop)()
    }

    fn trace(&self, job: usize) -> Traced {
        Ok((self.traced)(job).then(|| self.kept.filled(job, Recorded::default())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_study::kernels::modelled;

    const KERNEL_THREAD: &str = r#"
duration = "1s"
[[task]]
name = "kernel thread"
class = "kthread"
program = [ { forever = [ { sleep = "9ms" }, { kernel = "1300us" }, { done = true } ] } ]
[[task]]
name = "hog"
program = [ { forever = [ { user = "5300us" } ] } ]
"#;

    fn side() -> Side {
        let kernel = modelled("6.18").unwrap().remove(0);
        Side::new(Box::new(Model::default()), &kernel, || false).unwrap()
    }

    #[test]
    fn a_process_stands_for_a_kernel_thread_where_a_real_run_is_held_against() {
        let workload = |text: &str| Arc::new(cpumax_workload::parse(text, "a.toml").unwrap());
        let as_one = workload(KERNEL_THREAD);
        let as_process = workload(&KERNEL_THREAD.replace("kthread", "fair"));
        let model = side();
        let run = |workload: &Arc<Workload>, reference: &Run| {
            let job = Job::new(Arc::clone(workload), model.kernel.clone(), 1);
            model.answer(&job, (false, 0), reference).unwrap().unwrap()
        };
        let job = Job::new(Arc::clone(&as_one), model.kernel.clone(), 1);
        let mut first = None;
        let mut each = |_, answer: Answer| {
            first = answer.ok();
            ControlFlow::Continue(())
        };
        model.run(&[job], &|_| false, &mut each).unwrap();
        let first = first.unwrap();
        let mut real = first.clone();
        real.report.outcome.world = "vm".to_owned();
        let process = run(&as_process, &first);
        assert_ne!(first.report.outcome, process.report.outcome);
        assert_eq!(run(&as_one, &real).report.outcome, process.report.outcome);
        assert_eq!(run(&as_one, &first).report.outcome, first.report.outcome);
    }

    #[test]
    fn what_concerns_one_job_is_a_verdict_and_the_rest_an_error() {
        let told = |error| side().not_run(error);
        let several = EngineError::NotExact { workload: "w".to_owned(), cpus: 8 };
        let refused = Verdict::Refused("needs 8 CPUs: add --parallel".to_owned());
        assert_eq!(told(several).unwrap(), refused);
        let reason = "no such class".to_owned();
        let refused = told(EngineError::Refused(reason.clone())).unwrap();
        assert_eq!(refused, Verdict::Refused(reason));
        let error = told(EngineError::Question("not this".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "model 6.18: not this");
        assert!(matches!(told(EngineError::Interrupted), Err(Error::Interrupted)));
    }
}
