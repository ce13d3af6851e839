//! Finds where two runs of a workload diverge, by the CPU time of each task.

use cpumax_outcome::trace::{Recorded, TraceEvent, What};
use std::collections::BTreeMap;

/// Difference in a task's CPU time at which two runs diverge, ns: half the tick of most kernels.
/// Sums of microseconds are smaller; one turn more or less is larger.
const APART_NS: i64 = 2_000_000;
/// Difference from which a task is about to diverge, ns.
const LEANING_NS: i64 = 300_000;
/// Equal events at most this far apart share a line of [`beside`], ns.
const SAME_NS: u64 = 200_000;
/// Time before and after the divergence that [`beside`] shows, ns.
const BEFORE_NS: u64 = 15_000_000;
const AFTER_NS: u64 = 5_000_000;

/// A divergence of two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// Begin of the difference, ns since the start.
    pub since_ns: u64,
    /// Time at which the difference reached its bound, ns since the start.
    pub time_ns: u64,
    /// Name of the task.
    pub task: String,
    /// CPU time of the task in the reference minus that in the other run, ns.
    pub more_ns: i64,
}

/// Finds where two recorded runs diverge by 2 ms; `None` if they do not.
pub fn find_divergence(reference: &Recorded, other: &Recorded) -> Option<Divergence> {
    find_divergence_by(APART_NS, reference, other)
}

/// Finds where a task's CPU time in two runs first differs by more than `apart_ns`, ns.
pub(crate) fn find_divergence_by(
    apart_ns: i64,
    reference: &Recorded,
    other: &Recorded,
) -> Option<Divergence> {
    let mut numbers = BTreeMap::new();
    let mut sides = [numbered(reference, &mut numbers), numbered(other, &mut numbers)];
    // The last running task continues to the end.
    let end_ns = [reference, other].iter().filter_map(|run| Some(run.events.last()?.time_ns)).max();
    sides[0].extend(end_ns.map(|time_ns| Switch { time_ns, cpu: u16::MAX, next: None }));
    let names: BTreeMap<usize, &str> =
        numbers.iter().map(|(name, number)| (*number, *name)).collect();
    let mut leads = vec![Lead::default(); numbers.len()];
    let mut running: [BTreeMap<u16, usize>; 2] = [BTreeMap::new(), BTreeMap::new()];
    let (mut at, mut now_ns) = ([0, 0], 0);
    loop {
        let next = |side: usize| sides[side].get(at[side]).map(|switch| switch.time_ns);
        let side = match (next(0), next(1)) {
            (None, None) => return None,
            (Some(first), Some(second)) => usize::from(second < first),
            (first, _) => usize::from(first.is_none()),
        };
        let switch = sides[side][at[side]];
        at[side] += 1;
        let ran_ns = switch.time_ns.saturating_sub(now_ns) as i64;
        for (sign, running) in [1, -1].into_iter().zip(&running) {
            for &task in running.values().filter(|&task| !names[task].starts_with('(')) {
                leads[task].by_ns += sign * ran_ns;
            }
        }
        now_ns = now_ns.max(switch.time_ns);
        for (task, lead) in leads.iter_mut().enumerate() {
            if lead.by_ns.abs() <= LEANING_NS.min(apart_ns) {
                lead.since_ns = now_ns;
            } else if lead.by_ns.abs() > apart_ns {
                return Some(Divergence {
                    since_ns: lead.since_ns,
                    time_ns: now_ns,
                    task: names[&task].to_owned(),
                    more_ns: lead.by_ns,
                });
            }
        }
        match switch.next {
            Some(task) => running[side].insert(switch.cpu, task),
            None => running[side].remove(&switch.cpu),
        };
    }
}

/// The tasks that had the CPU when two runs diverged; `None`: idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rivals {
    /// When the other run switched to its task, ns since the start.
    pub other_since_ns: u64,
    /// Task in the reference.
    pub reference: Option<String>,
    /// Task in the other run.
    pub other: Option<String>,
}

/// The tasks on the first CPU directly after both runs last ran the same task for more than 0.1 ms.
pub fn rivals(reference: &Recorded, other: &Recorded, parting: &Divergence) -> Option<Rivals> {
    /// Shorter differences are only switches at slightly different times.
    const MOMENT_NS: u64 = 100_000;
    let mut numbers = BTreeMap::new();
    let sides = [numbered(reference, &mut numbers), numbered(other, &mut numbers)];
    let names: BTreeMap<usize, &str> =
        numbers.iter().map(|(name, number)| (*number, *name)).collect();
    let name = |number: Option<usize>| number.map(|number| names[&number].to_owned());
    // The guest's own threads have different names on each side.
    let is_task =
        |number: Option<usize>| number.is_none_or(|number| !names[&number].starts_with('('));
    let (mut at, mut now): ([usize; 2], [Option<Switch>; 2]) = ([0, 0], [None, None]);
    let mut apart: Option<Rivals> = None;
    let mut from_ns = 0;
    loop {
        let due = [0, 1].map(|side| sides[side].get(at[side]).map(|switch| switch.time_ns));
        let next_ns = due.into_iter().flatten().min()?;
        if let [Some(a), Some(b)] = now
            && next_ns - from_ns > MOMENT_NS
        {
            if a.next == b.next && from_ns <= parting.since_ns {
                apart = None;
            } else if a.next != b.next && apart.is_none() && is_task(a.next) && is_task(b.next) {
                let (reference, other) = (name(a.next), name(b.next));
                apart = Some(Rivals { other_since_ns: b.time_ns, reference, other });
            }
        }
        if next_ns > parting.time_ns {
            return apart;
        }
        for side in 0..2 {
            if due[side] == Some(next_ns) {
                let switch = sides[side][at[side]];
                at[side] += 1;
                if switch.cpu == 0 {
                    (now[side], from_ns) = (Some(switch), next_ns);
                }
            }
        }
    }
}

/// Difference in the CPU time of a task.
#[derive(Debug, Clone, Copy, Default)]
struct Lead {
    by_ns: i64,
    /// Time at which it was last negligible.
    since_ns: u64,
}

/// A switch to a task, by a number that both runs share.
#[derive(Debug, Clone, Copy)]
struct Switch {
    time_ns: u64,
    cpu: u16,
    next: Option<usize>,
}

fn numbered<'a>(trace: &'a Recorded, numbers: &mut BTreeMap<&'a str, usize>) -> Vec<Switch> {
    let mut switch = |event: &TraceEvent| {
        let What::Switch { next } = event.what else { return None };
        let name = next.map(|task| trace.names.tasks.get(task as usize).map_or("", String::as_str));
        let count = numbers.len();
        let next = name.map(|name| *numbers.entry(name).or_insert(count));
        Some(Switch { time_ns: event.time_ns, cpu: event.cpu, next })
    };
    trace.events.iter().filter_map(&mut switch).collect()
}

/// The events of both runs around their divergence, side by side.
pub fn beside(reference: &Recorded, other: &Recorded, parting: &Divergence) -> Vec<String> {
    let window = parting.since_ns.saturating_sub(BEFORE_NS)..parting.time_ns + AFTER_NS;
    let told = |trace: &Recorded| -> Vec<(u64, String)> {
        let lines = trace.events.iter().zip(trace.lines());
        let inside = lines.filter(|(event, _)| window.contains(&event.time_ns));
        inside.map(|(event, line)| (event.time_ns, what(&line))).collect()
    };
    let (left, right) = (told(reference), told(other));
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut rows = Vec::new();
    loop {
        let (first, second) = match (left.peek(), right.peek()) {
            (None, None) => return rows,
            (Some(a), Some(b)) => {
                let same = a.1 == b.1 && a.0.abs_diff(b.0) <= SAME_NS;
                (same || a.0 <= b.0, same || b.0 < a.0)
            }
            (a, b) => (a.is_some(), b.is_some()),
        };
        let cell = |event: Option<&(u64, String)>| {
            event.map_or_else(String::new, |(time_ns, what)| {
                format!(
                    "{:>11} {what}",
                    format!("{}.{:03}", time_ns / 1_000_000, time_ns / 1_000 % 1_000)
                )
            })
        };
        let first = cell(if first { left.next() } else { None });
        let second = cell(if second { right.next() } else { None });
        rows.push(format!("{first:<44} | {second}").trim_end().to_owned());
    }
}

/// A line of a trace without its time.
fn what(line: &str) -> String {
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use cpumax_outcome::trace::TraceSink;

    /// A run in which tasks of these names get the CPU at these times, ms.
    fn run(turns: &[(u64, &str)]) -> Recorded {
        let mut run = Recorded::default();
        let mut names: Vec<String> = Vec::new();
        for (ms, name) in turns {
            let known = names.iter().position(|known| known == name);
            let next = (*name != "idle").then(|| {
                known.unwrap_or_else(|| {
                    names.push((*name).to_owned());
                    names.len() - 1
                }) as u32
            });
            run.event(TraceEvent { time_ns: ms * 1_000_000, cpu: 0, what: What::Switch { next } });
        }
        run.names.tasks = names;
        run
    }

    #[test]
    fn two_runs_part_where_one_task_has_had_more() {
        let first = run(&[(0, "a"), (4, "b"), (8, "a"), (12, "b"), (16, "idle")]);
        let second = run(&[(0, "a"), (4, "b"), (8, "b"), (12, "a"), (16, "idle")]);
        let parting = find_divergence(&first, &second).expect("they part");
        assert_eq!((parting.since_ns, parting.time_ns), (8_000_000, 12_000_000));
        assert_eq!((parting.task.as_str(), parting.more_ns), ("a", 4_000_000));
        let rows = beside(&first, &second, &parting);
        assert_eq!(rows[2], format!("{:<44} |", "      8.000 0 switch a"));
        assert_eq!(rows[3], format!("{:<44} |       8.000 0 switch b", ""));
        assert!(rows[0].contains("0 switch a") && rows[0].ends_with("0 switch a"), "{rows:?}");
    }

    #[test]
    fn those_who_run_where_two_runs_part_are_rivals() {
        let first = run(&[(0, "a"), (4, "b"), (8, "a"), (12, "b"), (16, "idle")]);
        let second = run(&[(0, "a"), (4, "b"), (8, "c"), (12, "a"), (16, "idle")]);
        let found = rivals(&first, &second, &find_divergence(&first, &second).unwrap()).unwrap();
        assert_eq!((found.reference.as_deref(), found.other.as_deref()), (Some("a"), Some("c")));
        assert_eq!(found.other_since_ns, 8_000_000);
        let lazy = run(&[(0, "a"), (4, "b"), (8, "idle"), (16, "a")]);
        let found = rivals(&first, &lazy, &find_divergence(&first, &lazy).unwrap()).unwrap();
        assert_eq!((found.reference.as_deref(), found.other), (Some("a"), None));
    }

    #[test]
    fn numbers_of_tasks_and_a_little_time_make_no_difference() {
        let first = run(&[(0, "a"), (4, "b"), (8, "a"), (40, "idle")]);
        let second = run(&[(0, "b"), (1, "a"), (5, "b"), (8, "a"), (40, "idle")]);
        assert_eq!(find_divergence(&first, &second), None);
        assert_eq!(find_divergence(&first, &first), None);
        let mut longer = run(&[(0, "a"), (4, "b"), (8, "b")]);
        longer.event(TraceEvent { time_ns: 40_000_000, cpu: 0, what: What::Period { group: 0 } });
        assert!(find_divergence(&first, &longer).is_some_and(|found| found.since_ns == 8_000_000));
    }
}
