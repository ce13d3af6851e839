//! Runs one column of a matrix: many workloads on two sides.

use crate::cell::{Cell, GuidedCell, deviations};
use crate::error::Error;
use crate::pair::{Mode, Pair};
use crate::side::{Answer, Run, Side};
use crate::verdict::Verdict;
use cpumax_outcome::{Outcome, worst};
use cpumax_study::Job;
use std::mem;
use std::ops::ControlFlow;

/// Runs every pair on the reference, then on the other side under the reference's conditions.
/// `each` receives the cells in order, as they are done.
///
/// # Errors
/// A world fails, or was interrupted.
pub fn column<'a>(
    pairs: &'a [Pair],
    mode: Mode,
    reference: &Side,
    against: &Side,
    mut each: impl FnMut(Cell),
) -> Result<(), Error> {
    let runs_of = |pair: &'a Pair| (0..pair.runs.max(1)).map(move |run| (pair, run));
    let pairs: Vec<(&Pair, u16)> = pairs.iter().flat_map(runs_of).collect();
    let jobs: Vec<Job> = pairs.iter().map(|(pair, run)| reference.job(pair, *run)).collect();
    let mut runs = Vec::new();
    let mut broken = Ok(());
    let ran = reference.run(&jobs, &|index| pairs[index].0.trace, &mut |index, answer| {
        let pair = pairs[index].0;
        match held(pair, mode, (reference, against), &jobs[index], answer) {
            Ok(cell) => {
                runs.push(cell);
                if runs.len() >= pair.runs.into() {
                    Cell::median(mem::take(&mut runs)).into_iter().for_each(&mut each);
                }
                ControlFlow::Continue(())
            }
            Err(error) => {
                broken = Err(error);
                ControlFlow::Break(())
            }
        }
    });
    broken.and(ran)
}

/// Holds the reference's answer against the other side's. Where the two are far apart, a model runs
/// more often under noise, and is then guided along the reference's run.
fn held(
    pair: &Pair,
    mode: Mode,
    (reference, against): (&Side, &Side),
    job: &Job,
    answer: Answer,
) -> Result<Cell, Error> {
    let Pair { workload, seed, trace, noisy, .. } = pair;
    let of = |first: Answer, second: Answer| {
        let (first, second) = ((&*reference.label, first), (&*against.label, second));
        Cell::of(workload, *seed, mode, first, second)
    };
    let run = match answer {
        Ok(run) => run,
        // The other side does not run what the reference did not.
        failed => return Ok(of(failed, Err(Verdict::Refused(String::new())))),
    };
    let held = |noisy| {
        let other = against.answer(job, (*trace, noisy), &run)?;
        let has_noise = other.as_ref().is_ok_and(|run| !run.noisy.is_empty());
        Ok((of(Ok(run.clone()), other), has_noise))
    };
    let (mut cell, has_noise) = held(noisy.few)?;
    let is_far = cell.verdict.ratio().is_some_and(|ratio| ratio > noisy.beyond);
    // A real kernel would only run it again.
    if is_far && has_noise && noisy.most > noisy.few {
        cell = held(noisy.most)?.0;
    }
    if cell.verdict.differs() {
        guide(&mut cell, against, job, mode, &run)?;
    }
    Ok(cell)
}

/// Tries a guided run on the other side, if the reference's events were recorded, and stores it in
/// the cell.
fn guide(
    cell: &mut Cell,
    against: &Side,
    job: &Job,
    mode: Mode,
    reference: &Run,
) -> Result<(), Error> {
    let ratio = |outcome: &Outcome| {
        let deviations = deviations(&job.workload, mode, reference, &[outcome]);
        worst(&deviations).map_or(0.0, |worst| worst.ratio)
    };
    let Some(led) = against.guide(job, reference, &ratio)? else { return Ok(()) };
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
