//! Ends of connections, and which two of them belong together.
//!
//! An end is a descriptor of a process or a socket. A descriptor is known by its process and
//! number, a socket by its address, from accept, connect or first use until close. Two ends are one
//! connection if most wakeups by writes into one lead to a read from the other.

use crate::recording::Recording;
use crate::syscalls::IoKind;
use crate::thread::{Birth, Cause, FdOrSocket, Io, Step};
use std::collections::BTreeMap;

/// Name of the accepting threads, without its number, and their descriptor.
pub(crate) type Listener = (String, FdOrSocket);
pub(crate) type EndpointIx = u32;

/// The use of a descriptor or a socket between being opened and closed.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// The process; 0 for a socket, which several processes may share.
    pub pid: i32,
    pub place: FdOrSocket,
    /// The accept of a client (index into the transfers), if it was recorded.
    pub accepted: Option<u32>,
    /// Whether it was connected from here.
    pub connected: bool,
    /// Reads and writes that moved data (index into the transfers), in order.
    pub transfers: Vec<u32>,
    /// Times at which data came in, where that was recorded, in order, ns.
    pub ready_ns: Vec<u64>,
    pub peer: Option<EndpointIx>,
}

/// All ends, and the end of each transfer.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    pub all: Vec<Endpoint>,
    /// By index of the transfer; `None`: it moved nothing.
    endpoint_of: Vec<Option<EndpointIx>>,
    /// By the names of the threads at an end and at its other end: ends that look like a server's,
    /// minus those that look like a client's.
    kinds: BTreeMap<(String, String), i64>,
}

/// A connection that a process accepted, while it was open. A process forked meanwhile has it, too.
struct Accepted {
    from_ns: u64,
    until_ns: u64,
    end: EndpointIx,
}

/// Parent process of each process that was forked, by process id, and when that was, ns.
fn forks(recording: &Recording) -> BTreeMap<i32, (i32, u64)> {
    let mut forks = BTreeMap::new();
    for thread in &recording.threads {
        if let Birth::Forked { parent, at_ns } = thread.birth
            && thread.process() == thread.tid
        {
            let parent = &recording.threads[parent as usize];
            let at_ns = recording.first_ns.saturating_add(at_ns);
            forks.insert(thread.tid, (parent.process(), at_ns));
        }
    }
    forks
}

impl Endpoints {
    /// Finds all ends, pairs them, and counts which kinds of threads serve.
    pub fn of(recording: &Recording) -> Endpoints {
        let mut ends =
            Endpoints { endpoint_of: vec![None; recording.ios.len()], ..Endpoints::default() };
        ends.collect_endpoints(recording);
        ends.pair_endpoints(recording);
        for end in 0..ends.all.len() as EndpointIx {
            if let Some(kind) = ends.kind(recording, end) {
                let server = ends.looks_served(recording, end);
                *ends.kinds.entry(kind).or_default() += if server { 1 } else { -1 };
            }
        }
        ends
    }

    /// Whether requests are read, and answers written, at this end. A connection older than the
    /// recording may have begun in the middle of an exchange: the others between such threads
    /// decide.
    pub fn is_served(&self, recording: &Recording, end: EndpointIx) -> bool {
        let one = &self.all[end as usize];
        let alike = || self.kinds.get(&self.kind(recording, end)?).filter(|more| **more != 0);
        let looks = self.looks_served(recording, end);
        let told = one.accepted.is_some() || one.connected;
        if told { looks } else { alike().map_or(looks, |more| *more > 0) }
    }

    /// [`Endpoints::is_served`], judged by this connection alone: who accepted, connected, or read
    /// first.
    fn looks_served(&self, recording: &Recording, end: EndpointIx) -> bool {
        let one = &self.all[end as usize];
        let reads =
            || self.first_transfer(recording, end).is_some_and(|io| io.kind == IoKind::Read);
        let connects =
            |end: Option<EndpointIx>| end.is_some_and(|end| self.all[end as usize].connected);
        !one.connected && (one.accepted.is_some() || connects(one.peer) || reads())
    }

    /// The descriptor at which a connection was accepted, and the accepting threads' name; `None`
    /// unless a system call did it.
    pub fn listener(&self, recording: &Recording, end: EndpointIx) -> Option<Listener> {
        let accept = &recording.ios[self.all[end as usize].accepted? as usize];
        let thread = recording.threads.get(accept.thread as usize)?;
        (!accept.at.is_socket()).then(|| (thread.unnumbered().to_owned(), accept.at))
    }

    /// Names of the threads at both ends, without their numbers; `None` if either is unknown.
    fn kind(&self, recording: &Recording, end: EndpointIx) -> Option<(String, String)> {
        let name = |end: EndpointIx| {
            let first = self.first_transfer(recording, end)?;
            Some(recording.threads[first.thread as usize].unnumbered().to_owned())
        };
        Some((name(end)?, name(self.all[end as usize].peer?)?))
    }

    /// The end of a transfer; `None` if that moved nothing.
    pub fn at(&self, io: u32) -> Option<EndpointIx> {
        self.endpoint_of[io as usize]
    }

    /// The first transfer at an end that moved data.
    pub fn first_transfer<'a>(&self, recording: &'a Recording, end: EndpointIx) -> Option<&'a Io> {
        let at = self.all[end as usize].transfers.first()?;
        Some(&recording.ios[*at as usize])
    }

    /// Finds all ends, and the end of each transfer that moved data, by following accepts, connects
    /// and closes in order of time. A forked process has the connections that its parent had
    /// accepted.
    fn collect_endpoints(&mut self, recording: &Recording) {
        let forks = forks(recording);
        let mut open: BTreeMap<(i32, FdOrSocket), EndpointIx> = BTreeMap::new();
        let mut accepted: BTreeMap<(i32, FdOrSocket), Vec<Accepted>> = BTreeMap::new();
        let mut ready = recording.ready.iter().peekable();
        for (at, io) in recording.ios.iter().enumerate() {
            while let Some(one) = ready.next_if(|one| one.at_ns <= io.left_ns) {
                let key = (0, FdOrSocket::socket(one.socket));
                let end = *open.entry(key).or_insert_with(|| self.add_endpoint(key, false));
                self.all[end as usize].ready_ns.push(one.at_ns);
            }
            let pid =
                if io.at.is_socket() { 0 } else { recording.threads[io.thread as usize].process() };
            let key = (pid, io.at);
            match io.kind {
                IoKind::Accept => {
                    let key = if io.at.is_socket() {
                        key
                    } else {
                        (pid, FdOrSocket::descriptor(io.result))
                    };
                    let known = open.get(&key).copied().filter(|end| self.is_new(*end));
                    let end = known.unwrap_or_else(|| self.add_endpoint(key, false));
                    self.all[end as usize].accepted = Some(at as u32);
                    open.insert(key, end);
                    let one = Accepted { from_ns: io.left_ns, until_ns: u64::MAX, end };
                    accepted.entry(key).or_default().push(one);
                }
                IoKind::Connect => {
                    let end = self.add_endpoint(key, true);
                    open.insert(key, end);
                }
                IoKind::Close => {
                    open.remove(&key);
                    if let Some(last) = accepted.get_mut(&key).and_then(|all| all.last_mut()) {
                        last.until_ns = last.until_ns.min(io.entered_ns);
                    }
                }
                IoKind::Read | IoKind::Write if io.result > 0 => {
                    let inherited = || {
                        let (parent, at_ns) = forks.get(&pid)?;
                        let all = accepted.get(&(*parent, io.at))?;
                        let next = all.partition_point(|one| one.from_ns <= *at_ns);
                        let one = &all[next.checked_sub(1)?];
                        (one.until_ns >= *at_ns).then_some(one.end)
                    };
                    let end = open.get(&key).copied().or_else(inherited);
                    let end = end.unwrap_or_else(|| self.add_endpoint(key, false));
                    open.insert(key, end);
                    self.all[end as usize].transfers.push(at as u32);
                    self.endpoint_of[at] = Some(end);
                }
                IoKind::Read | IoKind::Write | IoKind::Poll => {}
            }
        }
    }

    /// Whether the end has only been created, perhaps with data waiting: a socket is connected
    /// before it is accepted.
    fn is_new(&self, end: EndpointIx) -> bool {
        let one = &self.all[end as usize];
        one.place.is_socket() && one.transfers.is_empty() && !one.connected
    }

    /// Adds an end without transfers, and returns its index.
    fn add_endpoint(&mut self, (pid, place): (i32, FdOrSocket), connected: bool) -> EndpointIx {
        self.all.push(Endpoint {
            pid,
            place,
            accepted: None,
            connected,
            transfers: Vec::new(),
            ready_ns: Vec::new(),
            peer: None,
        });
        self.all.len() as EndpointIx - 1
    }

    /// Sets the peer of two ends where each is the other's most frequent one, with more than half
    /// of the votes of both.
    fn pair_endpoints(&mut self, recording: &Recording) {
        let votes = self.votes(recording);
        let mut best: Vec<Option<(u32, EndpointIx)>> = vec![None; self.all.len()];
        let mut all = vec![0; self.all.len()];
        for (&(a, b), &count) in &votes {
            for (one, other) in [(a, b), (b, a)] {
                all[one as usize] += count;
                let best = &mut best[one as usize];
                if best.is_none_or(|(most, _)| count > most) {
                    *best = Some((count, other));
                }
            }
        }
        for end in 0..self.all.len() {
            let Some((count, other)) = best[end] else { continue };
            let mutual = best[other as usize].is_some_and(|(_, back)| back as usize == end);
            if mutual && 2 * count > all[end] && 2 * count > all[other as usize] {
                self.all[end].peer = Some(other);
            }
        }
    }

    /// How often a write into one end woke a thread that read from the other one next, by pair in
    /// ascending order.
    fn votes(&self, recording: &Recording) -> BTreeMap<(EndpointIx, EndpointIx), u32> {
        let from = self.written_at(recording);
        let mut votes = BTreeMap::new();
        for thread in &recording.threads {
            let mut woken: Option<EndpointIx> = None;
            for step in thread.steps.iter() {
                match step {
                    Step::Wait(wait) => {
                        woken = match thread.waits[wait as usize].cause {
                            Cause::Thread { edge } => from[edge as usize],
                            _ => None,
                        };
                    }
                    Step::Io(io) => {
                        let kind = recording.ios[io as usize].kind;
                        if let Some(end) = self.at(io).filter(|_| kind == IoKind::Read)
                            && let Some(other) = woken.take()
                            && other != end
                        {
                            *votes.entry((end.min(other), end.max(other))).or_insert(0) += 1;
                        }
                    }
                    _ => {}
                }
            }
        }
        votes
    }

    /// The end that was being written into at each wakeup. A message of a socket is recorded after
    /// it was sent, so it gets the wakeups since the thread's last other step.
    fn written_at(&self, recording: &Recording) -> Vec<Option<EndpointIx>> {
        let mut from = vec![None; recording.edges.len()];
        for thread in &recording.threads {
            let mut writing = None;
            let mut woken: Vec<u32> = Vec::new();
            for step in thread.steps.iter() {
                match step {
                    Step::Io(io) => {
                        let of = &recording.ios[io as usize];
                        if of.is_message() && of.kind == IoKind::Write {
                            for &edge in &woken {
                                from[edge as usize] = self.at(io);
                            }
                        } else if of.kind == IoKind::Write {
                            writing = self.at(io);
                        }
                        woken.clear();
                    }
                    Step::SysExit | Step::SysEnter => {
                        writing = None;
                        woken.clear();
                    }
                    Step::Wait(_) => woken.clear(),
                    Step::Wake(edge) => {
                        from[edge as usize] = writing;
                        woken.push(edge);
                    }
                    _ => {}
                }
            }
        }
        from
    }
}
