//! The JSON that `wprof -J` writes: a line about the session, lines of call stacks, then a line for
//! each event. Its `--json-schema` describes them; versions 3 are read.
//!
//! Switches, wakeups, forks and names are used. A wakeup in the name of the idle task came from an
//! interrupt. Priorities stand with switches only, so a woken thread keeps its last one.

use crate::error::Error;
use crate::event::{Context, Event, Kind, Machine, Note, PrevState, Sink, ThreadRef};
use crate::lines::{End, next_line};
use crate::{Defect, refused};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::BufRead;

/// Bounds on unreadable lines: so many, or else one in so many.
const UNREADABLE_FEW: u64 = 20;
const LINES_PER_UNREADABLE: u64 = 20;
/// The priority of nice 0.
const PRIO_DEFAULT: i32 = 120;
/// Largest time of an event, in seconds since the session began.
const SECONDS_MAX: f64 = 1e8;

/// Whether the file begins with wprof's line about the session.
pub(crate) fn is_wprof(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    line.starts_with(b"{") && has(b"\"version\"") && has(b"\"timer_freq_hz\"")
}

#[derive(Debug, Deserialize)]
struct Session<'a> {
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(default)]
    stack_cnt: u64,
}

/// The fields of an event that are used.
#[derive(Debug, Deserialize)]
struct Line<'a> {
    ts: f64,
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(default)]
    cpu: u32,
    #[serde(borrow, default)]
    task: Option<Task<'a>>,
    #[serde(borrow, default)]
    prev: Option<Task<'a>>,
    #[serde(borrow, default)]
    next: Option<Task<'a>>,
    #[serde(borrow, default)]
    waker: Option<Task<'a>>,
    #[serde(borrow, default)]
    wakee: Option<Task<'a>>,
    #[serde(borrow, default)]
    child: Option<Task<'a>>,
    #[serde(borrow, default)]
    prev_state: Option<Cow<'a, str>>,
    #[serde(default)]
    prev_prio: Option<i32>,
    #[serde(default)]
    next_prio: Option<i32>,
}

/// A thread; idle ones have no `tid`.
#[derive(Debug, Deserialize)]
struct Task<'a> {
    #[serde(default)]
    tid: i32,
    pid: i32,
    #[serde(borrow)]
    comm: Cow<'a, str>,
}

/// Reads a whole file into `sink`. `name` is for messages. Lines that are no events are counted as
/// defects; more than 20 and a twentieth of them are an error.
pub(crate) fn read(name: &str, mut file: impl BufRead, sink: &mut impl Sink) -> Result<(), Error> {
    let mut buffer = Vec::new();
    let mut next = |buffer: &mut Vec<u8>| {
        let end = next_line(&mut file, buffer);
        end.map_err(|e| Error::io(name, e))
    };
    next(&mut buffer)?;
    let session: Session<'_> = serde_json::from_slice(&buffer).map_err(|e| {
        Error::malformed(name, "line 1", format!("it is not wprof's line about a session: {e}"))
    })?;
    if session.version.split('.').next() != Some("3") {
        let what = format!(
            "it is of version {} of wprof's JSON; versions 3 are read",
            cpumax_limit::one_line(&session.version)
        );
        return Err(Error::unsupported(name, what));
    }
    let stacks = session.stack_cnt;
    sink.machine(Machine::default());
    let (mut number, mut events, mut bad) = (1_u64, 0_u64, 0_u64);
    let mut first_bad = None;
    let mut prios = BTreeMap::new();
    loop {
        let end = next(&mut buffer)?;
        number += 1;
        if end == End::Nothing {
            break;
        }
        if number - 1 <= stacks {
            continue;
        }
        let line = serde_json::from_slice::<Line<'_>>(&buffer);
        let read = line.ok().filter(|_| end != End::TooLong);
        match read.map(|line| pass_on(&line, &mut prios, sink)) {
            Some(Ok(true)) => events += 1,
            Some(Err(stop)) => return Err(refused(name, stop)),
            None | Some(Ok(false)) if end == End::OfFile => sink.defect(Defect::CutAtTheEnd),
            None | Some(Ok(false)) => {
                bad += 1;
                sink.defect(Defect::UnreadableLine);
                first_bad.get_or_insert(number);
            }
        }
    }
    match first_bad {
        Some(line) if bad > UNREADABLE_FEW.max((events + bad) / LINES_PER_UNREADABLE) => {
            let all = events + bad;
            let what = format!("{bad} of {all} lines are no events of wprof, the first is {line}");
            Err(Error::Implausible { name: name.to_owned(), what })
        }
        _ => Ok(()),
    }
}

/// Passes on one event, or ignores one of a type of no use; false if the line is malformed.
/// `prios`: the last priority of each thread, which switches update.
fn pass_on(
    line: &Line<'_>,
    prios: &mut BTreeMap<i32, i32>,
    sink: &mut impl Sink,
) -> Result<bool, crate::event::Stop> {
    if !(0.0..SECONDS_MAX).contains(&line.ts) {
        return Ok(false);
    }
    let mut event = Event::without_thread((line.ts * 1e9).round() as u64, line.cpu);
    let mut of = line.task.as_ref();
    match (line.t.as_ref(), &line.prev, &line.next, &line.wakee) {
        ("switch", Some(prev), Some(next), _) => {
            let (prev_prio, next_prio) = (line.prev_prio, line.next_prio);
            for (task, prio) in [(prev, prev_prio), (next, next_prio)] {
                prios.insert(task.tid, prio.unwrap_or(PRIO_DEFAULT));
            }
            event.kind = Kind::Switch {
                prev: prev.named(prios),
                left: prev_state(line.prev_state.as_deref().unwrap_or_default()),
                next: next.named(prios),
            };
            of = Some(prev);
        }
        (kind @ ("waking" | "wakeup_new"), _, _, Some(wakee)) => {
            let named = wakee.named(prios);
            let is_new = kind == "wakeup_new";
            event.kind =
                if is_new { Kind::WakeupNew(named, None) } else { Kind::Waking(named, None) };
            of = line.waker.as_ref().filter(|waker| waker.tid > 0);
            event.context = Some(Context { hardirq: of.is_none(), softirq: false });
        }
        ("fork", ..) => {
            let Some(child) = &line.child else { return Ok(false) };
            event.kind = Kind::Fork { child: child.tid, child_comm: &child.comm };
        }
        ("switch" | "waking" | "wakeup_new", ..) => return Ok(false),
        // An interrupt is recorded when it ends, in the name of the interrupted thread.
        ("hardirq" | "softirq" | "ipi", ..) => of = None,
        ("task_rename" | "exec" | "timer", ..) => {}
        // Events of other types may be out of order, or of other CPUs.
        _ => return Ok(true),
    }
    if let Some(of) = of {
        event.tid = of.tid;
        event.pid = Some(of.pid).filter(|pid| *pid > 0);
        event.comm = Some(of.comm.as_ref()).filter(|_| of.tid > 0);
    }
    sink.event(&event)?;
    if let (Kind::Fork { child: tid, .. }, Some(child), Some(parent)) =
        (event.kind, &line.child, of)
    {
        sink.note(&Note::Task { pid: child.pid, tid, parent_pid: parent.pid });
    }
    Ok(true)
}

impl Task<'_> {
    /// The thread with its last known priority.
    fn named(&self, prios: &BTreeMap<i32, i32>) -> ThreadRef<'_> {
        let prio = prios.get(&self.tid).copied().unwrap_or(PRIO_DEFAULT);
        ThreadRef { tid: self.tid, comm: &self.comm, prio }
    }
}

/// Why a thread left the CPU, by wprof's words.
fn prev_state(state: &str) -> PrevState {
    match state {
        "interruptible_sleep" | "parked" | "freezable" => PrevState::Sleeping,
        "uninterruptible_sleep" | "killable_sleep" | "rtlock_wait" | "frozen" => PrevState::Blocked,
        "idle" => PrevState::Idle,
        "stopped" | "traced" => PrevState::Stopped,
        "exit_dead" | "exit_zombie" | "exit_trace" | "task_dead" => PrevState::Dead,
        _ => PrevState::Runnable,
    }
}
