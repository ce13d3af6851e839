//! Sections of threads whose requests were guessed from the scheduler's events.
//!
//! Scheduler events show no connections. A thread that serves one request at a time has one. Others
//! have as many as the clients' sleep shows. Without that evidence they have the larger of two
//! numbers: the clients that came before the first answer, and the requests under way at once. The
//! connection that was idle longest asks next.
//!
//! Several threads may work for a request. Each section but the first then begins because another
//! thread forked or woke this one, and that thread's section at that time is the part before.

use super::TaskMap;
use super::program::Builder;
use super::sections::{Section, merge_unowned};
use crate::recording::Recording;
use crate::requests::Request;
use crate::requests::guess::{Guess, Role, ServedRequest, Server, WokenBy};
use crate::requests::lines::ClientConnections;
use crate::thread::{Cause, Step, Wait};
use cpumax_workload::{Op, Span};
use parts::{Piece, Pieces};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod parts;

/// A request whose connection is not known yet.
struct UnassignedRequest {
    /// The first part first.
    sections: Vec<usize>,
    /// The thread of the first part.
    thread: usize,
    arrived_ns: u64,
    answered_ns: u64,
    /// Whether it woke the thread when it came.
    woke: bool,
}

impl Recording {
    /// Cuts the work of all threads in `guess` into sections. Returns these, and the requests by
    /// connection; stores the distances of arrivals and the certainty of connections in `guess`.
    /// `closed`: the number of closed clients, if known, and whether the caller gave it.
    pub(super) fn guessed_sections(
        &self,
        guess: &mut Guess,
        task_map: &TaskMap,
        closed: Option<(usize, bool)>,
    ) -> (Vec<Section>, Vec<Vec<Request>>) {
        let (mut sections, mut pieces) = (Vec::new(), Vec::new());
        for (&thread, server) in &guess.servers {
            let inside = self.threads[thread].starts_in_kernel.unwrap_or(false);
            let mut cutter = Cutter {
                recording: self,
                task_map,
                guess,
                server,
                thread,
                builder: Builder::new(false, inside, false),
                burst: 0,
                left: VecDeque::new(),
                worked_ns: 0,
                start_ns: match server.role {
                    Role::Forked { .. } => self.threads[thread].birth_ns(self.first_ns),
                    _ => self.first_ns,
                },
                answer_at: None,
                asked_ns: None,
                begins: false,
                sections: std::mem::take(&mut sections),
                pieces: std::mem::take(&mut pieces),
            };
            cutter.begin_burst();
            self.threads[thread].steps.iter().for_each(|step| cutter.add_step(step));
            let last = cutter.left.pop_front();
            cutter.close_section(self.last_ns, self.last_ns, last);
            (sections, pieces) = (cutter.sections, cutter.pieces);
        }
        let mut loose = Pieces::of(guess, &sections, &pieces).requests();
        loose.sort_by_key(|request| (request.arrived_ns, request.thread));
        chain_sections(&loose, &mut sections);
        let woke = loose.windows(2).filter(|pair| pair[0].woke && pair[1].woke);
        guess.distances_ns = woke.map(|pair| pair[1].arrived_ns - pair[0].arrived_ns).collect();
        let served = self.assign_connections(guess, task_map, closed, &loose, &mut sections);
        let mut by_thread: BTreeMap<usize, Vec<Section>> = BTreeMap::new();
        for section in sections {
            by_thread.entry(section.thread).or_default().push(section);
        }
        (by_thread.into_values().flat_map(merge_unowned).collect(), served)
    }

    /// Gives each request a connection of its pool, the one idle longest, and notes it in the
    /// sections and in `guess.sure`; returns the requests by connection. A request of a busy
    /// connection arrives when that is free. `closed`: the number of closed clients, if known, and
    /// whether the caller gave it.
    fn assign_connections(
        &self,
        guess: &mut Guess,
        task_map: &TaskMap,
        closed: Option<(usize, bool)>,
        loose: &[UnassignedRequest],
        sections: &mut [Section],
    ) -> Vec<Vec<Request>> {
        let mut served: Vec<Vec<Request>> = Vec::new();
        let clients = clients_at_start(guess, task_map);
        let pools: BTreeSet<u32> = guess
            .servers
            .iter()
            .filter(|(thread, server)| server.role.is_asked() && !task_map.serves_one[**thread])
            .map(|(thread, _)| task_map.inboxes[*thread].unwrap_or_default())
            .collect();
        // The clients' sleep does not tell how many clients ask each of several pools. A given
        // number is spread evenly.
        let told = closed.filter(|(_, is_told)| *is_told);
        let told = told.map(|(number, _)| number.div_ceil(pools.len().max(1)));
        let asleep = closed.map(|(number, _)| number).filter(|_| pools.len() == 1);
        let mut lines: BTreeMap<(u32, usize), ClientConnections> = BTreeMap::new();
        for request in loose {
            let single = task_map.serves_one[request.thread];
            let key = (
                task_map.inboxes[request.thread].unwrap_or_default(),
                if single { request.thread + 1 } else { 0 },
            );
            let lines = lines.entry(key).or_insert_with(|| {
                let connections =
                    guess.servers.get(&request.thread).and_then(|server| server.connections);
                let connections = connections.map(|connections| connections.clients);
                let (known, sure) = match told.or(connections).or(asleep) {
                    _ if single => (1, true),
                    Some(clients) => (clients, true),
                    None => (clients.get(&key.0).copied().unwrap_or(0), false),
                };
                ClientConnections::new(known, sure)
            });
            let times = (request.arrived_ns, request.answered_ns);
            let (connection, free_ns) = lines.assign(times, served.len() as u32);
            if connection as usize == served.len() {
                served.push(Vec::new());
            }
            let arrived_ns = request.arrived_ns.max(free_ns).min(request.answered_ns);
            guess.sure.resize(served.len(), single);
            let number = served[connection as usize].len() as u32;
            for section in &request.sections {
                sections[*section].request = Some((connection, number));
            }
            served[connection as usize].push(Request {
                connection,
                arrived_ns: arrived_ns.saturating_sub(self.first_ns),
                answered_ns: request.answered_ns.saturating_sub(self.first_ns),
            });
        }
        served
    }
}

/// Cuts the work of one thread into sections, one for each request and one for other work.
struct Cutter<'a> {
    recording: &'a Recording,
    task_map: &'a TaskMap,
    guess: &'a Guess,
    server: &'a Server,
    thread: usize,
    builder: Builder,
    /// The burst under way, and its requests that are still to end.
    burst: usize,
    left: VecDeque<ServedRequest>,
    /// Work done in the burst, ns.
    worked_ns: u64,
    /// When the section begins.
    start_ns: u64,
    /// Index into the section's instructions behind the answer.
    answer_at: Option<usize>,
    /// When a request came that has not been answered yet.
    asked_ns: Option<u64>,
    /// Whether the section begins with the burst.
    begins: bool,
    sections: Vec<Section>,
    /// Information on each section.
    pieces: Vec<Piece>,
}

impl Cutter<'_> {
    /// The kind of thread that woke this one at the beginning of the burst.
    fn woken(&self) -> WokenBy {
        self.server.bursts.get(self.burst).map_or(WokenBy::Otherwise, |burst| burst.woken)
    }

    /// Looks up the requests of the burst that begins, and counts its work from 0.
    fn begin_burst(&mut self) {
        let burst = self.server.bursts.get(self.burst);
        self.left = burst
            .map(|burst| self.guess.served_requests(self.server, burst).into())
            .unwrap_or_default();
        self.worked_ns = 0;
        self.begins = true;
    }

    /// Adds a step of the thread: run time, system calls, messages to threads that it wakes, and
    /// waits. Forks and transfers add nothing here.
    fn add_step(&mut self, step: Step) {
        match step {
            Step::Run(ns) => self.add_run(ns),
            Step::SysEnter => self.builder.enter_kernel(),
            Step::SysExit => self.builder.exit_kernel(),
            Step::Wake(edge) => {
                if let Some(channel) = self.recording.message_channel(edge, self.task_map) {
                    self.builder.push_op(Op::Send { channel, n: 1 });
                }
            }
            Step::Fork(_) | Step::Io(_) => {}
            Step::Wait(wait) => {
                self.add_wait(self.recording.threads[self.thread].waits[wait as usize]);
            }
        }
    }

    /// Adds CPU time, split where the burst has done a request's work: there the section ends, or
    /// the answer is sent.
    fn add_run(&mut self, mut ns: u64) {
        while let Some(&served) = self.left.front() {
            let answer_work = served.answer_work.filter(|_| self.answer_at.is_none());
            let until_work = answer_work.unwrap_or(served.until_work).min(served.until_work);
            if self.worked_ns.saturating_add(ns) <= until_work {
                break;
            }
            let part_ns = until_work.saturating_sub(self.worked_ns);
            self.builder.add_run(part_ns);
            (ns, self.worked_ns) = (ns - part_ns, self.worked_ns + part_ns);
            if answer_work.is_some() {
                self.answer_at = Some(self.builder.flushed_len());
            } else {
                self.left.pop_front();
                self.close_section(served.answered_ns, served.answered_ns, Some(served));
            }
        }
        self.builder.add_run(ns);
        self.worked_ns = self.worked_ns.saturating_add(ns);
    }

    /// Ends the section at a wait, and begins the next burst; in the middle of a request the wait
    /// becomes a sleep. Waits of a forked process never end its section.
    fn add_wait(&mut self, wait: Wait) {
        if let Role::Forked { .. } = self.server.role {
            if !self.is_for_server(&wait) {
                self.add_sleep(&wait);
            }
            return;
        }
        let served = self.left.pop_front();
        if served.is_none() && self.woken() == WokenBy::Outside && !self.server.asks {
            self.asked_ns.get_or_insert(self.start_ns);
        }
        let next = self.server.bursts.get(self.burst + 1).map(|burst| burst.woken);
        // Asked, not answered, and not asked again: the thread waits for something else.
        if served.is_none() && self.asked_ns.is_some() && next == Some(WokenBy::Otherwise) {
            self.burst += 1;
            self.add_sleep(&wait);
        } else {
            self.close_section(wait.start_ns, wait.end_ns, served);
            self.burst += 1;
        }
        self.begin_burst();
    }

    /// Adds the wait as a sleep of its recorded length.
    fn add_sleep(&mut self, wait: &Wait) {
        let ns = wait.end_ns.saturating_sub(wait.start_ns);
        self.builder.push_op(Op::Sleep(Span::Fixed(ns.max(1))));
    }

    /// Whether another serving thread ended the wait: it was for a lock, or for the CPU.
    fn is_for_server(&self, wait: &Wait) -> bool {
        let Cause::Thread { edge } = wait.cause else { return false };
        self.guess.servers.contains_key(&(self.recording.edges[edge as usize].waker as usize))
    }

    /// Ends a section at `end_ns` with the request served in it, if any, and stores it with what
    /// its burst tells; the next one begins at `next_ns`. Both are on the clock of the recording.
    fn close_section(&mut self, end_ns: u64, next_ns: u64, served: Option<ServedRequest>) {
        let (ops, work_ns) = self.builder.take_ops();
        let burst = self.server.bursts.get(self.burst);
        let began = burst.filter(|_| std::mem::take(&mut self.begins));
        self.pieces.push(Piece {
            asked: began.is_some_and(|burst| burst.woken == WokenBy::Outside),
            by: began.and_then(|burst| burst.by),
            burst_ns: burst.map_or(self.start_ns, |burst| burst.start_ns),
            arrived_ns: match served {
                Some(served) => self.asked_ns.take().unwrap_or(served.arrived_ns),
                None => self.start_ns,
            },
            answered_ns: served.map(|served| served.answered_ns),
            woke: served.is_none_or(|served| served.arrived_ns == self.start_ns),
        });
        self.sections.push(Section {
            thread: self.thread,
            request: None,
            ops,
            work_ns,
            start_ns: self.start_ns,
            end_ns,
            answer_at: self.answer_at.take(),
            called: false,
            by: None,
            call: None,
        });
        self.start_ns = next_ns;
    }
}

/// Makes each part of a request but the first begin when the part before asks for it, and not
/// before that part's end.
fn chain_sections(loose: &[UnassignedRequest], sections: &mut [Section]) {
    for request in loose {
        for pair in request.sections.windows(2) {
            let end_ns = sections[pair[0]].end_ns;
            let next = &mut sections[pair[1]];
            next.start_ns = next.start_ns.max(end_ns);
            next.called = true;
        }
    }
}

/// Wakeups by clients of each pool's threads before the first burst that answers there, by the
/// pool's channel.
fn clients_at_start(guess: &Guess, task_map: &TaskMap) -> BTreeMap<u32, usize> {
    let bursts = || {
        let asked = guess.servers.iter().filter(|(_, server)| server.role.is_asked());
        asked.flat_map(|(ix, server)| {
            let pool = task_map.inboxes[*ix].unwrap_or_default();
            server.bursts.iter().map(move |burst| (pool, burst))
        })
    };
    let mut first_ns: BTreeMap<u32, u64> = BTreeMap::new();
    for (pool, burst) in bursts().filter(|(_, burst)| !burst.marks.is_empty()) {
        let first_ns = first_ns.entry(pool).or_insert(u64::MAX);
        *first_ns = burst.start_ns.min(*first_ns);
    }
    let mut clients: BTreeMap<u32, usize> = BTreeMap::new();
    for (pool, burst) in bursts().filter(|(_, burst)| burst.woken == WokenBy::Outside) {
        let before = first_ns.get(&pool).is_some_and(|first_ns| burst.start_ns < *first_ns);
        *clients.entry(pool).or_default() += usize::from(before);
    }
    clients
}
