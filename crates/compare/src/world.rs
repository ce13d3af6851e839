//! Worlds, which turn a workload and a seed into an outcome: their jobs and answers, and the model
//! as a world.

use crate::follow::{GuidedRun, Microseconds, guide};
use crate::parting::{find_divergence, rivals};
use cpumax_machine::kernel::Kernel;
use cpumax_machine::{Options, Other, Question, explain, run};
use cpumax_outcome::trace::{Recorded, TraceSink};
use cpumax_outcome::{Conditions, Outcome};
use cpumax_study::world::guarded;
use cpumax_workload::{Class, Domain, Stream, TaskSpec, Workload};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// One requested run.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// Workload to run.
    pub workload: &'a Workload,
    /// Seed of every random stream.
    pub seed: u64,
    /// Number of this run among several of one job, from 0. Runs of a real kernel differ by
    /// microseconds.
    pub run: u16,
    /// The reference's run, whose conditions the model takes over; a real kernel cannot.
    pub observed: Option<&'a Run>,
    /// Whether to record events.
    pub trace: bool,
    /// Recorded events of the reference: the noisy run that diverges from them last is the one
    /// recorded.
    pub follow: Option<&'a Recorded>,
    /// Number of further runs under microsecond noise, which show how much each number varies; a
    /// real kernel has its own noise.
    pub noisy: u32,
}

/// Answer to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The run.
    Done(Box<Run>),
    /// The world cannot run it, with the reason.
    Refused(String),
    /// It did not end, with the reason.
    Failed(String),
}

/// A finished run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its outcome.
    pub outcome: Outcome,
    /// Conditions under which it ran.
    pub conditions: Conditions,
    /// Paths (or their last parts) of numbers that were not measured.
    pub not_measured: Vec<String>,
    /// Deviations from the workload.
    pub notes: Vec<String>,
    /// Events, if requested.
    pub trace: Option<Recorded>,
    /// Outcomes of the runs under noise.
    pub noisy: Vec<Outcome>,
    /// Description of where the recorded run diverges from the one to follow.
    pub parted: Option<String>,
}

/// Why a comparison or a search ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
    /// A world that fails.
    #[error("{world}: {reason}")]
    World {
        /// Label of the world.
        world: String,
        /// The cause.
        reason: String,
    },
    /// An error of a study, such as a kernel that has not been fetched.
    #[error(transparent)]
    Study(cpumax_study::Error),
    /// A file of a search that cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The cause.
        reason: String,
    },
}

/// Receives the index of a job, from 0, and its answer; may stop the rest.
pub type Each<'a> = &'a mut dyn FnMut(usize, Answer) -> ControlFlow<()>;

/// Runs jobs.
pub trait World {
    /// Name, e.g. `model 6.18`.
    fn label(&self) -> String;

    /// Runs jobs in order and passes each answer on as it comes.
    ///
    /// # Errors
    /// The run was interrupted, by `each` or otherwise, or the world fails.
    fn run(&mut self, jobs: &[Job<'_>], each: Each<'_>) -> Result<(), Error>;

    /// Guides a run of this world along the recorded one (`job.follow`), until `ratio` of its
    /// outcome (that of its worst number) is at most 1, or as far as possible; `None` if the world
    /// cannot choose microseconds.
    ///
    /// # Errors
    /// The run was interrupted.
    fn guide(
        &mut self,
        _job: &Job<'_>,
        _ratio: &dyn Fn(&Outcome) -> f64,
    ) -> Result<Option<GuidedRun>, Error> {
        Ok(None)
    }
}

/// The model of a kernel as a world.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    kernel: Kernel,
    stop: fn() -> bool,
}

impl Model {
    /// The model of this kernel; `stop` is polled, and ends a run by returning true.
    pub fn new(kernel: Kernel, stop: fn() -> bool) -> Model {
        Model { kernel, stop }
    }

    fn answer(&self, job: &Job<'_>) -> Result<Answer, Error> {
        let workload = in_user_space(job);
        let job = &Job { workload: &workload, ..*job };
        let conditions = conditions(job);
        let mut trace = job.trace.then(Recorded::default);
        let outcome = match self.outcome(job, &conditions, None, trace.as_mut())? {
            Ok(outcome) => outcome,
            Err(reason) => return Ok(Answer::Failed(reason)),
        };
        let together_ns = |run: &Recorded| {
            let parting = job.follow.and_then(|followed| find_divergence(followed, run));
            parting.map_or(u64::MAX, |parting| parting.time_ns)
        };
        let mut longest_ns = trace.as_ref().map_or(0, together_ns);
        let mut noise = None;
        let mut noisy = Vec::new();
        for seed in 1..=u64::from(job.noisy) {
            let mut next = (job.trace && job.follow.is_some()).then(Recorded::default);
            match self.outcome(job, &conditions, Some(&Microseconds::of(seed)), next.as_mut())? {
                Ok(outcome) => noisy.push(outcome),
                Err(reason) => return Ok(Answer::Failed(reason)),
            }
            if let Some(next) = next {
                let next_ns = together_ns(&next);
                if next_ns > longest_ns {
                    (longest_ns, trace, noise) =
                        (next_ns, Some(next), Some(Microseconds::of(seed)));
                }
            }
        }
        let (not_measured, notes) = (Vec::new(), Vec::new());
        let parted = match (job.follow, &trace) {
            (Some(followed), Some(trace)) => {
                self.parted(job, (&conditions, noise.as_ref()), followed, trace)
            }
            _ => None,
        };
        let run = Run { outcome, conditions, not_measured, notes, trace, noisy, parted };
        Ok(Answer::Done(Box::new(run)))
    }

    /// Describes where a run under this noise diverges from `followed`, and how close the order of
    /// the two tasks there was.
    fn parted(
        &self,
        job: &Job<'_>,
        (conditions, noise): (&Conditions, Option<&Microseconds>),
        followed: &Recorded,
        trace: &Recorded,
    ) -> Option<String> {
        let parting = find_divergence(followed, trace)?;
        let rivals = rivals(followed, trace, &parting)?;
        let nobody = || "nobody".to_owned();
        let (there, here) = (
            rivals.reference.clone().unwrap_or_else(nobody),
            rivals.other.clone().unwrap_or_else(nobody),
        );
        let text = format!(
            "parts at {:.2} ms, where {there} runs, not {here}",
            rivals.other_since_ns as f64 / 1e6
        );
        let (Some(instead), Some(_)) = (rivals.reference, rivals.other) else { return Some(text) };
        let options = self.options(job, conditions, noise);
        let question = Question { from_ns: rivals.other_since_ns, instead };
        let mut progress = |_| self.go_on();
        let choice =
            explain(job.workload, &options, question, Some(&mut progress)).ok().flatten()?;
        Some(match choice.other {
            Other::Queued(ns) => format!("{text}, {:.1} us apart", ns as f64 / 1e3),
            Other::Asleep => format!("{text}: {there} sleeps here"),
            Other::Throttled => format!("{text}: {there} is throttled here"),
            Other::Elsewhere => format!("{text}: {there} is on another CPU here"),
            Other::Absent => text,
        })
    }

    fn options<'a>(
        &self,
        job: &Job<'_>,
        conditions: &'a Conditions,
        noise: Option<&'a Microseconds>,
    ) -> Options<'a> {
        Options {
            observed: Some(conditions),
            noise: noise.map(|noise| noise.seed),
            noise_from: noise.map_or(&[], |noise| &noise.from),
            ..Options::new(self.kernel, job.seed)
        }
    }

    fn go_on(&self) -> ControlFlow<()> {
        if (self.stop)() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// One run, or the reason why it failed.
    fn outcome(
        &self,
        job: &Job<'_>,
        conditions: &Conditions,
        noise: Option<&Microseconds>,
        trace: Option<&mut Recorded>,
    ) -> Result<Result<Outcome, String>, Error> {
        let options = self.options(job, conditions, noise);
        let mut progress = |_| self.go_on();
        let sink = trace.map(|trace| trace as &mut dyn TraceSink);
        let run = || run(job.workload, &options, sink, Some(&mut progress));
        // The model's assertions are always on; one that fails is a finding, and does not end a
        // search.
        match guarded(run) {
            Ok(Ok(outcome)) => Ok(Ok(outcome)),
            Ok(Err(cpumax_machine::Error::Interrupted(_))) => Err(Error::Interrupted),
            Ok(Err(error)) => Ok(Err(error.to_string())),
            Err(_) => Ok(Err("the model contradicts itself".to_owned())),
        }
    }
}

/// The workload that a real run executed: a process, which returns from system calls, stands for
/// each kernel thread.
fn in_user_space<'a>(job: &Job<'a>) -> Cow<'a, Workload> {
    let is_kthread = |kind: &TaskSpec| kind.class == Class::Kthread;
    let is_real = job.observed.is_some_and(|run| run.outcome.world != "model");
    if !is_real || !job.workload.tasks.iter().any(is_kthread) {
        return Cow::Borrowed(job.workload);
    }
    let mut parts = job.workload.clone().into_parts();
    for kind in parts.tasks.iter_mut().filter(|kind| is_kthread(kind)) {
        kind.class = Class::Fair;
    }
    // A real kernel cannot have run instructions that only kernel threads may execute.
    Workload::try_from(parts).map_or(Cow::Borrowed(job.workload), Cow::Owned)
}

/// The conditions of the run to compare with, or conditions chosen for both.
fn conditions(job: &Job<'_>) -> Conditions {
    let found = job.observed.map(|run| run.conditions.clone());
    found.unwrap_or_else(|| phases(job.workload, job.seed))
}

/// Random phases of the period timers, equal on every kernel, so that two models can be compared.
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

impl World for Model {
    fn label(&self) -> String {
        format!("model {}", self.kernel.version)
    }

    fn run(&mut self, jobs: &[Job<'_>], each: Each<'_>) -> Result<(), Error> {
        for (index, job) in jobs.iter().enumerate() {
            if (self.stop)() || each(index, self.answer(job)?).is_break() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn guide(
        &mut self,
        job: &Job<'_>,
        ratio: &dyn Fn(&Outcome) -> f64,
    ) -> Result<Option<GuidedRun>, Error> {
        let Some(followed) = job.follow else { return Ok(None) };
        let workload = in_user_space(job);
        let job = &Job { workload: &workload, ..*job };
        let conditions = conditions(job);
        let mut run = |microseconds: &Microseconds| {
            let mut trace = Recorded::default();
            let outcome = self.outcome(job, &conditions, Some(microseconds), Some(&mut trace))?;
            Ok(outcome.map(|outcome| (outcome, trace)))
        };
        let Some(mut led) = guide(followed, ratio, &mut run)? else { return Ok(None) };
        let noise = Some(&led.microseconds);
        led.parted = self.parted(job, (&conditions, noise), followed, &led.trace);
        Ok(Some(led))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_process_stands_for_a_kernel_thread_where_a_real_run_is_held_against() {
        let kernel = cpumax_machine::kernel::parse_kernels("6.18").unwrap()[0];
        let as_one = cpumax_workload::parse(KERNEL_THREAD, "a.toml").unwrap();
        let text = KERNEL_THREAD.replace("kthread", "fair");
        let as_process = cpumax_workload::parse(&text, "a.toml").unwrap();
        let run = |workload: &Workload, observed: Option<&Run>| {
            let (seed, run) = (1, 0);
            let job = Job { workload, seed, run, observed, trace: false, follow: None, noisy: 0 };
            match Model::new(kernel, || false).answer(&job).unwrap() {
                Answer::Done(run) => *run,
                other => panic!("{other:?}"),
            }
        };
        let model = run(&as_one, None);
        let mut real = model.clone();
        real.outcome.world = "vm".to_owned();
        let process = run(&as_process, None);
        assert_ne!(model.outcome, process.outcome);
        assert_eq!(run(&as_one, Some(&real)).outcome, process.outcome);
        assert_eq!(run(&as_one, Some(&model)).outcome, model.outcome);
    }
}
