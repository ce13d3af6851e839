//! Servers that hardly ever wait, because clients ask again at once.
//!
//! No wakeup shows where a request begins there. If requests cost the same, however, the work
//! between two answers is a whole multiple of that cost, or almost nothing where the second belongs
//! to the same answer. The mean cosine of the phase measures how near the work lies to multiples of
//! a cost. The largest such cost is taken, because its fractions fit as well.
//!
//! A server that always has work has at least two connections. One that answers several requests
//! together shows their number: answered clients ask again while the rest is served. The requests
//! of two successive answers are then all connections.

use super::guess::{ANSWERS_MIN, Burst, PARTS_MAX, Server, share};
use std::collections::BTreeMap;
use std::f64::consts::TAU;

/// Mean cosine from which work counts as multiples of a cost.
const NEAR: f64 = 0.8;
/// Factor from each tried cost to the next.
const FINER: f64 = 0.99;
/// Range of tried costs, relative to the weighted median of the work between answers.
const FROM: f64 = 1.5;
const TO: f64 = 0.05;
/// Bound on the requests made of the answers.
const REQUESTS_MOST: usize = 1 << 22;
/// Most works between answers that are examined.
const LOOKED_AT: usize = 4096;

/// The connections of a busy server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionCount {
    pub clients: usize,
    pub or_more: bool,
    /// Whether its work tells how many requests an answer holds.
    pub by_work: bool,
}

impl Server {
    /// Whether it gave most answers in bursts of more than eight, without a wait in between.
    pub(super) fn is_busy(&self) -> bool {
        let (mut all, mut long) = (0, 0);
        for answers in self.bursts.iter().map(|burst| burst.marks.len()) {
            all += answers;
            long += if answers > PARTS_MAX { answers } else { 0 };
        }
        2 * long > all
    }
}

/// Replaces the answers of a busy server in `bursts` by those of single requests, if the work
/// between answers is near multiples of one cost; else they stay. Returns the connections on which
/// it is asked: two or more, or a number that the work tells.
pub(super) fn split_answers(bursts: &mut [Burst]) -> ConnectionCount {
    let least = |by_work| ConnectionCount { clients: 2, or_more: true, by_work };
    let works: Vec<u64> = bursts.iter().flat_map(work_between_answers).collect();
    let Some(request_cost_ns) = request_cost(&works) else { return least(false) };
    let number = |work_ns: u64| (work_ns as f64 / request_cost_ns).round() as usize;
    if works.iter().map(|work_ns| number(*work_ns)).sum::<usize>() > REQUESTS_MOST {
        return least(false);
    }
    let mut sums: BTreeMap<usize, usize> = BTreeMap::new();
    for burst in bursts {
        let numbers: Vec<usize> = work_between_answers(burst).map(number).collect();
        for pair in numbers.windows(2) {
            *sums.entry(pair[0] + pair[1]).or_default() += 1;
        }
        let mut before = (0, burst.start_ns);
        let marks = std::mem::take(&mut burst.marks);
        for (at, mark) in marks.into_iter().enumerate() {
            // The work before the first answer may be incomplete.
            let count = at.checked_sub(1).map_or(1, |at| numbers[at]);
            for n in 1..=count {
                let work_ns = before.0 + share(mark.0 - before.0, n, count);
                let at_ns = before.1 + share(mark.1.saturating_sub(before.1), n, count);
                burst.marks.push((work_ns, at_ns));
            }
            if count > 0 {
                before = mark;
            }
        }
    }
    let most = sums.iter().max_by_key(|(_, times)| **times).map_or(0, |(sum, _)| *sum);
    if most > 2 {
        ConnectionCount { clients: most, or_more: false, by_work: true }
    } else {
        least(true)
    }
}

/// The work from one answer of the burst to the next, ns.
fn work_between_answers(burst: &Burst) -> impl Iterator<Item = u64> + '_ {
    burst.marks.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0))
}

/// The cost of one request, ns: the largest of which these works are near multiples. `None` if
/// there is none, or fewer than 20 works.
fn request_cost(works: &[u64]) -> Option<f64> {
    if works.len() < ANSWERS_MIN {
        return None;
    }
    let whole: f64 = works.iter().map(|ns| *ns as f64).sum();
    let mut sorted = works.to_vec();
    sorted.sort_unstable();
    let mut below = 0.0;
    let half = sorted.iter().find(|ns| {
        below += **ns as f64;
        2.0 * below >= whole
    });
    let half_ns = *half? as f64;
    let step = works.len().div_ceil(LOOKED_AT);
    let near = |request_cost_ns: f64| {
        let cosines =
            works.iter().step_by(step).map(|ns| (*ns as f64 / request_cost_ns * TAU).cos());
        cosines.sum::<f64>() / works.len().div_ceil(step) as f64
    };
    let mut request_cost_ns = half_ns * FROM;
    while near(request_cost_ns) < NEAR {
        request_cost_ns *= FINER;
        if request_cost_ns < half_ns * TO {
            return None;
        }
    }
    while near(request_cost_ns * FINER) > near(request_cost_ns) {
        request_cost_ns *= FINER;
    }
    let count: f64 = works.iter().map(|ns| (*ns as f64 / request_cost_ns).round()).sum();
    Some(whole / count.max(1.0)).filter(|request_cost_ns| *request_cost_ns >= 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst with an answer after each of these works, in us.
    fn burst(works: impl Iterator<Item = u64>) -> Burst {
        let mut done_ns = 0;
        let marks = works.map(|us| {
            done_ns += us * 1000;
            (done_ns, 1_000_000 + 2 * done_ns)
        });
        let marks: Vec<(u64, u64)> = marks.collect();
        Burst { start_ns: 1_000_000, end_ns: 1_000_000 + 2 * done_ns, marks, ..Burst::default() }
    }

    #[test]
    fn answers_sent_together_are_as_many_as_their_work() {
        let works = (0..200).map(|n| if n % 2 == 0 { 750 + n % 7 } else { 2250 - n % 11 });
        let mut bursts = [burst(works)];
        assert_eq!(
            split_answers(&mut bursts),
            ConnectionCount { clients: 4, or_more: false, by_work: true }
        );
        // The first may be of any number.
        assert_eq!(bursts[0].marks.len(), 1 + 100 * 3 + 99);
        let (last, before) = (bursts[0].marks[399], bursts[0].marks[398]);
        assert!((745_000..756_000).contains(&(last.0 - before.0)), "{last:?} {before:?}");
        assert_eq!(last.1 - before.1, 2 * (last.0 - before.0));
    }

    #[test]
    fn parts_of_an_answer_are_one() {
        let works = (0..200).map(|n| if n % 2 == 0 { 1250 + n % 13 } else { 65 });
        let mut bursts = [burst(works)];
        assert_eq!(
            split_answers(&mut bursts),
            ConnectionCount { clients: 2, or_more: true, by_work: true }
        );
        assert_eq!(bursts[0].marks.len(), 100);
    }

    #[test]
    fn requests_of_different_costs_are_one_for_each_answer() {
        let works = (0..200_u64).map(|n| 500 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2500);
        let mut bursts = [burst(works)];
        assert_eq!(
            split_answers(&mut bursts),
            ConnectionCount { clients: 2, or_more: true, by_work: false }
        );
        assert_eq!(bursts[0].marks.len(), 200);
    }
}
