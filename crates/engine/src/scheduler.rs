//! What the `sched_ext` scheduler did to groups, asked of its socket.
//!
//! The scheduler is another program under another licence: nothing is shared but lines of JSON.

use crate::error::Error;
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

/// What the scheduler is called.
pub const PROGRAM: &str = "scx_cpumax";

/// Where the scheduler is: beside this program, or in `PATH`.
pub fn program() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|me| Some(me.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut all = beside.into_iter().chain(env::split_paths(&path)).map(|dir| dir.join(PROGRAM));
    all.find(|program| program.is_file())
}

/// A longer answer is none.
const ANSWER_MAX: u64 = 1 << 24;
/// How long a scheduler may say nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may take for all of its answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// One group; what a scheduler does not tell is 0. Times are in us unless the name says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GroupStat {
    /// How much burst the limit allows.
    pub burst_limit_usec: u64,
    /// Used beyond the quota, in all.
    pub burst_usec: u64,
    /// Charged to the group while it had a limit.
    pub charged_usec: u64,
    /// Used beyond the quota and not yet paid back.
    pub debt_usec: u64,
    /// Path below the root of the hierarchy; the root is `/`.
    pub group: String,
    /// Run in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Released tasks that went on to wait for another level's runtime.
    pub moved_on: u64,
    /// Periods in which a burst was used.
    pub nr_bursts: u64,
    /// Periods gone by.
    pub nr_periods: u64,
    /// Of these, in which the group was throttled.
    pub nr_throttled: u64,
    /// Tasks that wait for runtime right now.
    pub parked: u64,
    /// For how long tasks were parked, summed over them.
    pub parked_usec: u64,
    /// How often tasks were parked.
    pub parks: u64,
    /// Of `parks`, those of tasks without room for a visit: wherever they were queued.
    pub parks_queued: u64,
    /// What tasks ran that the kernel's watchdog was to see run: charged to nobody.
    pub pass_usec: u64,
    /// Length of a period.
    pub period_usec: u64,
    /// Runtime left of this period.
    pub pool_usec: u64,
    /// Runtime in a period; null: the group has no limit of its own.
    pub quota_usec: Option<u64>,
    /// Visits to the boundary that could not be arranged at once.
    pub refused: u64,
    /// What releases cost in all, ns.
    pub release_cost_nsec: u64,
    /// Tasks released.
    pub released: u64,
    /// CPU time used in kernel mode, as the kernel counts it.
    pub system_usec: u64,
    /// Its threads, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskStat>,
    /// Time throttled, summed over CPUs.
    pub throttled_usec: u64,
    /// Runtime that nobody has: 0 while none of its tasks runs, ns.
    pub unaccounted_nsec: i64,
    /// CPU time used, as the kernel counts it.
    pub usage_usec: u64,
    /// CPU time used in user mode, as the kernel counts it.
    pub user_usec: u64,
    /// Tasks let through so that the kernel's watchdog sees them run.
    pub watchdog_passes: u64,
    /// What a newer scheduler tells besides.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// One thread. Times are in us.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskStat {
    /// From arriving at the boundary to being parked.
    pub boundary_usec: u64,
    /// How often it came by the boundary.
    pub boundary_visits: u64,
    /// Its name.
    pub comm: String,
    /// How often that took two hops.
    pub hops: u64,
    /// Run in kernel mode while throttled.
    pub kernel_overrun_usec: u64,
    /// Whether it waits for runtime right now.
    pub parked: bool,
    /// For how long it was parked.
    pub parked_usec: u64,
    /// How often it was parked.
    pub parks: u64,
    /// Its number.
    pub tid: u64,
    /// What a newer scheduler tells besides.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

/// What is asked: one line.
#[derive(Serialize)]
struct Question<'a> {
    group: Option<&'a str>,
    tasks: bool,
}

/// What is answered: one line.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Groups(Vec<GroupStat>),
    Error(String),
}

/// Asks the scheduler that answers at `socket` of one group, or of all that have a limit, and of
/// their threads if `tasks`.
///
/// # Errors
/// Nobody answers there or not for two seconds, the scheduler refuses, or what answers is not it.
///
/// ```
/// use cpumax_engine::{Error, scheduler};
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
        // What a socket says whose time is up.
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

/// Connects, or gives up where too many others wait for that already.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let (tell, told) = mpsc::channel();
    let socket = socket.to_owned();
    thread::spawn(move || {
        let _ = tell.send(UnixStream::connect(socket));
    });
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// A stream that waits for each part so long, and for all of them so long.
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Read for Patient {
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
    fn one_that_takes_a_question_and_says_nothing_is_given_up() {
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
