//! Threads of the group that work for the same request, as forks and wakeups show.
//!
//! A thread may fork a process for each connection. It does the first part of the request, and the
//! process, in its whole life, the rest. No such process answers often enough to be recognized
//! alone, so all children of one parent are examined together.
//!
//! A front is a thread that clients ask, that asks another thread of its group, and that answers
//! when that one has woken it. The other one is behind it. Fronts are its clients: they wake it,
//! and it answers where it wakes them. Further threads may be behind it.

use super::guess::{Burst, Role, Server, UNSEEN_ONE_IN, WokenBy, bursts, join_parts};
use super::outside::THREAD_ANSWERS_MIN;
use crate::recording::Recording;
use crate::thread::{Birth, Step};
use cpumax_outcome::median;
use std::collections::{BTreeMap, BTreeSet};

/// A thread behind a front has at most one wakeup by clients in so many by fronts.
const OTHERS_ONE_IN: usize = 4;
/// Most tiers: fronts, the threads behind them, those behind these, and so on.
const TIERS_MAX: u32 = 8;

/// Parents that fork a process for each connection, and these children, by index. A family counts
/// if at least three children answer, and most of these once.
pub(super) fn forking_servers(
    recording: &Recording,
    inside: &[bool],
    clients: &[bool],
) -> BTreeMap<usize, Server> {
    let mut families: BTreeMap<u32, BTreeSet<usize>> = BTreeMap::new();
    for (ix, thread) in recording.threads.iter().enumerate().filter(|(ix, _)| inside[*ix]) {
        if let Birth::Forked { parent, .. } = thread.birth
            && inside[parent as usize]
            && thread.process() == thread.tid
        {
            families.entry(parent).or_default().insert(ix);
        }
    }
    let mut servers = BTreeMap::new();
    for (parent, children) in families {
        let life = |ix: &usize| (*ix, whole_life(recording, *ix, clients));
        let mut lives: Vec<(usize, Burst)> = children.iter().map(life).collect();
        let some = lives.iter().filter(|(_, life)| !life.marks.is_empty()).count();
        let once = lives.iter().filter(|(_, life)| life.marks.len() == 1).count();
        if some < THREAD_ANSWERS_MIN || 2 * once <= some {
            continue;
        }
        add_unseen(recording, &mut lives);
        let woken = |waker: usize| WokenBy::by(inside[waker]);
        let forks = bursts(recording, parent as usize, woken, |step| match step {
            Step::Fork(child) if children.contains(&(child as usize)) => {
                Some(recording.threads[child as usize].birth_ns(recording.first_ns))
            }
            _ => None,
        });
        servers.insert(parent as usize, Server::new(Role::Forks, forks));
        for (ix, life) in lives {
            servers.insert(ix, Server::new(Role::Forked { parent }, vec![life]));
        }
    }
    servers
}

/// The life of a forked process as one burst, with its answers to clients.
fn whole_life(recording: &Recording, ix: usize, clients: &[bool]) -> Burst {
    let thread = &recording.threads[ix];
    let parent = match thread.birth {
        Birth::Forked { parent, .. } => Some(parent as usize),
        Birth::Present { .. } => None,
    };
    let mut life = Burst {
        start_ns: thread.birth_ns(recording.first_ns),
        end_ns: if thread.exited { thread.last_ns } else { recording.last_ns },
        woken: WokenBy::Inside,
        by: parent,
        ..Burst::default()
    };
    for step in thread.steps.iter() {
        match step {
            Step::Run(ns) => life.work_ns = life.work_ns.saturating_add(ns),
            Step::Wake(edge) => {
                let edge = &recording.edges[edge as usize];
                if clients[edge.wakee() as usize] {
                    life.marks.push((life.work_ns, edge.at_ns));
                }
            }
            _ => {}
        }
    }
    join_parts(std::slice::from_mut(&mut life));
    life
}

/// Adds the answers of children that woke no client, worked long enough, and exited. They answered
/// a client that was awake, as long before their end as others do.
fn add_unseen(recording: &Recording, lives: &mut [(usize, Burst)]) {
    let answered = lives.iter().filter_map(|(_, life)| Some((life.work_ns, life.marks.last()?.0)));
    let (mut works, mut rests): (Vec<u64>, Vec<u64>) =
        answered.map(|(work_ns, mark_ns)| (work_ns, work_ns - mark_ns)).unzip();
    let (work_ns, rest_ns) = (median(&mut works), median(&mut rests));
    for (ix, life) in lives.iter_mut().filter(|(_, life)| life.marks.is_empty()) {
        if recording.threads[*ix].exited && life.work_ns >= work_ns / UNSEEN_ONE_IN {
            life.marks.push((life.work_ns.saturating_sub(rest_ns), life.end_ns));
        }
    }
}

/// Finds fronts among the answering threads of `servers` and makes them fronts; adds the threads
/// behind them, up to seven tiers.
pub(super) fn add_tiers_behind(
    recording: &Recording,
    inside: &[bool],
    servers: &mut BTreeMap<usize, Server>,
) {
    let answers = servers.iter().filter(|(_, server)| server.role == Role::Answers);
    let mut asked: Vec<usize> = answers.map(|(ix, _)| *ix).collect();
    for tier in 1..TIERS_MAX {
        let others = |ix: usize| inside[ix] && !servers.contains_key(&ix);
        asked.retain(|ix| servers[ix].is_front(others));
        let fronts: BTreeSet<usize> = asked.iter().copied().collect();
        let wakers = fronts.iter().flat_map(|ix| servers[ix].answered_by());
        let wakers: BTreeSet<usize> = wakers.filter(|ix| others(*ix)).collect();
        let behind: BTreeMap<usize, Server> = wakers
            .into_iter()
            .filter_map(|ix| Some((ix, bursts_behind(recording, inside, ix, &fronts)?)))
            .map(|(ix, bursts)| (ix, Server::new(Role::Behind { tier }, bursts)))
            .collect();
        if behind.is_empty() {
            return;
        }
        let marks = behind.values().flat_map(|server| &server.bursts).flat_map(|one| &one.marks);
        let answered: BTreeSet<u64> = marks.map(|(_, at_ns)| *at_ns).collect();
        for front in fronts {
            if let Some(server) = servers.get_mut(&front)
                && server.answered_by().any(|by| behind.contains_key(&by))
            {
                server.make_front(&answered);
            }
        }
        asked = behind.keys().copied().collect();
        servers.extend(behind);
    }
}

/// The bursts of a thread with its answers to `fronts`; `None` for fewer than three, or with more
/// than one wakeup by clients in four by fronts.
fn bursts_behind(
    recording: &Recording,
    inside: &[bool],
    ix: usize,
    fronts: &BTreeSet<usize>,
) -> Option<Vec<Burst>> {
    let woken = |waker: usize| WokenBy::by(!fronts.contains(&waker));
    let mut own = bursts(recording, ix, woken, |step| match step {
        Step::Wake(edge) => {
            let edge = &recording.edges[edge as usize];
            fronts.contains(&(edge.wakee() as usize)).then_some(edge.at_ns)
        }
        _ => None,
    });
    join_parts(&mut own);
    let by_fronts = own.iter().filter(|one| one.woken == WokenBy::Outside).count();
    let by_clients = own.iter().filter(|one| one.by.is_some_and(|by| !inside[by])).count();
    let answers: usize = own.iter().map(|one| one.marks.len()).sum();
    (answers >= THREAD_ANSWERS_MIN && by_clients * OTHERS_ONE_IN <= by_fronts).then_some(own)
}
