//! Runs one column of a matrix: many workloads in two worlds.

use crate::cell::{Cell, GuidedCell, Mode, deviations};
use crate::world::{Answer, Each, Error, Job, World};
use cpumax_outcome::{Outcome, worst};
use cpumax_workload::Workload;
use std::mem;
use std::ops::ControlFlow;

/// One comparison to make.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    /// Workload of both runs.
    pub workload: &'a Workload,
    /// Seed of every random stream in both worlds.
    pub seed: u64,
    /// Whether to record events.
    pub trace: bool,
    /// Number of runs of the other world under microsecond noise, if it is a model.
    pub noisy: Noisy,
    /// Number of runs of the reference, where runs differ; the median counts ([`Cell::median`]).
    pub runs: u16,
}

/// Number of a model's runs under microsecond noise to compare with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noisy {
    /// Initial number; enough for most comparisons.
    pub few: u32,
    /// Ratio of the worst number above which `most` runs are made.
    pub beyond: f64,
    /// Number of runs then.
    pub most: u32,
}

impl Noisy {
    const FEW: u32 = 100;
    /// Number of runs that make a disagreement by chance improbable.
    pub const MOST: u32 = 1000;

    /// At most `most` runs; more than the first hundred only for numbers beyond their tolerance.
    pub fn up_to(most: u32) -> Noisy {
        Noisy { few: most.min(Noisy::FEW), beyond: 1.0, most }
    }

    /// Exactly this many runs.
    pub fn only(few: u32) -> Noisy {
        Noisy { few, beyond: 1.0, most: few }
    }

    /// `few` runs, and [`Noisy::MOST`] where a ratio is then above `beyond`.
    pub fn confirmed(few: u32, beyond: f64) -> Noisy {
        Noisy { few, beyond, most: Noisy::MOST }
    }
}

/// Runs every pair in the reference, then in the other world under the reference's conditions.
/// `each` receives the cells in order, as they are done.
///
/// # Errors
/// A world fails, or was interrupted.
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
        // Noise varies only the other world.
        noisy: 0,
    };
    let runs_of = |&pair: &Pair<'a>| (0..pair.runs.max(1)).map(move |run| (pair, run));
    let pairs: Vec<(Pair<'_>, u16)> = pairs.iter().flat_map(runs_of).collect();
    let jobs: Vec<Job<'_>> = pairs.iter().map(job).collect();
    let mut runs = Vec::new();
    let mut broken = Ok(());
    let held: Each<'_> = &mut |index, answer| {
        let (Pair { workload, seed, noisy, runs: all, .. }, _) = pairs[index];
        let mut held = || {
            let held = |against: &mut dyn World, noisy| {
                let other = run_other(against, &Job { noisy, ..jobs[index] }, &answer)?;
                let has_noise = matches!(&other, Answer::Done(run) if !run.noisy.is_empty());
                let (first, second) = ((&*first, answer.clone()), (&*second, other));
                Ok((Cell::of(workload, seed, mode, first, second), has_noise))
            };
            let (few, has_noise) = held(against, noisy.few)?;
            let is_far = few.verdict.ratio().is_some_and(|ratio| ratio > noisy.beyond);
            // A real kernel would only run it again.
            let again = is_far && has_noise && noisy.most > noisy.few;
            let mut many = if again { held(against, noisy.most)?.0 } else { few };
            if many.verdict.differs() {
                guide(&mut many, against, &jobs[index], mode, &answer)?;
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

/// Runs a job in the other world; refuses it if the reference did not run it.
fn run_other(against: &mut dyn World, job: &Job<'_>, answer: &Answer) -> Result<Answer, Error> {
    let (observed, follow) = match answer {
        Answer::Done(run) => (Some(&**run), run.trace.as_ref()),
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

/// Tries a guided run in the other world, if the reference's events were recorded, and stores it in
/// the cell.
fn guide(
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
    let job = Job { observed: Some(&**run), follow: Some(follow), ..*job };
    let Some(led) = against.guide(&job, &ratio)? else { return Ok(()) };
    cell.led = Some(GuidedCell {
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
