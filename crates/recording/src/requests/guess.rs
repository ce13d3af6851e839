//! Requests where only the scheduler's events were recorded.
//!
//! A burst is the work of a thread from a wakeup to its next wait. A thread of the group answers
//! when it wakes a client: a thread outside that also wakes threads of the group. An answer may
//! have several parts. Parts with hardly any work between them are one; otherwise most bursts show
//! their number. A burst with more answers served requests that came while it was busy. Their
//! arrival is not recorded, and is taken to lie half way between the beginning of the burst and
//! their turn. Where requests cost the same, as short bursts show, the length of a burst tells
//! their number, even if the client was awake and not woken.

use super::busy::ConnectionCount;
use super::outside::{THREAD_ANSWERS_MIN, back_ends, clients};
use super::{asking, busy, relay, remote, unseen};
use crate::recording::Recording;
use crate::thread::{Cause, Step};
use cpumax_outcome::median;
use std::collections::{BTreeMap, BTreeSet};

/// Least number of answers of a group.
pub(super) const ANSWERS_MIN: usize = 20;
/// Requests cost the same if half of them differ from the median by less than one part in so many.
const ALIKE_ONE_IN: u64 = 10;
/// An answer after less work is the rest of the one before: less than one part in so many of the
/// cost of an answer, and less than a system call or two.
const PART_ONE_IN: u64 = 8;
const PART_MAX_NS: u64 = 40_000;
/// Threads share connections if, relative to their successful wakeups, more than one in so many is
/// in vain.
const VAIN_ONE_IN: usize = 2;
/// Less work than one part in so many of the cost of an answer is none.
pub(super) const UNSEEN_ONE_IN: u64 = 4;
/// Most requests in a burst, for each answer that is seen and one more.
const UNSEEN_MOST: u64 = 8;
/// More parts are not one answer: the thread hardly ever waits.
pub(super) const PARTS_MAX: usize = 8;

/// The work of a thread from one wait to the next.
#[derive(Debug, Clone, Default)]
pub(crate) struct Burst {
    pub start_ns: u64,
    pub end_ns: u64,
    pub work_ns: u64,
    pub woken: WokenBy,
    /// The thread that woke it; of a forked process, its parent.
    pub by: Option<usize>,
    /// Wakeups of clients: work done before, and time, ns.
    pub marks: Vec<(u64, u64)>,
    /// Whether the recording began within it.
    pub cut: bool,
}

/// The source of the wakeup before a burst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WokenBy {
    /// None, an interrupt, or unknown.
    #[default]
    Otherwise,
    /// A thread that asks.
    Outside,
    /// Another thread of the group.
    Inside,
}

impl WokenBy {
    /// A wakeup by a thread of the group (`inside`), or by one that asks.
    pub(super) fn by(inside: bool) -> WokenBy {
        if inside { WokenBy::Inside } else { WokenBy::Outside }
    }

    /// As `by`, but a wakeup by a back end brings no request.
    pub(super) fn or_back_end(inside: bool, back_end: bool) -> WokenBy {
        if back_end { WokenBy::Otherwise } else { WokenBy::by(inside) }
    }
}

/// Threads woken by clients whose names differ only in a number.
#[derive(Default)]
struct SameName {
    direct: usize,
    /// Those that answer once for each wakeup.
    once: usize,
    /// Wakeups after which such a thread answered, and those after which it did not.
    served: usize,
    vain: usize,
}

/// The part of a thread in serving requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Answers,
    /// Forks a process for each connection.
    Forks,
    /// A process forked for a connection, by this parent (index).
    Forked {
        parent: u32,
    },
    /// Answers other threads of the group: fronts, or threads so many tiers behind.
    Behind {
        tier: u32,
    },
}

impl Role {
    /// Whether clients ask it themselves.
    pub fn is_asked(self) -> bool {
        matches!(self, Role::Answers | Role::Forks)
    }

    /// Whether it sends answers to clients.
    pub fn answers(self) -> bool {
        matches!(self, Role::Answers | Role::Forked { .. })
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub role: Role,
    /// Whether it asks others of its group, and answers when they wake it.
    pub asks: bool,
    pub bursts: Vec<Burst>,
    /// The cost of each request, if all cost the same, ns.
    pub request_cost_ns: Option<u64>,
    /// Whether it serves one connection only.
    pub single: bool,
    /// Whether any idle thread of its name serves the next connection.
    pub shares: bool,
    /// Its connections, if it hardly ever waits.
    pub connections: Option<ConnectionCount>,
    /// Whether its clients are on other machines.
    pub remote: bool,
}

/// The answering threads, and the parts of an answer.
#[derive(Debug)]
pub(crate) struct Guess {
    /// By index of the thread.
    pub servers: BTreeMap<usize, Server>,
    pub parts: usize,
    /// For each connection, whether its requests certainly came on one. Filled when requests are
    /// given connections.
    pub sure: Vec<bool>,
    /// Distances between requests that woke a server one directly after the other, ns.
    pub distances_ns: Vec<u64>,
}

/// A request within a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServedRequest {
    /// Work of the burst when the request ends, ns.
    pub until_work: u64,
    /// Work of the burst when the request is answered, ns; `None`: at its end.
    pub answer_work: Option<u64>,
    pub arrived_ns: u64,
    pub answered_ns: u64,
}

impl Guess {
    /// Finds the answering threads of the group (`inside`) and those behind them; adds answers to
    /// awake clients. `None` for fewer than 20 answers, or more than 8 parts of each.
    pub fn of(recording: &Recording, inside: &[bool]) -> Option<Guess> {
        let (clients, back_ends) = (clients(recording, inside), back_ends(recording, inside));
        let mut servers = relay::forking_servers(recording, inside, &clients);
        let threads = (0..recording.threads.len()).filter(|ix| inside[*ix]);
        for ix in threads.filter(|ix| !servers.contains_key(ix)).collect::<Vec<_>>() {
            let woken = |waker: usize| WokenBy::or_back_end(inside[waker], back_ends[waker]);
            let mut bursts = bursts(recording, ix, woken, |step| match step {
                Step::Wake(edge) => {
                    let edge = &recording.edges[edge as usize];
                    clients[edge.wakee() as usize].then_some(edge.at_ns)
                }
                _ => None,
            });
            join_parts(&mut bursts);
            let answers: usize = bursts.iter().map(|burst| burst.marks.len()).sum();
            if answers >= THREAD_ANSWERS_MIN {
                servers.insert(ix, Server::new(Role::Answers, bursts));
            }
        }
        if servers.is_empty() {
            servers = remote::servers(recording, inside, &back_ends);
        }
        let at_once = asking::ask_at_once(recording, inside, &clients);
        let answers = |server: &&mut Server| server.role.answers();
        for server in servers.values_mut().filter(answers) {
            if at_once && server.is_busy() {
                server.connections = Some(busy::split_answers(&mut server.bursts));
            }
        }
        let answer = || servers.values().filter(|server| server.role.answers());
        let is_busy = answer().count() > 0 && answer().all(|server| server.connections.is_some());
        let all = answer().filter(|server| is_busy || server.connections.is_none());
        let all = all.flat_map(|server| &server.bursts);
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for burst in all.filter(|burst| !burst.marks.is_empty()) {
            *counts.entry(burst.marks.len()).or_default() += 1;
        }
        let answers: usize = counts.iter().map(|(marks, times)| marks * times).sum();
        let most = counts.iter().rev().max_by_key(|(_, times)| **times).map(|(marks, _)| *marks)?;
        let most = if is_busy { 1 } else { most };
        if answers < ANSWERS_MIN || most > PARTS_MAX {
            return None;
        }
        relay::add_tiers_behind(recording, inside, &mut servers);
        for server in servers.values_mut() {
            if server.role != Role::Answers || server.asks {
                continue;
            }
            if let Some(by) = server.asked_by() {
                add_unseen(&mut server.bursts, by);
            }
            let is_counted = server.connections.is_some();
            server.request_cost_ns = request_cost(&server.bursts, most).filter(|_| !is_counted);
        }
        let mut guess = Guess { servers, parts: most, sure: Vec::new(), distances_ns: Vec::new() };
        guess.mark_single(recording);
        unseen::add_unseen_answers(recording, &clients, &mut guess.servers);
        Some(guess)
    }

    /// Whether forked processes, of one connection each, gave most answers.
    pub fn is_anew(&self) -> bool {
        let answers = |forked: bool| -> usize {
            let servers = self.servers.values().filter(|server| server.role.answers());
            let these = servers.filter(|one| matches!(one.role, Role::Forked { .. }) == forked);
            these.flat_map(|server| &server.bursts).map(|burst| burst.marks.len()).sum()
        };
        answers(true) > answers(false)
    }

    /// Whether clients are on other machines. One thread may then serve several of them, and
    /// several threads one.
    pub fn is_remote(&self) -> bool {
        self.servers.values().any(|server| server.remote)
    }

    /// Finds threads that serve one connection each: several threads of one name that clients wake
    /// for each request. If many of their wakeups are in vain, all of them wait for the next
    /// connection, and share what comes.
    fn mark_single(&mut self, recording: &Recording) {
        let comm = |ix: usize| recording.threads[ix].unnumbered();
        let mut kin: BTreeMap<&str, SameName> = BTreeMap::new();
        let alike = |server: &Server| server.role == Role::Answers && !server.asks;
        for (&ix, server) in self.servers.iter().filter(|(_, server)| alike(server)) {
            if server.is_direct() {
                let kin = kin.entry(comm(ix)).or_default();
                kin.direct += 1;
                kin.once += usize::from(server.answers_once());
                for answers in server.answers_by_wakeup() {
                    *(if answers > 0 { &mut kin.served } else { &mut kin.vain }) += 1;
                }
            }
        }
        for (&ix, server) in &mut self.servers {
            let Some(kin) = kin.get(comm(ix)).filter(|_| alike(server) && server.is_direct())
            else {
                continue;
            };
            // A single thread that many clients wake looks alike when there is little to do.
            let several = kin.direct > 1;
            server.shares = several && kin.vain * VAIN_ONE_IN > kin.served;
            // On one connection no request comes before the last one is answered.
            let is_busy = server.connections.is_some();
            server.single = several && !server.shares && !is_busy && 2 * kin.once >= kin.direct;
            if server.single {
                server.request_cost_ns = None;
            }
        }
    }

    /// The requests of a burst, in order, with the work and times at which each arrived and was
    /// answered; none if it answered nobody, or the recording began within it.
    pub fn served_requests(&self, server: &Server, burst: &Burst) -> Vec<ServedRequest> {
        if burst.cut {
            return Vec::new();
        }
        let parts = match server.role {
            Role::Answers if !server.single && server.connections.is_none() => self.parts,
            _ => 1,
        };
        let by_answers = burst.marks.len().div_ceil(parts);
        let count = match server.request_cost_ns {
            Some(request_cost_ns) => {
                let by_work =
                    burst.work_ns.saturating_add(request_cost_ns / 2) / request_cost_ns.max(1);
                by_work.min(UNSEEN_MOST * (1 + by_answers as u64)) as usize
            }
            None => by_answers,
        };
        let count = count.max(usize::from(by_answers > 0)).min(burst.work_ns as usize);
        let wall_ns = burst.end_ns.saturating_sub(burst.start_ns);
        let mut served: Vec<ServedRequest> = Vec::with_capacity(count);
        for n in 1..=count {
            let mark = burst.marks.get(n * parts - 1).filter(|_| count == by_answers);
            let even_ns = share(burst.work_ns, n, count);
            let (until_work, answered_ns) = match mark {
                Some(mark) if server.request_cost_ns.is_none() => *mark,
                Some((_, at_ns)) => (even_ns, *at_ns),
                None => (even_ns, burst.start_ns + share(wall_ns, n, count)),
            };
            let turn_ns = served.last().map_or(burst.start_ns, |before| before.answered_ns);
            // On one connection the next request comes after the answer to the last.
            let waited_ns =
                if server.single { 0 } else { turn_ns.saturating_sub(burst.start_ns) / 2 };
            let arrived_ns = turn_ns - waited_ns;
            let answer_work = mark
                .filter(|_| matches!(server.role, Role::Forked { .. }))
                .map(|(work_ns, _)| *work_ns);
            let answered_ns = answered_ns.max(turn_ns);
            served.push(ServedRequest { until_work, answer_work, arrived_ns, answered_ns });
        }
        if let Some(last) = served.last_mut() {
            last.until_work = u64::MAX;
        }
        served
    }
}

impl Server {
    /// A server of this role that asks nobody; nothing is known of its connections.
    pub(super) fn new(role: Role, bursts: Vec<Burst>) -> Server {
        Server {
            role,
            asks: false,
            bursts,
            request_cost_ns: None,
            single: false,
            shares: false,
            connections: None,
            remote: false,
        }
    }

    /// The threads of its group that woke it to answer, once for each such burst.
    pub(super) fn answered_by(&self) -> impl Iterator<Item = usize> {
        let told = self.bursts.iter().filter(|one| one.woken == WokenBy::Inside);
        told.filter(|one| !one.marks.is_empty()).filter_map(|one| one.by)
    }

    /// Whether it asks others: clients wake it, mostly it sleeps before it answers, and one of
    /// `these` wakes it for that.
    pub(super) fn is_front(&self, these: impl Fn(usize) -> bool) -> bool {
        let answers = self.bursts.iter().filter(|one| !one.marks.is_empty()).count();
        let told = self.answered_by().filter(|by| these(*by)).count();
        let asked = self.bursts.iter().filter(|one| one.woken == WokenBy::Outside);
        2 * told > answers && 2 * asked.filter(|one| one.marks.is_empty()).count() > told
    }

    /// Makes it a front of threads that answered at these times. A burst that such an answer began,
    /// and that woke nobody, gets an answer: its client was awake.
    pub(super) fn make_front(&mut self, answered_ns: &BTreeSet<u64>) {
        self.asks = true;
        for one in self.bursts.iter_mut().filter(|one| one.marks.is_empty()) {
            if one.woken == WokenBy::Inside && answered_ns.contains(&one.start_ns) {
                one.marks.push((one.work_ns, one.end_ns));
            }
        }
    }

    /// Whether clients wake it, not others of its group. If its threads also wait for locks of the
    /// group, clients must wake it once for each answer.
    pub fn is_direct(&self) -> bool {
        let woken = |by| self.bursts.iter().filter(|burst| burst.woken == by).count();
        let (outside, inside) = (woken(WokenBy::Outside), woken(WokenBy::Inside));
        let answers = self.bursts.iter().filter(|burst| !burst.marks.is_empty()).count();
        outside >= inside || 3 * outside >= 2 * answers && self.answers_once()
    }

    /// Threads whose wakeups bring it requests: clients, or its group if most of these wakeups lead
    /// to an answer.
    pub fn asked_by(&self) -> Option<WokenBy> {
        if self.is_direct() {
            return Some(WokenBy::Outside);
        }
        let inside = self.bursts.iter().filter(|burst| burst.woken == WokenBy::Inside);
        let (all, answered) = inside.fold((0, 0), |(all, answered), burst| {
            (all + 1, answered + usize::from(!burst.marks.is_empty()))
        });
        (2 * answered > all).then_some(WokenBy::Inside)
    }

    /// Whether it wakes clients at most twice from one wakeup by a client to the next, with one
    /// exception in fifty.
    fn answers_once(&self) -> bool {
        let (mut all, mut more) = (0, 0);
        for answers in self.answers_by_wakeup() {
            all += usize::from(answers > 0);
            more += usize::from(answers > 2);
        }
        all > 0 && more * 50 <= all
    }

    /// Number of answers from one wakeup by a client to the next, without the last.
    fn answers_by_wakeup(&self) -> impl Iterator<Item = usize> {
        let bursts = self.bursts.chunk_by(|_, next| next.woken != WokenBy::Outside);
        // The time after the last wakeup may be incomplete.
        let whole = bursts.clone().count().saturating_sub(1);
        bursts.take(whole).map(|bursts| bursts.iter().map(|burst| burst.marks.len()).sum())
    }
}

/// Makes one answer, at the last part, of answers with hardly any work between them.
pub(super) fn join_parts(bursts: &mut [Burst]) {
    let work_ns = work_of(bursts);
    let marks: usize = bursts.iter().map(|burst| burst.marks.len()).sum();
    let near_ns = (work_ns / (marks as u64 * PART_ONE_IN).max(1)).min(PART_MAX_NS);
    // The burst of the last part, and the work since.
    let mut last: Option<(usize, u64)> = None;
    for at in 0..bursts.len() {
        if bursts[at].woken == WokenBy::Outside {
            last = None;
        }
        let burst = &mut bursts[at];
        let (first, end) = (burst.marks.first().copied(), burst.marks.last().copied());
        let mut kept: Vec<(u64, u64)> = Vec::with_capacity(burst.marks.len());
        for mark in std::mem::take(&mut burst.marks) {
            if kept.last().is_some_and(|before| mark.0 - before.0 < near_ns) {
                kept.pop();
            }
            kept.push(mark);
        }
        burst.marks = kept;
        let work_ns = burst.work_ns;
        match (first, end, last) {
            (Some(first), Some(end), before) => {
                if let Some((before, _)) =
                    before.filter(|(_, since)| since.saturating_add(first.0) < near_ns)
                {
                    bursts[before].marks.pop();
                }
                last = Some((at, work_ns - end.0));
            }
            (_, _, Some((before, since_ns))) => {
                last = Some((before, since_ns.saturating_add(work_ns)));
            }
            _ => {}
        }
    }
}

/// Adds answers to clients that were awake. A burst gets one at its end if the thread was asked
/// (woken `by` these), has worked a quarter of the mean work for an answer, and woke nobody before
/// it was asked again.
fn add_unseen(bursts: &mut [Burst], by: WokenBy) {
    let work_ns = work_of(bursts);
    let marks: usize = bursts.iter().map(|burst| burst.marks.len()).sum();
    let least_ns = work_ns / (marks as u64 * UNSEEN_ONE_IN).max(1);
    let (mut asked, mut since_ns) = (false, 0_u64);
    for at in 0..bursts.len() {
        if bursts[at].woken == by {
            (asked, since_ns) = (true, 0);
        }
        let next = bursts.get(at + 1).map(|burst| burst.woken);
        let burst = &mut bursts[at];
        since_ns = since_ns.saturating_add(burst.work_ns);
        asked &= burst.marks.is_empty();
        if asked && next == Some(by) && since_ns >= least_ns {
            burst.marks.push((burst.work_ns, burst.end_ns));
        }
    }
}

/// CPU time of all bursts, ns; saturating, because damaged files may hold any number.
fn work_of(bursts: &[Burst]) -> u64 {
    bursts.iter().fold(0, |sum, burst| sum.saturating_add(burst.work_ns))
}

/// `whole * part / of`.
pub(super) fn share(whole: u64, part: usize, of: usize) -> u64 {
    (u128::from(whole) * part as u128 / of.max(1) as u128) as u64
}

/// The bursts of a thread, the last one up to the end of the recording. `woken` classifies a waking
/// thread; `mark` returns the time of a step that is an answer.
pub(super) fn bursts(
    recording: &Recording,
    ix: usize,
    woken: impl Fn(usize) -> WokenBy,
    mark: impl Fn(Step) -> Option<u64>,
) -> Vec<Burst> {
    let thread = &recording.threads[ix];
    let mut bursts = Vec::new();
    let mut burst = Burst { start_ns: recording.first_ns, cut: true, ..Burst::default() };
    for step in thread.steps.iter() {
        match step {
            Step::Run(ns) => burst.work_ns = burst.work_ns.saturating_add(ns),
            Step::Wait(wait) => {
                let wait = &thread.waits[wait as usize];
                let by = match wait.cause {
                    Cause::Thread { edge } => Some(recording.edges[edge as usize].waker as usize),
                    _ => None,
                };
                burst.end_ns = wait.start_ns;
                let woken = by.map_or(WokenBy::Otherwise, &woken);
                let next = Burst { start_ns: wait.end_ns, woken, by, ..Burst::default() };
                bursts.push(std::mem::replace(&mut burst, next));
            }
            _ => {}
        }
        if let Some(at_ns) = mark(step) {
            burst.marks.push((burst.work_ns, at_ns));
        }
    }
    burst.end_ns = recording.last_ns;
    bursts.push(burst);
    bursts
}

/// The median cost of a request, ns, if the bursts of `parts` answers, at least 20, show that all
/// cost about the same.
fn request_cost(bursts: &[Burst], parts: usize) -> Option<u64> {
    let single = bursts.iter().filter(|burst| burst.marks.len() == parts);
    let mut works: Vec<u64> = single.map(|burst| burst.work_ns).collect();
    if works.len() < ANSWERS_MIN {
        return None;
    }
    let request_cost_ns = median(&mut works);
    let mut off: Vec<u64> = works.iter().map(|work_ns| work_ns.abs_diff(request_cost_ns)).collect();
    (request_cost_ns > 0 && median(&mut off).saturating_mul(ALIKE_ONE_IN) < request_cost_ns)
        .then_some(request_cost_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(work_ns: u64, marks: &[(u64, u64)]) -> Burst {
        let woken = WokenBy::Outside;
        Burst {
            start_ns: 1000,
            end_ns: 1000 + work_ns,
            work_ns,
            woken,
            marks: marks.to_vec(),
            ..Burst::default()
        }
    }

    #[test]
    fn a_burst_with_three_answers_served_three() {
        let guess = Guess {
            servers: BTreeMap::new(),
            parts: 1,
            sure: Vec::new(),
            distances_ns: Vec::new(),
        };
        let server = Server::new(Role::Answers, Vec::new());
        let served =
            guess.served_requests(&server, &burst(600, &[(100, 1100), (250, 1250), (590, 1590)]));
        let times: Vec<(u64, u64)> =
            served.iter().map(|served| (served.arrived_ns, served.answered_ns)).collect();
        assert_eq!(times, [(1000, 1100), (1050, 1250), (1125, 1590)]);
    }

    #[test]
    fn equal_costs_tell_the_number_of_requests() {
        let guess = Guess {
            servers: BTreeMap::new(),
            parts: 2,
            sure: Vec::new(),
            distances_ns: Vec::new(),
        };
        let server =
            Server { request_cost_ns: Some(100), ..Server::new(Role::Answers, Vec::new()) };
        assert_eq!(guess.served_requests(&server, &burst(310, &[(50, 1050)])).len(), 3);
        assert_eq!(guess.served_requests(&server, &burst(20, &[])).len(), 0);
        assert_eq!(guess.served_requests(&server, &burst(20, &[(10, 1010)])).len(), 1);
    }
}
