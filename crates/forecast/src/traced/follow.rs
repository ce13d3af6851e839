//! Follows a run and keeps the states of each limited thread within the stretches, and who waited
//! for whom over the whole run.

use super::{CHANGES, Plan, Span, THREADS, WAITS};
use crate::stretch::{Does, RunTrace, Stretch, Thread, Wait};
use cpumax_outcome::trace::{Change, Numbered, State, States, TraceEvent, TraceSink, What};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Intervals of thread states that are kept of a stretch before the busiest threads are chosen;
/// with more, the stretch ends early.
const PIECES: usize = 400_000;
/// Resolution of a stretch's runtime, in steps.
const STEPS: u64 = 1_500;
/// Most stops of threads that are kept; later ones do not count in waits.
const STOPS: usize = 1_000_000;
/// Most pairs of waiter and holder; others are not counted.
const PAIRS: usize = 100_000;

#[derive(Debug)]
struct Kept {
    span: Span,
    /// Thread, from, until (ns since the start of the stretch), state; in the order in which they
    /// ended.
    pieces: Vec<(u32, u64, u64, Does)>,
    periods_ns: Vec<u64>,
    /// When (ns since the start of the stretch), and the runtime left, ns.
    runtime: Vec<(u64, u64)>,
}

/// The waiter, the lock, and the holder.
type Pair = (u32, Option<u32>, u32);

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    times: u64,
    total_ns: u64,
    stopped_ns: u64,
    longest_ns: u64,
}

/// An interval in which the limit had stopped a thread, and the time stopped before it.
#[derive(Debug, Clone)]
struct Stop {
    span: Range<u64>,
    before_ns: u64,
}

#[derive(Debug)]
pub(super) struct Follow {
    plan: Arc<Plan>,
    states: States,
    /// Throttled groups, by group and CPU.
    throttled: BTreeSet<(u32, u16)>,
    /// State of each limited thread, and since when, ns.
    does: BTreeMap<u32, (Does, u64)>,
    /// Stops by thread, ascending.
    stops: BTreeMap<u32, Vec<Stop>>,
    stops_kept: usize,
    /// Holder of each lock, as far as it was seen.
    holders: BTreeMap<u32, u32>,
    /// For each thread that waits for a lock: the holder when it began to wait, and that time, ns.
    held_by: BTreeMap<u32, (u32, u64)>,
    waits: BTreeMap<Pair, Sum>,
    /// Unlimited threads that have woken a limited one: clients, which wait for answers.
    asked: BTreeSet<u32>,
    stretches: Vec<Kept>,
    now_ns: u64,
}

impl Follow {
    /// An empty record of the stretches of `plan`; every thread sleeps at first.
    pub(super) fn new(plan: Arc<Plan>) -> Follow {
        let kept = |&span: &Span| Kept {
            span,
            pieces: Vec::new(),
            periods_ns: Vec::new(),
            runtime: Vec::new(),
        };
        Follow {
            stretches: plan.spans.iter().map(kept).collect(),
            plan,
            states: States::default(),
            throttled: BTreeSet::new(),
            does: BTreeMap::new(),
            stops: BTreeMap::new(),
            stops_kept: 0,
            holders: BTreeMap::new(),
            held_by: BTreeMap::new(),
            waits: BTreeMap::new(),
            asked: BTreeSet::new(),
            now_ns: 0,
        }
    }

    /// The state to show for a thread in this scheduler state. Up to 6.17 a ready thread counts as
    /// stopped while one of its groups is throttled on its CPU.
    fn state_of(&self, task: u32, state: State) -> Does {
        match state {
            State::Away => Does::Sleeps,
            State::Running { .. } => Does::Runs,
            State::Parked => Does::Stopped,
            State::LockWait { .. } => Does::WaitsForLock,
            // Up to 6.17 a stopped thread stays on its queue, and the queue is dequeued.
            State::Ready { cpu } if !self.plan.parks => {
                let stops = |group: &u32| self.throttled.contains(&(*group, cpu));
                if self.plan.stops(task).iter().any(stops) { Does::Stopped } else { Does::Ready }
            }
            State::Ready { .. } => Does::Ready,
        }
    }

    /// Sets the state of a limited thread from now on, and records the interval of the one that
    /// ends. Other threads are ignored.
    fn set(&mut self, task: u32, does: Does) {
        if self.plan.stops(task).is_empty() {
            return;
        }
        let now_ns = self.now_ns;
        let (was, since_ns) = self.does.get(&task).copied().unwrap_or((Does::Sleeps, now_ns));
        if was == does && self.does.contains_key(&task) {
            return;
        }
        self.does.insert(task, (does, now_ns));
        self.record_interval(task, was, since_ns);
    }

    /// Records that a thread was in state `was` from `since_ns` until now: in its stops, and in
    /// each stretch that overlaps. Sleep is not recorded.
    fn record_interval(&mut self, task: u32, was: Does, since_ns: u64) {
        let now_ns = self.now_ns;
        if was == Does::Sleeps || now_ns == since_ns {
            return;
        }
        if was == Does::Stopped && self.stops_kept < STOPS {
            let stops = self.stops.entry(task).or_default();
            let before_ns = stops.last().map_or(0, |stop| stop.before_ns + stop.lasts_ns());
            stops.push(Stop { span: since_ns..now_ns, before_ns });
            self.stops_kept += 1;
        }
        for kept in &mut self.stretches {
            let Span { from_ns, until_ns, .. } = kept.span;
            let (start, end) = (since_ns.max(from_ns), now_ns.min(until_ns));
            if start >= end {
                continue;
            }
            kept.pieces.push((task, start - from_ns, end - from_ns, was));
            if kept.pieces.len() == PIECES {
                kept.span.until_ns = end;
            }
        }
    }

    /// Time for which the limit had stopped a thread from `since_ns` until now, ns; stops beyond
    /// those kept do not count.
    fn stopped_since(&self, task: u32, since_ns: u64) -> u64 {
        let before = |at_ns: u64| {
            let stops = self.stops.get(&task).map_or(&[][..], Vec::as_slice);
            let after = stops.partition_point(|stop| stop.span.start < at_ns);
            let Some(stop) = after.checked_sub(1).and_then(|last| stops.get(last)) else {
                return 0;
            };
            stop.before_ns + at_ns.min(stop.span.end).saturating_sub(stop.span.start)
        };
        let under_way = match self.does.get(&task) {
            Some(&(Does::Stopped, from_ns)) => self.now_ns - from_ns.max(since_ns).min(self.now_ns),
            _ => 0,
        };
        before(self.now_ns) - before(since_ns) + under_way
    }

    /// Counts a wait of a thread for another one from `since_ns` until now, and the time in which
    /// the limit had stopped the other. Waits for unlimited threads do not count, nor do new pairs
    /// of threads once `PAIRS` are kept.
    fn add_wait(&mut self, pair: Pair, since_ns: u64) {
        let since_ns = since_ns.max(self.plan.from_ns).min(self.now_ns);
        let (waiter, _, holder) = pair;
        let lasted_ns = self.now_ns - since_ns;
        if waiter == holder || self.plan.stops(holder).is_empty() || lasted_ns == 0 {
            return;
        }
        let stopped_ns = self.stopped_since(holder, since_ns);
        if self.waits.len() == PAIRS && !self.waits.contains_key(&pair) {
            return;
        }
        let sum = self.waits.entry(pair).or_default();
        sum.times += 1;
        sum.total_ns += lasted_ns;
        sum.stopped_ns += stopped_ns;
        sum.longest_ns = sum.longest_ns.max(lasted_ns);
    }

    /// Counts the wait that an event ends, or notes the one that it begins: for a wakeup or for a
    /// lock.
    fn count_wait(&mut self, what: What) {
        match what {
            What::WokenBy { task, by } => {
                let is_limited = |task: u32| !self.plan.stops(task).is_empty();
                if is_limited(task) && !is_limited(by) {
                    self.asked.insert(by);
                }
                // Other threads have nothing to do, and do not wait.
                if !is_limited(task) && !self.asked.contains(&task) {
                    return;
                }
                if let Some((State::Away, since_ns)) = self.states.of(task) {
                    self.add_wait((task, None, by), since_ns);
                }
            }
            What::LockWait { task, lock } => {
                if let Some(&holder) = self.holders.get(&lock) {
                    self.held_by.insert(task, (holder, self.now_ns));
                }
            }
            What::LockTaken { task, lock } => {
                if let Some((holder, since_ns)) = self.held_by.remove(&task) {
                    self.add_wait((task, Some(lock), holder), since_ns);
                }
                self.holders.insert(lock, task);
            }
            _ => {}
        }
    }

    /// Sets the state of threads below `group` that are ready on `cpu`, where that group was just
    /// throttled or released.
    fn update_ready(&mut self, group: u32, cpu: u16) {
        let ready = self.states.all().filter(|(task, state, _)| {
            *state == (State::Ready { cpu }) && self.plan.stops(*task).contains(&group)
        });
        let ready: Vec<(u32, State)> = ready.map(|(task, state, _)| (task, state)).collect();
        for (task, state) in ready {
            let does = self.state_of(task, state);
            self.set(task, does);
        }
    }

    /// Records period edges and pool changes of the traced group in the stretches that are going
    /// on, with times since they began. Changes before a stretch tell the pool at its start.
    fn record_limit(&mut self, what: What) {
        let (now_ns, own) = (self.now_ns, self.plan.group);
        let within = |kept: &&mut Kept| {
            (kept.span.from_ns..=kept.span.until_ns).contains(&now_ns) && kept.has_room()
        };
        match what {
            What::Period { group } if group == own => {
                for kept in self.stretches.iter_mut().filter(within) {
                    kept.periods_ns.push(now_ns - kept.span.from_ns);
                }
            }
            What::Runtime { group, left_ns } if group == own => {
                let goes_on = |kept: &&mut Kept| now_ns <= kept.span.until_ns;
                for kept in self.stretches.iter_mut().filter(goes_on) {
                    kept.add_runtime(now_ns, left_ns);
                }
            }
            _ => {}
        }
    }

    /// Ends the recording, and returns the trace. Sleeps count as waits only where the limit
    /// stopped the waking thread.
    pub(super) fn finish(mut self) -> RunTrace {
        for (task, (does, since_ns)) in std::mem::take(&mut self.does) {
            self.record_interval(task, does, since_ns);
        }
        let plan = Arc::clone(&self.plan);
        let mut waits: Vec<Wait> = std::mem::take(&mut self.waits)
            .into_iter()
            // A sleeper that another thread wakes waits for the limit only while that thread is
            // stopped.
            .filter(|((_, lock, _), sum)| lock.is_some() || sum.stopped_ns > 0)
            .map(|((waiter, lock, holder), sum)| Wait {
                waiter: plan.name(waiter),
                lock: lock.map(|lock| plan.lock_name(lock)),
                holder: plan.name(holder),
                times: sum.times,
                total_ns: sum.total_ns,
                stopped_ns: sum.stopped_ns,
                longest_ns: sum.longest_ns,
            })
            .collect();
        let time = |wait: &Wait| if wait.lock.is_some() { wait.total_ns } else { wait.stopped_ns };
        waits.sort_by_key(|wait| std::cmp::Reverse(time(wait)));
        let waits_left_out = waits.len().saturating_sub(WAITS);
        waits.truncate(WAITS);
        let stretches = self.stretches.into_iter().map(|kept| kept.into_stretch(&plan)).collect();
        RunTrace { stretches, waits, waits_left_out }
    }
}

impl TraceSink for Follow {
    /// Follows one event: updates states, waits, and the stretches.
    fn event(&mut self, event: TraceEvent) {
        self.now_ns = event.time_ns;
        self.count_wait(event.what);
        let changes: Vec<Change> = self.states.event(&event).collect();
        for Change { task, is, .. } in changes {
            let does = self.state_of(task, is);
            self.set(task, does);
        }
        match event.what {
            What::Throttle { group } => {
                self.throttled.insert((group, event.cpu));
                self.update_ready(group, event.cpu);
            }
            What::Unthrottle { group } => {
                self.throttled.remove(&(group, event.cpu));
                self.update_ready(group, event.cpu);
            }
            what => self.record_limit(what),
        }
    }

    /// Names are known from the first run.
    fn name(&mut self, _: Numbered, _: String) {}
}

impl Stop {
    /// Length of the stop, ns.
    fn lasts_ns(&self) -> u64 {
        self.span.end - self.span.start
    }
}

impl Kept {
    /// Whether fewer period edges than [`CHANGES`] are kept.
    fn has_room(&self) -> bool {
        self.periods_ns.len() < CHANGES
    }

    /// Adds the runtime left in the pool, ns; keeps the first and the last of points within one
    /// step. Of points before the stretch only the last stays, as its start.
    fn add_runtime(&mut self, now_ns: u64, left_ns: u64) {
        let from_ns = self.span.from_ns;
        if now_ns < from_ns {
            self.runtime.clear();
        }
        let at_ns = now_ns.saturating_sub(from_ns);
        let step_ns = ((self.span.until_ns - from_ns) / STEPS).max(1);
        let step = |at_ns: u64| at_ns / step_ns;
        if let [.., (first, _), last] = &mut self.runtime[..]
            && step(*first) == step(at_ns)
        {
            *last = (at_ns, left_ns);
        } else {
            self.runtime.push((at_ns, left_ns));
        }
    }

    /// The stretch with its busiest threads: the one that answered the request first, at most 40,
    /// and few enough changes of state.
    fn into_stretch(self, plan: &Plan) -> Stretch {
        let Span { of, answered, from_ns, until_ns } = self.span;
        let mut by_task: BTreeMap<u32, (u64, Vec<[u64; 2]>)> = BTreeMap::new();
        for (task, start, end, does) in self.pieces {
            let (busy_ns, changes) = by_task.entry(task).or_default();
            *busy_ns += end - start;
            // The state before ended with sleep, unless it went on until now.
            if changes.last().is_some_and(|[at, _]| *at == start) {
                changes.pop();
            }
            let does = does as u64;
            if changes.last().is_none_or(|[_, before]| *before != does) {
                changes.push([start, does]);
            }
            changes.push([end, Does::Sleeps as u64]);
        }
        let mut all: Vec<(u32, u64, Vec<[u64; 2]>)> = by_task
            .into_iter()
            .map(|(task, (busy_ns, changes))| (task, busy_ns, changes))
            .collect();
        // The thread that completed the request comes first, however busy it was.
        let rank = |task: u32, busy_ns: u64| (task != answered.task, std::cmp::Reverse(busy_ns));
        all.sort_by_key(|(task, busy_ns, _)| (rank(*task, *busy_ns), *task));
        let (did, mut changes) = (all.len(), 0);
        let mut fits = |more: usize| {
            changes += more;
            changes <= CHANGES
        };
        let threads: Vec<Thread> = all
            .into_iter()
            .take(THREADS)
            .take_while(|(_, _, does)| fits(does.len()))
            .map(|(task, _, does)| Thread { name: plan.name(task), does })
            .collect();
        Stretch {
            of,
            by: plan.name(answered.task),
            took_ns: answered.took_ns,
            done_ns: answered.at_ns,
            from_ns,
            until_ns,
            periods_ns: self.periods_ns,
            runtime: self.runtime.into_iter().map(|(at, ns)| [at, ns / 1_000]).collect(),
            threads_left_out: did - threads.len(),
            threads,
        }
    }
}
