//! Counters of groups from the `sched_ext` scheduler, through its socket.
//!
//! The scheduler is another program under another licence: both share only lines of JSON.

use cpumax_study::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Name of the scheduler's program.
pub const PROGRAM: &str = "scx_cpumax";

/// Path of the scheduler: beside this program, or else in `PATH`; `None` where there is none.
pub fn program() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|me| Some(me.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut all = beside.into_iter().chain(env::split_paths(&path)).map(|dir| dir.join(PROGRAM));
    all.find(|program| program.is_file())
}

const ANSWER_MAX: u64 = 1 << 24;
/// Longest time without a byte of the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time for the whole answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Counters of one group; 0 where the scheduler does not know them. Times are in us unless the name
/// says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GroupStat {
    /// Burst that the limit allows.
    pub burst_limit_usec: u64,
    /// Runtime used as burst, in all.
    pub burst_usec: u64,
    /// Runtime charged to the group while it had a limit.
    pub charged_usec: u64,
    /// Debt: runtime used beyond the quota and not yet paid back.
    pub debt_usec: u64,
    /// Path below the root of the hierarchy; the root is `/`.
    pub group: String,
    /// Runtime in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Released tasks that then waited for the runtime of another level.
    pub moved_on: u64,
    /// Periods in which a burst was used.
    pub nr_bursts: u64,
    /// Periods that passed.
    pub nr_periods: u64,
    /// Those in which the group was throttled.
    pub nr_throttled: u64,
    /// Tasks that are parked right now.
    pub parked: u64,
    /// Time for which tasks were parked, summed over tasks.
    pub parked_usec: u64,
    /// Number of parks.
    pub parks: u64,
    /// Those of `parks` whose task had no room for a visit to the boundary, wherever it was queued.
    pub parks_queued: u64,
    /// Runtime of tasks that were let through for the kernel's watchdog; charged to no group.
    pub pass_usec: u64,
    /// Length of a period.
    pub period_usec: u64,
    /// Runtime left in this period.
    pub pool_usec: u64,
    /// Runtime in a period; null where the group has no limit of its own.
    pub quota_usec: Option<u64>,
    /// Visits to the boundary that could not be arranged at once.
    pub refused: u64,
    /// Time of all releases, ns.
    pub release_cost_nsec: u64,
    /// Tasks released.
    pub released: u64,
    /// CPU time used in kernel mode, as the kernel counts it.
    pub system_usec: u64,
    /// Its threads, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStat>,
    /// Time throttled, summed over CPUs.
    pub throttled_usec: u64,
    /// Runtime that is missing from the books, ns: 0 while none of its tasks runs.
    pub unaccounted_nsec: i64,
    /// CPU time used, as the kernel counts it.
    pub usage_usec: u64,
    /// CPU time used in user mode, as the kernel counts it.
    pub user_usec: u64,
    /// Tasks let through so that the kernel's watchdog sees them run.
    pub watchdog_passes: u64,
    /// Further fields of a newer scheduler.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// Counters of one thread. Times are in us.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskStat {
    /// Time from its arrival at the boundary until it was parked.
    pub boundary_usec: u64,
    /// Number of its visits to the boundary.
    pub boundary_visits: u64,
    /// Its name.
    pub comm: String,
    /// Visits that took two hops.
    pub hops: u64,
    /// Runtime in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Whether it is parked right now.
    pub parked: bool,
    /// Time for which it was parked.
    pub parked_usec: u64,
    /// Number of times it was parked.
    pub parks: u64,
    /// Its thread id.
    pub tid: u64,
    /// Further fields of a newer scheduler.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// The question: one line.
#[derive(Serialize)]
struct Question<'a> {
    group: Option<&'a str>,
    tasks: bool,
}

/// The answer: one line.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Groups(Vec<GroupStat>),
    Error(String),
}

/// Asks the scheduler at `socket` for one group, or for all groups with a limit; and for their
/// threads if `tasks`. Blocks for ten seconds at most.
///
/// # Errors
/// No answer comes within two seconds, the scheduler refuses, or another program answers.
///
/// ```
/// use cpumax_observed::scheduler;
/// use cpumax_study::Error;
///
/// match scheduler::ask("/run/scx_cpumax.sock".as_ref(), Some("/web"), true) {
///     Ok(groups) => {
///         for group in groups {
///             println!("{}: {} of {}", group.group, group.nr_throttled, group.nr_periods);
///         }
///     }
///     Err(Error::NoScheduler { socket, .. }) => println!("nobody answers at {socket}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
pub fn ask(socket: &Path, group: Option<&str>, tasks: bool) -> Result<Vec<GroupStat>, Error> {
    let at = || cpumax_limit::shown(socket);
    let failed = |source: io::Error| match source.kind() {
        // A socket's error on a timeout.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::SilentScheduler { socket: at(), seconds: PATIENCE.as_secs() }
        }
        _ => Error::File { path: at(), source },
    };
    let mut stream = connect(socket).map_err(|source| match source.kind() {
        ErrorKind::TimedOut => failed(source),
        _ => Error::NoScheduler { socket: at(), source },
    })?;
    let question = serde_json::to_string(&Question { group, tasks });
    let question = question.map_err(|error| failed(error.into()))?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    writeln!(stream, "{question}").map_err(failed)?;
    let mut line = String::new();
    let patient = Patient { stream, until: Instant::now() + ANSWER_TIME };
    BufReader::new(patient.take(ANSWER_MAX)).read_line(&mut line).map_err(failed)?;
    match serde_json::from_str(&line) {
        Ok(Answer::Groups(groups)) => Ok(groups),
        Ok(Answer::Error(error)) => Err(Error::Refused(error)),
        Err(source) => Err(Error::NotTheScheduler { socket: at(), source }),
    }
}

/// Connects on a thread of its own; an error if refused, or `TimedOut` after two seconds, where the
/// backlog is full. That thread then stays until the kernel answers it.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (tell, told) = mpsc::channel();
    let socket = socket.to_owned();
    thread::spawn(move || {
        let _ = tell.send(UnixStream::connect(socket));
    });
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// A stream with a timeout for each part and for the whole answer.
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Read for Patient {
    /// Reads what is there, and waits for it at most two seconds and until the whole answer is due;
    /// `TimedOut` after that.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now()).min(PATIENCE);
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_silent_scheduler_is_given_up() {
        let dir = std::env::temp_dir().join(format!("cpumax-silent-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let begin = Instant::now();
        let error = ask(&path, None, false).unwrap_err().to_string();
        assert!(error.contains("no answer for 2 s"), "{error}");
        assert!(begin.elapsed() < PATIENCE * 5, "{:?}", begin.elapsed());
        drop(listener);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_refusal_is_an_error_and_so_is_silence() {
        let dir = std::env::temp_dir().join(format!("cpumax-scheduler-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("socket");
        assert!(ask(&path, None, false).unwrap_err().to_string().contains("cpumax sched"));
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let mut asked = Vec::new();
            for reply in [
                "{\"error\":\"there is no cgroup\"}\n",
                "{\"groups\":[{\"group\":\"/a\",\"quota_usec\":5,\"new\":1}]}\n",
                "what?\n",
                "",
            ] {
                let (mut client, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(client.try_clone().unwrap()).read_line(&mut line).unwrap();
                client.write_all(reply.as_bytes()).unwrap();
                asked.push(line);
            }
            asked
        });
        assert!(ask(&path, Some("/x"), true).unwrap_err().to_string().contains("no cgroup"));
        let told = ask(&path, None, false).unwrap();
        assert_eq!((told[0].group.as_str(), told[0].quota_usec), ("/a", Some(5)));
        assert_eq!(told[0].more["new"], 1, "what is not known is handed on");
        for _ in 0..2 {
            let error = ask(&path, None, false).unwrap_err().to_string();
            assert!(error.contains("not an answer of scx_cpumax"), "{error}");
        }
        assert_eq!(server.join().unwrap()[0], "{\"group\":\"/x\",\"tasks\":true}\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
