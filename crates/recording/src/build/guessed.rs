//! Sections of threads whose requests were guessed from the scheduler's events.
//!
//! Connections are not in such a recording. A thread that serves one request at a time has one;
//! others have as many as there were clients that came before the first answer, or requests under
//! way at once, whichever is more. Of those the one that was idle for longest asks next.

use super::Places;
use super::program::Builder;
use super::sections::{Section, carry};
use crate::recording::Recording;
use crate::requests::Request;
use crate::requests::guess::{Burst, Guess, Served, Woken};
use crate::thread::Step;
use cpumax_workload::{Op, Span};
use std::collections::{BTreeMap, VecDeque};

/// A request whose connection is not known yet.
struct Loose {
    section: usize,
    thread: usize,
    arrived_ns: u64,
    answered_ns: u64,
    /// It woke the thread when it came.
    woke: bool,
}

/// Connections of a pool.
#[derive(Default)]
struct Lines {
    /// Numbers of those that wait for nothing, with the time since when; longest first.
    free: VecDeque<(u64, u32)>,
    busy: Vec<(u64, u32)>,
    made: usize,
    known: usize,
    /// There is one, whatever is seen.
    single: bool,
}

impl Recording {
    /// The sections of all threads that answer, and the requests by connection.
    pub(super) fn guessed(
        &self,
        guess: &mut Guess,
        places: &Places,
    ) -> (Vec<Section>, Vec<Vec<Request>>) {
        let (mut sections, mut loose) = (Vec::new(), Vec::new());
        for ix in guess.servers.keys() {
            self.cut_bursts(*ix, guess, places, &mut sections, &mut loose);
        }
        loose.sort_by_key(|request| (request.arrived_ns, request.thread));
        let woke = loose.windows(2).filter(|pair| pair[0].woke && pair[1].woke);
        guess.distances_ns = woke.map(|pair| pair[1].arrived_ns - pair[0].arrived_ns).collect();
        let mut served: Vec<Vec<Request>> = Vec::new();
        let mut lines: BTreeMap<(u32, usize), Lines> = BTreeMap::new();
        for request in &loose {
            let single = places.serves_one[request.thread];
            let key = (
                places.inboxes[request.thread].unwrap_or_default(),
                if single { request.thread + 1 } else { 0 },
            );
            let lines = lines.entry(key).or_insert_with(|| Lines {
                known: if single { 1 } else { clients_at_start(guess, places, key.0) },
                single,
                ..Lines::default()
            });
            let connection = lines.take(request, &mut served);
            guess.sure.resize(served.len(), single);
            sections[request.section].request =
                Some((connection, served[connection as usize].len() as u32));
            served[connection as usize].push(Request {
                connection,
                arrived_ns: request.arrived_ns.saturating_sub(self.first_ns),
                answered_ns: request.answered_ns.saturating_sub(self.first_ns),
            });
        }
        let mut by_thread: BTreeMap<usize, Vec<Section>> = BTreeMap::new();
        for section in sections {
            by_thread.entry(section.thread).or_default().push(section);
        }
        (by_thread.into_values().flat_map(carry).collect(), served)
    }

    fn cut_bursts(
        &self,
        ix: usize,
        guess: &Guess,
        places: &Places,
        sections: &mut Vec<Section>,
        loose: &mut Vec<Loose>,
    ) {
        let thread = &self.threads[ix];
        let server = &guess.servers[&ix];
        let mut builder = Builder::new(false, thread.starts_in_kernel.unwrap_or(false), false);
        let mut bursts = server.bursts.iter();
        let mut burst = bursts.next();
        let mut left: VecDeque<Served> = VecDeque::new();
        let mut asked_ns: Option<u64> = None;
        let mut worked_ns = 0;
        let mut start_ns = self.first_ns;
        if let Some(burst) = burst {
            left.extend(guess.served(server, burst));
        }
        let mut close = |builder: &mut Builder,
                         start_ns,
                         end_ns,
                         served: Option<Served>,
                         asked_ns: &mut Option<u64>| {
            let (ops, work_ns) = builder.cut();
            if let Some(served) = served {
                loose.push(Loose {
                    section: sections.len(),
                    thread: ix,
                    arrived_ns: asked_ns.take().unwrap_or(served.arrived_ns),
                    answered_ns: served.answered_ns,
                    woke: served.arrived_ns == start_ns,
                });
            }
            sections.push(Section {
                thread: ix,
                request: None,
                ops,
                work_ns,
                start_ns,
                end_ns,
                answer_at: None,
            });
        };
        for step in &thread.steps {
            match *step {
                Step::Run(mut ns) => {
                    while let Some(served) = left.front().copied()
                        && worked_ns + ns > served.until_work
                    {
                        let part_ns = served.until_work.saturating_sub(worked_ns);
                        builder.run(part_ns);
                        (ns, worked_ns) = (ns - part_ns, worked_ns + part_ns);
                        left.pop_front();
                        close(
                            &mut builder,
                            start_ns,
                            served.answered_ns,
                            Some(served),
                            &mut asked_ns,
                        );
                        start_ns = served.answered_ns;
                    }
                    builder.run(ns);
                    worked_ns += ns;
                }
                Step::SysEnter => builder.enter(),
                Step::SysExit => builder.exit(),
                Step::Wake(edge) => {
                    if let Some(channel) = self.is_message(edge, places) {
                        builder.act(Op::Send { channel, n: 1 });
                    }
                }
                Step::Fork(_) | Step::Io(_) => {}
                Step::Wait(wait) => {
                    let wait = &thread.waits[wait as usize];
                    let served = left.pop_front();
                    let before = burst.map_or(Woken::Otherwise, |burst| burst.woken);
                    burst = bursts.next();
                    let next = burst.map_or(Woken::Otherwise, |burst| burst.woken);
                    // Asked, not answered, and not asked again: it waits for something else.
                    if served.is_none() && before == Woken::Outside {
                        asked_ns.get_or_insert(start_ns);
                    }
                    if served.is_none() && asked_ns.is_some() && next == Woken::Otherwise {
                        let ns = wait.end_ns - wait.start_ns;
                        builder.act(Op::Sleep(Span::Fixed(ns.max(1))));
                    } else {
                        close(&mut builder, start_ns, wait.start_ns, served, &mut asked_ns);
                        start_ns = wait.end_ns;
                    }
                    left.clear();
                    left.extend(burst.into_iter().flat_map(|burst| guess.served(server, burst)));
                    worked_ns = 0;
                }
            }
        }
        close(&mut builder, start_ns, self.last_ns, left.pop_front(), &mut asked_ns);
    }
}

/// How many times somebody from outside woke a thread of the pool before any was answered.
fn clients_at_start(guess: &Guess, places: &Places, pool: u32) -> usize {
    let of_pool = guess.servers.iter().filter(|(ix, _)| places.inboxes[**ix] == Some(pool));
    let servers: Vec<_> = of_pool.map(|(_, server)| server).collect();
    let answers = |burst: &&Burst| !burst.marks.is_empty();
    let bursts = || servers.iter().flat_map(|server| &server.bursts);
    let first_ns = bursts().filter(answers).map(|burst| burst.start_ns).min().unwrap_or(0);
    bursts().filter(|burst| burst.woken == Woken::Outside && burst.start_ns < first_ns).count()
}

impl Lines {
    /// The connection of a request.
    fn take(&mut self, request: &Loose, served: &mut Vec<Vec<Request>>) -> u32 {
        let now_ns = request.arrived_ns;
        self.busy.sort_unstable();
        let done = self.busy.partition_point(|(answered_ns, _)| *answered_ns <= now_ns);
        self.free.extend(self.busy.drain(..done));
        if self.single && self.free.is_empty() {
            self.free.extend(self.busy.pop());
        }
        let number = match self.free.front().copied() {
            Some((_, number)) if self.made >= self.known => {
                self.free.pop_front();
                number
            }
            _ => {
                self.made += 1;
                served.push(Vec::new());
                served.len() as u32 - 1
            }
        };
        self.busy.push((request.answered_ns, number));
        number
    }
}
