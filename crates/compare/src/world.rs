//! A world: whatever turns a workload and a seed into an outcome. Here: what is asked of one, and
//! the model.

use crate::follow::{Led, Microseconds, lead};
use crate::parting::{parting, rivals};
use cpumax_engine::world::guarded;
use cpumax_machine::kernel::Kernel;
use cpumax_machine::{Options, Other, Question, explain, run};
use cpumax_outcome::trace::{Recorded, TraceSink};
use cpumax_outcome::{Conditions, Outcome};
use cpumax_workload::{Class, Domain, Stream, TaskSpec, Workload};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// One run that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// What is run.
    pub workload: &'a Workload,
    /// Seed of every random stream.
    pub seed: u64,
    /// Of several runs of the same job, which one: 0 and following. A real kernel's differ by
    /// microseconds.
    pub run: u16,
    /// The run that this one will be held against; a real kernel cannot be told what it found.
    pub observed: Option<&'a Run>,
    /// Whether to record what happens when.
    pub trace: bool,
    /// What is known to have happened when: of all runs under noise the one is recorded that parts
    /// from it last.
    pub follow: Option<&'a Recorded>,
    /// How many more runs under microsecond noise, to see how far each number moves; a real kernel
    /// has its own.
    pub noisy: u32,
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was run.
    Done(Box<Run>),
    /// It asks for something that this world cannot do: what.
    Refused(String),
    /// It was not run to its end: why.
    Failed(String),
}

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What it yielded.
    pub outcome: Outcome,
    /// What it found.
    pub conditions: Conditions,
    /// Numbers of the outcome that mean nothing, because they were not measured: paths, or their
    /// last parts.
    pub not_measured: Vec<String>,
    /// Where it is not quite what the workload says.
    pub notes: Vec<String>,
    /// What happened when, if that was asked for.
    pub trace: Option<Recorded>,
    /// What the runs under noise yielded.
    pub noisy: Vec<Outcome>,
    /// Where the recorded run parts from what it was to follow, in a sentence.
    pub parted: Option<String>,
}

/// Why a world can do no more jobs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller said stop.
    #[error("interrupted")]
    Interrupted,
    /// It does not work (any more).
    #[error("{world}: {reason}")]
    World {
        /// Which.
        world: String,
        /// Why not.
        reason: String,
    },
    /// A kernel that cannot be run.
    #[error(transparent)]
    Engine(cpumax_engine::Error),
    /// A file of a search that cannot be read or written.
    #[error("{path}: {reason}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        reason: String,
    },
}

/// Takes the number of a job, counted from 0, and what came of it; may stop the rest.
pub type Each<'a> = &'a mut dyn FnMut(usize, Answer) -> ControlFlow<()>;

/// Whatever can run jobs.
pub trait World {
    /// What it is called, e.g. `model 6.18`.
    fn label(&self) -> String;

    /// Runs jobs in order and hands over each answer as it comes.
    ///
    /// # Errors
    /// When it was interrupted, by `each` or otherwise, and when it can do no more jobs.
    fn run(&mut self, jobs: &[Job<'_>], each: Each<'_>) -> Result<(), Error>;

    /// A run of this world led along one of another (`job.follow`), microsecond by microsecond,
    /// until `ratio`, which says how far off the worst number of one is, is at most 1, or as far as
    /// it goes; `None` where microseconds cannot be chosen.
    ///
    /// # Errors
    /// When it was interrupted.
    fn lead(
        &mut self,
        _job: &Job<'_>,
        _ratio: &dyn Fn(&Outcome) -> f64,
    ) -> Result<Option<Led>, Error> {
        Ok(None)
    }
}

/// The model of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    kernel: Kernel,
    stop: fn() -> bool,
}

impl Model {
    /// The model of this kernel; `stop` is asked now and then whether to go on.
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
            let parting = job.follow.and_then(|followed| parting(followed, run));
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

    /// Where a run under this noise parts from what it was to follow, and how far apart the two
    /// were that came first there.
    fn parted(
        &self,
        job: &Job<'_>,
        (conditions, noise): (&Conditions, Option<&Microseconds>),
        followed: &Recorded,
        trace: &Recorded,
    ) -> Option<String> {
        let parting = parting(followed, trace)?;
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

    /// One run, or why there is none.
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
        // The model's assertions are always on; one that fails is a finding, not the end of a
        // search.
        match guarded(run) {
            Ok(Ok(outcome)) => Ok(Ok(outcome)),
            Ok(Err(cpumax_machine::Error::Interrupted(_))) => Err(Error::Interrupted),
            Ok(Err(error)) => Ok(Err(error.to_string())),
            Err(_) => Ok(Err("the model contradicts itself".to_owned())),
        }
    }
}

/// What a real run was of: nothing in user space is a kernel thread, so a process stood for each,
/// which comes back from every call, and makes way there where preemption is lazy.
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
    // What only a kernel thread may do has not been run on a real kernel.
    Workload::try_from(parts).map_or(Cow::Borrowed(job.workload), Cow::Owned)
}

/// What the run was under that this one will be held against, or what is chosen for both.
fn conditions(job: &Job<'_>) -> Conditions {
    let found = job.observed.map(|run| run.conditions.clone());
    found.unwrap_or_else(|| phases(job.workload, job.seed))
}

/// Phases of the period timers, by chance on every kernel: two models are compared with the same
/// ones.
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

    fn lead(
        &mut self,
        job: &Job<'_>,
        ratio: &dyn Fn(&Outcome) -> f64,
    ) -> Result<Option<Led>, Error> {
        let Some(followed) = job.follow else { return Ok(None) };
        let workload = in_user_space(job);
        let job = &Job { workload: &workload, ..*job };
        let conditions = conditions(job);
        let mut run = |microseconds: &Microseconds| {
            let mut trace = Recorded::default();
            let outcome = self.outcome(job, &conditions, Some(microseconds), Some(&mut trace))?;
            Ok(outcome.map(|outcome| (outcome, trace)))
        };
        let Some(mut led) = lead(followed, ratio, &mut run)? else { return Ok(None) };
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
