//! The runs behind each prediction. The first run of a limit on a kernel tells whether the limit
//! throttles the load often; the others then sample the unknowns.

use super::again::drawn_again;
use super::{HOW_MANY, Reading, Replay, Run};
use crate::predict::{Draw, Drawn, FirstRun, Prediction, Sample, Unit, Unknowns, predict};
use cpumax_limit::Missing;
use cpumax_machine::kernel::Kernel;
use cpumax_outcome::Outcome;
use cpumax_recording::GapKind;
use cpumax_study::{
    Error, Job, Ranged, Try, Variant, Watch,
    world::{self, Model, Running},
};
use std::sync::Arc;

/// Memory that a run takes for each task and each job, and that all runs at once may take, bytes.
const TASK_BYTES: usize = 3000;
const JOB_BYTES: usize = 400;
const RUNS_MAX_BYTES: usize = 160 << 20;

/// Up to this share of throttled periods it makes little difference how clients ask.
const SELDOM_PERCENT: f64 = 10.0;

/// A limit on a kernel, and the samples of its runs.
struct Cell<'a> {
    limit: &'a Try,
    kernel: Kernel,
    /// Parts of the limit that the kernel does not have.
    lacks: Vec<Missing>,
    /// Samples by reading of the recording.
    samples: Vec<Vec<(Sample, Draw)>>,
    /// Outcome and draw of the first likely run.
    outcome: Option<(Outcome, Draw)>,
}

impl Replay {
    /// Runs every limit, beginning with none, on every kernel, in this order. Kernels that support
    /// nothing of a limit are left out of its runs.
    ///
    /// # Errors
    /// No kernel supports anything of a limit; of several failed runs, the first one's error.
    pub fn runs(
        &self,
        kernels: &[Kernel],
        seed: u64,
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<Vec<Run>, Error> {
        let none = Try::none();
        let others = self.limits.iter().filter(|one| (*one).clone().into_written() != none);
        let limits: Vec<&Try> = std::iter::once(&none).chain(others).collect();
        self.under(&limits, kernels, seed, running, watch)
    }

    /// Runs the replay under these limits on each kernel, and marks predictions on kernels where
    /// the replay differs from the recording. Returns a run for each limit and kernel, in order of
    /// limits, then of kernels.
    ///
    /// # Errors
    /// No kernel supports anything of a limit; of several failed runs, the first one's error.
    pub fn under(
        &self,
        limits: &[&Try],
        kernels: &[Kernel],
        seed: u64,
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<Vec<Run>, Error> {
        let mut runs = self.run_limits(limits, kernels, (seed, self.scale), running, watch)?;
        self.mark_disagreements(&mut runs, seed, running, watch)?;
        Ok(runs)
    }

    /// Runs the replay under these limits on each kernel, without a comparison with the recording.
    /// `seed`: that of the first run of each cell; the others follow from it. `scale`: factor on
    /// the recorded cost of the work; `None`: the cost as recorded, and more where the limit
    /// throttles often. Returns a run for each limit and kernel, in order of limits, then of
    /// kernels.
    ///
    /// # Errors
    /// No kernel supports anything of a limit; of several failed runs, the first one's error.
    pub(super) fn run_limits(
        &self,
        limits: &[&Try],
        kernels: &[Kernel],
        (seed, scale): (u64, Option<f64>),
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<Vec<Run>, Error> {
        let mut cells: Vec<Cell<'_>> = Vec::new();
        for &limit in limits {
            cells.extend(Cell::of(limit, kernels)?);
        }
        let unknowns = Unknowns { seed, scale, work: self.work };
        let first = |cell: &Cell<'_>| vec![(0, unknowns.first(cell.limit.period_ns()))];
        self.run_draws(&mut cells, first, running, watch)?;
        for cell in &mut cells {
            let is_likely = unknowns.is_likely(cell.limit.period_ns(), self.first_run(cell, 0));
            cell.samples[0].iter_mut().for_each(|(_, draw)| draw.likely = is_likely);
            cell.outcome = cell.outcome.take().filter(|_| is_likely);
        }
        let others = |cell: &Cell<'_>| {
            let (period_ns, throttled_percent) = (cell.limit.period_ns(), cell.throttled_percent());
            // No thread is late where nothing is throttled, so other readings make no difference.
            let readings = if throttled_percent > 0.0 { self.readings.len() } else { 1 };
            let is_nested = self.is_nested(cell.limit);
            let mut asked: Vec<(usize, Draw)> = Vec::new();
            for reading in 0..readings {
                let seen = self.first_run(cell, reading);
                let others = unknowns.others(period_ns, seen, is_nested);
                asked.extend(others.into_iter().map(|draw| (reading, draw)));
            }
            asked
        };
        self.run_draws(&mut cells, others, running, watch)?;
        Ok(self.runs_of(cells))
    }

    /// How often the limit throttles the cell's first run, and what its requests cost in a reading
    /// relative to all; they decide the cell's other draws.
    fn first_run(&self, cell: &Cell<'_>, reading: usize) -> FirstRun {
        let answered = cell.samples[0].first().map_or(0, |(sample, _)| sample.answered);
        let relative_cost = self.readings[reading].costs.relative_cost(answered);
        FirstRun { throttled_percent: cell.throttled_percent(), relative_cost }
    }

    /// Runs the draws that `choose` picks for each cell, each with the index of its reading.
    /// Appends their samples to the cell, by reading; the cell's first outcome stays.
    ///
    /// # Errors
    /// Of several failed runs, the first one's error.
    fn run_draws(
        &self,
        cells: &mut [Cell<'_>],
        choose: impl Fn(&Cell<'_>) -> Vec<(usize, Draw)>,
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let asked: Vec<(usize, usize, Draw)> = cells
            .iter()
            .enumerate()
            .flat_map(|(at, cell)| {
                choose(cell).into_iter().map(move |(reading, draw)| (at, reading, draw))
            })
            .collect();
        let job = |&(at, reading, draw): &(usize, usize, Draw)| {
            self.job(&self.readings[reading], cells[at].limit, cells[at].kernel, draw)
        };
        let jobs: Vec<Job> = asked.iter().map(job).collect::<Result<_, Error>>()?;
        let running = running.at_most(self.runs_at_once());
        world::each(&Model { running }, &jobs, watch, |place, report| {
            let (at, reading, draw) = asked[place];
            let Some(watched) = report.watched else { return };
            let from_ns = self.window_of_run().from_ns;
            let above = self.throttled_above(&report.outcome);
            let above_percent = above.map_or(0.0, |(_, percent)| percent);
            let sample = Sample::of_run(watched, from_ns, self.unit, self.over_ns);
            let sample = Sample { above_percent, ..sample };
            let cell = &mut cells[at];
            cell.samples.resize(cell.samples.len().max(reading + 1), Vec::new());
            cell.samples[reading].push((sample, draw));
            cell.outcome.get_or_insert((report.outcome, draw));
        })
    }

    /// How many runs may go on at once, by the memory of the largest reading; 0 if even one takes
    /// more than 160 MiB. A host with many CPUs may not have enough of it for a large recording.
    fn runs_at_once(&self) -> usize {
        let bytes = |reading: &Reading| {
            let Reading { workload, .. } = reading;
            workload.tasks.len() * TASK_BYTES + workload.jobs.len() * JOB_BYTES
        };
        let most = self.readings.iter().map(bytes).max().unwrap_or(0);
        RUNS_MAX_BYTES / most.max(1)
    }

    /// The job of one draw: the limit, with the phase, seed and cost of the draw, for the reading's
    /// workload. Draws that only widen the range draw the requests of open clients again.
    ///
    /// # Errors
    /// The limit is for a group that does not exist.
    fn job(
        &self,
        reading: &Reading,
        limit: &Try,
        kernel: Kernel,
        draw: Draw,
    ) -> Result<Job, Error> {
        let mut what_if = self.what_if(limit)?;
        what_if.phase_ns = limit.period_ns().map(|_| draw.phase_ns);
        what_if.apart_ns = draw.apart_ns;
        if reading.lasts {
            what_if.duration_ns = self.window_of_run().until_ns.max(1);
        }
        let window = self.window_of_run();
        let again = move |workload| drawn_again(workload, window, draw.seed);
        let variant =
            (reading.is_open && !draw.likely).then(|| Variant::new("requests drawn again", again));
        Ok(Job {
            what_if: Some(what_if),
            variant,
            watch: Some(cpumax_machine::Watch {
                group: self.group,
                from_ns: self.window_of_run().from_ns,
                until_done: !reading.lasts,
                cost_ppm: draw.cost_ppm,
            }),
            ..Job::new(Arc::clone(&reading.workload), kernel.into(), draw.seed)
        })
    }

    /// The job that makes the outcome of `run` again, of the most likely reading; an error if its
    /// limit names a group that does not exist.
    pub(crate) fn job_again(&self, run: &Run, kernel: Kernel) -> Result<Job, Error> {
        self.job(&self.readings[0], &run.limit, kernel, run.draw)
    }

    /// Makes a run of each cell that has an outcome, with its prediction, what makes it unreliable,
    /// and its slowdown over the run without a limit on the same kernel, if that came before.
    fn runs_of(&self, cells: Vec<Cell<'_>>) -> Vec<Run> {
        let none = Try::none();
        let window = self.window_of_run();
        let mut runs: Vec<Run> = Vec::new();
        for mut cell in cells {
            let Some((outcome, draw)) = cell.outcome.take() else { continue };
            let mut prediction = cell.prediction(0, self.unit);
            for (at, reading) in self.readings.iter().enumerate().take(cell.samples.len()).skip(1) {
                prediction.widen_by(cell.prediction(at, self.unit), reading.alternative);
            }
            self.mark_gaps(&mut prediction);
            let often = |throttled: Ranged<f64>| throttled.high > SELDOM_PERCENT;
            if (prediction.throttled_percent.is_some_and(often) || cell.is_stopped_above())
                && let Some(gap) = self.gaps.iter().find(|gap| gap.kind == GapKind::Clients)
            {
                prediction.mark_unreliable(gap.told.trim_end_matches('.'));
            }
            if self.service.as_ref().is_some_and(|service| service.or_more) {
                prediction.mark_unreliable(HOW_MANY);
            }
            let takes_ns = prediction.work_takes_ns.map(|takes| takes.value);
            let mut unlimited = runs.iter().filter(|run| run.limit == none);
            let base = unlimited.find(|run| run.outcome.kernel == outcome.kernel);
            let base_ns = if *cell.limit == none { takes_ns } else { base.and_then(Run::takes_ns) };
            let slowdown =
                takes_ns.zip(base_ns).map(|(ns, base_ns)| ns as f64 / base_ns.max(1) as f64);
            runs.push(Run {
                group: self.path().to_owned(),
                limit: cell.limit.clone(),
                lacks: cell.lacks,
                finished_ns: takes_ns.map(|ns| ns.saturating_add(window.from_ns)),
                slowdown,
                window,
                prediction,
                trace: None,
                outcome,
                lasts: self.readings[0].lasts,
                differs: Vec::new(),
                draw,
            });
        }
        runs
    }
}

impl<'a> Cell<'a> {
    /// Cells without samples, of a limit on those kernels that support anything of it, in order of
    /// kernels.
    ///
    /// # Errors
    /// None of the kernels supports anything of it.
    fn of(limit: &'a Try, kernels: &[Kernel]) -> Result<Vec<Cell<'a>>, Error> {
        let mut cells = Vec::new();
        let mut nothing = None;
        for &kernel in kernels {
            match limit.lacks(kernel) {
                Ok(lacks) => {
                    let samples = vec![Vec::new()];
                    cells.push(Cell { limit, kernel, lacks, samples, outcome: None });
                }
                Err(error) => nothing = nothing.or(Some(error)),
            }
        }
        match nothing {
            Some(error) if cells.is_empty() => Err(error),
            _ => Ok(cells),
        }
    }

    /// The prediction by the runs of one reading, which it holds sorted by seed.
    fn prediction(&self, reading: usize, unit: Unit) -> Prediction {
        let samples = &self.samples[reading];
        let likely: Vec<_> = samples.iter().map(|(sample, draw)| (sample, draw.likely)).collect();
        let run = |(sample, draw): &(Sample, Draw)| Drawn::new(reading, *draw, sample);
        let mut runs: Vec<Drawn> = samples.iter().map(run).collect();
        runs.sort_by_key(|run| run.seed);
        Prediction { runs, ..predict(&likely, unit) }
    }

    /// Throttled periods of the cell's first run, of a hundred, of the limited group or of one
    /// above it; 0 if it has no run.
    fn throttled_percent(&self) -> f64 {
        let first = self.samples[0].first();
        first.map_or(0.0, |(sample, _)| {
            sample.throttled_percent.unwrap_or(0.0).max(sample.above_percent)
        })
    }

    /// Whether a group above is throttled often in some run.
    fn is_stopped_above(&self) -> bool {
        let mut samples = self.samples.iter().flatten();
        samples.any(|(sample, _)| sample.above_percent > SELDOM_PERCENT)
    }
}
