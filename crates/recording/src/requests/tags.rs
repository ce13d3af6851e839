//! Which transfers belong to which request: those on its connection, and those between threads of
//! the group on its behalf.
//!
//! A thread that asks another one of its group does so for its latest request without an unanswered
//! call. If each of its requests has such a call, it makes several for one. Until the answer is
//! read, all transfers on that connection belong to that request.
//!
//! A thread that does not poll between a call and the answer waits for that answer alone: the call
//! holds it.

use super::endpoints::EndpointIx;
use super::{Connection, Traffic};
use crate::recording::Recording;
use crate::syscalls::IoKind;
use std::collections::{BTreeMap, BTreeSet};

/// A request: its connection and its index there.
pub(crate) type Tag = (u32, u32);

/// A transfer of a call that holds the asking thread until it is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// Begins this call.
    Asks(u32),
    /// Takes this call up.
    Serves(u32),
    /// Answers on this connection within the group.
    Answers(u32),
    /// Takes the answer on this connection within the group.
    Goes(u32),
}

/// Requests and callers of the transfers, by index.
pub(crate) struct Tags {
    request_of: Vec<Option<Tag>>,
    /// Whether it is the last write of an answer.
    answers: Vec<bool>,
    /// The thread of the group that wrote what it reads.
    inner: Vec<Option<u32>>,
    held: BTreeMap<u32, Held>,
    /// Writes by which workers end work for a request, and these requests.
    finishes: BTreeSet<u32>,
    handed: BTreeSet<Tag>,
}

impl Tags {
    /// Tags all transfers of the recording: those of clients' connections first, then those within
    /// the group that follow from them.
    pub fn of(recording: &Recording, traffic: &Traffic) -> Tags {
        let ios = recording.ios.len();
        let mut tags = Tags {
            request_of: vec![None; ios],
            answers: vec![false; ios],
            inner: vec![None; ios],
            held: BTreeMap::new(),
            finishes: BTreeSet::new(),
            handed: BTreeSet::new(),
        };
        for (connection, one) in traffic.connections.iter().enumerate() {
            tags.add(traffic, connection as u32, one);
        }
        for (accept, tag) in traffic.accepted_for(recording) {
            tags.request_of[accept as usize] = Some(tag);
        }
        for &(io, tag) in &traffic.finished {
            tags.request_of[io as usize] = Some(tag);
            tags.finishes.insert(io);
            tags.handed.insert(tag);
        }
        if !traffic.inner.is_empty() {
            Tagger::of(recording, traffic).tag(&mut tags);
        }
        tags
    }

    /// The request that a transfer belongs to; `None` if unknown. `io`: index in the recording.
    pub fn request(&self, io: u32) -> Option<Tag> {
        self.request_of[io as usize]
    }

    /// Whether this transfer is the write by which a worker ends work for a request.
    pub fn finishes(&self, io: u32) -> bool {
        self.finishes.contains(&io)
    }

    /// Whether the request is handed to a worker.
    pub fn is_handed(&self, tag: Tag) -> bool {
        self.handed.contains(&tag)
    }

    /// Whether this transfer is the last write of an answer to a client.
    pub fn answers(&self, io: u32) -> bool {
        self.answers[io as usize]
    }

    /// For a read on a connection within the group: the thread that wrote the data; else `None`.
    pub fn called_by(&self, io: u32) -> Option<u32> {
        self.inner[io as usize]
    }

    /// The part of the transfer in a call that holds the asking thread; `None` without one.
    pub fn held(&self, io: u32) -> Option<Held> {
        self.held.get(&io).copied()
    }

    /// Tags the transfers on a client's connection with its requests: those from the first read of
    /// a request to its answer. Marks the last write of each as an answer. `line`: index of the
    /// connection.
    fn add(&mut self, traffic: &Traffic, line: u32, one: &Connection) {
        let mut next = 0;
        for &at in one.ends.iter().flat_map(|end| &traffic.ends.all[*end as usize].transfers) {
            if one.requests.get(next).is_some_and(|request| request.read == at) {
                next += 1;
            }
            if next > 0 && at <= one.requests[next - 1].answer.max(one.requests[next - 1].read) {
                self.request_of[at as usize] = Some((line, next as u32 - 1));
            }
        }
        for request in &one.requests {
            self.answers[request.answer as usize] = true;
        }
    }
}

/// The state of a connection between threads of the group.
#[derive(Debug, Clone, Copy, Default)]
struct InnerState {
    /// The request on whose behalf it was used last, and the asking thread.
    asked: Option<(Tag, u32)>,
    /// The thread that wrote last.
    wrote: u32,
    /// Whether the answer is being written.
    answered: bool,
    /// Whether a part of the answer has been read.
    taken: bool,
    /// First transfers (index) of the call under way: that which asks, and those that take it up
    /// and answer.
    asks: u32,
    takes_up: Option<u32>,
    answers: Option<u32>,
}

/// Most requests of a thread at a time; the one touched longest ago is forgotten.
const DEALS_MOST: usize = 1024;

/// Tags the transfers within the group, in order of time.
struct Tagger<'a> {
    recording: &'a Recording,
    traffic: &'a Traffic,
    /// Connection and side (true: the server's) of each end within the group.
    ends: BTreeMap<EndpointIx, (usize, bool)>,
    lines: Vec<InnerState>,
    /// Open requests of each thread, the latest last.
    deals: BTreeMap<u32, Vec<Tag>>,
    /// Number of answered requests of each client's connection.
    answered: Vec<u32>,
    /// Calls under way by request and asking thread.
    waits: BTreeMap<(Tag, u32), u32>,
    /// When each thread last began to poll, ns.
    polled_ns: BTreeMap<u32, u64>,
}

impl<'a> Tagger<'a> {
    /// A state without open requests and calls.
    fn of(recording: &'a Recording, traffic: &'a Traffic) -> Self {
        let mut ends = BTreeMap::new();
        for (line, inner) in traffic.inner.iter().enumerate() {
            ends.insert(inner.client, (line, false));
            ends.insert(inner.server, (line, true));
        }
        let lines = vec![InnerState::default(); traffic.inner.len()];
        let answered = vec![0; traffic.connections.len()];
        let (deals, waits, polled_ns) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Tagger { recording, traffic, ends, lines, deals, answered, waits, polled_ns }
    }

    /// Tags the transfers between threads of the group: each with the request on whose behalf the
    /// connection is used, and each read also with the thread that wrote last.
    fn tag(mut self, tags: &mut Tags) {
        let mut order: Vec<(u64, u32)> = Vec::new();
        for (at, io) in self.recording.ios.iter().enumerate() {
            match io.kind {
                // Data can be read as soon as its write begins.
                IoKind::Write | IoKind::Poll => order.push((io.entered_ns, at as u32)),
                IoKind::Read | IoKind::Accept => {
                    order.push((io.left_ns.max(io.entered_ns), at as u32));
                }
                _ => {}
            }
        }
        order.sort_unstable();
        for (_, at) in order {
            let io = &self.recording.ios[at as usize];
            if io.kind == IoKind::Poll {
                self.polled_ns.insert(io.thread, io.entered_ns);
                continue;
            }
            if let Some(tag) = tags.request(at) {
                if tags.answers(at) {
                    self.answered[tag.0 as usize] = tag.1 + 1;
                }
                self.note_work(io.thread, tag);
                continue;
            }
            let Some(end) = self.traffic.ends.at(at) else { continue };
            let Some(&(line, serves)) = self.ends.get(&end) else { continue };
            let reads = io.kind == IoKind::Read;
            match (serves, reads) {
                (false, false) => self.note_call(line, at),
                (false, true) => self.note_answer_read(line, at, tags),
                (true, true) => _ = self.lines[line].takes_up.get_or_insert(at),
                (true, false) => {
                    self.lines[line].answered = true;
                    self.lines[line].answers.get_or_insert(at);
                }
            }
            let Some((tag, _)) = self.lines[line].asked else { continue };
            tags.request_of[at as usize] = Some(tag);
            if reads {
                tags.inner[at as usize] = Some(self.lines[line].wrote);
                self.note_work(io.thread, tag);
            } else {
                self.lines[line].wrote = io.thread;
            }
        }
    }

    /// Makes `tag` the latest open request of a thread. Answered requests of the thread are
    /// dropped, `tag` as well if it is answered. Beyond `DEALS_MOST` the one touched longest ago
    /// goes.
    fn note_work(&mut self, thread: u32, tag: Tag) {
        let open = |tag: &Tag| self.answered[tag.0 as usize] <= tag.1;
        let all = self.deals.entry(thread).or_default();
        all.retain(|other| *other != tag && open(other));
        all.extend(Some(tag).filter(open));
        if all.len() > DEALS_MOST {
            all.remove(0);
        }
    }

    /// Notes the write `at` to another thread of the group, on the inner connection `line`. While
    /// the last call there is unanswered, the write belongs to it. Otherwise a call begins,
    /// on behalf of the latest open request of the thread that has no call under way, or else of
    /// its latest one.
    fn note_call(&mut self, line: usize, at: u32) {
        let (of, thread) = (self.lines[line], self.recording.ios[at as usize].thread);
        if of.asked.is_some() && !of.answered {
            return;
        }
        if let Some(asked) = of.asked.filter(|_| !of.taken) {
            self.end_call(asked);
        }
        let open = |tag: &&Tag| self.answered[tag.0 as usize] <= tag.1;
        let waits = |tag: Tag| self.waits.get(&(tag, thread)).is_some_and(|times| *times > 0);
        let deals = || self.deals.get(&thread).into_iter().flatten().rev().filter(open);
        let asked = deals().find(|tag| !waits(**tag)).or_else(|| deals().next());
        let asked = asked.map(|tag| (*tag, thread));
        if let Some(asked) = asked {
            *self.waits.entry(asked).or_default() += 1;
        }
        self.lines[line] = InnerState { asked, asks: at, ..InnerState::default() };
    }

    /// The asking thread reads, by `at`, on the inner connection `line`: the first such read ends
    /// the call under way there. Later reads take the rest of the answer and change nothing.
    fn note_answer_read(&mut self, line: usize, at: u32, tags: &mut Tags) {
        if let Some(asked) = self.lines[line].asked
            && !std::mem::replace(&mut self.lines[line].taken, true)
        {
            self.end_call(asked);
            self.note_held(line, at, tags);
        }
    }

    /// Notes the transfers of the call on the inner connection `line`, whose answer is read by
    /// `at`, if that thread made the call and has not polled since.
    fn note_held(&self, line: usize, at: u32, tags: &mut Tags) {
        let InnerState { asks, takes_up: Some(takes_up), answers: Some(answers), .. } =
            self.lines[line]
        else {
            return;
        };
        let [asking, taking] = [asks, at].map(|at| &self.recording.ios[at as usize]);
        let polled_ns = self.polled_ns.get(&asking.thread).copied().unwrap_or(0);
        if asking.thread == taking.thread && polled_ns < asking.entered_ns && !taking.is_message() {
            let inner = line as u32;
            tags.held.insert(asks, Held::Asks(asks));
            tags.held.insert(takes_up, Held::Serves(asks));
            tags.held.insert(answers, Held::Answers(inner));
            tags.held.insert(at, Held::Goes(inner));
        }
    }

    /// One call fewer is under way for this request and asking thread.
    fn end_call(&mut self, asked: (Tag, u32)) {
        if let Some(times) = self.waits.get_mut(&asked) {
            *times = times.saturating_sub(1);
        }
    }
}
