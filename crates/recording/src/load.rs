//! The load of a group as recorded: its window, its CPU time, and how long its bursts took. A burst
//! is the work of a thread from a wakeup until it waits again.
//!
//! A recording begins before the load and ends after it, and an idle group works a little too. The
//! window therefore covers the time in which most of the CPU time lies close together.

use crate::build::Selection;
use crate::recording::Recording;
use crate::requests::{Request, Service};
use crate::thread::{Birth, Step, Thread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interval of time, ns since the recording began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// First activity.
    pub from_ns: u64,
    /// Last activity.
    pub until_ns: u64,
}

impl Window {
    /// Length, ns; never 0.
    pub fn length_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.from_ns).max(1)
    }
}

/// The bursts of the threads of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// In order of their starts.
    bursts: Vec<Burst>,
    span_ns: u64,
    /// CPU time that recording took, beyond the CPU time of the bursts, ns.
    cost_ns: u64,
}

/// Work of a thread from a wakeup, or its birth, until it waits or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Burst {
    from_ns: u64,
    until_ns: u64,
    cpu_ns: u64,
    /// Whether both its start and its end were recorded.
    whole: bool,
}

/// Sums of a load within a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Further CPU time, which recording took, ns.
    pub cost_ns: u64,
    /// Duration of each burst that ended in the window, ns.
    pub bursts_ns: Vec<u64>,
}

/// CPU demand of a group's threads, running or ready to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// CPU time used in each interval of one period, ns, ascending.
    pub windows_ns: Vec<u64>,
    /// Element `n` is the time in which at least `n + 1` threads had work, ns.
    pub at_once_ns: Vec<u64>,
}

/// Bound on the intervals, so that a damaged recording takes no time.
const WINDOWS_MAX: u64 = 20_000;
/// Steps into which the recording is divided to find the window.
const STEPS: u64 = 50;
/// A step belongs to the load if it holds at least this percentage of the CPU time of a typical
/// step. The typical step contains the median of all CPU time.
const LOAD_PERCENT: u64 = 5;
/// Weight of a request where only the number of requests counts.
const WEIGHT: u64 = 1_000_000;
/// A burst beside the load belongs to it if the pause between them is at most so many times the
/// longest pause within the load.
const PAUSES: u64 = 3;

impl Recording {
    /// The bursts of the selection's chosen threads, and the cost of recording them.
    pub fn load(&self, selection: &Selection) -> Load {
        let names = self.names();
        let inside = self.inside(&names, selection);
        let mut bursts = Vec::new();
        for ix in (0..self.threads.len()).filter(|ix| inside[*ix]) {
            self.bursts_of(&self.threads[ix], &mut bursts);
        }
        bursts.sort_unstable_by_key(|burst| (burst.from_ns, burst.until_ns));
        let costs = self.threads.iter().zip(&inside).filter(|(_, inside)| **inside);
        let cost_ns = costs.fold(0u64, |sum, (thread, _)| sum.saturating_add(thread.cost_ns));
        Load { bursts, span_ns: self.span_ns(), cost_ns }
    }

    /// Appends the bursts of a thread, from each wakeup (or its birth) to the next wait, with times
    /// since the recording began; the first and the last may not be whole.
    fn bursts_of(&self, thread: &Thread, bursts: &mut Vec<Burst>) {
        let since = |ns: u64| ns.saturating_sub(self.first_ns);
        let at_ns = thread.birth.at_ns();
        let mut burst = Burst {
            from_ns: at_ns,
            until_ns: at_ns,
            cpu_ns: 0,
            whole: matches!(thread.birth, Birth::Forked { .. }),
        };
        for step in thread.steps.iter() {
            match step {
                Step::Run(ns) => burst.cpu_ns = burst.cpu_ns.saturating_add(ns),
                Step::Wait(wait) => {
                    let wait = &thread.waits[wait as usize];
                    burst.until_ns = since(wait.start_ns).max(burst.from_ns);
                    bursts.push(burst);
                    let from_ns = since(wait.end_ns);
                    burst = Burst { from_ns, until_ns: from_ns, cpu_ns: 0, whole: true };
                }
                _ => {}
            }
        }
        burst.until_ns = since(thread.last_ns).max(burst.from_ns);
        burst.whole &= thread.exited || thread.asleep;
        if burst.cpu_ns > 0 || burst.whole {
            bursts.push(burst);
        }
    }
}

impl Load {
    /// The load of a service's requests: each request is a burst of equal weight, so its CPU times
    /// mean nothing.
    pub fn of_requests(service: &Service, span_ns: u64) -> Load {
        let burst = |request: &Request| Burst {
            from_ns: request.arrived_ns,
            until_ns: request.answered_ns.max(request.arrived_ns),
            cpu_ns: WEIGHT,
            whole: true,
        };
        let mut bursts: Vec<Burst> = service.requests.iter().map(burst).collect();
        bursts.sort_unstable_by_key(|burst| (burst.from_ns, burst.until_ns));
        Load { bursts, span_ns, cost_ns: 0 }
    }

    /// The window of the load: from the start of the first burst to the end of the last one in the
    /// steps (a fiftieth of the recording) with much CPU time, and bursts beside it after short
    /// pauses. The whole recording if there is no load.
    pub fn window(&self) -> Window {
        let whole = Window { from_ns: 0, until_ns: self.span_ns };
        let step_ns = self.span_ns / STEPS;
        let Some((first, last)) = (if step_ns > 0 { self.core_steps(step_ns) } else { None })
        else {
            return whole;
        };
        let islands = self.islands();
        // The edges of the steps are coarse: the window begins and ends with a burst.
        let (from_ns, until_ns) = (first * step_ns, (last + 1) * step_ns);
        let inside = |island: &&Window| island.until_ns > from_ns && island.from_ns < until_ns;
        let within: Vec<&Window> = islands.iter().filter(inside).collect();
        let (Some(head), Some(tail)) = (within.first(), within.last()) else { return whole };
        let pause_ns = within.windows(2).map(|two| two[1].from_ns - two[0].until_ns).max();
        let pause_ns = pause_ns.unwrap_or(0).saturating_mul(PAUSES).max(step_ns / 2);
        let mut window = Window { from_ns: head.from_ns, until_ns: tail.until_ns };
        let (head_ns, tail_ns) = (window.from_ns, window.until_ns);
        let earliest_ns = head_ns.saturating_sub(pause_ns + step_ns);
        for island in islands.iter().rev().filter(|island| island.until_ns < head_ns) {
            if window.from_ns - island.until_ns > pause_ns || island.from_ns < earliest_ns {
                break;
            }
            window.from_ns = island.from_ns;
        }
        let latest_ns = tail_ns.saturating_add(pause_ns + step_ns);
        for island in islands.iter().filter(|island| island.from_ns > tail_ns) {
            if island.from_ns - window.until_ns > pause_ns || island.until_ns > latest_ns {
                break;
            }
            window.until_ns = island.until_ns;
        }
        window
    }

    /// Sums within a window: CPU time, of a burst across an edge in part; the duration of each
    /// whole burst that ends in it; and a share of the cost of recording in proportion to CPU time.
    pub fn within(&self, window: Window) -> Usage {
        let mut found = Usage::default();
        for burst in &self.bursts {
            found.cpu_ns += burst.cpu_between(window.from_ns, window.until_ns);
            let inside = (window.from_ns..=window.until_ns).contains(&burst.until_ns);
            if burst.whole && inside {
                found.bursts_ns.push(burst.until_ns - burst.from_ns);
            }
        }
        // Each part of the work has its share of the cost of recording.
        let all_ns = self.bursts.iter().map(|burst| u128::from(burst.cpu_ns)).sum::<u128>().max(1);
        let cost_ns = u128::from(self.cost_ns) * u128::from(found.cpu_ns) / all_ns;
        found.cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        found
    }

    /// CPU demand in a window: CPU time used in each of its periods, ascending, at most 20 000 that
    /// lie entirely inside it, and how long how many threads had work at once.
    pub fn demand(&self, window: Window, period_ns: u64) -> Demand {
        let period_ns = period_ns.max(1);
        let windows = (window.length_ns() / period_ns).min(WINDOWS_MAX);
        let mut windows_ns = vec![0u64; windows as usize];
        let (from_ns, mut changes) = (window.from_ns, Vec::new());
        let until_ns = from_ns.saturating_add(windows * period_ns);
        for burst in &self.bursts {
            let (begins_ns, ends_ns) = (burst.from_ns.max(from_ns), burst.until_ns.min(until_ns));
            if begins_ns > ends_ns || windows == 0 {
                continue;
            }
            if begins_ns < ends_ns {
                changes.extend([(begins_ns, true), (ends_ns, false)]);
            }
            let (first, last) =
                ((begins_ns - from_ns) / period_ns, (ends_ns - from_ns) / period_ns);
            for at in first..=last.min(windows - 1) {
                let start_ns = from_ns + at * period_ns;
                let used_ns = &mut windows_ns[at as usize];
                let more_ns = burst.cpu_between(start_ns, start_ns + period_ns);
                *used_ns = used_ns.saturating_add(more_ns);
            }
        }
        windows_ns.sort_unstable();
        Demand { windows_ns, at_once_ns: at_once(changes) }
    }

    /// First and last of the steps of `step_ns` that belong to the load: they hold at least 5 % of
    /// the CPU time of the step that contains the median of all CPU time. `None` without CPU time.
    fn core_steps(&self, step_ns: u64) -> Option<(u64, u64)> {
        let mut used_ns = vec![0u64; (self.span_ns / step_ns) as usize + 1];
        for burst in &self.bursts {
            let (first, last) = (burst.from_ns / step_ns, burst.until_ns / step_ns);
            for step in first..=last.min(used_ns.len() as u64 - 1) {
                let ns = burst.cpu_between(step * step_ns, (step + 1) * step_ns);
                used_ns[step as usize] = used_ns[step as usize].saturating_add(ns);
            }
        }
        let mut sorted = used_ns.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let total_ns: u128 = sorted.iter().map(|ns| u128::from(*ns)).sum();
        let mut so_far_ns = 0u128;
        let typical_ns = *sorted.iter().find(|ns| {
            so_far_ns += u128::from(**ns);
            so_far_ns * 2 >= total_ns
        })?;
        if typical_ns == 0 {
            return None;
        }
        let is_load = |ns: &u64| u128::from(*ns) * 100 >= u128::from(typical_ns * LOAD_PERCENT);
        let first = used_ns.iter().position(is_load)?;
        let last = used_ns.iter().rposition(is_load)?;
        Some((first as u64, last as u64))
    }

    /// Times in which at least one burst was under way, in order.
    fn islands(&self) -> Vec<Window> {
        let mut islands: Vec<Window> = Vec::new();
        for burst in &self.bursts {
            match islands.last_mut() {
                Some(last) if burst.from_ns <= last.until_ns => {
                    last.until_ns = last.until_ns.max(burst.until_ns);
                }
                _ => islands.push(Window { from_ns: burst.from_ns, until_ns: burst.until_ns }),
            }
        }
        islands
    }
}

/// For each number `n` from 1 on the time with at least `n` things present, ns, as element `n - 1`.
/// A change is a time with an arrival (true) or a departure.
fn at_once(mut changes: Vec<(u64, bool)>) -> Vec<u64> {
    // Departures sort before arrivals at equal times.
    changes.sort_unstable();
    let mut at_once_ns: Vec<u64> = Vec::new();
    let (mut there, mut since_ns) = (0usize, 0);
    let mut exactly_ns: Vec<u64> = Vec::new();
    for (at_ns, comes) in changes {
        exactly_ns.resize(exactly_ns.len().max(there + 1), 0);
        exactly_ns[there] += at_ns - since_ns;
        since_ns = at_ns;
        there = if comes { there + 1 } else { there.saturating_sub(1) };
    }
    let mut sum_ns = 0;
    for ns in exactly_ns.iter().skip(1).rev() {
        sum_ns += ns;
        at_once_ns.push(sum_ns);
    }
    at_once_ns.reverse();
    at_once_ns
}

impl Burst {
    /// CPU time of the burst between two times, ns, as if it were spread evenly; that of a burst
    /// without length is at its start.
    fn cpu_between(&self, from_ns: u64, until_ns: u64) -> u64 {
        let length_ns = self.until_ns - self.from_ns;
        let inside_ns = self.until_ns.min(until_ns).saturating_sub(self.from_ns.max(from_ns));
        if length_ns == 0 {
            let inside = (from_ns..until_ns).contains(&self.from_ns);
            return if inside { self.cpu_ns } else { 0 };
        }
        let ns = u128::from(self.cpu_ns) * u128::from(inside_ns) / u128::from(length_ns);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Bursts as (start, length, CPU time), in a recording of length `span`; all in ms.
    fn load(bursts: impl IntoIterator<Item = (u64, u64, u64)>, span: u64) -> Load {
        let burst = |(from, length, cpu): (u64, u64, u64)| Burst {
            from_ns: from * MS,
            until_ns: (from + length) * MS,
            cpu_ns: cpu * MS,
            whole: true,
        };
        let mut bursts: Vec<Burst> = bursts.into_iter().map(burst).collect();
        bursts.sort_unstable_by_key(|burst| burst.from_ns);
        Load { bursts, span_ns: span * MS, cost_ns: 0 }
    }

    fn window(bursts: impl IntoIterator<Item = (u64, u64, u64)>, span: u64) -> (u64, u64) {
        let Window { from_ns, until_ns } = load(bursts, span).window();
        (from_ns / MS, until_ns / MS)
    }

    #[test]
    fn edges_in_which_nothing_happens_do_not_count() {
        let requests = || (0..800).map(|i| (400 + i * 10, 4, 3));
        assert_eq!(window(requests(), 9_000), (400, 8_394));
        // Housekeeping before, after and in between.
        let blips = [(3, 1, 1), (8_900, 1, 1), (4_005, 1, 1)];
        assert_eq!(window(requests().chain(blips), 9_000), (400, 8_394));
    }

    #[test]
    fn the_start_of_its_processes_belongs_to_a_load() {
        let slots = (0..80).map(|i| (500 + i * 100, 40, 30));
        assert_eq!(window(slots.chain([(390, 30, 25)]), 9_000), (390, 8_440));
    }

    #[test]
    fn a_load_with_pauses_is_one_load() {
        let batches = [(1_000, 500, 500), (4_000, 500, 500), (7_000, 500, 500)];
        assert_eq!(window(batches, 10_000), (1_000, 7_500));
        assert_eq!(window([(2_000, 3_000, 3_000)], 10_000), (2_000, 5_000));
    }

    #[test]
    fn without_load_the_window_is_the_whole_recording() {
        assert_eq!(window([], 1_000), (0, 1_000));
        assert_eq!(window([(3, 0, 0)], 1_000), (0, 1_000));
        assert_eq!(load([], 0).window().length_ns(), 1);
    }

    #[test]
    fn demand_is_of_stretches_and_of_threads_at_once() {
        let load = load([(0, 10, 10), (5, 10, 6), (15, 2, 2), (40, 30, 15)], 100);
        let demand = load.demand(Window { from_ns: 0, until_ns: 65 * MS }, 20 * MS);
        assert_eq!(demand.windows_ns, [0, 10 * MS, 18 * MS]);
        assert_eq!(demand.at_once_ns, [37 * MS, 5 * MS]);
        let none = load.demand(Window { from_ns: 0, until_ns: 10 * MS }, 20 * MS);
        assert_eq!(none, Demand::default());
    }

    #[test]
    fn a_burst_across_an_edge_counts_in_part() {
        let mut load = load([(0, 10, 10), (20, 10, 5), (40, 10, 10)], 100);
        load.cost_ns = 5 * MS;
        let used = load.within(Window { from_ns: 5 * MS, until_ns: 45 * MS });
        assert_eq!(used.cpu_ns, 15 * MS);
        assert_eq!(used.cost_ns, 3 * MS);
        assert_eq!(used.bursts_ns, [10 * MS, 10 * MS]);
    }
}
