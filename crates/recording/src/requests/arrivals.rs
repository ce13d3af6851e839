//! Signs in the times of requests: how regular they are, and whether they come the less often, the
//! more of them are under way.

use super::Request;
use cpumax_outcome::median;

/// Bound on the number of closed clients that is considered.
pub(super) const CLIENTS_MOST: usize = 256;
/// Irregularity below which requests come from a plan.
pub(super) const REGULAR: f64 = 0.3;
/// With fewer pauses nothing is inferred.
pub(super) const PAUSES_MIN: u64 = 20;

/// Compares the likelihoods of two Poisson processes, each at its best rate, of which the rate of
/// one is in proportion to the idle connections; positive: that one, closed clients.
pub(super) fn crowding(connections: &[(&[Request], bool)]) -> f64 {
    let clients = connections.len();
    let crowd = ArrivalsByLoad::of(connections.iter().flat_map(|(requests, _)| *requests));
    let idle = |under_way: usize| (clients + 1).saturating_sub(under_way).max(1) as f64;
    crowd.likelihood(idle) - crowd.likelihood(|_| 1.0)
}

/// The likeliest number of closed clients for these requests, if each idle client asks at the same
/// rate.
pub(super) fn likeliest<'a>(requests: impl Iterator<Item = &'a Request> + Clone) -> usize {
    let crowd = ArrivalsByLoad::of(requests);
    let least = crowd.more.len().saturating_sub(1).max(1);
    let likelihood =
        |clients: usize| crowd.likelihood(|under| clients.saturating_sub(under) as f64);
    let most = (least..=least.max(CLIENTS_MOST))
        .map(|clients| (clients, likelihood(clients)))
        .fold((least, f64::MIN), |best, one| if one.1 > best.1 { one } else { best });
    most.0
}

/// By number of requests under way: further arrivals, and the time for which so many were under
/// way.
struct ArrivalsByLoad {
    more: Vec<f64>,
    ns: Vec<f64>,
}

impl ArrivalsByLoad {
    /// Counts, up to the last arrival, how many requests arrived while so many others were under
    /// way. The first arrival does not count.
    fn of<'a>(requests: impl Iterator<Item = &'a Request> + Clone) -> ArrivalsByLoad {
        let mut crowd = ArrivalsByLoad { more: vec![0.0], ns: vec![0.0] };
        let last_ns = requests.clone().map(|request| request.arrived_ns).max().unwrap_or(0);
        let answered =
            |one: &Request| (one.answered_ns.max(one.arrived_ns.saturating_add(1)), false);
        let came = requests.clone().map(|one| (one.arrived_ns, true));
        let mut events: Vec<(u64, bool)> = came.chain(requests.map(answered)).collect();
        events.retain(|(at_ns, _)| *at_ns <= last_ns);
        // An answer sorts before the request that it permits.
        events.sort_unstable();
        let mut under_way = 0;
        for (at, &(at_ns, came)) in events.iter().enumerate() {
            let before_ns = at.checked_sub(1).map_or(at_ns, |before| events[before].0);
            crowd.ns[under_way] += (at_ns - before_ns) as f64;
            if came {
                crowd.more[under_way] += f64::from(u8::from(at > 0));
                under_way += 1;
                let rows = crowd.ns.len().max(under_way + 1);
                crowd.more.resize(rows, 0.0);
                crowd.ns.resize(rows, 0.0);
            } else {
                under_way = under_way.saturating_sub(1);
            }
        }
        crowd
    }

    /// Natural log-likelihood of the arrivals at a rate in proportion to `rate` of the number under
    /// way, up to a constant.
    fn likelihood(&self, rate: impl Fn(usize) -> f64) -> f64 {
        let rows = || self.more.iter().zip(&self.ns).enumerate();
        let n: f64 = self.more.iter().sum();
        let whole: f64 = rows().map(|(row, (_, ns))| rate(row) * ns).sum();
        let each = |(row, (more, _)): (usize, (&f64, &f64))| {
            if *more > 0.0 { more * rate(row).max(f64::MIN_POSITIVE).ln() } else { 0.0 }
        };
        rows().map(each).sum::<f64>() - n * whole.max(1.0).ln()
    }
}

/// Half of the distances, ns, differ from their median by at most this share of it; 1 for fewer
/// than 20.
pub(super) fn irregularity(mut between: Vec<u64>) -> f64 {
    if between.len() < PAUSES_MIN as usize {
        return 1.0;
    }
    let middle = median(&mut between);
    let mut off: Vec<u64> = between.iter().map(|ns| ns.abs_diff(middle)).collect();
    median(&mut off) as f64 / middle.max(1) as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Pseudo-random numbers below 2^20.
    pub fn noise(i: u64) -> u64 {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) >> 44
    }

    /// The requests of eight clients that ask at a rate for each idle one, or at one rate for all
    /// together.
    fn crowd(closed: bool) -> Vec<Vec<Request>> {
        let mut lines: Vec<Vec<Request>> = vec![Vec::new(); 8];
        let (mut now_ns, mut drawn) = (0_u64, 0);
        let mut free_ns = [0_u64; 8];
        while now_ns < 4_000_000_000 {
            now_ns += 10_000;
            drawn += 1;
            let idle = free_ns.iter().filter(|free| **free <= now_ns).count() as u64;
            let rate = if closed { idle } else { 5 };
            // `noise` is below 2^20, so `rate` of a thousand steps pass.
            if noise(drawn) * 1000 >= rate * (1 << 20) {
                continue;
            }
            if let Some(line) = free_ns.iter().position(|free| *free <= now_ns) {
                let answered_ns = now_ns + 1_000_000;
                let connection = line as u32;
                lines[line].push(Request { connection, arrived_ns: now_ns, answered_ns });
                free_ns[line] = answered_ns;
            }
        }
        lines
    }

    #[test]
    fn closed_clients_ask_the_less_the_more_they_wait() {
        let crowding = |closed: bool| {
            let lines = crowd(closed);
            crowding(&lines.iter().map(|line| (&line[..], true)).collect::<Vec<_>>())
        };
        assert!(crowding(true) > 10.0, "{}", crowding(true));
        assert!(crowding(false) < 0.0, "{}", crowding(false));
    }

    #[test]
    fn the_likeliest_number_of_closed_clients_is_found() {
        let clients = likeliest(crowd(true).iter().flatten());
        assert!((6..=10).contains(&clients), "{clients}");
    }
}
