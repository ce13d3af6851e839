//! Guides a run of the model along the recorded run of a real kernel.
//!
//! Where two tasks are equal, microseconds decide which comes first. A run has many such decisions,
//! and of a thousand runs with random microseconds none may make all the decisions of the kernel.
//! The search goes step by step: where a run diverges, the microseconds from shortly before are
//! drawn again, many times, and the search continues with the runs that follow longest. If one
//! reaches the end with every number within its tolerance, then only microseconds separated the
//! two.

use crate::error::Error;
use crate::parting::find_divergence_by;
use cpumax_outcome::Outcome;
use cpumax_outcome::trace::{Recorded, What};
use cpumax_study::Microseconds;

/// A guided run.
#[derive(Debug, Clone, PartialEq)]
pub struct GuidedRun {
    /// Its random microseconds.
    pub microseconds: Microseconds,
    /// Its outcome.
    pub outcome: Outcome,
    /// Its events.
    pub trace: Recorded,
    /// Time up to which it follows: tasks had equal turns, or nearly equal CPU time, ns;
    /// [`u64::MAX`]: to the end.
    pub together_ns: u64,
    /// Ratio of its worst number.
    pub ratio: f64,
    /// Description of its divergence.
    pub parted: Option<String>,
}

const INITIAL_RUNS: u64 = 128;
/// Number of best runs that each round continues.
const KEPT_RUNS: usize = 4;
/// Number of new runs from each of these in a round.
const RUNS_OF_EACH: u64 = 48;
/// Rounds without progress after which the search ends.
const ROUNDS_IN_VAIN: u32 = 6;
const MAX_ROUNDS: u32 = 200;
/// Bounds for the difference in CPU time of any task, ns, where equal turns do not lead to the end.
const APART_BY_NS: [i64; 3] = [400_000, 200_000, 100_000];
/// How long before the divergence new microseconds begin, ns; doubled up to [`DOUBLINGS`] - 1
/// times.
const NEAR_NS: u64 = 250_000;
const DOUBLINGS: u64 = 12;

/// Runs the model with these microseconds: outcome and events, unless the model fails.
pub(crate) type Try<'a> =
    &'a mut dyn FnMut(&Microseconds) -> Result<Option<(Outcome, Recorded)>, Error>;

/// Finds the run that follows `followed` longest, or the first whose numbers all agree; `None` if
/// the model fails.
///
/// Tasks may have equal turns of slightly different length, which shows only later. Where equal
/// turns do not lead to numbers that agree, the search is repeated by CPU time, with smaller and
/// smaller bounds ([`APART_BY_NS`]).
pub(crate) fn guide(
    followed: &Recorded,
    ratio: &dyn Fn(&Outcome) -> f64,
    run: Try<'_>,
) -> Result<Option<GuidedRun>, Error> {
    let mut led = |microseconds: Microseconds| -> Result<Option<GuidedRun>, Error> {
        let Some((outcome, trace)) = run(&microseconds)? else { return Ok(None) };
        let ratio = ratio(&outcome);
        Ok(Some(GuidedRun { microseconds, outcome, trace, together_ns: 0, ratio, parted: None }))
    };
    let first: Result<Option<Vec<GuidedRun>>, Error> =
        (1..=INITIAL_RUNS).map(|seed| led(Microseconds::of(seed))).collect();
    let Some(first) = first? else { return Ok(None) };
    let turns = Turn::all(followed);
    let by_turns = |trace: &Recorded| together_ns(&turns, &Turn::all(trace));
    let mut best = guide_by(&by_turns, &first, &mut led)?;
    for apart_ns in APART_BY_NS {
        if best.as_ref().is_none_or(|led| led.ratio <= 1.0) {
            break;
        }
        let by_time = |trace: &Recorded| {
            find_divergence_by(apart_ns, followed, trace)
                .map_or(u64::MAX, |parting| parting.time_ns)
        };
        let next = guide_by(&by_time, &first, &mut led)?;
        if next.as_ref().is_some_and(|next| next.ratio <= 1.0) {
            best = next;
        }
    }
    Ok(best)
}

/// Searches as [`guide`], from these runs; `together_ns` says how long a run follows.
fn guide_by(
    together_ns: &dyn Fn(&Recorded) -> u64,
    first: &[GuidedRun],
    led: &mut dyn FnMut(Microseconds) -> Result<Option<GuidedRun>, Error>,
) -> Result<Option<GuidedRun>, Error> {
    let ranked = |led: GuidedRun| GuidedRun { together_ns: together_ns(&led.trace), ..led };
    let mut best: Vec<GuidedRun> = Vec::new();
    for next in first {
        keep(&mut best, ranked(next.clone()));
    }
    let (mut seed, mut in_vain) = (1_000_000, 0);
    for _ in 0..MAX_ROUNDS {
        let longest_ns = best[0].together_ns;
        if best[0].ratio <= 1.0 || longest_ns == u64::MAX || in_vain == ROUNDS_IN_VAIN {
            break;
        }
        let parents: Vec<_> =
            best.iter().map(|led| (led.microseconds.clone(), led.together_ns)).collect();
        for (parent, together_ns) in parents {
            for n in 0..RUNS_OF_EACH {
                seed += 1;
                let from_ns = together_ns.saturating_sub(NEAR_NS << (n % DOUBLINGS));
                let mut microseconds = parent.clone();
                microseconds.from.retain(|&(earlier_ns, _)| earlier_ns < from_ns);
                match from_ns {
                    0 => microseconds.seed = seed,
                    _ => microseconds.from.push((from_ns, seed)),
                }
                let Some(next) = led(microseconds)? else { return Ok(None) };
                keep(&mut best, ranked(next));
            }
        }
        in_vain = if best[0].together_ns > longest_ns { 0 } else { in_vain + 1 };
    }
    best.truncate(1);
    Ok(best.pop())
}

/// Inserts a run among the best, unless one with an equal rank is there.
fn keep(best: &mut Vec<GuidedRun>, next: GuidedRun) {
    let rank = |led: &GuidedRun| (led.ratio <= 1.0, led.together_ns);
    if best.iter().any(|led| rank(led) == rank(&next)) {
        return;
    }
    let at = best.partition_point(|led| rank(led) > rank(&next));
    if at < KEPT_RUNS {
        best.insert(at, next);
        best.truncate(KEPT_RUNS);
    }
}

/// A continuous time of a task on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn<'a> {
    task: &'a str,
    from_ns: u64,
    to_ns: u64,
    ns: u64,
}

/// Shorter turns, ns, are ignored: the task only parks or goes to sleep.
const SHORT_NS: u64 = 60_000;
/// Turns up to this length, ns, may be missing on one side, where they may have been below
/// [`SHORT_NS`].
const MISSING_NS: u64 = 150_000;
/// Equal turns begin at most this far apart, ns.
const APART_NS: u64 = 1_500_000;
/// A task that returns within this time, ns, continues its turn.
const AWAY_NS: u64 = 1_000_000;

impl<'a> Turn<'a> {
    /// The turns on the first CPU, without the guest's own threads.
    fn all(trace: &'a Recorded) -> Vec<Turn<'a>> {
        let mut turns: Vec<Turn<'a>> = Vec::new();
        let mut add = |turn: Turn<'a>| match turns.last_mut() {
            _ if turn.ns < SHORT_NS => {}
            Some(last) if last.task == turn.task && turn.from_ns - last.to_ns < AWAY_NS => {
                last.ns += turn.ns;
                last.to_ns = turn.to_ns;
            }
            _ => turns.push(turn),
        };
        let ended = |turn: Turn<'a>, to_ns| Turn { to_ns, ns: to_ns - turn.from_ns, ..turn };
        let mut now: Option<Turn<'a>> = None;
        for event in trace.events.iter().filter(|event| event.cpu == 0) {
            let What::Switch { next } = event.what else { continue };
            if let Some(turn) = now.take() {
                add(ended(turn, event.time_ns));
            }
            let name = next.and_then(|task| trace.names.tasks.get(task as usize));
            let task = name.map(String::as_str).filter(|name| !name.starts_with('('));
            let from_ns = event.time_ns;
            now = task.map(|task| Turn { task, from_ns, to_ns: from_ns, ns: 0 });
        }
        // The last running task continues to the end.
        if let (Some(turn), Some(last)) = (now, trace.events.last()) {
            add(ended(turn, last.time_ns.max(turn.from_ns)));
        }
        turns
    }
}

/// Time up to which two runs have equal turns, ns.
fn together_ns(reference: &[Turn<'_>], other: &[Turn<'_>]) -> u64 {
    let (mut at, mut by) = (0, 0);
    loop {
        let (Some(a), Some(b)) = (reference.get(at), other.get(by)) else {
            let left = reference[at..].iter().chain(&other[by..]);
            let long = left.filter(|turn| turn.ns > MISSING_NS).map(|turn| turn.from_ns).min();
            return long.unwrap_or(u64::MAX);
        };
        let same = a.task == b.task;
        if same && a.from_ns.abs_diff(b.from_ns) <= APART_NS {
            (at, by) = (at + 1, by + 1);
        } else if !same && a.ns < MISSING_NS {
            at += 1;
        } else if !same && b.ns < MISSING_NS {
            by += 1;
        } else {
            return a.from_ns.min(b.from_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_outcome::ReleaseOutcome;
    use cpumax_outcome::trace::{TraceEvent, TraceSink};
    use std::collections::BTreeMap;

    /// A run in which tasks of these names get the CPU at these times, us.
    fn run(turns: &[(u64, &str)]) -> Recorded {
        let mut run = Recorded::default();
        let mut names: Vec<String> = turns.iter().map(|(_, name)| (*name).to_owned()).collect();
        names.sort();
        names.dedup();
        for (us, name) in turns {
            let task = names.iter().position(|known| known == name).filter(|_| *name != "idle");
            let what = What::Switch { next: task.map(|task| task as u32) };
            run.event(TraceEvent { time_ns: us * 1000, cpu: 0, what });
        }
        run.names.tasks = names;
        run
    }

    fn together(a: &[(u64, &str)], b: &[(u64, &str)]) -> u64 {
        together_ns(&Turn::all(&run(a)), &Turn::all(&run(b)))
    }

    #[test]
    fn two_runs_are_together_as_long_as_the_same_tasks_have_the_same_turns() {
        let a = [(0, "a"), (4000, "b"), (8000, "a"), (12_000, "idle")];
        assert_eq!(together(&a, &a), u64::MAX);
        // An interruption, a later beginning, and a very short turn.
        let b = [
            (0, "a"),
            (10, "(init)"),
            (90, "a"),
            (4100, "c"),
            (4120, "b"),
            (8900, "a"),
            (12_500, "idle"),
        ];
        assert_eq!(together(&a, &b), u64::MAX);
        let c = [(0, "a"), (4000, "a"), (8000, "b"), (12_000, "idle")];
        assert_eq!(together(&a, &c), 4_000_000);
        let d = [(0, "a"), (4000, "b"), (10_000, "a"), (12_000, "idle")];
        assert_eq!(together(&a, &d), 8_000_000);
        // One of them ends, or pauses, before the other does.
        let e = [(0, "a"), (4000, "b"), (8000, "idle")];
        assert_eq!([together(&a, &e), together(&e, &a)], [8_000_000; 2]);
        let alone = [(0, "a"), (12_000, "idle")];
        let pauses = [(0, "a"), (2000, "idle"), (10_000, "a"), (12_000, "idle")];
        assert_eq!(together(&alone, &pauses), 10_000_000);
    }

    /// The random choice at this time: 0 or 1.
    fn draw(microseconds: &Microseconds, ms: u64) -> u64 {
        let now = microseconds.from.iter().rev().find(|(from_ns, _)| *from_ns <= ms * 1_000_000);
        let seed = now.map_or(microseconds.seed, |(_, seed)| *seed);
        (seed + 7 * ms).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63
    }

    /// A run in which, every 10 ms, the seed in force decides which of two tasks comes first.
    fn drawn(microseconds: &Microseconds) -> (Outcome, Recorded) {
        let mut turns = Vec::new();
        let mut first = 0;
        for ms in (0..300).step_by(10) {
            let drawn = draw(microseconds, ms);
            let names = if drawn == 1 { ["a", "b"] } else { ["b", "a"] };
            first += drawn;
            turns.extend([(ms * 1000, names[0]), (ms * 1000 + 5000, names[1])]);
        }
        (outcome(first), run(&turns))
    }

    /// A run in which, every 10 ms, two tasks take turns, and the length of the first turn is
    /// random.
    fn long_or_short(microseconds: &Microseconds) -> (Outcome, Recorded) {
        let mut turns = Vec::new();
        let mut long = 0;
        for (n, ms) in (0..300).step_by(10).enumerate() {
            let drawn = draw(microseconds, ms);
            long |= drawn << n;
            turns.extend([(ms * 1000, "a"), (ms * 1000 + 5000 + 500 * drawn, "b")]);
        }
        (outcome(long), run(&turns))
    }

    fn outcome(events: u64) -> Outcome {
        Outcome {
            scenario: "s".to_owned(),
            world: "model".to_owned(),
            kernel: "7.3".to_owned(),
            generation: "G4F".to_owned(),
            seed: 1,
            simulated_ns: 300_000_000,
            groups: BTreeMap::new(),
            tasks: BTreeMap::new(),
            release: ReleaseOutcome::default(),
            events,
        }
    }

    #[test]
    fn where_the_turns_are_the_same_a_run_is_led_by_their_lengths() {
        let theirs =
            Microseconds { seed: 5, from: (1..30).map(|n| (n * 10_000_000, n * n * 31)).collect() };
        let (wanted, followed) = long_or_short(&theirs);
        let same = |found: &Outcome| if found.events == wanted.events { 0.0 } else { 2.0 };
        let mut run = |microseconds: &Microseconds| Ok(Some(long_or_short(microseconds)));
        let led = guide(&followed, &same, &mut run).unwrap().unwrap();
        assert_eq!(led.outcome.events, wanted.events);
    }

    #[test]
    fn a_run_is_led_through_thirty_choices_that_no_seed_makes_by_itself() {
        let theirs =
            Microseconds { seed: 5, from: (1..30).map(|n| (n * 10_000_000, n * n * 31)).collect() };
        let (_, followed) = drawn(&theirs);
        let never = |_: &Outcome| 2.0;
        let mut tries = 0;
        let mut run = |microseconds: &Microseconds| {
            tries += 1;
            Ok(Some(drawn(microseconds)))
        };
        let led = guide(&followed, &never, &mut run).unwrap().unwrap();
        assert_eq!(led.together_ns, u64::MAX);
        assert!(led.microseconds.from.len() > 3, "{:?}", led.microseconds);
        assert!(led.microseconds.from.is_sorted());
        assert!(tries < 10_000, "{tries}");
        // The first run whose numbers agree is enough.
        let mut run = |microseconds: &Microseconds| Ok(Some(drawn(microseconds)));
        let agrees = |outcome: &Outcome| if outcome.events > 14 { 0.5 } else { 2.0 };
        let led = guide(&followed, &agrees, &mut run).unwrap().unwrap();
        assert!(led.ratio < 1.0 && led.microseconds.from.is_empty());
        // A model that fails yields no run.
        let mut run = |_: &Microseconds| Ok(None);
        assert_eq!(guide(&followed, &never, &mut run).unwrap(), None);
    }
}
