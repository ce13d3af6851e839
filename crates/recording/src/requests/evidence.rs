//! Whether clients wait for an answer before they ask again, or ask at their own times.
//!
//! A closed client asks again some time after the answer, however long that took. An open client
//! asks at times of its plan: the longer an answer takes, the shorter is the pause until the next
//! request. A regression therefore compares that pause with the time of the answer, by least
//! squares over all connections, each relative to its own mean. A slope of 0 is a closed loop, a
//! slope of -1 an open one. The distance of the slope from each, in standard errors, tells which.
//!
//! A client's thread that timers and answers wake in turn tells the same where no connection does.
//!
//! If it is not known which requests came on one connection, their numbers in equal intervals of
//! time tell something. A closed client with similar think times asks more evenly than chance:
//! requests at random times have a variance equal to their mean. Requests at equal distances come
//! from a plan, unless each follows an answer at once: a busy server also answers requests of equal
//! cost at equal distances, and closed clients that began at equal distances stay in step. Equal
//! pauses after answers of different length tell these.
//!
//! If it is known, and requests come at random times, closed clients ask the less often the fewer
//! of them are idle. The likelihood of that, against a constant rate, decides where pauses vary too
//! much for the slope.
//!
//! If none of that is certain, the clients' sleep decides: see `asking`. If that does not tell
//! either, a client that connects anew for each request is taken to be another one each time, and
//! open. Other clients are taken to be closed.

use super::Request;
use super::arrivals::{PAUSES_MIN, REGULAR, crowding, irregularity};
use super::asking::{LIKELY, SleepEvidence};
use cpumax_outcome::median;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Most closed clients that can be given: each is a connection of the replay.
const CLIENTS_TOLD_MOST: usize = 65_536;

/// How clients ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Loop {
    /// A while after each answer.
    Closed,
    /// At times of a plan, whatever came of the requests before.
    Open,
}

/// How clients ask, as the caller knows: `open`, `closed`, or the number of closed ones.
///
/// ```
/// use cpumax_recording::{Clients, Loop};
///
/// let sixteen: Clients = "16".parse()?;
/// assert_eq!(sixteen, Clients { ask: Loop::Closed, number: Some(16) });
/// assert_eq!("open".parse::<Clients>()?.ask, Loop::Open);
/// assert!("0".parse::<Clients>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clients {
    /// Whether they wait for answers.
    pub ask: Loop,
    /// Number of closed clients; `None`: as the recording shows.
    pub number: Option<usize>,
}

impl From<Loop> for Clients {
    fn from(ask: Loop) -> Clients {
        Clients { ask, number: None }
    }
}

impl FromStr for Clients {
    type Err = String;

    /// Reads `open`, `closed`, or a number of closed clients from 1 to 65536; the error says so.
    fn from_str(text: &str) -> Result<Clients, String> {
        match text {
            "open" => Ok(Loop::Open.into()),
            "closed" => Ok(Loop::Closed.into()),
            number => match number.parse() {
                Ok(number @ 1..=CLIENTS_TOLD_MOST) => {
                    Ok(Clients { ask: Loop::Closed, number: Some(number) })
                }
                _ => Err(format!(
                    "'closed', 'open', or a number of closed clients, from 1 to \
                     {CLIENTS_TOLD_MOST}"
                )),
            },
        }
    }
}

/// The evidence for closed or open clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Evidence {
    /// Change of the pause for each ns that the answer took longer.
    pub slope: f64,
    /// Standard error of the slope; 0 if there is not enough to tell.
    pub error: f64,
    /// Number of pauses that were examined.
    pub pauses: u64,
    /// Variance divided by mean of the number of requests in each of 25 equal intervals.
    pub dispersion: f64,
    /// Half of the distances between one request and the next, on whatever connection, differ from
    /// their median by at most this share of it; at random times some 0.7. 1 where they tell
    /// nothing: on few connections, or where each request follows an answer at once.
    pub irregularity: f64,
    /// Logarithm of how much likelier requests came at a rate in proportion to the idle
    /// connections, as closed clients ask, than at a constant rate. 0 if it is not known which
    /// requests came on one connection.
    pub crowding: f64,
    /// Logarithm of how much likelier closed clients are than open ones, from how often timers wake
    /// them while they sleep, for any number of clients. 0 if that does not tell.
    pub asleep: f64,
    /// `asleep` for at most twice as many clients as there are connections. Many closed clients,
    /// most of them idle, ask as open ones do.
    pub asleep_of_few: f64,
    /// Whether most requests came each on a connection of its own.
    pub anew: bool,
}

/// Least distance of the slope from a value, in standard errors, to exclude that value.
const SURE: f64 = 2.5;
/// Standard error of the slope from causes other than chance: answers in parts, late wakeups.
const SLOPE_INEXACT: f64 = 0.04;
/// Number of intervals for the dispersion, and the dispersion below which clients are taken to be
/// closed. Chance falls below it one time in a hundred.
const INTERVALS: usize = 25;
const EVEN: f64 = 0.4;
/// Irregularity from which requests come at random times.
const RANDOM: f64 = 0.6;
/// Magnitude of `crowding` that is certain.
const CROWDED: f64 = 10.0;
/// Magnitudes of `asleep` that outweigh a guess, and the guess that each connection is another
/// client's.
const LIKELIER: f64 = 0.7;
const LIKELIER_ANEW: f64 = 1.5;
/// Connections have plans of their own if each is so many times as regular as turns at a common
/// plan would make it.
const OWN_PLAN: f64 = 4.0;
/// Requests that took more than so many times the median are left out.
const LONG: u64 = 4;
/// A pause below one part in so many of the distance between requests counts as none.
const AT_ONCE: u64 = 10;

impl Evidence {
    /// Weighs the pauses, times and crowding of requests, and the clients' sleep. `connections`:
    /// the requests of each, in order of time, and whether they certainly came on one.
    /// `distances_ns`: between one request and the next, of those whose time is known.
    pub(crate) fn of(
        connections: &[(&[Request], bool)],
        distances_ns: Vec<u64>,
        asking: &SleepEvidence,
    ) -> Evidence {
        let asleep = asking.closed;
        let median_ns = median(&mut distances_ns.clone());
        let all = || connections.iter().flat_map(|(requests, _)| *requests);
        let mut times: Vec<u64> = all().map(|request| request.arrived_ns).collect();
        times.sort_unstable();
        // A single closed client whose requests always take equally long is as regular as a plan.
        // Clients that ask as soon as a busy server answers are regular, too.
        let at_once = asleep >= LIKELY || follow_answers(connections, &distances_ns);
        let planned =
            connections.len() >= 3 && !at_once && !pauses_are_equal(connections, median_ns);
        let irregularity = if planned { irregularity(distances_ns) } else { 1.0 };
        let dispersion = dispersion(&times);
        let known = connections.iter().all(|(_, sure)| *sure);
        let turns = asking.turns.iter().map(|turns| (&turns[..], true));
        let turns: Vec<(&[Request], bool)> = if known { Vec::new() } else { turns.collect() };
        let known = if known { connections } else { &turns[..] };
        let crowding = if known.is_empty() { 0.0 } else { crowding(known) };
        let random = Evidence {
            slope: 0.0,
            error: 0.0,
            pauses: 0,
            dispersion,
            irregularity,
            crowding,
            asleep,
            asleep_of_few: asking.closed_of(connections.len()),
            anew: false,
        };
        let any_known = connections.iter().any(|(_, sure)| *sure);
        let lines = if any_known { connections } else { &turns };
        let points = pauses_by_answer(lines);
        let sum = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>();
        let (xx, xy, yy) = (sum(|p| p.0 * p.0), sum(|p| p.0 * p.1), sum(|p| p.1 * p.1));
        let pauses = points.len() as u64;
        if pauses < PAUSES_MIN || xx <= 0.0 {
            return Evidence { pauses, ..random };
        }
        let slope = xy / xx;
        let rest = (yy - slope * xy).max(0.0) / (pauses - 2) as f64;
        let of = Evidence { slope, error: (rest / xx).sqrt(), pauses, ..random };
        // Threads of clients that take turns at a plan pause as closed ones do.
        let is_doubtful = !any_known && asleep < 0.0 && of.slope_says() == Some(Loop::Closed);
        if is_doubtful { random } else { of }
    }

    /// The likelier way of asking, and whether it is certain. The clients' sleep decides only where
    /// requests are uncertain, or where their rate together contradicts their pauses on each
    /// connection: threads of clients may take turns at one plan.
    pub fn says(&self) -> (Loop, bool) {
        let (clients, sure) = self.requests_say();
        let closed = if self.anew { LIKELIER_ANEW } else { LIKELIER };
        let (rate, asleep) = (self.crowding_at_random(), self.asleep.min(self.asleep_of_few));
        let takes_turns =
            clients == Loop::Closed && rate.max(self.asleep) < 0.0 && rate + asleep <= -CROWDED;
        match self.asleep {
            _ if takes_turns => (Loop::Open, false),
            _ if sure => (clients, true),
            more if more >= closed => (Loop::Closed, more >= LIKELY),
            more if more <= -LIKELIER => (Loop::Open, more.min(self.asleep_of_few) <= -LIKELY),
            _ => (clients, false),
        }
    }

    /// The likelier way of asking by the requests alone, and whether it is certain.
    fn requests_say(&self) -> (Loop, bool) {
        let even = self.dispersion < EVEN;
        let slope = self.slope_says();
        if self.irregularity < REGULAR {
            // Closed clients that began at equal distances are as regular for a while.
            return (Loop::Open, even || slope == Some(Loop::Open));
        }
        if self.pauses < PAUSES_MIN || self.error <= 0.0 && self.slope == 0.0 {
            return (if self.anew && !even { Loop::Open } else { Loop::Closed }, even);
        }
        let (from_closed, from_open) = self.distances();
        let crowding = self.crowding_at_random();
        if self.slope < -0.5 {
            let sure = from_closed >= SURE && self.crowding < CROWDED;
            (Loop::Open, sure || slope.is_some())
        } else if from_open < SURE && crowding <= -LIKELY {
            (Loop::Open, crowding <= -CROWDED)
        } else {
            (Loop::Closed, from_open >= SURE || crowding >= CROWDED)
        }
    }

    /// Distances of the slope from 0 and from -1, in standard errors.
    fn distances(&self) -> (f64, f64) {
        let error = self.error.max(1e-9);
        (self.slope.abs() / error, (self.slope + 1.0).abs() / error)
    }

    /// The way of asking that the slope shows: it excludes the other one, and an open one not
    /// itself. `None` if it does not tell.
    fn slope_says(&self) -> Option<Loop> {
        let (from_closed, from_open) = self.distances();
        let is_open = self.slope < -0.5;
        let fits = (self.slope + 1.0).abs() < SURE * self.error.max(SLOPE_INEXACT);
        let (told, distance) =
            if is_open { (Loop::Open, from_closed) } else { (Loop::Closed, from_open) };
        let tells = self.pauses >= PAUSES_MIN && distance >= SURE && (fits || !is_open);
        tells.then_some(told)
    }

    /// `crowding`, or 0 where requests do not come at random times. Even ones are no sign of open
    /// clients.
    fn crowding_at_random(&self) -> f64 {
        let tells = self.crowding > 0.0 || self.dispersion >= EVEN;
        if self.irregularity >= RANDOM && tells { self.crowding } else { 0.0 }
    }
}

/// How long each answer on a known connection took and the pause after it, ns, both relative to the
/// means of the connection.
fn pauses_by_answer(connections: &[(&[Request], bool)]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for (requests, _) in connections.iter().filter(|(all, sure)| *sure && all.len() > 2) {
        let pairs = requests.windows(2);
        let took = pairs.clone().map(|pair| pair[0].took_ns() as f64);
        let pauses = pairs.map(|pair| pair[1].arrived_ns as f64 - pair[0].answered_ns as f64);
        // A few requests that took very long, or were misunderstood, would outweigh all others.
        let mut all: Vec<u64> = requests.iter().map(Request::took_ns).collect();
        let most = median(&mut all).saturating_mul(LONG) as f64;
        let here: Vec<(f64, f64)> = took.zip(pauses).filter(|(x, _)| *x <= most).collect();
        let n = here.len() as f64;
        let (x, y) = here.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
        points.extend(here.iter().map(|(a, b)| (a - x, b - y)));
    }
    points
}

/// Whether most requests come as soon as the one before on the same connection is answered: half of
/// the pauses are below a tenth of the median distance of requests. False for fewer than 20 pauses.
fn follow_answers(connections: &[(&[Request], bool)], distances_ns: &[u64]) -> bool {
    let pause = |pair: &[Request]| pair[1].arrived_ns.saturating_sub(pair[0].answered_ns);
    let known = connections.iter().filter(|(_, sure)| *sure);
    let mut pauses: Vec<u64> = known.flat_map(|(all, _)| all.windows(2).map(pause)).collect();
    let mut distances = distances_ns.to_vec();
    if pauses.len() < PAUSES_MIN as usize || distances.is_empty() {
        return false;
    }
    median(&mut pauses).saturating_mul(AT_ONCE) <= median(&mut distances)
}

/// Whether clients pause for equal times after answers that take longer or shorter than usual, and
/// so have no plan. Times within a tenth of the median distance of requests count as equal. False
/// for fewer than 20 such answers on known connections.
fn pauses_are_equal(connections: &[(&[Request], bool)], distance_ns: u64) -> bool {
    let near = |one: u64, other: u64| one.abs_diff(other) <= distance_ns / AT_ONCE;
    let (mut unusual, mut equal) = (0, 0);
    for (requests, _) in connections.iter().filter(|(all, sure)| *sure && all.len() > 2) {
        let pause = |pair: &[Request]| pair[1].arrived_ns.saturating_sub(pair[0].answered_ns);
        let usual_ns = median(&mut requests.iter().map(Request::took_ns).collect::<Vec<_>>());
        let pause_ns = median(&mut requests.windows(2).map(pause).collect::<Vec<_>>());
        let told = requests.windows(2).filter(|pair| !near(pair[0].took_ns(), usual_ns));
        for pair in told {
            unusual += 1;
            equal += u64::from(near(pause(pair), pause_ns));
        }
    }
    unusual >= PAUSES_MIN && equal * 10 >= unusual * 9
}

/// Whether open clients have one plan for all of their connections (the requests of each, in order
/// of time). If each connection has its own plan, it is far more regular than all together. If
/// connections take turns at one plan, each is more regular by the square root of their number
/// only.
pub(crate) fn shares_plan(connections: &[Vec<Request>]) -> bool {
    let between = |times: &[u64]| -> Vec<u64> {
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
    };
    let times = |one: &Vec<Request>| one.iter().map(|one| one.arrived_ns).collect::<Vec<_>>();
    let mut all: Vec<u64> = connections.iter().flat_map(times).collect();
    all.sort_unstable();
    let together = irregularity(between(&all));
    let asked = connections.iter().filter(|one| !one.is_empty());
    let mut alone: Vec<f64> = asked.map(|one| irregularity(between(&times(one)))).collect();
    alone.sort_unstable_by(f64::total_cmp);
    let turns = (alone.len() as f64).sqrt();
    alone.get(alone.len() / 2).is_some_and(|alone| alone * turns * OWN_PLAN >= together)
}

/// See [`Evidence::dispersion`]; `times` ascending, ns. 1 without times, as for random ones.
fn dispersion(times: &[u64]) -> f64 {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return 1.0 };
    let interval_ns = (last - first) / INTERVALS as u64 + 1;
    let mut counts = [0.0; INTERVALS];
    for at_ns in times {
        counts[((at_ns - first) / interval_ns) as usize] += 1.0;
    }
    let n = INTERVALS as f64;
    let mean = counts.iter().sum::<f64>() / n;
    let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (n - 1.0);
    variance / mean.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::tests::noise;
    use super::*;

    /// Requests of one connection: each takes a random time; the next comes at `next(answered,
    /// index)`.
    fn connection(next: impl Fn(u64, u64) -> u64) -> Vec<Request> {
        let mut at_ns = 0;
        (0..200)
            .map(|i| {
                let answered_ns = at_ns + 1_000_000 + noise(2 * i);
                let request = Request { connection: 0, arrived_ns: at_ns, answered_ns };
                at_ns = next(answered_ns, i);
                request
            })
            .collect()
    }

    #[test]
    fn clients_that_think_after_the_answer_are_closed() {
        let requests = connection(|answered_ns, i| answered_ns + noise(2 * i + 1));
        let evidence =
            Evidence::of(&[(&requests[..], true)], Vec::new(), &SleepEvidence::default());
        assert_eq!(evidence.says(), (Loop::Closed, true), "{evidence:?}");
    }

    #[test]
    fn clients_with_a_plan_are_open() {
        let requests = connection(|_, i| (i + 1) * 20_000_000 + noise(2 * i + 1));
        let evidence =
            Evidence::of(&[(&requests[..], true)], Vec::new(), &SleepEvidence::default());
        assert_eq!(evidence.says(), (Loop::Open, true), "{evidence:?}");
    }

    /// Four connections that a busy server answers in turn, one request each ms. The next on each
    /// comes `pause_ns` after the answer.
    fn in_turn(pause_ns: u64) -> Evidence {
        let turn_ns = |turn: u64| turn * 1_000_000 + noise(turn) / 100;
        let request = |connection: u64, n: u64| Request {
            connection: connection as u32,
            arrived_ns: turn_ns(4 * n + connection) + pause_ns,
            answered_ns: turn_ns(4 * n + connection + 4),
        };
        let lines: Vec<Vec<Request>> =
            (0..4).map(|line| (0..100).map(|n| request(line, n)).collect()).collect();
        let lines: Vec<(&[Request], bool)> = lines.iter().map(|line| (&line[..], true)).collect();
        Evidence::of(&lines, vec![1_000_000; 399], &SleepEvidence::default())
    }

    #[test]
    fn clients_of_a_busy_server_have_no_plan() {
        assert!(in_turn(20_000).irregularity > REGULAR);
        assert_eq!(in_turn(20_000).says().0, Loop::Closed);
        assert_eq!(in_turn(500_000).says(), (Loop::Open, true));
    }

    /// Clients that began 8 ms after each other ask 64 ms after the answer, or each 65 ms. One
    /// answer in eight takes five times as long as the others.
    fn in_step(closed: bool) -> Evidence {
        let took_ns = |n: u64| if noise(n).is_multiple_of(8) { 5_000_000 } else { 1_000_000 };
        let line = |line: u64| {
            let mut at_ns = line * 8_000_000;
            let request = |n: u64| {
                let answered_ns = at_ns + took_ns(100 * line + n);
                let request = Request { connection: line as u32, arrived_ns: at_ns, answered_ns };
                at_ns = if closed { answered_ns + 64_000_000 } else { at_ns + 65_000_000 };
                request
            };
            (0..100).map(request).collect::<Vec<_>>()
        };
        let lines: Vec<Vec<Request>> = (0..8).map(line).collect();
        let lines: Vec<(&[Request], bool)> = lines.iter().map(|line| (&line[..], true)).collect();
        Evidence::of(&lines, vec![8_000_000; 799], &SleepEvidence::default())
    }

    #[test]
    fn clients_in_step_that_pause_for_equal_times_are_closed() {
        assert_eq!(in_step(true).says(), (Loop::Closed, true), "{:?}", in_step(true));
        assert_eq!(in_step(false).says(), (Loop::Open, true), "{:?}", in_step(false));
    }

    #[test]
    fn turns_of_a_clients_thread_tell_where_connections_do_not() {
        let turns = vec![connection(|_, i| (i + 1) * 20_000_000 + noise(2 * i + 1))];
        let asking = SleepEvidence { turns, ..SleepEvidence::default() };
        let requests = connection(|answered_ns, i| answered_ns + noise(2 * i + 1));
        let evidence = Evidence::of(&[(&requests[..], false)], Vec::new(), &asking);
        assert_eq!(evidence.says(), (Loop::Open, true), "{evidence:?}");
    }

    #[test]
    fn with_few_requests_nothing_is_sure() {
        let requests = connection(|answered_ns, _| answered_ns + 5);
        assert!(
            !Evidence::of(&[(&requests[..9], true)], Vec::new(), &SleepEvidence::default())
                .says()
                .1
        );
    }

    #[test]
    fn clients_that_connect_anew_are_open_unless_something_tells() {
        let requests = connection(|answered_ns, i| answered_ns + noise(2 * i + 1));
        let nothing =
            Evidence::of(&[(&requests[..], false)], Vec::new(), &SleepEvidence::default());
        let nothing = Evidence { dispersion: 1.0, ..nothing };
        assert_eq!(nothing.says(), (Loop::Closed, false));
        let anew = Evidence { anew: true, ..nothing };
        assert_eq!(anew.says(), (Loop::Open, false));
        assert_eq!(Evidence { asleep: 1.0, ..anew }.says(), (Loop::Open, false));
        assert_eq!(Evidence { asleep: 1.0, ..nothing }.says(), (Loop::Closed, false));
        assert_eq!(Evidence { asleep: 5.0, ..anew }.says(), (Loop::Closed, true));
        // Many closed clients ask as open ones do, but as few as there are connections do not.
        let open = Evidence { asleep: -1.5, asleep_of_few: -1.5, ..nothing };
        assert_eq!(open.says(), (Loop::Open, false));
        assert_eq!(Evidence { asleep_of_few: -4.0, ..open }.says(), (Loop::Open, true));
    }

    /// The thread of a pool that is free the longest asks next, so its pause does not tell.
    #[test]
    fn threads_that_take_turns_at_a_plan_are_not_surely_closed() {
        let requests = connection(|answered_ns, i| answered_ns + noise(2 * i + 1));
        let closed = Evidence::of(&[(&requests[..], true)], Vec::new(), &SleepEvidence::default());
        let asleep = Evidence {
            asleep: -4.5,
            asleep_of_few: -9.5,
            crowding: -3.0,
            dispersion: 0.65,
            irregularity: 0.7,
            ..closed
        };
        assert_eq!(asleep.says(), (Loop::Open, false));
        assert_eq!(Evidence { crowding: 12.0, ..asleep }.says(), (Loop::Closed, true));
        assert_eq!(Evidence { dispersion: 0.2, ..asleep }.says(), (Loop::Closed, true));
    }

    #[test]
    fn a_constant_rate_is_open_unless_the_slope_tells() {
        let requests = connection(|answered_ns, i| answered_ns + noise(2 * i + 1));
        let evidence =
            Evidence::of(&[(&requests[..], true)], Vec::new(), &SleepEvidence::default());
        let unsure = Evidence {
            slope: -0.5,
            error: 0.3,
            crowding: -5.0,
            dispersion: 1.0,
            irregularity: 0.7,
            ..evidence
        };
        assert_eq!(unsure.says(), (Loop::Open, false));
        assert_eq!(Evidence { crowding: -12.0, ..unsure }.says(), (Loop::Open, true));
        assert_eq!(
            Evidence { crowding: -1.0, slope: -0.4, ..unsure }.says(),
            (Loop::Closed, false)
        );
        // Even pauses are no chance, whatever the rate looks like.
        let even = Evidence { crowding: -34.0, dispersion: 0.2, ..unsure };
        assert_eq!(even.says().0, Loop::Closed);
        assert_eq!(Evidence { error: 0.1, slope: -0.1, ..unsure }.says(), (Loop::Closed, true));
    }

    /// The requests of eight connections, at these times.
    fn eight(times: impl Fn(u64) -> Vec<u64>) -> Vec<Vec<Request>> {
        let request = |connection, at_ns| Request {
            connection,
            arrived_ns: at_ns,
            answered_ns: at_ns + 1_000_000,
        };
        (0..8)
            .map(|one| times(one).into_iter().map(|at_ns| request(one as u32, at_ns)).collect())
            .collect()
    }

    #[test]
    fn connections_that_take_turns_share_a_plan() {
        let mut at_ns = 0;
        let plan: Vec<u64> = (0..800)
            .map(|i| {
                at_ns += noise(i);
                at_ns
            })
            .collect();
        let turns = eight(|one| plan.iter().skip(one as usize).step_by(8).copied().collect());
        assert!(shares_plan(&turns));
        // Each at equal distances, not in step with each other.
        let own = eight(|one| (0..100).map(|i| noise(one) + i * 20_000_000).collect());
        assert!(!shares_plan(&own));
    }
}
