//! Cuts the work of a serving thread into sections, each of which belongs to one request.
//!
//! A section begins where the thread is woken, or has read the next request. It ends where the
//! thread waits for something new, or has read another request. A wait in the middle of a request,
//! with nothing else served meanwhile, is part of the section. So is a call that holds the thread:
//! the section takes the answer from a channel. Work that belongs to no request is added to the
//! thread's next section.

use super::TaskMap;
use super::program::Builder;
use crate::classify::Plan;
use crate::recording::Recording;
use crate::requests::tags::{Held, Tag, Tags};
use crate::requests::{Request, Traffic};
use crate::syscalls::IoKind;
use crate::thread::{Birth, Cause, Step, Wait};
use cpumax_workload::{ChannelIx, Op, Span};

/// A piece of a thread's work.
#[derive(Debug)]
pub(super) struct Section {
    pub thread: usize,
    /// `None`: it belongs to no request.
    pub request: Option<Tag>,
    pub ops: Vec<Op>,
    pub work_ns: u64,
    /// On the clock of the recording.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Index into `ops` behind the answer.
    pub answer_at: Option<usize>,
    /// Whether another thread of the group asked for it, or answered: it begins as soon as that one
    /// has.
    pub called: bool,
    /// The last such thread, if it is known.
    pub by: Option<usize>,
    /// The call that begins it, and holds the thread that makes it.
    pub call: Option<u32>,
}

/// Stands for the channel of a post that makes a call; its job is the number of the call.
pub(super) const CALLS: ChannelIx = ChannelIx::MAX;

/// The end of a wait of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// It polls, or another thread of the group asks or answers.
    Request,
    /// The answer to a call that holds it.
    Answer,
    Anything,
}

struct Cutter<'a> {
    recording: &'a Recording,
    task_map: &'a TaskMap,
    tags: &'a Tags,
    ix: usize,
    builder: Builder,
    request: Option<Tag>,
    start_ns: u64,
    answer_at: Option<usize>,
    called: bool,
    by: Option<u32>,
    call: Option<u32>,
    /// Whether the system call under way sends an answer.
    answers: bool,
    /// When it began, ns, if it ends a worker's part of a request.
    finished_ns: Option<u64>,
    done: Vec<Section>,
}

impl Recording {
    /// The sections of all threads that have an inbox, cut by recorded requests; by thread, then
    /// time.
    pub(super) fn recorded_sections(
        &self,
        traffic: &Traffic,
        plans: &[(usize, Vec<Plan>)],
        task_map: &TaskMap,
    ) -> Vec<Section> {
        let tags = Tags::of(self, traffic);
        let serving = plans.iter().map(|(ix, _)| *ix).filter(|ix| task_map.inboxes[*ix].is_some());
        serving.flat_map(|ix| self.sections(ix, task_map, &tags)).collect()
    }

    /// Cuts the steps of a thread into sections, each of one request or of other work, in order of
    /// time. The first begins at the birth of the thread or of the recording.
    fn sections(&self, ix: usize, task_map: &TaskMap, tags: &Tags) -> Vec<Section> {
        let thread = &self.threads[ix];
        let mut cutter = Cutter {
            recording: self,
            task_map,
            tags,
            ix,
            builder: Builder::new(false, thread.starts_in_kernel.unwrap_or(false), false),
            request: None,
            start_ns: match thread.birth {
                Birth::Forked { at_ns, .. } => self.first_ns.saturating_add(at_ns),
                Birth::Present { .. } => self.first_ns,
            },
            answer_at: None,
            called: false,
            by: None,
            call: None,
            answers: false,
            finished_ns: None,
            done: Vec::new(),
        };
        let next = cutter.next_requests();
        for (step, next) in thread.steps.iter().zip(next) {
            cutter.add_step(step, next);
        }
        cutter.close_section(self.last_ns, self.last_ns);
        merge_unowned(cutter.done)
    }
}

impl Cutter<'_> {
    /// For each step: the thread's next request, and what a wait here is for.
    fn next_requests(&self) -> Vec<(Option<Tag>, WaitsFor)> {
        let thread = &self.recording.threads[self.ix];
        let (mut tag, mut polls, mut told) = (None, false, WaitsFor::Anything);
        let mut next = vec![(None, told); thread.steps.len()];
        for (at, step) in thread.steps.iter().enumerate().rev() {
            let polls_for_any = polls && !self.task_map.serves_one[self.ix];
            next[at] = (tag, if polls_for_any { WaitsFor::Request } else { told });
            match step {
                Step::Io(io) => {
                    if let Some(next) = self.tags.request(io) {
                        tag = Some(next);
                        told = match (self.tags.called_by(io), self.tags.held(io)) {
                            (_, Some(Held::Goes(_))) => WaitsFor::Answer,
                            (Some(_), _) => WaitsFor::Request,
                            (None, _) => WaitsFor::Anything,
                        };
                    }
                    polls = self.recording.ios[io as usize].kind == IoKind::Poll;
                }
                Step::Wait(_) => polls = false,
                _ => {}
            }
        }
        next
    }

    /// Adds a step. `next`: the next request, and what a wait here is for. Waits in the middle of a
    /// request that are for no other request stay part of it, as sleeps unless the answer to a call
    /// ends them; all others end the section.
    fn add_step(&mut self, step: Step, (next, waits_for): (Option<Tag>, WaitsFor)) {
        match step {
            Step::Run(ns) => self.builder.add_run(ns),
            Step::SysEnter => self.builder.enter_kernel(),
            Step::SysExit => {
                self.builder.exit_kernel();
                self.end_answer();
                if let Some(finished_ns) = self.finished_ns.take() {
                    self.close_section(finished_ns, finished_ns);
                }
            }
            Step::Wake(edge) => {
                if let Some(channel) = self.recording.message_channel(edge, self.task_map) {
                    self.builder.push_op(Op::Send { channel, n: 1 });
                }
            }
            // A forked thread serves from the beginning.
            Step::Fork(_) => {}
            Step::Io(io) => {
                self.add_transfer(io);
                if self.recording.ios[io as usize].is_message() {
                    self.end_answer();
                }
            }
            Step::Wait(wait) => {
                let wait = wait as usize;
                let of = self.recording.threads[self.ix].waits[wait];
                let goes_on = self.request.is_some()
                    && self.answer_at.is_none()
                    && next == self.request
                    && waits_for != WaitsFor::Request
                    && !(self.waits_for_server(&of)
                        && self.request.is_some_and(|tag| self.tags.is_handed(tag)));
                if goes_on {
                    let op = self.wait_op(&of).filter(|_| waits_for != WaitsFor::Answer);
                    if let Some(op) = op {
                        self.builder.push_op(op);
                    }
                } else {
                    self.close_section(of.start_ns, of.end_ns);
                }
            }
        }
    }

    /// Notes the answer that the system call before has sent, if it has.
    fn end_answer(&mut self) {
        if std::mem::take(&mut self.answers) {
            self.answer_at = Some(self.builder.flushed_len());
        }
    }

    /// Notes the request of a transfer, if it has one. A section begins behind a read, or in front
    /// of a write, of another request, and behind a read after an answer or in another call. An
    /// answer is noted for the transfer's end.
    fn add_transfer(&mut self, io: u32) {
        let Some(tag) = self.tags.request(io) else { return };
        let of = &self.recording.ios[io as usize];
        let held = self.tags.held(io);
        let reads = of.kind != IoKind::Write;
        let again = self.call.is_some() && matches!(held, Some(Held::Serves(_)));
        if self.request.is_some_and(|request| request != tag)
            || reads && (self.answer_at.is_some() || again)
        {
            let at_ns = if reads { of.left_ns } else { of.entered_ns };
            self.close_section(at_ns, at_ns);
        }
        let by = self.tags.called_by(io).filter(|_| !matches!(held, Some(Held::Goes(_))));
        if self.request.is_none() {
            self.called = by.is_some() || self.tags.is_handed(tag);
        }
        if self.tags.finishes(io) {
            self.finished_ns = Some(of.entered_ns);
        }
        self.by = by.or(self.by).filter(|_| self.called);
        self.request = Some(tag);
        self.answers = !reads && self.tags.answers(io);
        let reply = |inner: u32| self.task_map.replies + inner;
        match held {
            Some(Held::Asks(job)) => self.builder.push_op(Op::Post { channel: CALLS, job }),
            Some(Held::Serves(call)) => self.call = Some(call),
            Some(Held::Answers(to)) => self.builder.push_op(Op::Send { channel: reply(to), n: 1 }),
            Some(Held::Goes(on)) => self.builder.push_op(Op::Recv { channel: reply(on), n: 1 }),
            None => {}
        }
    }

    /// The wait in the middle of a request, as long as recorded. `None` for a wait for another
    /// serving thread: that is for a lock or the CPU, whose length a limit changes.
    fn wait_op(&self, wait: &Wait) -> Option<Op> {
        let ns = wait.end_ns.saturating_sub(wait.start_ns).max(1);
        (!self.waits_for_server(wait)).then_some(Op::Sleep(Span::Fixed(ns)))
    }

    /// Whether another serving thread ends the wait.
    fn waits_for_server(&self, wait: &Wait) -> bool {
        let Cause::Thread { edge } = wait.cause else { return false };
        self.task_map.inboxes[self.recording.edges[edge as usize].waker as usize].is_some()
    }

    /// Ends a section at `end_ns` and stores it, with an answer that is due; the next one begins at
    /// `next_ns`, of no request yet. Both are on the clock of the recording.
    fn close_section(&mut self, end_ns: u64, next_ns: u64) {
        self.end_answer();
        let (ops, work_ns) = self.builder.take_ops();
        self.done.push(Section {
            thread: self.ix,
            request: self.request.take(),
            ops,
            work_ns,
            start_ns: self.start_ns,
            end_ns,
            answer_at: self.answer_at.take(),
            called: std::mem::take(&mut self.called),
            by: self.by.take().map(|by| by as usize),
            call: self.call.take(),
        });
        self.start_ns = next_ns;
    }
}

/// CPU time of each request of all connections, ns, in order of arrival.
pub(super) fn costs_ns(sections: &[Section], served: &[Vec<Request>]) -> Vec<u64> {
    let mut costs: Vec<Vec<(u64, u64)>> = served
        .iter()
        .map(|line| line.iter().map(|request| (request.arrived_ns, 0)).collect())
        .collect();
    for section in sections {
        if let Some((line, number)) = section.request {
            let (_, ns) = &mut costs[line as usize][number as usize];
            *ns = ns.saturating_add(section.work_ns);
        }
    }
    let mut costs = costs.concat();
    costs.sort_by_key(|(arrived_ns, _)| *arrived_ns);
    costs.into_iter().map(|(_, ns)| ns).collect()
}

/// Merges sections without a request with each other and into the section after them, up to four
/// times the mean work of a request or 2 ms; longer ones stay. Empty sections are left out unless a
/// call begins them.
pub(super) fn merge_unowned(sections: Vec<Section>) -> Vec<Section> {
    let owned = sections.iter().filter(|section| section.request.is_some());
    let (count, work_ns) =
        owned.fold((0, 0u64), |(n, ns), s| (n + 1, ns.saturating_add(s.work_ns)));
    let most_ns = (work_ns / u64::max(count, 1)).saturating_mul(4).max(2_000_000);
    let mut kept: Vec<Section> = Vec::new();
    let mut before: Option<Section> = None;
    for mut section in sections {
        if section.request.is_none() {
            match &mut before {
                Some(before) if before.work_ns.saturating_add(section.work_ns) <= most_ns => {
                    before.ops.append(&mut section.ops);
                    before.work_ns = before.work_ns.saturating_add(section.work_ns);
                }
                _ => kept.extend(before.replace(section)),
            }
            continue;
        }
        if let Some(mut before) = before.take() {
            if before.work_ns <= most_ns {
                section.answer_at = section.answer_at.map(|at| at + before.ops.len());
                before.ops.append(&mut section.ops);
                section.ops = before.ops;
                section.work_ns = section.work_ns.saturating_add(before.work_ns);
            } else {
                kept.push(before);
            }
        }
        kept.push(section);
    }
    kept.extend(before);
    kept.retain(|section| !section.ops.is_empty() || section.call.is_some());
    kept
}
