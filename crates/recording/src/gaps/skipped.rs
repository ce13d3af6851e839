//! Times at which periodic threads should have run and did not: some are among events that are lost
//! without a trace, and a machine that is stopped skips them.

use super::{GapKind, Gaps, exceeds};
use crate::recording::Recording;
use crate::thread::Thread;

/// Least number of intervals that show a period, and the shortest period, ns.
const INTERVALS_LEAST: usize = 10;
const PERIOD_LEAST_NS: u64 = 1_000_000;
/// How far an interval may be from a multiple of the period, as one part of a period in so many.
const NEAR: u64 = 20;
/// A pause is longer than so many periods.
const PAUSE_PERIODS: u64 = 100;
/// Least number of periodic threads that skip times, at least twice each.
const THREADS_LEAST: usize = 3;
const SKIPPED_LEAST: u64 = 2;
/// Doubtful percentage of skipped times.
const SKIPPED_PERCENT: u64 = 5;

/// How many periods lie in an interval, if it is near a multiple of the period.
fn multiple(interval_ns: u64, period_ns: u64) -> Option<u64> {
    let times = interval_ns.saturating_add(period_ns / 2) / period_ns;
    let off_ns = interval_ns.abs_diff(times.saturating_mul(period_ns));
    (times > 0 && off_ns <= period_ns / NEAR).then_some(times)
}

/// The times at which a thread was woken, ns.
fn wakes(thread: &Thread) -> impl Iterator<Item = u64> {
    thread.waits.iter().map(|wait| wait.end_ns)
}

/// The period of a thread from the times between its wakeups: at least 30 % of them are of this
/// length, and 90 % of a multiple of it. `None` if there is none of 1 ms or more.
fn period(thread: &Thread) -> Option<u64> {
    let pairs = thread.waits.windows(2);
    let mut intervals: Vec<u64> =
        pairs.map(|pair| pair[1].end_ns.saturating_sub(pair[0].end_ns)).collect();
    if intervals.len() < INTERVALS_LEAST {
        return None;
    }
    intervals.sort_unstable();
    let is_period = |period_ns: &u64| {
        let times = intervals.iter().filter_map(|ns| multiple(*ns, *period_ns));
        let (near, once) =
            times.fold((0, 0), |(near, once), times| (near + 1, once + usize::from(times == 1)));
        once * 10 >= intervals.len() * 3 && near * 10 >= intervals.len() * 9
    };
    let candidates = (1..=10).map(|part| intervals[intervals.len() * part / 20]);
    candidates.filter(|ns| *ns >= PERIOD_LEAST_NS).find(is_period)
}

/// Times at which wakeups of a thread are due by its period and at which it sleeps on. A sleep of
/// more than 100 periods is a pause.
fn skipped_times(thread: &Thread, period_ns: u64) -> impl Iterator<Item = u64> {
    thread.waits.windows(2).flat_map(move |pair| {
        let (wake_ns, next) = (pair[0].end_ns, &pair[1]);
        let times = multiple(next.end_ns.saturating_sub(wake_ns), period_ns);
        let times = times.filter(|times| *times <= PAUSE_PERIODS).unwrap_or(1);
        (1..times)
            .map(move |time| wake_ns.saturating_add(time * period_ns))
            .filter(|ns| next.start_ns < *ns)
    })
}

impl Recording {
    /// Adds, as doubtful, that three periodic threads or more, and half of all, skip more than 5 %
    /// of their times, and that none but steady ones ran then: threads that share out their work do
    /// not count.
    pub(super) fn add_skipped_times(&self, gaps: &mut Gaps) {
        let periods: Vec<Option<u64>> = self.threads.iter().map(period).collect();
        let skips = |(thread, period_ns): (&Thread, &Option<u64>)| {
            period_ns.map_or(0, |ns| skipped_times(thread, ns).count() as u64)
        };
        let is_steady = |(thread, period_ns): &(&Thread, &Option<u64>)| {
            period_ns.is_some() && skips((thread, period_ns)) < SKIPPED_LEAST
        };
        let all = || self.threads.iter().zip(&periods);
        let others = all().filter(|one| !is_steady(one)).flat_map(|(thread, _)| wakes(thread));
        let mut times_ns: Vec<u64> = others.collect();
        times_ns.sort_unstable();
        let (mut periodic, mut skipping, mut due, mut skipped) = (0, 0, 0, 0);
        for (thread, period_ns) in all() {
            let Some(period_ns) = *period_ns else { continue };
            let is_silent = |ns: &u64| {
                let from_ns = ns - period_ns / NEAR;
                let next = times_ns.partition_point(|time_ns| *time_ns < from_ns);
                times_ns
                    .get(next)
                    .is_none_or(|time_ns| *time_ns > ns.saturating_add(period_ns / NEAR))
            };
            let silent = skipped_times(thread, period_ns).filter(is_silent).count() as u64;
            periodic += 1;
            skipping += usize::from(silent >= SKIPPED_LEAST);
            due += thread.waits.len() as u64 + silent;
            skipped += silent;
        }
        let are_many = skipping >= THREADS_LEAST && skipping * 2 >= periodic;
        if are_many && exceeds(skipped, SKIPPED_PERCENT, due) {
            let told = format!(
                "{skipping} of {periodic} periodic threads skip {skipped} of {due} times at which \
                 they should have run, and no other does their work then: events are missing \
                 without a trace, or the machine was stopped."
            );
            gaps.add(GapKind::Skipped, true, told);
        }
    }
}
