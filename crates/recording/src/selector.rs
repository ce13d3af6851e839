//! Patterns that choose threads of a recording.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use wildmatch::WildMatch;

/// Chooses threads by process, name or control group.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    /// `pid:N`: threads of this process and of its descendants. Where the file does not record
    /// processes, the thread with this id and its descendants.
    Pid(i32),
    /// `comm:PATTERN`: threads with a matching name.
    Comm(WildMatch),
    /// `cgroup:PATTERN`: threads in a group with a matching path, or below it.
    Cgroup(WildMatch),
    /// `PATTERN`: threads with a matching name or in a matching group.
    Any(WildMatch),
}

/// The properties of a thread that a selector is matched against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub comm: &'a str,
    /// Name and id, as in reports.
    pub name: &'a str,
    pub group: Option<&'a str>,
    /// Its own process or thread id and those of its ancestors.
    pub pids: &'a [i32],
}

impl Selector {
    /// Whether it chooses the thread.
    pub(crate) fn matches(&self, subject: &Subject<'_>) -> bool {
        let comm =
            |pattern: &WildMatch| pattern.matches(subject.comm) || pattern.matches(subject.name);
        match self {
            Selector::Pid(pid) => subject.pids.contains(pid),
            Selector::Comm(pattern) => comm(pattern),
            Selector::Cgroup(pattern) => in_group(pattern, subject.group),
            Selector::Any(pattern) => comm(pattern) || in_group(pattern, subject.group),
        }
    }
}

/// Whether the path of the group, or of one above it, matches, with or without its first slash.
fn in_group(pattern: &WildMatch, group: Option<&str>) -> bool {
    let Some(group) = group else { return false };
    let group = group.trim_end_matches('/');
    let ends = group.match_indices('/').map(|(at, _)| at).skip(1);
    let mut paths = ends.chain([group.len()]).map(|end| &group[..end]);
    paths.any(|path| pattern.matches(path) || pattern.matches(path.trim_start_matches('/')))
}

impl FromStr for Selector {
    type Err = Error;

    /// Reads `pid:N`, `comm:PATTERN`, `cgroup:PATTERN` or `PATTERN`; an error for an empty pattern,
    /// or a process that is no number above 0.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            |what: &str| Err(Error::Selector { pattern: text.to_owned(), what: what.to_owned() });
        if let Some(pid) = text.strip_prefix("pid:") {
            return match pid.parse::<i32>() {
                Ok(pid) if pid > 0 => Ok(Selector::Pid(pid)),
                _ => refuse("the number of a process is needed behind pid:"),
            };
        }
        let (make, pattern): (fn(WildMatch) -> Selector, &str) =
            if let Some(pattern) = text.strip_prefix("comm:") {
                (Selector::Comm, pattern)
            } else if let Some(pattern) = text.strip_prefix("cgroup:") {
                (Selector::Cgroup, pattern)
            } else {
                (Selector::Any, text)
            };
        if pattern.is_empty() {
            return refuse("it is empty");
        }
        Ok(make(WildMatch::new(pattern)))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Pid(pid) => write!(f, "pid:{pid}"),
            Selector::Comm(pattern) => write!(f, "comm:{pattern}"),
            Selector::Cgroup(pattern) => write!(f, "cgroup:{pattern}"),
            Selector::Any(pattern) => write!(f, "{pattern}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Selector, Subject};

    const NGINX: Subject<'_> = Subject {
        comm: "nginx",
        name: "nginx/71",
        group: Some("/system.slice/nginx.service"),
        pids: &[71, 70, 1],
    };

    #[test]
    fn chooses_by_process_name_and_group() {
        for (pattern, want) in [
            ("pid:71", true),
            ("pid:70", true),
            ("pid:7", false),
            ("comm:ngin?", true),
            ("comm:system*", false),
            ("cgroup:/system.slice", true),
            ("cgroup:system.slice/nginx*", true),
            ("cgroup:nginx", false),
            ("nginx", true),
            ("nginx/71", true),
            ("*.service", true),
            ("apache", false),
        ] {
            let selector: Selector = pattern.parse().unwrap();
            assert_eq!(selector.matches(&NGINX), want, "{pattern}");
            assert_eq!(selector.to_string(), pattern);
        }
    }

    #[test]
    fn refuses_patterns_that_choose_nothing() {
        for pattern in ["", "pid:", "pid:x", "pid:-1", "comm:", "cgroup:"] {
            assert!(pattern.parse::<Selector>().is_err(), "{pattern}");
        }
    }
}
