//! Costs of requests in the order in which they came.
//!
//! Under a limit too small for the load, a run answers only the first of the recorded requests. The
//! machine's speed varies within seconds, so these may have cost more or less than the average
//! request. The average over all is the better estimate of a request's cost.

use cpumax_recording::Service;

/// Sums of the first costs, for each number of requests.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// CPU time of the first request, of the first two, and so on, ns.
    sums_ns: Vec<u64>,
}

/// A larger factor between the costs is a different load: no machine is that much slower or faster
/// for a while.
const MOST: f64 = 1.25;
/// Smaller differences count as none.
const SAME: f64 = 0.02;

impl Costs {
    /// The costs of a service's requests; none without a service.
    pub fn of(service: Option<&Service>) -> Costs {
        service.map_or_else(Costs::default, |service| Costs::in_order(&service.costs_ns))
    }

    /// Sums of costs (ns) in the order in which the requests came.
    fn in_order(costs_ns: &[u64]) -> Costs {
        let sum = |sum: &mut u64, ns: &u64| {
            *sum = sum.saturating_add(*ns);
            Some(*sum)
        };
        Costs { sums_ns: costs_ns.iter().scan(0, sum).collect() }
    }

    /// Mean cost of the `first` requests, divided by the mean cost of all, within 0.8 and 1.25. 1
    /// where they differ by less than 2 %, or `first` is 0 or too many.
    pub fn relative_cost(&self, first: usize) -> f64 {
        let mean = |first: usize| {
            let sum_ns = first.checked_sub(1).and_then(|at| self.sums_ns.get(at))?;
            Some(*sum_ns as f64 / first as f64).filter(|ns| *ns > 0.0)
        };
        let all = mean(self.sums_ns.len());
        let times = mean(first).zip(all).map_or(1.0, |(first, all)| first / all);
        if (times - 1.0).abs() < SAME { 1.0 } else { times.clamp(1.0 / MOST, MOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the relative cost of the first of these requests.
    #[track_caller]
    fn check(first: usize, costs_ns: &[u64], times: f64) {
        let relative_cost = Costs::in_order(costs_ns).relative_cost(first);
        assert!((relative_cost - times).abs() < 1e-9, "{relative_cost}, not {times}");
    }

    #[test]
    fn the_first_requests_may_cost_more_than_all() {
        check(2, &[11, 11, 10, 10, 9, 9], 1.1);
        check(4, &[11, 11, 10, 10, 9, 9], 1.05);
        check(6, &[11, 11, 10, 10, 9, 9], 1.0);
        check(2, &[101, 101, 99, 99], 1.0);
    }

    #[test]
    fn without_known_costs_the_relative_cost_is_one() {
        check(0, &[], 1.0);
        check(0, &[4, 4], 1.0);
        check(3, &[4, 4], 1.0);
        check(1, &[0, 0], 1.0);
    }

    #[test]
    fn another_load_is_not_taken_for_a_slow_machine() {
        check(2, &[1, 1, 9, 9], 0.8);
        check(2, &[9, 9, 1, 1], 1.25);
    }
}
