//! Reads recordings; finds the group to limit, and the kinds of its threads.

use cpumax_recording::Error as Unreadable;
use cpumax_recording::{
    Evidence, Loop, Options, Recording, Selection, Service, Summary, ThreadSummary, Waits,
};
use cpumax_study::{Error, world::guarded};
use cpumax_workload::{GroupIx, TaskSpec, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// Reads a recording; `-` is standard input. A panic of the crate that reads perf.data becomes an
/// error; its input is checked before, so none is known.
///
/// # Errors
/// It cannot be read, is not a recording, or contradicts itself.
pub fn read(path: &Path, options: Options) -> Result<Recording, Error> {
    let name = name(path);
    catch_panic(&name, || {
        if is_stdin(path) {
            return Recording::read_pipe(&name, io::stdin().lock(), options);
        }
        Recording::read(path, options)
    })
}

/// Calls `read`, and turns a panic of it into an error that the recording `name` is malformed.
fn catch_panic<T>(name: &str, read: impl FnOnce() -> Result<T, Unreadable>) -> Result<T, Error> {
    let result = guarded(read).unwrap_or_else(|_| {
        Err(Unreadable::Malformed {
            name: name.to_owned(),
            place: "somewhere".to_owned(),
            what: "the file contradicts itself, and its reader failed".to_owned(),
        })
    });
    Ok(result?)
}

/// Name of a recording: its file's name, or `standard input`.
pub fn name(path: &Path) -> String {
    if is_stdin(path) {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Whether the path is `-`, which stands for standard input.
fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The contents of a recording, as docs/reference/json.md describes it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Inspected {
    /// Its name.
    name: String,
    #[serde(flatten)]
    summary: Summary,
    /// Number of waits of its threads, and of those whose waker is known.
    waits: Waits,
    /// Services that answer requests, by name of their threads, or by path of the group where
    /// requests are inferred.
    services: BTreeMap<String, Served>,
}

impl Inspected {
    /// The contents of a recording of this name.
    ///
    /// ```
    /// use cpumax_forecast::recorded::{self, Inspected};
    /// use cpumax_recording::Options;
    ///
    /// let path = "../../recordings/web-closed.perf.data".as_ref();
    /// let recording = recorded::read(path, Options::default())?;
    /// let told = serde_json::to_value(Inspected::new(&recorded::name(path), &recording))?;
    /// assert_eq!(told["name"], "web-closed.perf.data");
    /// assert_eq!(told["waits"]["all"], 2278);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(name: &str, recording: &Recording) -> Inspected {
        let summary = recording.summary();
        let services = services(recording, &summary).into_iter();
        Inspected {
            name: name.to_owned(),
            waits: Waits::of(&summary.threads),
            services: services.map(|(name, one)| (name, Served::of(&one))).collect(),
            summary,
        }
    }
}

/// Groups in which services are searched: those that used most CPU time.
const GROUPS_MOST: usize = 3;

/// Services that answer requests, each with a name: threads whose requests are recorded, by name,
/// then those of the three busiest groups whose requests are inferred from wakeups, by path.
pub fn services(recording: &Recording, summary: &Summary) -> Vec<(String, Service)> {
    let mut services = recording.services();
    let own = own_runtime(summary);
    let mut busiest: Vec<(u64, &str)> = own.into_iter().map(|(path, ns)| (ns, path)).collect();
    busiest.sort_unstable_by_key(|(ns, path)| (u64::MAX - ns, *path));
    for (_, path) in busiest.into_iter().take(GROUPS_MOST) {
        let selection = Selection { group: path.to_owned(), ..Selection::default() };
        if let Ok((_, Some(service))) = recording.import(&selection)
            && !service.recorded
        {
            services.push((path.to_owned(), service));
        }
    }
    services
}

/// Requests of a service, and which of their properties were guessed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Served {
    /// Number of requests.
    requests: u64,
    /// Number of their connections.
    connections: u32,
    /// Whether requests were recorded; otherwise they are inferred from wakeups.
    recorded: bool,
    /// How clients are replayed: by a plan (open), or a while after each answer (closed).
    clients: Loop,
    /// Whether that is certain or given by the user; otherwise it is guessed.
    sure: bool,
    /// Evidence in the recording for either.
    evidence: Evidence,
}

impl Served {
    /// Counts and guesses of a service as they are saved.
    pub(crate) fn of(service: &Service) -> Served {
        Served {
            requests: service.requests.len() as u64,
            connections: service.connections,
            recorded: service.recorded,
            clients: service.clients,
            sure: service.sure,
            evidence: service.evidence,
        }
    }
}

/// Threads that are suggested when none was chosen.
const SUGGESTED: usize = 5;

/// CPU time (ns) and number of threads of each group with those of groups below it, by path;
/// without the root and groups that have no threads.
pub fn runtime_by_group(threads: &[ThreadSummary]) -> BTreeMap<&str, (u64, u64)> {
    let mut groups: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for thread in threads {
        let Some(path) = thread.group.as_deref() else { continue };
        for path in self_and_parents(path) {
            let (runtime_ns, count) = groups.entry(path).or_default();
            *runtime_ns += thread.runtime_ns;
            *count += 1;
        }
    }
    groups
}

/// `/a/b` and `/a`, but not `/`.
fn self_and_parents(path: &str) -> impl Iterator<Item = &str> {
    let path = path.trim_end_matches('/');
    let ends = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0).chain([path.len()]);
    ends.filter(|&end| end > 0).map(|end| &path[..end])
}

/// CPU time of the threads directly in each group but the root, ns, without kernel threads.
fn own_runtime(summary: &Summary) -> BTreeMap<&str, u64> {
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for thread in summary.threads.iter().filter(|thread| !thread.kernel) {
        if let Some(path) = thread.group.as_deref().filter(|path| path.len() > 1) {
            *own.entry(path).or_default() += thread.runtime_ns;
        }
    }
    own
}

/// The group that is limited by default: the one whose own threads used most CPU time. The error
/// names the five busiest threads of a recording without groups.
pub(crate) fn busiest_group(summary: &Summary) -> Result<String, Error> {
    let own = own_runtime(summary);
    if let Some((path, _)) = own.iter().max_by_key(|(_, runtime_ns)| **runtime_ns) {
        return Ok((*path).to_owned());
    }
    let busy = summary
        .threads
        .iter()
        .filter(|thread| !thread.kernel)
        .take(SUGGESTED)
        .map(|thread| (thread.name.clone(), thread.runtime_ns))
        .collect();
    Err(Error::NoGroups { recorded: summary.has_groups, busy })
}

/// The group of this path in the workload of a recording; the error is [`Error::NotInGroup`].
pub(crate) fn find_group(workload: &Workload, path: &str) -> Result<GroupIx, Error> {
    let at = workload.groups.iter().position(|group| group.path == path.trim_end_matches('/'));
    at.map(|at| at as GroupIx).ok_or_else(|| Error::NotInGroup { path: path.to_owned() })
}

/// The tasks in this group or below it, in the workload's order.
pub(crate) fn tasks_in(workload: &Workload, group: GroupIx) -> Vec<&TaskSpec> {
    let within = |task: &&TaskSpec| {
        let mut at = Some(task.group);
        while let Some(ix) = at {
            if ix == group {
                return true;
            }
            at = workload.groups[ix as usize].parent;
        }
        false
    };
    workload.tasks.iter().filter(within).collect()
}

/// Labels the threads of one kind alike, so that a run reports kinds: `srv-00/4711` becomes `srv-`.
/// A kind that occurs in the limited group and outside of it has two labels. An error if the
/// workload is not valid with these.
pub(crate) fn label_by_kind(workload: Workload, group: GroupIx) -> Result<Workload, Error> {
    let inside: BTreeSet<String> =
        tasks_in(&workload, group).iter().map(|task| task.name.clone()).collect();
    let inside_kinds: BTreeSet<String> = inside.iter().map(|name| kind(name).to_owned()).collect();
    Ok(workload.with_labels(|task| {
        let kind = kind(&task.name);
        let shared = inside_kinds.contains(kind) && !inside.contains(&task.name);
        Some(if shared { format!("{kind} (not limited)") } else { kind.to_owned() })
    })?)
}

/// The name of a thread without its id and numbers; every kworker is `kworker`.
fn kind(name: &str) -> &str {
    let comm = name.rsplit_once('/').map_or(name, |(comm, _)| comm);
    if comm.starts_with("kworker/") {
        return "kworker";
    }
    cpumax_recording::unnumbered(comm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_its_reader_does_not_survive_is_at_fault() {
        let read = || Ok([1, 2][std::hint::black_box(2)]);
        let told = catch_panic("x.data", read).unwrap_err().to_string();
        assert!(told.starts_with("x.data") && told.contains("contradicts itself"), "{told}");
        assert!(matches!(catch_panic("x.data", || Ok(3)), Ok(3)));
    }

    #[test]
    fn threads_of_a_kind_differ_by_numbers_only() {
        for (name, of) in [
            ("srv-00/4711", "srv-"),
            ("srv-01/4712#2", "srv-"),
            ("nginx/71", "nginx"),
            ("kworker/u8:2-events/17", "kworker"),
            ("2024/5", "2024"),
            ("a/b/6", "a/b"),
            ("?", "?"),
        ] {
            assert_eq!(kind(name), of, "{name}");
        }
    }

    #[test]
    fn a_path_belongs_to_itself_and_those_above() {
        assert_eq!(self_and_parents("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(self_and_parents("/").count(), 0);
    }
}
