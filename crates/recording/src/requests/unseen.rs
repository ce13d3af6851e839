//! Answers to clients that were awake.
//!
//! A client that is awake when an answer comes is not woken, so the recording does not show the
//! answer. How soon a server answers after a wakeup, or after its last answer, does not depend on
//! whether the client sleeps. The rate of answers for each age of the work is therefore measured
//! while clients sleep, and gives the answers to expect while they are awake. An answer is placed
//! wherever their expected number passes a whole number and a half.

use super::guess::{Burst, Role, Server, WokenBy};
use super::outside::THREAD_ANSWERS_MIN;
use crate::recording::Recording;
use std::collections::BTreeMap;

/// Bounds of the age of work, in thirty-seconds of the mean work for an answer. A last one lies
/// beyond.
const AGES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Kinds of wakeups.
const KINDS: usize = 3;
/// A stratum is one age, after one kind of wakeup, before or after the first answer since.
const STRATA: usize = KINDS * 2 * (AGES.len() + 1);
/// Most servers that are examined, and most clients of each, those that it woke most often.
const SERVERS_MOST: usize = 256;
const CLIENTS_MOST: usize = 16;
/// Bound on the times awake of a server's clients. A client beyond it, and those that were woken
/// less often, are left out.
const AWAKE_MOST: usize = 1 << 21;
/// Most unseen answers for each known one.
const UNSEEN_MOST: usize = 8;

/// A time of a thread on a CPU, which may end with an answer.
#[derive(Debug, Clone, Copy)]
struct Interval {
    burst: usize,
    from_ns: u64,
    to_ns: u64,
    /// Time on a CPU, at its beginning, since the burst began or the last answer in it, ns.
    age_ns: u64,
    /// Time on a CPU, at its beginning, since the burst began, ns.
    done_ns: u64,
    answers: bool,
    /// Whether the thread has answered before in this burst.
    again: bool,
}

/// A client, and when it slept.
struct Client {
    born_ns: u64,
    last_ns: u64,
    sleeps: Vec<(u64, u64)>,
}

/// A time in which a client was awake, with the server's rate of answers, per ns.
#[derive(Debug, Clone, Copy)]
struct Awake {
    from_ns: u64,
    to_ns: u64,
    rate: f64,
    of: usize,
}

/// Adds unseen answers to the bursts of up to 256 threads that serve several clients, by the rate
/// of answers to sleeping ones. Busy servers and those whose requests cost the same are left out.
/// `clients` tells which threads are clients.
pub(super) fn add_unseen_answers(
    recording: &Recording,
    clients: &[bool],
    servers: &mut BTreeMap<usize, Server>,
) {
    let mut woken: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    for edge in recording.edges.iter().filter(|edge| clients[edge.wakee() as usize]) {
        let times = woken.entry(edge.waker as usize).or_default();
        *times.entry(edge.wakee() as usize).or_default() += 1;
    }
    let several = |(_, server): &(&usize, &mut Server)| {
        let by_work = server.connections.is_some_and(|connections| connections.by_work);
        let answers = server.role == Role::Answers && !server.asks && !server.single;
        answers && !by_work && server.request_cost_ns.is_none()
    };
    let mut left = 0.0;
    for (ix, server) in servers.iter_mut().filter(several).take(SERVERS_MOST) {
        let mut asks: Vec<(usize, usize)> =
            woken.get(ix).into_iter().flatten().map(|(client, times)| (*times, *client)).collect();
        asks.retain(|(times, _)| *times >= THREAD_ANSWERS_MIN);
        asks.sort_unstable_by(|a, b| b.cmp(a));
        asks.truncate(CLIENTS_MOST);
        let clients: Vec<Client> =
            asks.iter().map(|(_, client)| Client::of(recording, *client)).collect();
        let told = server.asked_by();
        // A thread that passes a request on does little for the answer itself: its work tells
        // nothing.
        if told.is_some_and(|told| !answers_when(&server.bursts)[told as usize]) {
            continue;
        }
        left =
            place_answers(&mut server.bursts, told, &queued_times(recording, *ix), &clients, left);
    }
}

/// The times, ns, in which a thread waited for a CPU.
fn queued_times(recording: &Recording, thread: usize) -> Vec<(u64, u64)> {
    recording.threads[thread].queued.iter().map(|one| (one.from_ns, one.to_ns)).collect()
}

/// Adds unseen answers to the bursts of one thread. `told`: the wakeups that bring it requests.
/// `queued`: times it waited for a CPU. `left`: expected answers of other threads that were not
/// placed; returns the new value.
fn place_answers(
    bursts: &mut [Burst],
    told: Option<WokenBy>,
    queued: &[(u64, u64)],
    clients: &[Client],
    left: f64,
) -> f64 {
    let (intervals, on_cpu_ns) = intervals(bursts, queued);
    let mut awake: Vec<Awake> = Vec::new();
    let answers = intervals.iter().filter(|interval| interval.answers).count();
    let mean_ns = on_cpu_ns.iter().sum::<u64>() / answers.max(1) as u64;
    for client in clients {
        let before = awake.len();
        if !client.add_awake(bursts, &intervals, (mean_ns, AWAKE_MOST), &mut awake) {
            awake.truncate(before);
            break;
        }
    }
    awake.sort_unstable_by_key(|awake| (awake.from_ns, awake.of));
    // Known answers that woke nobody were to be expected as well.
    let wakes = |at_ns: u64| clients.iter().any(|client| client.is_woken(at_ns));
    let mut known = intervals
        .iter()
        .filter(|interval| interval.answers && !wakes(interval.to_ns))
        .map(|interval| interval.to_ns)
        .peekable();
    let mut expected = left;
    let mut more: Vec<(usize, u64, u64)> = Vec::new();
    for Awake { from_ns, to_ns, rate, of } in awake {
        while known.next_if(|known_ns| *known_ns <= from_ns).is_some() {
            expected -= 1.0;
        }
        expected += rate * (to_ns - from_ns) as f64;
        while expected >= 0.5 && more.len() < UNSEEN_MOST * answers {
            expected -= 1.0;
            let over_ns = ((expected + 0.5) / rate) as u64;
            let at_ns = to_ns.saturating_sub(over_ns).max(from_ns);
            let interval = &intervals[of];
            more.push((interval.burst, at_ns, interval.done_ns + at_ns - interval.from_ns));
        }
    }
    add_marks(bursts, more, told, &on_cpu_ns);
    expected - known.count() as f64
}

/// Adds answers to bursts, in order of time; one after which the thread was asked again stands at
/// the burst's end. `more`: index of the burst, time, and time on a CPU in the burst before, ns.
/// `on_cpu_ns`: by burst.
fn add_marks(
    bursts: &mut [Burst],
    mut more: Vec<(usize, u64, u64)>,
    told: Option<WokenBy>,
    on_cpu_ns: &[u64],
) {
    more.sort_by_key(|(burst, ..)| *burst);
    for more in more.chunk_by(|a, b| a.0 == b.0) {
        let burst = more[0].0;
        let next = bursts.get(burst + 1).map(|burst| burst.woken);
        let of = &mut bursts[burst];
        let mut last_ns = of.marks.last().map(|last| last.1);
        for (_, at_ns, done_ns) in more {
            let last = last_ns.is_none_or(|last_ns| last_ns < *at_ns);
            // A thread that was told of the next request had done all of the last one.
            let mark = if last && told.is_some() && next == told {
                (of.work_ns, of.end_ns)
            } else {
                let work = u128::from(of.work_ns) * u128::from(*done_ns);
                ((work / u128::from(on_cpu_ns[burst].max(1))) as u64, *at_ns)
            };
            last_ns = last_ns.max(Some(mark.1));
            of.marks.push(mark);
        }
        of.marks.sort_by_key(|mark| mark.1);
    }
}

/// For each kind of wakeup whether a thread answers after it more often than not; all kinds if
/// there is none. A thread that clients wake to ask others, and others to answer, answers after the
/// latter only.
fn answers_when(bursts: &[Burst]) -> [bool; KINDS] {
    let mut more = [0_i64; KINDS];
    for burst in bursts {
        more[burst.woken as usize] += if burst.marks.is_empty() { -1 } else { 1 };
    }
    let often = more.map(|more| more > 0);
    if often.contains(&true) { often } else { [true; KINDS] }
}

/// Whether at most one of fifty answering bursts has more than one answer.
fn answers_once(bursts: &[Burst]) -> bool {
    let more_than = |marks| bursts.iter().filter(|burst| burst.marks.len() > marks).count();
    more_than(1) * 50 <= more_than(0)
}

/// The intervals of a thread on a CPU, and its time there in each burst, ns. A burst that began
/// before the recording, or after whose kind of wakeup the thread seldom answers, has no intervals.
fn intervals(bursts: &[Burst], queued: &[(u64, u64)]) -> (Vec<Interval>, Vec<u64>) {
    let answers_when = answers_when(bursts);
    let mut queued = queued.iter().copied().peekable();
    let (mut all, mut on_cpu_ns) = (Vec::new(), Vec::with_capacity(bursts.len()));
    for (burst, of) in bursts.iter().enumerate() {
        let (mut at_ns, mut age_ns, mut done_ns, mut again) = (of.start_ns, 0, 0, false);
        let mut marks = of.marks.iter().map(|mark| mark.1).peekable();
        let looked_at = !of.cut && answers_when[of.woken as usize];
        while looked_at && at_ns <= of.end_ns.max(of.start_ns) {
            while queued.next_if(|off| off.1 <= at_ns).is_some() {}
            let off = queued.peek().filter(|off| off.0 < of.end_ns);
            if let Some(off) = off.filter(|off| off.0 <= at_ns) {
                at_ns = off.1;
                continue;
            }
            let until_ns = off.map_or(of.end_ns, |off| off.0);
            let mark = marks.next_if(|mark| *mark <= until_ns);
            let (to_ns, answers) = (mark.unwrap_or(until_ns).max(at_ns), mark.is_some());
            if to_ns == at_ns && !answers {
                break;
            }
            all.push(Interval { burst, from_ns: at_ns, to_ns, age_ns, done_ns, answers, again });
            again |= answers;
            done_ns += to_ns - at_ns;
            age_ns = if answers { 0 } else { age_ns + to_ns - at_ns };
            at_ns = to_ns;
        }
        on_cpu_ns.push(done_ns);
    }
    (all, on_cpu_ns)
}

impl Client {
    /// When the thread was born, was seen last, and slept.
    fn of(recording: &Recording, thread: usize) -> Client {
        let thread = &recording.threads[thread];
        Client {
            born_ns: thread.birth_ns(recording.first_ns),
            last_ns: thread.last_ns,
            sleeps: thread.waits.iter().map(|wait| (wait.start_ns, wait.end_ns)).collect(),
        }
    }

    /// Whether a sleep of the client ends exactly then.
    fn is_woken(&self, at_ns: u64) -> bool {
        self.sleeps.binary_search_by_key(&at_ns, |sleep| sleep.1).is_ok()
    }

    /// Adds the times in which the client was awake while the server of these intervals worked.
    /// `mean_ns`: work for each answer. Returns false once `awake` would exceed `most`.
    fn add_awake(
        &self,
        bursts: &[Burst],
        intervals: &[Interval],
        (mean_ns, most): (u64, usize),
        awake: &mut Vec<Awake>,
    ) -> bool {
        let ends = AGES.map(|part| mean_ns.saturating_mul(part) / 32);
        let mean_ns = mean_ns.max(1) as f64;
        let once = answers_once(bursts);
        let (mut asleep_ns, mut answers) = ([0.0; STRATA], [0.0; STRATA]);
        let first = awake.len();
        let here = |interval: &&Interval| {
            interval.from_ns >= self.born_ns && interval.to_ns <= self.last_ns
        };
        for (of, interval) in intervals.iter().enumerate().filter(|(_, interval)| here(interval)) {
            let kind = 2 * bursts[interval.burst].woken as usize + usize::from(interval.again);
            let stratum = |at_ns: u64| {
                let age_ns = interval.age_ns + at_ns - interval.from_ns;
                let age = ends.iter().filter(|end| **end <= age_ns).count();
                let rest_ns = ends.get(age).map_or(u64::MAX, |end| end - age_ns);
                (kind * (AGES.len() + 1) + age, at_ns.saturating_add(rest_ns))
            };
            let mut sleeps =
                &self.sleeps[self.sleeps.partition_point(|one| one.1 <= interval.from_ns)..];
            let mut at_ns = interval.from_ns;
            while at_ns < interval.to_ns {
                while sleeps.first().is_some_and(|sleep| sleep.1 <= at_ns) {
                    sleeps = &sleeps[1..];
                }
                let sleep = sleeps.first().copied().unwrap_or((u64::MAX, u64::MAX));
                let sleeping = sleep.0 <= at_ns;
                let (stratum, end_ns) = stratum(at_ns);
                let until_ns = if sleeping { sleep.1 } else { sleep.0 };
                let to_ns = end_ns.min(until_ns).min(interval.to_ns);
                if sleeping {
                    asleep_ns[stratum] += (to_ns - at_ns) as f64;
                } else if !once || bursts[interval.burst].marks.is_empty() {
                    if awake.len() >= most {
                        return false;
                    }
                    // Holds the stratum until its rate is known.
                    let rate = stratum as f64;
                    awake.push(Awake { from_ns: at_ns, to_ns, rate, of });
                }
                at_ns = to_ns;
            }
            if interval.answers && self.is_woken(interval.to_ns) {
                answers[stratum(interval.to_ns).0] += 1.0;
            }
        }
        for awake in &mut awake[first..] {
            let stratum = awake.rate as usize;
            let known = asleep_ns[stratum] >= mean_ns;
            awake.rate = if known { answers[stratum] / asleep_ns[stratum] } else { 0.0 };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    /// 401 bursts of a millisecond, each with an answer at its end. The client sleeps meanwhile,
    /// except just after it asked and after it was answered. In one burst of four it is awake; the
    /// answer is still known if `told`.
    fn bursts(told: bool) -> (Vec<Burst>, Client) {
        let (mut bursts, mut sleeps) = (Vec::new(), Vec::new());
        for n in 0..401 {
            let start_ns = n * 2000 * US;
            let end_ns = start_ns + 1000 * US;
            let awake = n % 4 == 3;
            if !awake {
                sleeps.push((start_ns + 100 * US, end_ns));
            }
            sleeps.push((end_ns + 100 * US, start_ns + 2000 * US));
            let answer = (500 * US, end_ns);
            let marks = if awake && !told { Vec::new() } else { vec![answer] };
            let (work_ns, woken) = (500 * US, WokenBy::Outside);
            bursts.push(Burst { start_ns, end_ns, work_ns, woken, marks, ..Burst::default() });
        }
        (bursts, Client { born_ns: 0, last_ns: u64::MAX, sleeps })
    }

    #[test]
    fn clients_are_answered_as_often_while_they_are_awake() {
        let (mut bursts, client) = bursts(false);
        let left = place_answers(&mut bursts, Some(WokenBy::Outside), &[], &[client], 0.0);
        assert!(left.abs() < 1.0, "{left}");
        for burst in bursts {
            // Told of the next request, the thread had answered the last one.
            assert_eq!(burst.marks, [(500 * US, burst.end_ns)]);
        }
    }

    #[test]
    fn answers_that_are_known_are_not_expected_again() {
        let (mut bursts, client) = bursts(true);
        place_answers(&mut bursts, Some(WokenBy::Outside), &[], &[client], 0.0);
        assert!(bursts.iter().all(|burst| burst.marks.len() == 1));
    }

    #[test]
    fn a_client_with_too_much_to_hold_is_told_of() {
        let (bursts, client) = bursts(false);
        let (intervals, _) = intervals(&bursts, &[]);
        let mut awake = Vec::new();
        let mut fits = |most| client.add_awake(&bursts, &intervals, (1000 * US, most), &mut awake);
        assert!(!fits(100) && fits(1 << 12));
        assert!(awake.len() > 200);
    }

    #[test]
    fn time_in_a_queue_is_no_work() {
        let queued = [(0, 200 * US), (2300 * US, 2500 * US)];
        let (bursts, _) = bursts(true);
        let (intervals, on_cpu_ns) = intervals(&bursts[..2], &queued);
        assert_eq!(on_cpu_ns, [800 * US, 800 * US]);
        let of = |one: &Interval| (one.from_ns / US, one.to_ns / US, one.age_ns / US, one.answers);
        let all: Vec<_> = intervals.iter().map(of).collect();
        assert_eq!(all, [(200, 1000, 0, true), (2000, 2300, 0, false), (2500, 3000, 300, true)]);
    }
}
