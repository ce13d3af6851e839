//! A run of a replay looked at closely: the stretch of time around the request that took longest,
//! and around one that took as long as most, thread by thread; and who waited for whom while the
//! limit had stopped that one.
//!
//! A run is a function of what is asked, so it is run twice more: first to see when requests were
//! completed, then to keep what happened around two of them. Memory is bounded, however long a run
//! is and whatever happens in it.

mod follow;
mod look;

use crate::error::{Error, OtherError};
use crate::job::Job;
use crate::kernels;
use crate::recorded::tasks_in;
use crate::replay::{Replay, Run};
use crate::watch::{Trace, Traced, Watch};
use crate::world::{self, Model, Running};
use cpumax_machine::kernel::Generation;
use cpumax_outcome::trace::{Names, TraceEvent, TraceSink};
use cpumax_workload::{GroupIx, Workload};
use follow::Follow;
use look::{Answered, Look};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A stretch is at least, and at most, so many periods long.
const PERIODS: std::ops::RangeInclusive<u64> = 3..=5;
/// Threads that are shown of a stretch, the busiest.
const THREADS: usize = 40;
/// Changes of what they do.
const CHANGES: usize = 6_000;
/// Waits that are told.
const WAITS: usize = 20;

/// A run looked at closely.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunTrace {
    /// The one around the longest request, then the one around a usual one.
    pub stretches: Vec<Stretch>,
    /// Who waited for whom in all of the run, most time first, and at most 20.
    pub waits: Vec<Wait>,
    /// How many more there were.
    pub waits_left_out: usize,
}

/// Some periods of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// Why it is shown.
    pub of: Why,
    /// The thread that completed the request that it is shown for.
    pub by: String,
    /// How long that took, ns.
    pub took_ns: u64,
    /// When it was completed, ns since the start of the run.
    pub done_ns: u64,
    /// When the stretch begins, ns since the start of the run.
    pub from_ns: u64,
    /// When it ends.
    pub until_ns: u64,
    /// When the group's period timer fired, ns since `from_ns`.
    pub periods_ns: Vec<u64>,
    /// `[when, how much]`: what the group may still use of its period and no CPU has taken yet,
    /// from then on; ns since `from_ns`, and us.
    pub runtime: Vec<[u64; 2]>,
    /// Limited threads, the busiest first.
    pub threads: Vec<Thread>,
    /// How many more did anything.
    pub threads_left_out: usize,
}

/// Why a stretch is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// No request took longer.
    Worst,
    /// Half of the requests took longer, half less long.
    Typical,
}

/// What a thread does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// `[when, what]`: what it does from then on; ns since the start of the stretch, and 0 asleep,
    /// 1 running, 2 ready, 3 stopped by the limit, 4 waiting for a lock.
    pub does: Vec<[u64; 2]>,
}

impl Thread {
    /// What it does but sleep: from, until, ns since the start of a stretch of this length.
    pub fn pieces(&self, length_ns: u64) -> impl Iterator<Item = (u64, u64, Does)> + '_ {
        let ends = self.does.iter().skip(1).map(|[at_ns, _]| *at_ns).chain([length_ns]);
        self.does.iter().zip(ends).filter_map(move |(&[from_ns, does], until_ns)| {
            let does = Does::of(does).filter(|does| *does != Does::Sleeps)?;
            let until_ns = until_ns.min(length_ns);
            (from_ns < until_ns).then_some((from_ns, until_ns, does))
        })
    }
}

/// What a thread of a stretch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Does {
    /// It has nothing to do.
    Sleeps = 0,
    /// It is on a CPU.
    Runs = 1,
    /// It waits for a CPU.
    Ready = 2,
    /// The limit has stopped it: it is parked, or what it is queued on is throttled.
    Stopped = 3,
    /// It waits for a lock.
    WaitsForLock = 4,
}

impl Does {
    /// All there are, by their numbers.
    pub const ALL: [Does; 5] =
        [Does::Sleeps, Does::Runs, Does::Ready, Does::Stopped, Does::WaitsForLock];

    /// By its number.
    pub fn of(number: u64) -> Option<Does> {
        Does::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// Who waited for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// Who waited.
    pub waiter: String,
    /// The lock it waited for; null: to be woken.
    pub lock: Option<String>,
    /// Who had the lock, or woke it.
    pub holder: String,
    /// How often.
    pub times: u64,
    /// How long in all, ns.
    pub total_ns: u64,
    /// For how much of that the limit had stopped who was waited for, ns.
    pub stopped_ns: u64,
    /// The longest of these waits, ns.
    pub longest_ns: u64,
}

impl Replay {
    /// Looks closely at those of the runs, all of a replay, that tell most: on the last kernel, the
    /// smallest limit under which hardly anybody notices, and the next smaller one.
    ///
    /// # Errors
    /// As of the runs.
    pub fn trace_telling(
        &self,
        runs: &mut [Run],
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let mut telling = look::telling(runs);
        self.trace(&mut telling, running, watch)
    }

    /// Looks closely at these of its runs.
    ///
    /// # Errors
    /// As of the runs.
    pub fn trace(
        &self,
        runs: &mut [&mut Run],
        running: &Running,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let jobs = runs.iter().map(|run| self.job_of(run)).collect::<Result<Vec<Job>, Error>>()?;
        let looked = traced(&jobs, running, watch, &|_| Look::default())?;
        let plans = jobs.iter().zip(looked).map(|(job, look)| Arc::new(Plan::of(job, look)));
        let plans: Vec<Arc<Plan>> = plans.collect();
        let follow = |at: usize| Follow::new(Arc::clone(&plans[at]));
        for (run, follow) in runs.iter_mut().zip(traced(&jobs, running, watch, &follow)?) {
            run.trace = Some(follow.told());
        }
        Ok(())
    }

    /// The job that the run tells its outcome of.
    fn job_of(&self, run: &Run) -> Result<Job, Error> {
        let kernel = kernels::modelled(&run.outcome.kernel)?.remove(0);
        self.job_again(run, kernel.kernel)
    }
}

/// What is to be kept of a run, and how its threads are to be understood.
#[derive(Debug, Clone)]
struct Plan {
    group: GroupIx,
    /// What happened before is not told, ns.
    from_ns: u64,
    names: Names,
    /// By number of a thread: the groups that stop it, if it is limited.
    groups: Vec<Vec<u32>>,
    /// The kernel takes who is stopped off its queue.
    parks: bool,
    spans: Vec<Span>,
}

/// A stretch that is to be kept.
#[derive(Debug, Clone, Copy)]
struct Span {
    of: Why,
    answered: Answered,
    from_ns: u64,
    until_ns: u64,
}

impl Plan {
    fn of(job: &Job, look: Look) -> Plan {
        let watch = job.watch;
        let group = watch.map_or(0, |watch| watch.group);
        let from_ns = watch.map_or(0, |watch| watch.from_ns);
        let own = job.what_if.as_ref().and_then(|what_if| what_if.shares.first());
        let period_ns = own.map_or(0, |(_, share)| share.limit.period_ns());
        let groups = limited(&job.workload, group, &look.names);
        let is_limited = |task: u32| groups.get(task as usize).is_some_and(|all| !all.is_empty());
        let answered = look.answered.into_iter();
        let mut answered: Vec<Answered> = answered
            .filter(|answered| answered.at_ns >= from_ns && is_limited(answered.task))
            .collect();
        // Those that took equally long in the order in which they were completed.
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

    fn name(&self, task: u32) -> String {
        self.names.tasks.get(task as usize).cloned().unwrap_or_else(|| format!("#{task}"))
    }

    fn lock_name(&self, lock: u32) -> String {
        self.names.locks.get(lock as usize).cloned().unwrap_or_else(|| format!("#{lock}"))
    }

    fn stops(&self, task: u32) -> &[u32] {
        self.groups.get(task as usize).map_or(&[], Vec::as_slice)
    }
}

/// By number of a thread, the groups it is in, its own first; none where it is not below `group`.
fn limited(workload: &Workload, group: GroupIx, names: &Names) -> Vec<Vec<u32>> {
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

/// Takes the events of each job into what is made for it.
fn traced<T: TraceSink + Send + 'static>(
    jobs: &[Job],
    running: &Running,
    watch: &dyn Watch,
    make: &(dyn Fn(usize) -> T + Sync),
) -> Result<Vec<T>, Error> {
    let kept: Vec<Arc<Mutex<Option<T>>>> = jobs.iter().map(|_| Arc::default()).collect();
    let watch = Tracing { watch, kept: &kept, make };
    world::each(&Model { running: *running }, jobs, &watch, |_, _| ())?;
    let taken =
        |one: &Arc<Mutex<Option<T>>>| one.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(kept.iter().filter_map(taken).collect())
}

/// Watches on behalf of another, and keeps the events.
struct Tracing<'a, T> {
    watch: &'a dyn Watch,
    kept: &'a [Arc<Mutex<Option<T>>>],
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

    fn trace(&self, job: usize) -> Traced {
        Ok(Some(Box::new(Keeps { of: (self.make)(job), to: Arc::clone(&self.kept[job]) })))
    }
}

/// Takes the events of one run, and hands over what it made of them.
struct Keeps<T> {
    of: T,
    to: Arc<Mutex<Option<T>>>,
}

impl<T: TraceSink> TraceSink for Keeps<T> {
    fn event(&mut self, event: TraceEvent) {
        self.of.event(event);
    }

    fn names(&mut self, names: Names) {
        self.of.names(names);
    }
}

impl<T: TraceSink> Trace for Keeps<T> {
    fn done(self: Box<Self>) -> Result<(), OtherError> {
        let Keeps { of, to } = *self;
        *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(of);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
