//! Requests as jobs. Each section of a serving thread is a job that a token carries; any idle
//! thread that serves the connection takes the token.
//!
//! Threads that read from the same connections are one pool with one queue. A closed client sends
//! the next request as long after the last answer as was recorded; an open one sends each at its
//! time. Open clients with one plan for all of their connections send late requests on whichever
//! becomes idle: all threads of a name then take from one queue. The same holds for threads of a
//! name that accept connections for themselves, if clients connect anew for each request. Workers
//! to which requests are handed are a pool by process and name.

use super::TaskMap;
use super::sections::{CALLS, Section};
use crate::recording::Recording;
use crate::requests::endpoints::EndpointIx;
use crate::requests::guess::{Guess, Role};
use crate::requests::tags::Tag;
use crate::requests::{Request, Traffic};
use cpumax_workload::{Arrivals, ChannelIx, ChannelSpec, JobIx, JobSpec, Op, Parts, Source, Span};
use std::collections::BTreeMap;

/// Serving threads, by pool.
pub(crate) struct Pools {
    /// By index of the thread; `None`: it does not serve.
    pub pool_of: Vec<Option<u32>>,
    pub count: u32,
    /// Whether the thread serves one connection only.
    pub alone: Vec<bool>,
    /// Whether the thread accepts connections for others to serve.
    pub accepts: Vec<bool>,
    /// Number of connections within the group.
    pub inner: u32,
}

impl Pools {
    /// Adds a channel for each pool to the workload, as the inbox of the pool's threads in
    /// `task_map`, and one for the answers on each connection within the group.
    pub(super) fn add_channels(&self, task_map: &mut TaskMap, workload: &mut Parts) {
        let first = workload.channels.len() as ChannelIx;
        let pools = (1..=self.count).map(|pool| format!("requests of pool {pool}"));
        let answers = (1..=self.inner).map(|inner| format!("answers of connection {inner}"));
        for name in pools.chain(answers) {
            workload.channels.push(ChannelSpec { name, capacity: u64::MAX, oldest_first: true });
        }
        task_map.replies = first + self.count;
        task_map.inboxes = self.pool_of.iter().map(|pool| Some(first + pool.as_ref()?)).collect();
        task_map.serves_one.clone_from(&self.alone);
        task_map.accepts.clone_from(&self.accepts);
    }

    /// Pools of recorded requests: limited threads (`inside`) that transfer at one end of a
    /// connection share one, as do threads of a name that accept for themselves. Tells for each
    /// thread whether it serves one connection only, or just accepts.
    pub fn of(recording: &Recording, traffic: &Traffic, inside: &[bool]) -> Pools {
        let threads = recording.threads.len();
        let mut root: Vec<usize> = (0..threads).collect();
        let mut serves: Vec<Option<u32>> = vec![None; threads];
        let mut alone = vec![true; threads];
        let mut first: BTreeMap<EndpointIx, usize> = BTreeMap::new();
        let mut accepts = vec![false; threads];
        for (accept, _) in traffic.accepted_for(recording) {
            let thread = recording.ios[accept as usize].thread as usize;
            if inside.get(thread) == Some(&true) {
                accepts[thread] = true;
            }
        }
        let lines = traffic.connections.iter().map(|one| &one.ends[..]);
        let inner = traffic.inner.iter().map(|inner| std::slice::from_ref(&inner.server));
        let ends = lines
            .chain(inner)
            .zip(0_u32..)
            .flat_map(|(ends, line)| ends.iter().map(move |end| (line, *end)));
        for (line, end) in ends {
            let one = &traffic.ends.all[end as usize];
            for at in &one.transfers {
                let thread = recording.ios[*at as usize].thread as usize;
                if !inside[thread] {
                    continue;
                }
                alone[thread] &= serves[thread].is_none_or(|other| other == line);
                serves[thread] = Some(line);
                unite(&mut root, thread, *first.entry(end).or_insert(thread));
            }
        }
        // Any idle one of the threads that accept for themselves takes the next connection.
        let mut accepting: BTreeMap<&str, usize> = BTreeMap::new();
        for thread in traffic.accept_for_themselves(recording) {
            let name = recording.threads[thread].unnumbered();
            unite(&mut root, thread, *accepting.entry(name).or_insert(thread));
        }
        let mut workers: BTreeMap<(i32, &str), usize> = BTreeMap::new();
        let mut hands_on = vec![false; threads];
        for (io, _) in &traffic.finished {
            let thread = recording.ios[*io as usize].thread as usize;
            let of = &recording.threads[thread];
            let first = *workers.entry((of.process(), of.unnumbered())).or_insert(thread);
            unite(&mut root, thread, first);
            (hands_on[thread], alone[thread]) = (true, false);
        }
        let mut numbers: BTreeMap<usize, u32> = BTreeMap::new();
        let of = (0..threads).map(|thread| {
            (serves[thread].is_some() || accepts[thread] || hands_on[thread]).then_some(())?;
            let next = numbers.len() as u32;
            Some(*numbers.entry(find_root(&mut root, thread)).or_insert(next))
        });
        let of = of.collect();
        for (thread, accepts) in accepts.iter_mut().enumerate() {
            *accepts &= serves[thread].is_none();
            alone[thread] &= !*accepts;
        }
        let inner = traffic.inner.len() as u32;
        Pools { pool_of: of, count: numbers.len() as u32, alone, accepts, inner }
    }

    /// Pools of guessed requests. Threads that clients wake directly have a pool each, unless they
    /// share connections. Other threads that clients ask share the pool of their process, threads
    /// behind a front that of their name, and forked processes that of their parent.
    pub fn of_guess(recording: &Recording, guess: &Guess) -> Pools {
        let mut of = vec![None; recording.threads.len()];
        let mut alone = vec![false; recording.threads.len()];
        let mut accepts = vec![false; recording.threads.len()];
        let mut numbers: BTreeMap<(u32, i32), u32> = BTreeMap::new();
        let mut named: BTreeMap<&str, i32> = BTreeMap::new();
        for (&ix, server) in &guess.servers {
            let thread = &recording.threads[ix];
            let first = *named.entry(thread.unnumbered()).or_insert(thread.tid);
            let key = match server.role {
                Role::Forked { parent } => (0, parent as i32),
                Role::Forks => (1, thread.tid),
                Role::Answers if server.shares => (1, first),
                Role::Answers if server.is_direct() => (1, thread.tid),
                Role::Answers => (2, thread.process()),
                Role::Behind { tier } => (2 + tier, first),
            };
            let next = numbers.len() as u32;
            of[ix] = Some(*numbers.entry(key).or_insert(next));
            alone[ix] = server.single;
            accepts[ix] = server.role == Role::Forks;
        }
        Pools { pool_of: of, count: numbers.len() as u32, alone, accepts, inner: 0 }
    }
}

/// Joins the sets of two threads (union-find); the lower root becomes that of both.
fn unite(root: &mut [usize], one: usize, other: usize) {
    let (a, b) = (find_root(root, one), find_root(root, other));
    root[a.max(b)] = a.min(b);
}

/// The lowest thread in the set of a thread (union-find); shortens the path to it.
fn find_root(root: &mut [usize], mut at: usize) -> usize {
    while root[at] != at {
        root[at] = root[root[at]];
        at = root[at];
    }
    at
}

/// Builds the jobs of one group.
struct Assembly<'a> {
    first_ns: u64,
    served: &'a [Vec<Request>],
    task_map: &'a TaskMap,
    open: bool,
    sections: Vec<Section>,
    /// Sections of each request, in order of time.
    sections_of: BTreeMap<Tag, Vec<usize>>,
    /// Tokens from outside by channel: time, ns, and job.
    arrivals: BTreeMap<ChannelIx, Vec<(u64, JobIx)>>,
}

impl Recording {
    /// Makes all serving threads of a name take from the inbox of the first one, and those that
    /// only accept connections from another one.
    pub(super) fn share_inboxes(&self, task_map: &mut TaskMap) {
        let mut first: BTreeMap<(&str, bool), ChannelIx> = BTreeMap::new();
        let accepts = &task_map.accepts;
        for ((thread, inbox), accepts) in
            self.threads.iter().zip(&mut task_map.inboxes).zip(accepts)
        {
            if let Some(inbox) = inbox {
                let kind = (thread.unnumbered(), *accepts);
                *inbox = *first.entry(kind).or_insert(*inbox);
            }
        }
    }

    /// Adds each section as a job, and sources that bring the first job of each open request, of
    /// each closed client's first one, and of other work. Further requests of closed clients follow
    /// the answer before (`open` is false).
    pub(super) fn add_jobs(
        &self,
        served: &[Vec<Request>],
        open: bool,
        mut sections: Vec<Section>,
        task_map: &TaskMap,
        workload: &mut Parts,
    ) {
        sections.sort_by_key(|section| (section.start_ns, section.thread));
        let mut of: BTreeMap<Tag, Vec<usize>> = BTreeMap::new();
        for (at, section) in sections.iter().enumerate() {
            if let Some(tag) = section.request {
                of.entry(tag).or_default().push(at);
            }
        }
        let (first_ns, arrivals) = (self.first_ns, BTreeMap::new());
        let mut assembly =
            Assembly { first_ns, served, task_map, open, sections, sections_of: of, arrivals };
        assembly.link_sections();
        assembly.add_to(workload);
    }
}

impl Assembly<'_> {
    /// The channel from which the section's thread takes jobs.
    fn inbox(&self, section: usize) -> ChannelIx {
        self.task_map.inboxes[self.sections[section].thread].unwrap_or_default()
    }

    /// Notes a token from outside that brings the section at `at_ns` since the recording began.
    fn add_arrival(&mut self, section: usize, at_ns: u64) {
        let inbox = self.inbox(section);
        self.arrivals.entry(inbox).or_default().push((at_ns, section as JobIx));
    }

    /// Makes the sections of a request bring each other, marks its end behind the answer, and lets
    /// closed clients send the next request from there. First sections of other requests, and
    /// sections of none, get arrivals.
    fn link_sections(&mut self) {
        let mut last: Option<(Tag, usize)> = None;
        for (tag, mut sections) in std::mem::take(&mut self.sections_of) {
            // A thread that was woken for another request may begin before the section that calls
            // it.
            let root = sections.iter().position(|at| self.sections[*at].call.is_none());
            sections[..=root.unwrap_or_default()].rotate_right(1);
            // The last section of each thread so far.
            let mut of_thread: BTreeMap<usize, usize> = BTreeMap::new();
            for pair in sections.windows(2) {
                // The caller of several sections begins each of them. A section without a caller
                // follows the one before it.
                let (before, next) = (pair[0], pair[1]);
                of_thread.insert(self.sections[before].thread, before);
                if self.sections[next].call.is_some() {
                    continue;
                }
                let caller = self.sections[next].by.and_then(|thread| of_thread.get(&thread));
                let one = caller.copied().unwrap_or(before);
                let gap_ns = self.sections[next].start_ns.saturating_sub(self.sections[one].end_ns);
                let (channel, job) = (self.inbox(next), next as JobIx);
                let op = match gap_ns {
                    0 => Op::Post { channel, job },
                    _ if self.sections[next].called => Op::Post { channel, job },
                    ns => Op::After { delay: Span::Fixed(ns), channel, job, keep: true },
                };
                self.sections[one].ops.push(op);
            }
            let (Some(&first), Some(&end)) = (sections.first(), sections.last()) else { continue };
            let requests = &self.served[tag.0 as usize];
            let arrived_ns = requests[tag.1 as usize].arrived_ns;
            match last.filter(|(before, _)| before.0 == tag.0 && !self.open) {
                None => self.add_arrival(first, arrived_ns),
                Some((before, answer)) => {
                    let answered_ns = requests[before.1 as usize].answered_ns;
                    let delay = Span::Fixed(arrived_ns.saturating_sub(answered_ns).max(1));
                    let (channel, job) = (self.inbox(first), first as JobIx);
                    self.insert_at_answer(answer, Op::After { delay, channel, job, keep: false });
                }
            }
            let answer = sections.iter().rfind(|at| self.sections[**at].answer_at.is_some());
            let answer = *answer.unwrap_or(&end);
            self.insert_at_answer(answer, Op::Done);
            last = Some((tag, answer));
        }
        for at in 0..self.sections.len() {
            if self.sections[at].request.is_none() {
                let at_ns = self.sections[at].start_ns.saturating_sub(self.first_ns);
                self.add_arrival(at, at_ns);
            }
        }
    }

    /// Inserts an instruction behind the section's answer, else at its end, after those that were
    /// inserted before.
    fn insert_at_answer(&mut self, section: usize, op: Op) {
        let section = &mut self.sections[section];
        let at = section.answer_at.unwrap_or(section.ops.len());
        section.ops.insert(at, op);
        section.answer_at = Some(at + 1);
    }

    /// Adds each section as a job with its index, and the tokens as one source for each channel, in
    /// order of time. Calls post the section that they begin.
    fn add_to(mut self, workload: &mut Parts) {
        let calls = (0..self.sections.len())
            .filter_map(|at| Some((self.sections[at].call?, (self.inbox(at), at as JobIx))));
        let calls: BTreeMap<u32, (ChannelIx, JobIx)> = calls.collect();
        for op in self.sections.iter_mut().flat_map(|section| &mut section.ops) {
            if let Op::Post { channel: to @ CALLS, job } = op
                && let Some((channel, begun)) = calls.get(job)
            {
                (*to, *job) = (*channel, *begun);
            }
        }
        for (at, section) in self.sections.into_iter().enumerate() {
            let name = match section.request {
                Some((connection, number)) => format!("request {connection}.{number} ({at})"),
                None => format!("other work ({at})"),
            };
            workload.jobs.push(JobSpec { name, program: section.ops.into() });
        }
        for (channel, mut tokens) in self.arrivals {
            tokens.sort_unstable();
            let (times, jobs) = tokens.into_iter().unzip();
            workload.sources.push(Source {
                name: format!("arrivals of {}", workload.channels[channel as usize].name),
                channel,
                count: u64::MAX,
                arrivals: Arrivals::At(times),
                start_ns: 0,
                jobs,
                lossy: false,
            });
        }
    }
}
