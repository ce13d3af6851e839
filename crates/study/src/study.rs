//! A study: one workload under limits, on kernels, with seeds, as a table of results.

use crate::Error;
use crate::job::{Job, Microseconds, NamedKernel, Variant, WhatIf};
use crate::report::Report;
use crate::watch::{Step, Traced, Watch};
use crate::what_if::Try;
use crate::world::World;
use cpumax_limit::Missing;
use cpumax_machine::kernel::Kernel;
use cpumax_workload::Workload;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

/// Most rows that wait to be read.
const AHEAD: usize = 16;

/// One workload under limits, on kernels, with seeds, and in variants.
///
/// ```
/// use cpumax_study::{Model, Study, Try, kernel, scenario};
/// use std::ops::ControlFlow;
///
/// let study = Study::new(scenario::load("burst")?)
///     .under(&[Try::parse("20000 100000")?, Try::parse("max")?])?
///     .on(kernel::parse_kernels("6.12,7.3")?)
///     .with_seeds(1..=3);
/// let mut throttled = Vec::new();
/// study.run(&Model::default(), &(), &mut |row| {
///     let report = row.report.expect("this scenario runs");
///     let label = row.limit.unwrap().label();
///     throttled.push((label, report.outcome.groups["/limited"].nr_throttled));
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(throttled.len(), 2 * 2 * 3);
/// assert!(throttled[0].1 > 0, "it needs more than 20 ms");
/// assert_eq!(throttled[11], ("none".to_owned(), 0));
/// # Ok::<(), cpumax_study::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Study {
    workload: Arc<Workload>,
    limits: Vec<Limit>,
    variants: Vec<Option<Variant>>,
    kernels: Vec<NamedKernel>,
    seeds: RangeInclusive<u64>,
    noise: Option<u64>,
}

/// A limit and its changes; both are `None` for the workload as it is.
type Limit = (Option<Try>, Option<WhatIf>);

/// One row of a study's table: a combination, and its report.
#[derive(Debug)]
pub struct Row {
    /// The limit; `None` is the workload's own.
    pub limit: Option<Try>,
    /// The variant.
    pub variant: Option<Variant>,
    /// The kernel.
    pub kernel: NamedKernel,
    /// Parts of limits that the kernel does not have; the run is without them.
    pub lacks: Vec<Missing>,
    /// The seed.
    pub seed: u64,
    /// The report of the run.
    pub report: Result<Report, Error>,
}

/// Takes a row; may stop the rest.
pub type EachRow<'a> = &'a mut dyn FnMut(Row) -> ControlFlow<()>;

impl Study {
    /// The workload with its own limits, on the newest modelled kernel, with seed 1 and without
    /// noise.
    pub fn new(workload: impl Into<Arc<Workload>>) -> Study {
        Study {
            workload: workload.into(),
            limits: vec![(None, None)],
            variants: vec![None],
            kernels: vec![Kernel::newest().into()],
            seeds: 1..=1,
            noise: None,
        }
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Sets the kernels.
    #[must_use]
    pub fn on<K: Into<NamedKernel>>(mut self, kernels: impl IntoIterator<Item = K>) -> Study {
        self.kernels = kernels.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the seeds.
    #[must_use]
    pub fn with_seeds(mut self, seeds: RangeInclusive<u64>) -> Study {
        self.seeds = seeds;
        self
    }

    /// Sets the seed of random microseconds in the model; `None` leaves that to the world.
    #[must_use]
    pub fn with_noise(mut self, noise: Option<u64>) -> Study {
        self.noise = noise;
        self
    }

    /// Sets limits in place of the workload's own. A limit without a group is for the first group
    /// that has one.
    ///
    /// # Errors
    /// There is no such group, no group has a limit, or a limit beside it is for the root, a
    /// missing group or one that has two.
    pub fn under(mut self, limits: &[Try]) -> Result<Study, Error> {
        let what_if = |limit: &Try| {
            let groups = &self.workload.groups;
            let group = if let Some(path) = &limit.group {
                crate::change::find_group(&self.workload, path)?
            } else {
                let limited = groups.iter().position(|group| group.limit.quota_ns().is_some());
                limited.ok_or(Error::NoLimit)? as u32
            };
            let duration_ns = self.workload.duration_ns;
            let what_if = limit.what_if(&self.workload, group, 0, 0)?;
            let what_if = WhatIf { duration_ns, ..what_if };
            Ok((Some(limit.clone()), Some(what_if)))
        };
        self.limits = limits.iter().map(what_if).collect::<Result<_, Error>>()?;
        Ok(self)
    }

    /// Sets variants in place of the workload as it is.
    #[must_use]
    pub fn with_variants(mut self, variants: Vec<Variant>) -> Study {
        self.variants = variants.into_iter().map(Some).collect();
        self
    }

    /// The runs, in the order of the table: by limit, variant, kernel, seed. Kernels that support
    /// nothing of a limit are left out.
    pub fn jobs(&self) -> Vec<Job> {
        self.cells().map(|cell| self.job(&cell)).collect()
    }

    /// The combinations, in the order of the table: by limit, then variant, kernel and seed.
    /// Kernels that support nothing of a limit are left out.
    fn cells<'a>(&'a self) -> impl Iterator<Item = Cell<'a>> {
        let of_kernel = move |limit, variant, kernel: &'a NamedKernel| {
            let tried = lacks(limit, kernel).is_ok();
            let seeds = self.seeds.clone().filter(move |_| tried);
            seeds.map(move |seed| Cell { workload: &self.workload, limit, variant, kernel, seed })
        };
        let of_variant = move |limit, variant| {
            self.kernels.iter().flat_map(move |kernel| of_kernel(limit, variant, kernel))
        };
        let of_limit =
            move |limit| self.variants.iter().flat_map(move |variant| of_variant(limit, variant));
        self.limits.iter().flat_map(of_limit)
    }

    /// The first kernel's error if no kernel supports anything of the limit.
    fn check_supported(&self, limit: &Limit) -> Result<(), Error> {
        let mut all = self.kernels.iter().map(|kernel| lacks(limit, kernel));
        match all.next() {
            Some(Err(error)) if all.all(|lacks| lacks.is_err()) => Err(error),
            _ => Ok(()),
        }
    }

    /// The job of a combination, with the noise of the study and no watched group.
    fn job(&self, cell: &Cell<'_>) -> Job {
        Job {
            what_if: cell.limit.1.clone(),
            variant: cell.variant.clone(),
            noise: self.noise.map(Microseconds::of),
            ..Job::new(Arc::clone(&self.workload), cell.kernel.clone(), cell.seed)
        }
    }

    /// Runs the study, and hands over each row in order, as soon as it and all rows before it are
    /// complete. A failed run is a row with its error; `each` may stop the rest.
    ///
    /// # Errors
    /// Nothing can be run in that world, or no kernel supports anything of a limit.
    pub fn run(
        &self,
        world: &dyn World,
        watch: &dyn Watch,
        each: EachRow<'_>,
    ) -> Result<(), Error> {
        self.limits.iter().try_for_each(|limit| self.check_supported(limit))?;
        let cells: Vec<Cell<'_>> = self.cells().collect();
        world.run(&self.jobs(), watch, &mut |index, report| each(cells[index].row(report)))
    }

    /// Runs the study on a thread of its own; the iterator yields rows in order. Dropping it stops
    /// the runs.
    ///
    /// ```
    /// use cpumax_study::{Model, Study, scenario};
    /// use std::sync::Arc;
    ///
    /// let study = Study::new(scenario::load("burst")?).with_seeds(1..=1000);
    /// let first = study.rows(Arc::new(Model::default()), Arc::new(())).next().unwrap()?;
    /// assert_eq!(first.seed, 1);
    /// # Ok::<(), cpumax_study::Error>(())
    /// ```
    pub fn rows(
        self,
        world: Arc<dyn World + Send + Sync>,
        watch: Arc<dyn Watch + Send + Sync>,
    ) -> Rows {
        let (send, receive) = mpsc::sync_channel(AHEAD);
        let gone = Arc::new(AtomicBool::new(false));
        let until = Until { watch, gone: Arc::clone(&gone) };
        let runs = thread::spawn(move || {
            let ended = self.run(&*world, &until, &mut |row| match send.send(Ok(row)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            });
            if let Err(error) = ended {
                let _ = send.send(Err(error));
            }
        });
        Rows { receiver: Some(receive), gone, runs: Some(runs) }
    }
}

/// Parts of a limit that a kernel does not have; an error if it supports nothing of it.
fn lacks(limit: &Limit, kernel: &NamedKernel) -> Result<Vec<Missing>, Error> {
    limit.0.as_ref().map_or(Ok(Vec::new()), |limit| limit.lacks(kernel.kernel))
}

struct Cell<'a> {
    workload: &'a Workload,
    limit: &'a Limit,
    variant: &'a Option<Variant>,
    kernel: &'a NamedKernel,
    seed: u64,
}

impl Cell<'_> {
    /// Parts that the kernel does not have, each once: of the tried limit, and of the workload's
    /// own where that does not replace them.
    fn lacks(&self) -> Vec<Missing> {
        let mut lacks = lacks(self.limit, self.kernel).unwrap_or_default();
        let kernel = self.kernel.kernel;
        let what_if = self.limit.1.as_ref();
        let has_other = |group| what_if.is_some_and(|what_if| what_if.limits(group));
        let own = crate::change::lacks_beside(self.workload, kernel, has_other);
        lacks.extend(own.filter(|own| !lacks.contains(own)));
        lacks
    }

    /// The row of this combination with its report.
    fn row(&self, report: Result<Report, Error>) -> Row {
        Row {
            limit: self.limit.0.clone(),
            variant: self.variant.clone(),
            kernel: self.kernel.clone(),
            lacks: self.lacks(),
            seed: self.seed,
            report,
        }
    }
}

/// Rows of a running study, in order; an error means that nothing more can be run.
#[derive(Debug)]
pub struct Rows {
    receiver: Option<mpsc::Receiver<Result<Row, Error>>>,
    gone: Arc<AtomicBool>,
    runs: Option<JoinHandle<()>>,
}

impl Iterator for Rows {
    type Item = Result<Row, Error>;

    /// Blocks until the next row; `None` after the last.
    fn next(&mut self) -> Option<Self::Item> {
        self.receiver.as_ref()?.recv().ok()
    }
}

impl Drop for Rows {
    /// Stops the runs, and waits for their thread.
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        drop(self.receiver.take());
        if let Some(runs) = self.runs.take() {
            // The thread has reported its error as a row.
            drop(runs.join());
        }
    }
}

/// Forwards to another watch, until the reader of rows is gone.
struct Until {
    watch: Arc<dyn Watch + Send + Sync>,
    gone: Arc<AtomicBool>,
}

impl Watch for Until {
    /// Whether the reader of rows is gone, or the other watch asks to stop.
    fn stopped(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.watch.stopped()
    }

    fn planned(&self, jobs: &[Job]) {
        self.watch.planned(jobs);
    }

    fn advanced(&self, by_ns: u64) {
        self.watch.advanced(by_ns);
    }

    fn step(&self, job: usize, step: Step) {
        self.watch.step(job, step);
    }

    fn trace(&self, job: usize) -> Traced {
        self.watch.trace(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;

    #[test]
    fn a_row_tells_what_its_kernel_does_not_have_of_any_limit() {
        let text = r#"
            duration = "10ms"
            [[group]]
            path = "/a"
            max = "20000 100000"
            burst = 20000
            [[group]]
            path = "/b"
            [[task]]
            name = "t"
            program = [{ user = "1ms" }]
        "#;
        let workload = cpumax_workload::parse(text, "burst.toml").unwrap();
        let lacks = |limits: &[&str]| {
            let study = Study::new(workload.clone());
            let study = study.on(cpumax_machine::kernel::parse_kernels("5.4,6.12").unwrap());
            let tries: Vec<Try> = limits.iter().map(|limit| Try::parse(limit).unwrap()).collect();
            let study = if tries.is_empty() { study } else { study.under(&tries).unwrap() };
            let mut lacks = Vec::new();
            let each = &mut |row: Row| {
                lacks.push(row.lacks.len());
                ControlFlow::Continue(())
            };
            study.run(&Model::default(), &(), each).unwrap();
            lacks
        };
        assert_eq!(lacks(&[]), [1, 0]);
        assert_eq!(lacks(&["/a:500m"]), [0, 0]);
        assert_eq!(lacks(&["/b:500m"]), [1, 0]);
        assert_eq!(lacks(&["/b:500m,cpu.max.burst=1000"]), [1, 0]);
    }
}
