//! CPU time of a group in each window of its period (windows start at time 0), and the most in
//! one.
//!
//! CPUs are charged at different times, some for seconds at once where no tick in between matters.
//! Windows therefore stay open until no CPU can be charged for them any more: the last ones one by
//! one, earlier ones as runs of windows with equal usage.

use std::collections::VecDeque;

#[derive(Debug, Clone, Default)]
pub(crate) struct Windows {
    period_ns: u64,
    /// The first window of those kept one by one.
    first: u64,
    last_ns: VecDeque<u64>,
    /// Earlier open windows, without a gap, from `open` on.
    before: VecDeque<EqualWindows>,
    open: u64,
    /// Number of runs from which closing is worth an attempt.
    many: usize,
    /// The most used in a closed window.
    max_ns: u64,
}

/// Neighbouring windows with equal usage: those before `end` that are not in the previous run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EqualWindows {
    end: u64,
    ns: u64,
}

const LAST: usize = 1024;
/// Smallest and largest threshold for the number of runs.
const FEW: usize = 1024;
const MOST: usize = 1 << 16;

impl Windows {
    /// No usage yet, in windows of this length from time 0 on.
    pub fn new(period_ns: u64) -> Windows {
        Windows { period_ns, many: FEW, ..Windows::default() }
    }

    /// Begins anew with windows of another length, if it is another, and keeps the maximum so far.
    pub fn change_period(&mut self, now: u64, period_ns: u64) {
        if period_ns != self.period_ns {
            let (max_ns, first) = (self.max_ns(), now / period_ns);
            *self = Windows { max_ns, first, open: first, ..Windows::new(period_ns) };
        }
    }

    /// Adds CPU time from `from_ns` to `to_ns` to the windows that it falls in.
    pub fn add(&mut self, mut from_ns: u64, to_ns: u64) {
        while from_ns < to_ns {
            let window = from_ns / self.period_ns;
            let end_ns = to_ns.min((window + 1) * self.period_ns);
            self.add_to(window, end_ns - from_ns);
            from_ns = end_ns;
        }
    }

    /// Adds CPU time to one window, which may be new or an earlier one.
    fn add_to(&mut self, window: u64, ns: u64) {
        let Some(mut at) = window.checked_sub(self.first) else {
            self.add_before(window, ns);
            return;
        };
        if at >= LAST as u64 {
            self.push_out(at + 1 - LAST as u64);
            at = LAST as u64 - 1;
        }
        let at = at as usize;
        if at >= self.last_ns.len() {
            self.last_ns.resize(at + 1, 0);
        }
        self.last_ns[at] += ns;
    }

    /// Moves the first `count` of the latest windows to the list of runs of equal windows.
    fn push_out(&mut self, count: u64) {
        let end = self.first + count;
        while self.first < end {
            let used = self.last_ns.pop_front();
            self.first = used.map_or(end, |_| self.first + 1);
            let run = EqualWindows { end: self.first, ns: used.unwrap_or(0) };
            match self.before.back_mut() {
                Some(last) if last.ns == run.ns => last.end = run.end,
                _ => self.before.push_back(run),
            }
        }
    }

    /// Adds CPU time to a window before the latest ones; in a closed one it counts by itself for
    /// the maximum.
    fn add_before(&mut self, window: u64, ns: u64) {
        if window < self.open {
            self.max_ns = self.max_ns.max(ns);
            return;
        }
        let at = self.before.partition_point(|run| run.end <= window);
        let old = self.before[at];
        let start = if at == 0 { self.open } else { self.before[at - 1].end };
        // The rest of the run stands before the window, after it, or both.
        let is_last = window + 1 == old.end;
        if !is_last {
            self.before.insert(at, EqualWindows { end: window + 1, ns: old.ns });
        }
        self.before[at].ns += ns;
        let mut new = at;
        if window > start {
            self.before.insert(at, EqualWindows { end: window, ns: old.ns });
            new += 1;
        }
        self.merge_with_next(new);
        if new > 0 {
            self.merge_with_next(new - 1);
        }
    }

    /// Merges a run of windows with the next one if both have the same usage.
    fn merge_with_next(&mut self, at: usize) {
        let next = self.before.get(at + 1).copied();
        if next.is_some_and(|next| next.ns == self.before[at].ns) {
            self.before.remove(at);
        }
    }

    /// Whether so many windows are open that it is worth closing some.
    pub fn are_many(&self) -> bool {
        self.before.len() >= self.many
    }

    /// Closes windows before this time, ns, which no CPU is charged for any more: only their
    /// maximum is kept.
    pub fn close_before(&mut self, ns: u64) {
        let until = (ns / self.period_ns).min(self.first);
        while let Some(run) = self.before.front().copied() {
            let too_many = self.before.len() > MOST / 2 && self.many == MOST;
            if self.open >= until && !too_many {
                break;
            }
            self.max_ns = self.max_ns.max(run.ns);
            if run.end > until && !too_many {
                self.open = until;
                break;
            }
            self.open = run.end;
            self.before.pop_front();
        }
        self.many = (2 * self.before.len()).clamp(FEW, MOST);
    }

    /// Most CPU time used in one window, ns.
    pub fn max_ns(&self) -> u64 {
        let before = self.before.iter().map(|run| run.ns);
        self.last_ns.iter().copied().chain(before).fold(self.max_ns, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A cheap sequence of numbers below `n`.
    fn scrambled(seed: u64, n: u64) -> u64 {
        (seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % n
    }

    #[test]
    fn late_charges_count_in_the_windows_of_the_running_time() {
        for seed in 0..50 {
            let mut windows = Windows::new(10);
            let mut used: BTreeMap<u64, u64> = BTreeMap::new();
            // Four CPUs, each charged up to a time of its own; the fourth in long pieces.
            let mut charged_ns = [0; 4];
            for step in 0..200 {
                let cpu = scrambled(seed * 1000 + step, 4) as usize;
                let most = if cpu == 3 { 60_000 } else { 400 };
                let from_ns = charged_ns[cpu] + scrambled(seed * 1000 + step + 300, 15);
                let to_ns = from_ns + 1 + scrambled(seed * 1000 + step + 600, most);
                charged_ns[cpu] = to_ns;
                windows.add(from_ns, to_ns);
                for window in from_ns / 10..to_ns.div_ceil(10) {
                    let (start_ns, end_ns) = (10 * window, 10 * window + 10);
                    let ns = to_ns.min(end_ns) - from_ns.max(start_ns);
                    *used.entry(window).or_default() += ns;
                }
                if step % 7 == 0 {
                    windows.close_before(*charged_ns.iter().min().unwrap());
                }
            }
            assert_eq!(windows.max_ns(), used.into_values().max().unwrap_or(0), "seed {seed}");
        }
    }

    #[test]
    fn runs_are_few_and_what_nobody_is_charged_for_is_closed() {
        let mut windows = Windows::new(10);
        windows.add(0, 1_000_000);
        assert_eq!(windows.before.len(), 1);
        windows.add(0, 999_995);
        assert_eq!((windows.max_ns(), windows.before.len()), (20, 1));
        for window in 0..2 * MOST as u64 {
            windows.add(2_000_000 + 10 * window, 2_000_000 + 10 * window + window % 7);
            if windows.are_many() {
                windows.close_before(0);
            }
        }
        assert!(windows.before.len() <= MOST);
        windows.close_before(u64::MAX);
        assert_eq!((windows.before.len(), windows.max_ns()), (0, 20));
    }
}
