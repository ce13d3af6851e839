//! Traces a run of a replay: what each thread does around the slowest request and around a typical
//! one, and who waited for whom while the limit had stopped the other.
//!
//! A run is deterministic, so it runs twice more: first to find when requests were completed, then
//! to keep the events around two of them. Memory is bounded, however long a run is.

mod follow;
mod look;

use crate::recorded::tasks_in;
use crate::replay::{Replay, Run};
use crate::stretch::Why;
use cpumax_machine::kernel::Generation;
use cpumax_outcome::trace::{Names, TraceSink};
use cpumax_study::{
    Error, Job, Kept, Traced, Watch, kernels,
    world::{self, Model, Running},
};
use cpumax_workload::{GroupIx, Workload};
use follow::Follow;
use look::{Answered, Look};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Least and largest length of a stretch, in periods.
const PERIODS: std::ops::RangeInclusive<u64> = 3..=5;
/// Most threads shown of a stretch; the busiest are kept.
const THREADS: usize = 40;
/// Most changes of state that are kept of a stretch.
const CHANGES: usize = 6_000;
const WAITS: usize = 20;

impl Replay {
    /// Traces the runs of a replay that show most, on the last kernel: the smallest limit whose
    /// effect is hardly noticed, and the next smaller one. Runs each twice more, and stores the
    /// traces in `runs`.
    ///
    /// # Errors
    /// A run's kernel is not modelled; of several failed runs, the first one's error.
    pub fn trace_decisive(
        &self,
        runs: &mut [Run],
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let mut decisive = look::decisive(runs);
        self.trace(&mut decisive, running, watch)
    }

    /// Runs each of these twice more: once to find its requests, once to keep what happens around
    /// two of them. Stores the traces in `runs`.
    ///
    /// # Errors
    /// A run's kernel is not modelled; of several failed runs, the first one's error.
    pub fn trace(
        &self,
        runs: &mut [&mut Run],
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let jobs = runs.iter().map(|run| self.job_of(run)).collect::<Result<Vec<Job>, Error>>()?;
        let looked = collect_events(&jobs, running, watch, &|_| Look::default())?;
        let plans = jobs.iter().zip(looked).map(|(job, look)| Arc::new(Plan::of(job, look)));
        let plans: Vec<Arc<Plan>> = plans.collect();
        let follow = |at: usize| Follow::new(Arc::clone(&plans[at]));
        for (run, follow) in runs.iter_mut().zip(collect_events(&jobs, running, watch, &follow)?) {
            run.trace = Some(follow.finish());
        }
        Ok(())
    }

    /// The job that makes the outcome of `run` again; an error if its kernel is not modelled.
    fn job_of(&self, run: &Run) -> Result<Job, Error> {
        let kernel = kernels::modelled(&run.outcome.kernel)?.remove(0);
        self.job_again(run, kernel.kernel)
    }
}

/// The parts of a run to keep, and how to interpret its threads.
#[derive(Debug, Clone)]
struct Plan {
    group: GroupIx,
    /// Events before this time are ignored, ns.
    from_ns: u64,
    names: Names,
    /// Groups whose throttle stops a thread, by the number of the thread; empty if it is not
    /// limited.
    groups: Vec<Vec<u32>>,
    /// Whether the kernel dequeues stopped threads one by one (from 6.18 on).
    parks: bool,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    of: Why,
    answered: Answered,
    from_ns: u64,
    until_ns: u64,
}

impl Plan {
    /// Chooses the stretches around the slowest and the median request of the limited threads,
    /// three to five periods each. Without requests there are no stretches.
    fn of(job: &Job, look: Look) -> Plan {
        let watch = job.watch;
        let group = watch.map_or(0, |watch| watch.group);
        let from_ns = watch.map_or(0, |watch| watch.from_ns);
        let own = job.what_if.as_ref().and_then(|what_if| what_if.shares.first());
        let period_ns = own.map_or(0, |(_, share)| share.limit.period_ns());
        let groups = groups_of_threads(&job.workload, group, &look.names);
        let is_limited = |task: u32| groups.get(task as usize).is_some_and(|all| !all.is_empty());
        let answered = look.answered.into_iter();
        let mut answered: Vec<Answered> = answered
            .filter(|answered| answered.at_ns >= from_ns && is_limited(answered.task))
            .collect();
        // Requests of equal latency are in the order of their completion.
        answered.sort_by_key(|answered| (answered.took_ns, answered.at_ns));
        let middle = answered.len().div_ceil(2).saturating_sub(1);
        let chosen = [(Why::Worst, answered.last()), (Why::Typical, answered.get(middle))];
        let span = |(of, answered): (Why, Option<&Answered>)| {
            let answered = *answered?;
            let length_ns = answered.took_ns.saturating_add(period_ns).clamp(
                period_ns.saturating_mul(*PERIODS.start()),
                period_ns.saturating_mul(*PERIODS.end()),
            );
            let until_ns = answered.at_ns.saturating_add(period_ns / 2).min(look.last_ns);
            let from_ns = until_ns.saturating_sub(length_ns);
            let until_ns = from_ns.saturating_add(length_ns).min(look.last_ns);
            Some(Span { of, answered, from_ns, until_ns })
        };
        let parks = !matches!(
            job.kernel.kernel.generation,
            Generation::G0 | Generation::G1 | Generation::G2 | Generation::G2a
        );
        let spans = chosen.into_iter().filter_map(span).collect();
        Plan { group, from_ns, names: look.names, groups, parks, spans }
    }

    /// The name of a thread, or `#` and its number.
    fn name(&self, task: u32) -> String {
        self.names.tasks.get(task as usize).cloned().unwrap_or_else(|| format!("#{task}"))
    }

    /// The name of a lock, or `#` and its number.
    fn lock_name(&self, lock: u32) -> String {
        self.names.locks.get(lock as usize).cloned().unwrap_or_else(|| format!("#{lock}"))
    }

    /// The groups whose throttle stops a thread; none if it is not limited.
    fn stops(&self, task: u32) -> &[u32] {
        self.groups.get(task as usize).map_or(&[], Vec::as_slice)
    }
}

/// The groups of each thread up to the root, its own first, by the number of the thread; empty
/// where it is not in `group` or below. Threads are found by the names of their tasks.
fn groups_of_threads(workload: &Workload, group: GroupIx, names: &Names) -> Vec<Vec<u32>> {
    let chain = |group: GroupIx| {
        let above = |at: &GroupIx| workload.groups.get(*at as usize).and_then(|group| group.parent);
        std::iter::successors(Some(group), above).collect::<Vec<u32>>()
    };
    let kinds: BTreeMap<&str, (bool, Vec<u32>)> = tasks_in(workload, group)
        .into_iter()
        .map(|kind| (kind.name.as_str(), (kind.count > 1, chain(kind.group))))
        .collect();
    let of = |name: &String| {
        let alone = kinds.get(name.as_str()).filter(|(several, _)| !several);
        let instance = || {
            let (kind, _) = name.rsplit_once('/')?;
            kinds.get(kind).filter(|(several, _)| *several)
        };
        alone.or_else(instance).map(|(_, groups)| groups.clone()).unwrap_or_default()
    };
    names.tasks.iter().map(of).collect()
}

/// Runs the jobs in the model, and feeds the events of each into a sink that `make` makes for its
/// place; returns the sinks in order. The first failed job is the error.
fn collect_events<T: TraceSink + Send + 'static>(
    jobs: &[Job],
    running: &Running,
    watch: &dyn Watch,
    make: &(dyn Fn(usize) -> T + Sync),
) -> Result<Vec<T>, Error> {
    let watch = Tracing { watch, kept: Kept::default(), make };
    world::each(&Model { running: *running }, jobs, &watch, |_, _| ())?;
    Ok((0..jobs.len()).filter_map(|job| watch.kept.take(job)).collect())
}

/// Forwards to another watch, and keeps the events.
struct Tracing<'a, T> {
    watch: &'a dyn Watch,
    kept: Kept<T>,
    make: &'a (dyn Fn(usize) -> T + Sync),
}

impl<T: TraceSink + Send + 'static> Watch for Tracing<'_, T> {
    fn stopped(&self) -> bool {
        self.watch.stopped()
    }

    fn planned(&self, jobs: &[Job]) {
        self.watch.planned(jobs);
    }

    fn advanced(&self, by_ns: u64) {
        self.watch.advanced(by_ns);
    }

    /// A sink of its own for each job.
    fn trace(&self, job: usize) -> Traced {
        Ok(Some(self.kept.filled(job, (self.make)(job))))
    }
}

#[cfg(test)]
mod tests;
