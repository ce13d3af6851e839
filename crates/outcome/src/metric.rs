//! Finds one number of an [`Outcome`] by its path in the JSON object of the run.
//!
//! `groups./limited.usage_usec` is the member `usage_usec` of the member `/limited` of `groups`.
//! Names of groups and tasks may contain dots, so at each step the longest name that fits is tried
//! first.

use crate::Outcome;
use serde_json::Value;
use thiserror::Error;

/// Names that an error lists when none is similar.
const NAMES_LISTED: usize = 12;

/// A path does not lead to a number.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the text or the name of a variant tells its fields")]
pub enum MetricError {
    /// There is no member of that name.
    #[error("metric `{path}`: {} has no `{rest}`; {hint}", place(found))]
    NoSuchMember {
        path: String,
        /// The part that could be followed; empty at the top.
        found: String,
        rest: String,
        /// The name that was probably meant, or all names.
        hint: String,
    },
    /// The path ends at an object, a list or a text.
    #[error("metric `{path}` is {what}, not a number; {hint}")]
    NotANumber {
        path: String,
        /// The kind of value at its end.
        what: &'static str,
        /// Names by which the path could go on.
        hint: String,
    },
}

/// The followed part of a path in quotes, or "the result" at the top, for messages.
fn place(found: &str) -> String {
    if found.is_empty() { "the result".to_owned() } else { format!("`{found}`") }
}

impl Outcome {
    /// The number at `path` of the outcome's JSON, in the unit that its name ends with.
    ///
    /// # Errors
    /// The path names nothing, or something that is not a number.
    pub fn metric(&self, path: &str) -> Result<f64, MetricError> {
        let Ok(whole) = serde_json::to_value(self) else {
            unreachable!("an outcome has only text keys and numbers that JSON can hold")
        };
        let at = follow(&whole, path).map_err(|end| no_such_member(path, &end))?;
        match at {
            Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN)),
            other => Err(MetricError::NotANumber {
                path: path.to_owned(),
                what: kind(other),
                hint: hint(other, ""),
            }),
        }
    }
}

/// The point at which a path could not be followed.
struct DeadEnd<'a> {
    at: &'a Value,
    rest: String,
}

/// The value that a path leads to from `at`. Tries the longest member name first, and shorter ones
/// only if that leads nowhere; of several dead ends the deepest is the error.
fn follow<'a>(at: &'a Value, path: &str) -> Result<&'a Value, DeadEnd<'a>> {
    let mut deepest = DeadEnd { at, rest: path.to_owned() };
    let ends = path.match_indices('.').map(|(dot, _)| dot).chain([path.len()]);
    let mut ends: Vec<usize> = ends.collect();
    ends.reverse();
    for end in ends {
        let Some(member) = member(at, &path[..end]) else {
            continue;
        };
        if end == path.len() {
            return Ok(member);
        }
        match follow(member, &path[end + 1..]) {
            Ok(value) => return Ok(value),
            Err(dead_end) if dead_end.rest.len() < deepest.rest.len() => deepest = dead_end,
            Err(_) => {}
        }
    }
    Err(deepest)
}

/// The member of an object by name, or of a list by number; `None` if there is none.
fn member<'a>(at: &'a Value, name: &str) -> Option<&'a Value> {
    match at {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    }
}

/// The error of a path that ends at `end`, with a hint how it could go on.
fn no_such_member(path: &str, end: &DeadEnd) -> MetricError {
    let found = path[..path.len() - end.rest.len()].trim_end_matches('.');
    MetricError::NoSuchMember {
        path: path.to_owned(),
        found: found.to_owned(),
        rest: end.rest.clone(),
        hint: hint(end.at, &end.rest),
    }
}

/// A text on the member of `at` that `asked` probably meant, else on the first twelve.
fn hint(at: &Value, asked: &str) -> String {
    let Value::Object(members) = at else {
        return format!("it is {}", kind(at));
    };
    let first = asked.split('.').next().unwrap_or(asked);
    let likeness =
        |name: &str| strsim::jaro_winkler(name, first).max(strsim::jaro_winkler(name, asked));
    let close = members
        .keys()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((_, name)) = close {
        return format!("did you mean `{name}`?");
    }
    if members.is_empty() {
        return "it is empty".to_owned();
    }
    let listed: Vec<&str> = members.keys().take(NAMES_LISTED).map(String::as_str).collect();
    let more = if members.len() > NAMES_LISTED { ", …" } else { "" };
    format!("there are: {}{more}", listed.join(", "))
}

/// The kind of a JSON value, in words.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Whether a name that a world reports as not measured covers a number: it is the path itself, the
/// path of an object around it, or either with `*` for one group or kind of task.
pub fn stands_for(name: &str, path: &str) -> bool {
    let Some((before, after)) = name.split_once('*') else {
        return path
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    };
    let rest = path.strip_prefix(before);
    // Names of groups and tasks may have dots: the end of the path decides.
    rest.is_some_and(|rest| after.is_empty() || rest.ends_with(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupOutcome, TaskOutcome};

    fn outcome() -> Outcome {
        let mut outcome = Outcome {
            scenario: "s".to_owned(),
            world: "model".to_owned(),
            kernel: "6.18".to_owned(),
            generation: "G3".to_owned(),
            seed: 1,
            simulated_ns: 10_000_000_000,
            groups: std::collections::BTreeMap::new(),
            tasks: std::collections::BTreeMap::new(),
            release: crate::ReleaseOutcome::default(),
            events: 42,
        };
        for (path, usage_usec) in [("/limited", 7), ("/a", 1), ("/a.b", 2), ("/a.usage_usec", 3)] {
            let group = GroupOutcome { usage_usec, ..GroupOutcome::default() };
            outcome.groups.insert(path.to_owned(), group);
        }
        let mut hog = TaskOutcome::default();
        hog.latency_ns.p99 = 99;
        outcome.tasks.insert("hog.1".to_owned(), hog);
        outcome.release.irqoff_ns.histogram = vec![[32, 64, 5]];
        outcome
    }

    #[test]
    fn numbers_are_found_at_every_depth() {
        let outcome = outcome();
        for (path, value) in [
            ("events", 42.0),
            ("simulated_ns", 1e10),
            ("groups./limited.usage_usec", 7.0),
            ("tasks.hog.1.latency_ns.p99", 99.0),
            ("release.irqoff_ns.histogram.0.2", 5.0),
        ] {
            assert_eq!(outcome.metric(path), Ok(value), "{path}");
        }
    }

    #[test]
    fn the_longest_name_wins_but_a_shorter_one_is_tried_too() {
        let outcome = outcome();
        assert_eq!(outcome.metric("groups./a.b.usage_usec"), Ok(2.0));
        assert_eq!(outcome.metric("groups./a.usage_usec.usage_usec"), Ok(3.0));
        assert_eq!(outcome.metric("groups./a.nr_periods"), Ok(0.0));
    }

    #[test]
    fn a_wrong_name_is_named_with_what_was_probably_meant() {
        let errors = [
            (
                "group./limited.usage_usec",
                "the result has no `group./limited.usage_usec`; did you mean `groups`?",
            ),
            (
                "groups./limitd.usage_usec",
                "`groups` has no `/limitd.usage_usec`; did you mean `/limited`?",
            ),
            (
                "groups./limited.usage",
                "`groups./limited` has no `usage`; did you mean `usage_usec`?",
            ),
            (
                "tasks.hog.1.latency_ns.q",
                "`tasks.hog.1.latency_ns` has no `q`; there are: max, p50, p99",
            ),
        ];
        for (path, text) in errors {
            let error = outcome().metric(path).unwrap_err().to_string();
            assert_eq!(error, format!("metric `{path}`: {text}"));
        }
    }

    #[test]
    fn paths_to_other_values_are_refused() {
        let error = outcome().metric("groups./limited").unwrap_err().to_string();
        assert!(
            error.starts_with("metric `groups./limited` is an object, not a number; there are: "),
            "{error}"
        );
        let error = outcome().metric("kernel").unwrap_err().to_string();
        assert!(error.contains("is a text"), "{error}");
        let error = outcome().metric("").unwrap_err().to_string();
        assert!(error.contains("the result has no ``"), "{error}");
    }

    #[test]
    fn names_of_missing_numbers_may_have_a_star() {
        let path = "groups./a.b.throttled_usec";
        for name in [path, "groups", "groups.*.throttled_usec", "groups.*"] {
            assert!(stands_for(name, path), "{name}");
        }
        for name in ["group", "tasks.*.usage_usec", "groups.*.usage_usec", "groups./a.b.throttled"]
        {
            assert!(!stands_for(name, path), "{name}");
        }
    }
}
