//! Finds the sections that are parts of one request.

use super::super::sections::Section;
use super::UnassignedRequest;
use crate::requests::guess::{Guess, Role, Server};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most threads that a request passes through, one after the other.
const PARTS_MOST: usize = 16;

/// Information on a section.
pub(super) struct Piece {
    /// Whether a client, or a front, woke the thread when it began.
    pub asked: bool,
    /// The thread that woke it then, or forked it.
    pub by: Option<usize>,
    /// When the burst began of which it is a part.
    pub burst_ns: u64,
    pub arrived_ns: u64,
    /// When it sent an answer, or forked, if it did.
    pub answered_ns: Option<u64>,
    /// Whether its request came when it began.
    pub woke: bool,
}

/// All sections, by thread and in order of time.
pub(super) struct Pieces<'a> {
    guess: &'a Guess,
    sections: &'a [Section],
    known: &'a [Piece],
    sections_of: BTreeMap<usize, Range<usize>>,
    /// Whether a section already belongs to a request.
    taken: Vec<bool>,
    /// For each front, the first section that may be an unanswered request.
    next: BTreeMap<usize, usize>,
}

impl<'a> Pieces<'a> {
    /// Sections and what is known of each, in equal order; no section belongs to a request yet.
    pub fn of(guess: &'a Guess, sections: &'a [Section], pieces: &'a [Piece]) -> Pieces<'a> {
        let mut of: BTreeMap<usize, Range<usize>> = BTreeMap::new();
        for (at, section) in sections.iter().enumerate() {
            of.entry(section.thread).or_insert(at..at).end = at + 1;
        }
        Pieces {
            guess,
            sections,
            known: pieces,
            sections_of: of,
            taken: vec![false; sections.len()],
            next: BTreeMap::new(),
        }
    }

    /// All answered requests of clients, by time of the answer; each has the section that sent it
    /// and those that wakeups, forks or waiting fronts link to it, in order of time. A section
    /// belongs to one request only.
    pub fn requests(mut self) -> Vec<UnassignedRequest> {
        let mut answers: Vec<(u64, usize)> = Vec::new();
        for (at, piece) in self.known.iter().enumerate() {
            if let Some(answered_ns) =
                piece.answered_ns.filter(|_| self.server_of(at).role.answers())
            {
                answers.push((answered_ns, at));
                self.taken[at] = true;
            }
        }
        answers.sort_unstable();
        let mut all: Vec<Vec<usize>> =
            answers.iter().map(|(_, at)| self.linked_parts(*at)).collect();
        for parts in &mut all {
            if let (Some(first), Some(answer)) = (parts.last(), parts.first())
                && let Some(asked) = self.take_oldest(*first, *answer)
            {
                parts.push(asked);
            }
        }
        let loose = |(parts, (answered_ns, _)): (Vec<usize>, (u64, usize))| {
            let first = parts.last().copied()?;
            let piece = &self.known[first];
            Some(UnassignedRequest {
                thread: self.sections[first].thread,
                sections: parts.into_iter().rev().collect(),
                arrived_ns: piece.arrived_ns.min(answered_ns),
                answered_ns,
                woke: piece.woke,
            })
        };
        all.into_iter().zip(answers).filter_map(loose).collect()
    }

    /// The role and bursts of the thread of section `at`.
    fn server_of(&self, at: usize) -> &Server {
        &self.guess.servers[&self.sections[at].thread]
    }

    /// Follows wakeups and forks back from the section that sent the answer. Returns that section
    /// and those before it, by index, the last one in time first; at most `PARTS_MOST`. Marks the
    /// sections before it as taken, and stops at one that another request has taken.
    fn linked_parts(&mut self, answer: usize) -> Vec<usize> {
        let mut parts = vec![answer];
        let mut now = answer;
        while parts.len() < PARTS_MOST
            && let Some(before) = self.part_before(now).filter(|before| !self.taken[*before])
        {
            self.taken[before] = true;
            parts.push(before);
            now = before;
        }
        parts
    }

    /// The section whose thread woke or forked the thread of section `at`, at that moment. `None`
    /// if the waker is unknown, or the two threads are not in neighbouring tiers.
    fn part_before(&self, at: usize) -> Option<usize> {
        let (server, piece) = (self.server_of(at), &self.known[at]);
        let by = piece.by?;
        let follows = match (server.role, self.guess.servers.get(&by)?.role) {
            (Role::Forked { .. }, Role::Forks) => true,
            (Role::Answers, Role::Behind { tier }) | (Role::Behind { tier }, Role::Answers) => {
                tier == 1
            }
            (Role::Behind { tier }, Role::Behind { tier: by }) => tier.abs_diff(by) == 1,
            _ => false,
        };
        follows.then(|| self.section_at(by, piece.burst_ns)).flatten()
    }

    /// Index of the last section of a thread that covers this time, on the clock of the recording;
    /// `None` between sections.
    fn section_at(&self, thread: usize, at_ns: u64) -> Option<usize> {
        let range = self.sections_of.get(&thread)?.clone();
        let sections = &self.sections[range.clone()];
        let at = range.start + sections.partition_point(|section| section.end_ns < at_ns);
        (at < range.end && self.sections[at].start_ns <= at_ns).then_some(at)
    }

    /// The front's section that asked for `part`, where no wakeup shows it; `answer` is a section
    /// of that front. A thread behind a front that was busy when the front asked was not woken by
    /// it. It then serves the oldest unanswered request of the front that came since its burst
    /// began. Marks the section as taken.
    fn take_oldest(&mut self, part: usize, answer: usize) -> Option<usize> {
        let Role::Behind { .. } = self.server_of(part).role else { return None };
        let thread = self.sections[answer].thread;
        let range = self.sections_of.get(&thread)?.clone();
        let (from_ns, to_ns) = (self.known[part].burst_ns, self.sections[part].end_ns);
        let sections = &self.sections[range.clone()];
        let first = range.start + sections.partition_point(|section| section.end_ns < from_ns);
        let next = self.next.entry(thread).or_default();
        *next = first.max(*next);
        while *next < range.end && self.sections[*next].start_ns <= to_ns {
            let (at, piece) = (*next, &self.known[*next]);
            *next += 1;
            if piece.asked && piece.answered_ns.is_none() && !self.taken[at] {
                self.taken[at] = true;
                return Some(at);
            }
        }
        None
    }
}
