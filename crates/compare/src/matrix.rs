//! Many workloads in two worlds: one column of a matrix of workloads and kernels.

use crate::cell::{Cell, LedCell, Mode, deviations};
use crate::world::{Answer, Each, Error, Job, World};
use cpumax_outcome::{Conditions, Outcome, worst};
use cpumax_workload::Workload;
use std::mem;
use std::ops::ControlFlow;

/// One comparison to be made.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// What is run in both worlds.
    pub workload: &'a Workload,
    /// Seed of every random stream of both.
    pub seed: u64,
    /// Whether to record what happens when.
    pub trace: bool,
    /// How many more runs of a model under microsecond noise.
    pub noisy: u32,
    /// How often the reference runs it, if no run of that is like another; the median counts ([`Cell::median`]).
    pub runs: u16,
}

/// Runs under noise after which it is looked whether the two agree.
const FEW: u32 = 100;

/// Runs every pair in the reference, then in the other world under the conditions that the reference
/// found; `each` is given the cells in order, as they are finished.
///
/// # Errors
/// When one of the worlds can do no more jobs, or was interrupted.
pub fn column<'a>(
    pairs: &[Pair<'a>],
    mode: Mode,
    reference: &mut dyn World,
    against: &mut dyn World,
    mut each: impl FnMut(Cell),
) -> Result<(), Error> {
    let (first, second) = (reference.label(), against.label());
    let job = |(pair, run): &(Pair<'a>, u16)| Job {
        workload: pair.workload,
        seed: pair.seed,
        run: *run,
        observed: None,
        trace: pair.trace,
        follow: None,
        noisy: pair.noisy,
    };
    let runs_of = |&pair: &Pair<'a>| (0..pair.runs.max(1)).map(move |run| (pair, run));
    let pairs: Vec<(Pair<'_>, u16)> = pairs.iter().flat_map(runs_of).collect();
    let jobs: Vec<Job<'_>> = pairs.iter().map(job).collect();
    let mut runs = Vec::new();
    let mut broken = Ok(());
    let held: Each<'_> = &mut |index, answer| {
        let (Pair { workload, seed, noisy, runs: all, .. }, _) = pairs[index];
        let mut held = || {
            let cell = |against: &mut dyn World, noisy| {
                let other = other(against, &Job { noisy, ..jobs[index] }, &answer)?;
                Ok(Cell::of(workload, seed, mode, (&first, answer.clone()), (&second, other)))
            };
            let few = cell(against, noisy.min(FEW))?;
            // Most need no more.
            if !few.verdict.differs() {
                return Ok(few);
            }
            let mut many = if noisy > FEW { cell(against, noisy)? } else { few };
            if many.verdict.differs() {
                lead(&mut many, against, &jobs[index], mode, &answer)?;
            }
            Ok(many)
        };
        match held() {
            Ok(cell) => {
                runs.push(cell);
                if runs.len() >= all.into() {
                    Cell::median(mem::take(&mut runs)).into_iter().for_each(&mut each);
                }
            }
            Err(error) => broken = Err(error),
        }
        if broken.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let ran = reference.run(&jobs, held);
    broken?;
    ran
}

/// The same job in the other world; what the reference did not run need not be run there.
fn other(against: &mut dyn World, job: &Job<'_>, answer: &Answer) -> Result<Answer, Error> {
    let (observed, follow): (Option<&Conditions>, _) = match answer {
        Answer::Done(run) => (Some(&run.conditions), run.trace.as_ref()),
        Answer::Refused(reason) | Answer::Failed(reason) => {
            return Ok(Answer::Refused(reason.clone()));
        }
    };
    let mut other = None;
    against.run(&[Job { observed, follow, ..*job }], &mut |_, answer| {
        other = Some(answer);
        ControlFlow::Continue(())
    })?;
    Ok(other.unwrap_or_else(|| Answer::Failed("it did not answer".to_owned())))
}

/// Tries a run in the other world that is led along the reference's, if that was recorded.
fn lead(
    cell: &mut Cell,
    against: &mut dyn World,
    job: &Job<'_>,
    mode: Mode,
    answer: &Answer,
) -> Result<(), Error> {
    let Answer::Done(run) = answer else { return Ok(()) };
    let Some(follow) = run.trace.as_ref() else { return Ok(()) };
    let ratio = |outcome: &Outcome| {
        worst(&deviations(job.workload, mode, run, &[outcome])).map_or(0.0, |worst| worst.ratio)
    };
    let job = Job { observed: Some(&run.conditions), follow: Some(follow), ..*job };
    let Some(led) = against.lead(&job, &ratio)? else { return Ok(()) };
    cell.led = Some(LedCell {
        places: led.microseconds.from.len(),
        ratio: led.ratio,
        together_ns: (led.together_ns != u64::MAX).then_some(led.together_ns),
        parted: led.parted,
    });
    if let Some(second) = cell.traces.get_mut(1) {
        *second = led.trace;
    }
    Ok(())
}
