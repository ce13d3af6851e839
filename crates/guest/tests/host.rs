//! The guest on this machine: its tasks do what the scenario says, and it leaves nothing behind.
//! Needs control groups that the test may make.

use cpumax_protocol::{FromGuest, Job, Report, ToGuest};
use cpumax_require::{Need, missing};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const BUFFERS: &str = "/sys/kernel/tracing/instances";

struct Guest {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Guest {
    /// A guest that is ready; `None` where it may make no groups.
    fn start() -> Option<Guest> {
        Guest::start_by(Command::new(env!("CARGO_BIN_EXE_cpumax-guest")))
    }

    /// A guest in a PID namespace of its own; `None` where there are none.
    fn start_in_namespace() -> Option<Guest> {
        let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc"];
        let may = Command::new("unshare").args(namespace).arg("true").status();
        if !may.is_ok_and(|status| status.success()) {
            missing(Need::Mount, "PID namespaces with mounts of their own");
            return None;
        }
        let mut command = Command::new("unshare");
        // The namespace's first process adopts orphans: let it be a shell.
        let script = concat!(env!("CARGO_BIN_EXE_cpumax-guest"), "; exit $?");
        command.args(namespace).args(["sh", "-c", script]);
        Guest::start_by(command)
    }

    fn start_by(mut command: Command) -> Option<Guest> {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the guest starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("it has an output"));
        let mut guest = Guest { process, input, output };
        match guest.next() {
            FromGuest::Ready(ready) if may_make_groups() => {
                assert_eq!(ready.world, "host");
                assert!(ready.hz >= 100 && ready.calibration.user_turn_ps > 0, "{ready:?}");
                Some(guest)
            }
            other => {
                missing(Need::Cgroup, format!("groups that a guest may make: {other:?}"));
                None
            }
        }
    }

    fn say(&mut self, message: &ToGuest) {
        let line = serde_json::to_string(message).expect("is JSON");
        let input = self.input.as_mut().expect("is open");
        writeln!(input, "{line}").expect("the guest listens");
    }

    fn next(&mut self) -> FromGuest {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the guest talks");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn job(&mut self, scenario: &str) -> FromGuest {
        self.say(&ToGuest::Job(Job { scenario: scenario.to_owned(), seed: 1, ..Job::default() }));
        self.next()
    }

    fn run(&mut self, scenario: &str) -> Report {
        match self.job(scenario) {
            FromGuest::Result(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    /// The guest's own groups, and its markers of a lent controller.
    fn groups(&self) -> Vec<PathBuf> {
        groups(&format!("cpumax-{}-", self.process.id()))
    }

    /// Waits for its end and checks that nothing is left.
    fn ended(mut self) {
        let begin = Instant::now();
        while self.process.try_wait().expect("it can be waited for").is_none() {
            assert!(begin.elapsed() < Duration::from_secs(10), "the guest does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.groups(), [""; 0].map(PathBuf::from));
        assert_eq!(self.buffers(), 0);
    }

    /// Number of its trace instances.
    fn buffers(&self) -> usize {
        let prefix = format!("cpumax-{}-", self.process.id());
        let entries = std::fs::read_dir(BUFFERS).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

/// Groups with this prefix.
fn groups(prefix: &str) -> Vec<PathBuf> {
    let tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"];
    let entries = tops.iter().flat_map(|top| std::fs::read_dir(top).into_iter().flatten());
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_it).collect()
}

fn may_trace() -> bool {
    Path::new(BUFFERS).exists()
}

/// Where the guest makes its groups.
fn top() -> Option<&'static str> {
    let tops = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
    tops.into_iter().find(|top| Path::new(&format!("{top}/cgroup.procs")).exists())
}

/// Tried once, as parallel tests would find each other's probe group.
fn may_make_groups() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let Some(top) = top() else { return false };
        let probe = format!("{top}/cpumax-probe-{}", std::process::id());
        let made = std::fs::create_dir(&probe).is_ok();
        let _ = std::fs::remove_dir(&probe);
        made
    })
}

const LIMITED: &str = r#"
duration = "450ms"
[[group]]
path = "/limited"
max = "20000 100000"
[[task]]
name = "hog"
count = 2
group = "/limited"
program = [{ forever = [{ user = "1s" }] }]
"#;

#[test]
fn a_limit_holds_real_tasks_back() {
    let Some(mut guest) = Guest::start() else { return };
    let report = guest.run(LIMITED);
    let limited = &report.outcome.groups["/limited"];
    // One quota for each period that begins, and the overrun of two CPUs; less on a busy machine.
    assert!((20_000..=130_000).contains(&limited.usage_usec), "{limited:?}");
    assert!((4..=5).contains(&limited.nr_periods) && limited.nr_throttled >= 1, "{limited:?}");
    assert_eq!(report.outcome.tasks["hog"].count, 2);
    assert_eq!(report.conditions.first_tick_ns, Some(0));
    assert!(report.conditions.first_edge_ns["/limited"] < 100_000_000);
    guest.say(&ToGuest::Quit);
    guest.ended();
}

const PARTS: &str = r#"
duration = "2s"
[[lock]]
name = "shared"
kind = "rwsem"
[[channel]]
name = "requests"
[[channel]]
name = "few"
capacity = 3
[[group]]
path = "/a"
[[group]]
path = "/a/b"
[[task]]
name = "client"
group = "/a"
program = [{ loop = 20, do = [{ send = "requests", n = 3 }, { sleep = "1ms" }, { send = "few" }] }]
[[task]]
name = "server"
group = "/a/b"
program = [{ loop = 10, do = [{ recv = "requests", n = 6 }, { user = "100us" }, { done = true }] }]
[[task]]
name = "slow"
program = [{ loop = 20, do = [{ recv = "few" }, { kernel = "200us" }, { done = true }] }]
[[task]]
name = "parent"
group = "/a"
program = [{ loop = 5, do = [{ fork = "child" }, { fork = "child" }, { wait = "children" },
  { done = true }] }]
[[task]]
name = "child"
count = 0
program = [{ user = "300us" }, { move = "self", to = "/a/b" }, { done = true }]
[[task]]
name = "reader"
count = 3
program = [{ loop = 10, do = [
  { syscall = [{ lock = "shared", mode = "read" }, { kernel = "50us" }, { unlock = "shared" },
    { done = true }] },
] }]
[[task]]
name = "writer"
program = [{ loop = 10, do = [
  { syscall = [{ every = "2ms" }, { lock = "shared", mode = "write" }, { kernel = "50us" },
    { unlock = "shared" }, { done = true }] },
] }]
[[task]]
name = "victim"
program = [{ forever = [{ user = "1s" }] }]
[[source]]
name = "clock"
channel = "requests"
every = "50ms"
count = 1
[[at]]
time = "100ms"
task = "victim"
signal = "kill"
"#;

#[test]
fn every_part_of_a_program_is_executed() {
    let Some(mut guest) = Guest::start() else { return };
    let report = guest.run(PARTS);
    let tasks = &report.outcome.tasks;
    let done = |name: &str| (tasks[name].count, tasks[name].completions, tasks[name].exited);
    assert_eq!(done("client"), (1, 0, 1), "{report:?}");
    assert_eq!(done("server"), (1, 10, 1), "{report:?}");
    assert_eq!(done("slow"), (1, 20, 1), "{report:?}");
    assert_eq!(done("parent"), (1, 5, 1), "{report:?}");
    assert_eq!(done("child"), (10, 10, 10), "{report:?}");
    assert_eq!(done("reader"), (3, 30, 3), "{report:?}");
    assert_eq!(done("writer"), (1, 10, 1), "{report:?}");
    assert_eq!(done("victim"), (1, 0, 1), "{report:?}");
    let killed_ns = tasks["victim"].finished_ns;
    assert!((100_000_000..1_000_000_000).contains(&killed_ns), "{killed_ns}");
    assert_eq!(report.outcome.groups["/a/b"].completions, 20, "the server's, and the children's");
    assert_eq!(report.outcome.groups["/a"].completions, 25, "and the parent's");
    let writer = tasks["writer"].latency_ns;
    assert!(writer.p50 >= 30_000, "{writer:?}: kernel time is part of the request");
    assert_eq!(report.locks["shared"], "pipe");
}

/// Sleeps and moves before the run count neither for the task nor for its group. The run is
/// repeated if another user of the machine changes its speed after work was calibrated.
#[test]
fn what_is_rehearsed_is_not_part_of_the_run() {
    let Some(mut guest) = Guest::start() else { return };
    for left in (0..5).rev() {
        let report = guest.run(
            r#"
            duration = "200ms"
            [[group]]
            path = "/a"
            max = "1000 100000"
            [[group]]
            path = "/b"
            [[task]]
            name = "mover"
            count = 3
            group = "/a"
            program = [{ sleep = "50ms" }, { move = "self", to = "/b" }, { user = "10ms" },
              { done = true }]
            "#,
        );
        let mover = &report.outcome.tasks["mover"];
        assert_eq!((mover.count, mover.completions), (3, 3), "{report:?}");
        assert!(report.outcome.groups["/a"].usage_usec < 2_000, "{report:?}");
        assert_eq!(report.outcome.groups["/b"].completions, 3, "{report:?}");
        // Work is accurate to about a percent on a busy machine.
        if (29_000..33_000).contains(&mover.usage_usec) {
            return;
        }
        assert!(left > 0, "{report:?}");
    }
}

#[test]
fn work_is_as_long_as_it_says_wherever_it_stands() {
    let ways = [
        "{ user = \"1ms\" }",
        "{ kernel = \"1ms\" }",
        "{ syscall = [{ begin = true }, { kernel = \"1ms\" }, { done = true }] }",
        "{ syscall = [{ kernel = \"500us\" }, { done = true }, { kernel = \"500us\" }] }",
    ];
    // A busy neighbour on the same core makes work up to 1.8 times as long, in the run or in the
    // guest's calibration. Time stolen from a virtual CPU counts as used. Then another guest
    // calibrates anew and tries.
    let fits = |used_us: &u64| (50_000..200_000).contains(used_us);
    let Some(mut guest) = Guest::start() else { return };
    for way in ways {
        let scenario = format!(
            "duration = \"600ms\"\n[[group]]\npath = \"/a\"\n[[task]]\nname = \"t\"\n\
             group = \"/a\"\n\
             program = [{{ loop = 100, do = [{way}] }}]\n"
        );
        let mut tries = Vec::new();
        while !tries.last().is_some_and(fits) {
            assert!(tries.len() < 3, "{way}: {tries:?} us for 100 ms of work");
            if !tries.is_empty() {
                guest = Guest::start().expect("it started before");
            }
            tries.push(guest.run(&scenario).outcome.tasks["t"].usage_usec);
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_the_next_job_runs() {
    let Some(mut guest) = Guest::start() else { return };
    let refused =
        guest.job("duration = \"1s\"\n[[task]]\nname = \"t\"\nprogram = [{ irqoff = \"1ms\" }]\n");
    assert!(
        matches!(&refused, FromGuest::Refused { reason } if reason.contains("interrupts off")),
        "{refused:?}"
    );
    let refused = guest.job("duration = 5");
    assert!(matches!(refused, FromGuest::Refused { .. }), "{refused:?}");
    assert_eq!(guest.run(LIMITED).outcome.world, "host");
}

/// Starts a long job and waits until its group is there.
fn in_the_middle_of_a_job() -> Option<Guest> {
    let mut guest = Guest::start()?;
    let scenario = LIMITED.replace("450ms", "10min");
    guest.say(&ToGuest::Job(Job { scenario, seed: 1, trace: may_trace(), ..Job::default() }));
    let begin = Instant::now();
    while guest.groups().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "no group is made");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(700));
    Some(guest)
}

#[test]
fn nothing_is_left_when_the_giver_of_jobs_is_gone() {
    let Some(mut guest) = in_the_middle_of_a_job() else { return };
    guest.input = None;
    guest.ended();
}

#[test]
fn nothing_is_left_when_the_guest_is_told_to_end() {
    let Some(guest) = in_the_middle_of_a_job() else { return };
    let kill = |signal: &str| {
        let pid = guest.process.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill runs");
        assert!(status.success());
    };
    kill("-INT");
    std::thread::sleep(Duration::from_millis(50));
    assert!(!guest.groups().is_empty(), "an interrupt is not for the guest");
    kill("-TERM");
    guest.ended();
}

/// Both guests are process 2 of their namespaces, and neither counts groups of the other as its
/// own.
#[test]
fn guests_of_two_pid_namespaces_have_groups_of_their_own() {
    let Some(mut first) = Guest::start_in_namespace() else { return };
    let Some(mut second) = Guest::start_in_namespace() else { return };
    let scenario = LIMITED.replace("450ms", "3s");
    for guest in [&mut first, &mut second] {
        guest.say(&ToGuest::Job(Job { scenario: scenario.clone(), seed: 1, ..Job::default() }));
    }
    std::thread::sleep(Duration::from_millis(900));
    let of_second = groups("cpumax-2-");
    assert!(of_second.len() >= 2, "{of_second:?}");
    // A later guest leaves both alone, though its own process 2 is another one.
    drop(Guest::start_in_namespace());
    drop(Guest::start());
    assert_eq!(groups("cpumax-2-"), of_second);
    for mut guest in [first, second] {
        let FromGuest::Result(report) = guest.next() else { panic!("no result") };
        let limited = &report.outcome.groups["/limited"];
        assert!((150_000..=890_000).contains(&limited.usage_usec), "{limited:?}");
        guest.say(&ToGuest::Quit);
    }
    let begin = Instant::now();
    while !groups("cpumax-2-").is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", groups("cpumax-2-"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_name_alone_does_not_make_a_group_ours() {
    let Some(guest) = Guest::start() else { return };
    drop(guest);
    let Some(top) = top() else { return };
    let names = ["cpumax-99999999", "cpumax-99999999-0123456789abcdef", "cpumax-99999999-lent"];
    let foreign: Vec<PathBuf> = names.iter().map(|name| Path::new(top).join(name)).collect();
    for dir in &foreign {
        std::fs::create_dir(dir).expect("may be made");
    }
    let mut sleeper = Command::new("sleep").arg("60").spawn().expect("sleeps");
    for dir in &foreign[..2] {
        std::fs::write(dir.join("cgroup.procs"), sleeper.id().to_string()).expect("may move");
    }
    drop(Guest::start());
    let is_alive = matches!(sleeper.try_wait(), Ok(None));
    let are_there: Vec<bool> = foreign.iter().map(|dir| dir.exists()).collect();
    sleeper.kill().expect("was ours");
    sleeper.wait().expect("was ours");
    for dir in &foreign {
        let _ = std::fs::remove_dir(dir);
    }
    assert!(is_alive && are_there == [true; 3], "{is_alive} {are_there:?}");
}

#[test]
fn the_next_guest_removes_the_groups_of_a_killed_one() {
    let Some(mut guest) = in_the_middle_of_a_job() else { return };
    let left = guest.groups();
    assert_eq!(guest.buffers(), usize::from(may_trace()));
    guest.process.kill().expect("it is ours");
    guest.process.wait().expect("it is ours");
    assert_eq!(guest.groups(), left, "nobody has removed them yet");
    drop(Guest::start());
    assert_eq!(guest.groups(), [""; 0].map(PathBuf::from));
    assert_eq!(guest.buffers(), 0);
}
