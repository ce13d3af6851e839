//! Makes a failing workload smaller: removes one part after another while it still fails.
//!
//! The steps change the tables of a scenario, by the forms that the language lists for their keys.
//! Every candidate has been read and checked, so the result can be printed, read and run again.

use crate::build::{Builder, Table, Value};
use crate::checked::Workload;
use crate::print::tables;
use crate::read::language::{SCENARIO, VERBS};
use crate::read::table::{self, Form};
use crate::units::parse_duration;
use std::time::Duration;

/// Shrinks `workload` by removing or simplifying one part at a time while `fails` holds, and
/// returns the smallest that fails. Stops when no further step works, or after `attempts` calls of
/// `fails`.
pub fn minimize(
    workload: &Workload,
    mut attempts: u64,
    mut fails: impl FnMut(&Workload) -> bool,
) -> Workload {
    let mut smallest = workload.clone();
    loop {
        let before = smallest.clone();
        for pass in PASSES {
            let mut ix = 0;
            // A pass moves on after a part that it could not remove.
            loop {
                let mut candidate = tables(&smallest);
                if pass(&mut candidate, ix).is_none() {
                    break;
                }
                if attempts == 0 {
                    return smallest;
                }
                let candidate = candidate.build().ok().filter(|other| *other != smallest);
                attempts -= u64::from(candidate.is_some());
                match candidate.filter(|candidate| fails(candidate)) {
                    Some(candidate) => smallest = candidate,
                    None => ix += 1,
                }
            }
        }
        if smallest == before {
            return smallest;
        }
    }
}

/// Removes or simplifies the `ix`-th thing that this pass handles; `None` when there are no more.
type Pass = fn(&mut Builder, usize) -> Option<()>;

const PASSES: [Pass; 17] = [
    |draft, ix| without_part(draft, "expect", ix),
    |draft, ix| without_part(draft, "task", ix),
    |draft, ix| without_part(draft, "at", ix),
    |draft, ix| without_part(draft, "source", ix),
    |draft, ix| without_part(draft, "job", ix),
    |draft, ix| without_part(draft, "machine.softirq", ix),
    |draft, ix| with_number(draft, ix, |_| 1),
    |draft, ix| with_number(draft, ix, |n| n / 2),
    |draft, ix| with_number(draft, ix, |n| n - 1),
    |draft, ix| without_step(draft, ix, false),
    |draft, ix| without_step(draft, ix, true),
    |draft, ix| without_part(draft, "lock", ix),
    |draft, ix| without_part(draft, "channel", ix),
    |draft, ix| without_part(draft, "group", ix),
    without_key,
    with_half_the_time,
    |draft, ix| change_value(draft, ix, rounder),
];

/// Removes a part. What names it goes too; tasks of a group move to its parent.
fn without_part(draft: &mut Builder, kind: &str, ix: usize) -> Option<()> {
    let mut places = draft.parts.iter().enumerate().filter(|(_, (other, _))| *other == kind);
    let (at, _) = places.nth(ix)?;
    let (_, part) = draft.parts.remove(at);
    let Some(Value::Plain(name)) = part.get("name").or(part.get("path")) else { return Some(()) };
    let parent = name.rfind('/').map_or("", |end| name[..end].trim_matches('"'));
    let instead = match kind {
        "group" if parent.is_empty() => Some(Value::from("/")),
        "group" => Some(parent.into()),
        _ => None,
    };
    draft.parts.retain_mut(|(other, table)| {
        redirect_references(table, of_part(other), kind, name, instead.as_ref())
    });
    Some(())
}

/// Replaces the references to a part of this kind and name in a table and its instructions by
/// `instead`, or takes them out. Returns whether the table stays: not without one that it needs.
fn redirect_references(
    table: &mut Table,
    of: &'static table::Table,
    kind: &str,
    name: &str,
    instead: Option<&Value>,
) -> bool {
    let mut stays = true;
    table.fields.retain_mut(|(key, value)| {
        let Some(field) = of.field(key) else { return true };
        match (field.form, value) {
            (Form::Of(other), value) if other == kind && value.is(name) => {
                let Some(instead) = instead else {
                    stays &= !field.needed;
                    return false;
                };
                value.clone_from(instead);
            }
            (Form::Names, Value::List(names)) if kind == "job" => {
                names.retain(|other| !other.is(name));
            }
            (Form::Steps, Value::List(steps)) => steps.retain_mut(|step| match step {
                Value::Table(step) => {
                    let of = of_step(step);
                    redirect_references(step, of, kind, name, instead)
                }
                _ => true,
            }),
            _ => {}
        }
        true
    });
    stays
}

impl Value {
    /// Whether the value is plain and its TOML is exactly this text: `1`, `true`, or a text with
    /// its quotes; false for lists and tables.
    fn is(&self, plain: &str) -> bool {
        matches!(self, Value::Plain(text) if text == plain)
    }
}

impl Table {
    fn get(&self, key: &str) -> Option<&Value> {
        self.fields.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }
}

/// The fields of a part of this kind, such as `task` or `machine.softirq`.
fn of_part(kind: &str) -> &'static table::Table {
    let inside = |table: &'static table::Table, kind: &str| match table.field(kind)?.form {
        Form::Table(of) | Form::Tables(of) => Some(of),
        _ => None,
    };
    let of = kind.split('.').try_fold(&SCENARIO, inside);
    of.unwrap_or(&SCENARIO)
}

/// The fields of an instruction.
fn of_step(step: &Table) -> &'static table::Table {
    let verb = VERBS.iter().find(|(verb, _)| step.get(verb).is_some());
    verb.map_or(&SCENARIO, |(_, table)| table)
}

/// Visits the table and those of the instructions in it, until `visit` returns something.
fn find<T>(
    table: &mut Table,
    of: &'static table::Table,
    visit: &mut impl FnMut(&mut Table, &'static table::Table) -> Option<T>,
) -> Option<T> {
    visit(table, of).or_else(|| {
        let lists = table.fields.iter_mut().filter_map(|(_, value)| match value {
            Value::List(steps) => Some(steps),
            _ => None,
        });
        lists.flatten().find_map(|step| match step {
            Value::Table(step) => {
                let of = of_step(step);
                find(step, of, visit)
            }
            _ => None,
        })
    })
}

/// [`find`] in all parts.
fn find_in_parts<T>(
    draft: &mut Builder,
    mut visit: impl FnMut(&mut Table, &'static table::Table) -> Option<T>,
) -> Option<T> {
    draft.parts.iter_mut().find_map(|(kind, table)| find(table, of_part(kind), &mut visit))
}

/// Replaces the `ix`-th of the values that `change` replaces by others.
fn change_value(
    draft: &mut Builder,
    mut ix: usize,
    change: impl Fn(&table::Field, &Value) -> Option<Value>,
) -> Option<()> {
    let mut visit = |table: &mut Table, of: &'static table::Table| {
        table.fields.iter_mut().find_map(|(key, value)| {
            let changed = change(of.field(key)?, value).filter(|changed| changed != value)?;
            if ix > 0 {
                ix -= 1;
                return None;
            }
            *value = changed;
            Some(())
        })
    };
    visit(&mut draft.top, &SCENARIO).or_else(|| find_in_parts(draft, visit))
}

/// Lowers the `ix`-th number of CPUs, tasks, tokens or repetitions that is above 1.
fn with_number(draft: &mut Builder, ix: usize, lower: fn(u64) -> u64) -> Option<()> {
    change_value(draft, ix, |field, value| {
        let Value::Plain(text) = value else { return None };
        let n = text.parse().ok().filter(|n| *n > 1)?;
        ["cpus", "count", "n", "loop"].contains(&field.name).then(|| lower(n).into())
    })
}

/// Removes an instruction. Of a loop, a system call or a critical section it removes both ends, and
/// the contents unless they are to be kept.
fn without_step(draft: &mut Builder, mut ix: usize, keeps_contents: bool) -> Option<()> {
    find_in_parts(draft, |table, _| {
        let steps = table.fields.iter_mut().find_map(|(key, value)| match value {
            Value::List(steps) if ["program", "syscall", "forever", "do"].contains(key) => {
                Some(steps)
            }
            _ => None,
        })?;
        let Some(Value::Table(step)) = steps.get(ix) else {
            ix -= steps.len();
            return None;
        };
        let lock = step.get("lock").cloned();
        let end = steps.iter().skip(ix).position(
            |other| matches!(other, Value::Table(other) if other.get("unlock") == lock.as_ref()),
        );
        let end = end.filter(|_| lock.is_some()).map_or(ix, |more| ix + more);
        let removed: Vec<Value> = steps.drain(ix..=end).collect();
        if keeps_contents {
            let inside = match removed {
                _ if end > ix => removed[1..removed.len() - 1].to_vec(),
                removed => removed.into_iter().flat_map(body).collect(),
            };
            steps.splice(ix..ix, inside);
        }
        Some(())
    })
}

/// The instructions inside of one.
fn body(step: Value) -> Vec<Value> {
    match step {
        Value::Table(step) => match step.fields.into_iter().next_back() {
            Some((_, Value::List(steps))) => steps,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Removes a key that need not be given. Without its `count` a part could become larger.
fn without_key(draft: &mut Builder, mut ix: usize) -> Option<()> {
    find_in_parts(draft, |table, of| {
        let is_spare =
            |key: &str| key != "count" && of.field(key).is_some_and(|field| !field.needed);
        let mut spare = (0..table.fields.len()).filter(|&at| is_spare(table.fields[at].0));
        let Some(at) = spare.nth(ix) else {
            ix -= table.fields.iter().filter(|(key, _)| is_spare(key)).count();
            return None;
        };
        table.fields.remove(at);
        Some(())
    })
}

/// Halves the duration, down to a millisecond.
fn with_half_the_time(draft: &mut Builder, ix: usize) -> Option<()> {
    let (_, duration) = draft.top.fields.iter_mut().find(|(key, _)| *key == "duration")?;
    let half = last_time_ns(duration)? / 2;
    *duration = Duration::from_nanos(half.max(1_000_000)).into();
    (ix == 0).then_some(())
}

/// A length of time with two significant digits; of a distribution the longest that it names.
fn rounder(field: &table::Field, value: &Value) -> Option<Value> {
    matches!(field.form, Form::Time | Form::Length)
        .then(|| last_time_ns(value))?
        .map(|ns| Duration::from_nanos(rounded(ns)).into())
}

/// Two significant digits, rounded up.
fn rounded(ns: u64) -> u64 {
    let unit = 10_u64.pow(ns.max(1).ilog10().saturating_sub(1));
    ns.checked_next_multiple_of(unit).unwrap_or(ns)
}

/// The last length of time that stands in a value, ns.
fn last_time_ns(value: &Value) -> Option<u64> {
    match value {
        Value::Plain(text) => parse_duration(text.strip_prefix('"')?.strip_suffix('"')?),
        Value::List(values) => values.iter().rev().find_map(last_time_ns),
        Value::Table(table) => table.fields.iter().rev().find_map(|(_, value)| last_time_ns(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Span, parse, print, random};

    #[test]
    fn what_matters_is_all_that_is_left() {
        let has = |workload: &Workload| {
            let mut ops = workload.tasks.iter().flat_map(|task| &task.program);
            ops.any(|op| matches!(op, Op::IrqOff(_)))
        };
        let mut tried = 0;
        let made = |seed| if seed < 40 { random::workload(seed) } else { random::with_jobs(seed) };
        for seed in (0..50).filter(|&seed| has(&made(seed))) {
            tried += 1;
            let small = minimize(&made(seed), 10_000, has);
            assert!(small.jobs.is_empty());
            assert_eq!((small.tasks.len(), small.groups.len()), (1, 1), "{}", print(&small));
            assert_eq!(small.tasks[0].program.len(), 1, "{}", print(&small));
            assert!(small.interventions.is_empty() && small.sources.is_empty());
            assert!(small.locks.is_empty() && small.channels.is_empty());
            assert_eq!(small.machine.cpus, 1);
        }
        assert!(tried > 5);
    }

    #[test]
    fn whatever_is_tried_is_valid_and_can_be_kept() {
        let mut tried = 0;
        minimize(&random::with_jobs(3), 300, |candidate| {
            tried += 1;
            let text = print(candidate);
            parse(&text, "kept.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
            tried % 3 == 0
        });
        assert!(tried > 50);
    }

    #[test]
    fn lengths_become_round() {
        assert_eq!([0, 7, 1_234_567, 99_100_001].map(rounded), [0, 7, 1_300_000, 100_000_000]);
        let long = |workload: &Workload| {
            let ops = workload.tasks.iter().flat_map(|task| &task.program);
            ops.filter(|op| matches!(op, Op::User(Span::Fixed(1_000_000..)))).count() > 0
        };
        let seed = (0..40).find(|&seed| long(&random::real(seed))).unwrap();
        let small = minimize(&random::real(seed), 10_000, long);
        let [Op::User(Span::Fixed(ns))] = small.tasks[0].program[..] else { panic!("{small:?}") };
        assert_eq!(ns, rounded(ns));
    }

    #[test]
    fn attempts_are_bounded() {
        let mut tried = 0;
        minimize(&random::workload(5), 20, |_| {
            tried += 1;
            true
        });
        assert_eq!(tried, 20);
    }
}
