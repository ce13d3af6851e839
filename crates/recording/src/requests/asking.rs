//! How clients ask, as their sleep shows.
//!
//! An answer or a timer wakes a sleeping client. A timer means that it is about to ask, and how
//! often that happens while it sleeps does not depend on its work while it is awake. The number of
//! requests under way is known about: one for each timer, less the answers since, and none while
//! all serving threads sleep. Of N closed clients only those ask that wait for no answer, at a rate
//! in proportion to N minus the requests under way. Open clients always ask at the same rate. The
//! likelihood ratio of the two Poisson processes, over all N, tells which is likelier.
//!
//! The number under way must depend on the past alone, or open clients look closed. A plan may also
//! be more regular than chance: the last request is then still under way when nothing is due yet.
//! Both processes therefore have another rate for each age of the last request.

use super::arrivals::{CLIENTS_MOST, REGULAR, irregularity};
use super::{Request, outside};
use crate::recording::Recording;
use crate::thread::{Birth, Cause, Thread};
use std::collections::BTreeMap;

/// A larger number of requests under way counts as this.
const UNDER_WAY_MOST: usize = 512;
/// Rate where all clients wait for answers, relative to the rate of one idle client. It is not 0
/// because the number under way is inexact.
const NO_IDLE_RATE: f64 = 0.3;
/// Bounds of the age of the last request, in quarters of the mean distance between two. A last
/// stratum lies beyond.
const AGES: [u64; 5] = [1, 2, 4, 8, 16];
const STRATA: usize = AGES.len() + 1;
/// A thread of the group serves, too, if it exchanges wakeups with a serving thread at least once
/// in so many answers. Timers wake clients often from the same share on.
const OFTEN_ONE_IN: usize = 16;
/// Log-likelihood of closed clients where hardly anything but answers wakes them: they have no plan
/// of their own.
const AT_ONCE: f64 = 10.0;
/// Log-likelihood that is certain.
pub(super) const LIKELY: f64 = 3.0;
/// Most processes that are examined, those that woke up most often.
const PROCESSES_MOST: usize = 32;
/// Least number of requests, and of answers, of a process from which something is inferred.
const ASKED_MIN: usize = 50;
/// Least number of requests of a client thread from whose turns something is inferred.
const TURNS_MIN: usize = 10;

/// Evidence from the sleep of a group's clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct SleepEvidence {
    /// Logarithm of how much likelier closed clients are than open ones; 0 if there is no evidence.
    pub closed: f64,
    /// The likeliest number of closed clients; 0 if there is no evidence.
    pub clients: u32,
    /// `closed` for one, two and so on clients in each process that asks; empty if there is no
    /// evidence.
    pub by_clients: Vec<f64>,
    pub processes: usize,
    /// For each client thread with one connection: when a timer woke it, and the answer that came
    /// before the next timer.
    pub turns: Vec<Vec<Request>>,
}

impl SleepEvidence {
    /// Collects the evidence for the group's threads (`inside`): none without clients; closed if
    /// they ask at once; else of the 32 processes with clients that woke up most often.
    pub fn of(recording: &Recording, inside: &[bool]) -> SleepEvidence {
        let clients = outside::clients(recording, inside);
        if !clients.contains(&true) {
            return SleepEvidence::default();
        }
        if ask_at_once(recording, inside, &clients) {
            return SleepEvidence { closed: AT_ONCE, ..SleepEvidence::default() };
        }
        let idle = idle_times(recording, &serving(recording, inside, &clients));
        let mut processes: BTreeMap<(bool, i32), Vec<usize>> = BTreeMap::new();
        for (ix, thread) in recording.threads.iter().enumerate().filter(|(ix, _)| !inside[*ix]) {
            let process = thread.pid.map_or((false, thread.tid), |pid| (true, pid));
            processes.entry(process).or_default().push(ix);
        }
        let mut processes: Vec<Vec<usize>> = processes.into_values().collect();
        processes.retain(|threads| threads.iter().any(|ix| clients[*ix]));
        let waits = |threads: &Vec<usize>| -> usize {
            threads.iter().map(|ix| recording.threads[*ix].waits.len()).sum()
        };
        processes.sort_by_key(|threads| std::cmp::Reverse(waits(threads)));
        processes.truncate(PROCESSES_MOST);
        let asleep: Vec<SleepCounts> = processes
            .iter()
            .filter_map(|threads| {
                let mut events = idle.clone();
                for ix in threads {
                    add_events(recording, inside, *ix, &mut events);
                }
                events.sort_unstable();
                SleepCounts::of(&events)
            })
            .collect();
        let all = recording.threads.iter().enumerate().filter(|(ix, _)| clients[*ix]);
        let turns = all.filter_map(|(_, thread)| turns(recording, inside, thread)).collect();
        SleepEvidence { turns, ..SleepEvidence::from(&asleep) }
    }

    /// Combines the evidence of all processes that ask; none without processes.
    fn from(asleep: &[SleepCounts]) -> SleepEvidence {
        if asleep.is_empty() {
            return SleepEvidence::default();
        }
        // The prior of each number of clients of a process is its inverse.
        let likelier =
            |clients| asleep.iter().map(|one| one.log_likelihood_ratio(clients)).sum::<f64>();
        let all: Vec<f64> = (1..=CLIENTS_MOST as u32).map(likelier).collect();
        let best = |best: (usize, f64), one: (usize, &f64)| {
            if *one.1 > best.1 { (one.0, *one.1) } else { best }
        };
        let (at, most) = all.iter().enumerate().fold((0, f64::MIN), best);
        let weight = |at: usize| 1.0 / (at + 1) as f64;
        let (sum, weights) =
            all.iter().enumerate().fold((0.0, 0.0), |(sum, weights), (at, one)| {
                (sum + weight(at) * (one - most).exp(), weights + weight(at))
            });
        let closed = most + (sum / weights).ln();
        let clients = (at as u32 + 1) * asleep.len() as u32;
        let processes = asleep.len();
        SleepEvidence { closed, clients, by_clients: all, processes, ..SleepEvidence::default() }
    }

    /// `closed` for at most twice `clients` in all, as their number is inexact.
    pub fn closed_of(&self, clients: usize) -> f64 {
        let each = (2 * clients).div_ceil(self.processes.max(1)).min(self.by_clients.len());
        let most = self.by_clients[..each].iter().copied().reduce(f64::max);
        most.unwrap_or(self.closed)
    }

    /// The likeliest number of closed clients; `None` if they are not surely closed.
    pub fn closed_clients(&self) -> Option<usize> {
        (self.closed >= LIKELY && self.clients > 0).then_some(self.clients as usize)
    }

    /// The largest number of closed clients that is hardly less likely than `closed_clients()`.
    pub fn most_closed_clients(&self) -> Option<usize> {
        let most = self.by_clients.iter().copied().reduce(f64::max)?;
        let at = self.by_clients.iter().rposition(|one| one + LIKELY >= most)?;
        Some((at + 1) * self.processes)
    }
}

/// The requests of a client thread that timers and answers wake in turn, as one with a single
/// connection. `None` if one in 16 or more timers comes before the answer, or requests are few.
fn turns(recording: &Recording, inside: &[bool], thread: &Thread) -> Option<Vec<Request>> {
    let mut turns: Vec<Request> = Vec::new();
    let (mut is_answered, mut early) = (true, 0);
    for wait in &thread.waits {
        let at_ns = wait.end_ns.saturating_sub(recording.first_ns);
        match wakeup_meaning(recording, inside, thread, wait.cause) {
            Some(Event::Timer) => {
                early += usize::from(!is_answered);
                is_answered = false;
                turns.push(Request { connection: 0, arrived_ns: at_ns, answered_ns: at_ns });
            }
            Some(Event::Answer) => {
                is_answered = true;
                if let Some(asked) = turns.last_mut() {
                    asked.answered_ns = at_ns;
                }
            }
            _ => {}
        }
    }
    (turns.len() >= TURNS_MIN && early * OFTEN_ONE_IN < turns.len()).then_some(turns)
}

/// Whether clients ask as soon as they are answered: an answer wakes them at least 50 times, and
/// more than 16 times as often as timers and clients of theirs do.
pub(super) fn ask_at_once(recording: &Recording, inside: &[bool], clients: &[bool]) -> bool {
    let (mut timers, mut answers) = (0, 0);
    for (thread, _) in recording.threads.iter().zip(clients).filter(|(_, client)| **client) {
        for wait in &thread.waits {
            match wakeup_meaning(recording, inside, thread, wait.cause) {
                Some(Event::Answer) => answers += 1,
                Some(Event::Timer) => timers += 1,
                _ => {}
            }
        }
    }
    answers >= ASKED_MIN && timers * OFTEN_ONE_IN < answers
}

/// The meaning of the end of a wait to a client: an answer, or that it is to ask; `None` if it has
/// none. A thread of another program outside the group makes it ask like a timer does: that is how
/// a proxy is asked.
fn wakeup_meaning(
    recording: &Recording,
    inside: &[bool],
    client: &Thread,
    cause: Cause,
) -> Option<Event> {
    let edge = match cause {
        Cause::Interrupt(_) => return Some(Event::Timer),
        Cause::Unseen => return None,
        Cause::Thread { edge } => edge,
    };
    let waker = recording.edges[edge as usize].waker as usize;
    if inside[waker] {
        return Some(Event::Answer);
    }
    let thread = &recording.threads[waker];
    let asks = thread.process() != client.process() && !recording.is_kernel(thread);
    asks.then_some(Event::Timer)
}

/// For each thread, whether requests pass through it: it is in the group and talks with clients, or
/// often with these threads, or such a thread forked it.
fn serving(recording: &Recording, inside: &[bool], clients: &[bool]) -> Vec<bool> {
    let mut serving = vec![false; inside.len()];
    let (mut answers, mut among) = (0, BTreeMap::<(usize, usize), usize>::new());
    for edge in &recording.edges {
        let (waker, wakee) = (edge.waker as usize, edge.wakee() as usize);
        if inside[waker] && inside[wakee] {
            *among.entry((waker.min(wakee), waker.max(wakee))).or_default() += 1;
        } else if inside[waker] && clients[wakee] {
            (serving[waker], answers) = (true, answers + 1);
        } else if clients[waker] && inside[wakee] {
            serving[wakee] = true;
        }
    }
    among.retain(|_, times| *times * OFTEN_ONE_IN >= answers);
    let mut reached: Vec<usize> = (0..inside.len()).filter(|ix| serving[*ix]).collect();
    let mut talks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (a, b) in among.into_keys() {
        talks.entry(a).or_default().push(b);
        talks.entry(b).or_default().push(a);
    }
    while let Some(ix) = reached.pop() {
        for other in talks.remove(&ix).into_iter().flatten() {
            if !std::mem::replace(&mut serving[other], true) {
                reached.push(other);
            }
        }
    }
    // A child may serve without having woken a client yet. Parents come first.
    for (ix, thread) in recording.threads.iter().enumerate().filter(|(ix, _)| inside[*ix]) {
        if let Birth::Forked { parent, .. } = thread.birth {
            serving[ix] |= serving[parent as usize];
        }
    }
    serving
}

/// An event of a process that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Answer,
    /// All serving threads sleep.
    Idle,
    Timer,
    /// Threads that woke up (positive) or went to sleep (negative).
    Awake(i32),
}

/// The times, ns, at which the last serving thread that was awake went to sleep.
fn idle_times(recording: &Recording, serving: &[bool]) -> Vec<(u64, Event)> {
    let mut steps: Vec<(u64, i32)> = Vec::new();
    for (thread, _) in recording.threads.iter().zip(serving).filter(|(_, serves)| **serves) {
        steps.push((thread.birth_ns(recording.first_ns), 1));
        for wait in &thread.waits {
            steps.extend([(wait.start_ns, -1), (wait.end_ns, 1)]);
        }
        steps.extend(thread.exited.then_some((thread.last_ns, -1)));
    }
    steps.sort_unstable_by_key(|(at_ns, step)| (*at_ns, -step));
    let mut awake = 0;
    steps.retain(|(_, step)| {
        awake += step;
        awake <= 0 && *step < 0
    });
    steps.into_iter().map(|(at_ns, _)| (at_ns, Event::Idle)).collect()
}

/// Appends the events of a thread that asks, with times in ns: its birth, end and waits, and what
/// ended each.
fn add_events(recording: &Recording, inside: &[bool], ix: usize, events: &mut Vec<(u64, Event)>) {
    let thread = &recording.threads[ix];
    events.push((thread.birth_ns(recording.first_ns), Event::Awake(1)));
    for wait in &thread.waits {
        events.push((wait.start_ns, Event::Awake(-1)));
        let told = wakeup_meaning(recording, inside, thread, wait.cause);
        events.extend(told.map(|event| (wait.end_ns, event)));
        events.push((wait.end_ns, Event::Awake(1)));
    }
    events.extend(thread.exited.then_some((thread.last_ns, Event::Awake(-1))));
}

/// Time that a process slept, ns, and how often a timer ended that, by requests under way and by
/// age of the last one.
struct SleepCounts {
    ns: Vec<[f64; STRATA]>,
    asked: Vec<[f64; STRATA]>,
}

impl SleepCounts {
    /// Follows the events, in order of time, and sums up the time in which no thread is awake, and
    /// the timers that end it. Requests under way grow by one with each timer and shrink with each
    /// answer. `None` if timers or answers are too few, or the timers too regular, for an
    /// inference.
    fn of(events: &[(u64, Event)]) -> Option<SleepCounts> {
        let count = |kind| events.iter().filter(|(_, event)| *event == kind).count();
        let (timers, answers) = (count(Event::Timer), count(Event::Answer));
        let (first_ns, last_ns) = (events.first()?.0, events.last()?.0);
        if timers < ASKED_MIN || answers < ASKED_MIN {
            return None;
        }
        let times = events.iter().filter(|(_, event)| *event == Event::Timer);
        let times: Vec<u64> = times.map(|(at_ns, _)| *at_ns).collect();
        if irregularity(times.windows(2).map(|pair| pair[1] - pair[0]).collect()) < REGULAR {
            return None;
        }
        // An answer may come in parts, and any of them may find the client awake.
        let part = timers as f64 / answers as f64;
        let quarter_ns = (last_ns - first_ns) / (4 * timers as u64) + 1;
        let ages = |asked_ns: u64| {
            AGES.map(|quarters| asked_ns.saturating_add(quarters.saturating_mul(quarter_ns)))
        };
        let mut asleep = SleepCounts { ns: Vec::new(), asked: Vec::new() };
        let (mut under_way, mut awake, mut since_ns) = (0.0_f64, 0, first_ns);
        let mut ends = ages(0);
        for &(at_ns, event) in events {
            if awake <= 0 {
                let row = (under_way.round() as usize).min(UNDER_WAY_MOST);
                asleep.add_sleep(row, &ends, (since_ns, at_ns));
                if event == Event::Timer {
                    asleep.asked[row][stratum(&ends, at_ns)] += 1.0;
                }
            }
            since_ns = at_ns;
            match event {
                Event::Answer => under_way = (under_way - part).max(0.0),
                Event::Idle => under_way = 0.0,
                Event::Timer => (under_way, ends) = (under_way + 1.0, ages(at_ns)),
                Event::Awake(step) => awake += step,
            }
        }
        Some(asleep)
    }

    /// Adds the time asleep between two moments, ns, split by the age of the last request. `row`:
    /// requests under way; `ends`: the times, ns, at which an age ends and the next begins.
    fn add_sleep(&mut self, row: usize, ends: &[u64; AGES.len()], (from, to): (u64, u64)) {
        let rows = self.ns.len().max(row + 1);
        self.ns.resize(rows, [0.0; STRATA]);
        self.asked.resize(rows, [0.0; STRATA]);
        let mut at_ns = from;
        while at_ns < to {
            let age = stratum(ends, at_ns);
            let end_ns = ends.get(age).map_or(to, |end_ns| to.min(*end_ns));
            self.ns[row][age] += (end_ns - at_ns) as f64;
            at_ns = end_ns;
        }
    }

    /// Natural logarithm of how much likelier these counts are with so many closed clients, of
    /// which only the idle ones ask, than with open clients. Positive: closed.
    fn log_likelihood_ratio(&self, clients: u32) -> f64 {
        let free = |under_way: usize| (f64::from(clients) - under_way as f64).max(NO_IDLE_RATE);
        let of = |age: usize| {
            let (mut all, mut each, mut ns, mut free_ns) = (0.0, 0.0, 0.0, 0.0);
            for (row, (slept, asked)) in self.ns.iter().zip(&self.asked).enumerate() {
                let (asked, slept) = (asked[age], slept[age]);
                (all, each) = (all + asked, each + asked * free(row).ln());
                (ns, free_ns) = (ns + slept, free_ns + slept * free(row));
            }
            each - all * (free_ns.max(1.0) / ns.max(1.0)).ln()
        };
        (0..STRATA).map(of).sum()
    }
}

/// Index of the age that a request has at this time; `ends` as for `add_sleep`.
fn stratum(ends: &[u64; AGES.len()], at_ns: u64) -> usize {
    ends.iter().filter(|end_ns| **end_ns <= at_ns).count()
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::tests::noise;
    use super::*;

    const MS: u64 = 1_000_000;

    /// Twelve seconds of clients that ask one thread: 300 requests a second, or 30 a second for
    /// each idle one of ten connections. An answer takes 2 ms or 8 ms.
    fn asks(closed: bool) -> SleepEvidence {
        let (mut events, mut waiting) = (vec![(0, Event::Awake(0))], Vec::<u64>::new());
        for step in 0..120_000 {
            let now_ns = step * 100_000;
            if waiting.first().is_some_and(|answer_ns| *answer_ns <= now_ns) {
                waiting.remove(0);
                events.push((now_ns, Event::Answer));
                if waiting.is_empty() {
                    events.push((now_ns, Event::Idle));
                }
            }
            let free = if closed { 10 - waiting.len().min(10) as u64 } else { 10 };
            // 30 a second are 3 in a thousand steps.
            if noise(step) * 1000 < free * 3 * (1 << 20) {
                let takes_ns =
                    if noise(step + 1_000_000).is_multiple_of(4) { 8 * MS } else { 2 * MS };
                let from_ns = waiting.last().copied().unwrap_or(0).max(now_ns);
                waiting.push(from_ns + takes_ns);
                events.push((now_ns, Event::Timer));
            }
        }
        SleepEvidence::from(&[SleepCounts::of(&events).unwrap()])
    }

    #[test]
    fn closed_clients_are_woken_the_less_the_more_they_wait() {
        let closed = asks(true);
        assert!(closed.closed > LIKELY, "{closed:?}");
        assert!((7..=14).contains(&closed.closed_clients().unwrap()), "{closed:?}");
        let open = asks(false);
        assert!(open.closed < 0.0, "{open:?}");
        assert_eq!(open.closed_clients(), None);
    }

    #[test]
    fn a_clock_tells_nothing() {
        let tick = |i: u64| {
            let at_ns = i * 5 * MS;
            [(at_ns, Event::Timer), (at_ns + MS, Event::Answer), (at_ns + MS, Event::Idle)]
        };
        let events: Vec<(u64, Event)> = (0..500).flat_map(tick).collect();
        assert!(SleepCounts::of(&events).is_none());
    }
}
