//! Requests: read on a connection, worked on, and answered.
//!
//! Only connections across the border of the limited group count. One end is a thread of the group
//! that reads before it writes; the other end is outside, on this machine or another one. A request
//! is everything read there until something is written; its answer is everything written until
//! something is read. It arrives when the client began to write it. Where that was not recorded, it
//! arrives when it woke its reader, or, if the reader was busy, half way between the two times at
//! which the reader polled.

use crate::build::jobs::Pools;
use crate::recording::Recording;
use crate::syscalls::IoKind;
use crate::thread::FdOrSocket;
use std::collections::BTreeMap;
use std::rc::Rc;

mod arrivals;
pub(crate) mod asking;
pub(crate) mod busy;
pub(crate) mod endpoints;
pub(crate) mod evidence;
pub(crate) mod guess;
mod handed;
pub(crate) mod lines;
pub(crate) mod outside;
mod polls;
mod relay;
mod remote;
pub(crate) mod tags;
pub(crate) mod unseen;

use asking::SleepEvidence;
use endpoints::{EndpointIx, Endpoints, Listener};
use evidence::{Clients, Evidence, Loop};
use guess::Guess;
use lines::ClientConnections;
use polls::PollTimes;
use tags::Tag;

/// A request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Index of its connection.
    pub connection: u32,
    /// When it was sent, ns from the first event.
    pub arrived_ns: u64,
    /// When the last part of its answer was sent, ns from the first event.
    pub answered_ns: u64,
}

impl Request {
    /// Time from its arrival to its answer, ns.
    pub fn took_ns(&self) -> u64 {
        self.answered_ns.saturating_sub(self.arrived_ns)
    }
}

/// The requests that a group answers, and how its clients ask.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Service {
    /// In order of connections, then of time.
    pub requests: Vec<Request>,
    /// Number of connections on which they came.
    pub connections: u32,
    /// Whether there may be more connections, which the recording does not show.
    pub or_more: bool,
    /// How clients ask in the replay.
    pub clients: Loop,
    /// The evidence for `clients` in the recording.
    pub evidence: Evidence,
    /// Whether `clients` is certain, or given by the caller.
    pub sure: bool,
    /// Whether requests were recorded; else they are inferred from wakeups.
    pub recorded: bool,
    /// Another number of closed clients that is hardly less likely.
    pub or_as_many: Option<usize>,
    /// CPU time of each request, in order of arrival, ns; empty where it was not computed.
    pub costs_ns: Vec<u64>,
}

impl Service {
    /// The service of `known` requests. `served`: by connection; `told`: how clients ask, if the
    /// caller knows.
    pub(crate) fn of(
        known: &Requests,
        served: &[Vec<Request>],
        asking: &SleepEvidence,
        told: Option<Clients>,
    ) -> Service {
        let evidence = known.evidence(served, asking);
        let (clients, sure) = told.map_or_else(|| evidence.says(), |told| (told.ask, true));
        Service {
            requests: served.iter().flatten().copied().collect(),
            connections: served.len() as u32,
            or_more: told.and_then(|told| told.number).is_none() && known.may_be_more(),
            clients,
            evidence,
            sure,
            recorded: matches!(known, Requests::Recorded(_)),
            or_as_many: None,
            costs_ns: Vec::new(),
        }
    }
}

impl Recording {
    /// Services by the name of their threads, without its number, as far as recorded system calls
    /// and messages of sockets show at least ten requests. Most requests first; only the 16 names
    /// that read most are examined.
    pub fn services(&self) -> Vec<(String, Service)> {
        let name = |ix: usize| self.threads[ix].unnumbered();
        let mut reads: BTreeMap<&str, u64> = BTreeMap::new();
        for io in self.ios.iter().filter(|io| io.kind == IoKind::Read) {
            if self.is_included(io.thread as usize) {
                *reads.entry(name(io.thread as usize)).or_default() += 1;
            }
        }
        let mut names: Vec<(u64, &str)> = reads.into_iter().map(|(name, n)| (n, name)).collect();
        names.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        names.truncate(SERVICES_MOST);
        let mut services: Vec<(String, Service)> = Vec::new();
        let (ends, asked) = (Rc::new(Endpoints::of(self)), PollTimes::of(self));
        for (_, one) in names {
            let inside: Vec<bool> =
                (0..self.threads.len()).map(|ix| self.is_included(ix) && name(ix) == one).collect();
            let asking = SleepEvidence::of(self, &inside);
            let mut traffic = Traffic::at(self, &inside, Rc::clone(&ends), &asked);
            traffic.regroup(self, &asking, None);
            let served = traffic.served(self);
            let known = Requests::Recorded(traffic);
            let service = Service::of(&known, &served, &asking, None);
            if service.requests.len() >= REQUESTS_MIN {
                services.push((one.to_owned(), service));
            }
        }
        services.sort_by_key(|(name, one)| (usize::MAX - one.requests.len(), name.clone()));
        services
    }
}

/// Most names of threads that are examined, those that read most often.
const SERVICES_MOST: usize = 16;
/// An accept this long before the first request was not made for that request, ns.
const ACCEPTED_BEFORE_NS: u64 = 1_000_000;
/// Least number of connections with a single request from which they are taken to be new.
const ONCE_MIN: usize = 50;
/// With fewer requests a group is no service.
pub(crate) const REQUESTS_MIN: usize = 10;

/// The requests of a group, recorded or guessed.
pub(crate) enum Requests {
    Recorded(Traffic),
    Guessed(Guess),
}

impl Requests {
    /// The evidence for closed or open clients in these requests.
    fn evidence(&self, served: &[Vec<Request>], asking: &SleepEvidence) -> Evidence {
        let guess = match self {
            Requests::Recorded(traffic) => return traffic.evidence(served, asking),
            Requests::Guessed(guess) => guess,
        };
        let sure = |line: usize| guess.sure.get(line).is_some_and(|sure| *sure);
        let of = Evidence::of(&lines(served, sure), guess.distances_ns.clone(), asking);
        Evidence { anew: guess.is_anew(), ..of }
    }

    /// Whether guessed connections may be more than are known.
    fn may_be_more(&self) -> bool {
        let Requests::Guessed(guess) = self else { return false };
        let mut known = guess.servers.values().filter_map(|server| server.connections);
        known.any(|connections| connections.or_more)
    }

    /// The group's threads (`inside`) by the queue from which they take requests.
    pub fn pools(&self, recording: &Recording, inside: &[bool]) -> Pools {
        match self {
            Requests::Recorded(traffic) => Pools::of(recording, traffic, inside),
            Requests::Guessed(guess) => Pools::of_guess(recording, guess),
        }
    }
}

/// The requests of each connection, and whether it is certain that they came on one.
fn lines(served: &[Vec<Request>], sure: impl Fn(usize) -> bool) -> Vec<(&[Request], bool)> {
    served.iter().enumerate().map(|(line, requests)| (&requests[..], sure(line))).collect()
}

/// The recorded connections of a group.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub ends: Rc<Endpoints>,
    /// In order of the connections, then of time.
    pub connections: Vec<Connection>,
    /// Connections within the group.
    pub inner: Vec<InnerConnection>,
    /// Writes (index of transfer) of a pool of workers that end work for a request.
    pub finished: Vec<(u32, Tag)>,
}

/// A connection on which one thread of the group asks another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerConnection {
    pub client: EndpointIx,
    pub server: EndpointIx,
}

/// A client's connection and its requests; or several connections, one after the other, for which
/// the client used the same descriptor.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// The ends at the group's side.
    pub ends: Vec<EndpointIx>,
    /// Number of requests at each of `ends`.
    counts: Vec<usize>,
    /// Number of `ends` whose accept was recorded.
    accepted: usize,
    pub requests: Vec<TracedRequest>,
}

impl Connection {
    /// Whether the client connected anew for most requests: more than half as many ends as
    /// requests. Nothing then tells which request follows which answer.
    fn is_anew(&self) -> bool {
        // An older connection may have had requests before the recording began.
        let least = if self.accepted == self.ends.len() { 1 } else { 2 };
        2 * self.ends.len() > self.requests.len().max(least)
    }

    /// Appends an end with its requests.
    fn add(&mut self, end: EndpointIx, requests: &[TracedRequest], ends: &Endpoints) {
        self.ends.push(end);
        self.accepted += usize::from(ends.all[end as usize].accepted.is_some());
        self.counts.push(requests.len());
        self.requests.extend_from_slice(requests);
    }

    /// Its ends in order, each with its requests.
    fn by_end(&self) -> impl Iterator<Item = (EndpointIx, &[TracedRequest])> {
        let mut left = &self.requests[..];
        self.ends.iter().zip(&self.counts).map(move |(end, count)| {
            let (here, rest) = left.split_at(*count);
            left = rest;
            (*end, here)
        })
    }
}

/// A recorded request, with its transfers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TracedRequest {
    pub arrived_ns: u64,
    /// The first read (index into the transfers).
    pub read: u32,
    /// The last write.
    pub answer: u32,
}

impl TracedRequest {
    /// The request without its transfers, with times since the recording began.
    fn request(&self, recording: &Recording, connection: u32) -> Request {
        let (first_ns, answer) = (recording.first_ns, &recording.ios[self.answer as usize]);
        Request {
            connection,
            arrived_ns: self.arrived_ns.saturating_sub(first_ns),
            answered_ns: answer.left_ns.max(answer.entered_ns).saturating_sub(first_ns),
        }
    }
}

impl Traffic {
    /// Finds the connections of the group's threads (`inside`).
    pub fn of(recording: &Recording, inside: &[bool]) -> Traffic {
        Traffic::at(recording, inside, Rc::new(Endpoints::of(recording)), &PollTimes::of(recording))
    }

    /// Builds the connections from ends and times of polls that are known already.
    fn at(
        recording: &Recording,
        inside: &[bool],
        ends: Rc<Endpoints>,
        asked: &PollTimes,
    ) -> Traffic {
        let (connections, inner, finished) = (Vec::new(), Vec::new(), Vec::new());
        let mut traffic = Traffic { ends, connections, inner, finished };
        let listeners = traffic.listeners(recording, inside);
        let mut lines: BTreeMap<(bool, i32, FdOrSocket), usize> = BTreeMap::new();
        for end in 0..traffic.ends.all.len() as EndpointIx {
            if !traffic.is_border(recording, inside, &listeners, end) {
                traffic.inner.extend(traffic.inner_connection(recording, inside, end));
                continue;
            }
            let requests = traffic.requests_at(recording, asked, end);
            if requests.is_empty() {
                continue;
            }
            let one = &traffic.ends.all[end as usize];
            let peer = one.peer.map(|peer| &traffic.ends.all[peer as usize]);
            let key = peer.map_or((false, one.pid, one.place), |peer| (true, peer.pid, peer.place));
            let new = traffic.connections.len();
            let line = *lines.entry(key).or_insert(new);
            if line == new {
                traffic.connections.push(Connection::default());
            }
            traffic.connections[line].add(end, &requests, &traffic.ends);
        }
        traffic.mark_accepted();
        traffic
    }

    /// Finds the pools of workers among the threads `inside` to which requests are handed.
    pub fn find_workers(&mut self, recording: &Recording, inside: &[bool]) {
        self.finished = handed::finished(recording, self, inside);
    }

    /// Marks connections with a single request as accepted if they are many and have most requests:
    /// some sockets do not show their accept.
    fn mark_accepted(&mut self) {
        let all = self.requests_known();
        let once = |one: &&mut Connection| one.requests.len() == 1 && one.accepted == 0;
        let once: Vec<&mut Connection> = self.connections.iter_mut().filter(once).collect();
        if once.len() >= ONCE_MIN && 2 * once.len() > all {
            for one in once {
                one.accepted = one.ends.len();
            }
        }
    }

    /// The evidence for closed or open clients in these requests, by connection (`served`).
    fn evidence(&self, served: &[Vec<Request>], asking: &SleepEvidence) -> Evidence {
        let mut times: Vec<u64> = served.iter().flatten().map(|one| one.arrived_ns).collect();
        times.sort_unstable();
        let distances_ns = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let sure = |line: usize| !self.connections[line].is_anew();
        let of = Evidence::of(&lines(served, sure), distances_ns, asking);
        Evidence { anew: self.is_anew(), ..of }
    }

    /// Number of requests on all connections.
    pub fn requests_known(&self) -> usize {
        self.connections.iter().map(|one| one.requests.len()).sum()
    }

    /// Whether most requests came each on a connection of its own.
    fn is_anew(&self) -> bool {
        let (mut all, mut anew) = (0, 0);
        for one in &self.connections {
            all += one.requests.len();
            anew += if one.is_anew() { one.requests.len() } else { 0 };
        }
        2 * anew > all
    }

    /// Regroups the requests of closed clients that connect anew for each one; does nothing for
    /// others. Each request goes to the client that has been idle longest, of the given (`told`) or
    /// the likeliest number. Descriptors do not distinguish clients, because the kernel gives out
    /// the lowest free one. `asking`: evidence from the clients' sleep.
    pub fn regroup(
        &mut self,
        recording: &Recording,
        asking: &SleepEvidence,
        told: Option<Clients>,
    ) {
        let says = || self.evidence(&self.served(recording), asking).says().0;
        if !self.is_anew() || told.map_or_else(says, |told| told.ask) == Loop::Open {
            return;
        }
        let all = std::mem::take(&mut self.connections).into_iter();
        let (anew, mut kept): (Vec<Connection>, _) = all.partition(Connection::is_anew);
        let request = |asked: &TracedRequest| asked.request(recording, 0);
        let requests: Vec<Request> =
            anew.iter().flat_map(|one| &one.requests).map(request).collect();
        let number = told.and_then(|told| told.number);
        let likeliest = || arrivals::likeliest(requests.iter());
        let clients = number.or_else(|| asking.closed_clients()).unwrap_or_else(likeliest);
        let mut lines = ClientConnections::new(clients, number.is_some());
        let mut asked: Vec<(EndpointIx, &[TracedRequest])> =
            anew.iter().flat_map(Connection::by_end).collect();
        asked.sort_by_key(|(end, requests)| (requests[0].arrived_ns, *end));
        let first = kept.len();
        for (end, requests) in asked {
            let last = request(&requests[requests.len() - 1]);
            let times = (request(&requests[0]).arrived_ns, last.answered_ns);
            let new = kept.len() - first;
            let (at, _) = lines.assign(times, new as u32);
            if at as usize == new {
                kept.push(Connection::default());
            }
            kept[first + at as usize].add(end, requests, &self.ends);
        }
        self.connections = kept;
    }

    /// The requests by connection, ns from the first event.
    pub fn served(&self, recording: &Recording) -> Vec<Vec<Request>> {
        let requests = |(connection, one): (usize, &Connection)| {
            one.requests.iter().map(|asked| asked.request(recording, connection as u32)).collect()
        };
        self.connections.iter().enumerate().map(requests).collect()
    }

    /// Connections that were accepted for a request, at most 1 ms before it or one for each: accept
    /// (index of transfer), request.
    pub fn accepted_for(&self, recording: &Recording) -> Vec<(u32, Tag)> {
        let mut all = Vec::new();
        for (line, one) in self.connections.iter().enumerate() {
            let mut next = 0;
            for (end, requests) in one.by_end() {
                if let (Some(accept), Some(request)) =
                    (self.ends.all[end as usize].accepted, requests.first())
                {
                    let accepted_ns = recording.ios[accept as usize].left_ns;
                    let soon = accepted_ns.saturating_add(ACCEPTED_BEFORE_NS) >= request.arrived_ns;
                    if soon || one.is_anew() {
                        all.push((accept, (line as u32, next)));
                    }
                }
                next += requests.len() as u32;
            }
        }
        all
    }

    /// Threads that accept the connections that they serve, where connections are made anew for
    /// requests.
    pub fn accept_for_themselves<'a>(
        &'a self,
        recording: &'a Recording,
    ) -> impl Iterator<Item = usize> + 'a {
        let ends = self.connections.iter().filter(|one| one.is_anew()).flat_map(|one| &one.ends);
        ends.filter_map(|end| {
            let accept = self.ends.all[*end as usize].accepted?;
            let thread = recording.ios[accept as usize].thread;
            let serves = self.ends.first_transfer(recording, *end)?.thread == thread;
            serves.then_some(thread as usize)
        })
    }

    /// Whether the end is the group's side of a connection from outside.
    fn is_border(
        &self,
        recording: &Recording,
        inside: &[bool],
        listeners: &BTreeMap<Listener, i64>,
        end: EndpointIx,
    ) -> bool {
        let one = &self.ends.all[end as usize];
        let of_listener = || {
            let from = self.ends.listener(recording, end).and_then(|at| listeners.get(&at));
            from.is_none_or(|more| *more <= 0)
        };
        let outside =
            one.peer.map_or_else(of_listener, |peer| self.is_outside(recording, inside, peer));
        outside && self.serves(recording, inside, end)
    }

    /// Whether the first transfer at the end is of a thread outside the group.
    fn is_outside(&self, recording: &Recording, inside: &[bool], end: EndpointIx) -> bool {
        self.ends.first_transfer(recording, end).is_some_and(|io| !inside[io.thread as usize])
    }

    /// For each accepting descriptor: connections from the group's threads minus those from
    /// outside. It decides for connections whose client is not known.
    fn listeners(&self, recording: &Recording, inside: &[bool]) -> BTreeMap<Listener, i64> {
        let mut listeners = BTreeMap::new();
        for (end, one) in self.ends.all.iter().enumerate() {
            if let (Some(peer), Some(at)) =
                (one.peer, self.ends.listener(recording, end as EndpointIx))
            {
                let more = if self.is_outside(recording, inside, peer) { -1 } else { 1 };
                *listeners.entry(at).or_default() += more;
            }
        }
        listeners
    }

    /// The connection of which both ends are in the group, if `server` is its serving end.
    fn inner_connection(
        &self,
        recording: &Recording,
        inside: &[bool],
        server: EndpointIx,
    ) -> Option<InnerConnection> {
        let client = self.ends.all[server as usize].peer?;
        let first = self.ends.first_transfer(recording, client)?;
        let answers = |end: EndpointIx| {
            let mut moves = self.ends.all[end as usize].transfers.iter();
            moves.any(|at| recording.ios[*at as usize].kind == IoKind::Write)
        };
        let asks = !self.ends.is_served(recording, client) && inside[first.thread as usize];
        (asks && answers(server) && self.serves(recording, inside, server))
            .then_some(InnerConnection { client, server })
    }

    /// Whether a thread of the group reads requests at this end; counters that only wake threads
    /// are none.
    fn serves(&self, recording: &Recording, inside: &[bool], end: EndpointIx) -> bool {
        let one = &self.ends.all[end as usize];
        let Some(first) = self.ends.first_transfer(recording, end) else { return false };
        let serves = self.ends.is_served(recording, end);
        // An eventfd moves eight bytes at a time, a pipe that wakes its own thread one.
        let counts = !one.place.is_socket()
            && matches!(first.result, 1 | 8)
            && one.transfers.iter().all(|at| recording.ios[*at as usize].result == first.result);
        inside[first.thread as usize] && serves && (one.peer.is_some() || !counts)
    }

    /// The answered requests at an end, in order of time: reads, then at least one write.
    fn requests_at(
        &self,
        recording: &Recording,
        asked: &PollTimes,
        end: EndpointIx,
    ) -> Vec<TracedRequest> {
        let one = &self.ends.all[end as usize];
        let mut requests: Vec<TracedRequest> = Vec::new();
        let mut open: Option<TracedRequest> = None;
        let mut written = self.sent_times(recording, end).into_iter().peekable();
        for &at in &one.transfers {
            let io = &recording.ios[at as usize];
            if io.kind == IoKind::Write {
                if let Some(request) = &mut open {
                    request.answer = at;
                }
                continue;
            }
            if open.is_some_and(|request| request.answer == request.read) {
                continue;
            }
            requests.extend(open);
            let answered_ns = open.map_or(0, |open| recording.ios[open.answer as usize].entered_ns);
            // The client's writes between the last answer and this read.
            let mut sent_ns = None;
            while let Some(ns) = written.next_if(|ns| *ns <= io.left_ns) {
                if ns >= answered_ns {
                    sent_ns.get_or_insert(ns);
                }
            }
            let arrived_ns = sent_ns.unwrap_or_else(|| asked.arrival_ns(at, io)).max(answered_ns);
            open = Some(TracedRequest { arrived_ns, read: at, answer: at });
        }
        requests.extend(open.filter(|open| open.answer != open.read));
        requests
    }

    /// Times at which data came in, or else at which the other end began to write; empty if
    /// unknown.
    fn sent_times(&self, recording: &Recording, end: EndpointIx) -> Vec<u64> {
        let one = &self.ends.all[end as usize];
        if !one.ready_ns.is_empty() {
            return one.ready_ns.clone();
        }
        let Some(peer) = one.peer else { return Vec::new() };
        let moves = self.ends.all[peer as usize].transfers.iter();
        let ios = moves.map(|at| &recording.ios[*at as usize]);
        ios.filter(|io| io.kind == IoKind::Write).map(|io| io.entered_ns).collect()
    }
}
